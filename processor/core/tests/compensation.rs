//! R39: what undoes an effect is decided by that effect's outcome, and by nothing else.
//!
//! An order is charged by its first event and refunded by its second. Whatever the charge has come to when the
//! order is cancelled, and in whatever order it goes on from there: the refund goes only when the charge is
//! done, is skipped when it never will be, and waits for as long as nobody knows.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a failed test should stop at once"
)]

mod orders;

use std::collections::BTreeMap;
use std::sync::Arc;

use oncely_core::connector::Connector;
use oncely_core::decide::{
    EffectNew, EffectRow, EntityRow, Input, Known, Place, Plan, decide, undone_keys,
};
use oncely_core::effect::next::Why;
use oncely_core::effect::order::{OpenEffect, Turn, awake};
use oncely_core::effect::status::Status;
use oncely_core::event::{Event, identify};
use oncely_core::expr::Scope;
use oncely_core::key::Key;
use oncely_core::value::Value;
use proptest::prelude::*;

use self::orders::{connector, value};

fn scope(value: &Value) -> Scope<'_> {
    Scope { event: Some(value), ..Scope::default() }
}

fn decided(connector: &Connector, events: &[(&str, i64)], known: Known) -> (Vec<Event>, Plan) {
    let values: Vec<Value> = events.iter().map(|(kind, version)| value(kind, *version)).collect();
    let made: Vec<Event> =
        values.iter().map(|value| identify(connector, &scope(value)).unwrap()).collect();
    let inputs = made.iter().zip(&values).zip(0..);
    let inputs: Vec<Input<'_>> = inputs
        .map(|((event, value), offset)| {
            let place = Place { source: 1, partition: 0, offset };
            Input { event, scope: scope(value), place, age_ms: None }
        })
        .collect();
    let plan = decide(connector, &inputs, known);
    (made, plan)
}

fn of(plan: &Plan, rule: usize) -> (&Key, &EffectNew) {
    plan.effects.iter().find(|(_, new)| new.rule == rule).unwrap()
}

/// The refund of an order whose charge stands so.
fn refund_of(status: Option<Status>) -> (Key, EffectNew, Key) {
    let connector = connector();
    let (events, paid) = decided(&connector, &[("paid", 1)], Known::default());
    let (charge, new) = of(&paid, 0);
    let lane = events[0].entity.as_ref().unwrap().key;
    let mut known = Known::default();
    known
        .entities
        .insert(lane, EntityRow { event: events[0].key, version: 1, state: Arc::from("paid") });
    if let Some(status) = status {
        known.effects.insert(*charge, EffectRow { status, request_hash: new.request_hash });
        if !status.is_final() {
            let open = OpenEffect {
                key: *charge,
                lane,
                event: events[0].key,
                version: 1,
                blocked: false,
                status,
                after: Vec::new(),
            };
            known.open.insert(lane, vec![open]);
        }
    }
    let cancelled = value("cancelled", 2);
    let event = identify(&connector, &scope(&cancelled)).unwrap();
    assert_eq!(undone_keys(&connector, &event, &scope(&cancelled)), [*charge]);
    let (_, plan) = decided(&connector, &[("cancelled", 2)], known);
    let (refund, new) = of(&plan, 1);
    assert_ne!(refund, charge, "a key of its own");
    assert!(plan.payloads.len() == 1, "the event is still needed");
    (*refund, new.clone(), *charge)
}

#[test]
fn r39_the_outcome_of_a_charge_decides_about_its_refund() {
    for (status, turn) in [
        (Some(Status::Done), Turn::Ready),
        (Some(Status::Waiting), Turn::Blocked),
        (Some(Status::Claimed), Turn::Blocked),
        (Some(Status::Unknown), Turn::Blocked),
        (Some(Status::Held), Turn::Blocked),
        (Some(Status::Rejected), Turn::Skip),
        (Some(Status::Skipped), Turn::Skip),
        (None, Turn::Skip),
    ] {
        let (_, refund, charge) = refund_of(status);
        assert_eq!(refund.turn, turn, "{status:?}");
        assert_eq!((refund.undoes, refund.after), (Some(charge), vec![charge]));
    }
}

