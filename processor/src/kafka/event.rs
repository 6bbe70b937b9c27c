//! What the consumer thread tells the worker: one closed set of events, in order.
//!
//! Gives: assignments to answer, records, partitions to give up, and errors by what to do about
//! them. Callbacks of the client only build these values; the worker acts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use tokio::sync::mpsc;

use super::error::KafkaError;
use super::record::{AssignmentId, RecordBatch, TopicPartition};

/// A partition and the assignment under which this process has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assigned {
    /// Names this assignment in every command and on every record.
    pub assignment: AssignmentId,
    /// The partition.
    pub partition: TopicPartition,
}

/// Why partitions go away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevokeCause {
    /// The group moves them to another member, which waits until the answer.
    Rebalance,
    /// They are gone already: another member may be reading them. Commit nothing, drop what was
    /// not sent.
    Lost,
    /// This consumer was told to stop.
    Stop,
}

/// Partitions that this process gives up.
#[derive(Debug)]
pub struct Revoked {
    /// The partitions, with the assignments that end here.
    pub partitions: Vec<Assigned>,
    /// Why.
    pub cause: RevokeCause,
    /// Longest time for the drain, from the moment of sending. Later answers are dropped.
    pub drain_max: Duration,
    /// Where to answer. Nobody listens when the cause is [`RevokeCause::Lost`].
    pub answer: DrainAnswer,
}

/// The worker's answer to a revoke.
///
/// Dropping it without an answer ends the drain with nothing to commit, so a worker that failed
/// keeps no other member waiting.
#[derive(Debug)]
pub struct DrainAnswer(pub(super) SyncSender<Vec<(AssignmentId, i64)>>);

impl DrainAnswer {
    /// Ends the drain. `positions` are the offsets to commit: for each assignment the lowest
    /// offset that is *not* finished (Kafka's meaning of a committed offset), as is.
    pub fn drained(self, positions: Vec<(AssignmentId, i64)>) {
        // The consumer stops listening at its bound; the next owner starts from the database.
        drop(self.0.try_send(positions));
    }
}

/// An error that needs no stop: the client goes on trying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What kind of trouble, for counting.
    pub kind: TroubleKind,
    /// The client's words, which name brokers and topics but no contents.
    pub text: String,
}

/// Kinds of trouble, by who has to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TroubleKind {
    /// No broker answers, or connections break. Kafka's operator.
    Transport,
    /// TLS or SASL was refused. Whoever configured this process.
    Authentication,
    /// A topic or the group may not be read. Whoever grants access.
    Authorization,
    /// A topic that was asked for does not exist.
    TopicMissing,
    /// This process did not poll for longer than the poll interval: it was frozen.
    PollIntervalExceeded,
    /// Bytes that fail their checksum, or that the client cannot read.
    Corrupt,
    /// Anything else.
    Other,
}

impl TroubleKind {
    /// Whether it may mean that no broker can be reached.
    #[must_use]
    pub const fn is_away(self) -> bool {
        match self {
            Self::Transport | Self::Authentication => true,
            Self::Authorization
            | Self::TopicMissing
            | Self::PollIntervalExceeded
            | Self::Corrupt
            | Self::Other => false,
        }
    }
}

/// What the consumer thread reports.
#[derive(Debug)]
pub enum Event {
    /// New assignments. Nothing of them is fetched until each is answered by
    /// [`super::ConsumerHandle::start`] or [`super::ConsumerHandle::leave_stopped`]; polling and
    /// the group's life go on meanwhile.
    Assigned(Vec<Assigned>),
    /// Records of live assignments.
    Records(RecordBatch),
    /// Assignments that end.
    Revoked(Revoked),
    /// The broker no longer has, or does not yet have, the offset that was to be read next. The
    /// partition is read no further under this assignment.
    OutOfRange {
        /// The assignment that has stopped.
        assigned: Assigned,
        /// The offset that was asked for.
        position: i64,
        /// First offset that the broker has.
        low: i64,
        /// Offset that the broker would give to the next record.
        high: i64,
    },
    /// The client goes on trying; at most one per kind and [`super::TROUBLE_INTERVAL`].
    Trouble(Trouble),
    /// The client cannot go on; the process has to end with a failure. [`Event::Closed`] follows.
    Fatal(KafkaError),
    /// The thread has ended; nothing follows.
    Closed {
        /// Whether the client left its group within the time limit.
        clean: bool,
    },
}

/// The worker's end of the events.
#[derive(Debug)]
pub struct Events {
    receiver: mpsc::Receiver<Event>,
    unread_batches: Arc<AtomicUsize>,
}

impl Events {
    /// The next event; `None` after the thread has ended.
    ///
    /// Cancel safe: an event is either returned or stays.
    pub async fn recv(&mut self) -> Option<Event> {
        let event = self.receiver.recv().await;
        if matches!(event, Some(Event::Records(_))) {
            self.unread_batches.fetch_sub(1, Ordering::AcqRel);
        }
        event
    }

