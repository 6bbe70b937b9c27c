//! What the consumer counts, as plain values that others publish.
//!
//! Reads: the client's statistics and what the thread saw. Gives: counters and, per partition,
//! the broker's offsets. Never a metric by name.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Deserialize;

use super::event::TroubleKind;
use super::record::TopicPartition;

/// Counters since the consumer was made. They only rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumerCounts {
    /// Records delivered to the worker.
    pub records: u64,
    /// Bytes delivered to the worker: keys, values and headers.
    pub bytes: u64,
    /// Rebalances that brought partitions.
    pub rebalances_assigned: u64,
    /// Rebalances that took partitions.
    pub rebalances_revoked: u64,
    /// Times that partitions were lost without being asked for.
    pub rebalances_lost: u64,
    /// Commits that passed.
    pub commits_done: u64,
    /// Commits refused because the group was rebalancing; sent again with the next.
    pub commits_refused: u64,
    /// Commits that failed otherwise; sent again with the next.
    pub commits_failed: u64,
    /// Drains that did not end in time.
    pub drains_late: u64,
    /// Times that fetching was paused because the worker held too much.
    pub back_pressure: u64,
    /// Errors of connections.
    pub trouble_transport: u64,
    /// Refusals of TLS, SASL, or of rights.
    pub trouble_access: u64,
    /// Times that this process had not polled for too long.
    pub poll_interval_exceeded: u64,
    /// All other errors.
    pub trouble_other: u64,
    /// Partitions that stopped because their next offset was out of range.
    pub out_of_range: u64,
    /// Records dropped because their assignment had ended, or its start was not yet answered.
    pub records_dropped: u64,
}

macro_rules! counters {
    ($($name:ident),+ $(,)?) => {
        /// The live counters.
        #[derive(Debug, Default)]
        pub(super) struct Counters { $(pub(super) $name: AtomicU64,)+ }

        impl Counters {
            pub(super) fn read(&self) -> ConsumerCounts {
                ConsumerCounts { $($name: self.$name.load(Ordering::Relaxed),)+ }
            }
        }
    };
}

counters!(
    records,
    bytes,
    rebalances_assigned,
    rebalances_revoked,
    rebalances_lost,
    commits_done,
    commits_refused,
    commits_failed,
    drains_late,
    back_pressure,
    trouble_transport,
    trouble_access,
    poll_interval_exceeded,
    trouble_other,
    out_of_range,
    records_dropped,
);

