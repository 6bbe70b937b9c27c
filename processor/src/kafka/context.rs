//! The client's callbacks. They run inside `poll`, on the poll thread, at known points.
//!
//! A new assignment is taken at once with an *empty* list: the group sees this member as the
//! owner and goes on, while the client fetches nothing. The partitions are given to the client
//! later, each with its offset, when the worker has answered. So a database that is away for a
//! minute stops fetching, and nothing else: no member of the group waits for it.
//!
//! A revoke waits here for the drain, within its bound, since the group waits with it; then comes
//! the last commit, then the partitions are let go.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError as ClientError, KafkaResult};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{TopicPartitionList, util::Timeout};
use tracing::Span;

use super::commit::{Committer, Due};
use super::consumer::Shared;
use super::event::{DrainAnswer, Event, EventSender, RevokeCause, Revoked};
use super::record::AssignmentId;
use super::slots::{Slot, Slots, list_of};
use crate::clock::{self, Moment};

/// What the client calls its lines about connections that failed, and how often one is told.
const CONNECTION_FAILED: &str = "FAIL";
const CONNECTION_FAILED_EVERY: Duration = Duration::from_secs(30);
/// How often a drain looks whether the partitions were lost meanwhile.
const DRAIN_LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// What callbacks and poll loop share. Both run on one thread; the lock is never contended.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) slots: Slots,
    pub(super) events: EventSender,
    pub(super) committer: Option<Committer>,
    /// The client's words about its last error.
    pub(super) last_reason: String,
    /// A call of the client failed in a callback.
    pub(super) failure: Option<ClientError>,
    /// The consumer is being closed: nothing is drained or reported any more.
    pub(super) closing: bool,
}

#[derive(Debug)]
pub(super) struct Context {
    pub(super) shared: Arc<Shared>,
    drain_max: Duration,
    group: Mutex<Group>,
    /// Whose lines the client's own lines are; it writes them on threads of its own.
    pub(super) span: Span,
    /// When a connection that failed was last told at the client's own level.
    failed_said: Mutex<Option<Moment>>,
}

impl Context {
    pub(super) fn new(shared: Arc<Shared>, events: EventSender, drain_max: Duration) -> Self {
        let group = Group {
            slots: Slots::default(),
            events,
            committer: None,
            last_reason: String::new(),
            failure: None,
            closing: false,
        };
        Self {
            shared,
            drain_max,
            group: Mutex::new(group),
            span: Span::current(),
            failed_said: Mutex::new(None),
        }
    }

    /// To be let go before every call of `poll`.
    pub(super) fn group(&self) -> MutexGuard<'_, Group> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One cause is worth a line; an outage, which the worker tells, would fill the log with them.
    fn may_say_failed(&self) -> bool {
        let mut said = self.failed_said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_some_and(|at| clock::since(at) < CONNECTION_FAILED_EVERY) {
            return false;
        }
        *said = Some(clock::now());
        true
    }

    fn take_on(&self, consumer: &BaseConsumer<Self>, partitions: &TopicPartitionList) {
        let counters = &self.shared.counters;
        counters.rebalances_assigned.fetch_add(1, Ordering::Relaxed);
        let mut group = self.group();
        let added = group.slots.add(partitions);
        let nothing = TopicPartitionList::new();
        let taken = if is_eager(consumer) {
            consumer.assign(&nothing)
        } else {
            consumer.incremental_assign(&nothing)
        };
        group.note_failure(taken);
        if !added.is_empty() {
            tracing::debug!(partitions = added.len(), "partitions were assigned");
            group.events.send(Event::Assigned(added));
        }
    }

    fn give_up(&self, consumer: &BaseConsumer<Self>, partitions: &TopicPartitionList) {
        let counters = &self.shared.counters;
        let lost = consumer.assignment_lost();
        let counter = if lost { &counters.rebalances_lost } else { &counters.rebalances_revoked };
        counter.fetch_add(1, Ordering::Relaxed);
        let ended = self.group().slots.remove(partitions);
        let cause = if lost { RevokeCause::Lost } else { RevokeCause::Rebalance };
        tracing::debug!(partitions = ended.len(), ?cause, "partitions are given up");
        self.end(consumer, &ended, cause);
        let released = if is_eager(consumer) {
            consumer.unassign()
        } else {
            let with_client = ended.iter().filter(|slot| slot.state.is_with_client());
            consumer.incremental_unassign(&list_of(with_client))
        };
        self.group().note_failure(released);
    }

