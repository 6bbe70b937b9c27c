//! The state of the model: one effect of one record, two workers, the wire and the provider.

use std::collections::HashSet;
use std::sync::Mutex;

use oncely_core::connector::{OnNotFound, OnUnknown};
use oncely_core::effect::marks::Marks;
use oncely_core::effect::next::{Asking, Policy};
use oncely_core::effect::retry::Retry;

/// A tick in milliseconds, where the core wants them.
pub(crate) const TICK_MS: u64 = 1_000;
/// Ticks from a heartbeat to the end of its lease.
pub(crate) const LEASE: u8 = 1;
/// Ticks within which a request is applied or dropped, counted from the look at the lease: the time-out
/// and `applies_within` together, which is the settle delay.
pub(crate) const SETTLE: u8 = 2;
/// Ticks for which the provider remembers a key, counted from when it first saw it.
pub(crate) const WINDOW: u8 = 4;
/// The clock of every state: times are kept as they are from now, so that time has no end and equal states
/// meet again.
pub(crate) const NOW: u8 = 20;

/// What a provider offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Class A: it deduplicates on our key.
    Keyed,
    /// Class B: it can be asked by our reference.
    Asked,
    /// Class A inside the key's window, class B after it.
    KeyedThenAsked,
    /// Class C.
    Neither,
}

impl Class {
    pub(crate) const fn has_keys(self) -> bool {
        matches!(self, Self::Keyed | Self::KeyedThenAsked)
    }

    pub(crate) const fn is_asked(self) -> bool {
        matches!(self, Self::Asked | Self::KeyedThenAsked)
    }
}

/// The rules that keep the promise; each can be taken out.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is one rule")]
pub(crate) struct Rules {
    pub(crate) death_is_declared: bool,
    pub(crate) lease_is_checked: bool,
    pub(crate) death_drops_claims: bool,
    pub(crate) not_found_waits: bool,
    pub(crate) unknown_sticks: bool,
    pub(crate) window_is_kept: bool,
    pub(crate) window_leaves_room: bool,
    pub(crate) age_is_of_now: bool,
    pub(crate) settling_is_fenced: bool,
    pub(crate) started_is_remembered: bool,
    pub(crate) position_waits: bool,
    pub(crate) repeats_are_known: bool,
    /// What a failover may have lost is unknown.
    pub(crate) loss_is_unknown: bool,
    /// It is found out only when nobody has a lease any more that was given before.
    pub(crate) loss_waits: bool,
    /// What is found out about it counts from the last moment before the loss.
    pub(crate) loss_has_an_age: bool,
    /// So may a copy of the record, wherever it is read first.
    pub(crate) copies_are_in_doubt: bool,
    /// A batch that is under way when the loss is put on record is decided again.
    pub(crate) batches_meet_the_loss: bool,
    /// Not a rule of ours but what is asked of the world.
    pub(crate) freezes_end: bool,
}

impl Rules {
    pub(crate) const ALL: Self = Self {
        death_is_declared: true,
        lease_is_checked: true,
        death_drops_claims: true,
        not_found_waits: true,
        unknown_sticks: true,
        window_is_kept: true,
        window_leaves_room: true,
        age_is_of_now: true,
        settling_is_fenced: true,
        started_is_remembered: true,
        position_waits: true,
        repeats_are_known: true,
        loss_is_unknown: true,
        loss_waits: true,
        loss_has_an_age: true,
        copies_are_in_doubt: true,
        batches_meet_the_loss: true,
        freezes_end: true,
    };
}

/// How often each fault may strike. Slowness costs nothing: any step may come late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Faults {
    /// kill -9.
    pub(crate) crashes: u8,
    /// Requests or answers that are lost, and answers to COMMIT.
    pub(crate) lost: u8,
    /// Calls that the provider refuses without applying them.
    pub(crate) refused: u8,
    /// Tasks that are lost inside a process.
    pub(crate) panics: u8,
    /// Workers that are declared dead, killed or frozen.
    pub(crate) deaths: u8,
    /// A standby takes over that lacks what was committed since some moment.
    pub(crate) failovers: u8,
}

impl Faults {
    pub(crate) const NONE: Self =
        Self { crashes: 0, lost: 0, refused: 0, panics: 0, deaths: 1, failovers: 0 };
}

/// One model: a class of provider, the rules in force, the faults allowed.
#[derive(Debug)]
pub(crate) struct Protocol {
    pub(crate) class: Class,
    pub(crate) rules: Rules,
    pub(crate) faults: Faults,
    /// States from which a fair run is known to end.
    pub(crate) ending: Mutex<HashSet<World>>,
}

