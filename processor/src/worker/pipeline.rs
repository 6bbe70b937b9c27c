//! The pipeline of one connector: one loop that owns trackers, queues and drains.
//!
//! It decides nothing about events and touches neither database nor provider; it moves things between
//! those that do. Offsets move only with proof, and reach Kafka only after Postgres.

mod drain;
mod intake;
mod kept;
mod rewound;
mod shown;
mod silence;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use oncely_core::connector::OffsetWait;
use oncely_core::failover::{Again, Doubt};
use oncely_core::key::Key;
use oncely_core::progress::{Finished, Tracker};
use tokio::sync::mpsc;

use self::drain::Drain;
use self::silence::Touch;
use super::call::{self, Ended};
use super::claims::{Claims, Held};
use super::item::Item;
use super::keeper::Keep;
use super::lease::Lease;
use super::mailbox::unsent;
use super::outcomes::Outcomes;
use super::report::Report;
use super::start::{From, Started};
use super::waiting::Waiting;
use super::{Message, Shared};
use crate::clock::{self, Moment};
use crate::crash::{self, Step};
use crate::http::Health;
use crate::kafka::{
    Assigned, AssignmentId, ConsumerCounts, ConsumerHandle, Event, Events, StartId, StopMode,
    TroubleKind,
};
use crate::task;
use crate::telemetry::RebalanceKind;

/// Records in one batch transaction: twice the thousand beyond which a row itself is no cheaper, since the commit is
/// shared by more of them, and more versions of an entity come to one row.
pub const BATCH_RECORDS_MAX: usize = 2_000;
/// Bytes in one batch transaction, give or take one record.
pub(super) const BATCH_BYTES_MAX: usize = 4 << 20;
/// Batches that one writer has: the one at work, and a full one, so that it need not wait for the next
/// under load.
pub(super) const JOBS_MAX: usize = 2;
/// Records whose offsets may wait for effects; beyond them nothing new is written, and the consumer
/// is held up by its bounds.
pub(super) const WAITING_MAX: usize = 100_000;
/// How often positions are written.
const KEEP_EVERY: Duration = Duration::from_millis(100);
/// How often open effects that others may settle are asked for.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// How often stopped partitions are asked for.
const ASK_STOPPED_EVERY: Duration = Duration::from_secs(3);
/// Open effects asked for at a time.
const ASK_MAX: usize = 5_000;
/// Longest time, beyond `offset_wait`, in which unfinished records may leave every position where it
/// is, before the process says that it is of no use.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// One partition under one assignment.
struct Partition {
    assigned: Assigned,
    tracker: Tracker,
    source: i32,
    topic_id: String,
    epoch: i64,
    /// Records of before it are on their way, perhaps.
    start: StartId,
    /// Which of its records may be done although nothing is on record of them.
    doubt: Doubt,
    /// How far those are decided again; `None` when all are, or none was in doubt.
    again: Option<Again>,
    /// Position last sent to the keeper.
    asked: i64,
    /// Position that Postgres has.
    kept: i64,
    /// How far everything is decided, as last sent to the keeper.
    ahead: i64,
    draining: bool,
    /// Records at writers or in their queues.
    unwritten: usize,
}

/// A partition that is not read until a person has looked.
struct Stopped {
    assigned: Assigned,
    why: String,
}

/// A writer's queue, and the batches that it has.
struct Shard {
    queue: VecDeque<Item>,
    jobs: mpsc::Sender<Vec<Item>>,
    given: usize,
}