    /// Reports the end of assignments, waits for the drain where there is one, and commits what
    /// the worker answers.
    pub(super) fn end(&self, consumer: &BaseConsumer<Self>, ended: &[Slot], cause: RevokeCause) {
        let ids: Vec<_> = ended.iter().map(|slot| slot.assigned.assignment).collect();
        let answers = {
            let mut group = self.group();
            if group.closing || ended.is_empty() {
                return;
            }
            if let (RevokeCause::Lost, Some(committer)) = (cause, &mut group.committer) {
                committer.forget(&ids);
            }
            let (answer, answers) = sync_channel(1);
            group.events.send(Event::Revoked(Revoked {
                partitions: ended.iter().map(|slot| slot.assigned.clone()).collect(),
                cause,
                drain_max: self.drain_max,
                answer: DrainAnswer(answer),
            }));
            answers
        };
        if cause == RevokeCause::Lost {
            return;
        }
        let Some(positions) = self.wait_for_drain(consumer, &answers) else { return };
        let last = positions
            .into_iter()
            .filter_map(|(assignment, offset)| {
                let slot = ended.iter().find(|slot| slot.assigned.assignment == assignment)?;
                Some((assignment, Due { partition: slot.assigned.partition.clone(), offset }))
            })
            .collect();
        let mut group = self.group();
        if let Some(committer) = &mut group.committer {
            let passed = committer.finish(&ids, last, &self.shared.counters);
            if !passed {
                tracing::warn!(
                    "last commit of revoked partitions did not pass, the database has it"
                );
            }
        }
    }

    /// The worker's answer; `None` when the partitions were lost or time ran out.
    fn wait_for_drain(
        &self,
        consumer: &BaseConsumer<Self>,
        answers: &Receiver<Vec<(AssignmentId, i64)>>,
    ) -> Option<Vec<(AssignmentId, i64)>> {
        let began = clock::now();
        while clock::since(began) < self.drain_max {
            match answers.recv_timeout(DRAIN_LOOK_INTERVAL) {
                Ok(positions) => return Some(positions),
                // The worker dropped the question: nothing to commit.
                Err(RecvTimeoutError::Disconnected) => return Some(Vec::new()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.shared.mark_polled();
            self.group().events.flush();
            if consumer.assignment_lost() {
                tracing::warn!("partitions were lost while they were being drained");
                self.shared.counters.rebalances_lost.fetch_add(1, Ordering::Relaxed);
                return None;
            }
        }
        tracing::warn!(drain_ms = self.drain_max.as_millis(), "drain did not end in time");
        self.shared.counters.drains_late.fetch_add(1, Ordering::Relaxed);
        None
    }
}

impl Group {
    pub(super) fn note_failure(&mut self, result: KafkaResult<()>) {
        if let Err(error) = result {
            self.failure = Some(error);
        }
    }
}

/// Whether all partitions are given back at every change of the group.
pub(super) fn is_eager(consumer: &BaseConsumer<Context>) -> bool {
    match consumer.rebalance_protocol() {
        RebalanceProtocol::Eager | RebalanceProtocol::None => true,
        RebalanceProtocol::Cooperative => false,
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        self.span.in_scope(|| {
            if facility == CONNECTION_FAILED && !self.may_say_failed() {
                tracing::debug!(facility, text, "kafka client");
            } else {
                super::log_client(level, facility, text);
            }
        });
    }

    fn stats_raw(&self, statistics: &[u8]) {
        self.shared.offsets.write(statistics);
    }

    fn error(&self, _error: ClientError, reason: &str) {
        reason.clone_into(&mut self.group().last_reason);
    }
}

impl ConsumerContext for Context {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        error: RDKafkaRespErr,
        partitions: &mut TopicPartitionList,
    ) {
        if error == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            self.take_on(consumer, partitions);
        } else {
            self.give_up(consumer, partitions);
        }
    }

    fn main_queue_min_poll_interval(&self) -> Timeout {
        Timeout::After(Duration::from_millis(100))
    }
}
