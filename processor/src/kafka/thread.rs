//! The poll thread: takes commands, polls, sends batches, and ends.
//!
//! It never waits for the database, a provider or the worker, save inside a revoke and within its
//! bound. While the worker holds too much it first waits a moment, then pauses fetching and goes
//! on polling, so that the group never takes this member for dead.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError as ClientError;
use rdkafka::message::{BorrowedMessage, Message};

use super::batch::Gathering;
use super::commit::{Committer, Due};
use super::consumer::{Requests, Shared, StopMode};
use super::context::{Context, Group, is_eager};
use super::error::KafkaError;
use super::event::{self, Event, EventSender, Events, RevokeCause};
use super::record::RecordBatch;
use super::settings::ConsumerSettings;
use super::slots::{Slot, State, list_of, starts_of};
use super::stats::Counters;
use super::trouble::Troubles;
use crate::clock::{self, Moment};

/// Longest wait in one poll: the longest that a command waits while no records come.
const POLL_MAX: Duration = Duration::from_millis(50);
/// The same while something is to be done soon.
const POLL_SOON: Duration = Duration::from_millis(5);
/// How long a full batch may wait for room before fetching is paused. Pausing throws away what
/// was fetched ahead, so it is not done for every hiccup.
const FULL_MAX: Duration = Duration::from_secs(1);
/// Pause before partitions that the client refused are offered again.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// Longest wait for leaving the group and closing connections.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// Longest wait for room for the last events.
const LAST_EVENTS_MAX: Duration = Duration::from_secs(1);

/// Makes the client and starts the thread.
pub(super) fn spawn(
    settings: &ConsumerSettings,
    shared: Arc<Shared>,
) -> Result<Events, KafkaError> {
    let config = settings.config()?;
    let (sender, events) = event::channel();
    let context = Context::new(shared, sender, settings.drain_max);
    let consumer: BaseConsumer<Context> =
        config.create_with_context(context).map_err(KafkaError::Client)?;
    let topics: Vec<&str> = settings.topics.iter().map(String::as_str).collect();
    consumer.subscribe(&topics).map_err(KafkaError::Client)?;
    let consumer = Arc::new(consumer);
    let thread_error = |error: std::io::Error| KafkaError::Thread { reason: error.to_string() };
    let committer = Committer::spawn(Arc::clone(&consumer)).map_err(thread_error)?;
    consumer.context().group().committer = Some(committer);
    let gathering = Gathering::new(settings.batch_records_max, settings.batch_bytes_max);
    thread::Builder::new()
        .name("kafka-poll".to_owned())
        .spawn(move || {
            let span = consumer.context().span.clone();
            span.in_scope(|| run(consumer, gathering));
        })
        .map_err(thread_error)?;
    Ok(events)
}

fn run(consumer: Arc<BaseConsumer<Context>>, gathering: Gathering) {
    let context = Arc::clone(consumer.context());
    let ran = panic::catch_unwind(AssertUnwindSafe(|| {
        let mut poll = Poll {
            consumer: &consumer,
            context: &context,
            gathering,
            slots_version: 0,
            full_since: None,
            held_back: false,
            refused_at: None,
            troubles: Troubles::default(),
        };
        poll.run()
    }));
    let error = match ran {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error),
        Err(_) => Some(KafkaError::Thread { reason: "the poll thread panicked".to_owned() }),
    };
    let committer = {
        let mut group = context.group();
        if let Some(error) = error {
            group.events.send(Event::Fatal(error));
        }
        group.closing = true;
        group.committer.take()
    };
    let clean = close(consumer, committer);
    last_events(&mut context.group().events, clean);
}

/// Closes the client on a thread of its own, since closing may wait for a broker that is away.
fn close(consumer: Arc<BaseConsumer<Context>>, committer: Option<Committer>) -> bool {
    let (done, closed) = mpsc::sync_channel(1);
    let closing = thread::Builder::new().name("kafka-close".to_owned()).spawn(move || {
        if let Some(committer) = committer {
            committer.join();
        }
        drop(consumer);
        // Whoever waits has gone on when this comes too late.
        done.try_send(()).ok();
    });
    closing.is_ok() && closed.recv_timeout(CLOSE_MAX).is_ok()
}

fn last_events(events: &mut EventSender, clean: bool) {
    events.send(Event::Closed { clean });
    let began = clock::now();
    while !events.flush() && clock::since(began) < LAST_EVENTS_MAX {
        thread::sleep(POLL_SOON);
    }
}

struct Poll<'a> {
    consumer: &'a BaseConsumer<Context>,
    context: &'a Context,
    gathering: Gathering,
    slots_version: u64,
    /// Since when a full batch has been waiting for room.
    full_since: Option<Moment>,
    /// Whether fetching is paused because the worker holds too much.
    held_back: bool,
    /// When the client last refused partitions; they are offered again after a pause.
    refused_at: Option<Moment>,
    troubles: Troubles,
}

