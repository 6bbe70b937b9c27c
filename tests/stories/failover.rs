//! PostgreSQL fails over to a standby that lacks commits which were acknowledged: effects that were done and
//! are forgotten are repeated by their key, asked for, or held, and never done twice.

use std::time::Duration;

use oncely::crash::{Action, Order, Point, Side, Step};
use oncely_rig::provider::Hold;
use oncely_tests::ledger::{Ending, Fate};
use oncely_tests::wiring::{
    EffectLines, announce, charge, note, receipt, settlement, usage, webhook,
};
use oncely_tests::world::BOUND;
use oncely_tests::{Event, Wiring, World};

/// A lease after which a death is found soon.
const LEASE_MS: u64 = 900;

/// Positions whose records in doubt are not bounded yet.
const UNBOUNDED: &str = "SELECT count(*) FROM oncely.progress WHERE suspect = 9223372036854775807";
/// Positions below which something may be done and forgotten.
const IN_DOUBT: &str = "SELECT count(*) FROM oncely.progress WHERE suspect IS NOT NULL";
/// Workers that live and have found the new server.
const ALIVE: &str = "SELECT count(*) FROM oncely.worker WHERE dead_at IS NULL AND ended_at IS NULL";

async fn world(name: &str, effects: impl IntoIterator<Item = EffectLines>) -> World {
    let wiring = Wiring::invoices(name).effects(effects);
    World::plan(wiring).lease_ms(LEASE_MS).own_postgres().start().await
}

