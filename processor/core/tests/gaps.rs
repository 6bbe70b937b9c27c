//! Events that wait for a missing version, or behind a parked one: whatever the order in which they arrive, and
//! wherever batches are cut, the end is that of arrival in order.

#![allow(
    clippy::unwrap_used,
    clippy::as_conversions,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a failed test should stop at once"
)]

mod orders;
mod waiting;

use std::collections::BTreeSet;

use oncely_core::connector::{AfterWait, OnGap, OnParked};
use oncely_core::decide::{Ending, ParkReason, Releases, releasable};
use oncely_core::key::Key;
use oncely_core::value::Value;
use proptest::prelude::*;

use self::waiting::{Database, connector, paid, waiting};

fn in_order(count: i64) -> Database {
    let connector = connector(waiting(AfterWait::Apply, Some(1)), OnParked::Apply);
    let mut database = Database::default();
    for version in 1..=count {
        assert_eq!(database.run(&connector, &[paid(version)], false, true), [Ending::Applied]);
    }
    database
}

/// Versions 1 to some bound in any order, some of them twice.
fn arrivals() -> impl Strategy<Value = (i64, Vec<i64>)> {
    (1_i64..9).prop_flat_map(|count| {
        let again = prop::collection::vec(1..=count, 0..4);
        again.prop_flat_map(move |again| {
            let all: Vec<i64> = (1..=count).chain(again).collect();
            (Just(count), Just(all).prop_shuffle())
        })
    })
}

proptest! {
    #[test]
    fn any_order_of_arrival_ends_as_arrival_in_order_does(
        (count, versions) in arrivals(),
        cuts in prop::collection::vec((1_usize..5, any::<bool>()), 1..12),
        slice in prop_oneof![Just(usize::MAX), Just(1_usize), Just(2)],
    ) {
        let connector = connector(waiting(AfterWait::Apply, Some(1)), OnParked::Apply);
        let releases = Releases { max: slice, refused: false };
        let mut database = Database { releases, ..Database::default() };
        let mut rest = &versions[..];
        let mut cuts = cuts.iter().cycle();
        while !rest.is_empty() {
            let (size, crash) = cuts.next().unwrap();
            let (batch, after) = rest.split_at((*size).min(rest.len()));
            let batch: Vec<Value> = batch.iter().copied().map(paid).collect();
            if *crash {
                // Decided, but lost before it was durable; and once more after it was.
                database.run(&connector, &batch, false, false);
            }
            database.run(&connector, &batch, false, true);
            if *crash {
                let owed = database.owed.clone();
                for ending in database.run(&connector, &batch, false, true) {
                    prop_assert_eq!(ending, Ending::Duplicate);
                }
                if slice == usize::MAX {
                    prop_assert_eq!(owed, database.owed.clone());
                }
            }
            rest = after;
        }
        // What one plan could not take, later ones do.
        for _ in 0..count {
            database.run(&connector, &[], false, true);
        }
        let wanted = in_order(count);
        prop_assert!(database.deferred.is_empty());
        prop_assert_eq!(&database.owed, &wanted.owed);
        prop_assert_eq!(database.version(), Some(count));
        prop_assert!(database.endings.values().all(|ending| *ending == Ending::Applied));
    }

    /// Whenever their time comes: nothing is lost, the highest version stands, no effect is owed twice.
    #[test]
    fn whenever_time_runs_out_every_event_ends(
        (count, versions) in arrivals(),
        late in prop::collection::vec(any::<bool>(), 20),
        park in any::<bool>(),
    ) {
        let then = if park { AfterWait::Quarantine } else { AfterWait::Apply };
        let connector = connector(waiting(then, None), OnParked::Apply);
        let mut database = Database::default();
        for (version, late) in versions.iter().zip(&late) {
            database.run(&connector, &[paid(*version)], false, true);
            if *late {
                database.run(&connector, &[], true, true);
            }
        }
        database.run(&connector, &[], true, true);
        prop_assert!(database.deferred.is_empty());
        prop_assert_eq!(database.endings.len(), usize::try_from(count).unwrap());
        let distinct: BTreeSet<&Key> = database.owed.iter().collect();
        prop_assert_eq!(distinct.len(), database.owed.len());
        for ending in database.endings.values() {
            let parked = *ending == Ending::Quarantined;
            prop_assert!(matches!(ending, Ending::Applied | Ending::Stale) || (park && parked));
        }
        if !park {
            prop_assert_eq!(database.version(), Some(count));
        }
    }

    /// Behind a parked version everything waits, and goes in order once a person has closed it.
    #[test]
    fn d15_behind_a_parked_event_the_later_ones_keep_their_order(
        (count, versions) in arrivals(),
        refused in 1_i64..9,
    ) {
        let refused = refused.min(count);
        let connector = connector(OnGap::Apply, OnParked::Wait);
        let mut database = Database::default();
        let kind = |version: i64| if version == refused { "refused" } else { "paid" };
        database.run(&connector, &[orders::value(kind(refused), refused)], false, true);
        prop_assert_eq!(database.holds.len(), 1);
        for version in &versions {
            let value = orders::value(kind(*version), *version);
            let ending = database.run(&connector, &[value], true, true)[0];
            let first = *version > refused && ending != Ending::Duplicate;
            prop_assert_eq!(first, ending == Ending::Deferred, "{} {:?}", version, ending);
        }
        prop_assert!(database.version().is_none_or(|version| version < refused));
        database.holds.clear();
        database.run(&connector, &[], false, true);
        prop_assert!(database.deferred.is_empty());
        if count > refused {
            prop_assert_eq!(database.version(), Some(count));
        }
        let after = database.endings.values().filter(|ending| **ending == Ending::Applied).count();
        prop_assert!(after >= usize::try_from(count - refused).unwrap());
    }
}