impl Protocol {
    /// What the core decides by.
    pub(crate) fn policy(&self) -> Policy {
        let settle = if self.rules.not_found_waits { SETTLE } else { 0 };
        let room = if self.rules.window_leaves_room { SETTLE } else { 0 };
        let window = u64::from(WINDOW - room) * TICK_MS;
        Policy {
            on_unknown: match self.class {
                Class::Keyed | Class::KeyedThenAsked => OnUnknown::RetrySameKey,
                Class::Asked => OnUnknown::Reconcile,
                Class::Neither => OnUnknown::Hold,
            },
            retry: Retry::new(5, 1, 1, u64::MAX).unwrap(),
            key_window_ms: (self.class.has_keys() && self.rules.window_is_kept).then_some(window),
            asking: self.class.is_asked().then_some(Asking {
                settle_ms: u64::from(settle) * TICK_MS,
                on_not_found: OnNotFound::Resend,
            }),
            marks: Marks::default(),
        }
    }
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct World {
    pub(crate) clock: u8,
    pub(crate) row: Option<Row>,
    pub(crate) fence: u8,
    /// Worker rows, by id.
    pub(crate) workers: Vec<Registered>,
    pub(crate) processes: [Process; 2],
    pub(crate) wire: Vec<Flight>,
    pub(crate) applied: u8,
    /// When the provider first saw the key.
    pub(crate) known_since: Option<u8>,
    /// The record is behind the committed position.
    pub(crate) passed: bool,
    /// What a standby has that receives nothing any more.
    pub(crate) standby: Option<Standby>,
    /// The record may be done although nothing is on record of it.
    pub(crate) doubt: Option<Doubt>,
    pub(crate) left: Faults,
}

/// What is on record there, and the last moment of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Standby {
    pub(crate) row: Option<Row>,
    pub(crate) passed: bool,
    pub(crate) at: u8,
}

/// Since when something may be lost, and until when somebody may send who does not know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Doubt {
    pub(crate) since: u8,
    pub(crate) quiet: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Status {
    Waiting,
    Claimed { worker: u8, fence: u8 },
    Unknown,
    Held,
    Done,
    Rejected,
}

/// The effect's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) status: Status,
    pub(crate) due: u8,
    pub(crate) first_sent: Option<u8>,
    pub(crate) unknown_at: Option<u8>,
    pub(crate) attempts: u8,
    pub(crate) takeovers: u8,
    pub(crate) was_unknown: bool,
    pub(crate) asks: bool,
    pub(crate) suspect: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Registered {
    pub(crate) heartbeat: u8,
    pub(crate) dead: bool,
}

/// One process: the worker that it is now, and what it does.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Process {
    pub(crate) worker: u8,
    pub(crate) lease_until: u8,
    pub(crate) call: Option<Call>,
    /// It has written the record, or found it written, and waits for its effect.
    pub(crate) tracks: bool,
}

/// A claim in the hands of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Call {
    pub(crate) worker: u8,
    pub(crate) fence: u8,
    pub(crate) claimed_at: u8,
    /// When the call began.
    pub(crate) begun_at: u8,
    pub(crate) known: Known,
    pub(crate) phase: Phase,
}

/// What was on record of the effect when it was claimed; ages in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Known {
    pub(crate) elapsed: u8,
    pub(crate) quiet: u8,
    pub(crate) attempts: u8,
    pub(crate) takeovers: u8,
    pub(crate) was_unknown: bool,
    pub(crate) asks: bool,
    pub(crate) suspect: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    Claimed,
    /// The lease was good then; the first byte comes next.
    Checked {
        at: u8,
    },
    Sent {
        at: u8,
    },
    /// The provider is about to be asked.
    Asking,
    Seen(Seen),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Seen {
    Done,
    NotApplied,
    Unknown,
    Found,
    NotFound,
}

/// A request on its way, or its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Flight {
    pub(crate) worker: u8,
    pub(crate) fence: u8,
    pub(crate) checked_at: u8,
    /// What the provider made of it.
    pub(crate) landed: Option<Landed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Landed {
    Applied,
    Refused,
}

impl World {
    pub(crate) fn start(faults: Faults) -> Self {
        let process =
            |worker| Process { worker, lease_until: NOW + LEASE, call: None, tracks: false };
        Self {
            clock: NOW,
            row: None,
            fence: 0,
            workers: vec![Registered { heartbeat: NOW, dead: false }; 2],
            processes: [process(0), process(1)],
            wire: Vec::new(),
            applied: 0,
            known_since: None,
            passed: false,
            standby: None,
            doubt: None,
            left: faults,
        }
    }

    /// Whether the effect is at an end, or a person's.
    pub(crate) fn is_closed(&self) -> bool {
        let closed =
            |row: &Row| matches!(row.status, Status::Done | Status::Held | Status::Rejected);
        self.row.as_ref().is_some_and(closed)
    }
}