/// Waits until the workers go on at the new server: what is written from now on is surely new.
async fn taken_up(world: &World, workers: i64) {
    world.until_count("a failover on record", "SELECT max(number) FROM oncely.failover", 2).await;
    world.until_count("workers under new ids", ALIVE, workers).await;
    world.until_count("what is in doubt to be decided again", IN_DOUBT, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w10_e3_what_a_failover_forgets_is_repeated_by_key_asked_for_or_held() {
    let mut world = world("forgets", [charge(), settlement(), note(), usage()]).await;
    world.run().await;
    world.run().await;
    world.pay_many(1, 6, 2).await;
    world.settled().await;
    let standby = world.standby().await;
    // Claimed as far as the standby knows, and done by now.
    world.provider.hold_answers();
    let claimed = world.pay_many(7, 4, 2).await;
    world.provider.wait_held(12, BOUND).await.unwrap();
    world.caught_up().await;
    standby.falls_behind();
    world.provider.release();
    // Done, and never heard of.
    let forgotten = world.pay_many(11, 6, 2).await;
    world.settled().await;
    assert_eq!(world.effects_in("done").await, 48);
    let (ahead, epochs) = (world.committed(0).await, "SELECT min(epoch) FROM oncely.progress");
    let epoch = world.count(epochs).await;
    // On their way, with their effect and without an answer.
    world.provider.hold_answers();
    let in_flight = world.pay_many(17, 4, 2).await;
    world.provider.wait_held(12, BOUND).await.unwrap();
    for name in claimed.iter().chain(&forgotten) {
        world.owe("note", name, Ending::Held);
    }
    for name in &in_flight {
        world.owe("note", name, Ending::DoneOrHeld);
    }
    world.fail_over(standby).await;
    taken_up(&world, 2).await;
    // What was committed beyond is taken back: PostgreSQL decides.
    world.until("Kafka to follow the positions", async || follows(&world).await).await;
    world.provider.release();
    assert!(world.count(epochs).await > epoch + 1_000, "old trackers write nothing");
    world.pay_many(21, 4, 2).await;
    world.settled().await;
    assert!(world.committed(0).await > ahead);
    // Done twice by nobody, and nobody's effect is lost.
    let applied = world.provider.read_log().unwrap();
    for (endpoint, times) in
        [("/v1/charges", 24), ("/lookup/settlements", 24), ("/plain/notes", 24)]
    {
        assert_eq!(applied.effects_at(endpoint), times, "{endpoint}");
    }
    for name in claimed.iter().chain(&forgotten) {
        for effect in ["charge", "settle"] {
            assert_eq!(world.status_of(effect, name).await.as_deref(), Some("done"), "{name}");
        }
        let status = world.status_of("note", name).await;
        assert_eq!(status.as_deref(), Some("held"), "{name}");
    }
    let found = "SELECT count(DISTINCT effect) FROM oncely.attempt WHERE outcome = 'found'";
    assert!(world.count(found).await >= 10, "what can be asked for was");
    shown(&world).await;
    world.check_invariants().await;
}

/// Whether the group's offsets in Kafka are the positions.
async fn follows(world: &World) -> bool {
    for partition in 0..2 {
        let position =
            format!("SELECT position FROM oncely.progress WHERE partition = {partition}");
        if world.committed(partition).await != Some(world.count(&position).await) {
            return false;
        }
    }
    true
}

/// A person sees which failover it was, what it took back, and why effects are held.
async fn shown(world: &World) {
    let said = world.oncely(&["failover", "list"]).await;
    let last = &said.json["failovers"][0];
    assert_eq!((&last["number"], &last["lossless"]), (&2.into(), &false.into()), "{said:?}");
    assert_eq!((&last["timeline_before"], &last["timeline"]), (&1.into(), &2.into()));
    assert_eq!(last["positions"], 2);
    assert!(last["effects"].as_u64().unwrap() >= 12, "{last}");
    let held = world.oncely(&["effects", "list", "--status", "held"]).await;
    let note = held.json["effects"][0]["note"].as_str().unwrap();
    assert!(note.contains("failover"), "{note}");
    let (mut noticed, mut told) = (0.0, 0);
    for worker in &world.workers {
        let name = "oncely_database_failovers_total";
        noticed += worker.metric(name, "loss=\"possible\"").await;
        told += worker.log().matches("has failed over and may have lost commits").count();
        assert_eq!(worker.metric("oncely_leases_lost_total", "").await, 1.0);
    }
    assert_eq!((noticed, told), (2.0, 1), "noticed by each, put on record by one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w10_e2_a_failover_that_keeps_everything_is_told_and_changes_nothing() {
    let wiring = Wiring::invoices("keeps").effects([charge(), note(), usage()]);
    let plan = World::plan(wiring).lease_ms(LEASE_MS).own_postgres();
    let mut world = plan.env("ONCELY_DATABASE_FAILOVER", "lossless").start().await;
    world.run().await;
    world.run().await;
    world.pay_many(1, 8, 2).await;
    world.settled().await;
    let standby = world.standby().await;
    let epochs = "SELECT sum(epoch) FROM oncely.progress";
    let epoch = world.count(epochs).await;
    world.provider.set_latency(Duration::from_millis(40));
    world.pay_many(9, 4, 2).await;
    world.settled().await;
    world.caught_up().await;
    world.fail_over(standby).await;
    world.pay_many(13, 8, 2).await;
    world.settled().await;
    assert_eq!(world.effects_in("done").await, 40, "nothing is held");
    assert_eq!(world.count(epochs).await, epoch);
    let said = world.oncely(&["failover", "list"]).await;
    assert_eq!(said.json["failovers"][0]["lossless"], true, "{said:?}");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w10_e3_a_process_that_starts_after_the_failover_notices_it_too() {
    let mut assumed = note();
    assumed.replace("on_unknown: hold", "on_unknown: assume_done");
    assumed.replace("/plain/notes", "/plain/copies");
    assumed.replace("id: note", "id: copy");
    assumed.replace("reference: \"", "reference: \"copy of ");
    (assumed.id, assumed.endpoint) = ("copy", "/plain/copies");
    let mut world = world("starts", [charge(), settlement(), note(), assumed]).await;
    let first = world.run().await;
    world.pay_many(1, 4, 2).await;
    world.settled().await;
    let standby = world.standby().await;
    // Due, and not sent yet, as far as the standby knows.
    world.provider.hold(Hold::BeforeApply);
    let waiting = world.pay_many(5, 4, 2).await;
    world.provider.wait_held(16, BOUND).await.unwrap();
    world.caught_up().await;
    standby.falls_behind();
    world.provider.release();
    let forgotten = world.pay_many(9, 4, 2).await;
    world.settled().await;
    world.workers[first].kill9().await;
    for name in waiting.iter().chain(&forgotten) {
        world.owe("note", name, Ending::Held);
        world.owe("copy", name, Ending::Held);
    }
    world.fail_over(standby).await;
    world.run().await;
    world.settled().await;
    for name in waiting.iter().chain(&forgotten) {
        assert_eq!(world.status_of("note", name).await.as_deref(), Some("held"), "{name}");
        let copy = world.status_of("copy", name).await;
        assert_eq!(copy.as_deref(), Some("held"), "{name}: it may never have been sent");
    }
    let counts = world.provider.read_log().unwrap();
    for endpoint in ["/v1/charges", "/lookup/settlements", "/plain/notes", "/plain/copies"] {
        assert_eq!(counts.effects_at(endpoint), 12, "{endpoint}");
    }
    // A person's word ends the doubt.
    let key = world.key_of("note", &waiting[0]).await;
    world.overrides(&["effects", "resolve", &key, "--as", "done"]).await;
    world.owe("note", &waiting[0], Ending::Assumed);
    world.check_invariants().await;
}

/// Behind a pooler the workers' connections stay while the server changes: they notice it by their heartbeats,
/// and until then nothing is claimed and no position rises.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w10_e3_behind_a_pooler_a_failover_is_noticed_without_a_new_connection() {
    let effects = [charge(), settlement(), note(), receipt().with("after: [charge]"), announce()];
    let wiring = Wiring::invoices("pooled").effects(effects);
    let plan = World::plan(wiring).lease_ms(LEASE_MS).own_postgres().pooled();
    let mut world = plan.start().await;
    let out = world.make_out(2).await;
    world.run().await;
    world.run().await;
    let mut versions = std::collections::BTreeMap::new();
    let mut pay = async |world: &World, first, count| {
        let names = world.pay_many(first, count, 2).await;
        versions.extend(names.iter().map(|name| (name.clone(), vec![1])));
        names
    };
    pay(&world, 1, 6).await;
    world.settled().await;
    let standby = world.standby().await;
    standby.falls_behind();
    let forgotten = pay(&world, 7, 8).await;
    world.settled().await;
    // The load goes on while nobody knows.
    world.provider.set_latency(Duration::from_millis(30));
    let between = pay(&world, 15, 8).await;
    for name in forgotten.iter().chain(&between) {
        world.owe("note", name, Ending::DoneOrHeld);
    }
    world.fail_over(standby).await;
    for name in pay(&world, 23, 8).await {
        world.owe("note", &name, Ending::DoneOrHeld);
    }
    world.settled().await;
    for name in &forgotten {
        assert_eq!(world.status_of("note", name).await.as_deref(), Some("held"), "{name}");
    }
    assert_eq!(world.count("SELECT count(*) FROM oncely.failover WHERE NOT lossless").await, 1);
    world.check_announced(&out, &versions).await;
    world.check_invariants().await;
}

/// The second standby takes over before the first loss is made up for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w10_e3_two_failovers_in_a_row_and_workers_killed_between_them() {
    let mut webhook = webhook();
    webhook.replace("{{ event.data.endpoint }}", "{provider}/webhooks/paid");
    let mut world = world("twice", [charge(), settlement(), note(), webhook, usage()]).await;
    let secrets = oncely_tests::wiring::WEBHOOK_SECRETS.map(|(_, secret)| secret.to_owned());
    world.provider.set_webhook_secrets(secrets);
    world.provider.set_latency(Duration::from_millis(20));
    world.run().await;
    world.run().await;
    for round in 0..2 {
        let standby = world.standby().await;
        standby.falls_behind();
        for name in world.pay_many(1 + 20 * round, 20, 2).await {
            world.owe("note", &name, Ending::DoneOrHeld);
        }
        let applied = world.provider.counts().applied + 20;
        drop(world.provider.wait_applied(applied, Duration::from_secs(8)).await);
        let victim = world.workers.len() - 2;
        world.workers[victim].kill9().await;
        world.fail_over(standby).await;
        world.spawn(&[]);
    }
    world.settled().await;
    let losses = "SELECT count(*) FROM oncely.failover WHERE NOT lossless";
    assert_eq!(world.count(losses).await, 2);
    assert_eq!(world.count(IN_DOUBT).await, 0, "what was in doubt is found out");
    world.check_invariants().await;
}

/// While a partition lags, what lies in it may be done: so may its copies, wherever they are read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w10_a_copy_that_is_read_before_its_first_one_may_be_done_too() {
    let wiring = Wiring::invoices("copied").effects([charge(), settlement(), note(), usage()]);
    let plan = World::plan(wiring).lease_ms(LEASE_MS).session_ms(25_000);
    let plan = plan.env("ONCELY_SHUTDOWN_GRACE", "30s");
    let mut world = plan.own_postgres().start().await;
    world.run().await;
    world.run().await;
    world.apart().await;
    world.pay_many(1, 4, 2).await;
    world.settled().await;
    let standby = world.standby().await;
    standby.falls_behind();
    let forgotten: Vec<String> = (5..=10).map(World::invoice).collect();
    for name in &forgotten {
        world.pay(name, 0).await;
        world.owe("note", name, Ending::Held);
    }
    world.settled().await;
    let slow = world.holder(0).unwrap();
    world.workers[slow].freeze();
    world.fail_over(standby).await;
    world.until_count("the end of what is read", UNBOUNDED, 1).await;
    for name in &forgotten {
        world.event(&Event::paid(name, 1), 1, Fate::Applied).await;
    }
    // As new as can be, which nobody can know yet.
    let new = World::invoice(11);
    world.pay(&new, 1).await;
    world.owe("note", &new, Ending::Held);
    for name in forgotten.iter().chain([&new]) {
        let held = async || world.status_of("note", name).await.as_deref() == Some("held");
        world.until("the note to be held", held).await;
    }
    world.workers[slow].thaw();
    world.until_count("what is in doubt to be decided again", IN_DOUBT, 0).await;
    world.pay_many(12, 4, 2).await;
    world.settled().await;
    for name in &forgotten {
        for effect in ["charge", "settle"] {
            assert_eq!(world.status_of(effect, name).await.as_deref(), Some("done"), "{name}");
        }
    }
    let applied = world.provider.read_log().unwrap();
    for (endpoint, times) in
        [("/v1/charges", 15), ("/lookup/settlements", 15), ("/plain/notes", 14)]
    {
        assert_eq!(applied.effects_at(endpoint), times, "{endpoint}");
    }
    world.check_invariants().await;
}

/// Records that were done and forgotten, and are gone from the topic: nobody will read them again, so a person says
/// when what is new is new. A topic that ends with the marker of a transaction ends with the record before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w10_k10_what_cannot_be_read_again_is_in_doubt_until_a_person_accepts_it() {
    let mut world = world("gone", [charge(), note()]).await;
    let first = world.run().await;
    world.pay_many(1, 4, 2).await;
    world.settled().await;
    let standby = world.standby().await;
    standby.falls_behind();
    let forgotten: Vec<String> = (5..=7).map(World::invoice).collect();
    let [marked, deleted @ ..] = &*forgotten else { unreachable!() };
    world.owe_all(marked);
    world.transaction(&[Event::paid(marked, 1)], true).await;
    for name in deleted {
        world.pay(name, 1).await;
    }
    world.until("all to be done", async || world.effects_in("done").await == 14).await;
    world.workers[first].kill9().await;
    world.stop_sampling().await;
    world.fail_over(standby).await;
    let (topic, group) = (world.topic().to_owned(), world.group().to_owned());
    world.kafka().delete_records(&topic, 1, 4).await.unwrap();
    world.run().await;
    world.until_count("the other partition to be decided again", IN_DOUBT, 1).await;
    let held = async |name: &str| {
        let is_held = async || world.status_of("note", name).await.as_deref() == Some("held");
        world.until("the note to be held", is_held).await;
    };
    held(marked).await;
    // A copy of one of them, where it can still be read.
    world.event(&Event::paid(&deleted[0], 1), 0, Fate::Applied).await;
    held(&deleted[0]).await;
    world.accept(&group, &topic).await;
    world.until_count("nothing to be in doubt", IN_DOUBT, 0).await;
    let new = World::invoice(8);
    world.pay(&new, 1).await;
    let done = async || world.status_of("note", &new).await.as_deref() == Some("done");
    world.until("the note to be done", done).await;
    // The books cannot be laid beside a topic whose records are gone: what was done is counted instead.
    world.stop_all().await;
    let applied = world.provider.read_log().unwrap();
    assert_eq!(applied.effects_at("/plain/notes"), 8);
    assert_eq!(applied.effects_at("/v1/charges"), 8);
}