#[derive(Clone, Copy, Debug)]
enum Turn {
    Come(usize),
    /// Time is up for whoever has one.
    Late,
    /// A person gives up what holds the entity.
    Close,
    /// And what was parked for a version.
    GiveUp,
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = prop_oneof![
        6 => any::<usize>().prop_map(Turn::Come),
        1 => Just(Turn::Late),
        1 => Just(Turn::Close),
        1 => Just(Turn::GiveUp),
    ];
    prop::collection::vec(turn, 1..40)
}

proptest! {
    /// Gaps, parked versions, late times and a person's words in any order: versions never fall, nothing is owed
    /// twice, and in the end nobody waits.
    #[test]
    fn whatever_holds_an_entity_up_everything_ends(
        turns in turns(),
        refused in prop::collection::btree_set(1_i64..8, 0..3),
        park in any::<bool>(),
        first in prop_oneof![Just(None), Just(Some(1))],
    ) {
        let then = if park { AfterWait::Quarantine } else { AfterWait::Apply };
        let connector = connector(waiting(then, first), OnParked::Wait);
        let value = |version: i64| {
            orders::value(if refused.contains(&version) { "refused" } else { "paid" }, version)
        };
        let mut database = Database::default();
        let mut came: BTreeSet<i64> = BTreeSet::new();
        let close = |database: &mut Database| {
            let Some((_, version)) = database.holds.iter().copied().min_by_key(|held| held.1) else {
                return;
            };
            database.holds.retain(|held| held.1 != version);
            database.run(&connector, &[], false, true);
        };
        for turn in turns {
            match turn {
                Turn::Come(number) => {
                    let version = i64::try_from(number % 7).unwrap() + 1;
                    let ending = database.run(&connector, &[value(version)], false, true)[0];
                    prop_assert_eq!(!came.insert(version), ending == Ending::Duplicate);
                }
                Turn::Late => {
                    database.run(&connector, &[], true, true);
                }
                Turn::Close => close(&mut database),
                Turn::GiveUp => {
                    database.discard_missing();
                    database.run(&connector, &[], false, true);
                }
            }
        }
        while !database.holds.is_empty() {
            close(&mut database);
            database.run(&connector, &[], true, true);
        }
        // Whoever waited for a person waits for a version then, and not for ever.
        for _ in 0..8 {
            database.run(&connector, &[], true, true);
            while !database.holds.is_empty() {
                close(&mut database);
            }
        }
        prop_assert!(database.deferred.is_empty(), "{:?}", database.endings);
        let distinct: BTreeSet<&Key> = database.owed.iter().collect();
        prop_assert_eq!(distinct.len(), database.owed.len());
        prop_assert_eq!(database.endings.len(), came.len());
        let applied = |version: &i64| !refused.contains(version);
        if !park && came.iter().any(applied) {
            let highest = came.iter().copied().filter(|version| applied(version)).max();
            prop_assert_eq!(database.version(), highest);
        }
    }
}

#[test]
fn the_missing_one_takes_its_followers_along_in_one_plan() {
    let connector = connector(waiting(AfterWait::Apply, Some(1)), OnParked::Apply);
    let mut database = Database::default();
    for version in [3, 2, 5] {
        assert_eq!(database.run(&connector, &[paid(version)], false, true), [Ending::Deferred]);
    }
    assert_eq!(database.run(&connector, &[paid(3)], false, true), [Ending::Duplicate]);
    assert_eq!(database.run(&connector, &[paid(1)], false, true), [Ending::Applied]);
    assert_eq!((database.version(), database.owed.len(), database.deferred.len()), (Some(3), 3, 1));
    // The fourth never comes: at its time the fifth goes over the gap, and the fourth is stale then.
    database.run(&connector, &[], true, true);
    assert_eq!((database.version(), database.owed.len()), (Some(5), 4));
    assert_eq!(database.run(&connector, &[paid(4)], false, true), [Ending::Stale]);
}

