//! What the database knows of a batch's events before it is decided.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::plan::Ending;
use crate::effect::order::OpenEffect;
use crate::effect::status::Status;
use crate::event::Event;
use crate::fingerprint::Fingerprint;
use crate::key::Key;

/// Where a record stands; `source` is the number of its topic in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub source: i32,
    pub partition: i32,
    pub offset: i64,
}

/// All of it. Keys that are missing are unknown to the database.
#[derive(Clone, Debug, Default)]
pub struct Known {
    pub inbox: BTreeMap<Key, InboxRow>,
    pub entities: BTreeMap<Key, EntityRow>,
    /// Effects that turned out to exist already, owed by other events.
    pub effects: BTreeMap<Key, EffectRow>,
    /// By lane: effects that are not final, at least all of the lowest version.
    pub open: BTreeMap<Key, Vec<OpenEffect>>,
    /// Lanes of entities that are older than ids are remembered: what is not on record of them may be forgotten.
    pub forgetful: BTreeSet<Key>,
    /// Lanes of entities that lived while another key, or another id, stood in the file for what a rule's effects undo,
    /// with the index of that which is undone: it may be on record under another key than the file makes now.
    pub rekeyed: BTreeSet<(Key, usize)>,
    /// Events that may have been run although nothing is on record of them: the database may have lost it.
    pub suspect: BTreeSet<Key>,
    /// Of these, events whose entity had gone by before anything may have been lost: they were stale then as well.
    pub late: BTreeSet<Key>,
    /// By entity of a suspect event: where the record lies that moved it last, if it was decided as soon as it was read.
    pub set_at: BTreeMap<Key, Place>,
    /// They are parked records that a person wants decided again, and not read again.
    pub redriven: bool,
    /// Ledger lines that turned out to exist already, with the hash of their content.
    pub ledger: BTreeMap<Key, Key>,
    /// By entity: who waits, and for what. Empty for connectors whose events wait for nothing.
    pub waits: BTreeMap<Key, Waits>,
    /// Events that a person wants run although a version before them is missing.
    pub insisted: BTreeSet<Key>,
    /// How many more events may be deferred; `None` where nobody has counted.
    pub room: Option<usize>,
    pub releases: Releases,
}

impl Known {
    /// Whether the event's entity was set by a record that lies before its own in the same partition: that was read
    /// before it the first time as well.
    pub(super) fn is_behind(&self, event: &Event, place: Place) -> bool {
        let at = event.entity.as_ref().and_then(|about| self.set_at.get(&about.key));
        at.is_some_and(|at| {
            (at.source, at.partition) == (place.source, place.partition) && at.offset < place.offset
        })
    }
}

/// What is on record of an entity's order, beside the entity.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// The version up to which its events were decided, where that is beyond the entity's own: by events that
    /// were ignored or parked.
    pub passed: Option<i64>,
    /// Versions that were decided while one before them was missing, and that left it where it is: they are
    /// ignored, parked, or given up by a person.
    pub ahead: BTreeSet<i64>,
    /// Versions of parked events of it that later ones wait for, the lowest of them at least.
    pub parked: BTreeSet<i64>,
    /// Events that wait, lowest version first.
    pub deferred: Vec<DeferredRow>,
}

/// An event that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeferredRow {
    /// `None`: of this batch.
    pub number: Option<i64>,
    pub event: Key,
    pub version: i64,
    /// What it waits for did not come in time.
    pub overdue: bool,
    /// It has no time: it waits for a person.
    pub untimed: bool,
    /// Index among the inputs; `None` where its bytes were not loaded.
    pub input: Option<usize>,
    /// The connector file gives it another identity now.
    pub changed: bool,
}

/// Which deferred events a plan may let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Releases {
    /// Of those on record.
    pub max: usize,
    /// The database refuses what follows from the first of them: it is parked.
    pub refused: bool,
}

impl Default for Releases {
    fn default() -> Self {
        Self { max: usize::MAX, refused: false }
    }
}

#[derive(Clone, Debug)]
pub struct InboxRow {
    pub fingerprint: Fingerprint,
    pub ending: Ending,
    pub effects: Vec<Key>,
    pub first: Place,
    /// Since it was first seen, by the database's clock.
    pub age_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityRow {
    /// The event that set it.
    pub event: Key,
    pub version: i64,
    pub state: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectRow {
    pub status: Status,
    pub request_hash: Key,
}