impl Poll<'_> {
    fn run(&mut self) -> Result<(), KafkaError> {
        loop {
            self.shared().mark_polled();
            let requests = self.shared().take_requests();
            if let Some(mode) = requests.stop {
                self.note_commits(&requests);
                self.stop(mode);
                return Ok(());
            }
            let Some(wait) = self.turn(&requests)? else {
                thread::park_timeout(POLL_SOON);
                continue;
            };
            self.poll(wait)?;
            self.drop_ended();
            if self.context.group().events.is_closed() {
                self.stop(StopMode::Now);
                return Ok(());
            }
        }
    }

    fn shared(&self) -> &Shared {
        &self.context.shared
    }

    /// All that is done between two polls. Gives how long the next poll may wait; `None` when
    /// polling has to wait for room.
    fn turn(&mut self, requests: &Requests) -> Result<Option<Duration>, KafkaError> {
        self.note_commits(requests);
        let context = self.context;
        let mut group = context.group();
        group.events.flush();
        self.apply_pauses(requests, &mut group);
        self.apply_starts(requests, &mut group);
        let refused = self.refused_at.is_some_and(|at| clock::since(at) < REFUSED_PAUSE);
        if !self.held_back && !refused && group.slots.has(State::Ready) {
            self.hand_over(&mut group);
        }
        if let Some(committer) = &mut group.committer {
            committer.turn(&self.context.shared.counters);
        }
        if let Some(error) = group.failure.take() {
            self.check_fatal()?;
            tracing::warn!(%error, "a change of the assignment was refused");
        }
        self.send(&mut group);
        let full = self.gathering.is_full();
        self.balance(full, &mut group);
        if full && !self.held_back {
            return Ok(None);
        }
        self.troubles.look_at_ranges(self.consumer, &self.context.shared, &mut group);
        let soon = !self.gathering.is_empty() || group.slots.has(State::Waiting);
        Ok(Some(if soon { POLL_SOON } else { POLL_MAX }))
    }

    fn note_commits(&self, requests: &Requests) {
        let mut group = self.context.group();
        let Group { slots, committer: Some(committer), .. } = &mut *group else { return };
        // One that is begun anew has another position than what was due.
        let begun: Vec<_> = requests.starts.keys().copied().collect();
        committer.forget(&begun);
        for (assignment, offset) in &requests.commits {
            if let Some(slot) = slots.by_assignment(*assignment) {
                let partition = slot.assigned.partition.clone();
                committer.note(*assignment, Due { partition, offset: *offset });
            }
        }
    }

    fn apply_starts(&self, requests: &Requests, group: &mut Group) {
        for (assignment, start) in &requests.starts {
            let Some(slot) = group.slots.by_assignment(*assignment) else { continue };
            // One that is fetched is begun anew: the stop before it may not have been seen here.
            let state = match start {
                Some((offset, start)) => {
                    (slot.next, slot.start) = (*offset, *start);
                    State::Ready
                }
                None => State::Stopped,
            };
            let with_client = slot.state.is_with_client();
            slot.state = state;
            slot.paused_in_client = false;
            // An eager group names all that stay when it hands over the next; until then the records
            // of this one are dropped.
            if with_client && !is_eager(self.consumer) {
                let list = list_of([&*slot]);
                let taken = self.consumer.incremental_unassign(&list);
                group.note_failure(taken);
            }
        }
    }

    fn apply_pauses(&self, requests: &Requests, group: &mut Group) {
        if requests.pauses.is_empty() {
            return;
        }
        for (assignment, paused) in &requests.pauses {
            if let Some(slot) = group.slots.by_assignment(*assignment) {
                slot.paused = *paused;
            }
        }
        self.set_pauses(group);
    }

    /// Makes the client pause and resume what has to be, and nothing else: resuming a partition
    /// that is not paused would throw away what was fetched ahead.
    fn set_pauses(&self, group: &mut Group) {
        let held_back = self.held_back;
        let wanted = |slot: &Slot| slot.state == State::Fetching && (slot.paused || held_back);
        let pause = |slot: &&Slot| wanted(slot) && !slot.paused_in_client;
        let resume =
            |slot: &&Slot| slot.state == State::Fetching && !wanted(slot) && slot.paused_in_client;
        let to_pause = list_of(group.slots.iter().filter(pause));
        let to_resume = list_of(group.slots.iter().filter(resume));
        if to_pause.count() > 0 {
            let paused = self.consumer.pause(&to_pause);
            group.note_failure(paused);
        }
        if to_resume.count() > 0 {
            let resumed = self.consumer.resume(&to_resume);
            group.note_failure(resumed);
        }
        for slot in group.slots.iter_mut() {
            slot.paused_in_client = slot.state == State::Fetching && (slot.paused || held_back);
        }
    }

    /// Gives the client the partitions whose start is known.
    fn hand_over(&mut self, group: &mut Group) {
        let eager = is_eager(self.consumer);
        let handed = if eager {
            // This call replaces all, so the others are named too, where they have come to.
            let all = |slot: &&Slot| matches!(slot.state, State::Ready | State::Fetching);
            self.consumer.assign(&starts_of(group.slots.iter().filter(all)))
        } else {
            let ready = |slot: &&Slot| slot.state == State::Ready;
            self.consumer.incremental_assign(&starts_of(group.slots.iter().filter(ready)))
        };
        self.refused_at = handed.is_err().then(clock::now);
        if handed.is_ok() {
            for slot in group.slots.iter_mut() {
                match slot.state {
                    State::Ready => slot.state = State::Fetching,
                    State::OutOfRange if eager => slot.state = State::Stopped,
                    State::Waiting | State::Fetching | State::OutOfRange | State::Stopped => {}
                }
                if eager {
                    slot.paused_in_client = false;
                }
            }
            self.set_pauses(group);
        }
        group.note_failure(handed);
    }

    /// Sends the batch if the worker has room for it.
    fn send(&mut self, group: &mut Group) {
        let flow = &self.context.shared.flow;
        if self.gathering.is_empty() || !flow.has_room() || !group.events.has_room() {
            return;
        }
        let (records, bytes) = self.gathering.take();
        let counters = &self.context.shared.counters;
        Counters::add(&counters.records, records.len());
        Counters::add(&counters.bytes, bytes);
        let permit = flow.take(records.len(), bytes);
        group.events.send_batch(RecordBatch { records, permit });
        self.full_since = None;
    }

    /// Pauses fetching when a full batch has waited too long, resumes when half is free again.
    fn balance(&mut self, full: bool, group: &mut Group) {
        if self.held_back {
            if self.gathering.is_empty() && self.context.shared.flow.half_empty() {
                self.held_back = false;
                self.set_pauses(group);
            }
        } else if full {
            let since = *self.full_since.get_or_insert_with(clock::now);
            if clock::since(since) >= FULL_MAX {
                self.held_back = true;
                self.full_since = None;
                self.context.shared.counters.back_pressure.fetch_add(1, Ordering::Relaxed);
                self.set_pauses(group);
            }
        }
    }

    /// Polls until nothing is left at hand or the batch is full.
    fn poll(&mut self, wait: Duration) -> Result<(), KafkaError> {
        let mut polled = self.consumer.poll(wait);
        while let Some(result) = polled {
            match result {
                Ok(message) => self.take(&message),
                Err(error) => self.trouble(&error)?,
            }
            if self.gathering.is_full() {
                break;
            }
            polled = self.consumer.poll(Duration::ZERO);
        }
        Ok(())
    }

    fn take(&mut self, message: &BorrowedMessage<'_>) {
        let mut group = self.context.group();
        let offset = message.offset();
        match group.slots.find(message.topic(), message.partition()) {
            // An offset below the next one was delivered before under this assignment.
            Some(slot) if slot.state == State::Fetching && offset >= slot.next => {
                slot.next = offset.saturating_add(1);
                let topic = Arc::clone(&slot.assigned.partition.topic);
                self.gathering.push(topic, (slot.assigned.assignment, slot.start), message);
            }
            Some(_) | None => {
                Counters::add(&self.context.shared.counters.records_dropped, 1);
            }
        }
    }

    fn trouble(&mut self, error: &ClientError) -> Result<(), KafkaError> {
        if matches!(error, ClientError::MessageConsumptionFatal(_)) {
            self.check_fatal()?;
        }
        // A fatal state is also looked for behind every other error: it may come under any name.
        self.check_fatal()?;
        let mut group = self.context.group();
        self.troubles.note(error, &self.context.shared, &mut group);
        Ok(())
    }

    fn check_fatal(&self) -> Result<(), KafkaError> {
        match self.consumer.client().fatal_error() {
            Some((code, reason)) => Err(KafkaError::Fatal { code, reason }),
            None => Ok(()),
        }
    }

    /// Throws gathered records of ended assignments away.
    fn drop_ended(&mut self) {
        let group = self.context.group();
        if group.slots.version() != self.slots_version {
            self.slots_version = group.slots.version();
            let dropped = self.gathering.retain(|assignment| group.slots.is_live(assignment));
            Counters::add(&self.context.shared.counters.records_dropped, dropped);
        }
    }

    /// Ends all assignments.
    fn stop(&self, mode: StopMode) {
        let ended = self.context.group().slots.remove_all();
        match mode {
            StopMode::Drain => self.context.end(self.consumer, &ended, RevokeCause::Stop),
            StopMode::Now => {}
        }
    }
}
