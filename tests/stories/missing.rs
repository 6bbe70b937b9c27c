//! What is missing and what is not: versions that a person gave up, waits that a file ended, holds that an entity has
//! gone by, and who goes when many wait.

use oncely_tests::ledger::Fate;
use oncely_tests::wiring::hook;
use oncely_tests::{Event, Wiring, World};

use super::gaps::{PARKED, WAITING, life, send, wiring};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_a_person_gives_up_is_missing_no_more() {
    let wiring = wiring("gap-given-up", "{ wait: 10m, then: quarantine }");
    let mut world = World::plan(wiring).unsampled().start().await;
    world.run().await;
    world.run().await;
    let names = [World::invoice(1), World::invoice(2)];
    let steps = |name: &str| {
        let [past_due, paid, third] = life(name);
        (past_due, paid, third, Event::new("invoice.voided", name, 4))
    };
    for (name, parked) in names.iter().zip(1..) {
        let (past_due, _, third, _) = steps(name);
        send(&world, &past_due, 0, Fate::Applied).await;
        world.event(&third, 0, Fate::Ignored).await;
        world.until_count("it to wait", WAITING, 1).await;
        world.overrides(&["deferred", "release", "--id", &third.id]).await;
        world.until_count("it to be parked", PARKED, parked).await;
    }
    // While a person may still have it run, whatever follows it waits; once it is given up, nothing does.
    let (_, second, third, fourth) = steps(&names[0]);
    send(&world, &second, 1, Fate::Applied).await;
    send(&world, &fourth, 1, Fate::Applied).await;
    world.until_count("the fourth to wait", WAITING, 1).await;
    world.overrides(&["quarantine", "discard", "--id", &third.id]).await;
    world.until_count("nobody to wait", WAITING, 0).await;
    // Given up before the missing one comes.
    let (_, second, third, fourth) = steps(&names[1]);
    world.overrides(&["quarantine", "discard", "--id", &third.id]).await;
    send(&world, &fourth, 1, Fate::Applied).await;
    world.until_count("the other fourth to wait", WAITING, 1).await;
    let listed = world.oncely(&["deferred", "list"]).await;
    assert_eq!(listed.json["deferred"][0]["reached"], 1, "{listed:?}");
    send(&world, &second, 0, Fate::Applied).await;
    world.settled().await;
    let left = "SELECT (SELECT count(*) FROM oncely.passed) + (SELECT count(*) FROM oncely.ahead)";
    assert_eq!(world.count(left).await, 0, "entities have come as far");
    let states = "SELECT count(*) FROM oncely.entity WHERE state = 'voided' AND version = 4";
    assert_eq!(world.count(states).await, 2);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_lets_nothing_wait_any_more_lets_go_first_what_waits() {
    let wiring = wiring("gap-file", "{ wait: 10m, first: 1 }");
    let mut world = World::plan(wiring).unsampled().start().await;
    let first = world.run().await;
    let names: Vec<String> = (1..=40).map(World::invoice).collect();
    for name in &names {
        let [_, paid, _] = life(name);
        send(&world, &paid, 0, Fate::Applied).await;
    }
    world.until_count("all to wait", WAITING, 40).await;
    // Half of them get their next version while nobody runs, so that it is read at once by the new file.
    world.workers[first].kill9().await;
    for name in &names[..20] {
        let [_, _, voided] = life(name);
        send(&world, &voided, 1, Fate::Applied).await;
    }
    world.wiring.on_gap = "apply";
    world.write_wiring();
    world.run().await;
    world.settled().await;
    let in_order = "SELECT count(*) FROM oncely.inbox WHERE from_state = 'paid' AND version = 3";
    assert_eq!(world.count(in_order).await, 20);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d15_a_parked_record_that_its_entity_has_gone_by_holds_nothing() {
    let mut hook = hook();
    hook.replace("key: event.id", "key: [event.id, event.data.amount]");
    let mut wiring = Wiring::invoices("hold-gone").effects([hook]);
    wiring.on_parked = "wait";
    let mut world = World::plan(wiring).unsampled().start().await;
    world.run().await;
    let [past_due, paid, voided] = life(&World::invoice(1));
    for event in [&past_due, &paid] {
        world.event(event, 0, Fate::Applied).await;
    }
    // Another content under the first one's id: a copy that was changed, long after.
    world.event(&past_due.clone().amount(7), 0, Fate::Parked("conflict")).await;
    world.until_count("the conflict", PARKED, 1).await;
    world.event(&voided, 1, Fate::Applied).await;
    world.settled().await;
    world.until("calls", async || world.effects_in("done").await == 3).await;
    // One that is parked from before, by a version that did not look.
    world
        .sql("UPDATE oncely.parked SET holds = (SELECT key FROM oncely.entity), held_version = 1")
        .await;
    world
        .event(
            &Event::new("invoice.voided", &World::invoice(1), 4),
            1,
            Fate::Parked("invalid_transition"),
        )
        .await;
    world.until_count("it is decided", PARKED, 2).await;
    assert_eq!(world.count(WAITING).await, 0);
    world.stop_all().await;
    assert_eq!(world.provider.read_log().unwrap().repeated().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_person_lets_go_takes_along_what_stands_before_it() {
    let wiring = wiring("gap-before", "{ wait: 10m, first: 1 }");
    let mut world = World::plan(wiring).start().await;
    world.run().await;
    let name = World::invoice(1);
    let (paid, voided) = (Event::paid(&name, 3), Event::new("invoice.voided", &name, 7));
    send(&world, &paid, 0, Fate::Applied).await;
    send(&world, &voided, 0, Fate::Applied).await;
    world.until_count("both to wait", WAITING, 2).await;
    let listed = world.oncely(&["deferred", "list", "--id", &paid.id]).await;
    let number = listed.json["deferred"][0]["number"].clone();
    let dry = ["deferred", "release", "--id", &voided.id, "--reason", "x", "--dry-run"];
    let would = world.oncely(&dry).await;
    assert_eq!(
        (&would.json["released"], &would.json["before"][0]),
        (&2.into(), &number),
        "{would:?}"
    );
    world.overrides_many(&["deferred", "release", "--id", &voided.id], 2).await;
    world.until_count("nobody to wait", WAITING, 0).await;
    world.settled().await;
    world.check_invariants().await;
}
