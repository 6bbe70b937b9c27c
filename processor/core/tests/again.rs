//! Events that are on record, once more: what is there stays, what is missing is added, and a new generation has
//! keys of its own.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a failed test should stop at once"
)]

mod orders;

use std::sync::Arc;

use oncely_core::connector::Connector;
use oncely_core::decide::{Decided, EffectRow, Input, Known, Moved, ParkReason, Place, decide};
use oncely_core::effect::order::{OpenEffect, Turn};
use oncely_core::effect::status::Status;
use oncely_core::event::{Event, identify};
use oncely_core::expr::Scope;
use oncely_core::key::Key;
use oncely_core::value::Value;

use self::orders::{connector, value};

fn scope(value: &Value) -> Scope<'_> {
    Scope { event: Some(value), ..Scope::default() }
}

struct Paid {
    connector: Connector,
    value: Value,
    event: Event,
    moved: Moved,
}

impl Paid {
    fn new() -> Self {
        let (connector, value) = (connector(), value("paid", 1));
        let event = identify(&connector, &scope(&value)).unwrap();
        let moved = Moved { from: Arc::from("open"), to: Arc::from("paid") };
        Self { connector, value, event, moved }
    }

    fn decided(&self) -> Decided<'_> {
        Decided {
            connector: &self.connector,
            event: &self.event,
            scope: scope(&self.value),
            moved: Some(&self.moved),
            stale: false,
            current: None,
            suspect: false,
        }
    }

    fn known(&self, status: Status) -> (Key, Known) {
        let charge = self.decided().keys().unwrap()[0];
        let mut known = Known::default();
        // With the request that it had by an earlier file.
        let request_hash = Key::from_bytes([9; 16]);
        known.effects.insert(charge, EffectRow { status, request_hash });
        (charge, known)
    }
}

#[test]
fn what_is_on_record_is_not_owed_again_whatever_its_request_was() {
    let paid = Paid::new();
    let missing = paid.decided().missing(&mut Known::default()).unwrap();
    assert_eq!(missing.effects.len(), 1, "the charge, and no refund");
    let first = decide(
        &paid.connector,
        &[Input {
            event: &paid.event,
            scope: scope(&paid.value),
            place: Place { source: 1, partition: 0, offset: 0 },
            age_ms: None,
        }],
        Known::default(),
    );
    assert_eq!(missing.effects, first.effects, "as it would have been when it was new");
    for status in [Status::Done, Status::Claimed, Status::Held, Status::Rejected] {
        let (charge, mut known) = paid.known(status);
        let missing = paid.decided().missing(&mut known).unwrap();
        assert!(missing.effects.is_empty(), "{status:?}");
        assert_eq!(missing.keys, [charge]);
    }
}

#[test]
fn r27_a_generation_is_one_for_each_name() {
    let paid = Paid::new();
    let (charge, known) = paid.known(Status::Done);
    let made = |tag: &str| paid.decided().generation(&known, &[0], tag).unwrap();
    let (one, same, other) = (made("INC-7"), made("INC-7"), made("INC-8"));
    assert_eq!(one.keys, same.keys);
    assert_ne!(one.keys, other.keys);
    assert!(!one.keys.contains(&charge), "a key of its own");
    let new = &one.effects[&one.keys[0]];
    assert_eq!((new.turn, new.rule), (Turn::Ready, 0));
    assert!(paid.decided().generation(&known, &[1], "INC-7").is_err(), "it owes no refund");
    assert_eq!(paid.decided().keys_of(&[0]).unwrap(), [charge]);
}

#[test]
fn r28_what_is_added_waits_for_earlier_versions() {
    let paid = Paid::new();
    let lane = paid.event.entity.as_ref().unwrap().key;
    let earlier = OpenEffect {
        key: Key::from_bytes([1; 16]),
        lane,
        event: Key::from_bytes([2; 16]),
        version: 0,
        blocked: false,
        status: Status::Held,
        after: Vec::new(),
    };
    let (_, mut known) = paid.known(Status::Done);
    known.open.insert(lane, vec![earlier]);
    let made = paid.decided().generation(&known, &[0], "INC-7").unwrap();
    assert_eq!(made.effects[&made.keys[0]].turn, Turn::Blocked);
}

#[test]
fn w18_t3_what_may_have_been_forgotten_is_not_run() {
    let mut paid = Paid::new();
    paid.connector.retention.dedupe_ms = 1_000;
    let place = Place { source: 1, partition: 0, offset: 0 };
    let ending = |age_ms, known: Known| {
        let input = Input { event: &paid.event, scope: scope(&paid.value), place, age_ms };
        let plan = decide(&paid.connector, &[input], known);
        (plan.decisions[0].reason, plan.effects.len())
    };
    assert_eq!(ending(None, Known::default()), (None, 1), "nobody asked: it is young enough");
    assert_eq!(ending(Some(1_000), Known::default()), (None, 1));
    assert_eq!(ending(Some(1_001), Known::default()), (Some(ParkReason::TooOld), 0));
}

#[test]
fn w10_what_is_added_after_a_failover_may_have_been_sent() {
    let paid = Paid::new();
    let in_doubt = Decided { suspect: true, ..paid.decided() };
    let missing = in_doubt.missing(&mut Known::default()).unwrap();
    assert!(missing.effects.values().all(|new| new.suspect && new.turn == Turn::Ready));
    let (_, known) = paid.known(Status::Done);
    let made = in_doubt.generation(&known, &[0], "request").unwrap();
    assert!(made.effects.values().all(|new| new.suspect));
    assert_eq!((missing.effects.len(), made.effects.len()), (1, 1));
}