#[test]
fn r39_where_a_charge_may_be_forgotten_a_person_is_asked() {
    let connector = connector();
    let (events, _) = decided(&connector, &[("paid", 1)], Known::default());
    let lane = events[0].entity.as_ref().unwrap().key;
    let state = Arc::from("paid");
    let mut known = Known::default();
    known.entities.insert(lane, EntityRow { event: events[0].key, version: 1, state });
    known.forgetful.insert(lane);
    let (_, plan) = decided(&connector, &[("cancelled", 2)], known);
    assert_eq!(of(&plan, 1).1.turn, Turn::Hold(Why::UndoneForgotten));
}

#[test]
fn r39_where_a_charge_may_be_known_by_another_key_a_person_is_asked() {
    let connector = connector();
    let (events, paid) = decided(&connector, &[("paid", 1)], Known::default());
    let lane = events[0].entity.as_ref().unwrap().key;
    let refund = |rekeyed: (Key, usize), charge: Option<EffectRow>| {
        let mut known = Known::default();
        let state = Arc::from("paid");
        known.entities.insert(lane, EntityRow { event: events[0].key, version: 1, state });
        known.rekeyed.insert(rekeyed);
        known.effects.extend(charge.map(|row| (*of(&paid, 0).0, row)));
        let (_, plan) = decided(&connector, &[("cancelled", 2)], known);
        of(&plan, 1).1.turn
    };
    assert_eq!(refund((lane, 0), None), Turn::Hold(Why::UndoneRekeyed));
    // What is on record under the key of now is what it undoes; other entities and other effects are no matter of it.
    let request_hash = of(&paid, 0).1.request_hash;
    let done = EffectRow { status: Status::Done, request_hash };
    assert_eq!(refund((lane, 0), Some(done)), Turn::Ready);
    assert_eq!(refund((events[0].key, 0), None), Turn::Skip);
    assert_eq!(refund((lane, 1), None), Turn::Skip);
}

#[test]
fn r39_charged_and_cancelled_in_one_batch() {
    let (_, plan) = decided(&connector(), &[("paid", 1), ("cancelled", 2)], Known::default());
    let ((charge, _), (_, refund)) = (of(&plan, 0), of(&plan, 1));
    assert_eq!((refund.turn, refund.undoes), (Turn::Blocked, Some(*charge)));
    let (_, plan) = decided(&connector(), &[("cancelled", 1)], Known::default());
    assert_eq!(of(&plan, 1).1.turn, Turn::Skip, "nothing was charged");
}

fn status() -> impl Strategy<Value = Status> {
    prop_oneof![
        Just(Status::Waiting),
        Just(Status::Claimed),
        Just(Status::Unknown),
        Just(Status::Held),
    ]
}

fn ending() -> impl Strategy<Value = Status> {
    prop_oneof![Just(Status::Done), Just(Status::Rejected), Just(Status::Skipped)]
}

proptest! {
    /// However the charge comes to its end: no step before it lets the refund go, and then the end decides.
    #[test]
    fn r39_no_refund_before_the_outcome_of_the_charge_is_known(
        first in status(),
        then in prop::collection::vec(status(), 0..6),
        end in ending(),
        same_lane in any::<bool>(),
    ) {
        let (key, refund, charge) = refund_of(Some(first));
        let waiting = OpenEffect {
            key,
            lane: refund.lane,
            event: refund.event,
            version: refund.version,
            blocked: true,
            status: Status::Waiting,
            after: refund.after,
        };
        for status in then {
            // The charge is seen among the open effects of its lane, or by its key alone.
            let mut open = vec![waiting.clone()];
            let mut settled = BTreeMap::new();
            if same_lane {
                let event = Key::event("orders", "", "o1:paid");
                let after = Vec::new();
                open.push(OpenEffect { key: charge, event, version: 1, blocked: false, status, after, ..waiting.clone() });
            } else {
                settled.insert(charge, status);
            }
            prop_assert!(!awake(&open, &settled).contains_key(&key));
        }
        let turns = awake(&[waiting], &BTreeMap::from([(charge, end)]));
        let wanted = if end == Status::Done { Turn::Ready } else { Turn::Skip };
        prop_assert_eq!(turns.get(&key), Some(&wanted));
    }
}
