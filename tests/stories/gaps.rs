//! Events that wait for others of their entity: for a missing version, or behind a parked record.

use oncely::crash::{Action, Order, Point, Side, Step};
use oncely_tests::ledger::{Ending, Fate};
use oncely_tests::wiring::{hook, usage};
use oncely_tests::{Event, Wiring, World};

/// Events that wait.
pub(super) const WAITING: &str = "SELECT count(*) FROM oncely.deferred WHERE closed_at IS NULL";
/// Records that are parked.
pub(super) const PARKED: &str = "SELECT count(*) FROM oncely.parked WHERE closed_at IS NULL";

pub(super) fn wiring(name: &str, on_gap: &'static str) -> Wiring {
    let mut wiring = Wiring::invoices(name).effects([hook(), usage()]);
    wiring.on_gap = on_gap;
    wiring
}

/// The three steps of an invoice's life.
pub(super) fn life(name: &str) -> [Event; 3] {
    [Event::past_due(name, 1), Event::paid(name, 2), Event::new("invoice.voided", name, 3)]
}

/// Writes an event, and books what it owes.
pub(super) async fn send(world: &World, event: &Event, partition: i32, fate: Fate) {
    if fate == Fate::Applied {
        world.owe("hook", &event.id, Ending::Done);
    }
    if matches!(fate, Fate::Applied | Fate::Stale) {
        world.owe("usage", &event.id, Ending::Done);
    }
    world.event(event, partition, fate).await;
}

/// Invoices that nothing is wrong with.
async fn pay_others(world: &World) -> Vec<String> {
    let names: Vec<String> = (101..=120).map(World::invoice).collect();
    for (name, number) in names.iter().zip(0..) {
        send(world, &Event::paid(name, 1), number % 2, Fate::Applied).await;
    }
    names
}

