//! W10, E3: what an event owes anew that may have been run before a failover is marked, and nothing else is. What it may
//! have owed, and owes no more by what is known now, is held.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a failed test should stop at once"
)]

mod orders;

use std::sync::Arc;

use oncely_core::connector::{Connector, EffectBody, EffectRule, LedgerRule, OnInvalid, OnStale};
use oncely_core::decide::{
    EffectNew, EffectRow, Ending, EntityRow, InboxRow, Input, Known, Place, Plan, decide,
};
use oncely_core::effect::next::Why;
use oncely_core::effect::order::Turn;
use oncely_core::effect::status::Status;
use oncely_core::event::{Event, identify};
use oncely_core::expr::{Expr, Scope};
use oncely_core::key::Key;
use oncely_core::template::{Target, Template};

use self::orders::{connector, value};

#[test]
fn w10_what_an_event_in_doubt_owes_may_have_been_sent() {
    let connector = connector();
    let value = value("paid", 1);
    let scope = Scope { event: Some(&value), ..Scope::default() };
    let event = identify(&connector, &scope).unwrap();
    let place = Place { source: 1, partition: 0, offset: 0 };
    let input = Input { event: &event, scope, place, age_ms: None };
    let of = |known: Known| {
        let plan = decide(&connector, &[input], known);
        let suspect: Vec<bool> = plan.effects.values().map(|new| new.suspect).collect();
        (plan.decisions[0].ending, suspect)
    };
    assert_eq!(of(Known::default()), (Ending::Applied, vec![false]));
    let mut known = Known::default();
    known.suspect.insert(event.key);
    assert_eq!(of(known.clone()), (Ending::Applied, vec![true]));
    // What is on record has been decided, whatever else is lost.
    let row = InboxRow {
        fingerprint: event.fingerprint,
        ending: Ending::Applied,
        effects: Vec::new(),
        first: place,
        age_ms: 0,
    };
    known.inbox.insert(event.key, row);
    assert_eq!(of(known), (Ending::Duplicate, Vec::new()));
}

/// Decides one event on an order that stands so, in doubt or not.
fn decided(
    connector: &Connector,
    event: (&str, i64),
    stands: Option<(&str, i64)>,
    in_doubt: bool,
    effects: &[(Key, EffectRow)],
) -> Plan {
    decided_with(connector, event, stands, in_doubt, effects, |_, _| ())
}

/// The same with what else is known of it.
fn decided_with(
    connector: &Connector,
    (kind, version): (&str, i64),
    stands: Option<(&str, i64)>,
    in_doubt: bool,
    effects: &[(Key, EffectRow)],
    settle: impl FnOnce(&mut Known, &Event),
) -> Plan {
    let value = value(kind, version);
    let scope = Scope { event: Some(&value), ..Scope::default() };
    let event = identify(connector, &scope).unwrap();
    let mut known = Known::default();
    if let Some((state, version)) = stands {
        let row = EntityRow { event: Key::from_bytes([7; 16]), version, state: Arc::from(state) };
        known.entities.insert(event.entity.as_ref().unwrap().key, row);
    }
    if in_doubt {
        known.suspect.insert(event.key);
    }
    known.effects.extend(effects.iter().copied());
    settle(&mut known, &event);
    let place = Place { source: 1, partition: 0, offset: 5 };
    decide(connector, &[Input { event: &event, scope, place, age_ms: None }], known)
}

fn turns(plan: &Plan) -> Vec<(usize, Turn, bool)> {
    plan.effects.values().map(|new| (new.rule, new.turn, new.suspect)).collect()
}

#[test]
fn w10_r39_what_it_undoes_may_be_forgotten() {
    let connector = connector();
    let cancelled = |in_doubt| decided(&connector, ("cancelled", 2), None, in_doubt, &[]);
    assert_eq!(turns(&cancelled(false)), [(1, Turn::Skip, false)]);
    assert_eq!(turns(&cancelled(true)), [(1, Turn::Hold(Why::UndoneForgotten), true)]);
}

