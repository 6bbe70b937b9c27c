//! What a failed story shows.

use std::fmt::Write as _;

use super::{KafkaOf, World};

/// Lines of each log.
const LINES_MAX: usize = 120;

/// Tables worth a look.
const TABLES: [(&str, &str); 7] = [
    (
        "failover",
        "SELECT number, timeline_before, timeline, at, lost_since, quiet_at, lossless, positions, effects
         FROM oncely.failover ORDER BY number",
    ),
    (
        "effect",
        "SELECT name, business_id, status, attempts, takeovers, was_unknown, suspect, worker, fence, due_at,
                settled_at, note FROM oncely.effect ORDER BY business_id, name LIMIT 60",
    ),
    (
        "inbox",
        "SELECT outcome, first_partition, first_offset, version, to_state FROM oncely.inbox
         ORDER BY first_partition, first_offset LIMIT 60",
    ),
    (
        "parked",
        "SELECT kind, reason, record_partition, record_offset, business_id, detail
         FROM oncely.parked ORDER BY id LIMIT 40",
    ),
    (
        "progress",
        "SELECT topic, partition, position, epoch, suspect, witness_offset, stopped, updated_at
         FROM oncely.progress ORDER BY topic, partition",
    ),
    ("worker", "SELECT id, started_at, heartbeat_at, dead_at, ended_at FROM oncely.worker"),
    (
        "attempt",
        "SELECT effect, at, outcome, status_code, evidence, note FROM oncely.attempt LIMIT 40",
    ),
];

impl World {
    /// Logs and tables, for the person who looks at a failed story.
    pub fn dump(&self) -> String {
        let mut text = format!("\n======== {} ========\n", self.name);
        writeln!(text, "provider: {:?}", self.provider.counts()).unwrap();
        for number in 0..self.workers.len() {
            let log = std::fs::read_to_string(self.log_of(number)).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let left_out = lines.len().saturating_sub(LINES_MAX);
            writeln!(text, "---- worker {number} ({left_out} lines before) ----").unwrap();
            for line in &lines[left_out..] {
                writeln!(text, "{line}").unwrap();
            }
        }
        if let Some(KafkaOf::Own(kafka)) = &self.kafka {
            for (number, said) in kafka.said() {
                writeln!(text, "---- broker {number} ----\n{said}").unwrap();
            }
        }
        let (cluster, name) = (self.postgres().address(), self.name.clone());
        // The story's runtime is unwinding: look with another.
        let tables = std::thread::spawn(move || tables(&cluster, &name)).join();
        text.push_str(&tables.unwrap_or_else(|_| "the tables cannot be shown\n".to_owned()));
        text
    }
}

fn tables(address: &str, database: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut text = String::new();
    runtime.block_on(async {
        let connecting = oncely_rig::postgres::Wire::connect(address, "postgres", database);
        let connecting = tokio::time::timeout(std::time::Duration::from_secs(5), connecting);
        let Ok(Ok(mut wire)) = connecting.await else {
            text.push_str("the database is away\n");
            return;
        };
        for (name, statement) in TABLES {
            writeln!(text, "---- {name} ----").unwrap();
            match wire.run(statement).await {
                Ok(rows) => {
                    for row in rows {
                        let cells: Vec<&str> =
                            row.iter().map(|cell| cell.as_deref().unwrap_or("-")).collect();
                        writeln!(text, "{}", cells.join(" | ")).unwrap();
                    }
                }
                Err(error) => writeln!(text, "{error}").unwrap(),
            }
        }
    });
    text
}