/// The hooks of an invoice as they arrived first.
async fn hooks(world: &World, name: &str) -> Vec<String> {
    let mut keys = Vec::new();
    for event in life(name) {
        keys.push((world.key_of("hook", &event.id).await, event.id));
    }
    let log = world.provider.read_log().unwrap();
    let order = log.keys_in_order("/keyed/hooks");
    let place = |key: &str| order.iter().position(|known| *known == key);
    keys.sort_by_key(|(key, _)| place(key));
    keys.into_iter().map(|(_, id)| id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn later_versions_of_another_partition_wait_and_go_with_the_missing_one() {
    let wiring = wiring("gap-order", "{ wait: 10m, first: 1 }");
    let mut world = World::plan(wiring).start().await;
    let worker = world.run().await;
    world.run().await;
    let names: Vec<String> = (1..=6).map(World::invoice).collect();
    for name in &names {
        let [_, paid, voided] = life(name);
        send(&world, &voided, 1, Fate::Applied).await;
        send(&world, &paid, 0, Fate::Applied).await;
    }
    world.until_count("all to wait", WAITING, 12).await;
    // A copy of one that waits is a repeat; another content under its id is a conflict.
    let [_, paid, voided] = life(&names[0]);
    world.event(&voided, 0, Fate::Applied).await;
    world.event(&paid.clone().amount(7), 1, Fate::Parked("conflict")).await;
    world.until_count("the conflict", PARKED, 1).await;
    let told = world.oncely(&["explain", &voided.id, "--tenant", "acct_7"]).await;
    assert!(
        told.json.to_string().contains("versions 1 to 2")
            || told.json.to_string().contains("first version"),
        "{told:?}"
    );
    let listed = world.oncely(&["deferred", "list", "--id", &voided.id]).await;
    assert_eq!(listed.json["deferred"][0]["cause"], "gap", "{listed:?}");
    let gauge = "oncely_deferred_open";
    world
        .until("the gauge", async || {
            let (one, two) = (&world.workers[worker], &world.workers[1 - worker]);
            one.metric(gauge, "cause=\"gap\"").await + two.metric(gauge, "cause=\"gap\"").await
                == 12.0
        })
        .await;
    // Their offsets went: nothing of theirs is unfinished for Kafka.
    world.until("offsets", async || world.committed(1).await >= Some(6)).await;
    // Of the last one a person knows that its first version never was; the others get theirs.
    let (last, names) = names.split_last().unwrap();
    let [_, lost, behind] = life(last);
    let dry = ["deferred", "release", "--id", &lost.id, "--reason", "x", "--dry-run"];
    assert_eq!(world.oncely(&dry).await.json["released"], 1);
    world.overrides(&["deferred", "release", "--id", &lost.id]).await;
    world.until_count("two of it to go", WAITING, 10).await;
    for event in [&lost, &behind] {
        let inbox =
            "SELECT count(*) FROM oncely.deferred WHERE closed_as = 'applied' AND business_id";
        assert_eq!(world.count(&format!("{inbox} = '{}'", event.id)).await, 1);
    }
    for name in names {
        let [past_due, ..] = life(name);
        send(&world, &past_due, 0, Fate::Applied).await;
    }
    world.settled().await;
    for name in names {
        let ids = life(name).map(|event| event.id);
        assert_eq!(hooks(&world, name).await, ids);
    }
    // In one transaction, unless the missing one came by another process in the very moment.
    let apart = "SELECT count(*) FROM oncely.deferred d JOIN oncely.entity e ON e.key = d.entity
        WHERE d.closed_at <> e.updated_at";
    assert_eq!(world.count(apart).await, 0);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_its_time_the_lowest_applies_and_the_missing_one_is_stale() {
    let wiring = wiring("gap-late", "{ wait: 2s, then: apply, first: 1 }");
    let mut world = World::plan(wiring).partitions(3).lease_ms(900).start().await;
    let first = world.run().await;
    world.run().await;
    world.run().await;
    let names: Vec<String> = (1..=12).map(World::invoice).collect();
    for name in &names {
        let [_, paid, voided] = life(name);
        send(&world, &voided, 0, Fate::Applied).await;
        send(&world, &paid, 1, Fate::Applied).await;
    }
    world.until_count("all to wait", WAITING, 24).await;
    world.workers[first].kill9().await;
    // Two are left; either may find that time is up.
    world.until_count("nobody to wait", WAITING, 0).await;
    let escalated = "SELECT count(*) FROM oncely.deferred WHERE escalated";
    assert_eq!(world.count(escalated).await, 12, "the second versions; the third ones follow");
    for name in &names {
        let [past_due, ..] = life(name);
        send(&world, &past_due, 0, Fate::Stale).await;
    }
    world.settled().await;
    let mut counted = 0.0;
    for worker in &world.workers[1..] {
        counted += worker.metric("oncely_deferred_escalated_total", "then=\"apply\"").await;
        assert!(!worker.log().contains("sweep failed"), "{}", worker.log());
    }
    assert_eq!(counted, 12.0);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_time_is_not_over_while_what_is_missing_lies_unread() {
    let wiring = wiring("gap-unread", "{ wait: 1s, then: apply, first: 1 }");
    let mut world = World::plan(wiring).start().await;
    let worker = world.run().await;
    let names: Vec<String> = (1..=4).map(World::invoice).collect();
    for name in &names {
        let [_, paid, voided] = life(name);
        send(&world, &voided, 1, Fate::Applied).await;
        send(&world, &paid, 1, Fate::Applied).await;
    }
    world.until_count("all to wait", WAITING, 8).await;
    world.workers[worker].kill9().await;
    // Nobody reads, and what is missing is written: behind much else.
    pay_others(&world).await;
    for name in &names {
        let [past_due, ..] = life(name);
        send(&world, &past_due, 0, Fate::Applied).await;
    }
    let over = "SELECT count(*) FROM oncely.deferred WHERE due_at < now() AND closed_at IS NULL";
    world.until_count("their time to come", over, 8).await;
    world.run().await;
    world.settled().await;
    for name in &names {
        let ids = life(name).map(|event| event.id);
        assert_eq!(hooks(&world, name).await, ids, "in order, and none was passed over");
    }
    assert_eq!(world.count("SELECT count(*) FROM oncely.deferred WHERE escalated").await, 0);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_its_time_it_is_quarantined_and_a_person_runs_it_later() {
    let wiring = wiring("gap-parked", "{ wait: 1s, then: quarantine }");
    let mut world = World::plan(wiring).unsampled().start().await;
    world.run().await;
    let name = World::invoice(1);
    let [past_due, paid, voided] = life(&name);
    send(&world, &past_due, 0, Fate::Applied).await;
    send(&world, &voided, 0, Fate::Applied).await;
    world.until_count("it to be parked", PARKED, 1).await;
    let listed = world.oncely(&["quarantine", "list"]).await;
    assert_eq!(listed.json["parked"][0]["reason"], "version_gap", "{listed:?}");
    send(&world, &paid, 1, Fate::Applied).await;
    world
        .until("the late one", async || {
            world.status_of("hook", &paid.id).await.as_deref() == Some("done")
        })
        .await;
    world.overrides(&["quarantine", "release", "--all"]).await;
    world.until_count("none to be parked", PARKED, 0).await;
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w1_w8_killed_around_the_commits_that_defer_and_that_let_go() {
    for side in [Side::Before, Side::After] {
        let wiring = wiring(&format!("gap-{side:?}").to_lowercase(), "{ wait: 10m, first: 1 }");
        let mut world = World::plan(wiring).lease_ms(900).start().await;
        let point = Point { step: Step::BatchCommit, side };
        let order = Order { point, nth: 1, action: Action::Kill };
        let names: Vec<String> = (1..=4).map(World::invoice).collect();
        let armed = world.spawn_armed(order);
        world.wait_ready(armed).await;
        world.permit_crash();
        for name in &names {
            let [_, paid, voided] = life(name);
            send(&world, &voided, 0, Fate::Applied).await;
            send(&world, &paid, 1, Fate::Applied).await;
        }
        world.crashed(order).await;
        world.next_crash();
        // What was deferred is read again, and waits once.
        let armed = world.spawn_armed(order);
        world.wait_ready(armed).await;
        world.until_count("all to wait", WAITING, 8).await;
        world.permit_crash();
        for name in &names {
            let [past_due, ..] = life(name);
            send(&world, &past_due, 1, Fate::Applied).await;
        }
        world.crashed(order).await;
        world.run().await;
        world.settled().await;
        for name in &names {
            let ids = life(name).map(|event| event.id);
            assert_eq!(hooks(&world, name).await, ids, "{order}");
        }
        world.check_invariants().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e10_versions_that_two_processes_read_at_once_wait_for_nobody() {
    // Nobody could wait so long: whoever misses the other one's commit finds it soon.
    let wiring = wiring("gap-race", "{ wait: 1d, first: 1 }");
    let mut world = World::plan(wiring).start().await;
    world.run().await;
    world.run().await;
    let names: Vec<String> = (1..=40).map(World::invoice).collect();
    for (name, number) in names.iter().zip(0..) {
        let [past_due, paid, voided] = life(name);
        let (one, other) = (number % 2, 1 - number % 2);
        tokio::join!(
            send(&world, &paid, one, Fate::Applied),
            send(&world, &past_due, other, Fate::Applied),
            send(&world, &voided, other, Fate::Applied),
        );
    }
    world.settled().await;
    for name in &names {
        let ids = life(name).map(|event| event.id);
        assert_eq!(hooks(&world, name).await, ids);
    }
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d15_b50_a_parked_record_holds_its_entity_and_no_other() {
    let mut hook = hook();
    hook.replace("key: event.id", "key: [event.id, event.data.amount]");
    let mut wiring = Wiring::invoices("hold").effects([hook]);
    wiring.on_parked = "wait\n  max_deferred: 100";
    let mut world = World::plan(wiring).unsampled().start().await;
    world.run().await;
    world.run().await;
    let names: Vec<String> = (1..=3).map(World::invoice).collect();
    for name in &names {
        let [past_due, ..] = life(name);
        world.event(&past_due, 0, Fate::Applied).await;
    }
    world.settled().await;
    // The second record of two invoices says another thing under the first one's id.
    let conflict = |name: &str| {
        let [past_due, ..] = life(name);
        Event { version: 2, amount: 7, kind: "invoice.paid".to_owned(), ..past_due }
    };
    for name in &names[..2] {
        world.event(&conflict(name), 0, Fate::Ignored).await;
    }
    world.until_count("two in quarantine", PARKED, 2).await;
    for name in &names {
        let [_, _, voided] = life(name);
        world.event(&voided, 1, Fate::Applied).await;
    }
    // The third invoice goes on.
    let [_, _, third] = life(&names[2]);
    world
        .until("the third invoice", async || {
            world.status_of("hook", &third.id).await.as_deref() == Some("done")
        })
        .await;
    world.until_count("two that wait", WAITING, 2).await;
    let listed = world.oncely(&["deferred", "list"]).await;
    let number = |name: &str| {
        let rows = listed.json["deferred"].as_array().unwrap();
        let [_, _, voided] = life(name);
        let row = rows.iter().find(|row| row["business_id"] == voided.id.as_str()).unwrap();
        assert!(row["due_at"].is_null(), "{row}");
        row["behind"].to_string()
    };
    let (discarded, released) = (number(&names[0]), number(&names[1]));
    // One is given up, and what waited behind it goes.
    world.overrides(&["quarantine", "discard", &discarded]).await;
    world.until_count("one to wait", WAITING, 1).await;
    // The other is run: first it, then what waited behind it.
    world.overrides(&["quarantine", "release", &released]).await;
    world.until_count("none to wait", WAITING, 0).await;
    world.until_count("none parked", PARKED, 0).await;
    let states = "SELECT count(*) FROM oncely.entity WHERE state = 'voided' AND version = 3";
    assert_eq!(world.count(states).await, 3);
    world.until("calls", async || world.effects_in("done").await == 7).await;
    let order =
        "SELECT count(*) FROM oncely.inbox WHERE from_state = 'paid' AND to_state = 'voided'";
    assert_eq!(world.count(order).await, 1, "the released one came first");
    world.stop_all().await;
    assert_eq!(world.provider.read_log().unwrap().repeated().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d15_an_invalid_record_holds_its_own_through_kills_until_a_person_decides() {
    let mut wiring = wiring("hold-kill", "apply");
    wiring.on_parked = "wait";
    let mut world = World::plan(wiring).lease_ms(900).start().await;
    let first = world.run().await;
    world.run().await;
    let names: Vec<String> = (1..=8).map(World::invoice).collect();
    // An invoice is past due once; a second time is no step. Two of them stay so to the end.
    let again = |name: &str| Event::past_due(name, 2);
    for (name, number) in names.iter().zip(0..) {
        let fate = if number < 2 { Fate::Parked("invalid_transition") } else { Fate::Ignored };
        send(&world, &Event::past_due(name, 1), 0, Fate::Applied).await;
        world.event(&again(name), 0, fate).await;
    }
    world.until_count("eight in quarantine", PARKED, 8).await;
    for (name, number) in names.iter().zip(0..) {
        let fate = if number < 2 { Fate::Deferred } else { Fate::Applied };
        send(&world, &Event::new("invoice.voided", name, 4), 1, fate).await;
        send(&world, &Event::paid(name, 3), 0, fate).await;
    }
    // Others go on meanwhile.
    let others = pay_others(&world).await;
    world.until_count("all behind them to wait", WAITING, 16).await;
    world.workers[first].kill9().await;
    world.run().await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(world.count(WAITING).await, 16, "no time lets them go");
    for name in &others {
        let id = Event::paid(name, 1).id;
        assert_eq!(world.status_of("hook", &id).await.as_deref(), Some("done"));
    }
    for name in &names[2..] {
        world.overrides(&["quarantine", "discard", "--id", &again(name).id]).await;
    }
    world.until_count("those of six to go", WAITING, 4).await;
    world.settled().await;
    let moved =
        "SELECT count(*) FROM oncely.inbox WHERE from_state = 'paid' AND to_state = 'voided'";
    assert_eq!(world.count(moved).await, 6, "in the order of their versions");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s23_more_than_may_wait_are_quarantined_with_their_cause() {
    let mut wiring = wiring("gap-full", "{ wait: 10m, first: 1 }");
    wiring.on_parked = "apply\n  max_deferred: 3";
    let mut world = World::plan(wiring).partitions(1).unsampled().start().await;
    let worker = world.run().await;
    let names: Vec<String> = (1..=6).map(World::invoice).collect();
    for (name, decided) in names.iter().zip(1..) {
        let [_, paid, _] = life(name);
        send(&world, &paid, 0, Fate::Applied).await;
        // One after the other: writers that count at once may all find room.
        world.until_count("a decision", "SELECT count(*) FROM oncely.inbox", decided).await;
    }
    world.until_count("three to be parked", PARKED, 3).await;
    assert_eq!(world.count(WAITING).await, 3);
    let listed = world.oncely(&["quarantine", "list"]).await;
    assert_eq!(listed.json["parked"][0]["reason"], "deferred_full", "{listed:?}");
    let limit = world.workers[worker].metric("oncely_deferred_limit", "").await;
    assert_eq!(limit, 3.0);
    for name in &names {
        let [past_due, ..] = life(name);
        send(&world, &past_due, 0, Fate::Applied).await;
    }
    world.until_count("none to wait", WAITING, 0).await;
    world.overrides_many(&["quarantine", "release", "--all"], 3).await;
    world.until_count("none parked", PARKED, 0).await;
    world.settled().await;
    for name in &names {
        assert_eq!(world.status_of("hook", &life(name)[1].id).await.as_deref(), Some("done"));
    }
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b46_what_the_database_refuses_of_a_follower_parks_that_one_alone() {
    // The line of the second version has a text that no column takes.
    let mut line = usage();
    line.replace("metric: \"events\"", "metric: \"{{ event.data.currency }}\"");
    let mut wiring = Wiring::invoices("gap-nul").effects([hook(), line]);
    wiring.on_gap = "{ wait: 10m, first: 1 }";
    wiring.identity = "{ tenant: event.account, id: event.id, fingerprint: [event.type] }";
    let mut world = World::plan(wiring).partitions(1).unsampled().start().await;
    world.run().await;
    let [past_due, paid, voided] = life(&World::invoice(1));
    send(&world, &voided, 0, Fate::Applied).await;
    let mut json = paid.json();
    json["data"]["currency"] = "\u{0}".into();
    let record = oncely_tests::Record::of(json.to_string()).key(&paid.invoice);
    world.produce(&record, Some(&paid.id), Fate::Parked("refused_by_database")).await;
    world.until_count("both to wait", WAITING, 2).await;
    send(&world, &past_due, 0, Fate::Applied).await;
    // The first one went, the second one was found to be the cause, and is not missing.
    world.until_count("nobody to wait", WAITING, 0).await;
    world.settled().await;
    let listed = world.oncely(&["dlq", "list"]).await;
    assert_eq!(listed.json["parked"].as_array().unwrap().len(), 1, "{listed:?}");
    let states = "SELECT count(*) FROM oncely.entity WHERE state = 'voided' AND version = 3";
    assert_eq!(world.count(states).await, 1);
    assert_eq!(world.status_of("hook", &paid.id).await, None);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renamed_connector_lets_go_what_waited_under_its_old_name() {
    let wiring = wiring("gap-name", "{ wait: 3s, first: 1 }");
    let mut world = World::plan(wiring).partitions(1).unsampled().start().await;
    let first = world.run().await;
    let [_, paid, _] = life(&World::invoice(1));
    send(&world, &paid, 0, Fate::Applied).await;
    world.until_count("it to wait", WAITING, 1).await;
    world.workers[first].kill9().await;
    let old = "UPDATE oncely.connector SET name = 'old', seen_at = now() - interval '5 minutes'";
    world.sql(old).await;
    world.run().await;
    world.until_count("nobody to wait", WAITING, 0).await;
    world.settled().await;
    world.check_invariants().await;
}

/// A copy with other content is not the event of the version that it names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k17_a_conflicting_copy_brings_no_version() {
    let mut world = World::plan(wiring("gap-copy", "{ wait: 10m, first: 1 }")).start().await;
    world.run().await;
    let name = World::invoice(1);
    let [past_due, paid, third] = life(&name);
    send(&world, &past_due, 0, Fate::Applied).await;
    let copy = Event { version: 2, amount: 7, ..past_due };
    world.event(&copy, 0, Fate::Parked("conflict")).await;
    send(&world, &third, 0, Fate::Applied).await;
    world.until_count("the third to wait", WAITING, 1).await;
    send(&world, &paid, 1, Fate::Applied).await;
    world.settled().await;
    world.check_invariants().await;
}
