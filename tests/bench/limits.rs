//! What cannot be beaten on this machine at this moment, measured in the same run.
//!
//! - C: the median of 500 single-row commits on one connection, and their 99th percentile
//! - K: the topic drained by a bare consumer that touches each byte of the payload
//! - F2: the least that any inbox must write: one key per event, one guarded row per entity
//! - H: bare HTTP calls of the fake provider, as many in flight as the product has

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oncely::clock;
use oncely_core::key::Key;
use rdkafka::Message as _;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use sqlx::{Connection as _, PgConnection};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::error::{BenchError, Result};
use crate::figure::quantile;
use crate::services::Database;
use crate::workload::{Event, PARTITIONS};

/// Commits of which C is the median.
const COMMITS: usize = 500;
/// Records in one batch of F2.
const BATCH_RECORDS: usize = 1_000;
/// Writers of a limit. The product has more by default, since it also waits for what a limit does not.
pub(crate) const WRITERS: usize = 2;
/// How long the drain may go without a record.
const DRAIN_SILENCE: Duration = Duration::from_secs(20);

/// Median and 99th percentile of single-row commits, in milliseconds.
pub(crate) async fn commits(database: &Database) -> Result<(f64, f64)> {
    let mut connection = database.connect("commits").await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS public.single (id bigint PRIMARY KEY)")
        .execute(&mut connection)
        .await?;
    let mut took = Vec::with_capacity(COMMITS);
    for number in 0..COMMITS as i64 {
        let begun = clock::now();
        sqlx::query("INSERT INTO public.single VALUES ($1)")
            .bind(number)
            .execute(&mut connection)
            .await?;
        took.push(clock::since(begun).as_secs_f64() * 1_000.0);
    }
    let at = |share| quantile(&took, share).unwrap_or(0.0);
    Ok((at(0.5), at(0.99)))
}

// --------------------------------------------------------------------------------------------- //

/// What a bare consumer got from a topic.
pub(crate) struct Drained {
    /// Records a second, from the first to the last.
    pub(crate) per_s: f64,
    /// The records in the order in which they came: runs of one partition, as the product gets them. Batches
    /// that are cut from them have several versions of an entity.
    pub(crate) events: Vec<Event>,
}

/// Reads a topic as fast as a bare consumer can.
pub(crate) async fn drain(bootstrap: &str, topic: &str, records: u64) -> Result<Drained> {
    let (bootstrap, topic) = (bootstrap.to_owned(), topic.to_owned());
    tokio::task::spawn_blocking(move || drained(&bootstrap, &topic, records)).await?
}

fn drained(bootstrap: &str, topic: &str, records: u64) -> Result<Drained> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "bench.drain")
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_committed")
        .set("fetch.wait.max.ms", "50")
        .create()?;
    let mut assignment = TopicPartitionList::new();
    for partition in 0..PARTITIONS as i32 {
        assignment.add_partition_offset(topic, partition, Offset::Beginning)?;
    }
    consumer.assign(&assignment)?;
    let mut events = Vec::with_capacity(records as usize);
    let mut touched = 0_u64;
    let mut begun = clock::now();
    let mut last = begun;
    while (events.len() as u64) < records {
        match consumer.poll(Duration::from_millis(100)) {
            Some(record) => {
                let record = record?;
                if events.is_empty() {
                    begun = clock::now();
                }
                let bytes = record.payload().unwrap_or_default();
                touched = touched.wrapping_add(bytes.iter().map(|byte| u64::from(*byte)).sum());
                let event = Event::of_value(bytes);
                events.push(event.ok_or_else(|| BenchError::wrong("a record of somebody else"))?);
                if events.len().is_multiple_of(1_000) {
                    last = clock::now();
                }
            }
            None if clock::since(last) > DRAIN_SILENCE => {
                let seen = events.len();
                let what = format!("the drain stopped after {seen} of {records} records");
                return Err(BenchError::wrong(what));
            }
            None => {}
        }
    }
    std::hint::black_box(touched);
    Ok(Drained { per_s: records as f64 / clock::since(begun).as_secs_f64(), events })
}

// --------------------------------------------------------------------------------------------- //

/// One batch of F2, as arrays.
struct Least {
    keys: Vec<Uuid>,
    entities: Vec<Uuid>,
    versions: Vec<i64>,
    amounts: Vec<i64>,
}

