//! Dead letters and quarantine: sent to a topic, redriven, released, given up.

use std::time::Duration;

use oncely::crash::{Action, Order, Point, Side, Step};
use oncely_rig::provider::{Fault, Rule};
use oncely_tests::ledger::{Ending, Fate};
use oncely_tests::wiring::{WEBHOOK_SECRETS, charge, hook, receipt, usage, webhook};
use oncely_tests::{Event, Record, Wiring, World};

use super::gaps::{WAITING, life};

const OPEN: &str = "SELECT count(*) FROM oncely.parked WHERE closed_at IS NULL";

fn wiring(name: &str) -> Wiring {
    let mut wiring = Wiring::invoices(name);
    wiring.dead_letter = true;
    wiring
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b19_dead_letters_go_to_their_topic_byte_for_byte() {
    let mut world = World::plan(wiring("letters").effects([charge()])).lease_ms(900).start().await;
    let dlq = world.dlq();
    world.kafka().create_topic(&dlq, 1, &[]).await.unwrap();
    world.run().await;
    let odd = Record {
        key: Some(vec![0xff, 0]),
        value: Some(b"{\"a\":\xfe".to_vec()),
        headers: vec![
            ("h".to_owned(), Some(vec![0xfe])),
            ("h".to_owned(), None),
            ("i".to_owned(), Some(vec![])),
        ],
        timestamp_ms: Some(1_700_000_000_123),
        partition: 1,
    };
    let offset = world.produce(&odd, None, Fate::Parked("syntax")).await;
    world.produce(&Record::tombstone("gone"), None, Fate::Parked("null_value")).await;
    // An effect that is rejected: the record that owed it is its dead letter.
    world.provider.fail(Rule::once(Fault::status(400)).to("/v1/charges"));
    world.pay(&World::invoice(1), 0).await;
    world.owe("charge", &World::invoice(1), Ending::Rejected);
    world.settled().await;
    world.until("three letters", async || world.messages(&dlq).await.len() >= 3).await;
    let letters = world.messages(&dlq).await;
    let syntax =
        letters.iter().find(|one| one.header("oncely-reason").as_deref() == Some("syntax"));
    let syntax = syntax.unwrap();
    assert_eq!((&syntax.found.key, &syntax.found.value), (&odd.key, &odd.value));
    assert_eq!(syntax.found.headers[..3], odd.headers);
    assert_eq!(syntax.header("__connect.errors.topic").as_deref(), Some(world.topic()));
    assert_eq!(syntax.header("__connect.errors.offset"), Some(offset.to_string()));
    let spring =
        syntax.found.headers.iter().find(|(name, _)| name == "kafka_dlt-original-partition");
    assert_eq!(spring.unwrap().1.as_deref(), Some(&[0, 0, 0, 1][..]));
    let effect = letters.iter().find(|one| one.header("oncely-effect").is_some()).unwrap();
    assert_eq!(effect.header("oncely-effect").as_deref(), Some("charge"));
    assert_eq!(effect.json()["data"]["invoice"], World::invoice(1).as_str());
    assert_eq!(effect.key(), World::invoice(1));
    world.check_invariants().await;
    let (firsts, _) = world.deduplicated(&dlq).await;
    assert_eq!(firsts.len(), 3, "a replay makes no letters");
}

/// The brokers have the letter, and nobody has put that on record: it comes once more, and whoever reads the topic knows it
/// by its id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w11_a_letter_whose_mark_was_lost_comes_again_under_its_id() {
    let sent = ("letter-sent", Step::Publish, Side::After);
    for (name, step, side) in [sent, ("letter-answered", Step::PublishCommit, Side::Before)] {
        let wiring = wiring(name);
        let mut world = World::plan(wiring).lease_ms(900).start().await;
        let dlq = world.dlq();
        world.kafka().create_topic(&dlq, 1, &[]).await.unwrap();
        let order = Order { point: Point { step, side }, nth: 1, action: Action::Kill };
        let armed = world.spawn_armed(order);
        world.wait_ready(armed).await;
        world.permit_crash();
        let offset =
            world.produce(&Record::tombstone("gone"), None, Fate::Parked("null_value")).await;
        world.crashed(order).await;
        assert_eq!(world.messages(&dlq).await.len(), 1, "{order}: the brokers have it");
        world.run().await;
        world.until("the letter again", async || world.messages(&dlq).await.len() >= 2).await;
        world.settled().await;
        let (firsts, repeats) = world.deduplicated(&dlq).await;
        assert_eq!((firsts.len(), repeats), (1, 1), "{order}");
        assert_eq!(firsts[0].header("__connect.errors.offset"), Some(offset.to_string()));
        world.check_invariants().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d9_a_letter_too_large_for_its_topic_is_a_pointer() {
    let mut world = World::plan(wiring("pointer")).partitions(1).start().await;
    let dlq = world.dlq();
    world.kafka().create_topic(&dlq, 1, &[("max.message.bytes", "3000")]).await.unwrap();
    world.run().await;
    let large = Record::of(format!("{{\"a\":\"{}", "x".repeat(20_000))).key("k");
    let offset = world.produce(&large, None, Fate::Parked("syntax")).await;
    world.until("a letter", async || !world.messages(&dlq).await.is_empty()).await;
    let letter = &world.messages(&dlq).await[0];
    assert_eq!(letter.found.value, None);
    let place = format!("{}[0]@{offset}", world.topic());
    assert_eq!(letter.header("oncely-pointer"), Some(place));
    assert_eq!(letter.header("oncely-value-bytes").as_deref(), Some("20006"));
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r27_a_redriven_record_is_decided_as_any_other_and_once() {
    // The file is wrong at first: it reads a member that no event has.
    let mut wiring = wiring("redrive").effects([charge(), usage()]);
    wiring.state_key = "event.data.bill";
    // What is parked is durable, though the books have it as applied from the beginning.
    let mut world = World::plan(wiring).lease_ms(900).unsampled().start().await;
    let dlq = world.dlq();
    world.kafka().create_topic(&dlq, 1, &[]).await.unwrap();
    let first = world.run().await;
    for number in 1..=6 {
        let event = Event::paid(&World::invoice(number), 1);
        world.owe("charge", &event.invoice, Ending::Done);
        world.owe("usage", &event.id, Ending::Done);
        world.event(&event, 0, Fate::Applied).await;
    }
    world.until_count("six parked", OPEN, 6).await;
    world.until("six letters", async || world.messages(&dlq).await.len() == 6).await;
    // Decided again by the same file, they stay; and the limit is told.
    world.overrides_many(&["dlq", "redrive", "--all"], 6).await;
    let again = "SELECT count(*) FROM oncely.parked WHERE redrives = 1 AND redrive_at IS NULL";
    world.until_count("all to be decided again", again, 6).await;
    world.until("letters anew", async || world.messages(&dlq).await.len() == 12).await;
    let count = world.messages(&dlq).await[11].header("oncely-redrive-count");
    assert_eq!(count.as_deref(), Some("1"));
    world.workers[first].sigterm();
    world.workers[first].wait_exit(Duration::from_secs(30)).await;
    world.wiring.state_key = "event.data.invoice";
    world.write_wiring();
    world.run().await;
    world.run().await;
    // A newer version of one of them comes first.
    let newer = Event::paid(&World::invoice(6), 2);
    world.owe("usage", &newer.id, Ending::Done);
    world.event(&newer, 0, Fate::Applied).await;
    world.settled().await;
    let dry = ["dlq", "redrive", "--connector", "redrive-none", "--reason", "x", "--dry-run"];
    assert!(!world.oncely(&dry).await.ok, "a filter that means nothing is no success");
    let dry = world.oncely(&["dlq", "redrive", "--all", "--reason", "x", "--dry-run"]).await;
    assert_eq!(dry.json["changed"], 6, "{dry:?}");
    // One of the two processes dies while they are taken up.
    world.overrides_many(&["dlq", "redrive", "--all"], 6).await;
    world.workers[1].kill9().await;
    world.until_count("none to be open", OPEN, 0).await;
    let stale = "SELECT count(*) FROM oncely.parked WHERE closed_as = 'stale'";
    assert_eq!(world.count(stale).await, 1, "the sixth had moved on");
    world.settled().await;
    // What first happened stays to be seen, whatever was decided since.
    let told = world.oncely(&["explain", &Event::paid(&World::invoice(1), 1).id]).await;
    let timeline = told.json["found"][0]["timeline"].as_array().unwrap();
    let whats: Vec<&str> = timeline.iter().map(|entry| entry["what"].as_str().unwrap()).collect();
    let order = ["received", "parked", "parked", "applied"];
    assert!(whats.starts_with(&order), "{told:?}");
    assert!(whats.contains(&"closed"), "{told:?}");
    world.forgive_stale(&Event::paid(&World::invoice(6), 1).id);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redriven_effect_is_tried_again_under_its_key_with_what_it_held_back() {
    let wiring =
        Wiring::invoices("reeffect").effects([charge(), receipt().with("after: [charge]"), hook()]);
    let mut world = World::plan(wiring).start().await;
    let worker = world.run().await;
    world.provider.fail(Rule::times(3, Fault::status(400)).to("/v1/charges"));
    let names = world.pay_many(1, 3, 1).await;
    world.until_count("three dead letters", OPEN, 3).await;
    world.settled().await;
    for name in &names {
        assert_eq!(world.status_of("receipt", name).await.as_deref(), Some("skipped"));
    }
    world.overrides(&["dlq", "discard", "--id", &format!("evt-{}-001", names[2])]).await;
    world.overrides_many(&["dlq", "redrive", "--effect", "charge"], 2).await;
    world.owe("charge", &names[2], Ending::Rejected);
    world.owe("receipt", &names[2], Ending::Skipped);
    world
        .until("receipts", async || {
            world.status_of("receipt", &names[0]).await.as_deref() == Some("done")
                && world.status_of("receipt", &names[1]).await.as_deref() == Some("done")
        })
        .await;
    world.until_count("none to be open", OPEN, 0).await;
    let gauge = "oncely_dead_letters_open";
    world
        .until("the gauge to fall", async || world.workers[worker].metric(gauge, "").await == 0.0)
        .await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redriven_effect_has_back_what_every_event_owed_after_it() {
    // One charge for each invoice, whichever of its events comes first; a hook for each event.
    let mut once = charge();
    once.replace(r#"when: entered("paid")"#, "when: event.data.amount > 0");
    let wiring = Wiring::invoices("reshared").effects([once, hook().with("after: [charge]")]);
    let mut world = World::plan(wiring).partitions(1).start().await;
    world.run().await;
    world.provider.fail(Rule::once(Fault::status(400)).to("/v1/charges"));
    let name = World::invoice(1);
    let events = [Event::past_due(&name, 1), Event::paid(&name, 2)];
    world.owe("charge", &name, Ending::Done);
    for event in &events {
        world.owe("hook", &event.id, Ending::Done);
        world.event(event, 0, Fate::Applied).await;
        world.settled().await;
        assert_eq!(world.status_of("hook", &event.id).await.as_deref(), Some("skipped"));
    }
    // Retention has taken the request; the open dead letter still has it.
    world.sql("UPDATE oncely.effect SET request = NULL WHERE name = 'charge'").await;
    world.overrides(&["dlq", "redrive", "--effect", "charge"]).await;
    world.settled().await;
    for event in &events {
        assert_eq!(world.status_of("hook", &event.id).await.as_deref(), Some("done"));
    }
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_to_an_endpoint_that_came_back_is_redriven() {
    let wiring = Wiring::invoices("gone").effects([webhook()]);
    let mut world = World::plan(wiring).start().await;
    world.provider.set_webhook_secrets(WEBHOOK_SECRETS.map(|(_, secret)| secret.to_owned()));
    world.run().await;
    let endpoint = format!("http://{}/webhooks/a", world.provider_proxy.addr());
    world.provider.fail(Rule::once(Fault::status(410)).to("/webhooks/a"));
    for number in 1..=3 {
        let name = World::invoice(number);
        let event = Event::paid(&name, 1);
        let mut json = event.json();
        json["data"]["endpoint"] = endpoint.clone().into();
        world.owe("webhook", &name, Ending::Done);
        let record = Record::of(json.to_string()).key(&name);
        world.produce(&record, Some(&event.id), Fate::Applied).await;
        if number == 1 {
            world.until_count("a dead letter", OPEN, 1).await;
        }
    }
    world.until_count("three dead letters", OPEN, 3).await;
    world.overrides(&["webhooks", "enable", &endpoint]).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    world.overrides_many(&["dlq", "redrive", "--all"], 3).await;
    world.until_count("none to be open", OPEN, 0).await;
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k17_a_conflict_waits_for_a_verdict_and_is_run_beside_what_is_known() {
    let mut lines = hook();
    lines.replace("key: event.id", "key: [event.id, event.data.amount]");
    let wiring = Wiring::invoices("verdict").effects([lines]);
    let mut world = World::plan(wiring).partitions(1).start().await;
    world.run().await;
    for number in 1..=2 {
        let name = World::invoice(number);
        world.pay(&name, 0).await;
    }
    world.settled().await;
    for number in 1..=2 {
        let other = Event::paid(&World::invoice(number), 1).amount(999);
        world.event(&other, 0, Fate::Parked("conflict")).await;
    }
    world.until_count("two in quarantine", OPEN, 2).await;
    let listed = world.oncely(&["quarantine", "list"]).await;
    let number = |id: &str| {
        let rows = listed.json["parked"].as_array().unwrap();
        let of_id = |row: &&serde_json::Value| row["business_id"].as_str().unwrap().contains(id);
        rows.iter().find(of_id).unwrap()["number"].to_string()
    };
    let (first, second) = (number(&World::invoice(1)), number(&World::invoice(2)));
    let shown = world.oncely(&["quarantine", "show", &first]).await.json;
    assert!(shown["fingerprint"].is_string() && shown["known_fingerprint"].is_string(), "{shown}");
    assert_ne!(shown["fingerprint"], shown["known_fingerprint"]);
    assert!(shown["known_from"].as_str().unwrap().contains(world.topic()), "{shown}");
    world.overrides(&["quarantine", "release", &first]).await;
    world.overrides(&["quarantine", "discard", &second]).await;
    world.until_count("none to be open", OPEN, 0).await;
    let done = "SELECT count(*) FROM oncely.effect WHERE status = 'done'";
    world.until_count("the released one to be called", done, 3).await;
    let sums = "SELECT sum((regexp_match(convert_from(request, 'UTF8'), 'cents..:(\\d+)'))[1]::int)
        FROM oncely.effect";
    assert_eq!(world.count(sums).await, 1_200 + 1_200 + 999);
    let as_ = "SELECT count(*) FROM oncely.parked WHERE closed_as = 'applied'";
    assert_eq!(world.count(as_).await, 1);
    // The released content once more is a repeat of it; the discarded one waits for a verdict again.
    world.event(&Event::paid(&World::invoice(1), 1).amount(999), 0, Fate::Ignored).await;
    world.event(&Event::paid(&World::invoice(2), 1).amount(999), 0, Fate::Parked("conflict")).await;
    world.until_count("one in quarantine", OPEN, 1).await;
    world.settled().await;
    assert_eq!(world.count(done).await, 3);
    let audits = "SELECT count(*) FROM oncely.audit WHERE action LIKE 'quarantine %'";
    assert_eq!(world.count(audits).await, 2);
    // The books know one content for an id, and a verdict let another one in beside it: no invariants.
    world.stop_all().await;
    assert_eq!(world.provider.read_log().unwrap().repeated().len(), 0);
}

/// Released once, it stays what it is: whatever stops it then, and however often it is decided again, it is never taken
/// for a copy of the content that is known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k17_a_released_conflict_that_fails_is_run_once_the_file_is_mended() {
    let mut lines = hook();
    lines.replace("key: event.id", "key: 'event.data.amount == 999 ? event.nowhere : event.id'");
    let wiring = Wiring::invoices("mended").effects([lines]);
    let mut world = World::plan(wiring).partitions(1).start().await;
    let mut worker = world.run().await;
    for (number, amount) in [(1, 999), (2, 888)] {
        world.pay(&World::invoice(number), 0).await;
        let other = Event::paid(&World::invoice(number), 1).amount(amount);
        world.event(&other, 0, Fate::Parked("conflict")).await;
    }
    world.until_count("two in quarantine", OPEN, 2).await;
    // One has no key, the other the same one as what is known.
    world.overrides_many(&["quarantine", "release", "--all"], 2).await;
    // Again by the same file, which changes nothing.
    for times in 1..=2 {
        let stay = format!(
            "SELECT count(*) FROM oncely.parked WHERE closed_at IS NULL AND redrives = {times}
             AND reason IN ('expression_failed', 'effect_conflict')"
        );
        world.until_count("both to be parked anew", &stay, 2).await;
        if times == 1 {
            world.overrides(&["dlq", "redrive", "--all"]).await;
            world.overrides(&["quarantine", "release", "--all"]).await;
        }
    }
    world.workers[worker].sigterm();
    world.workers[worker].wait_exit(Duration::from_secs(30)).await;
    let key = "key: 'event.data.amount == 999 ? event.nowhere : event.id'";
    world.wiring.effects[0].replace(key, "key: [event.id, event.data.amount]");
    world.write_wiring();
    worker = world.run().await;
    world.overrides(&["dlq", "redrive", "--all"]).await;
    world.overrides(&["quarantine", "release", "--all"]).await;
    let done = "SELECT count(*) FROM oncely.effect WHERE status = 'done'";
    world.until_count("the second contents to be called", done, 4).await;
    let applied = "SELECT count(*) FROM oncely.parked WHERE closed_as = 'applied'";
    assert_eq!(world.count(applied).await, 2);
    let sums = "SELECT sum((regexp_match(convert_from(request, 'UTF8'), 'cents..:(\\d+)'))[1]::int)
        FROM oncely.effect";
    assert_eq!(world.count(sums).await, 1_200 + 1_200 + 999 + 888);
    // Copies of either content are copies.
    for (number, amount) in [(1, 999), (2, 888), (1, 1_200)] {
        let copy = Event::paid(&World::invoice(number), 1).amount(amount);
        world.event(&copy, 0, Fate::Ignored).await;
    }
    world.settled().await;
    assert_eq!(world.count(done).await, 4);
    let id = Event::paid(&World::invoice(1), 1).id;
    let told = world.oncely(&["explain", &id]).await;
    let found = told.json["found"].as_array().unwrap();
    assert_eq!(found.len(), 2, "what was released owes effects of its own: {}", told.json);
    assert!(found[0]["released"].is_null() && found[1]["released"].is_i64(), "{}", told.json);
    assert!(found[1]["timeline"].to_string().contains("hook"), "{}", told.json);
    assert!(world.workers[worker].runs());
    // The books know one content for an id, and a verdict let another one in beside it: no invariants.
    world.stop_all().await;
    assert_eq!(world.provider.read_log().unwrap().repeated().len(), 0);
}

/// One that had to wait first, and met its rival then, is still what was released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k17_d15_a_released_conflict_that_waits_and_is_parked_again_is_run_by_the_next_release() {
    let mut lines = hook();
    lines.replace("key: event.id", "key: [event.id, event.data.amount]");
    let mut wiring = Wiring::invoices("waited").effects([lines]);
    wiring.on_parked = "wait";
    let mut world = World::plan(wiring).partitions(1).start().await;
    world.run().await;
    let name = World::invoice(1);
    let [past_due, _, voided] = life(&name);
    world.event(&past_due, 0, Fate::Applied).await;
    // Another content for the first id, which claims the second version: it holds what comes after.
    let holds = Event { version: 2, amount: 7, kind: "invoice.paid".to_owned(), ..past_due };
    world.event(&holds, 0, Fate::Ignored).await;
    world.until_count("the first conflict", OPEN, 1).await;
    world.event(&voided, 0, Fate::Applied).await;
    world.until_count("its successor to wait", WAITING, 1).await;
    world.event(&voided.clone().amount(8), 0, Fate::Ignored).await;
    world.until_count("the second conflict", OPEN, 2).await;
    let listed = world.oncely(&["quarantine", "list"]).await;
    let number = |id: &str| {
        let rows = listed.json["parked"].as_array().unwrap();
        rows.iter().find(|row| row["business_id"] == id).unwrap()["number"].to_string()
    };
    let (first, second) = (number(&holds.id), number(&voided.id));
    world.overrides(&["quarantine", "release", &second]).await;
    world.until_count("both to wait", WAITING, 2).await;
    world.overrides(&["quarantine", "discard", &first]).await;
    let rival = "SELECT count(*) FROM oncely.parked WHERE closed_at IS NULL AND reason = 'version_conflict'";
    world.until_count("a rival of the same version", rival, 1).await;
    world.overrides(&["quarantine", "release", &second]).await;
    world.until_count("none to be open", OPEN, 0).await;
    let closed =
        format!("SELECT count(*) FROM oncely.parked WHERE id = {second} AND closed_as = 'applied'");
    assert_eq!(world.count(&closed).await, 1);
    world.until("three calls", async || world.effects_in("done").await == 3).await;
    // The books know one content for an id, and a verdict let another one in beside it: no invariants.
    world.stop_all().await;
    assert_eq!(world.provider.read_log().unwrap().repeated().len(), 0);
}

/// Offsets begin again in a topic that is made anew, and after a log was cut off: what lies at an old place is another
/// record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k9_k12_another_record_at_the_place_of_a_dead_letter_is_one_too() {
    let mut world = World::plan(wiring("again")).partitions(1).unsampled().start().await;
    let dlq = world.dlq();
    world.kafka().create_topic(&dlq, 1, &[]).await.unwrap();
    let first = world.run().await;
    world.produce(&Record::of("{\"first\":"), None, Fate::Parked("syntax")).await;
    world.until("its letter", async || world.messages(&dlq).await.len() == 1).await;
    // As if it had lain where the next one will.
    world.sql("UPDATE oncely.parked SET record_offset = record_offset + 1").await;
    world.produce(&Record::of("{\"second\":"), None, Fate::Parked("syntax")).await;
    world.until_count("both to be parked", OPEN, 2).await;
    world.until("the second letter", async || world.messages(&dlq).await.len() == 2).await;
    world.workers[first].sigterm();
    world.workers[first].wait_exit(Duration::from_secs(30)).await;
    let topic = world.topic().to_owned();
    world.kafka().delete_topic(&topic).await.unwrap();
    world.kafka().create_topic(&topic, 1, &[]).await.unwrap();
    world.produce(&Record::of("{\"first\":"), None, Fate::Parked("syntax")).await;
    world.spawn(&[]);
    let stopped = "SELECT count(*) FROM oncely.progress WHERE stopped IS NOT NULL";
    world.until_count("the partition to stop", stopped, 1).await;
    let group = world.group().to_owned();
    world.accept(&group, &topic).await;
    world.until_count("three to be parked", OPEN, 3).await;
    world.until("the third letter", async || world.messages(&dlq).await.len() == 3).await;
    // Two of them lie at one place, and none keeps another from being decided again.
    world.overrides_many(&["dlq", "redrive", "--all"], 3).await;
    let again = "SELECT count(*) FROM oncely.parked WHERE redrives = 1 AND redrive_at IS NULL";
    world.until_count("each to be decided again", again, 3).await;
    // The places were written by the story, and the topic is another one: no comparison.
    world.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connectors_of_one_scope_send_a_letter_each() {
    let mut world = World::plan(wiring("both")).partitions(1).unsampled().start().await;
    let dlq = world.dlq();
    let other = format!("{dlq}.two");
    for topic in [&dlq, &other] {
        world.kafka().create_topic(topic, 1, &[]).await.unwrap();
    }
    let dir = world.dir().join("connectors");
    let text = std::fs::read_to_string(dir.join("story.yaml")).unwrap();
    let named = format!("connector: {}\n", world.wiring.name);
    let text = text.replace(&named, &format!("{named}scope: both\n"));
    std::fs::write(dir.join("story.yaml"), &text).unwrap();
    let second = text
        .replace(&named, &named.replace('\n', "-two\n"))
        .replace("group: oncely.", "group: oncely.two.")
        .replace(&format!("dead_letter: {dlq}"), &format!("dead_letter: {other}"));
    std::fs::write(dir.join("two.yaml"), second).unwrap();
    world.run().await;
    for number in 0..3 {
        let record = Record::of(format!("{{\"cut off {number}\":"));
        world.produce(&record, None, Fate::Parked("syntax")).await;
    }
    world.until_count("all to be parked by both", OPEN, 6).await;
    for topic in [&dlq, &other] {
        world.until("three letters", async || world.messages(topic).await.len() == 3).await;
    }
    // The books know one connector: no comparison.
    world.stop_all().await;
}
