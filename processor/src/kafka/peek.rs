//! Reads single records for witnesses, with few round trips.
//!
//! The reader assigns itself partitions at chosen offsets; it has a group's name (a client without
//! one may not assign) and never joins it, never commits. Partitions of one topic are read at
//! once, so a start with a hundred partitions costs a few round trips.

use std::collections::HashMap;
use std::time::Duration;

use oncely_core::progress::Witness;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError as ClientError;
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};

use super::admin::{Quiet, WitnessCheck, watermarks};
use super::error::KafkaError;
use super::record::TopicPartition;
use super::settings::ClientSettings;
use crate::clock;

/// How far below a position its witness is looked for, step by step. Most positions have a record
/// just below; a marker of a transaction costs one more step; compaction may leave long gaps.
const LOOK_BACK: [i64; 3] = [1, 32, 1024];
/// Further steps, where the last record has to be known wherever it lies: many aborted ones may lie behind it.
const LOOK_FAR: [i64; 4] = [1 << 15, 1 << 20, 1 << 25, i64::MAX];
/// Longest wait in one poll.
const POLL_MAX: Duration = Duration::from_millis(100);

/// The client that reads.
pub(super) fn reader_config(settings: &ClientSettings, group: &str) -> ClientConfig {
    let mut config = settings.without_fetching();
    for (name, value) in [
        ("group.id", group),
        ("enable.auto.commit", "false"),
        ("enable.auto.offset.store", "false"),
        ("auto.offset.reset", "error"),
        ("isolation.level", "read_committed"),
        ("check.crcs", "true"),
        ("enable.partition.eof", "true"),
        ("fetch.wait.max.ms", "10"),
        // A broker gives whole batches, and beyond the first partition of an answer none that is
        // larger than this: with less, big batches come one partition at a time.
        ("max.partition.fetch.bytes", "1048588"),
        ("queued.min.messages", "1"),
        // A full queue stops every partition, those that are still asked for too, for a second
        // unless this says otherwise.
        ("queued.max.messages.kbytes", "16384"),
        ("fetch.queue.backoff.ms", "10"),
    ] {
        config.set(name, value);
    }
    config
}

/// Offsets of one partition to look at: from the first one to below the second one.
#[derive(Clone, Copy)]
struct Span {
    from: i64,
    below: i64,
}

pub(super) fn check_witnesses(
    reader: &BaseConsumer<Quiet>,
    witnesses: &[(TopicPartition, Witness)],
    limit: Duration,
) -> Result<HashMap<TopicPartition, WitnessCheck>, KafkaError> {
    let mut checks = HashMap::new();
    let mut spans = HashMap::new();
    for (partition, witness) in witnesses {
        let (low, high) = watermarks(reader, partition, limit)?;
        if witness.offset >= high {
            checks.insert(partition.clone(), WitnessCheck::Shorter { high });
        } else if witness.offset < low {
            checks.insert(partition.clone(), WitnessCheck::Gone);
        } else {
            let span = Span { from: witness.offset, below: witness.offset.saturating_add(1) };
            spans.insert(partition.clone(), span);
        }
    }
    let found = last_of(reader, &spans, limit)?;
    for (partition, witness) in witnesses {
        checks.entry(partition.clone()).or_insert_with(|| match found.get(partition) {
            None => WitnessCheck::Gone,
            Some(found) if found == witness => WitnessCheck::Same,
            Some(found) => WitnessCheck::Different { found: *found },
        });
    }
    Ok(checks)
}

pub(super) fn witnesses_before(
    reader: &BaseConsumer<Quiet>,
    (positions, far): (&[(TopicPartition, i64)], bool),
    limit: Duration,
) -> Result<HashMap<TopicPartition, Witness>, KafkaError> {
    let mut bounds = Vec::with_capacity(positions.len());
    for (partition, position) in positions {
        let (low, high) = watermarks(reader, partition, limit)?;
        bounds.push((partition, low, (*position).min(high)));
    }
    let mut witnesses = HashMap::new();
    let further = LOOK_FAR.into_iter().filter(|_| far);
    for distance in LOOK_BACK.into_iter().chain(further) {
        let spans: HashMap<_, _> = bounds
            .iter()
            .filter(|(partition, low, below)| low < below && !witnesses.contains_key(*partition))
            .map(|(partition, low, below)| {
                let from = below.saturating_sub(distance).max(*low);
                ((*partition).clone(), Span { from, below: *below })
            })
            .collect();
        if spans.is_empty() {
            break;
        }
        witnesses.extend(last_of(reader, &spans, limit)?);
    }
    Ok(witnesses)
}

/// The last record of each span.
fn last_of(
    reader: &BaseConsumer<Quiet>,
    spans: &HashMap<TopicPartition, Span>,
    limit: Duration,
) -> Result<HashMap<TopicPartition, Witness>, KafkaError> {
    let mut topics: Vec<_> = spans.keys().map(|partition| partition.topic.clone()).collect();
    topics.sort_unstable();
    topics.dedup();
    let mut found = HashMap::new();
    for topic in topics {
        let of_topic = spans
            .iter()
            .filter(|(partition, _)| partition.topic == topic)
            .map(|(partition, span)| (partition.partition, *span))
            .collect();
        let read = last_of_topic(reader, &topic, of_topic, limit);
        // Let go whatever came of it, so that nothing is fetched between questions.
        let released = reader.unassign();
        for (partition, witness) in read? {
            found.insert(TopicPartition::new(topic.clone(), partition), witness);
        }
        released.map_err(unavailable)?;
    }
    Ok(found)
}

fn last_of_topic(
    reader: &BaseConsumer<Quiet>,
    topic: &str,
    mut open: HashMap<i32, Span>,
    limit: Duration,
) -> Result<HashMap<i32, Witness>, KafkaError> {
    let mut list = TopicPartitionList::with_capacity(open.len());
    for (partition, span) in &open {
        let mut element = list.add_partition(topic, *partition);
        element.set_offset(Offset::Offset(span.from.max(0))).map_err(unavailable)?;
    }
    reader.assign(&list).map_err(unavailable)?;
    let began = clock::now();
    let mut found = HashMap::new();
    while !open.is_empty() {
        if clock::since(began) >= limit {
            return Err(KafkaError::TimedOut { asked: "single records" });
        }
        match reader.poll(POLL_MAX) {
            None => {}
            Some(Err(ClientError::PartitionEOF(partition))) => {
                open.remove(&partition);
            }
            // Connections that break are made again until the limit; so is everything else here.
            Some(Err(error)) => tracing::debug!(%error, "reading a single record, going on"),
            Some(Ok(message)) => {
                let partition = message.partition();
                let Some(span) = open.get(&partition) else { continue };
                if message.offset() < span.below {
                    let witness = Witness::of(
                        message.offset(),
                        message.timestamp().to_millis(),
                        message.key(),
                        message.payload(),
                    );
                    found.insert(partition, witness);
                }
                if message.offset() >= span.below.saturating_sub(1) {
                    open.remove(&partition);
                }
            }
        }
    }
    Ok(found)
}

fn unavailable(source: ClientError) -> KafkaError {
    KafkaError::Unavailable { asked: "single records", source }
}
