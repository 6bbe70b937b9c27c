//! What the log tells whoever was not there: enough to act on, and no more lines than facts; and how a
//! process ends.

use std::time::Duration;

use oncely_rig::provider::Fault;
use oncely_rig::provider::Rule;
use oncely_tests::ledger::{Ending, Fate};
use oncely_tests::wiring::{charge, usage};
use oncely_tests::world::BOUND;
use oncely_tests::{Event, Record, Wiring, World};
use serde_json::json;

/// Lines of a worker's log that hold all of these.
fn lines(world: &World, worker: usize, all: &[&str]) -> Vec<String> {
    let log = world.workers[worker].log();
    let lines = log.lines().filter(|line| all.iter().all(|part| line.contains(part)));
    lines.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_the_database_is_one_story() {
    let wiring = Wiring::invoices("outage").effects([charge(), usage()]);
    let mut world = World::plan(wiring).unsampled().start().await;
    let worker = world.run().await;
    world.pay_many(1, 6, 2).await;
    world.settled().await;
    world.database_proxy.listener_off().await;
    world.pay_many(7, 6, 2).await;
    let began = || !lines(&world, worker, &["WARN", "the database is away"]).is_empty();
    world.until("the beginning to be told", async || began()).await;
    // That long it lasts: every part tries many times meanwhile.
    tokio::time::sleep(Duration::from_secs(6)).await;
    world.database_proxy.listener_on().await.unwrap();
    world.settled().await;
    let over = || !lines(&world, worker, &["the database is back"]).is_empty();
    world.until("the end to be told", async || over()).await;
    let told = lines(&world, worker, &["database"]);
    assert_eq!(lines(&world, worker, &["the database is away"]).len(), 1, "{told:#?}");
    // A slow machine may hear once that it lasts.
    assert!(told.len() <= 3, "one outage, two lines: {told:#?}");
    assert_eq!(told[0].matches("Connection refused").count(), 1, "its cause once: {}", told[0]);
    assert!(told[0].contains("at=127.0.0.1:"), "and where: {}", told[0]);
    let last = told.last().unwrap();
    let (_, away) = last.split_once("away_s=").expect(last);
    let away: f64 = away.split(' ').next().unwrap().parse().unwrap();
    assert!((5.0..60.0).contains(&away), "{away} s");
    let warnings = lines(&world, worker, &[" WARN "]);
    assert!(warnings.len() <= 2, "{warnings:#?}");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_kafka_is_one_story() {
    let wiring = Wiring::invoices("brokers").effects([usage()]);
    let mut world = World::plan(wiring).own_kafka(1).session_ms(6_000).unsampled().start().await;
    let worker = world.run().await;
    world.pay_many(1, 4, 2).await;
    world.settled().await;
    world.own_kafka().kill(1).await.unwrap();
    let began = || !lines(&world, worker, &["WARN", "kafka is away"]).is_empty();
    world.until("the beginning to be told", async || began()).await;
    // That long it lasts: the client tries many times meanwhile.
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.own_kafka().start_again(1).await.unwrap();
    let over = || !lines(&world, worker, &["kafka is back", "connector=brokers"]).is_empty();
    world.until("the end to be told", async || over()).await;
    world.pay_many(5, 4, 2).await;
    world.settled().await;
    let brokers = format!("at={}", world.own_kafka().bootstrap());
    // A broker that is slow to start may be there, and away once more.
    let log = world.workers[worker].log();
    let (outage, _) = log.split_once("kafka is back").unwrap();
    let away: Vec<&str> = outage.lines().filter(|line| line.contains("kafka is away")).collect();
    assert!(away.len() == 1 && away[0].contains(&brokers), "{away:#?}");
    let told = lines(&world, worker, &[" WARN "]);
    let told = [told, lines(&world, worker, &[" ERROR "])].concat();
    // Each cause once in half a minute: a handful, also on a slow machine.
    assert!(told.len() <= 8, "{told:#?}");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_record_is_told_with_its_place_and_its_number() {
    let wiring = Wiring::invoices("told").effects([usage()]);
    let mut world = World::plan(wiring).partitions(1).unsampled().start().await;
    let worker = world.run().await;
    let mut nameless = Event::paid(&World::invoice(1), 1).json();
    nameless["id"] = json!(null);
    world.produce(&Record::of("{"), None, Fate::Parked("syntax")).await;
    world.produce(&Record::of(nameless.to_string()), None, Fate::Parked("missing_id")).await;
    world.pay_many(2, 1, 1).await;
    world.settled().await;
    let name = "told";
    for (offset, reason) in [(0, "syntax"), (1, "missing_id")] {
        let place = format!("partition=0 offset={offset}");
        let all = ["record parked", reason, &place, world.topic(), &format!("connector={name}")];
        let told = lines(&world, worker, &all);
        assert_eq!(told.len(), 1, "{all:?}: {told:#?}");
        // The line holds the command that shows the record.
        let (_, command) = told[0].split_once("look=\"oncely ").expect(&told[0]);
        let args: Vec<&str> = command.split('"').next().unwrap().split(' ').collect();
        let said = world.oncely(&args).await;
        assert!(said.ok && said.json["offset"] == json!(offset), "{args:?}: {:#}", said.json);
    }
    for started in ["partition starts", "partitions assigned"] {
        assert!(!lines(&world, worker, &[started, &format!("connector={name}")]).is_empty());
    }
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_tells_what_is_drained_and_what_was_left() {
    let wiring = Wiring::invoices("stopped").effects([charge()]);
    let plan = World::plan(wiring).unsampled().env("ONCELY_SHUTDOWN_GRACE", "2s");
    let mut world = plan.session_ms(2_000).start().await;
    let worker = world.run().await;
    world.provider.fail(Rule::always(Fault::HangAfter).to("/v1/charges"));
    let names = world.pay_many(1, 2, 1).await;
    world.provider.wait_held(2, BOUND).await.unwrap();
    let key = world.key_of("charge", &names[0]).await;
    world.workers[worker].sigterm();
    world.workers[worker].wait_exit(BOUND).await;
    let begun = lines(&world, worker, &["draining", "in_flight=2", "grace_s=2"]);
    assert_eq!(begun.len(), 1, "{}", world.workers[worker].log());
    let left = lines(&world, worker, &["the grace is over", "left=2", &key]);
    assert_eq!(left.len(), 1, "{}", world.workers[worker].log());
    world.provider.heal();
    let second = world.run().await;
    world.settled().await;
    world.stop_all().await;
    assert_eq!(lines(&world, second, &["drained: nothing is left"]).len(), 1);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w15_a_stop_waits_for_no_effect_that_waits_itself() {
    let wiring = Wiring::invoices("patient").effects([charge()]);
    let plan = World::plan(wiring).unsampled().session_ms(20_000);
    let mut world = plan.env("ONCELY_SHUTDOWN_GRACE", "30s").start().await;
    let worker = world.run().await;
    world.provider_proxy.listener_off().await;
    world.pay_many(1, 4, 2).await;
    let tried = "SELECT count(*) FROM oncely.effect WHERE status = 'waiting' AND attempts > 0";
    world.until_count("refused connections", tried, 4).await;
    world.workers[worker].sigterm();
    let asked = std::time::Instant::now();
    assert_eq!(world.workers[worker].wait_exit(BOUND).await, Some(0));
    assert!(asked.elapsed() < Duration::from_secs(5), "it took {:?}", asked.elapsed());
    assert_eq!(lines(&world, worker, &["drained: nothing is left"]).len(), 1);
    world.provider_proxy.listener_on().await.unwrap();
    world.run().await;
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_credentials_and_a_rejection_are_told_once_with_what_to_look_at() {
    let wiring = Wiring::invoices("refused").effects([charge()]);
    let mut world = World::plan(wiring).unsampled().start().await;
    let worker = world.run().await;
    world.provider.fail(Rule::always(Fault::status(401)).to("/v1/charges"));
    let names = world.pay_many(1, 6, 2).await;
    let halted = || lines(&world, worker, &["ERROR", "effect halted", "status_code=401"]);
    world.until("the halt to be told", async || !halted().is_empty()).await;
    // Nothing more may be told in this time, in which calls go on trying.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(halted().len(), 1, "{:#?}", halted());
    let told =
        lines(&world, worker, &["effect halted", "connector=", "look=\"oncely effects show"]);
    assert_eq!(told.len(), 1, "{:#?}", halted());
    let listed = world.oncely(&["effects", "list", "--status", "waiting"]).await.json;
    assert!(listed.to_string().contains("\"halted\":true"), "{listed:#}");
    world.provider.heal();
    world.settled().await;
    assert_eq!(lines(&world, worker, &["effect goes on", "effect=charge"]).len(), 1);
    world.provider.fail(Rule::times(1, Fault::status(422)).to("/v1/charges"));
    let rejected = world.pay_many(7, 1, 1).await;
    world.owe("charge", &rejected[0], Ending::Rejected);
    world.settled().await;
    let key = world.key_of("charge", &rejected[0]).await;
    let look = format!("look=\"oncely effects show {key}\"");
    let told = lines(
        &world,
        worker,
        &["effect needs a look", "status=rejected", "connector=", "cause=", &look],
    );
    assert_eq!(told.len(), 1, "{}", world.workers[worker].log());
    assert_eq!(names.len(), 6);
    world.check_invariants().await;
}
