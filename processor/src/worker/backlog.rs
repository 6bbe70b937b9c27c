//! How much a connector owes: past a bound no new events are decided until its calls have caught up.
//!
//! An outage of a provider is none of the events' fault: none becomes a dead letter, and offsets go on after
//! `offset_wait`. What would grow without end is the ledger of open effects. So the sweeper counts them, and
//! the pipeline takes nothing new while they are too many; Kafka keeps the rest. Repeats wait with the others.
//!
//! Held ones are not counted: they wait for a person. But calls that come to be held while a provider is away
//! are no room for more of their kind, so while a circuit is open the intake goes on only when nothing is due
//! that could close it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::telemetry::Lasting;

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
    /// What the log says while it is full.
    full: Lasting,
}

/// What a count has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Full,
    /// For so long it has been; said now and then.
    StillFull(Duration),
    Free,
}

impl Backlog {
    /// For at most `max` open effects.
    pub(super) fn new(max: u64) -> Self {
        Self { max, is_full: AtomicBool::new(false), full: Lasting::default() }
    }

    pub(super) const fn max(&self) -> u64 {
        self.max
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// So many are `open` now. It is free again a tenth below the bound, so that it does not flutter; and with
    /// a circuit that is `off`, not before nothing is left that a call could be made for.
    pub(super) fn counted(&self, open: u64, off: bool) -> Option<Turn> {
        let is_full = self.is_full();
        let tenth_below = self.max.saturating_sub(self.max.div_ceil(10));
        let free_at = if off { 0 } else { tenth_below };
        let full = if is_full { open > free_at } else { open >= self.max };
        self.is_full.store(full, Ordering::Relaxed);
        let lasted = if full { self.full.on() } else { self.full.off() };
        match (is_full, full) {
            (false, true) => Some(Turn::Full),
            (true, true) => lasted.map(Turn::StillFull),
            (true, false) => Some(Turn::Free),
            (false, false) => None,
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
        let turns = turns.map(|open| backlog.counted(open, false));
        let (full, free) = (Some(Turn::Full), Some(Turn::Free));
        assert_eq!(turns, [None, None, full, None, None, None, free, None, full]);
        // The least that can be set.
        let backlog = Backlog::new(1);
        let turns = [0, 1, 1, 0].map(|open| backlog.counted(open, false));
        assert_eq!(turns, [None, full, None, free]);
    }

    #[test]
    fn r31_what_comes_to_be_held_in_an_outage_is_no_room_for_more() {
        let backlog = Backlog::new(100);
        assert_eq!(backlog.counted(100, true), Some(Turn::Full));
        assert_eq!([60, 1].map(|open| backlog.counted(open, true)), [None, None]);
        assert_eq!(backlog.counted(60, false), Some(Turn::Free), "the provider answers again");
        // All that was tried is held: only a new event can find out whether it answers.
        assert_eq!(backlog.counted(100, true), Some(Turn::Full));
        assert_eq!(backlog.counted(0, true), Some(Turn::Free));
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
