//! W10, E3: what an event owes anew that may have been run before a failover is marked, and nothing else is.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a failed test should stop at once"
)]

mod orders;

use oncely_core::decide::{Ending, InboxRow, Input, Known, Place, decide};
use oncely_core::event::identify;
use oncely_core::expr::Scope;

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
