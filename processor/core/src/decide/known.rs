//! What the database knows of a batch's events before it is decided.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::plan::Ending;
use crate::effect::order::OpenEffect;
use crate::effect::status::Status;
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
    /// Ledger lines that turned out to exist already, with the hash of their content.
    pub ledger: BTreeMap<Key, Key>,
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
