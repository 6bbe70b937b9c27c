//! Positions as a second model: two assignments of one partition, the tracker of the core, a rewind, and a
//! failover to a database that lacks what was written since some moment.
//!
//! "Everything below is finished" is a fact, whoever writes it, until something lowers the position: then
//! the epoch tells old facts from new ones.

use std::collections::BTreeSet;

use oncely_core::progress::{Delivery, Finished, Tracker, Witness};
use stateright::{Checker, Model, Property};

const RECORDS: i64 = 3;
const BEHIND_IS_FINISHED: &str = "everything below the position is finished";

#[derive(Clone, Debug)]
struct Positions {
    epoch_is_named: bool,
    position_only_rises: bool,
    /// A failover leaves out epochs that may be lost.
    epochs_are_skipped: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    position: i64,
    epoch: u8,
    /// Durable, in this epoch.
    finished: BTreeSet<i64>,
    assigned: [Option<Assigned>; 2],
    rewinds: u8,
    assignments: u8,
    /// What a standby has: position, epoch, what is finished.
    standby: Option<(i64, u8, BTreeSet<i64>)>,
    failovers: u8,
}

/// An assignment, as the history that its tracker is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Assigned {
    start: i64,
    epoch: u8,
    delivered: i64,
    finished: BTreeSet<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Move {
    /// Whether or not the other one has noticed that it lost the partition.
    Assign(usize),
    Deliver(usize),
    Finish(usize, i64),
    Save(usize),
    Rewind,
    /// The standby receives nothing from now on.
    FallBehind,
    /// The standby takes over.
    FailOver,
}

impl Assigned {
    fn position(&self) -> i64 {
        let mut tracker = Tracker::new(self.start, None);
        for offset in self.start..self.delivered {
            assert_eq!(tracker.deliver(Witness::of(offset, None, None, None)), Delivery::New);
        }
        self.finished.iter().for_each(|offset| tracker.finish(Finished::without_effects(*offset)));
        tracker.position()
    }
}

impl Model for Positions {
    type State = State;
    type Action = Move;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            position: 0,
            epoch: 0,
            finished: BTreeSet::new(),
            assigned: [None, None],
            rewinds: 1,
            assignments: 3,
            standby: None,
            failovers: 1,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Move>) {
        actions.extend([Move::Rewind, Move::FallBehind, Move::FailOver]);
        for (p, assigned) in state.assigned.iter().enumerate() {
            actions.extend([Move::Assign(p), Move::Deliver(p), Move::Save(p)]);
            let delivered = assigned.iter().flat_map(|one| one.start..one.delivered);
            actions.extend(delivered.map(|offset| Move::Finish(p, offset)));
        }
    }

    fn next_state(&self, before: &State, step: Move) -> Option<State> {
        let mut state = before.clone();
        match step {
            Move::Assign(p) => {
                state.assignments = state.assignments.checked_sub(1)?;
                let (start, epoch) = (state.position, state.epoch);
                let finished = BTreeSet::new();
                state.assigned[p] = Some(Assigned { start, epoch, delivered: start, finished });
            }
            Move::Deliver(p) => {
                let assigned = state.assigned[p].as_mut()?;
                (assigned.delivered < RECORDS).then_some(())?;
                assigned.delivered += 1;
            }
            Move::Finish(p, offset) => {
                state.assigned[p].as_mut()?.finished.insert(offset).then_some(())?;
                state.finished.insert(offset);
            }
            Move::Save(p) => {
                let assigned = state.assigned[p].as_ref()?;
                let named = !self.epoch_is_named || assigned.epoch == state.epoch;
                let position = assigned.position();
                let raises = position > state.position || !self.position_only_rises;
                (named && raises).then_some(())?;
                state.position = position;
            }
            Move::Rewind => {
                state.rewinds = state.rewinds.checked_sub(1)?;
                state.position = 0;
                state.epoch += 1;
                state.finished.clear();
            }
            Move::FallBehind => {
                (state.standby.is_none() && state.failovers > 0).then_some(())?;
                state.standby = Some((state.position, state.epoch, state.finished.clone()));
            }
            Move::FailOver => {
                let (position, epoch, finished) = state.standby.take()?;
                state.failovers -= 1;
                let skipped = if self.epochs_are_skipped { 10 } else { 1 };
                (state.position, state.finished) = (position, finished);
                state.epoch = epoch + skipped;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(BEHIND_IS_FINISHED, |_, state: &State| {
                (0..state.position).all(|offset| state.finished.contains(&offset))
            }),
            Property::always("nobody is given what is finished", |_, state: &State| {
                let current = state.assigned.iter().flatten();
                let of_now = current.filter(|one| one.epoch == state.epoch);
                of_now.into_iter().all(|one| one.start <= state.position)
            }),
            Property::sometimes("all is finished", |_, state: &State| state.position == RECORDS),
        ]
    }
}

#[test]
fn a_position_never_passes_what_is_not_finished() {
    let positions =
        Positions { epoch_is_named: true, position_only_rises: true, epochs_are_skipped: true };
    positions.checker().spawn_bfs().join().assert_properties();
}

#[test]
fn an_old_tracker_that_does_not_name_its_epoch_undoes_a_rewind() {
    let positions =
        Positions { epoch_is_named: false, position_only_rises: true, epochs_are_skipped: true };
    let checker = positions.checker().spawn_bfs().join();
    assert!(checker.discovery(BEHIND_IS_FINISHED).is_some());
}

#[test]
fn a_position_that_may_fall_gives_out_again_what_is_finished() {
    let positions =
        Positions { epoch_is_named: true, position_only_rises: false, epochs_are_skipped: true };
    let checker = positions.checker().spawn_bfs().join();
    assert!(checker.discovery("nobody is given what is finished").is_some());
}

#[test]
fn w10_an_epoch_that_is_given_out_twice_lets_what_is_lost_count() {
    let positions =
        Positions { epoch_is_named: true, position_only_rises: true, epochs_are_skipped: false };
    let checker = positions.checker().spawn_bfs().join();
    assert!(checker.discovery(BEHIND_IS_FINISHED).is_some());
}
