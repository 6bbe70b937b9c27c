//! The worker's side of a consumer: its commands, and what it counts.
//!
//! Gives: commands that never wait and never fail; each names an assignment, and those for an
//! assignment that has ended are dropped by the thread.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::error::KafkaError;
use super::event::Events;
use super::flow::Flow;
use super::record::{AssignmentId, StartId};
use super::settings::ConsumerSettings;
use super::stats::{ConsumerCounts, Counters, OffsetsBoard, PartitionOffsets};
use super::thread;
use crate::clock::{self, Moment};

/// How a consumer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// All partitions are revoked with a drain, their last offsets are committed.
    Drain,
    /// Nothing is waited for and nothing is committed.
    Now,
}

/// Commands to one consumer thread. Clones command the same thread.
///
/// Dropping the last handle does not end the thread; dropping [`Events`] does.
#[derive(Clone, Debug)]
pub struct ConsumerHandle {
    shared: Arc<Shared>,
}

/// What the thread and the handles share.
#[derive(Debug)]
pub(super) struct Shared {
    requests: Mutex<Requests>,
    pub(super) counters: Counters,
    pub(super) offsets: OffsetsBoard,
    pub(super) flow: Arc<Flow>,
    born: Moment,
    polled_ms: AtomicU64,
}

/// Commands that the thread has not taken yet. Bounded by the number of assignments: a later
/// command about one replaces the earlier one.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Start offsets; `None` leaves the partition stopped.
    pub(super) starts: HashMap<AssignmentId, Option<(i64, StartId)>>,
    pub(super) commits: HashMap<AssignmentId, i64>,
    /// Whether fetching should be paused.
    pub(super) pauses: HashMap<AssignmentId, bool>,
    pub(super) stop: Option<StopMode>,
}

impl Shared {
    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take_requests(&self) -> Requests {
        std::mem::take(&mut *self.requests())
    }

    pub(super) fn mark_polled(&self) {
        let age = u64::try_from(clock::since(self.born).as_millis()).unwrap_or(u64::MAX);
        self.polled_ms.store(age, Ordering::Relaxed);
    }
}

impl ConsumerHandle {
    /// Makes a consumer, joins its group, and polls on a thread of its own.
    ///
    /// Returns at once: whether brokers answer shows in the events.
    ///
    /// # Errors
    /// Settings that contradict one another or that the client refuses.
    pub fn spawn(settings: &ConsumerSettings) -> Result<(Self, Events), KafkaError> {
        let shared = Arc::new(Shared {
            requests: Mutex::default(),
            counters: Counters::default(),
            offsets: OffsetsBoard::default(),
            flow: Flow::new(settings.flow),
            born: clock::now(),
            polled_ms: AtomicU64::new(0),
        });
        let events = thread::spawn(settings, Arc::clone(&shared))?;
        Ok((Self { shared }, events))
    }

    /// Lets fetching begin at this offset (the first one to be delivered), or begin again where it
    /// has stopped. A negative offset counts as 0. While it is fetched, later ones are dropped.
    /// Gives what the records say that are fetched from there.
    pub fn start(&self, assignment: AssignmentId, offset: i64) -> StartId {
        let start = StartId::fresh();
        self.shared.requests().starts.insert(assignment, Some((offset.max(0), start)));
        start
    }

    /// Keeps the partition but does not fetch from it, until it is started (again). What was to be committed of
    /// it is not.
    pub fn leave_stopped(&self, assignment: AssignmentId) {
        let mut requests = self.shared.requests();
        requests.starts.insert(assignment, None);
        requests.commits.remove(&assignment);
    }

    /// Commits this offset, the lowest unfinished one, as is. Sent with others about twice a
    /// second and until it passes; a lower offset after a higher one is dropped,
    /// unless the partition was left stopped between them.
    pub fn commit(&self, assignment: AssignmentId, offset: i64) {
        let mut requests = self.shared.requests();
        let entry = requests.commits.entry(assignment).or_insert(offset);
        *entry = offset.max(*entry);
    }

    /// Stops fetching from a partition for a while; what was fetched ahead is thrown away.
    pub fn pause(&self, assignment: AssignmentId) {
        self.shared.requests().pauses.insert(assignment, true);
    }

    /// Ends a pause; without one, nothing happens.
    pub fn resume(&self, assignment: AssignmentId) {
        self.shared.requests().pauses.insert(assignment, false);
    }

    /// Gives all partitions up and leaves the group. [`super::Event::Closed`] is the last event.
    pub fn stop(&self, mode: StopMode) {
        self.shared.requests().stop = Some(mode);
    }

    /// Counters so far.
    #[must_use]
    pub fn counts(&self) -> ConsumerCounts {
        self.shared.counters.read()
    }

    /// The broker's offsets of the partitions that are being fetched.
    #[must_use]
    pub fn offsets(&self) -> Vec<PartitionOffsets> {
        self.shared.offsets.read()
    }

    /// Whether any broker is connected; `None` until the client has said so for the first time.
    #[must_use]
    pub fn broker_up(&self) -> Option<bool> {
        self.shared.offsets.broker_up()
    }

    /// Records and bytes that the worker holds permits for.
    #[must_use]
    pub fn in_flight(&self) -> (usize, usize) {
        (self.shared.flow.records(), self.shared.flow.bytes())
    }

    /// Time since the thread last went through its loop. Longer than the longest drain means that
    /// it is stuck, and the process is better ended.
    #[must_use]
    pub fn silent_for(&self) -> Duration {
        let polled = Duration::from_millis(self.shared.polled_ms.load(Ordering::Relaxed));
        clock::since(self.shared.born).saturating_sub(polled)
    }
}