#[test]
fn w10_an_event_that_comes_late_now_may_have_come_in_time() {
    let connector = connector();
    let paid = |in_doubt, effects: &[(Key, EffectRow)]| {
        decided(&connector, ("paid", 1), Some(("cancelled", 2)), in_doubt, effects)
    };
    assert_eq!(turns(&paid(false, &[])), []);
    let plan = paid(true, &[]);
    assert_eq!(turns(&plan), [(0, Turn::Hold(Why::OwedBefore), true)]);
    assert_eq!(plan.decisions[0].ending, Ending::Stale);
    let (key, new): (&Key, &EffectNew) = plan.effects.first_key_value().unwrap();
    assert_eq!(plan.decisions[0].effects, [*key], "its position waits for it");
    // What is on record is not forgotten, whatever its request is.
    for (request_hash, shared) in
        [(new.request_hash, vec![*key]), (Key::from_bytes([9; 16]), Vec::new())]
    {
        let row = EffectRow { status: Status::Done, request_hash };
        let plan = paid(true, &[(*key, row)]);
        assert_eq!(plan.effects.len(), 0);
        assert_eq!(plan.decisions[0].ending, Ending::Stale);
        assert_eq!(plan.decisions[0].effects, shared);
    }
}

#[test]
fn w10_an_event_that_leads_nowhere_now_may_have_led_somewhere() {
    let mut connector = connector();
    connector.state.as_mut().unwrap().on_invalid = OnInvalid::Ignore;
    let paid = |in_doubt| decided(&connector, ("paid", 3), Some(("cancelled", 2)), in_doubt, &[]);
    assert_eq!(turns(&paid(false)), []);
    let plan = paid(true);
    assert_eq!(turns(&plan), [(0, Turn::Hold(Why::OwedBefore), true)]);
    assert_eq!(plan.decisions[0].ending, Ending::Ignored);
    assert!(plan.entities.is_empty(), "its order stays where it is");
}

#[test]
fn w10_what_comes_after_a_call_that_may_be_forgotten_goes_with_it() {
    let mut connector = connector();
    connector.effects[1].when = None;
    connector.effects[1].compensates = None;
    connector.effects[1].after = vec![0];
    let plan = decided(&connector, ("paid", 1), Some(("cancelled", 2)), true, &[]);
    let mut turns = turns(&plan);
    turns.sort_by_key(|(rule, ..)| *rule);
    assert_eq!(turns, [(0, Turn::Hold(Why::OwedBefore), true), (1, Turn::Blocked, true)]);
    assert_eq!(plan.payloads.len(), 1, "it is rendered when the first one is done");
    let moved = plan.payloads[0].moved.as_ref().unwrap();
    assert_eq!((&*moved.from, &*moved.to), ("open", "paid"));
}

#[test]
fn w10_what_comes_after_another_events_effect_is_held_as_well() {
    let mut connector = connector();
    let second = &mut connector.effects[1];
    second.when = Some(Expr::compile("entered(\"paid\")").unwrap());
    second.compensates = None;
    second.after = vec![0];
    second.key = vec![Expr::compile("event.order + event.type").unwrap()];
    let paid = |in_doubt, effects: &[(Key, EffectRow)]| {
        decided(&connector, ("paid", 1), Some(("cancelled", 2)), in_doubt, effects)
    };
    let plan = paid(true, &[]);
    let (key, new) = plan.effects.iter().find(|(_, new)| new.rule == 0).unwrap();
    // The charge is on record: another event has it, so it is no word on this one's.
    let on_record = [(*key, EffectRow { status: Status::Done, request_hash: new.request_hash })];
    assert_eq!(turns(&paid(false, &on_record)), []);
    assert_eq!(turns(&paid(true, &on_record)), [(1, Turn::Hold(Why::OwedBefore), true)]);
}

#[test]
fn w10_r39_an_event_that_moves_otherwise_now_may_have_owed_more() {
    let mut connector = connector();
    let refund = &mut connector.effects[1];
    refund.when =
        Some(Expr::compile("entered(\"cancelled\") && state.previous == \"paid\"").unwrap());
    refund.compensates = None;
    let cancelled = |stands, in_doubt| decided(&connector, ("cancelled", 2), stands, in_doubt, &[]);
    // Read before what it came after: its refund may have gone.
    assert_eq!(turns(&cancelled(None, false)), []);
    assert_eq!(turns(&cancelled(None, true)), [(1, Turn::Hold(Why::OwedBefore), true)]);
    assert_eq!(cancelled(None, true).decisions[0].ending, Ending::Applied);
    // Read right after that it can have moved in no other way.
    let stands = Some(("open", 1));
    assert_eq!(turns(&cancelled(stands, true)), []);
}

