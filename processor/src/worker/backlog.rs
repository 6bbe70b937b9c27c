//! How much a connector owes: past a bound no new events are decided until its calls have caught up.
//!
//! An outage of a provider is none of the events' fault: none becomes a dead letter, and offsets go on after
//! `offset_wait`. What would grow without end is the ledger of open effects. So the sweeper counts them, and
//! the pipeline takes nothing new while they are too many; Kafka keeps the rest. Repeats wait with the others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Shortest and longest time between two counts.
const LOOK_LEAST: Duration = Duration::from_secs(1);
const LOOK_MOST: Duration = Duration::from_secs(15);
/// Effects that all processes together may come to owe in a second.
const OWED_PER_S: u64 = 50_000;
/// Counting takes a tenth of the time at most.
const TIMES_IDLE: u32 = 10;

/// Whether the pipeline may take more.
#[derive(Debug)]
pub(super) struct Backlog {
    max: u64,
    is_full: AtomicBool,
}

/// What a count has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Full,
    Free,
}

impl Backlog {
    /// For at most `max` open effects.
    pub(super) const fn new(max: u64) -> Self {
        Self { max, is_full: AtomicBool::new(false) }
    }

    pub(super) const fn max(&self) -> u64 {
        self.max
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// So many are `open` now. It is free again a tenth below the bound, so that it does not flutter.
    pub(super) fn counted(&self, open: u64) -> Option<Turn> {
        let is_full = self.is_full();
        let free_at = self.max.saturating_sub(self.max.div_ceil(10));
        let full = if is_full { open > free_at } else { open >= self.max };
        self.is_full.store(full, Ordering::Relaxed);
        match (is_full, full) {
            (false, true) => Some(Turn::Full),
            (true, false) => Some(Turn::Free),
            (true, true) | (false, false) => None,
        }
    }

    /// When to count again, after a count that found `open` and took so long: well before the bound can be
    /// reached, and soon while it is.
    pub(super) fn next_look(&self, open: u64, took: Duration) -> Duration {
        let room_s = self.max.saturating_sub(open).checked_div(OWED_PER_S).unwrap_or(0);
        let soon = Duration::from_secs(room_s).clamp(LOOK_LEAST, LOOK_MOST);
        soon.max(took.saturating_mul(TIMES_IDLE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_full_at_the_bound_and_free_a_tenth_below() {
        let backlog = Backlog::new(1_000);
        let turns = [0, 999, 1_000, 1_200, 999, 901, 900, 999, 1_000];
        let turns = turns.map(|open| backlog.counted(open));
        let (full, free) = (Some(Turn::Full), Some(Turn::Free));
        assert_eq!(turns, [None, None, full, None, None, None, free, None, full]);
        // The least that can be set.
        let backlog = Backlog::new(1);
        assert_eq!([0, 1, 1, 0].map(|open| backlog.counted(open)), [None, full, None, free]);
    }

    #[test]
    fn a_count_comes_before_the_bound_can_be_reached_and_never_costs_much() {
        let backlog = Backlog::new(1_000_000);
        let next =
            |open, took_ms| backlog.next_look(open, Duration::from_millis(took_ms)).as_secs();
        assert_eq!([next(0, 1), next(500_000, 1), next(900_000, 1)], [15, 10, 2]);
        assert_eq!([next(999_999, 1), next(2_000_000, 1), next(900_000, 700)], [1, 1, 7]);
    }
}
