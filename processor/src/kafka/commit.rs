//! Sends commits without ever holding up the poll loop.
//!
//! A commit waits for the group's coordinator, which may be away for a minute. So one small
//! thread waits, one commit at a time, and the poll loop looks for its answer in passing. A commit
//! that was refused or failed stays due and goes with the next.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError as ClientError, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};

use super::context::Context;
use super::record::{AssignmentId, TopicPartition};
use super::stats::Counters;
use crate::clock::{self, Moment};
use crate::crash::{self, Step};

/// Least time between two commits.
const COMMIT_INTERVAL: Duration = Duration::from_millis(500);
/// Longest wait for the last commit of partitions that go away.
const LAST_COMMIT_MAX: Duration = Duration::from_secs(5);
/// Tries of a last commit that is refused because the group is rebalancing.
const LAST_COMMIT_TRIES: u32 = 3;
/// Pause between those tries.
const LAST_COMMIT_PAUSE: Duration = Duration::from_millis(50);

/// Up to where anything of it goes.
fn end(offsets: &TopicPartitionList) -> i64 {
    let offset =
        |offset: Offset| if let Offset::Offset(offset) = offset { offset } else { i64::MIN };
    offsets.elements().iter().map(|one| offset(one.offset())).max().unwrap_or(i64::MIN)
}

/// One offset to commit.
#[derive(Clone, Debug)]
pub(super) struct Due {
    pub(super) partition: TopicPartition,
    pub(super) offset: i64,
}

type Offsets = HashMap<AssignmentId, Due>;

/// The poll loop's end of the commit thread.
#[derive(Debug)]
pub(super) struct Committer {
    jobs: SyncSender<TopicPartitionList>,
    answers: Receiver<Result<(), ClientError>>,
    thread: JoinHandle<()>,
    due: Offsets,
    in_flight: Option<Offsets>,
    sent_at: Option<Moment>,
}

impl Committer {
    pub(super) fn spawn(consumer: Arc<BaseConsumer<Context>>) -> std::io::Result<Self> {
        let (jobs, taken) = sync_channel::<TopicPartitionList>(1);
        let (answer, answers) = sync_channel(1);
        let thread = thread::Builder::new().name("kafka-commit".to_owned()).spawn(move || {
            for offsets in taken {
                crash::before_below(Step::OffsetCommit, || end(&offsets));
                let result = consumer.commit(&offsets, CommitMode::Sync);
                crash::after_below(Step::OffsetCommit, || end(&offsets));
                if answer.send(result).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { jobs, answers, thread, due: HashMap::new(), in_flight: None, sent_at: None })
    }

    /// Notes an offset; it goes out with the next commit.
    pub(super) fn note(&mut self, assignment: AssignmentId, due: Due) {
        match self.due.get(&assignment) {
            Some(earlier) if earlier.offset >= due.offset => {}
            Some(_) | None => {
                self.due.insert(assignment, due);
            }
        }
    }

    /// Takes an answer if there is one, and sends what is due if it is time.
    pub(super) fn turn(&mut self, counters: &Counters) {
        if self.in_flight.is_some() {
            match self.answers.try_recv() {
                Ok(result) => self.settle(result, counters),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
        }
        let early = self.sent_at.is_some_and(|sent| clock::since(sent) < COMMIT_INTERVAL);
        if !self.due.is_empty() && !early {
            let due = std::mem::take(&mut self.due);
            self.send(due);
        }
    }

    /// Forgets what is due for assignments that have ended, and commits their last offsets if
    /// there are any. `true` when nothing was left to commit or the commit passed.
    pub(super) fn finish(
        &mut self,
        ended: &[AssignmentId],
        last: Offsets,
        counters: &Counters,
    ) -> bool {
        self.forget(ended);
        if last.is_empty() {
            return true;
        }
        let deadline = clock::now().checked_add(LAST_COMMIT_MAX);
        for attempt in 0..LAST_COMMIT_TRIES {
            if attempt > 0 {
                thread::sleep(LAST_COMMIT_PAUSE);
            }
            if !self.wait(deadline, counters) {
                break;
            }
            self.send(last.clone());
            let done = self.wait_for_answer(deadline);
            let passed = matches!(done, Some(Ok(())));
            let refused = matches!(&done, Some(Err(error)) if is_refused(error));
            if let Some(result) = done {
                self.settle(result, counters);
            }
            self.forget(ended);
            if passed || !refused {
                return passed;
            }
        }
        self.forget(ended);
        false
    }

    /// Drops what is due for assignments that have ended.
    pub(super) fn forget(&mut self, ended: &[AssignmentId]) {
        self.due.retain(|assignment, _| !ended.contains(assignment));
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.retain(|assignment, _| !ended.contains(assignment));
        }
    }

    /// Waits until nothing is in flight. `false` when time is up.
    fn wait(&mut self, deadline: Option<Moment>, counters: &Counters) -> bool {
        if self.in_flight.is_none() {
            return true;
        }
        match self.wait_for_answer(deadline) {
            Some(result) => {
                self.settle(result, counters);
                true
            }
            None => false,
        }
    }

    fn wait_for_answer(&mut self, deadline: Option<Moment>) -> Option<Result<(), ClientError>> {
        let left = deadline?.saturating_duration_since(clock::now());
        self.answers.recv_timeout(left).ok()
    }

    fn send(&mut self, offsets: Offsets) {
        let mut list = TopicPartitionList::with_capacity(offsets.len());
        for Due { partition, offset } in offsets.values() {
            let mut element = list.add_partition(&partition.topic, partition.partition);
            // Offsets here are never negative, which is all that this can refuse.
            if element.set_offset(Offset::Offset((*offset).max(0))).is_err() {
                return;
            }
        }
        self.sent_at = Some(clock::now());
        if self.jobs.try_send(list).is_ok() {
            self.in_flight = Some(offsets);
        } else {
            self.put_back(offsets);
        }
    }

    fn settle(&mut self, result: Result<(), ClientError>, counters: &Counters) {
        let Some(sent) = self.in_flight.take() else { return };
        match result {
            Ok(()) => {
                counters.commits_done.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                let refused = is_refused(&error);
                let counter =
                    if refused { &counters.commits_refused } else { &counters.commits_failed };
                counter.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(%error, refused, "offset commit did not pass, it goes with the next");
                self.put_back(sent);
            }
        }
    }

    fn put_back(&mut self, offsets: Offsets) {
        for (assignment, due) in offsets {
            self.note(assignment, due);
        }
    }

    /// Ends the thread and waits until it has let go of the consumer.
    pub(super) fn join(self) {
        let Self { jobs, answers, thread, .. } = self;
        drop((jobs, answers));
        // A panic there has nothing more to tell.
        drop(thread.join());
    }
}

/// Whether the group refused because its membership is changing: the next commit passes, or the
/// partition has gone.
fn is_refused(error: &ClientError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::IllegalGeneration
                | RDKafkaErrorCode::RebalanceInProgress
                | RDKafkaErrorCode::UnknownMemberId
                | RDKafkaErrorCode::StaleMemberEpoch
                | RDKafkaErrorCode::FencedMemberEpoch
                | RDKafkaErrorCode::AssignmentLost
        )
    )
}