/// A batch that is written while another process puts the failover on record: by heartbeats that are seconds
/// apart it would be noticed too late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w10_behind_a_pooler_no_batch_is_written_beside_a_failover() {
    let one = "limits: { concurrency: 1 }";
    let wiring = Wiring::invoices("beside").effects([note().with(one)]);
    let plan = World::plan(wiring).lease_ms(8_000).own_postgres().pooled();
    let mut world = plan.start().await;
    let point = Point { step: Step::BatchCommit, side: Side::Before };
    let writer = world.spawn_armed(Order { point, nth: 1, action: Action::Stop });
    world.wait_ready(writer).await;
    world.pay_many(1, 4, 2).await;
    world.settled().await;
    let standby = world.standby().await;
    standby.falls_behind();
    let forgotten = world.pay_many(5, 6, 2).await;
    world.settled().await;
    // It takes the only slot: what is written next is due, and not claimed.
    world.provider.hold_answers();
    let slow = world.pay_many(11, 1, 1).await;
    world.provider.wait_held(1, BOUND).await.unwrap();
    for name in forgotten.iter().chain(&slow) {
        world.owe("note", name, Ending::DoneOrHeld);
    }
    world.fail_over(standby).await;
    world.permit_crash();
    for name in &forgotten {
        world.event(&Event::paid(name, 1), 0, Fate::Applied).await;
    }
    world.wait_stopped(writer).await;
    world.spawn(&[]);
    let met = "SELECT count(*) FROM (
            SELECT FROM oncely.failover WHERE number = 2
            UNION ALL SELECT FROM pg_locks WHERE relation = 'oncely.failover'::regclass AND NOT granted
        ) AS met";
    world.until("the failover to be met", async || world.count(met).await > 0).await;
    world.workers[writer].thaw();
    world.provider.release();
    world.settled().await;
    assert_eq!(world.provider.read_log().unwrap().effects_at("/plain/notes"), 11);
    for name in &forgotten {
        assert_eq!(world.status_of("note", name).await.as_deref(), Some("held"), "{name}");
    }
    world.check_invariants().await;
}
