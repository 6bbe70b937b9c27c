//! What a story produced, and what must become of it. Kept by the story, not by the program.

use std::collections::{BTreeMap, BTreeSet};

/// What a record must end as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The first copy is applied, the others are repeats of it.
    Applied,
    /// The first copy comes after a newer version: remembered, without a transition.
    Stale,
    /// Two versions race over two partitions: either.
    AppliedOrStale,
    /// It waits behind a parked record of its entity, at the end as well.
    Deferred,
    /// The connector does not want it.
    Ignored,
    /// Set aside for this reason, in the dead letters or in the quarantine.
    Parked(&'static str),
}

/// One record of the topic.
#[derive(Clone, Debug)]
pub struct Sent {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    /// The business id; `None` for a record that has none.
    pub id: Option<String>,
    pub fate: Fate,
    /// The entity and its version, where it has them.
    pub entity: Option<(String, i64)>,
}

/// What an owed effect must end as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Done, and applied once at the provider.
    Done,
    /// Done, or held for a person: at most once at the provider.
    DoneOrHeld,
    /// Held for a person: at most once at the provider.
    Held,
    /// Declared done by a person: at most once at the provider.
    Assumed,
    /// Refused by the provider: never applied.
    Rejected,
    /// Not to be done, since what it comes after was not: never applied.
    Skipped,
    /// Skipped by a person after it may have been applied: at most once at the provider.
    Unwanted,
    /// Done, and paid for twice: a person, or the file, had it done again without knowing how the first ended.
    Again,
    /// Done, and done once more as a new generation that a person asked for.
    Twice,
    /// Waits behind one that is held: never applied so far.
    Blocked,
}

/// An effect that is owed: the name in the connector file, and a text that stands in its requests and
/// in its event's id, and in no others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owed {
    pub effect: String,
    pub mark: String,
}

/// The story's own books.
#[derive(Debug)]
pub struct Ledger {
    pub sent: Vec<Sent>,
    /// Since when the topic is the one that it is, by the database's clock.
    pub since: String,
    pub owed: BTreeMap<Owed, Ending>,
    /// Changes made by a person through the command line.
    pub overrides: u64,
}

impl Default for Ledger {
    fn default() -> Self {
        let (sent, since, owed) = (Vec::new(), "-infinity".to_owned(), BTreeMap::new());
        Self { sent, since, owed, overrides: 0 }
    }
}

/// Whether its first copy is remembered under its id.
const fn is_known(fate: Fate) -> bool {
    matches!(fate, Fate::Applied | Fate::Stale | Fate::AppliedOrStale | Fate::Deferred)
}

impl Ledger {
    /// Where copies of each business id lie.
    pub fn copies(&self) -> BTreeMap<&str, Vec<&Sent>> {
        let mut copies: BTreeMap<&str, Vec<&Sent>> = BTreeMap::new();
        for sent in &self.sent {
            if let (Some(id), true) = (&sent.id, is_known(sent.fate)) {
                copies.entry(id).or_default().push(sent);
            }
        }
        copies
    }

    /// The highest version of each entity that was to be applied.
    pub fn highest(&self) -> BTreeMap<&str, i64> {
        let mut highest = BTreeMap::new();
        for sent in &self.sent {
            if let (Some((entity, version)), Fate::Applied | Fate::AppliedOrStale) =
                (&sent.entity, sent.fate)
            {
                let known = highest.entry(entity.as_str()).or_insert(*version);
                *known = (*known).max(*version);
            }
        }
        highest
    }

    /// Topics with the partitions that records went to.
    pub fn topics(&self) -> BTreeSet<&str> {
        self.sent.iter().map(|sent| sent.topic.as_str()).collect()
    }
}
