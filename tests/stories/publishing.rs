//! Records that are published: once for readers that know ids, in order, through kills and outages.

use std::collections::BTreeMap;

use oncely_tests::ledger::{Ending, Fate};
use oncely_tests::wiring::{announce, charge};
use oncely_tests::world::BOUND;
use oncely_tests::{Event, Wiring, World};

const LEASE_MS: u64 = 900;

/// Versions of invoices, written in order.
async fn write(
    world: &World,
    invoices: std::ops::Range<usize>,
    versions: i64,
) -> BTreeMap<String, Vec<i64>> {
    let mut written: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for version in 1..=versions {
        for number in invoices.clone() {
            let name = World::invoice(number);
            let event = if version == 1 {
                Event::past_due(&name, version)
            } else {
                Event::paid(&name, version)
            };
            world.owe("announce", &event.id, Ending::Done);
            let partition = i32::try_from(number % 2).unwrap();
            world.event(&event, partition, Fate::Applied).await;
            written.entry(name).or_default().push(version);
        }
    }
    written
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w12_b27_three_relays_send_each_record_once_and_in_order() {
    let wiring = Wiring::invoices("relays").effects([announce()]);
    let mut world = World::plan(wiring).partitions(3).start().await;
    let out = world.make_out(3).await;
    for _ in 0..3 {
        world.run().await;
    }
    let versions = write(&world, 1..51, 2).await;
    world.settled().await;
    assert_eq!(world.check_announced(&out, &versions).await, 0, "nobody was killed");
    let first = &world.messages(&out).await[0];
    assert_eq!(first.header("kind").as_deref(), Some("invoice.past_due"));
    let id = world.key_of("announce", first.json()["id"].as_str().unwrap()).await;
    assert_eq!(first.id, id, "the message id is the effect key");
    let rows =
        "SELECT count(*) FROM oncely.outbox WHERE status = 'done' AND sent_offset IS NOT NULL";
    assert_eq!(world.count(rows).await, 100);
    let slices = "SELECT count(DISTINCT worker) FROM oncely.slice WHERE worker IS NOT NULL";
    world.until("all relays to have slices", async || world.count(slices).await == 3).await;
    world.check_invariants().await;
    assert_eq!(world.check_announced(&out, &versions).await, 0, "a replay publishes nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w12_h4_relays_killed_at_any_moment_keep_the_order_of_each_key() {
    let wiring = Wiring::invoices("relaykills").effects([announce()]);
    let mut world = World::plan(wiring).lease_ms(LEASE_MS).start().await;
    let out = world.make_out(3).await;
    for _ in 0..2 {
        world.spawn(&[]);
    }
    let mut versions = BTreeMap::new();
    for round in 0..4 {
        let first = 1 + 25 * round;
        versions.extend(write(&world, first..first + 25, 2).await);
        let sent = i64::try_from(50 * round + 5 + 7 * round).unwrap();
        let count = "SELECT count(*) FROM oncely.outbox WHERE status = 'done'";
        world.until("some to be sent", async || world.count(count).await >= sent).await;
        let victim = world.workers.len() - 2;
        world.workers[victim].kill9().await;
        world.spawn(&[]);
    }
    world.settled().await;
    let repeats = world.check_announced(&out, &versions).await;
    println!("{repeats} repeats after four kills");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k1_w12_a_relay_frozen_beyond_its_lease_breaks_no_order() {
    let wiring = Wiring::invoices("relayfrozen").effects([announce()]);
    let mut world = World::plan(wiring).lease_ms(LEASE_MS).start().await;
    let out = world.make_out(1).await;
    world.run().await;
    world.run().await;
    let mut versions = BTreeMap::new();
    for round in 0..2 {
        let first = 1 + 40 * round;
        versions.extend(write(&world, first..first + 40, 2).await);
        world.workers[0].freeze();
        let dead = i64::try_from(round).unwrap() + 1;
        let count = "SELECT count(*) FROM oncely.worker WHERE dead_at IS NOT NULL";
        world.until("a death", async || world.count(count).await >= dead).await;
        versions.extend(write(&world, first + 1_000..first + 1_020, 2).await);
        world.workers[0].thaw();
        world
            .until("a new life", async || {
                world.workers[0].metric("oncely_leases_lost_total", "").await >= dead as f64
            })
            .await;
    }
    world.settled().await;
    world.check_announced(&out, &versions).await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b27_brokers_that_are_away_make_no_dead_records() {
    let effects = [charge(), announce().with("after: [charge]")];
    let wiring = Wiring::invoices("relayaway").effects(effects);
    let mut world = World::plan(wiring).own_kafka(1).unsampled().start().await;
    let out = world.make_out(1).await;
    let worker = world.run().await;
    // Each record comes after a call; the calls are answered when the brokers have gone.
    world.provider.hold_answers();
    let names = world.pay_many(1, 10, 2).await;
    world.provider.wait_held(10, BOUND).await.unwrap();
    let broker = world.kafka().broker_ids()[0];
    world.own_kafka().stop(broker).await.unwrap();
    world.provider.release();
    let waiting = "SELECT count(*) FROM oncely.outbox WHERE status = 'waiting'";
    world.until_count("records in the outbox", waiting, 10).await;
    let failed = async || {
        world.workers[worker].metric("oncely_outbox_records_total", "result=\"failed\"").await
    };
    world.until("sends that fail", async || failed().await >= 1.0).await;
    assert_eq!(world.count(waiting).await, 10, "they wait");
    assert_eq!(world.effects_in("done").await, 10, "the charges");
    world.own_kafka().start_again(broker).await.unwrap();
    world.until_count("all to be sent", waiting, 0).await;
    // The consumer's client may stay without brokers although they are back; its process then ends itself, and
    // another goes on, as here from the beginning.
    world.run().await;
    world.settled().await;
    let sent = "SELECT count(*) FROM oncely.outbox WHERE status = 'done'";
    assert_eq!(world.count(sent).await, 10, "no outage makes a dead record");
    let placed = "SELECT count(DISTINCT sent_offset) FROM oncely.outbox WHERE sent_offset >= 0";
    assert_eq!(world.count(placed).await, 10, "the brokers named a place for each");
    world.until("all to be seen", async || world.messages(&out).await.len() >= 10).await;
    let versions = names.into_iter().map(|name| (name, vec![1])).collect();
    assert_eq!(world.check_announced(&out, &versions).await, 0, "nothing was sent twice");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h4_h5_a_dead_head_holds_its_own_key_and_can_be_retried() {
    let mut lines = announce();
    lines.replace("\"{topic}.out\"", "\"{topic}.{{ event.account }}\"");
    let wiring = Wiring::invoices("relaydead").effects([lines]);
    let mut world = World::plan(wiring).start().await;
    let (known, missing) =
        (format!("{}.acct_7", world.topic()), format!("{}.nowhere", world.topic()));
    world.kafka().create_topic(&known, 2, &[]).await.unwrap();
    world.run().await;
    world.run().await;
    let (dead, alive) = (World::invoice(1), World::invoice(2));
    for (name, account) in [(&dead, "nowhere"), (&alive, "acct_7")] {
        for event in [Event::past_due(name, 1), Event::paid(name, 2)] {
            let event = event.account(account);
            world.owe("announce", &event.id, Ending::Done);
            world.event(&event, 0, Fate::Applied).await;
        }
    }
    let held = "SELECT count(*) FROM oncely.outbox WHERE status = 'held'";
    world.until_count("the head to be held", held, 1).await;
    world.settled().await;
    let alive_done = "SELECT count(*) FROM oncely.effect WHERE status = 'done'";
    world.until_count("the other key to go on", alive_done, 2).await;
    assert_eq!(world.effects_in("held").await, 1);
    assert_eq!(world.effects_in("waiting").await, 1, "the second version waits behind the first");
    let listed = world.oncely(&["outbox", "list", "--status", "held"]).await;
    let first = &listed.json["records"][0];
    assert_eq!(first["topic"], missing.as_str(), "{listed:?}");
    assert!(first["note"].as_str().unwrap().contains("does not exist"), "{listed:?}");
    // A person may send it again: it is refused, not rejected for good.
    let told = world.oncely(&["explain", &Event::past_due(&dead, 1).id]).await;
    let timeline = told.json["found"][0]["timeline"].to_string();
    assert!(timeline.contains("REFUSED") && timeline.contains("HELD"), "{told:?}");
    assert!(!timeline.contains("REJECTED"), "{told:?}");
    world.kafka().create_topic(&missing, 2, &[]).await.unwrap();
    let dry = ["outbox", "retry", "--topic", &missing, "--dry-run", "--reason", "made"];
    assert_eq!(world.oncely(&dry).await.json["retried"], 1);
    world.overrides(&["outbox", "retry", "--topic", &missing]).await;
    world.settled().await;
    world.until_count("all to be done", alive_done, 4).await;
    let found: Vec<i64> = (world.messages(&missing).await.iter())
        .map(|message| message.json()["version"].as_i64().unwrap())
        .collect();
    assert_eq!(found, [1, 2]);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b16_topics_that_are_missing_are_told_at_the_start() {
    let mut wiring = Wiring::invoices("nowhere").effects([announce()]);
    wiring.dead_letter = true;
    let mut world = World::plan(wiring).start().await;
    let (out, dlq) = (world.out(), world.dlq());
    let worker = world.run().await;
    for (topic, field) in [(&out, "`message.topic`"), (&dlq, "`failure.dead_letter`")] {
        let told = |log: &str| {
            let of_topic = |line: &&str| line.contains(topic.as_str()) && line.contains(field);
            log.lines().filter(of_topic).any(|line| line.contains("a topic is missing"))
        };
        world.until("it to be told", async || told(&world.workers[worker].log())).await;
    }
    let checked = world.oncely(&["validate", "--live"]).await;
    assert_eq!(checked.code, Some(1), "{checked:?}");
    let live = checked.json["live"].to_string();
    assert_eq!(live.matches("oncely outbox retry --topic").count(), 2, "{live}");
    world.kafka().create_topic(&out, 1, &[]).await.unwrap();
    world.kafka().create_topic(&dlq, 1, &[]).await.unwrap();
    let versions = write(&world, 1..4, 1).await;
    world.settled().await;
    world.check_announced(&out, &versions).await;
    // Where groups are, where the topic ends, and who reads.
    let listed = world.oncely(&["progress", "list"]).await.json;
    let rows = listed["progress"].as_array().unwrap();
    let sum = |name: &str| rows.iter().map(|row| row[name].as_i64().unwrap()).sum::<i64>();
    assert_eq!((sum("end"), sum("position"), sum("lag")), (3, 3, 0), "{listed:#}");
    let holders = "SELECT count(DISTINCT p.holder) FROM oncely.progress AS p
        JOIN oncely.worker AS w ON w.id = p.holder";
    assert_eq!(world.count(holders).await, 1);
    assert!(rows.iter().all(|row| row["holder"].is_string()), "{listed:#}");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d9_a_record_that_is_too_large_holds_nothing_that_went_with_it() {
    let mut lines = announce();
    lines.replace(
        "version: \"{{ event.version }}\" }",
        "version: \"{{ event.version }}\", filler: \"{{ event.data.email }}\" }",
    );
    let wiring = Wiring::invoices("relaylarge").effects([lines]);
    let mut world = World::plan(wiring).partitions(1).start().await;
    let out = world.out();
    let small = [("max.message.bytes", "2000")];
    world.kafka().create_topic(&out, 1, &small).await.unwrap();
    let mut versions = BTreeMap::new();
    for number in 1..=20 {
        let name = World::invoice(number);
        let event = Event::paid(&name, 1);
        let mut json = event.json();
        let too_large = number == 7;
        if too_large {
            json["data"]["email"] = "x".repeat(4_000).into();
        } else {
            versions.insert(name.clone(), vec![1]);
        }
        let ending = if too_large { Ending::Held } else { Ending::Done };
        world.owe("announce", &event.id, ending);
        let record = oncely_tests::Record::of(json.to_string()).key(&name);
        world.produce(&record, Some(&event.id), Fate::Applied).await;
    }
    world.run().await;
    world.settled().await;
    assert_eq!(world.effects_in("held").await, 1);
    world.check_announced(&out, &versions).await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_comes_after_a_call_says_what_the_call_gave() {
    let mut lines = announce().with("after: [charge]");
    lines.replace("key: event.id", "when: entered(\"paid\")\n    key: event.id");
    lines.replace(
        "version: \"{{ event.version }}\" }",
        "version: \"{{ event.version }}\", charge: \"{{ effects.charge.charge_id }}\" }",
    );
    let wiring = Wiring::invoices("relayafter").effects([charge(), lines]);
    let mut world = World::plan(wiring).lease_ms(LEASE_MS).start().await;
    let out = world.make_out(2).await;
    world.run().await;
    world.run().await;
    world.pay_many(1, 20, 2).await;
    world.provider.wait_applied(5, BOUND).await.unwrap();
    world.workers[0].kill9().await;
    world.settled().await;
    let (firsts, _) = world.deduplicated(&out).await;
    assert_eq!(firsts.len(), 20);
    for message in &firsts {
        let charge = message.json()["charge"].as_str().unwrap().to_owned();
        assert!(charge.contains('_'), "{charge}");
    }
    world.check_invariants().await;
}
