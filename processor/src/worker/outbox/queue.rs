//! Records in memory: those of one sequence in order, one of them in flight.
//!
//! Pure: knows neither the database nor Kafka.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use oncely_core::key::Key;

use crate::store::outbox::Waiting;

/// Records of one sequence in memory from which on no more are read.
const SEQUENCE_FULL: usize = 16;

/// What a relay has read and not put on record yet.
#[derive(Debug, Default)]
pub(super) struct Queue {
    sequences: BTreeMap<Key, Sequence>,
    /// Sequences whose next record may go.
    free: VecDeque<Key>,
    /// Rows by id, with their slice, until their end is on record.
    known: BTreeMap<i64, i16>,
    /// With slice and sequence.
    in_flight: BTreeMap<i64, (i16, Key)>,
    /// Over, and not on record yet.
    over: BTreeMap<i64, i16>,
    /// Refused for their size, perhaps for that of the batch in which they went: tried alone.
    suspects: VecDeque<Waiting>,
    suspected: BTreeSet<i64>,
}

#[derive(Debug, Default)]
struct Sequence {
    rows: VecDeque<Waiting>,
    busy: bool,
    /// A record of it is refused: nothing goes until that is on record.
    refused: bool,
}

impl Queue {
    /// Takes rows in; those that are known already are left out.
    pub(super) fn add(&mut self, rows: Vec<Waiting>) {
        for row in rows {
            if self.known.contains_key(&row.id) {
                continue;
            }
            self.known.insert(row.id, row.slice);
            let key = row.sequence;
            let sequence = self.sequences.entry(key).or_default();
            let at = sequence.rows.partition_point(|other| other.id < row.id);
            sequence.rows.insert(at, row);
            if !sequence.busy && !sequence.refused && sequence.rows.len() == 1 {
                self.free.push_back(key);
            }
        }
    }

    /// The next record that may go, and is in flight from now on.
    pub(super) fn next(&mut self) -> Option<Waiting> {
        if let Some(suspect) = self.suspects.front() {
            if !self.in_flight.is_empty() {
                return None;
            }
            self.in_flight.insert(suspect.id, (suspect.slice, suspect.sequence));
            return self.suspects.pop_front();
        }
        if !self.suspected.is_empty() {
            // One of them is on its way, alone.
            return None;
        }
        while let Some(key) = self.free.pop_front() {
            let Some(sequence) = self.sequences.get_mut(&key) else { continue };
            if sequence.busy || sequence.refused {
                continue;
            }
            if let Some(row) = sequence.rows.pop_front() {
                sequence.busy = true;
                self.in_flight.insert(row.id, (row.slice, row.sequence));
                return Some(row);
            }
        }
        None
    }

    /// The brokers have it; the next of its sequence may go. The row stays known until that is on record.
    pub(super) fn sent(&mut self, row: &Waiting) {
        self.landed(row);
        self.over.insert(row.id, row.slice);
        self.freed(row.sequence);
    }

    /// It may go later, before all others of its sequence.
    pub(super) fn failed(&mut self, row: Waiting) {
        self.landed(&row);
        let key = row.sequence;
        self.sequences.entry(key).or_default().rows.push_front(row);
        self.freed(key);
    }

    /// It is another relay's by now.
    pub(super) fn lost(&mut self, row: &Waiting) {
        self.landed(row);
        self.known.remove(&row.id);
        self.freed(row.sequence);
    }

    /// Refused for its size. `true`: it is tried once more, alone.
    pub(super) fn suspect(&mut self, row: &Waiting) -> bool {
        if self.suspected.contains(&row.id) {
            return false;
        }
        self.in_flight.remove(&row.id);
        self.suspected.insert(row.id);
        self.suspects.push_back(row.clone());
        true
    }

    /// It is refused for good: its sequence stands still until that is on record.
    pub(super) fn refused(&mut self, row: &Waiting) {
        self.landed(row);
        self.over.insert(row.id, row.slice);
        let sequence = self.sequences.entry(row.sequence).or_default();
        sequence.busy = false;
        sequence.refused = true;
        for other in std::mem::take(&mut sequence.rows) {
            self.known.remove(&other.id);
        }
    }

    /// Its end is on record.
    pub(super) fn settled(&mut self, row: &Waiting) {
        self.known.remove(&row.id);
        self.over.remove(&row.id);
        if let Some(sequence) = self.sequences.get_mut(&row.sequence) {
            sequence.refused = false;
        }
        self.forget_empty(row.sequence);
    }

    /// What is not in flight is another relay's from now on.
    pub(super) fn forget_slices(&mut self, slices: &BTreeSet<i16>) {
        let goes = |row: &Waiting| slices.contains(&row.slice);
        let keys: Vec<Key> = self.sequences.keys().copied().collect();
        for key in keys {
            if let Some(sequence) = self.sequences.get_mut(&key)
                && sequence.rows.iter().any(goes)
            {
                for row in std::mem::take(&mut sequence.rows) {
                    self.known.remove(&row.id);
                }
            }
            self.forget_empty(key);
        }
    }

    /// Forgets everything that is neither in flight nor over. The sequence of what is in flight goes on
    /// when that has ended.
    pub(super) fn clear(&mut self) {
        let (in_flight, over) =
            (std::mem::take(&mut self.in_flight), std::mem::take(&mut self.over));
        let busy = || Sequence { busy: true, ..Sequence::default() };
        let flying = in_flight.iter().map(|(id, (slice, _))| (*id, *slice));
        *self = Self {
            sequences: in_flight.values().map(|(_, sequence)| (*sequence, busy())).collect(),
            known: flying.chain(over.iter().map(|(id, slice)| (*id, *slice))).collect(),
            in_flight,
            over,
            ..Self::default()
        };
    }

