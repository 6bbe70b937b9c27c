//! Progress: which offsets of one assigned partition are finished.
//!
//! Reads: the records that were delivered and the proofs that they are finished. Gives: the position
//! below which everything is finished, with the witness of the record before it. Offsets may jump
//! (transaction markers, compaction), so it counts what was delivered and never adds one by itself.
//! A tracker lives for one assignment; proofs of an earlier one do not fit it.

use std::collections::VecDeque;

use xxhash_rust::xxh3::Xxh3;

use crate::key::Key;

/// What a position's predecessor looked like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Witness {
    pub offset: i64,
    pub timestamp_ms: Option<i64>,
    pub hash: Key,
}

impl Witness {
    /// The hash (XXH3, 128 bits) tells records apart; it guards against accidents, not forgers.
    pub fn of(
        offset: i64,
        timestamp_ms: Option<i64>,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Self {
        let mut hasher = Xxh3::new();
        for part in [key, value] {
            let length = part.map_or(-1, |bytes| i64::try_from(bytes.len()).unwrap_or(i64::MAX));
            hasher.update(&length.to_be_bytes());
            hasher.update(part.unwrap_or_default());
        }
        Self { offset, timestamp_ms, hash: Key::from_bytes(hasher.digest128().to_be_bytes()) }
    }
}

/// Proof that nothing of the record at this offset holds it back any more.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an offset moves only with proof"]
pub struct Finished(i64);

impl Finished {
    /// The record left nothing open: it was ignored, parked, a duplicate of something final, or
    /// owed no effect.
    pub const fn without_effects(offset: i64) -> Self {
        Self(offset)
    }

    /// The record has waited for its open effects for as long as its connector says. They stay in
    /// the ledger and are swept from there.
    pub const fn waited_enough(offset: i64) -> Self {
        Self(offset)
    }

    /// `None` while any of the record's effects still holds its offset back.
    pub fn when(offset: i64, effects: &[Hold]) -> Option<Self> {
        effects.iter().all(|hold| *hold == Hold::LetsGo).then_some(Self(offset))
    }
}

/// Whether one effect holds its record's offset back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Final, held, waiting behind a held one, or open for longer than `offset_wait`.
    LetsGo,
    Open,
}

/// What a delivery is to the tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    New,
    /// The same offset once more: it has its slot already.
    Again,
    /// Below what is finished: nothing is to be done for it.
    Finished,
}

/// Tracks one assignment of one partition.
#[derive(Debug)]
pub struct Tracker {
    position: i64,
    witness: Option<Witness>,
    /// Delivered and not yet passed by the position, in rising order of offsets.
    slots: VecDeque<Slot>,
    /// How many of them, from the first one on, are surely decided.
    decided: usize,
}

#[derive(Debug)]
struct Slot {
    witness: Witness,
    /// What it came to is durable; its effects may be open.
    decided: bool,
    finished: bool,
}

impl Slot {
    const fn of(witness: Witness) -> Self {
        Self { witness, decided: false, finished: false }
    }
}

impl Tracker {
    /// `position`: the first offset that will be delivered, or a lower one.
    pub const fn new(position: i64, witness: Option<Witness>) -> Self {
        Self { position, witness, slots: VecDeque::new(), decided: 0 }
    }

    /// Takes note of a delivered record. Records of one assignment come in rising order, except
    /// that a client may repeat some.
    pub fn deliver(&mut self, witness: Witness) -> Delivery {
        if witness.offset < self.position {
            return Delivery::Finished;
        }
        match self.slots.back() {
            Some(last) if witness.offset <= last.witness.offset => {
                match self.find(witness.offset) {
                    Ok(_) => Delivery::Again,
                    Err(index) => {
                        self.slots.insert(index, Slot::of(witness));
                        self.decided = self.decided.min(index);
                        Delivery::New
                    }
                }
            }
            Some(_) | None => {
                self.slots.push_back(Slot::of(witness));
                Delivery::New
            }
        }
    }

    /// Marks a record finished. A proof for an offset that was not delivered changes nothing.
    pub fn finish(&mut self, proof: Finished) {
        if let Ok(index) = self.find(proof.0)
            && let Some(slot) = self.slots.get_mut(index)
        {
            (slot.decided, slot.finished) = (true, true);
        }
        while let Some(slot) = self.slots.pop_front_if(|slot| slot.finished) {
            self.position = slot.witness.offset.saturating_add(1);
            self.witness = Some(slot.witness);
            self.decided = self.decided.saturating_sub(1);
        }
    }

    /// Marks a record decided: what it came to is durable, whatever becomes of its effects.
    pub fn decide(&mut self, offset: i64) {
        if let Ok(index) = self.find(offset)
            && let Some(slot) = self.slots.get_mut(index)
        {
            slot.decided = true;
        }
    }

    /// Below it every record is decided, finished or not: never lower than the position.
    pub fn decided(&mut self) -> i64 {
        while self.slots.get(self.decided).is_some_and(|slot| slot.decided) {
            self.decided = self.decided.saturating_add(1);
        }
        match (self.slots.get(self.decided), self.slots.back()) {
            (Some(first), _) => first.witness.offset,
            (None, Some(last)) => last.witness.offset.saturating_add(1),
            (None, None) => self.position,
        }
    }

    /// The lowest unfinished delivered offset, or else the highest finished one plus one.
    pub fn position(&self) -> i64 {
        self.slots.front().map_or(self.position, |slot| slot.witness.offset)
    }