#[test]
fn without_a_first_version_any_begins_an_entity() {
    let connector = connector(waiting(AfterWait::Apply, None), OnParked::Apply);
    let mut database = Database::default();
    assert_eq!(database.run(&connector, &[paid(7)], false, true), [Ending::Applied]);
    assert_eq!(database.run(&connector, &[paid(9)], false, true), [Ending::Deferred]);
}

#[test]
fn a_version_that_was_parked_is_not_missing() {
    let connector = connector(waiting(AfterWait::Apply, None), OnParked::Apply);
    let mut database = Database::default();
    let refused = orders::value("refused", 2);
    assert_eq!(database.run(&connector, &[paid(1)], false, true), [Ending::Applied]);
    assert_eq!(database.run(&connector, &[refused], false, true), [Ending::Quarantined]);
    assert_eq!(database.run(&connector, &[paid(3)], false, true), [Ending::Applied]);
}

#[test]
fn a_version_that_a_person_gave_up_is_not_missing() {
    let connector = connector(waiting(AfterWait::Quarantine, None), OnParked::Apply);
    for late in [false, true] {
        let mut database = Database::default();
        database.run(&connector, &[paid(1)], false, true);
        assert_eq!(database.run(&connector, &[paid(3)], false, true), [Ending::Deferred]);
        database.run(&connector, &[], true, true);
        assert_eq!(database.missing.len(), 1);
        // While a person may still have it run, it is missing.
        if late {
            database.run(&connector, &[paid(2)], false, true);
        }
        assert_eq!(database.run(&connector, &[paid(4)], false, true), [Ending::Deferred]);
        database.discard_missing();
        if late {
            database.run(&connector, &[], false, true);
        } else {
            assert_eq!(database.run(&connector, &[paid(2)], false, true), [Ending::Applied]);
        }
        assert_eq!((database.version(), database.deferred.len()), (Some(4), 0));
        assert_eq!(database.run(&connector, &[paid(5)], false, true), [Ending::Applied]);
        assert_eq!((database.passed.len(), database.ahead.len()), (0, 0), "nothing is left of it");
    }
}

#[test]
fn what_was_ignored_or_parked_ahead_of_a_missing_version_is_not_missing() {
    let connector = connector(waiting(AfterWait::Apply, None), OnParked::Apply);
    let mut database = Database::default();
    database.run(&connector, &[paid(1)], false, true);
    let refused = orders::value("refused", 3);
    assert_eq!(database.run(&connector, &[refused], false, true), [Ending::Deferred]);
    // Its time is over and it is parked for what it is; the fourth waits for the second alone.
    database.run(&connector, &[], true, true);
    assert_eq!(database.run(&connector, &[paid(4)], false, true), [Ending::Deferred]);
    assert_eq!(database.run(&connector, &[paid(2)], false, true), [Ending::Applied]);
    assert_eq!((database.version(), database.deferred.len()), (Some(4), 0));
}

#[test]
fn d15_a_parked_record_that_its_entity_has_gone_by_holds_nothing() {
    let connector = connector(OnGap::Apply, OnParked::Wait);
    let mut database = Database::default();
    database.run(&connector, &[paid(1), paid(2)], false, true);
    // Another content under the first one's id, in the second one's place.
    let conflict = Value::object([
        ("order", Value::text("o1")),
        ("type", Value::text("voided")),
        ("version", Value::Int(2)),
    ]);
    assert_eq!(database.run(&connector, &[conflict], false, true), [Ending::Quarantined]);
    assert_eq!(database.run(&connector, &[paid(3)], false, true), [Ending::Applied]);
    // One that stood above holds no more once its entity has come as far; the next one holds still.
    let refused = |version| orders::value("refused", version);
    database.run(&connector, &[refused(5)], false, true);
    assert_eq!(database.run(&connector, &[paid(6)], false, true), [Ending::Deferred]);
    let entity = database.holds[0].0;
    database.holds.push((entity, 7));
    assert_eq!(database.run(&connector, &[paid(8)], false, true), [Ending::Deferred]);
    database.known.inbox.retain(|_, row| row.ending != Ending::Quarantined);
    assert_eq!(database.run(&connector, &[paid(5)], false, true), [Ending::Applied]);
    assert_eq!((database.version(), database.deferred.len()), (Some(6), 1));
}

