//! Looks at a story from outside: tables by plain SQL, committed offsets, and waits for states.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use oncely_rig::RigError;
use oncely_rig::postgres::{Row, Wire};
use tokio::time::Instant;

use super::{BOUND, World};
use crate::checker;

/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(40);

/// Effects that something will still be done about without anybody's help: all that are open, but for those that are
/// held and what comes after these, of a later event of the entity or by `after`.
pub(crate) const OPEN: &str = "WITH RECURSIVE stuck AS (
        SELECT key, lane, event, version FROM oncely.effect WHERE status = 'held'
        UNION
        SELECT e.key, e.lane, e.event, e.version FROM oncely.effect e JOIN stuck s
        ON s.key = ANY(e.after_keys) OR (s.lane = e.lane AND s.version < e.version AND s.event <> e.event)
        WHERE e.status = 'waiting' AND e.due_at IS NULL)
    SELECT e.key, e.name, e.business_id, e.status, e.due_at, e.attempts
    FROM oncely.effect e WHERE e.status IN ('waiting', 'claimed', 'unknown')
    AND NOT EXISTS (SELECT FROM stuck WHERE stuck.key = e.key)";

/// Events that wait and that nobody's word is waited for: by their time something follows.
const DEFERRED: &str = "SELECT business_id, version, due_at FROM oncely.deferred
    WHERE closed_at IS NULL AND due_at < 'infinity'";

impl World {
    /// Rows of a statement, past any proxy.
    pub async fn sql(&self, statement: &str) -> Vec<Row> {
        // A connection costs PostgreSQL a process and more time than the look. One that has broken
        // since its last look is replaced.
        if let Some(mut wire) = self.idle_wire()
            && let Ok(rows) = run(&mut wire, statement).await
        {
            self.wires().push(wire);
            return rows;
        }
        let mut wire = self.postgres().connect(&self.name).await.unwrap();
        let rows = run(&mut wire, statement).await;
        let rows = rows.unwrap_or_else(|error| panic!("{statement}: {error}"));
        self.wires().push(wire);
        rows
    }

    /// Waits until a commit waits for a standby: sessions read a changed setting before the server goes by it.
    pub async fn until_commits_wait(&self) {
        let mut wire = self.postgres().connect(&self.name).await.unwrap();
        let commits = tokio::spawn(async move {
            wire.run("CREATE TABLE public.commits ()").await.unwrap();
            loop {
                wire.run("INSERT INTO public.commits DEFAULT VALUES").await.unwrap();
            }
        });
        let waits = "SELECT count(*) FROM pg_stat_activity
                     WHERE wait_event = 'SyncRep' AND query LIKE '%public.commits%'";
        self.until_count("a commit to wait", waits, 1).await;
        commits.abort();
    }

    fn idle_wire(&self) -> Option<Wire> {
        self.wires().pop()
    }

    pub(super) fn wires(&self) -> MutexGuard<'_, Vec<Wire>> {
        self.wires.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number in the first row.
    pub async fn count(&self, statement: &str) -> i64 {
        let rows = self.sql(statement).await;
        rows[0][0].as_deref().unwrap().parse().unwrap()
    }

    /// Effects in a state.
    pub async fn effects_in(&self, status: &str) -> i64 {
        self.count(&format!("SELECT count(*) FROM oncely.effect WHERE status = '{status}'")).await
    }

    /// Status of the effect that is owed for a mark; `None` when there is none.
    pub async fn status_of(&self, effect: &str, mark: &str) -> Option<String> {
        let rows = self
            .sql(&format!(
                "SELECT status FROM oncely.effect
                 WHERE name = '{effect}' AND business_id LIKE '%{mark}%'"
            ))
            .await;
        assert!(rows.len() <= 1, "{effect} of {mark}: {rows:?}");
        rows.into_iter().next().and_then(|row| row.into_iter().next().flatten())
    }

    /// The key that the provider gets for an effect.
    pub async fn key_of(&self, effect: &str, mark: &str) -> String {
        let rows = self
            .sql(&format!(
                "SELECT 'ef_' || replace(key::text, '-', '') FROM oncely.effect
                 WHERE name = '{effect}' AND business_id LIKE '%{mark}%'"
            ))
            .await;
        rows[0][0].clone().unwrap()
    }

    /// Offset that the group has committed for a partition.
    pub async fn committed(&self, partition: i32) -> Option<i64> {
        let committed = checker::committed(self.kafka(), self.group(), self.topic()).await;
        committed.get(&partition).copied()
    }

