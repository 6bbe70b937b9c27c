//! The pipeline of one connector: one loop that owns trackers, queues and drains.
//!
//! It decides nothing about events and touches neither database nor provider; it moves things between
//! those that do. Offsets move only with proof, and reach Kafka only after Postgres.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use oncely_core::connector::OffsetWait;
use oncely_core::decide::{Ending, Place};
use oncely_core::key::Key;
use oncely_core::progress::{Delivery, Finished, Tracker, Witness};
use tokio::sync::mpsc;

use super::call::{self, Ended, How};
use super::claims::Held;
use super::item::{Item, Prepared, prepare};
use super::keeper::Positions;
use super::lease::Lease;
use super::start::{From, Started};
use super::waiting::Waiting;
use super::writer::Report;
use super::{Message, Shared};
use crate::clock::{self, Moment};
use crate::http::Health;
use crate::kafka::{
    Assigned, AssignmentId, ConsumerCounts, ConsumerHandle, DrainAnswer, Event, Events,
    RecordBatch, RevokeCause, Revoked, StopMode, TroubleKind,
};
use crate::store::progress::Raise;
use crate::task;
use crate::telemetry::{CommitResult, RebalanceKind, Stage};

/// Records in one batch transaction.
pub(super) const BATCH_RECORDS_MAX: usize = 1_000;
/// Bytes in one batch transaction, give or take one record.
pub(super) const BATCH_BYTES_MAX: usize = 4 << 20;
/// Records whose offsets may wait for effects; beyond them nothing new is written, and the consumer
/// is held up by its bounds.
pub(super) const WAITING_MAX: usize = 100_000;
/// How often positions are written.
const KEEP_EVERY: Duration = Duration::from_millis(100);
/// How often open effects that others may settle are asked for.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Open effects asked for at a time.
const ASK_MAX: usize = 5_000;
/// Longest time without a poll, beyond a drain, before the consumer counts as stuck and the process
/// is better ended.
const SILENT_MAX: Duration = Duration::from_secs(30);
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
    /// Position last sent to the keeper.
    asked: i64,
    /// Position that Postgres has.
    kept: i64,
    draining: bool,
    /// Records at writers or in their queues.
    unwritten: usize,
}

/// Partitions that are being given up.
struct Drain {
    assignments: Vec<AssignmentId>,
    deadline: Moment,
    answer: DrainAnswer,
}

/// A writer's queue and whether it is at work.
struct Shard {
    queue: VecDeque<Item>,
    jobs: mpsc::Sender<Vec<Item>>,
    busy: bool,
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
    pub(super) keeper: mpsc::UnboundedSender<Positions>,
    pub(super) ended: mpsc::UnboundedSender<Ended>,
    /// Asks which effects still hold offsets back.
    pub(super) asker: mpsc::UnboundedSender<Vec<Key>>,
    shards: Vec<Shard>,
    partitions: HashMap<AssignmentId, Partition>,
    waiting: Waiting,
    drains: Vec<Drain>,
    keeping: bool,
    asked_last: Moment,
    stopped: HashMap<AssignmentId, String>,
    counted: ConsumerCounts,
    moved_last: Moment,
}

