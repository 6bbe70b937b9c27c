//! How long partitions stand still when their worker is killed under load.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oncely::clock;
use oncely_rig::wait;
use rdkafka::producer::Producer as _;

use crate::connector::Calls;
use crate::error::{BenchError, Result};
use crate::figure::say;
use crate::product::{LOOK_EVERY, Worker, positions, until_end};
use crate::services::Services;
use crate::workload::{self, PARTITIONS, VALUE_BYTES, Workload};
use crate::{check, connector};

/// What is written while the workers are at it, in records a second.
const PACE_PER_SECOND: u64 = 4_000;
/// How long two workers may take to share the partitions.
const SHARED_MAX: Duration = Duration::from_secs(30);
/// How long both work before one is killed.
const BEFORE_KILL: Duration = Duration::from_millis(1_500);
/// What the victim had asked for when it was killed may still arrive; it counts as done before.
const AFTERSHOCK: Duration = Duration::from_millis(200);
/// How long recovery may take before it counts as none.
const RECOVERY_MAX: Duration = Duration::from_secs(60);

/// Seconds from the kill of one of two workers until each partition has a higher position on record.
pub(crate) async fn recovery(services: &Services, name: &str, backlog: u64) -> Result<f64> {
    let topic = format!("bench.{name}");
    let database = services.database(name).await?;
    let file = connector::write(services.scratch.path(), &topic, Calls::Nobody)?;
    Workload::of(backlog).preload(&services.kafka, &topic).await?;
    let load = Load::start(services, &topic, backlog);
    let settings = [
        ("ONCELY_KAFKA_SESSION_TIMEOUT", "6s"),
        ("ONCELY_KAFKA_HEARTBEAT", "1s"),
        ("ONCELY_DRAIN", "3s"),
    ];
    let start = || Worker::start(services, &database, &file, &settings);
    let (mut victim, mut survivor) = (start()?, start()?);
    let half = PARTITIONS / 2;
    for worker in [&mut victim, &mut survivor] {
        until_assigned(worker, half).await?;
    }
    tokio::time::sleep(BEFORE_KILL).await;
    let mut connection = database.connect("watch").await?;
    say("  kill -9 of one of two workers");
    let killed = clock::now();
    victim.child.kill().await?;
    tokio::time::sleep(AFTERSHOCK).await;
    let before: BTreeMap<i32, i64> = positions(&mut connection).await?.into_iter().collect();
    let mut moved: BTreeMap<i32, f64> = BTreeMap::new();
    while moved.len() < PARTITIONS as usize {
        for (partition, position) in positions(&mut connection).await? {
            if before.get(&partition).is_none_or(|before| position > *before) {
                moved.entry(partition).or_insert_with(|| clock::since(killed).as_secs_f64());
            }
        }
        survivor.child.must_run()?;
        if clock::since(killed) > RECOVERY_MAX {
            let what = format!("only partitions {:?} went on after a kill", moved.keys());
            return Err(BenchError::wrong(what));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let records = load.stop().await?;
    let mut ends = Vec::new();
    for partition in 0..PARTITIONS as i32 {
        ends.push(services.kafka.offsets(&topic, partition).await?.1);
    }
    until_end(&mut connection, std::slice::from_mut(&mut survivor), &ends).await?;
    survivor.stop().await?;
    check::state(&database, Workload::of(records)).await?;
    moved.values().copied().max_by(f64::total_cmp).ok_or_else(|| BenchError::wrong("no partitions"))
}

/// Waits until a worker has `partitions` of them.
async fn until_assigned(worker: &mut Worker, partitions: u32) -> Result<()> {
    let url = format!("{}/metrics", worker.http);
    let begun = clock::now();
    while clock::since(begun) < SHARED_MAX {
        worker.child.must_run()?;
        // It is not listening yet, or it is busy.
        if let Ok(response) = reqwest::get(&url).await {
            let text = response.text().await.unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with("oncely_partitions_assigned{"));
            let count = line.and_then(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
            if count.is_some_and(|count| count as u32 == partitions) {
                return Ok(());
            }
        }
        tokio::time::sleep(Duration::from_millis(wait::LOOK_EVERY_MS * 10)).await;
    }
    Err(BenchError::wrong(format!("a worker never got its {partitions} partitions")))
}

// --------------------------------------------------------------------------------------------- //

/// A producer that goes on with the workload at a steady pace.
struct Load {
    stop: Arc<AtomicBool>,
    producing: tokio::task::JoinHandle<Result<u64>>,
}

impl Load {
    fn start(services: &Services, topic: &str, from: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (bootstrap, topic) = (services.kafka.bootstrap(), topic.to_owned());
        let stopped = Arc::clone(&stop);
        let producing =
            tokio::task::spawn_blocking(move || produce(&bootstrap, &topic, from, &stopped));
        Self { stop, producing }
    }

    /// Ends it; gives how many records there are now.
    async fn stop(self) -> Result<u64> {
        self.stop.store(true, Ordering::Release);
        self.producing.await?
    }
}

fn produce(bootstrap: &str, topic: &str, from: u64, stop: &AtomicBool) -> Result<u64> {
    let producer = workload::producer(bootstrap)?;
    let mut value = String::with_capacity(VALUE_BYTES);
    let mut events = Workload::of(u64::MAX).events().skip(from as usize);
    let begun = clock::now();
    let mut sent = 0;
    while !stop.load(Ordering::Acquire) {
        let due = (clock::since(begun).as_secs_f64() * PACE_PER_SECOND as f64) as u64;
        while sent < due {
            let Some(event) = events.next() else { break };
            event.value(false, &mut value);
            workload::send(&producer, topic, &event.entity_id(), &value)?;
            sent += 1;
        }
        producer.poll(Duration::from_millis(10));
    }
    producer.flush(Duration::from_secs(60))?;
    Ok(from + sent)
}