/// The loop and all that it owns.
pub(super) struct Pipeline {
    pub(super) shared: Arc<Shared>,
    pub(super) lease: Lease,
    pub(super) health: Health,
    pub(super) handle: ConsumerHandle,
    pub(super) events: Events,
    pub(super) messages: mpsc::UnboundedReceiver<Message>,
    pub(super) starter: mpsc::UnboundedSender<Vec<Assigned>>,
    pub(super) keeper: mpsc::UnboundedSender<Keep>,
    pub(super) ended: Outcomes,
    /// Asks which effects still hold offsets back.
    pub(super) asker: mpsc::UnboundedSender<Vec<Key>>,
    shards: Vec<Shard>,
    partitions: HashMap<AssignmentId, Partition>,
    waiting: Waiting,
    drains: Vec<Drain>,
    keeping: bool,
    /// Somebody asks how far everything is decided: events may wait for a time.
    shows_ahead: bool,
    ahead_last: Moment,
    asked_last: Moment,
    /// Assignments that have not ended; some of them are not answered yet.
    live: HashSet<AssignmentId>,
    stopped: HashMap<AssignmentId, Stopped>,
    counted: ConsumerCounts,
    moved_last: Moment,
    asked_stopped: Moment,
    claims: Claims,
    /// Since when no call has been in flight.
    quiet_since: Option<Moment>,
    touch: Touch,
}

/// The ends of the parts that a pipeline talks to.
pub(super) struct Ends {
    pub(super) messages: mpsc::UnboundedReceiver<Message>,
    pub(super) starter: mpsc::UnboundedSender<Vec<Assigned>>,
    pub(super) keeper: mpsc::UnboundedSender<Keep>,
    pub(super) ended: Outcomes,
    pub(super) asker: mpsc::UnboundedSender<Vec<Key>>,
    pub(super) writers: Vec<mpsc::Sender<Vec<Item>>>,
    pub(super) claims: Claims,
}

/// How a pipeline ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// As asked.
    Clean,
    /// The client cannot go on.
    Fatal(String),
}

impl Pipeline {
    pub(super) fn new(
        shared: Arc<Shared>,
        lease: Lease,
        health: Health,
        consumer: (ConsumerHandle, Events),
        ends: Ends,
    ) -> Self {
        let (handle, events) = consumer;
        let shows_ahead = super::caught_up::matters(&shared.connector);
        let shard = |jobs| Shard { queue: VecDeque::new(), jobs, given: 0 };
        Self {
            shared,
            lease,
            health,
            handle,
            events,
            messages: ends.messages,
            starter: ends.starter,
            keeper: ends.keeper,
            ended: ends.ended,
            asker: ends.asker,
            shards: ends.writers.into_iter().map(shard).collect(),
            partitions: HashMap::new(),
            waiting: Waiting::default(),
            drains: Vec::new(),
            keeping: false,
            shows_ahead,
            ahead_last: clock::now(),
            asked_last: clock::now(),
            live: HashSet::new(),
            stopped: HashMap::new(),
            counted: ConsumerCounts::default(),
            moved_last: clock::now(),
            asked_stopped: clock::now(),
            claims: ends.claims,
            quiet_since: None,
            touch: Touch::default(),
        }
    }

    /// Runs until the consumer has closed. `stop` asks for a clean end. Gives also since when it has
    /// been ending.
    pub(super) async fn run(
        mut self,
        mut stop: tokio::sync::watch::Receiver<bool>,
    ) -> (Closed, Moment) {
        let name = self.shared.connector.name.to_string();
        let tick = self.health.watch(format!("pipeline {name}"), Duration::from_secs(30));
        let mut interval = clock::every(KEEP_EVERY);
        let mut ending = None;
        let mut fatal = None;
        loop {
            tokio::select! {
                event = self.events.recv() => match event {
                    Some(Event::Closed { .. }) | None => break,
                    Some(Event::Fatal(error)) => {
                        self.shared.metrics.kafka_fatal_error();
                        let cause = super::chain(&error);
                        self.health.fatal(format!("{name}: {cause}"));
                        tracing::error!(%cause, "kafka client failed for good");
                        fatal = Some(cause);
                    }
                    Some(event) => self.on_event(event),
                },
                Some(message) = self.messages.recv() => self.on_message(message),
                _ = interval.tick() => self.on_tick(),
                _ = stop.wait_for(|stop| *stop), if ending.is_none() => {
                    ending = Some(clock::now());
                    self.shared.lanes.iter().flatten().for_each(|lane| lane.close());
                    self.handle.stop(StopMode::Drain);
                }
            }
            tick.tick();
            if let Some(cause) = self.stuck_client() {
                self.health.fatal(format!("{name}: {cause}"));
                fatal = Some(cause.to_owned());
                break;
            }
            self.dispatch();
            self.finish_drains();
        }
        self.health.group(&name, false);
        // However it ended: what is claimed now would never be sent.
        self.shared.lanes.iter().flatten().for_each(|lane| lane.close());
        let unread = self.shards.iter().map(|shard| shard.queue.len()).sum();
        self.shared.metrics.released(unread);
        self.give_back().await;
        (fatal.map_or(Closed::Clean, Closed::Fatal), ending.unwrap_or_else(clock::now))
    }

