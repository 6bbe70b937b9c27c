//! Records whose offsets wait for effects.
//!
//! A record waits for each of its open effects, and for `offset_wait` at most. Pure bookkeeping:
//! moments come in as arguments.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use oncely_core::key::Key;
use oncely_core::progress::{Finished, Hold};

use crate::clock::Moment;
use crate::kafka::AssignmentId;

/// Names a record of a live assignment.
pub(super) type At = (AssignmentId, i64);

#[derive(Debug, Default)]
pub(super) struct Waiting {
    records: BTreeMap<At, Record>,
    by_effect: HashMap<Key, Vec<At>>,
    deadlines: BTreeSet<(Moment, At)>,
}

#[derive(Debug)]
struct Record {
    open: BTreeSet<Key>,
    since: Moment,
    deadline: Option<Moment>,
}

impl Waiting {
    /// Notes that a record waits from now on. `deadline`: when it is let go whatever happens; `None`: never.
    pub(super) fn add(&mut self, at: At, open: Vec<Key>, since: Moment, deadline: Option<Moment>) {
        // One that is read again under the same assignment waits once.
        self.remove(at);
        for key in &open {
            self.by_effect.entry(*key).or_default().push(at);
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, at));
        }
        self.records.insert(at, Record { open: open.into_iter().collect(), since, deadline });
    }

    /// An effect holds nothing back any more; gives the records that wait for nothing else.
    pub(super) fn let_go(&mut self, key: Key) -> Vec<(AssignmentId, Finished)> {
        let waiting = self.by_effect.remove(&key).unwrap_or_default();
        let mut gone = Vec::new();
        for at in waiting {
            let Some(record) = self.records.get_mut(&at) else { continue };
            record.open.remove(&key);
            let holds: Vec<Hold> = record.open.iter().map(|_| Hold::Open).collect();
            let (assignment, offset) = at;
            if let Some(finished) = Finished::when(offset, &holds) {
                self.remove(at);
                gone.push((assignment, finished));
            }
        }
        gone
    }

    /// Gives the records that have waited long enough.
    pub(super) fn expire(&mut self, now: Moment) -> Vec<(AssignmentId, Finished)> {
        let mut gone = Vec::new();
        while let Some((deadline, at)) = self.deadlines.first().copied() {
            if deadline > now {
                break;
            }
            self.remove(at);
            let (assignment, offset) = at;
            gone.push((assignment, Finished::waited_enough(offset)));
        }
        gone
    }

    /// An assignment has ended: its records wait no more, and are not finished either.
    pub(super) fn forget(&mut self, assignment: AssignmentId) {
        let ended: Vec<At> = self
            .records
            .range((assignment, i64::MIN)..=(assignment, i64::MAX))
            .map(|(at, _)| *at)
            .collect();
        for at in ended {
            self.remove(at);
        }
    }

    /// Up to `limit` effects that records have waited for since before `before`, those of the oldest
    /// records first. What is young is most likely in this process's own hands.
    pub(super) fn open(&self, limit: usize, before: Moment) -> Vec<Key> {
        let mut keys = BTreeSet::new();
        for record in self.records.values().filter(|record| record.since < before) {
            if keys.len() >= limit {
                break;
            }
            keys.extend(record.open.iter().copied());
        }
        keys.into_iter().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Records of one assignment that wait.
    pub(super) fn of(&self, assignment: AssignmentId) -> usize {
        self.records.range((assignment, i64::MIN)..=(assignment, i64::MAX)).count()
    }

    fn remove(&mut self, at: At) {
        let Some(record) = self.records.remove(&at) else { return };
        if let Some(deadline) = record.deadline {
            self.deadlines.remove(&(deadline, at));
        }
        for key in record.open {
            let Some(waiting) = self.by_effect.get_mut(&key) else { continue };
            waiting.retain(|other| *other != at);
            if waiting.is_empty() {
                self.by_effect.remove(&key);
            }
        }
    }
}
