//! Sorts the client's errors, and finds out which partition is out of range.
//!
//! The client says *that* an offset was out of range, not of which partition. So the partitions
//! that are being fetched are compared with what the broker has. A second sign is a partition
//! that the client's statistics show as not fetched for a while although it should be.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError as ClientError, RDKafkaErrorCode};

use super::TROUBLE_INTERVAL;
use super::consumer::Shared;
use super::context::{Context, Group};
use super::event::{Event, Trouble, TroubleKind};
use super::record::TopicPartition;
use super::slots::State;
use crate::clock::{self, Moment};

/// Longest wait for the offsets of one partition.
const RANGE_MAX: Duration = Duration::from_secs(1);
/// Partitions asked for in one turn of the loop, so that polling goes on between them.
const RANGES_AT_ONCE: usize = 4;
/// How long a partition may be shown as not fetched before it is looked at.
const IDLE_MAX: Duration = Duration::from_secs(8);

/// What is known about errors.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    reported: HashMap<TroubleKind, Moment>,
    /// Partitions to compare with the broker, because one of them was out of range.
    suspects: Vec<TopicPartition>,
    /// Since when a partition has been shown as not fetched.
    idle: HashMap<TopicPartition, Moment>,
    statistics_seen: u64,
}

impl Troubles {
    /// Counts an error and reports it, unless its kind was reported a moment ago.
    pub(super) fn note(&mut self, error: &ClientError, shared: &Shared, group: &mut Group) {
        let code = error.rdkafka_error_code();
        if matches!(
            code,
            Some(
                RDKafkaErrorCode::AutoOffsetReset
                    | RDKafkaErrorCode::OffsetOutOfRange
                    | RDKafkaErrorCode::LogTruncation
            )
        ) {
            self.suspects = group
                .slots
                .iter()
                .filter(|slot| slot.state == State::Fetching)
                .map(|slot| slot.assigned.partition.clone())
                .collect();
            return;
        }
        let kind = kind_of(code);
        shared.counters.trouble(kind);
        let now = clock::now();
        let recent = |at: &Moment| now.saturating_duration_since(*at) < TROUBLE_INTERVAL;
        if self.reported.get(&kind).is_some_and(recent) {
            return;
        }
        self.reported.insert(kind, now);
        let mut text = std::mem::take(&mut group.last_reason);
        if text.is_empty() {
            text = error.to_string();
        }
        tracing::debug!(?kind, reason = %text, "kafka client reports trouble");
        group.events.send(Event::Trouble(Trouble { kind, text }));
    }

    /// Compares a few suspects with the broker, and reports those that are out of range.
    pub(super) fn look_at_ranges(
        &mut self,
        consumer: &BaseConsumer<Context>,
        shared: &Shared,
        group: &mut Group,
    ) {
        self.suspect_idle(shared, group);
        for _ in 0..RANGES_AT_ONCE.min(self.suspects.len()) {
            let Some(partition) = self.suspects.pop() else { return };
            let TopicPartition { topic, partition: number } = &partition;
            let Some(slot) = group.slots.find(topic, *number) else { continue };
            if slot.state != State::Fetching {
                continue;
            }
            let Ok((low, high)) = consumer.client().fetch_watermarks(topic, *number, RANGE_MAX)
            else {
                // Looked at again when the client says so again, or by its statistics.
                continue;
            };
            let position = slot.next;
            let idle = self.idle.remove(&partition).is_some_and(|at| clock::since(at) >= IDLE_MAX);
            if (low..=high).contains(&position) && !idle {
                continue;
            }
            slot.state = State::OutOfRange;
            let assigned = slot.assigned.clone();
            shared.counters.out_of_range.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(
                topic = %assigned.partition.topic, partition = assigned.partition.partition,
                position, low, high, "position is out of range, the partition is read no further"
            );
            group.events.send(Event::OutOfRange { assigned, position, low, high });
        }
    }

    /// Suspects partitions that should be fetched and have not been for a while.
    fn suspect_idle(&mut self, shared: &Shared, group: &mut Group) {
        let written = shared.offsets.written();
        if written == self.statistics_seen {
            return;
        }
        self.statistics_seen = written;
        let idle = shared.offsets.idle();
        let now = clock::now();
        let mut still = HashMap::new();
        for partition in idle {
            let slot = group.slots.find(&partition.topic, partition.partition);
            if slot.is_some_and(|slot| slot.state == State::Fetching) {
                let since = self.idle.get(&partition).copied().unwrap_or(now);
                still.insert(partition, since);
            }
        }
        self.idle = still;
        for (partition, since) in &self.idle {
            if now.saturating_duration_since(*since) >= IDLE_MAX
                && !self.suspects.contains(partition)
            {
                self.suspects.push(partition.clone());
            }
        }
    }
}

fn kind_of(code: Option<RDKafkaErrorCode>) -> TroubleKind {
    use RDKafkaErrorCode as Code;
    let Some(code) = code else { return TroubleKind::Other };
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the client knows more than two hundred codes; the others are counted as such"
    )]
    match code {
        Code::BrokerTransportFailure
        | Code::AllBrokersDown
        | Code::Resolve
        | Code::OperationTimedOut
        | Code::RequestTimedOut
        | Code::NetworkException
        | Code::CoordinatorNotAvailable
        | Code::NotCoordinator
        | Code::CoordinatorLoadInProgress
        | Code::LeaderNotAvailable
        | Code::NotLeaderForPartition => TroubleKind::Transport,
        Code::Authentication
        | Code::SaslAuthenticationFailed
        | Code::SSL
        | Code::UnsupportedSASLMechanism
        | Code::IllegalSASLState => TroubleKind::Authentication,
        Code::TopicAuthorizationFailed
        | Code::GroupAuthorizationFailed
        | Code::ClusterAuthorizationFailed => TroubleKind::Authorization,
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => {
            TroubleKind::TopicMissing
        }
        Code::PollExceeded => TroubleKind::PollIntervalExceeded,
        Code::BadMessage
        | Code::InvalidMessage
        | Code::InvalidMessageSize
        | Code::BadCompression => TroubleKind::Corrupt,
        _ => TroubleKind::Other,
    }
}