    // ------------------------------------------------------------------------------------------

    /// Waits until a check holds.
    pub async fn until(&self, what: &str, check: impl AsyncFnMut() -> bool) {
        self.until_within(what, BOUND, check).await;
    }

    pub async fn until_within(
        &self,
        what: &str,
        bound: Duration,
        mut check: impl AsyncFnMut() -> bool,
    ) {
        let start = Instant::now();
        while !check().await {
            assert!(start.elapsed() < bound, "waited {bound:?} for: {what}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until so many rows of a statement's count are there.
    pub async fn until_count(&self, what: &str, statement: &str, wanted: i64) {
        self.until(what, async || self.count(statement).await == wanted).await;
    }

    /// Waits until nothing is left to do: every record is below the group's position, in PostgreSQL
    /// and in Kafka, no effect is open, and no event waits for a version.
    pub async fn settled(&self) {
        self.settled_within(BOUND).await;
    }

    pub async fn settled_within(&self, bound: Duration) {
        let start = Instant::now();
        let mut ends = Ends::default();
        loop {
            let Some(left) = self.left_to_do(&mut ends).await else { return };
            assert!(start.elapsed() < bound, "I5: not settled after {bound:?}: {left}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What keeps the story from being settled. The brokers, which all stories share, are asked when what they said
    /// before is reached, and once a second.
    async fn left_to_do(&self, known: &mut Ends) -> Option<String> {
        let open = self.sql(OPEN).await;
        if !open.is_empty() {
            return Some(format!("{} open effects, first {:?}", open.len(), open[0]));
        }
        let deferred = self.sql(DEFERRED).await;
        if !deferred.is_empty() {
            return Some(format!("{} deferred events, first {:?}", deferred.len(), deferred[0]));
        }
        let topic = self.topic();
        // Of a topic that was made anew the older one's stay, and move no more.
        let positions = self
            .sql(&format!(
                "SELECT partition, position FROM oncely.progress
                 WHERE group_name = '{}' AND topic = '{topic}' AND stopped IS NULL
                 ORDER BY updated_at DESC",
                self.group()
            ))
            .await;
        let position = |partition: i32| -> Option<i64> {
            let number = partition.to_string();
            let of_partition = positions.iter().find(|row| row[0].as_deref() == Some(&number));
            of_partition.map(|row| row[1].as_ref().unwrap().parse().unwrap())
        };
        if let Some((partition, high)) = known.behind(position) {
            return Some(format!(
                "partition {partition} ends at {high}, position {:?}",
                position(partition)
            ));
        }
        let ends = checker::ends(self.kafka(), topic).await;
        known.told(&ends);
        let committed = checker::committed(self.kafka(), self.group(), topic).await;
        for (partition, (low, high)) in ends {
            if low == high {
                continue;
            }
            let position = position(partition);
            let in_kafka = committed.get(&partition).copied();
            if position != Some(high) || in_kafka != Some(high) {
                return Some(format!(
                    "partition {partition} ends at {high}, position {position:?}, committed {in_kafka:?}"
                ));
            }
        }
        None
    }
}

/// Looks are repeated until they find what is waited for.
async fn run(wire: &mut Wire, statement: &str) -> Result<Vec<Row>, RigError> {
    match statement.starts_with("SELECT") || statement.starts_with("WITH") {
        true => wire.run_prepared(statement).await,
        false => wire.run(statement).await,
    }
}

/// Where partitions with records ended, when the brokers were last asked.
#[derive(Default)]
struct Ends {
    ends: BTreeMap<i32, i64>,
    asked: Option<Instant>,
}

impl Ends {
    fn told(&mut self, ends: &BTreeMap<i32, (i64, i64)>) {
        let with_records = ends.iter().filter(|(_, (low, high))| low < high);
        self.ends = with_records.map(|(partition, (_, high))| (*partition, *high)).collect();
        self.asked = Some(Instant::now());
    }

    /// A partition whose position has not come so far; `None` also when it is time to ask again.
    fn behind(&self, position: impl Fn(i32) -> Option<i64>) -> Option<(i32, i64)> {
        self.asked.filter(|asked| asked.elapsed() < Duration::from_secs(1))?;
        let mut ends = self.ends.iter().map(|(partition, high)| (*partition, *high));
        ends.find(|(partition, high)| position(*partition).is_none_or(|at| at < *high))
    }
}
