//! A plan: all that is to be written for a batch, as plain values.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::known::{EntityRow, Place};
use crate::connector::AfterWait;
use crate::effect::order::Turn;
use crate::fingerprint::Fingerprint;
use crate::key::Key;

/// The one outcome in which a record ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ending {
    Applied,
    Duplicate,
    Stale,
    Ignored,
    Quarantined,
    DeadLettered,
    /// It waits for another event of its entity; what becomes of it is on record then.
    Deferred,
}

impl Ending {
    pub const ALL: [Self; 7] = [
        Self::Applied,
        Self::Duplicate,
        Self::Stale,
        Self::Ignored,
        Self::Quarantined,
        Self::DeadLettered,
        Self::Deferred,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Duplicate => "duplicate",
            Self::Stale => "stale",
            Self::Ignored => "ignored",
            Self::Quarantined => "quarantined",
            Self::DeadLettered => "dead_lettered",
            Self::Deferred => "deferred",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ending| ending.as_str() == text)
    }
}

/// Why the core parks an event that has an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ParkReason {
    /// Its id is known with other content.
    Conflict,
    /// Its version is the stored one, set by another event.
    VersionConflict,
    /// The transition table has no way from the stored state.
    InvalidTransition,
    /// It owes an effect that another event owes with another request.
    EffectConflict,
    /// An expression of the connector gave no usable value.
    ExpressionFailed,
    /// A request could not be made from it.
    RequestFailed,
    /// It is older than ids are remembered: it may have been run and forgotten.
    TooOld,
    /// Deciding it panicked: a fault of this program.
    Panicked,
    /// A version before it did not come in time.
    VersionGap,
    /// It would have to wait, and as many events wait as may.
    DeferredFull,
    /// The connector file gives it another identity than when it began to wait.
    IdentityChanged,
    /// The database refuses a value that follows from it.
    RefusedByDatabase,
}

impl ParkReason {
    pub const ALL: [Self; 12] = [
        Self::Conflict,
        Self::VersionConflict,
        Self::InvalidTransition,
        Self::EffectConflict,
        Self::ExpressionFailed,
        Self::RequestFailed,
        Self::TooOld,
        Self::Panicked,
        Self::VersionGap,
        Self::DeferredFull,
        Self::IdentityChanged,
        Self::RefusedByDatabase,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::VersionConflict => "version_conflict",
            Self::InvalidTransition => "invalid_transition",
            Self::EffectConflict => "effect_conflict",
            Self::ExpressionFailed => "expression_failed",
            Self::RequestFailed => "request_failed",
            Self::TooOld => "too_old",
            Self::Panicked => "panicked",
            Self::VersionGap => "version_gap",
            Self::DeferredFull => "deferred_full",
            Self::IdentityChanged => "identity_changed",
            Self::RefusedByDatabase => "refused_by_database",
        }
    }
}

/// What one event came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub ending: Ending,
    pub reason: Option<ParkReason>,
    /// Effects that the record's offset waits for, shared ones and those of its first copy included.
    pub effects: Vec<Key>,
    /// Since the event was first seen; zero for a fresh one.
    pub age_ms: u64,
    /// A duplicate that is the first copy itself: the record was read, or decided, before.
    pub is_first: bool,
    pub moved: Option<Moved>,
}

/// A transition, for metrics and logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    pub from: Arc<str>,
    pub to: Arc<str>,
}

#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// One for each input, in order.
    pub decisions: Vec<Decision>,
    pub entities: BTreeMap<Key, EntityWrite>,
    pub inbox: BTreeMap<Key, InboxNew>,
    pub effects: BTreeMap<Key, EffectNew>,
    pub ledger: BTreeMap<Key, LedgerNew>,
    pub parked: Vec<ParkedNew>,
    pub payloads: Vec<PayloadNew>,
    /// Copies of known events, in the order of the inputs.
    pub repeats: Vec<(Key, Place)>,
    /// Events that wait from now on, by their keys.
    pub deferred: BTreeMap<Key, DeferredNew>,
    /// Events that waited and wait no more.
    pub released: Vec<Released>,
    /// Entities whose versions were decided further than they themselves have come.
    pub passed: BTreeMap<Key, i64>,
    /// Versions that were decided while one before them was missing, and left their entity where it is.
    pub ahead: BTreeSet<(Key, i64)>,
    /// Entities of which some of that is on record and needed no more: they have come as far.
    pub overtaken: BTreeSet<Key>,
    /// Deferred rows that waited for a person, and wait for a version from now on.
    pub timed: Vec<i64>,
    /// Events of this batch that came while an earlier version was missing.
    pub gaps: u64,
    /// Deferred rows that may go, and which this plan does not take: the next one does.
    pub hurried: Vec<i64>,
}

/// An event that waits for others of its entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeferredNew {
    /// Index of the input.
    pub input: usize,
    pub entity: Key,
    pub version: i64,
    pub cause: WaitCause,
    pub tenant: Box<str>,
    pub business_id: Box<str>,
    pub fingerprint: Fingerprint,
    /// It may have been run before, though nothing is on record of it.
    pub suspect: bool,
}

/// What an event waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitCause {
    /// An earlier version is missing.
    Gap,
    /// An earlier event of the entity is parked.
    Parked,
}

impl WaitCause {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gap => "gap",
            Self::Parked => "parked",
        }
    }
}

/// An event that waited and was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    /// Of its row.
    pub number: i64,
    pub event: Key,
    /// Index of the input.
    pub input: usize,
    /// What it came to at its time, where what it waited for did not come.
    pub escalated: Option<AfterWait>,
    pub decision: Decision,
}

/// The last state of an entity after the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityWrite {
    pub row: EntityRow,
    pub tenant: Box<str>,
    /// The version that the database has; `None`: it does not know the entity yet.
    pub was: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxNew {
    pub fingerprint: Fingerprint,
    pub entity: Option<(Key, i64)>,
    pub place: Place,
    pub ending: Ending,
    pub tenant: Box<str>,
    pub moved: Option<Moved>,
    pub effects: Vec<Key>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectNew {
    pub event: Key,
    pub lane: Key,
    pub version: i64,
    /// Index of the rule in the connector.
    pub rule: usize,
    pub tenant: Box<str>,
    pub business_id: Box<str>,
    pub request_hash: Key,
    /// `None`: rendered when the results that it reads are there.
    pub request: Option<Vec<u8>>,
    pub after: Vec<Key>,
    /// The effect that it undoes, also among those that it comes after.
    pub undoes: Option<Key>,
    pub turn: Turn,
    /// It may have been sent before, though nothing is on record of it.
    pub suspect: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerNew {
    pub event: Key,
    pub content: Key,
    pub rule: usize,
    pub tenant: Box<str>,
    pub account: Box<str>,
    pub metric: Box<str>,
    /// A decimal number in plain digits.
    pub quantity: Box<str>,
    pub at_ms: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedNew {
    /// Index of the input.
    pub input: usize,
    pub quarantine: bool,
    pub reason: ParkReason,
    /// For a person: what is wrong and where. Holds no values of the event.
    pub detail: String,
    /// The fingerprint on record, where the id was known.
    pub known_fingerprint: Option<Fingerprint>,
    /// The entity whose later events wait until it is closed, and its version.
    pub holds: Option<(Key, i64)>,
}

/// The event's bytes are still needed to render an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadNew {
    pub input: usize,
    pub event: Key,
    /// Of a stale event: from and to the state in which its entity stands.
    pub moved: Option<Moved>,
}
