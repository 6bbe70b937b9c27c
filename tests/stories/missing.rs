//! What is missing and what is not: versions that a person gave up, waits that a file ended, holds that an entity has
//! gone by, and who goes when many wait.

use oncely_rig::provider::{Fault, Rule};
use oncely_tests::ledger::{Ending, Fate};
use oncely_tests::wiring::{hook, note, receipt, usage};
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s23_what_is_noted_of_versions_goes_when_nobody_can_ask_for_it() {
    let wiring = wiring("gap-kept", "{ wait: 10m, first: 1 }");
    let mut world = World::plan(wiring).partitions(1).start().await;
    world.run().await;
    // Parked in its turn: the second version is passed, and once the entity is further, nothing is noted.
    let [past_due, ..] = life(&World::invoice(1));
    send(&world, &past_due, 0, Fate::Applied).await;
    let again = Event::past_due(&past_due.invoice, 2);
    world.event(&again, 0, Fate::Parked("invalid_transition")).await;
    let passed = "SELECT count(*) FROM oncely.passed";
    world.until_count("it to be passed", passed, 1).await;
    // Of entities that never came to be, long ago and lately; of one that is there; and of a gap.
    world
        .sql(
            "INSERT INTO oncely.passed (entity, version, noted_at, connector)
             SELECT gen_random_uuid(), 3, now() - days * interval '1 day', c.id
             FROM oncely.connector c, unnest(ARRAY[40, 40, 1]) AS days",
        )
        .await;
    world
        .sql(
            "INSERT INTO oncely.ahead (entity, version, noted_at, connector)
             SELECT e.key, 30 + days, now() - days * interval '1 day', c.id
             FROM oncely.connector c, oncely.entity e, unnest(ARRAY[40, 1]) AS days",
        )
        .await;
    world.until_count("those of entities that never were to go", passed, 2).await;
    let ahead = "SELECT count(*) FROM oncely.ahead";
    world.until_count("the old one ahead to go", ahead, 1).await;
    send(&world, &Event::paid(&past_due.invoice, 3), 0, Fate::Applied).await;
    world.settled().await;
    assert_eq!((world.count(passed).await, world.count(ahead).await), (1, 1));
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k16_a_time_counts_what_lies_before_aborted_records_and_not_these() {
    let mut wiring = wiring("gap-aborted", "{ wait: 1s, then: apply, first: 1 }");
    (wiring.open_effects_max, wiring.offset_wait) = (10, "0s");
    let mut world = World::plan(wiring).partitions(1).start().await;
    let worker = world.run().await;
    // Nothing but aborted records follows: what the first one waits for never lay there.
    let aborted: Vec<Event> = (1..=1_200).map(|number| Event::paid("aborted", number)).collect();
    let [_, lonely, _] = life(&World::invoice(1));
    send(&world, &lonely, 0, Fate::Applied).await;
    world.transaction(&aborted, false).await;
    world
        .until_count(
            "its time to be over",
            "SELECT count(*) FROM oncely.deferred WHERE escalated",
            1,
        )
        .await;
    // With the provider away the intake stops, and what the second one waits for lies unread before such records.
    let [past_due, paid, _] = life(&World::invoice(2));
    world.provider_proxy.listener_off().await;
    send(&world, &paid, 0, Fate::Applied).await;
    for number in 11..=30 {
        send(&world, &Event::paid(&World::invoice(number), 1), 0, Fate::Applied).await;
    }
    let paused = "oncely_intake_paused";
    world.until("a pause", async || world.workers[worker].metric(paused, "").await == 1.0).await;
    send(&world, &past_due, 0, Fate::Applied).await;
    world.transaction(&aborted, false).await;
    let over = "SELECT count(*) FROM oncely.deferred WHERE due_at < now() - interval '3s' AND closed_at IS NULL";
    world.until_count("its time to come and pass", over, 1).await;
    world.provider_proxy.listener_on().await.unwrap();
    // A position does not get past aborted records by itself.
    send(&world, &Event::paid(&World::invoice(31), 1), 0, Fate::Applied).await;
    world.settled().await;
    let escalated = "SELECT count(*) FROM oncely.deferred WHERE escalated";
    assert_eq!(world.count(escalated).await, 1, "the second one went with what it waited for");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k12_a_topic_made_anew_does_not_hold_up_a_time_for_ever() {
    let mut wiring = wiring("gap-anew", "{ wait: 10m, then: apply, first: 1 }");
    (wiring.open_effects_max, wiring.offset_wait) = (5, "0s");
    let mut world = World::plan(wiring).partitions(1).unsampled().start().await;
    let worker = world.run().await;
    world.provider_proxy.listener_off().await;
    let [_, paid, _] = life(&World::invoice(1));
    world.event(&paid, 0, Fate::Applied).await;
    world.until_count("it to wait", WAITING, 1).await;
    for number in 11..=30 {
        world.event(&Event::paid(&World::invoice(number), 1), 0, Fate::Ignored).await;
    }
    let paused = "oncely_intake_paused";
    world.until("a pause", async || world.workers[worker].metric(paused, "").await == 1.0).await;
    world.event(&Event::paid(&World::invoice(31), 1), 0, Fate::Ignored).await;
    world.sql("UPDATE oncely.deferred SET due_at = now()").await;
    let over = "SELECT count(*) FROM oncely.deferred WHERE due_at < now() - interval '2s' AND closed_at IS NULL";
    world.until_count("its time to come", over, 1).await;
    // What lay there is gone, and with it whatever would have been waited for.
    let topic = world.topic().to_owned();
    world.kafka().delete_topic(&topic).await.unwrap();
    world.kafka().create_topic(&topic, 1, &[]).await.unwrap();
    world.forget_topic().await;
    world.provider_proxy.listener_on().await.unwrap();
    world.until_count("its time to be over", WAITING, 0).await;
    // The books were kept of the topic that is gone: no comparison.
    world.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_overdue_events_of_one_entity_starve_no_other() {
    let wiring = wiring("gap-crowd", "{ wait: 1d, first: 1 }");
    let mut world = World::plan(wiring).partitions(1).unsampled().start().await;
    world.run().await;
    // More than one look takes. The lowest of them goes, and those behind it are no step from there.
    let crowd = World::invoice(1);
    send(&world, &Event::past_due(&crowd, 3), 0, Fate::Applied).await;
    for version in 4..=254 {
        let fate = Fate::Parked("invalid_transition");
        world.event(&Event::past_due(&crowd, version), 0, fate).await;
    }
    let [_, alone, _] = life(&World::invoice(2));
    send(&world, &alone, 0, Fate::Applied).await;
    world.until_count("all to wait", WAITING, 253).await;
    let time = "UPDATE oncely.deferred SET due_at = now() - CASE
            WHEN business_id = '{alone}' THEN interval '1 minute' ELSE interval '1 hour' END
        WHERE version <> 3";
    world.sql(&time.replace("{alone}", &alone.id)).await;
    world.until_count("nobody to wait", WAITING, 0).await;
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_behind_held_effects_pauses_no_intake() {
    let effects = [note(), receipt().with("after: [note]"), usage()];
    let mut wiring = Wiring::invoices("held-intake").effects(effects);
    wiring.open_effects_max = 3;
    let mut world = World::plan(wiring).start().await;
    let worker = world.run().await;
    world.provider.fail(Rule::times(4, Fault::CloseAfter).to("/plain/notes"));
    for number in 1..=4 {
        let name = World::invoice(number);
        let event = Event::paid(&name, 1);
        world.owe("note", &name, Ending::Held);
        world.owe("receipt", &name, Ending::Blocked);
        world.owe("usage", &event.id, Ending::Done);
        world.event(&event, 0, Fate::Applied).await;
        let held = i64::try_from(number).unwrap();
        world.until("it to be held", async || world.effects_in("held").await == held).await;
    }
    // Longer than it takes to count; then there are four that nothing but a person's word lets go.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    world.pay_many(11, 1, 1).await;
    world
        .until("the next one", async || {
            world.status_of("receipt", &World::invoice(11)).await.as_deref() == Some("done")
        })
        .await;
    assert_eq!(world.workers[worker].metric("oncely_intake_paused", "").await, 0.0);
    assert!(!world.workers[worker].log().contains("too many effects are open"));
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sibling_of_the_scope_does_not_adopt_what_waits() {
    let mut wiring = wiring("gap-sibling", "{ wait: 1d, first: 1 }");
    wiring.decode = "{ format: json }\nscope: siblings";
    let mut world = World::plan(wiring).partitions(1).unsampled().start().await;
    let mut sibling = world.wiring.clone();
    (sibling.name, sibling.group) =
        (format!("{}-b", world.name), format!("oncely.{}-b", world.name));
    sibling.topic = world.make_out(1).await;
    let file = |name: &str| world.dir().join("connectors").join(name);
    let (story, siblings, aside) = (file("story.yaml"), file("sibling.yaml"), file("story.aside"));
    // Both are known, each from a process of its own: two whose events wait are refused together.
    std::fs::rename(&story, &aside).unwrap();
    world.write_another("sibling.yaml", &sibling);
    let earlier = world.run().await;
    world.workers[earlier].kill9().await;
    std::fs::remove_file(&siblings).unwrap();
    std::fs::rename(&aside, &story).unwrap();
    let first = world.run().await;
    let [_, paid, _] = life(&World::invoice(1));
    world.event(&paid, 0, Fate::Deferred).await;
    world.until_count("it to wait", WAITING, 1).await;
    // Its connector goes, long after both came, and the sibling comes back.
    world.workers[first].kill9().await;
    std::fs::remove_file(&story).unwrap();
    world.write_another("sibling.yaml", &sibling);
    world
        .sql("UPDATE oncely.connector SET registered_at = now() - interval '1 day', seen_at = now() - interval '5 minutes'")
        .await;
    let second = world.run().await;
    let seen = "SELECT count(*) FROM oncely.connector WHERE seen_at > now() - interval '1 minute'";
    world.until_count("the sibling to be seen", seen, 1).await;
    // It takes over, or not, in the same breath.
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let own = "SELECT count(*) FROM oncely.deferred d JOIN oncely.connector c ON c.id = d.connector
        WHERE c.seen_at < now() - interval '4 minutes' AND d.closed_at IS NULL";
    assert_eq!(world.count(own).await, 1);
    // One that came as the other went is another name of it.
    world.sql("UPDATE oncely.connector SET registered_at = now() WHERE name LIKE '%-b'").await;
    world.workers[second].kill9().await;
    world.run().await;
    world.until_count("it to be taken over", own, 0).await;
    assert_eq!(world.count(WAITING).await, 1);
    // The file of the story is gone, so there is nothing to compare with.
    world.stop_all().await;
}
