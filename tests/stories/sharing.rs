//! Effects that two events owe, values that the database refuses, and offsets that are let go.

use oncely_rig::provider::{Fault, Rule};
use oncely_tests::ledger::{Ending, Fate};
use oncely_tests::wiring::{charge, hook, usage};
use oncely_tests::world::BOUND;
use oncely_tests::{Event, Record, Wiring, World};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_events_share_one_effect_or_contradict() {
    // One charge for each invoice, whichever of its events comes first.
    let mut once = charge();
    once.replace(r#"when: entered("paid")"#, "when: event.data.amount > 0");
    let wiring = Wiring::invoices("shared").effects([once]);
    let mut world = World::plan(wiring).start().await;
    world.provider.hold_answers();
    world.run().await;
    for number in 1..=6 {
        let name = World::invoice(number);
        world.owe("charge", &name, Ending::Done);
        world.event(&Event::past_due(&name, 1), 0, Fate::Applied).await;
        world.event(&Event::paid(&name, 2), 0, Fate::Applied).await;
    }
    world.provider.wait_held(6, BOUND).await.unwrap();
    // The second event waits for the first one's effect.
    assert_eq!(world.committed(0).await.unwrap_or(0), 0);
    world.provider.release();
    world.settled().await;
    // The same effect with another amount is nobody's.
    for number in 7..=9 {
        let name = World::invoice(number);
        world.owe("charge", &name, Ending::Done);
        world.event(&Event::past_due(&name, 1), 1, Fate::Applied).await;
        let other = Event::paid(&name, 2).amount(7);
        world.event(&other, 1, Fate::Parked("effect_conflict")).await;
    }
    world.settled().await;
    assert_eq!(world.provider.counts().received, 9);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d6_b46_b17_what_the_database_refuses_is_found_and_the_batch_goes_on() {
    // A NUL that comes into a text by a template, and a rule that only the database knows.
    let mut memo = usage();
    memo.replace(r#"metric: "events""#, r#"metric: "memo {{ event.data.memo }}""#);
    let wiring = Wiring::invoices("refused").effects([memo, hook()]);
    let mut world = World::plan(wiring).partitions(1).start().await;
    world.sql("ALTER TABLE oncely.ledger ADD CHECK (metric NOT LIKE '%spoilt%')").await;
    let with_memo = |number: usize, memo: &str| {
        let event = Event::paid(&World::invoice(number), 1);
        let mut json = event.json();
        json["data"]["memo"] = json!(memo);
        (event, Record::of(json.to_string()))
    };
    for number in 1..=60 {
        let (memo, refused) = match number % 20 {
            7 => ("a\u{0}b", true),
            13 => ("spoilt", true),
            _ => ("fine", false),
        };
        let (event, record) = with_memo(number, memo);
        if refused {
            world.produce(&record, None, Fate::Parked(REFUSED)).await;
        } else {
            world.owe_all(&event.invoice);
            world.produce(&record, Some(&event.id), Fate::Applied).await;
        }
    }
    world.run().await;
    world.settled().await;
    world.check_invariants().await;
}

/// The reason under which such a record is parked.
const REFUSED: &str = "refused_by_database";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_dead_endpoint_does_not_hold_a_partition_for_ever() {
    let mut wiring = Wiring::invoices("letgo").effects([charge(), hook()]);
    wiring.offset_wait = "2s";
    let mut world = World::plan(wiring).start().await;
    let worker = world.run().await;
    world.provider.fail(Rule::always(Fault::status(503)).to("/v1/charges"));
    world.pay_many(1, 10, 2).await;
    world
        .until("offsets let go", async || {
            world.committed(0).await == Some(5) && world.committed(1).await == Some(5)
        })
        .await;
    let let_go = world.workers[worker].metric("oncely_records_let_go_total", "").await;
    assert_eq!(let_go, 10.0, "what was let go is counted");
    assert_eq!(world.effects_in("done").await, 10, "the other lane went on");
    // Nothing is forgotten: it comes when the endpoint does.
    world.provider.heal();
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k16_aborted_records_have_no_effect_and_gaps_are_no_holes() {
    let wiring = Wiring::invoices("transactions").effects([charge()]);
    let mut world = World::plan(wiring).partitions(1).start().await;
    world.run().await;
    let aborted: Vec<Event> =
        (50..55).map(|number| Event::paid(&World::invoice(number), 1)).collect();
    let committed: Vec<Event> =
        (1..=5).map(|number| Event::paid(&World::invoice(number), 1)).collect();
    for event in &committed {
        world.owe_all(&event.invoice);
    }
    world.transaction(&aborted, false).await;
    world.transaction(&committed, true).await;
    world.transaction(&aborted, false).await;
    // A position never gets past a marker at the end by itself: a record follows.
    world.pay_many(6, 5, 1).await;
    world.settled().await;
    assert_eq!(world.provider.counts().received, 10);
    world.check_invariants().await;
}
