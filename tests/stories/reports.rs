//! Incidents that users of other systems have reported, played here.

use oncely_tests::ledger::{Ending, Fate};
use oncely_tests::wiring::{charge, hook, usage};
use oncely_tests::{Event, Record, Wiring, World};

/// The transitions of the stories' connector file, by hand: the state and version that an event leaves, and
/// what becomes of it.
fn move_on(state: &mut (&'static str, i64), event: &Event) -> Fate {
    let to = if event.kind == "invoice.paid" { "paid" } else { "past_due" };
    match (state.0, to) {
        _ if event.version < state.1 => Fate::Stale,
        ("open", _) | ("past_due", "paid") => {
            *state = (to, event.version);
            Fate::Applied
        }
        _ => Fate::Parked("invalid_transition"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r10_r11_versions_that_come_in_every_order_never_undo_a_newer_one() {
    let wiring = Wiring::invoices("orders").effects([usage()]);
    let mut world = World::plan(wiring).start().await;
    let orders = [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]];
    let mut ends = Vec::new();
    // Each order in one batch, and with a batch for each event.
    for (number, order) in (1..).zip(orders.iter().chain(&orders)) {
        let name = World::invoice(number);
        let mut state = ("open", 0);
        if number == orders.len() + 1 {
            world.run().await;
        }
        for version in order {
            // The paid one is in the middle; a late "past due" must not take that back.
            let event = match version {
                2 => Event::paid(&name, 2),
                other => Event::past_due(&name, *other),
            };
            let fate = move_on(&mut state, &event);
            if !matches!(fate, Fate::Parked(_)) {
                world.owe("usage", &event.id, Ending::Done);
            }
            world.event(&event, 0, fate).await;
            if number > orders.len() {
                world.settled().await;
            }
        }
        ends.push(state);
    }
    world.settled().await;
    let rows = world.sql("SELECT state, version FROM oncely.entity").await;
    let mut found: Vec<(String, i64)> = rows
        .iter()
        .map(|row| (row[0].clone().unwrap(), row[1].as_ref().unwrap().parse().unwrap()))
        .collect();
    let mut wanted: Vec<(String, i64)> =
        ends.into_iter().map(|(state, version)| (state.to_owned(), version)).collect();
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r23_a_true_retry_is_no_conflict_however_it_is_spelled() {
    let mut wiring = Wiring::invoices("spelled").effects([charge(), hook()]);
    wiring.identity = "{ tenant: event.account, id: event.id, \
                       fingerprint: { except: [event.received_at] } }";
    let mut world = World::plan(wiring).start().await;
    world.run().await;
    for number in 1..=4 {
        let name = World::invoice(number);
        let event = Event::paid(&name, 1);
        world.owe_all(&name);
        world.event(&event, 0, Fate::Applied).await;
        // Another order of members, other white space, and a time that each delivery has anew.
        let again = format!(
            r#"{{ "received_at": {number}, "version": 1, "data": {{ "email": "{name}@example.com",
                "invoice": "{name}", "currency": "eur", "amount": 1200 }},
                "account": "acct_7",  "type": "invoice.paid", "id": "{}" }}"#,
            event.id
        );
        world.produce(&Record::of(again), Some(&event.id), Fate::Applied).await;
        // One cent more is another content.
        let other = event.json().to_string().replace("1200", "1201");
        world.produce(&Record::of(other), Some(&event.id), Fate::Parked("conflict")).await;
    }
    world.settled().await;
    assert_eq!(world.provider.counts().received, 8, "one charge and one hook for each");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r21_one_id_for_two_operations_is_two_keys_and_never_a_replay() {
    // Both effects are keyed by the same words of the event.
    let mut second = hook();
    second.replace("key: event.id", "key: event.data.invoice");
    second.replace("type: http\n", "type: http\n    when: entered(\"paid\")\n");
    let wiring = Wiring::invoices("operations").effects([charge(), second]);
    let mut world = World::plan(wiring).start().await;
    world.run().await;
    for name in world.pay_many(1, 5, 2).await {
        let of = async |effect: &str| world.key_of(effect, &name).await;
        world
            .until("both", async || {
                world.status_of("charge", &name).await.is_some()
                    && world.status_of("hook", &name).await.is_some()
            })
            .await;
        assert_ne!(of("charge").await, of("hook").await);
    }
    world.settled().await;
    assert_eq!(world.provider.counts().received, 10);
    world.check_invariants().await;
}