impl Counters {
    pub(super) fn add(counter: &AtomicU64, by: usize) {
        counter.fetch_add(u64::try_from(by).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn trouble(&self, kind: TroubleKind) {
        let counter = match kind {
            TroubleKind::Transport => &self.trouble_transport,
            TroubleKind::Authentication | TroubleKind::Authorization => &self.trouble_access,
            TroubleKind::PollIntervalExceeded => &self.poll_interval_exceeded,
            TroubleKind::TopicMissing | TroubleKind::Corrupt | TroubleKind::Other => {
                &self.trouble_other
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// The broker's view of one partition, at most [`STATISTICS_INTERVAL`](super::STATISTICS_INTERVAL)
/// old. Known only for partitions that are being fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionOffsets {
    /// The partition.
    pub partition: TopicPartition,
    /// First offset that the broker has; `None` until it is known.
    pub low: Option<i64>,
    /// Offset of the next record to be produced.
    pub high: Option<i64>,
    /// Offset up to which transactions are decided; nothing is delivered beyond it. A hanging
    /// transaction keeps it below `high`.
    pub last_stable: Option<i64>,
    /// Offset that will be fetched next; it passes over transaction markers, which are never
    /// delivered.
    pub next_fetch: Option<i64>,
    /// Offset after the last record taken from the client.
    pub next_delivery: Option<i64>,
}

impl PartitionOffsets {
    /// Records between a position and the end. `None` while the end is unknown.
    ///
    /// Markers of transactions at the end are no records: where all that was fetched is finished,
    /// and all there is was fetched, the lag is 0.
    #[must_use]
    pub fn lag(&self, position: i64) -> Option<i64> {
        let high = self.high?;
        let all_fetched = self.next_fetch.is_some_and(|next| next >= high);
        let all_finished = self.next_delivery.is_some_and(|next| position >= next);
        if all_fetched && all_finished {
            return Some(0);
        }
        Some(high.saturating_sub(position).max(0))
    }
}

/// The last statistics.
#[derive(Debug, Default)]
pub(super) struct OffsetsBoard {
    last: Mutex<Board>,
    /// How often statistics came.
    written: AtomicU64,
}

#[derive(Debug, Default)]
struct Board {
    fetched: Vec<PartitionOffsets>,
    idle: Vec<TopicPartition>,
    broker_up: Option<bool>,
}

impl OffsetsBoard {
    fn last(&self) -> MutexGuard<'_, Board> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn read(&self) -> Vec<PartitionOffsets> {
        self.last().fetched.clone()
    }

    /// Whether any broker is connected; `None` before the first statistics.
    pub(super) fn broker_up(&self) -> Option<bool> {
        self.last().broker_up
    }

    /// How often statistics came.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Partitions that the client knows and does not fetch.
    pub(super) fn idle(&self) -> Vec<TopicPartition> {
        self.last().idle.clone()
    }

    /// Takes the client's statistics, as JSON. What cannot be read leaves the board as it was.
    pub(super) fn write(&self, json: &[u8]) {
        if let Ok(report) = serde_json::from_slice::<Report<'_>>(json) {
            *self.last() = report.board();
            self.written.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// The few fields of the statistics that are read; the rest is skipped, not kept.
#[derive(Deserialize)]
struct Report<'a> {
    #[serde(borrow, default)]
    topics: HashMap<&'a str, TopicReport>,
    #[serde(borrow, default)]
    brokers: HashMap<&'a str, BrokerReport<'a>>,
}

#[derive(Deserialize)]
struct BrokerReport<'a> {
    state: &'a str,
}

#[derive(Deserialize)]
struct TopicReport {
    #[serde(default)]
    partitions: HashMap<String, PartitionReport>,
}

#[derive(Deserialize)]
struct PartitionReport {
    partition: i32,
    fetch_state: String,
    next_offset: i64,
    app_offset: i64,
    lo_offset: i64,
    hi_offset: i64,
    ls_offset: i64,
}

impl Report<'_> {
    fn board(&self) -> Board {
        // Negative numbers are the client's words for "unknown".
        let known = |offset: i64| (offset >= 0).then_some(offset);
        let up = self.brokers.values().any(|broker| broker.state == "UP");
        let mut board = Board { broker_up: Some(up), ..Board::default() };
        for (topic, report) in &self.topics {
            for p in report.partitions.values().filter(|p| p.partition >= 0) {
                let partition = TopicPartition::new(*topic, p.partition);
                match p.fetch_state.as_str() {
                    "active" => board.fetched.push(PartitionOffsets {
                        partition,
                        low: known(p.lo_offset),
                        high: known(p.hi_offset),
                        last_stable: known(p.ls_offset),
                        next_fetch: known(p.next_offset),
                        next_delivery: known(p.app_offset),
                    }),
                    "none" | "stopped" => board.idle.push(partition),
                    // On its way to another state.
                    _ => {}
                }
            }
        }
        board.fetched.sort_by(|a, b| a.partition.cmp(&b.partition));
        board
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_give_the_offsets_of_partitions_that_are_fetched() {
        let board = OffsetsBoard::default();
        board.write(
            br#"{"name":"x","topics":{"orders":{"topic":"orders","partitions":{
                "0":{"partition":0,"fetch_state":"active","next_offset":12,"app_offset":10,
                     "lo_offset":3,"hi_offset":12,"ls_offset":12,"extra":1},
                "1":{"partition":1,"fetch_state":"none","next_offset":0,"app_offset":-1001,
                     "lo_offset":-1001,"hi_offset":-1001,"ls_offset":-1001},
                "-1":{"partition":-1,"fetch_state":"none","next_offset":0,"app_offset":-1001,
                     "lo_offset":-1001,"hi_offset":-1001,"ls_offset":-1001}}}}}"#,
        );
        let offsets = board.read();
        assert_eq!(offsets.len(), 1);
        assert_eq!(offsets[0].partition, TopicPartition::new("orders", 0));
        assert_eq!(offsets[0].lag(7), Some(5));
        // Offsets 10 and 11 are markers: everything is fetched, all that was delivered is done.
        assert_eq!(offsets[0].lag(10), Some(0));
        assert_eq!(board.idle(), [TopicPartition::new("orders", 1)]);
        board.write(b"not json");
        assert_eq!(board.written(), 1);
        assert_eq!(board.read().len(), 1);
    }

    #[test]
    fn k8_brokers_that_are_all_away_are_told_from_those_not_heard_of_yet() {
        let board = OffsetsBoard::default();
        assert_eq!(board.broker_up(), None);
        board
            .write(br#"{"brokers":{"a:1/1":{"state":"DOWN"},"b:1/2":{"state":"UP"}},"topics":{}}"#);
        assert_eq!(board.broker_up(), Some(true));
        board.write(br#"{"brokers":{"a:1/1":{"state":"DOWN"},"b:1/2":{"state":"TRY_CONNECT"}}}"#);
        assert_eq!(board.broker_up(), Some(false));
    }
}
