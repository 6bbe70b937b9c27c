//! Reads single records whole, by their offsets.
//!
//! Reads: a partition and rising offsets. Gives: the records that are there. Joins no group, commits nothing.

use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError as ClientError;
use rdkafka::message::{BorrowedMessage, Headers as _, Message};
use rdkafka::{Offset, TopicPartitionList};

use super::admin::{Admin, Quiet, watermarks};
use super::error::KafkaError;
use super::record::{Header, TopicPartition};
use crate::clock;

/// Longest wait in one poll.
const POLL_MAX: Duration = Duration::from_millis(100);
/// Offsets that are read through, rather than jumped over, to reach the next one that is wanted.
const NEAR: i64 = 2_000;

/// A record as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    pub timestamp_ms: Option<i64>,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<Header>,
}

impl Admin {
    /// The first offset whose record is not older than `timestamp_ms`; `None`: all are older.
    ///
    /// # Errors
    /// No answer in time; no such partition.
    pub async fn offset_at(
        &self,
        partition: &TopicPartition,
        timestamp_ms: i64,
    ) -> Result<Option<i64>, KafkaError> {
        let partition = partition.clone();
        self.ask("offsets of a time", move |inner| {
            let unavailable =
                |source| KafkaError::Unavailable { asked: "offsets of a time", source };
            let mut list = TopicPartitionList::with_capacity(1);
            let mut element = list.add_partition(&partition.topic, partition.partition);
            element.set_offset(Offset::Offset(timestamp_ms.max(0))).map_err(unavailable)?;
            let found = inner.reader().offsets_for_times(list, inner.limit).map_err(unavailable)?;
            let found = found.find_partition(&partition.topic, partition.partition);
            let found = found.ok_or(KafkaError::TimedOut { asked: "offsets of a time" })?;
            found.error().map_err(unavailable)?;
            let Offset::Offset(offset) = found.offset() else { return Ok(None) };
            Ok(Some(offset))
        })
        .await
    }

    /// The records at these rising offsets, those of them that are there.
    ///
    /// # Errors
    /// No answer in time; no such partition.
    pub async fn records(
        &self,
        partition: &TopicPartition,
        sorted: &[i64],
    ) -> Result<BTreeMap<i64, Fetched>, KafkaError> {
        let (partition, sorted) = (partition.clone(), sorted.to_vec());
        self.ask("records", move |inner| records(&inner.reader(), &partition, &sorted, inner.limit))
            .await
    }
}

fn records(
    reader: &BaseConsumer<Quiet>,
    partition: &TopicPartition,
    sorted: &[i64],
    limit: Duration,
) -> Result<BTreeMap<i64, Fetched>, KafkaError> {
    let (low, high) = watermarks(reader, partition, limit)?;
    let wanted: Vec<i64> =
        sorted.iter().copied().filter(|offset| (low..high).contains(offset)).collect();
    let mut found = BTreeMap::new();
    let mut rest = wanted.as_slice();
    while let Some(first) = rest.first() {
        let near = rest.windows(2).take_while(|pair| match pair {
            [one, next] => next.saturating_sub(*one) <= NEAR,
            _ => false,
        });
        let (run, further) = rest.split_at(near.count().saturating_add(1));
        let read = run_of(reader, partition, (*first, run), limit, &mut found);
        let released = reader.unassign();
        read?;
        released.map_err(unavailable)?;
        rest = further;
    }
    Ok(found)
}

/// Reads on from `first` until the last of the run has passed.
fn run_of(
    reader: &BaseConsumer<Quiet>,
    partition: &TopicPartition,
    (first, run): (i64, &[i64]),
    limit: Duration,
    found: &mut BTreeMap<i64, Fetched>,
) -> Result<(), KafkaError> {
    let last = run.last().copied().unwrap_or(first);
    let mut list = TopicPartitionList::with_capacity(1);
    let mut element = list.add_partition(&partition.topic, partition.partition);
    element.set_offset(Offset::Offset(first)).map_err(unavailable)?;
    reader.assign(&list).map_err(unavailable)?;
    let mut moved = clock::now();
    loop {
        if clock::since(moved) >= limit {
            return Err(KafkaError::TimedOut { asked: "records" });
        }
        match reader.poll(POLL_MAX) {
            None => {}
            Some(Err(ClientError::PartitionEOF(_))) => return Ok(()),
            Some(Err(error)) => tracing::debug!(%error, "reading records, going on"),
            Some(Ok(message)) => {
                moved = clock::now();
                if run.binary_search(&message.offset()).is_ok() {
                    found.insert(message.offset(), owned(&message));
                }
                if message.offset() >= last {
                    return Ok(());
                }
            }
        }
    }
}

fn owned(message: &BorrowedMessage<'_>) -> Fetched {
    let mut headers = Vec::new();
    if let Some(list) = message.headers() {
        for index in 0..list.count() {
            // The client library panics at a name that is not UTF-8.
            let read = panic::catch_unwind(AssertUnwindSafe(|| list.try_get(index)));
            let Ok(Some(header)) = read else { break };
            headers.push(Header {
                name: Arc::from(header.key),
                value: header.value.map(Bytes::copy_from_slice),
            });
        }
    }
    Fetched {
        timestamp_ms: message.timestamp().to_millis(),
        key: message.key().map(Bytes::copy_from_slice),
        value: message.payload().map(Bytes::copy_from_slice),
        headers,
    }
}

fn unavailable(source: ClientError) -> KafkaError {
    KafkaError::Unavailable { asked: "records", source }
}
