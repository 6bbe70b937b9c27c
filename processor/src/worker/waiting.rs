//! Records whose offsets wait for effects.
//!
//! A record waits for each of its open effects, and for `offset_wait` at most. Pure bookkeeping:
//! moments come in as arguments.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

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
    /// The last record whose effects were asked for.
    asked: Option<At>,
}

#[derive(Debug)]
struct Record {
    /// Sorted; most records have one or two.
    open: Vec<Key>,
    since: Moment,
    deadline: Option<Moment>,
}

impl Waiting {
    /// Notes that a record waits from now on. `deadline`: when it is let go whatever happens; `None`: never.
    pub(super) fn add(
        &mut self,
        at: At,
        mut open: Vec<Key>,
        since: Moment,
        deadline: Option<Moment>,
    ) {
        // One that is read again under the same assignment waits once.
        self.remove(at);
        open.sort_unstable();
        open.dedup();
        for key in &open {
            self.by_effect.entry(*key).or_default().push(at);
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, at));
        }
        self.records.insert(at, Record { open, since, deadline });
    }

    /// An effect holds nothing back any more; gives the records that wait for nothing else.
    pub(super) fn let_go(&mut self, key: Key) -> Vec<(AssignmentId, Finished)> {
        let waiting = self.by_effect.remove(&key).unwrap_or_default();
        let mut gone = Vec::new();
        for at in waiting {
            let Some(record) = self.records.get_mut(&at) else { continue };
            record.open.retain(|other| *other != key);
            let holds = vec![Hold::Open; record.open.len()];
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

    /// Up to `limit` effects, give or take one record's, that records have waited for since before
    /// `before`: what is young is most likely in this process's own hands. Each time begins behind
    /// the last record that was asked for, so that none is passed over for those that wait longest.
    pub(super) fn open(&mut self, limit: usize, before: Moment) -> Vec<Key> {
        let mut keys = BTreeSet::new();
        let last = self.asked;
        let behind = last.map_or(Bound::Unbounded, Bound::Excluded);
        let records = self.records.range((behind, Bound::Unbounded));
        let from_the_start = last.map(|last| self.records.range(..=last));
        for (at, record) in records.chain(from_the_start.into_iter().flatten()) {
            if keys.len() >= limit {
                break;
            }
            self.asked = Some(*at);
            if record.since < before {
                keys.extend(record.open.iter().copied());
            }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock;

    fn key(n: u64) -> Key {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&n.to_be_bytes());
        Key::from_bytes(bytes)
    }

    #[test]
    fn every_open_effect_is_asked_for_however_many_wait_for_ever_before_it() {
        let mut waiting = Waiting::default();
        let [oldest, second, youngest] = [(); 3].map(|()| AssignmentId::fresh());
        let long_ago = clock::now();
        let soon = long_ago.checked_add(Duration::from_secs(1)).unwrap();
        let later = long_ago.checked_add(Duration::from_secs(9)).unwrap();
        // The oldest assignment has a thousand records that nobody will ever let go.
        let stuck: Vec<u64> = (0..1_000).collect();
        for (number, offset) in stuck.iter().zip(0..) {
            waiting.add((oldest, offset), vec![key(*number)], long_ago, None);
        }
        for number in 1_000..1_030 {
            let at = (second, i64::try_from(number).unwrap());
            waiting.add(at, vec![key(number), key(number + 5_000)], long_ago, None);
        }
        waiting.add((youngest, 0), vec![key(9_000)], later, None);
        let mut asked = BTreeSet::new();
        for _ in 0..11 {
            let some = waiting.open(100, soon);
            assert!((1..=101).contains(&some.len()), "{}", some.len());
            asked.extend(some);
        }
        assert_eq!(asked.len(), 1_060, "all but the one that has not waited yet");
        // What is asked for and goes meanwhile leaves no gap.
        waiting.forget(oldest);
        let left: BTreeSet<Key> = waiting.open(100, soon).into_iter().collect();
        assert_eq!(left.len(), 60);
        assert_eq!(waiting.open(100, soon).len(), 60, "a short list is asked for whole each time");
        waiting.forget(second);
        assert_eq!(waiting.open(100, soon), Vec::new());
    }
}