/// The ends of the parts that a pipeline talks to.
pub(super) struct Ends {
    pub(super) messages: mpsc::UnboundedReceiver<Message>,
    pub(super) starter: mpsc::UnboundedSender<Vec<Assigned>>,
    pub(super) keeper: mpsc::UnboundedSender<Positions>,
    pub(super) ended: mpsc::UnboundedSender<Ended>,
    pub(super) asker: mpsc::UnboundedSender<Vec<Key>>,
    pub(super) writers: Vec<mpsc::Sender<Vec<Item>>>,
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
        let shard = |jobs| Shard { queue: VecDeque::new(), jobs, busy: false };
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
            asked_last: clock::now(),
            stopped: HashMap::new(),
            counted: ConsumerCounts::default(),
            moved_last: clock::now(),
        }
    }

    /// Runs until the consumer has closed. `stop` asks for a clean end.
    pub(super) async fn run(mut self, mut stop: tokio::sync::watch::Receiver<bool>) -> Closed {
        let name = self.shared.connector.name.to_string();
        let tick = self.health.watch(format!("pipeline {name}"), Duration::from_secs(30));
        let mut interval = clock::every(KEEP_EVERY);
        let mut asked_to_stop = false;
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
                _ = stop.wait_for(|stop| *stop), if !asked_to_stop => {
                    asked_to_stop = true;
                    self.shared.lanes.iter().flatten().for_each(|lane| lane.close());
                    self.handle.stop(StopMode::Drain);
                }
            }
            tick.tick();
            if self.handle.silent_for() > SILENT_MAX.saturating_add(self.shared.timing.drain) {
                let cause = "the consumer has not polled for too long".to_owned();
                self.health.fatal(format!("{name}: {cause}"));
                fatal = Some(cause);
                break;
            }
            self.dispatch();
            self.finish_drains();
        }
        self.health.group(&name, false);
        self.give_back();
        fatal.map_or(Closed::Clean, Closed::Fatal)
    }

    /// Claims that were made for us and never taken up go back.
    fn give_back(&mut self) {
        self.messages.close();
        while let Ok(message) = self.messages.try_recv() {
            let claimed = match message {
                Message::Claimed(claimed) => claimed,
                Message::Written { report, .. } => report.claimed,
                Message::Started(_) | Message::LetGo(_) | Message::Kept(_) => continue,
            };
            for held in claimed {
                let unsent = Ended { held, how: How::Unsent, took: Duration::ZERO };
                // Without a settler the claims are found by their lease.
                drop(self.ended.send(unsent));
            }
        }
    }

    // ----------------------------------------------------------------------------------------- //

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Assigned(assigned) => {
                self.shared.metrics.rebalanced(RebalanceKind::Assigned);
                self.health.group(&self.shared.connector.name, true);
                tracing::info!(partitions = assigned.len(), "partitions assigned");
                drop(self.starter.send(assigned));
            }
            Event::Records(batch) => self.take(batch),
            Event::Revoked(revoked) => self.revoke(revoked),
            Event::OutOfRange { assigned, position, low, high } => {
                let why = format!(
                    "the broker has offsets {low} to {high}, not {position}; run `oncely progress \
                     accept` to take the partition as it is"
                );
                self.stop_partition(&assigned, why);
            }
            Event::Trouble(trouble) => {
                let kind = trouble.kind;
                tracing::warn!(?kind, text = trouble.text, "kafka trouble");
                if kind == TroubleKind::PollIntervalExceeded {
                    self.shared.metrics.rebalanced(RebalanceKind::Error);
                }
            }
            Event::Fatal(_) | Event::Closed { .. } => {}
        }
    }

    fn take(&mut self, mut batch: RecordBatch) {
        let begun = clock::now();
        let writers = self.shards.len();
        let mut consumed: HashMap<Arc<str>, u64> = HashMap::new();
        let mut ignored: u64 = 0;
        for record in batch.records {
            let Some(partition) = self.partitions.get_mut(&record.assignment) else { continue };
            if partition.draining {
                continue;
            }
            let witness = Witness::of(
                record.offset,
                record.timestamp_ms,
                record.key.as_deref(),
                record.value.as_deref(),
            );
            match partition.tracker.deliver(witness) {
                Delivery::New => {}
                Delivery::Again | Delivery::Finished => continue,
            }
            let times = consumed.entry(Arc::clone(&record.topic)).or_insert(0);
            *times = times.saturating_add(1);
            match prepare(&self.shared.connector, &record) {
                Prepared::Ignored => {
                    ignored = ignored.saturating_add(1);
                    partition.tracker.finish(Finished::without_effects(record.offset));
                }
                Prepared::Wanted(what) => {
                    partition.unwritten = partition.unwritten.saturating_add(1);
                    let place = Place {
                        source: partition.source,
                        partition: record.partition,
                        offset: record.offset,
                    };
                    let permit = batch.permit.split(1, record.weight());
                    let item = Item { record, place, what, _permit: permit };
                    if let Some(shard) = self.shards.get_mut(item.shard(writers)) {
                        shard.queue.push_back(item);
                    }
                }
            }
        }
        let metrics = &self.shared.metrics;
        for (topic, times) in consumed {
            metrics.consumed(&topic, times);
        }
        if ignored > 0 {
            metrics.events(Ending::Ignored, "", ignored);
        }
        metrics.stage(Stage::Decode, clock::since(begun));
    }

    /// Gives idle writers what lies in their queues.
    fn dispatch(&mut self) {
        if self.waiting.len() > WAITING_MAX {
            return;
        }
        for shard in &mut self.shards {
            if shard.busy || shard.queue.is_empty() {
                continue;
            }
            let mut bytes: usize = 0;
            let mut job = Vec::new();
            while job.len() < BATCH_RECORDS_MAX && bytes < BATCH_BYTES_MAX {
                let Some(item) = shard.queue.pop_front() else { break };
                let live = self.partitions.get(&item.record.assignment);
                if live.is_none_or(|partition| partition.draining) {
                    if let Some(partition) = self.partitions.get_mut(&item.record.assignment) {
                        partition.unwritten = partition.unwritten.saturating_sub(1);
                    }
                    continue;
                }
                bytes = bytes.saturating_add(item.record.weight());
                job.push(item);
            }
            if !job.is_empty() && shard.jobs.try_send(job).is_ok() {
                shard.busy = true;
            }
        }
    }

    // ----------------------------------------------------------------------------------------- //

    fn on_message(&mut self, message: Message) {
        match message {
            Message::Started(started) => started.into_iter().for_each(|one| self.started(one)),
            Message::Written { writer, report } => {
                if let Some(shard) = self.shards.get_mut(writer) {
                    shard.busy = false;
                }
                self.written(report);
            }
            Message::Claimed(claimed) => claimed.into_iter().for_each(|held| self.send(held)),
            Message::LetGo(keys) => keys.into_iter().for_each(|key| self.let_go(key)),
            Message::Kept(positions) => self.kept(positions),
        }
    }

    fn started(&mut self, started: Started) {
        let Started { assigned, from } = started;
        match from {
            From::Position { position, epoch, witness, source, topic_id } => {
                self.handle.start(assigned.assignment, position);
                tracing::info!(partition = %assigned.partition, position, epoch, "partition starts");
                let partition = Partition {
                    tracker: Tracker::new(position, witness),
                    source,
                    topic_id,
                    epoch,
                    asked: position,
                    kept: position,
                    draining: false,
                    unwritten: 0,
                    assigned,
                };
                self.partitions.insert(partition.assigned.assignment, partition);
            }
            From::Stopped { why } => self.stop_partition(&assigned, why),
        }
        self.show_partitions();
    }

    fn stop_partition(&mut self, assigned: &Assigned, why: String) {
        tracing::error!(partition = %assigned.partition, why, "partition stopped");
        self.handle.leave_stopped(assigned.assignment);
        self.stopped.insert(assigned.assignment, format!("{}: {why}", assigned.partition));
        self.show_partitions();
    }

    fn show_partitions(&self) {
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        self.shared.metrics.partitions_assigned(count(self.partitions.len()));
        self.shared.metrics.partitions_stopped(count(self.stopped.len()));
        let stopped = self.stopped.values().next().cloned();
        self.health.stuck(&self.shared.connector.name, stopped.or_else(|| self.stuck()));
    }

    /// Why positions do not move although there is something to finish.
    fn stuck(&self) -> Option<String> {
        let wait = match self.shared.connector.failure.offset_wait {
            OffsetWait::Millis(ms) => Duration::from_millis(ms),
            OffsetWait::Forever => STUCK_AFTER.saturating_mul(5),
        };
        let unfinished = self.partitions.values().any(|one| one.tracker.unfinished() > 0);
        let still = clock::since(self.moved_last);
        (unfinished && still > wait.saturating_add(STUCK_AFTER))
            .then(|| format!("no position has moved for {} s", still.as_secs()))
    }

    fn written(&mut self, report: Report) {
        let now = clock::now();
        for done in report.done {
            let Some(partition) = self.partitions.get_mut(&done.assignment) else { continue };
            partition.unwritten = partition.unwritten.saturating_sub(1);
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
                self.waiting.add((done.assignment, done.offset), done.open, deadline);
            }
        }
        report.claimed.into_iter().for_each(|held| self.send(held));
    }

    /// Sends a claimed effect, in a task of its own. A panic in there is an unknown outcome.
    fn send(&self, held: Held) {
        let Some(lane) = self.shared.lane(held.rule).map(Arc::clone) else { return };
        let (lease, ended) = (self.lease.clone(), self.ended.clone());
        let metrics = self.shared.process_metrics.clone();
        let lost = held.clone();
        let call =
            task::spawn("call", &metrics, async move { call::call(&lane, held, &lease).await });
        let watch = async move {
            let outcome = match call.await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(_)) | Err(_) => {
                    Ended { held: lost, how: How::panicked(), took: Duration::ZERO }
                }
            };
            // The settler outlives every call; without it the claim is found by its lease.
            drop(ended.send(outcome));
        };
        drop(task::spawn("call watch", &metrics, watch));
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
            self.asked_last = clock::now();
            let open = self.waiting.open(ASK_MAX);
            if !open.is_empty() {
                drop(self.asker.send(open));
            }
            self.show_flow();
        }
    }

    /// Sends positions that have moved to the keeper, one write at a time.
    fn keep(&mut self) {
        if self.keeping {
            return;
        }
        let mut positions = Vec::new();
        for partition in self.partitions.values_mut() {
            let position = partition.tracker.position();
            if position > partition.asked {
                partition.asked = position;
                positions.push((partition.assigned.assignment, partition.raise()));
            }
        }
        if !positions.is_empty() {
            self.keeping = true;
            drop(self.keeper.send(positions));
        }
    }

    fn kept(&mut self, positions: Positions) {
        self.keeping = false;
        self.moved_last = clock::now();
        for (assignment, raise) in positions {
            if let Some(partition) = self.partitions.get_mut(&assignment) {
                partition.kept = raise.position;
                self.handle.commit(assignment, raise.position);
            }
        }
    }

    fn show_flow(&mut self) {
        let uncommitted: usize =
            self.partitions.values().map(|partition| partition.tracker.unfinished()).sum();
        if uncommitted == 0 {
            self.moved_last = clock::now();
        }
        self.show_partitions();
        let metrics = &self.shared.metrics;
        let counts = self.handle.counts();
        for (result, now, before) in [
            (CommitResult::Ok, counts.commits_done, self.counted.commits_done),
            (CommitResult::Rebalancing, counts.commits_refused, self.counted.commits_refused),
            (CommitResult::Error, counts.commits_failed, self.counted.commits_failed),
        ] {
            metrics.committed(result, now.saturating_sub(before));
        }
        self.counted = counts;
        metrics.uncommitted(u64::try_from(uncommitted).unwrap_or(u64::MAX));
        let mut ages: HashMap<Arc<str>, Duration> = HashMap::new();
        for offsets in self.handle.offsets() {
            let mut partitions = self.partitions.values();
            let tracker = partitions
                .find(|partition| partition.assigned.partition == offsets.partition)
                .map(|partition| &partition.tracker);
            let Some(tracker) = tracker else { continue };
            let Some(lag) = offsets.lag(tracker.position()) else { continue };
            let topic = &offsets.partition.topic;
            let records = u64::try_from(lag).unwrap_or(0);
            metrics.lag_records(topic, offsets.partition.partition, records);
            let last = tracker.witness().and_then(|witness| witness.timestamp_ms);
            let age = match last {
                Some(timestamp_ms) if records > 0 => clock::age_of(timestamp_ms),
                Some(_) | None => Duration::ZERO,
            };
            let oldest = ages.entry(Arc::clone(topic)).or_default();
            *oldest = age.max(*oldest);
        }
        for topic in &self.shared.connector.source.topics {
            match ages.get(&**topic) {
                Some(age) => metrics.lag(topic, *age),
                None => metrics.forget_topic(topic),
            }
        }
    }

    // ----------------------------------------------------------------------------------------- //

    fn revoke(&mut self, revoked: Revoked) {
        let Revoked { partitions, cause, drain_max, answer } = revoked;
        let assignments: Vec<AssignmentId> = partitions.iter().map(|one| one.assignment).collect();
        for assigned in &partitions {
            self.stopped.remove(&assigned.assignment);
            let partition = &assigned.partition;
            self.shared.metrics.forget_partition(&partition.topic, partition.partition);
        }
        match cause {
            RevokeCause::Lost => {
                self.shared.metrics.rebalanced(RebalanceKind::Lost);
                tracing::warn!(partitions = partitions.len(), "partitions lost");
                assignments.iter().for_each(|assignment| self.forget(*assignment));
            }
            RevokeCause::Rebalance | RevokeCause::Stop => {
                self.shared.metrics.rebalanced(RebalanceKind::Revoked);
                tracing::info!(partitions = partitions.len(), "partitions are given up");
                for assignment in &assignments {
                    if let Some(partition) = self.partitions.get_mut(assignment) {
                        partition.draining = true;
                    }
                }
                // What no writer has begun is the next owner's.
                for shard in &mut self.shards {
                    let partitions = &mut self.partitions;
                    shard.queue.retain(|item| {
                        let Some(partition) = partitions.get_mut(&item.record.assignment) else {
                            return false;
                        };
                        if partition.draining {
                            partition.unwritten = partition.unwritten.saturating_sub(1);
                        }
                        !partition.draining
                    });
                }
                let wait = drain_max.min(self.shared.timing.drain);
                let deadline =
                    clock::now().checked_add(wait.mul_f32(0.9)).unwrap_or_else(clock::now);
                self.drains.push(Drain { assignments, deadline, answer });
            }
        }
        self.show_partitions();
    }

    /// Answers drains whose partitions have nothing in flight any more, or whose time is up.
    fn finish_drains(&mut self) {
        if self.drains.is_empty() {
            return;
        }
        self.keep();
        let now = clock::now();
        let mut open = Vec::new();
        for drain in std::mem::take(&mut self.drains) {
            let in_flight = |assignment: &AssignmentId| {
                self.partitions.get(assignment).is_some_and(|partition| {
                    partition.unwritten > 0
                        || self.waiting.of(*assignment) > 0
                        || partition.tracker.position() > partition.kept
                })
            };
            if now < drain.deadline && drain.assignments.iter().any(in_flight) {
                open.push(drain);
                continue;
            }
            let kept = |assignment: &AssignmentId| {
                self.partitions.get(assignment).map(|partition| (*assignment, partition.kept))
            };
            let positions = drain.assignments.iter().filter_map(kept).collect();
            drain.answer.drained(positions);
            for assignment in drain.assignments {
                self.forget(assignment);
            }
        }
        self.drains = open;
        self.show_partitions();
    }

    fn forget(&mut self, assignment: AssignmentId) {
        self.partitions.remove(&assignment);
        self.waiting.forget(assignment);
        self.stopped.remove(&assignment);
    }
}

impl Partition {
    fn raise(&self) -> Raise {
        Raise {
            topic: self.assigned.partition.topic.to_string(),
            topic_id: self.topic_id.clone(),
            partition: self.assigned.partition.partition,
            epoch: self.epoch,
            position: self.tracker.position(),
            witness: self.tracker.witness(),
        }
    }
}