#[test]
fn a_file_that_lets_nothing_wait_any_more_lets_go_first_what_waits() {
    let before = connector(waiting(AfterWait::Apply, Some(1)), OnParked::Apply);
    let after = connector(OnGap::Apply, OnParked::Apply);
    for max in [0, 1, usize::MAX] {
        let mut database = Database::default();
        database.run(&before, &[paid(3), paid(5)], false, true);
        assert_eq!(database.deferred.len(), 2);
        database.releases = Releases { max, refused: false };
        database.run(&after, &[paid(6)], false, true);
        database.releases = Releases::default();
        database.run(&after, &[], false, true);
        let stale = database.endings.values().filter(|ending| **ending == Ending::Stale).count();
        let got = (database.version(), database.owed.len(), database.deferred.len(), stale);
        assert_eq!(got, (Some(6), 3, 0, 0), "{max}");
    }
}

#[test]
fn h9_a_parked_event_that_is_decided_again_goes_before_those_behind_it() {
    let connector = connector(OnGap::Apply, OnParked::Wait);
    let mut database = Database::default();
    let refused = orders::value("refused", 2);
    database.run(&connector, &[paid(1)], false, true);
    assert_eq!(database.run(&connector, &[refused], false, true), [Ending::Quarantined]);
    assert_eq!(database.run(&connector, &[paid(3)], false, true), [Ending::Deferred]);
    // Forgotten and no more in the way, as in the transaction that decides it again.
    database.known.inbox.retain(|_, row| row.ending != Ending::Quarantined);
    database.holds.clear();
    assert_eq!(database.run(&connector, &[paid(2)], false, true), [Ending::Applied]);
    assert_eq!((database.version(), database.owed.len()), (Some(3), 3));
}

#[test]
fn what_waits_and_may_go_goes_before_a_later_one_that_comes() {
    let connector = connector(OnGap::Apply, OnParked::Wait);
    let mut database = Database::default();
    let refused = orders::value("refused", 2);
    database.run(&connector, &[paid(1), refused], false, true);
    assert_eq!(database.run(&connector, &[paid(3)], false, true), [Ending::Deferred]);
    // A person gives the parked one up; before anybody has looked, the next version is there.
    database.holds.clear();
    assert_eq!(database.run(&connector, &[paid(4)], false, true), [Ending::Applied]);
    let stale = database.endings.values().filter(|ending| **ending == Ending::Stale).count();
    assert_eq!((database.version(), database.owed.len(), stale), (Some(4), 3, 0));
}

#[test]
fn what_may_go_and_does_not_fit_into_a_plan_is_not_passed_by() {
    let connector = connector(OnGap::Apply, OnParked::Wait);
    let mut database = Database::default();
    let refused = orders::value("refused", 2);
    database.run(&connector, &[paid(1), refused], false, true);
    assert_eq!(database.run(&connector, &[paid(3)], false, true), [Ending::Deferred]);
    database.holds.clear();
    database.releases = Releases { max: 0, refused: false };
    assert_eq!(database.run(&connector, &[paid(4)], false, true), [Ending::Deferred]);
    database.releases = Releases::default();
    database.run(&connector, &[], false, true);
    let stale = database.endings.values().filter(|ending| **ending == Ending::Stale).count();
    assert_eq!((database.version(), database.owed.len(), stale), (Some(4), 3, 0));
}

#[test]
fn s23_no_more_events_wait_than_may() {
    let connector = connector(waiting(AfterWait::Apply, Some(1)), OnParked::Apply);
    let mut database = Database { room: Some(2), ..Database::default() };
    let batch: Vec<Value> = [3, 4, 5].map(paid).into();
    let got = database.run(&connector, &batch, false, true);
    assert_eq!(got, [Ending::Deferred, Ending::Deferred, Ending::Quarantined]);
    // In one batch with what they wait for they need no room.
    let mut database = Database { room: Some(2), ..Database::default() };
    let batch: Vec<Value> = [3, 4, 1, 2].map(paid).into();
    assert_eq!(database.run(&connector, &batch, false, true), [Ending::Applied; 4]);
}

#[test]
fn what_the_database_refuses_of_a_released_event_parks_that_one() {
    let connector = connector(waiting(AfterWait::Apply, Some(1)), OnParked::Apply);
    let mut database = Database::default();
    let batch: Vec<Value> = [2, 3].map(paid).into();
    database.run(&connector, &batch, false, true);
    database.releases = Releases { max: 0, refused: false };
    assert_eq!(database.run(&connector, &[paid(1)], false, true), [Ending::Applied]);
    assert_eq!((database.version(), database.deferred.len()), (Some(1), 2));
    database.releases = Releases { max: 1, refused: true };
    let known = database.load(false);
    assert_eq!(releasable(&connector, &known, &[]).len(), 2);
    database.run(&connector, &[], false, true);
    let parked = database.endings.values().filter(|ending| **ending == Ending::DeadLettered);
    assert_eq!((parked.count(), database.deferred.len()), (1, 1));
    database.releases = Releases::default();
    database.run(&connector, &[], false, true);
    assert_eq!((database.version(), database.deferred.len()), (Some(3), 0));
    assert_eq!(ParkReason::RefusedByDatabase.as_str(), "refused_by_database");
}