    /// Slices of which something is in flight, or not on record yet.
    pub(super) fn busy_slices(&self) -> BTreeSet<i16> {
        let flying = self.in_flight.values().map(|(slice, _)| *slice);
        flying.chain(self.over.values().copied()).collect()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn known(&self) -> Vec<i64> {
        self.known.keys().copied().collect()
    }

    /// Sequences of which no more is to be read.
    pub(super) fn full(&self) -> Vec<Key> {
        let full = |(key, sequence): (&Key, &Sequence)| {
            (sequence.refused || sequence.rows.len() >= SEQUENCE_FULL).then_some(*key)
        };
        self.sequences.iter().filter_map(full).collect()
    }

    fn landed(&mut self, row: &Waiting) {
        self.in_flight.remove(&row.id);
        self.suspected.remove(&row.id);
    }

    fn freed(&mut self, key: Key) {
        if let Some(sequence) = self.sequences.get_mut(&key) {
            sequence.busy = false;
            if !sequence.rows.is_empty() {
                self.free.push_back(key);
            }
        }
        self.forget_empty(key);
    }

    fn forget_empty(&mut self, key: Key) {
        let empty =
            |sequence: &Sequence| sequence.rows.is_empty() && !sequence.busy && !sequence.refused;
        if self.sequences.get(&key).is_some_and(empty) {
            self.sequences.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::outbox::What;

    fn row(id: i64, sequence: u8) -> Waiting {
        Waiting {
            id,
            message: Key::from_bytes([u8::try_from(id).unwrap(); 16]),
            sequence: Key::from_bytes([sequence; 16]),
            slice: i16::from(sequence),
            topic: "t".to_owned(),
            what: What::Gone(id),
            is_pointer: false,
        }
    }

    fn next(queue: &mut Queue) -> Vec<i64> {
        std::iter::from_fn(|| queue.next()).map(|row| row.id).collect()
    }

    #[test]
    fn h4_one_of_a_sequence_is_in_flight_and_the_next_follows_it() {
        let mut queue = Queue::default();
        queue.add(vec![row(1, 1), row(2, 1), row(3, 2)]);
        assert_eq!(next(&mut queue), [1, 3]);
        queue.add(vec![row(2, 1), row(5, 1), row(4, 1)]);
        queue.failed(row(1, 1));
        assert_eq!(next(&mut queue), [1]);
        queue.sent(&row(1, 1));
        assert_eq!(next(&mut queue), [2]);
        queue.sent(&row(2, 1));
        assert_eq!(next(&mut queue), [4]);
        // What is not on record is not read again.
        assert_eq!(queue.known(), [1, 2, 3, 4, 5]);
        for id in [1, 2] {
            queue.settled(&row(id, 1));
        }
        assert_eq!(queue.len(), 3);
    }

    #[test]
    fn h4_a_refused_head_holds_its_own_sequence_only() {
        let mut queue = Queue::default();
        queue.add(vec![row(1, 1), row(2, 1), row(3, 2)]);
        assert_eq!(next(&mut queue), [1, 3]);
        queue.refused(&row(1, 1));
        queue.sent(&row(3, 2));
        assert_eq!(next(&mut queue), Vec::<i64>::new());
        assert_eq!(queue.full(), [Key::from_bytes([1; 16])], "nothing of it is read meanwhile");
        queue.settled(&row(1, 1));
        queue.settled(&row(3, 2));
        assert_eq!((queue.full().len(), queue.len()), (0, 0));
    }

    #[test]
    fn a_record_refused_in_a_batch_is_tried_alone() {
        let mut queue = Queue::default();
        queue.add(vec![row(1, 1), row(2, 2), row(3, 3)]);
        assert_eq!(next(&mut queue), [1, 2, 3]);
        assert!(queue.suspect(&row(1, 1)));
        assert!(queue.suspect(&row(2, 2)));
        assert_eq!(next(&mut queue), Vec::<i64>::new(), "3 is still in flight");
        queue.sent(&row(3, 3));
        assert_eq!(next(&mut queue), [1]);
        assert!(!queue.suspect(&row(1, 1)));
        queue.refused(&row(1, 1));
        assert_eq!(next(&mut queue), [2]);
        queue.sent(&row(2, 2));
        assert_eq!(queue.in_flight(), 0);
    }

    #[test]
    fn what_is_let_go_is_forgotten_and_what_is_in_flight_is_not() {
        let mut queue = Queue::default();
        queue.add(vec![row(1, 1), row(2, 1), row(3, 2)]);
        let first = queue.next().unwrap();
        assert_eq!(queue.busy_slices(), [1].into());
        queue.forget_slices(&[2].into());
        assert_eq!(queue.known(), [1, 2]);
        queue.clear();
        assert_eq!(queue.known(), [1]);
        queue.add(vec![row(1, 1), row(2, 1)]);
        assert_eq!(next(&mut queue), Vec::<i64>::new(), "its sequence goes on when 1 has ended");
        queue.sent(&first);
        assert_eq!(queue.busy_slices(), [1].into(), "it is not on record yet");
        assert_eq!(next(&mut queue), [2]);
        queue.lost(&row(2, 1));
        queue.settled(&first);
        assert_eq!(queue.len(), 0);
    }
}