    /// The last record before [`Tracker::position`], if this tracker or its start knew one.
    pub const fn witness(&self) -> Option<Witness> {
        self.witness
    }

    /// The lowest record that is not finished: it holds the position back.
    pub fn oldest(&self) -> Option<Witness> {
        self.slots.front().map(|slot| slot.witness)
    }

    /// Delivered records that are not yet below the position.
    pub fn unfinished(&self) -> usize {
        self.slots.len()
    }

    fn find(&self, offset: i64) -> Result<usize, usize> {
        // Most topics have no gaps: the record lies as far from the first as its offset says.
        let first = self.slots.front().map_or(offset, |slot| slot.witness.offset);
        let guess = usize::try_from(offset.saturating_sub(first)).unwrap_or(usize::MAX);
        if self.slots.get(guess).is_some_and(|slot| slot.witness.offset == offset) {
            return Ok(guess);
        }
        self.slots.binary_search_by_key(&offset, |slot| slot.witness.offset)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    fn witness(offset: i64) -> Witness {
        Witness::of(offset, Some(offset), None, Some(b"x"))
    }

    #[test]
    fn b5_nothing_finished_keeps_the_position() {
        let mut tracker = Tracker::new(0, None);
        (0..10).for_each(|offset| assert_eq!(tracker.deliver(witness(offset)), Delivery::New));
        assert_eq!(tracker.position(), 0);
    }

    #[test]
    fn b7_k6_the_same_offset_twice_is_one_slot() {
        let mut tracker = Tracker::new(5, None);
        let seen = [5, 5, 6].map(|offset| tracker.deliver(witness(offset)));
        assert_eq!(seen, [Delivery::New, Delivery::Again, Delivery::New]);
        tracker.finish(Finished::without_effects(5));
        assert_eq!(tracker.position(), 6);
        assert_eq!(tracker.deliver(witness(5)), Delivery::Finished);
    }

    #[test]
    fn b9_a_quick_success_does_not_hide_a_slow_failure() {
        let mut tracker = Tracker::new(0, None);
        assert!((0..2).all(|offset| tracker.deliver(witness(offset)) == Delivery::New));
        tracker.finish(Finished::without_effects(1));
        assert_eq!(tracker.position(), 0);
    }

    #[test]
    fn k16_offsets_jump_over_transaction_markers() {
        let mut tracker = Tracker::new(0, None);
        assert!([0, 3].into_iter().all(|offset| tracker.deliver(witness(offset)) == Delivery::New));
        tracker.finish(Finished::without_effects(0));
        assert_eq!(tracker.position(), 3);
        tracker.finish(Finished::without_effects(3));
        assert_eq!(tracker.position(), 4);
        assert_eq!(tracker.witness(), Some(witness(3)));
    }

    #[test]
    fn an_open_effect_gives_no_proof() {
        assert_eq!(Finished::when(7, &[Hold::LetsGo, Hold::Open]), None);
        assert_eq!(Finished::when(7, &[Hold::LetsGo]), Some(Finished(7)));
    }

    proptest! {
        /// I4 against a set: the position never passes an unfinished delivered offset.
        #[test]
        fn the_position_is_the_lowest_unfinished_delivered_offset(
            steps in prop::collection::vec((any::<bool>(), 0_i64..40), 1..200)
        ) {
            let mut tracker = Tracker::new(0, None);
            let mut open = BTreeSet::new();
            let mut top = 0;
            let mut finished = BTreeSet::new();
            for (deliver, offset) in steps {
                if deliver {
                    let delivery = tracker.deliver(witness(offset));
                    if offset >= top && !finished.contains(&offset) && !open.contains(&offset) {
                        prop_assert_eq!(delivery, Delivery::New);
                        open.insert(offset);
                    } else {
                        prop_assert_ne!(delivery, Delivery::New);
                    }
                } else if open.remove(&offset) {
                    finished.insert(offset);
                    tracker.finish(Finished::without_effects(offset));
                    let floor = open.first().copied();
                    top = finished.iter().rev().find(|o| floor.is_none_or(|f| **o < f))
                        .map_or(top, |o| top.max(*o + 1));
                }
                prop_assert_eq!(tracker.position(), open.first().copied().unwrap_or(top));
            }
        }

        /// Against sets: below what is decided nothing is undecided, and whatever finishes is decided.
        #[test]
        fn what_is_decided_ends_at_the_lowest_undecided_offset(
            steps in prop::collection::vec((0..3_u8, 0_i64..30), 1..200)
        ) {
            let mut tracker = Tracker::new(0, None);
            let (mut undecided, mut open) = (BTreeSet::new(), BTreeSet::new());
            for (step, offset) in steps {
                match step {
                    0 => {
                        if tracker.deliver(witness(offset)) == Delivery::New {
                            undecided.insert(offset);
                            open.insert(offset);
                        }
                    }
                    1 => {
                        tracker.decide(offset);
                        undecided.remove(&offset);
                    }
                    _ => {
                        if open.remove(&offset) {
                            undecided.remove(&offset);
                            tracker.finish(Finished::without_effects(offset));
                        }
                    }
                }
                let (decided, position) = (tracker.decided(), tracker.position());
                prop_assert!(decided >= position);
                let last = open.last().map_or(position, |last| position.max(last + 1));
                let top = tracker.slots.back().map_or(last, |slot| slot.witness.offset + 1);
                prop_assert_eq!(decided, undecided.first().copied().unwrap_or(top));
            }
        }
    }
}