#[test]
fn w10_what_came_too_late_before_anything_was_lost_owes_nothing() {
    let connector = connector();
    let paid = |settle: fn(&mut Known, &Event)| {
        decided_with(&connector, ("paid", 1), Some(("cancelled", 2)), true, &[], settle)
    };
    assert_eq!(turns(&paid(|_, _| ())), [(0, Turn::Hold(Why::OwedBefore), true)]);
    let plan = paid(|known, event| assert!(known.late.insert(event.key)));
    assert_eq!(turns(&plan), []);
    assert_eq!(plan.decisions[0].ending, Ending::Stale);
}

/// Where the later version lies, in which partition and at which offset.
fn set_at(known: &mut Known, event: &Event, (partition, offset): (i32, i64)) {
    let about = event.entity.as_ref().unwrap();
    known.set_at.insert(about.key, Place { source: 1, partition, offset });
}

#[test]
fn w10_a_line_that_was_lost_with_what_made_it_owed_is_written_again() {
    let mut connector = connector();
    let line = |when: &str| EffectRule {
        id: "usage".into(),
        when: Some(Expr::compile(when).unwrap()),
        key: vec![Expr::compile("event.order + event.type").unwrap()],
        after: Vec::new(),
        compensates: None,
        on_stale: OnStale::Skip,
        body: EffectBody::Ledger(Box::new(LedgerRule {
            account: Expr::compile("event.order").unwrap(),
            metric: Template::compile("orders", Target::Text).unwrap(),
            quantity: Expr::compile("event.version").unwrap(),
            at: None,
            waits: false,
        })),
    };
    connector.effects = vec![line("entered(\"paid\")")];
    let lines = |connector: &Connector, event: (&str, i64), in_doubt, place| {
        let stands = Some(("cancelled", 9));
        let settle = |known: &mut Known, event: &Event| set_at(known, event, place);
        decided_with(connector, event, stands, in_doubt, &[], settle).ledger.len()
    };
    assert_eq!(lines(&connector, ("paid", 1), true, (1, 0)), 1, "in another partition");
    assert_eq!(lines(&connector, ("paid", 1), true, (0, 9)), 1, "behind it");
    assert_eq!(lines(&connector, ("paid", 1), true, (0, 3)), 0, "it came too late then as well");
    assert_eq!(lines(&connector, ("paid", 1), false, (1, 0)), 0);
    let settle = |known: &mut Known, _: &Event| known.redriven = true;
    let stands = Some(("cancelled", 9));
    let redriven = decided_with(&connector, ("paid", 1), stands, true, &[], settle);
    assert_eq!(redriven.ledger.len(), 0, "it was parked, and not applied");
    // One that stands is not written twice.
    let written = decided(&connector, ("paid", 1), stands, true, &[]).ledger;
    let settle = |known: &mut Known, _: &Event| {
        known.ledger.extend(written.iter().map(|(key, line)| (*key, line.content)));
    };
    let again = decided_with(&connector, ("paid", 1), stands, true, &[], settle);
    assert_eq!((written.len(), again.ledger.len()), (1, 0));
    // Whether this one was owed hangs on where its entity stood, and nobody knows that any more.
    connector.effects = vec![line("entered(\"cancelled\") && state.previous == \"paid\"")];
    assert_eq!(lines(&connector, ("cancelled", 2), true, (1, 0)), 0);
}

/// The event's bytes are kept with one state: it is that by which something is rendered later.
#[test]
fn w10_what_is_rendered_later_is_rendered_as_its_entity_may_have_gone() {
    let mut connector = connector();
    let entered = |from: &str| {
        Some(
            Expr::compile(&format!("entered(\"cancelled\") && state.previous == \"{from}\""))
                .unwrap(),
        )
    };
    // One call by the first way, whose bytes are made at once, and one by the second that reads a result.
    connector.effects[0].when = entered("open");
    connector.effects[1].when = entered("paid");
    connector.effects[1].compensates = None;
    let stale = decided(&connector, ("cancelled", 2), Some(("paid", 3)), true, &[]);
    assert_eq!(turns(&stale).len(), 2);
    let moved = stale.payloads[0].moved.as_ref().unwrap();
    assert_eq!((&*moved.from, &*moved.to), ("paid", "cancelled"));
    // The same where it moves otherwise now.
    let moves = decided(&connector, ("cancelled", 3), Some(("open", 1)), true, &[]);
    assert_eq!(moves.decisions[0].ending, Ending::Applied);
    assert_eq!(turns(&moves).len(), 2);
    let moved = moves.payloads[0].moved.as_ref().unwrap();
    assert_eq!((&*moved.from, &*moved.to), ("paid", "cancelled"));
}