    /// The next event if there is one already.
    pub fn try_recv(&mut self) -> Option<Event> {
        let event = self.receiver.try_recv().ok();
        if matches!(event, Some(Event::Records(_))) {
            self.unread_batches.fetch_sub(1, Ordering::AcqRel);
        }
        event
    }
}

/// Batches that may lie unread; beyond them the thread lets its batch grow instead, which makes
/// batches larger exactly when the worker is busy.
const UNREAD_BATCHES_MAX: usize = 2;
/// Events that may lie unread. Batches are at most [`UNREAD_BATCHES_MAX`] of them; the rest is
/// room for what callbacks report.
const EVENTS_MAX: usize = 64;

/// The thread's end of the events.
#[derive(Debug)]
pub(super) struct EventSender {
    sender: mpsc::Sender<Event>,
    unread_batches: Arc<AtomicUsize>,
    /// Events that found no room, in order. Bounded by what a group can do while nobody reads:
    /// see [`EventSender::send`].
    waiting: VecDeque<Event>,
}

/// Both ends.
pub(super) fn channel() -> (EventSender, Events) {
    let (sender, receiver) = mpsc::channel(EVENTS_MAX);
    let unread_batches = Arc::new(AtomicUsize::new(0));
    (
        EventSender {
            sender,
            unread_batches: Arc::clone(&unread_batches),
            waiting: VecDeque::new(),
        },
        Events { receiver, unread_batches },
    )
}

impl EventSender {
    /// Sends, or keeps for later when there is no room. Trouble is dropped rather than kept: it
    /// is counted elsewhere and repeats itself.
    pub(super) fn send(&mut self, event: Event) {
        self.flush();
        if self.waiting.is_empty() {
            match self.sender.try_send(event) {
                Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
                Err(mpsc::error::TrySendError::Full(event)) => self.keep(event),
            }
        } else {
            self.keep(event);
        }
    }

    fn keep(&mut self, event: Event) {
        if !matches!(event, Event::Trouble(_)) {
            self.waiting.push_back(event);
        }
    }

    /// Sends what had found no room. `true` when nothing is left.
    pub(super) fn flush(&mut self) -> bool {
        while let Some(event) = self.waiting.pop_front() {
            match self.sender.try_send(event) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Full(event)) => {
                    self.waiting.push_front(event);
                    return false;
                }
                Err(mpsc::error::TrySendError::Closed(_)) => self.waiting.clear(),
            }
        }
        true
    }

    /// Whether a batch sent now would be looked at soon.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.is_empty() && self.unread_batches.load(Ordering::Acquire) < UNREAD_BATCHES_MAX
    }

    /// Sends a batch. To be called after [`EventSender::has_room`].
    pub(super) fn send_batch(&mut self, batch: RecordBatch) {
        self.unread_batches.fetch_add(1, Ordering::AcqRel);
        self.send(Event::Records(batch));
    }

    /// Whether the worker's end is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::flow::{Flow, FlowBounds};

    fn trouble(text: &str) -> Event {
        Event::Trouble(Trouble { kind: TroubleKind::Other, text: text.to_owned() })
    }

    /// A worker that reads nothing loses no event that it has to answer, and their order stays.
    #[test]
    fn what_finds_no_room_is_kept_in_order() {
        let (mut sender, mut events) = channel();
        for _ in 0..EVENTS_MAX {
            sender.send(trouble("fills the room"));
        }
        sender.send(trouble("is not kept"));
        for low in 0..3 {
            let partition = TopicPartition::new("t", 0);
            let assigned = Assigned { assignment: AssignmentId::fresh(), partition };
            sender.send(Event::OutOfRange { assigned, position: 0, low, high: 9 });
        }
        assert!(!sender.flush());
        assert!(!sender.has_room());
        for _ in 0..EVENTS_MAX {
            assert!(matches!(events.try_recv(), Some(Event::Trouble(_))));
        }
        assert!(sender.flush());
        for expected in 0..3 {
            let event = events.try_recv();
            assert!(matches!(&event, Some(Event::OutOfRange { low, .. }) if *low == expected));
        }
        assert!(events.try_recv().is_none());
        drop(events);
        assert!(sender.is_closed());
        sender.send(trouble("nobody is there"));
    }

    #[test]
    fn few_batches_lie_unread() {
        let (mut sender, mut events) = channel();
        let flow = Flow::new(FlowBounds::default());
        for _ in 0..UNREAD_BATCHES_MAX {
            assert!(sender.has_room());
            sender.send_batch(RecordBatch { records: Vec::new(), permit: flow.take(1, 1) });
        }
        assert!(!sender.has_room());
        assert!(events.try_recv().is_some());
        assert!(sender.has_room());
    }
}
