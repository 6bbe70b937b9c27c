//! One record as read from a partition, and the batches in which records travel.
//!
//! Reads: nothing. Gives: owned records whose bytes lie in one shared arena per batch, so that no
//! record keeps a fetch buffer of the client alive. Never decodes a value.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use oncely_core::progress::Witness;

use super::flow::Permit;

/// One partition of one topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    /// Name of the topic; cloning shares it.
    pub topic: Arc<str>,
    /// Number of the partition, from 0.
    pub partition: i32,
}

impl TopicPartition {
    /// Names a partition.
    #[must_use]
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// One assignment of one partition to this process.
///
/// A partition that goes away and comes back gets another one, so whatever belongs to the earlier
/// assignment (a tracker, a late answer, a commit) is recognised and dropped. Unique within the
/// process, never reused, of no meaning outside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AssignmentId(u64);

impl AssignmentId {
    /// The next id of this process.
    pub(crate) fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl fmt::Display for AssignmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One time that fetching of an assignment was begun.
///
/// Fetching can be begun anew, at a lower offset, while records of before are still on their way. They say under
/// which start they were fetched, so that they are not taken for the first ones of the new one: records have no
/// other order than their offsets, and whatever lies below one that was taken counts as not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartId(u64);

impl StartId {
    /// The next id of this process.
    pub(crate) fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A header of a record, in the order in which the producer wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Name; names may repeat within one record.
    pub name: Arc<str>,
    /// Value; `None` is Kafka's null, which differs from an empty value.
    pub value: Option<Bytes>,
}

/// One record.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// Topic it was read from.
    pub topic: Arc<str>,
    /// Partition it was read from.
    pub partition: i32,
    /// Offset in that partition. Offsets rise and may have gaps.
    pub offset: i64,
    /// Milliseconds since 1970 as the producer or the broker set them; `None` when neither did.
    pub timestamp_ms: Option<i64>,
    /// Key; `None` is null.
    pub key: Option<Bytes>,
    /// Value; `None` is a tombstone.
    pub value: Option<Bytes>,
    /// Headers in their order.
    pub headers: Vec<Header>,
    /// Whether a header name was not UTF-8, so that `headers` ends before it.
    pub headers_broken: bool,
    /// The assignment under which it was delivered.
    pub assignment: AssignmentId,
    /// The start of it that it was fetched after.
    pub start: StartId,
}

impl Record {
    /// The first header of that name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&Header> {
        self.headers.iter().find(|header| &*header.name == name)
    }

    /// The witness of a position just above this record.
    #[must_use]
    pub fn witness(&self) -> Witness {
        let (key, value) = (self.key.as_deref(), self.value.as_deref());
        Witness::of(self.offset, self.timestamp_ms, key, value)
    }

    /// Bytes that this record counts for against the byte bound: key, value, headers, and a fixed
    /// share for the record itself.
    #[must_use]
    pub fn weight(&self) -> usize {
        let headers = self.headers.iter().map(|header| {
            header.name.len().saturating_add(header.value.as_ref().map_or(0, Bytes::len))
        });
        RECORD_OVERHEAD_BYTES
            .saturating_add(self.key.as_ref().map_or(0, Bytes::len))
            .saturating_add(self.value.as_ref().map_or(0, Bytes::len))
            .saturating_add(headers.sum())
    }
}

/// What a record costs beside its own bytes. Without it, a flood of empty records would weigh
/// nothing.
pub(super) const RECORD_OVERHEAD_BYTES: usize = 128;

/// Shows coordinates and lengths, never contents: records carry personal data, logs must not.
impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("topic", &self.topic)
            .field("partition", &self.partition)
            .field("offset", &self.offset)
            .field("timestamp_ms", &self.timestamp_ms)
            .field("key_bytes", &self.key.as_ref().map(Bytes::len))
            .field("value_bytes", &self.value.as_ref().map(Bytes::len))
            .field("headers", &self.headers.len())
            .field("assignment", &self.assignment)
            .finish_non_exhaustive()
    }
}

/// Records of one or several partitions, in offset order within each partition.
#[derive(Debug)]
pub struct RecordBatch {
    /// The records. Never empty when delivered.
    pub records: Vec<Record>,
    /// Their share of the bounds on records and bytes in flight. Dropping it lets the consumer
    /// fetch more, so keep it until the records are durable or thrown away.
    pub permit: Permit,
}
