//! Gathers records into a batch whose bytes lie in one arena.
//!
//! Reads: messages lent by the client. Gives: owned records. Copies every byte once, because a
//! message that is kept keeps the whole fetch buffer that it came in.

use std::collections::HashMap;
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use bytes::Bytes;
use rdkafka::message::{BorrowedMessage, Headers, Message};

use super::record::{AssignmentId, Header, RECORD_OVERHEAD_BYTES, Record, StartId};

/// Header names kept for sharing; a producer that invents names must not fill the memory.
const HEADER_NAMES_MAX: usize = 256;
/// Smallest arena worth making.
const ARENA_BYTES_MIN: usize = 16 << 10;

/// The batch under way.
#[derive(Debug)]
pub(super) struct Gathering {
    records_max: usize,
    bytes_max: usize,
    arena: Vec<u8>,
    entries: Vec<Entry>,
    weight: usize,
    names: HashMap<Box<str>, Arc<str>>,
}

/// A record whose bytes lie in the arena.
#[derive(Debug)]
struct Entry {
    topic: Arc<str>,
    partition: i32,
    offset: i64,
    timestamp_ms: Option<i64>,
    key: Option<Range<usize>>,
    value: Option<Range<usize>>,
    headers: HeaderEntries,
    headers_broken: bool,
    assignment: AssignmentId,
    start: StartId,
}

/// Names and places of values.
type HeaderEntries = Vec<(Arc<str>, Option<Range<usize>>)>;

impl Gathering {
    pub(super) fn new(records_max: usize, bytes_max: usize) -> Self {
        Self {
            records_max: records_max.max(1),
            bytes_max: bytes_max.max(1),
            arena: Vec::new(),
            entries: Vec::new(),
            weight: 0,
            names: HashMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= self.records_max || self.weight >= self.bytes_max
    }

    /// Copies a message.
    pub(super) fn push(
        &mut self,
        topic: Arc<str>,
        (assignment, start): (AssignmentId, StartId),
        message: &BorrowedMessage<'_>,
    ) {
        let before = self.arena.len();
        let key = message.key().map(|bytes| self.copy(bytes));
        let value = message.payload().map(|bytes| self.copy(bytes));
        let (headers, headers_broken) = self.headers(message);
        let names: usize = headers.iter().map(|(name, _)| name.len()).sum();
        self.weight = self
            .weight
            .saturating_add(RECORD_OVERHEAD_BYTES)
            .saturating_add(names)
            .saturating_add(self.arena.len().saturating_sub(before));
        self.entries.push(Entry {
            topic,
            partition: message.partition(),
            offset: message.offset(),
            timestamp_ms: message.timestamp().to_millis(),
            key,
            value,
            headers,
            headers_broken,
            assignment,
            start,
        });
    }

    fn copy(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.arena.len();
        self.arena.extend_from_slice(bytes);
        start..self.arena.len()
    }

    /// The headers, and whether one of them could not be read.
    fn headers(&mut self, message: &BorrowedMessage<'_>) -> (HeaderEntries, bool) {
        let Some(lent) = message.headers() else { return (Vec::new(), false) };
        let mut headers = Vec::with_capacity(lent.count());
        for index in 0..lent.count() {
            // The client library panics at a name that is not UTF-8. One strange record must not
            // end the thread: it is delivered with what could be read, and marked.
            let read = panic::catch_unwind(AssertUnwindSafe(|| lent.try_get(index)));
            let Ok(Some(header)) = read else { return (headers, true) };
            let name = self.name(header.key);
            let value = header.value.map(|bytes| self.copy(bytes));
            headers.push((name, value));
        }
        (headers, false)
    }

    fn name(&mut self, name: &str) -> Arc<str> {
        if let Some(shared) = self.names.get(name) {
            return Arc::clone(shared);
        }
        let shared: Arc<str> = Arc::from(name);
        if self.names.len() < HEADER_NAMES_MAX {
            self.names.insert(Box::from(name), Arc::clone(&shared));
        }
        shared
    }

    /// Throws records away whose assignment has ended. Gives how many.
    pub(super) fn retain(&mut self, live: impl Fn(AssignmentId) -> bool) -> usize {
        let before = self.entries.len();
        self.entries.retain(|entry| live(entry.assignment));
        before.saturating_sub(self.entries.len())
    }

    /// Ends the batch: its records and their weight in bytes.
    pub(super) fn take(&mut self) -> (Vec<Record>, usize) {
        let size = self.arena.len().max(ARENA_BYTES_MIN);
        let arena = Bytes::from(std::mem::replace(&mut self.arena, Vec::with_capacity(size)));
        let weight = std::mem::take(&mut self.weight);
        let entries = std::mem::replace(&mut self.entries, Vec::with_capacity(self.records_max));
        let slice = |range: Range<usize>| arena.slice(range);
        let records = entries
            .into_iter()
            .map(|entry| Record {
                topic: entry.topic,
                partition: entry.partition,
                offset: entry.offset,
                timestamp_ms: entry.timestamp_ms,
                key: entry.key.map(slice),
                value: entry.value.map(slice),
                headers: entry
                    .headers
                    .into_iter()
                    .map(|(name, value)| Header { name, value: value.map(slice) })
                    .collect(),
                headers_broken: entry.headers_broken,
                assignment: entry.assignment,
                start: entry.start,
            })
            .collect();
        (records, weight)
    }
}