    /// Claims that were made for us and never taken up go back. Those that come from now on never
    /// reach us: their senders give them back.
    async fn give_back(&mut self) {
        crash::before(Step::GiveBack);
        self.messages.close();
        while let Some(message) = self.messages.recv().await {
            for unsent in unsent(message) {
                self.ended.send(unsent);
            }
        }
        crash::after(Step::GiveBack);
    }

    // ----------------------------------------------------------------------------------------- //

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Assigned(assigned) => {
                self.shared.metrics.rebalanced(RebalanceKind::Assigned);
                self.health.group(&self.shared.connector.name, true);
                tracing::info!(partitions = assigned.len(), "partitions assigned");
                self.live.extend(assigned.iter().map(|one| one.assignment));
                drop(self.starter.send(assigned));
            }
            Event::Records(batch) => {
                let end = batch.records.iter().map(|record| record.offset).max();
                let end = end.map_or(0, |last| last.saturating_add(1));
                crash::before_below(Step::Records, || end);
                self.take(batch);
                crash::after_below(Step::Records, || end);
            }
            Event::Revoked(revoked) => self.revoke(revoked),
            Event::OutOfRange { assigned, position, low, high } => {
                let partition = &assigned.partition;
                tracing::warn!(%partition, position, low, high, "the broker has other offsets");
                // What it means is found out as at a start: the row says so, and can be accepted.
                self.forget(assigned.assignment);
                drop(self.starter.send(vec![assigned]));
            }
            Event::Trouble(trouble) => {
                let kind = trouble.kind;
                if kind.is_away() && self.handle.broker_up() != Some(true) {
                    self.shared.kafka.away("brokers", &trouble.text);
                } else {
                    tracing::warn!(?kind, text = trouble.text, "kafka trouble");
                }
                if kind == TroubleKind::PollIntervalExceeded {
                    self.shared.metrics.rebalanced(RebalanceKind::Error);
                }
            }
            Event::Fatal(_) | Event::Closed { .. } => {}
        }
    }

    // ----------------------------------------------------------------------------------------- //

    fn on_message(&mut self, message: Message) {
        match message {
            Message::Started(started) => started.into_iter().for_each(|one| self.started(one)),
            Message::Written { writer, report } => {
                if let Some(shard) = self.shards.get_mut(writer) {
                    shard.given = shard.given.saturating_sub(1);
                }
                self.written(report);
            }
            Message::Claimed(claimed) => claimed.into_iter().for_each(|held| self.send(held)),
            Message::LetGo(keys) => keys.into_iter().for_each(|key| self.let_go(key)),
            Message::Topics(topics) => {
                self.touch.answered(self.handle.broker_up(), clock::now());
                self.compare(&topics);
            }
            Message::Epochs(epochs, generation) => self.follow(&epochs, generation),
            Message::Kept(positions) => self.kept(positions),
        }
    }

    fn started(&mut self, started: Started) {
        let Started { assigned, from } = started;
        let assignment = assigned.assignment;
        // It may have ended while it was asked for, and may have been asked for twice.
        if !self.live.contains(&assignment) || self.partitions.contains_key(&assignment) {
            return;
        }
        match from {
            From::Position { position, epoch, witness, source, topic_id, doubt } => {
                self.stopped.remove(&assigned.assignment);
                let start = self.handle.start(assigned.assignment, position);
                // Who had it before may have been refused its last commit, and nothing may follow.
                self.handle.commit(assigned.assignment, position);
                tracing::info!(partition = %assigned.partition, position, epoch, "partition starts");
                let partition = Partition {
                    tracker: Tracker::new(position, witness),
                    source,
                    topic_id,
                    epoch,
                    start,
                    doubt,
                    again: Again::of(position, &doubt),
                    asked: position,
                    kept: position,
                    ahead: position,
                    draining: false,
                    unwritten: 0,
                    assigned,
                };
                self.partitions.insert(partition.assigned.assignment, partition);
            }
            From::Stopped { why } => self.stop_partition(assigned, why),
        }
        self.show_partitions();
    }

    fn stop_partition(&mut self, assigned: Assigned, why: String) {
        let assignment = assigned.assignment;
        let known = self.stopped.get(&assignment).is_some_and(|stopped| stopped.why == why);
        if !known {
            tracing::error!(partition = %assigned.partition, why, "partition stopped");
        }
        self.stopped.insert(assignment, Stopped { assigned, why });
    }

    /// Asks again about partitions that a person may have accepted meanwhile.
    fn ask_stopped(&mut self) {
        let again: Vec<Assigned> =
            self.stopped.values().map(|stopped| stopped.assigned.clone()).collect();
        if !again.is_empty() {
            drop(self.starter.send(again));
        }
    }

    fn written(&mut self, report: Report) {
        let now = clock::now();
        for done in report.done {
            let Some(partition) = self.partitions.get_mut(&done.assignment) else { continue };
            // It was read before something was lost, and is read again.
            if partition.doubt.generation != done.generation {
                continue;
            }
            partition.unwritten = partition.unwritten.saturating_sub(1);
            partition.tracker.decide(done.offset);
            if let Some(again) = &mut partition.again {
                again.decided(done.offset);
            }
            let deadline = match self.shared.connector.failure.offset_wait {
                OffsetWait::Forever => None,
                OffsetWait::Millis(ms) => {
                    now.checked_add(Duration::from_millis(ms.saturating_sub(done.age_ms)))
                }
            };
            if done.open.is_empty() {
                partition.tracker.finish(Finished::without_effects(done.offset));
            } else if deadline.is_some_and(|deadline| deadline <= now) {
                partition.tracker.finish(Finished::waited_enough(done.offset));
            } else {
                self.waiting.add((done.assignment, done.offset), done.open, now, deadline);
            }
        }
        report.claimed.into_iter().for_each(|held| self.send(held));
    }

    /// Sends a claimed effect, in a task of its own. A panic in there is an unknown outcome.
    fn send(&self, held: Held) {
        let Some(lane) = self.shared.lane(held.rule).map(Arc::clone) else { return };
        let (lease, ended) = (self.lease.clone(), self.ended.clone());
        let lost = held.without_request();
        let over = Arc::clone(&lane);
        let call = async move { call::call(&lane, held, &lease).await };
        task::spawn_then("call", &self.shared.process_metrics, call, move |end| {
            let end = Ended::of_task(end, lost);
            over.ended(end.held.claim.key, &end.how);
            crash::before_of(Step::Outcome, || [&*over.name]);
            ended.send(end);
            crash::after_of(Step::Outcome, || [&*over.name]);
        });
    }

    fn let_go(&mut self, key: Key) {
        for (assignment, finished) in self.waiting.let_go(key) {
            self.finish(assignment, finished);
        }
    }

    fn finish(&mut self, assignment: AssignmentId, finished: Finished) {
        if let Some(partition) = self.partitions.get_mut(&assignment) {
            partition.tracker.finish(finished);
        }
    }

    // ----------------------------------------------------------------------------------------- //

    fn on_tick(&mut self) {
        let expired = self.waiting.expire(clock::now());
        if !expired.is_empty() {
            self.shared.metrics.records_let_go(u64::try_from(expired.len()).unwrap_or(u64::MAX));
        }
        for (assignment, finished) in expired {
            self.finish(assignment, finished);
        }
        self.keep();
        if clock::since(self.asked_last) >= ASK_EVERY {
            let open = self.waiting.open(ASK_MAX, self.asked_last);
            self.asked_last = clock::now();
            if !open.is_empty() {
                drop(self.asker.send(open));
            }
            self.show_flow();
        }
        if clock::since(self.asked_stopped) >= ASK_STOPPED_EVERY {
            self.asked_stopped = clock::now();
            self.ask_stopped();
        }
    }
}