impl Least {
    /// Folds events: sorted keys, and of each entity the highest version.
    fn fold(events: &[Event]) -> Self {
        let mut keys: Vec<Uuid> = events.iter().map(|event| uuid(&event.key())).collect();
        keys.sort_unstable();
        let mut rows: BTreeMap<Uuid, (i64, i64)> = BTreeMap::new();
        for event in events {
            let row = (event.version as i64, event.cents() as i64);
            let highest = rows.entry(uuid(&event.entity_key())).or_insert(row);
            *highest = row.max(*highest);
        }
        Self {
            keys,
            entities: rows.keys().copied().collect(),
            versions: rows.values().map(|row| row.0).collect(),
            amounts: rows.values().map(|row| row.1).collect(),
        }
    }

    async fn write(&self, connection: &mut PgConnection) -> Result<()> {
        let mut tx = connection.begin().await?;
        sqlx::query(
            "INSERT INTO least.inbox SELECT * FROM UNNEST($1::uuid[]) ON CONFLICT DO NOTHING",
        )
        .bind(&self.keys)
        .execute(&mut *tx)
        .await?;
        sqlx::query(
            "INSERT INTO least.entity AS e SELECT * FROM UNNEST($1::uuid[], $2::bigint[], $3::bigint[])
             ON CONFLICT (key) DO UPDATE SET version = excluded.version, amount = excluded.amount
             WHERE e.version < excluded.version",
        )
        .bind(&self.entities)
        .bind(&self.versions)
        .bind(&self.amounts)
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }
}

/// Events a second that the least of all inboxes writes, with two writers.
pub(crate) async fn least_inbox(database: &Database, events: &[Event]) -> Result<f64> {
    let mut connection = database.connect("least").await?;
    for statement in [
        "DROP SCHEMA IF EXISTS least CASCADE",
        "CREATE SCHEMA least",
        "CREATE TABLE least.inbox (key uuid PRIMARY KEY)",
        "CREATE TABLE least.entity (key uuid PRIMARY KEY, version bigint NOT NULL,
                                    amount bigint NOT NULL) WITH (fillfactor = 70)",
    ] {
        sqlx::query(statement).execute(&mut connection).await?;
    }
    let mut shards: Vec<Vec<Event>> = vec![Vec::new(); WRITERS];
    for event in events {
        shards[shard(&event.entity_key())].push(*event);
    }
    let folded: Vec<Vec<Least>> = shards
        .iter()
        .map(|events| events.chunks(BATCH_RECORDS).map(Least::fold).collect())
        .collect();
    sqlx::query("CHECKPOINT").execute(&mut connection).await?;
    let mut ready = Vec::new();
    for batches in folded {
        ready.push((database.connect_steady("least writer").await?, batches));
    }
    let begun = clock::now();
    let mut writers = JoinSet::new();
    for (mut connection, batches) in ready {
        writers.spawn(async move {
            for batch in &batches {
                batch.write(&mut connection).await?;
            }
            Ok::<_, BenchError>(())
        });
    }
    while let Some(written) = writers.join_next().await {
        written??;
    }
    Ok(events.len() as f64 / clock::since(begun).as_secs_f64())
}

/// The writer of an entity, split as the product does it.
pub(crate) fn shard(entity: &Key) -> usize {
    usize::from(entity.as_bytes().last().copied().unwrap_or(0)) % WRITERS
}

pub(crate) fn uuid(key: &Key) -> Uuid {
    Uuid::from_bytes(*key.as_bytes())
}

// --------------------------------------------------------------------------------------------- //

/// Calls a second that the fake provider answers, with `in_flight` of them at once.
pub(crate) async fn calls(provider: &str, calls: u64, in_flight: u32) -> Result<f64> {
    let client = reqwest::Client::builder().http1_only().no_proxy().build()?;
    let url: Arc<str> = format!("{provider}/keyed/limit").into();
    let next = Arc::new(AtomicU64::new(0));
    let mut callers = JoinSet::new();
    let begun = clock::now();
    for _ in 0..in_flight {
        let (client, url, next) = (client.clone(), Arc::clone(&url), Arc::clone(&next));
        callers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= calls {
                    return Ok::<_, BenchError>(());
                }
                let body = format!(r#"{{"invoice":"in_{number:09}","cents":{number}}}"#);
                let response = client
                    .post(&*url)
                    .header("idempotency-key", format!("limit-{number}"))
                    .header("content-type", "application/json")
                    .body(body)
                    .send()
                    .await?
                    .error_for_status()?;
                response.bytes().await?;
            }
        });
    }
    while let Some(called) = callers.join_next().await {
        called??;
    }
    Ok(calls as f64 / clock::since(begun).as_secs_f64())
}
