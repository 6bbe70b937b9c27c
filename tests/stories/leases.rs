//! Workers that were declared dead and are not, and databases that are away.

use std::time::Duration;

use oncely_rig::proxy::{Direction, Mode};
use oncely_tests::ledger::Ending;
use oncely_tests::wiring::{charge, letter, note, receipt, usage};
use oncely_tests::{Wiring, World};

const LEASE_MS: u64 = 900;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k1_b36_frozen_beyond_its_lease_and_thawed_with_claims_in_hand() {
    let wiring = Wiring::invoices("frozen").effects([charge(), note(), usage()]);
    let mut world = World::plan(wiring).lease_ms(LEASE_MS).start().await;
    world.provider.set_latency(Duration::from_millis(40));
    world.run().await;
    world.run().await;
    for round in 0..2 {
        for name in world.pay_many(1 + 40 * round, 40, 2).await {
            world.owe("note", &name, Ending::DoneOrHeld);
        }
        world
            .until("claims of the first worker", async || {
                world
                    .count(
                        "SELECT count(*) FROM oncely.effect WHERE status = 'claimed' AND worker =
                            (SELECT id FROM oncely.worker WHERE dead_at IS NULL
                             ORDER BY started_at LIMIT 1)",
                    )
                    .await
                    > 0
            })
            .await;
        let lost = "oncely_leases_lost_total";
        let before = world.workers[0].metric(lost, "").await;
        // A slow machine may have taken the other one for dead as well: it has a new life by now.
        let lives = "SELECT count(*) FROM oncely.worker WHERE dead_at IS NULL";
        world.until_count("two that live", lives, 2).await;
        world.workers[0].freeze();
        world.until_count("a death", lives, 1).await;
        world.workers[0].thaw();
        world.until("a new life", async || world.workers[0].metric(lost, "").await > before).await;
    }
    world.settled().await;
    assert!(world.workers[0].runs(), "it goes on under a new id");
    world.check_invariants().await;
}

/// What its outcomes wake it may not claim any more, and the slots that it had for that are needed in its next life.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k1_a_worker_that_is_declared_dead_during_a_call_loses_no_slot_by_it() {
    let mail = receipt().with("after: [charge]\nlimits: { concurrency: 1 }");
    let wiring = Wiring::invoices("slots").effects([charge(), mail]);
    let mut world = World::plan(wiring).lease_ms(12_000).start().await;
    let worker = world.run().await;
    world.provider_proxy.set(Mode::Stall(Direction::ToClient));
    world.pay(&World::invoice(1), 0).await;
    world.provider.wait_applied(1, oncely_tests::world::BOUND).await.unwrap();
    world.sql("UPDATE oncely.worker SET dead_at = now() WHERE dead_at IS NULL").await;
    world.provider_proxy.set(Mode::Pass);
    let lost = "oncely_leases_lost_total";
    world.until("a new life", async || world.workers[worker].metric(lost, "").await > 0.0).await;
    world.pay(&World::invoice(2), 1).await;
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e1_the_database_is_away_for_ten_seconds() {
    let wiring = Wiring::invoices("away").effects([charge(), note(), usage()]);
    let mut world = World::plan(wiring).own_postgres().session_ms(6_000).start().await;
    world.provider.set_latency(Duration::from_millis(30));
    world.run().await;
    world.run().await;
    world.pay_many(1, 40, 2).await;
    world.provider.wait_applied(10, oncely_tests::world::BOUND).await.unwrap();
    world.own_postgres().stop_immediate().await.unwrap();
    world.pay_many(41, 20, 2).await;
    // The one wait for a time: that is how long it is away.
    tokio::time::sleep(Duration::from_secs(10)).await;
    for worker in &mut world.workers {
        assert!(worker.runs(), "an outage of the database ends nobody");
        assert!(!worker.is_ready().await, "and is told");
    }
    world.own_postgres().start_again().await.unwrap();
    world.pay_many(61, 20, 2).await;
    world.settled().await;
    let dead = world.count("SELECT count(*) FROM oncely.worker WHERE dead_at IS NOT NULL").await;
    assert_eq!(dead, 0, "an outage of the database kills nobody");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e4_a_commit_that_no_standby_has_yet_is_no_claim() {
    let wiring = Wiring::invoices("unconfirmed").effects([charge(), note(), usage()]);
    let mut world = World::plan(wiring).own_postgres().start().await;
    world.run().await;
    world.pay_many(1, 4, 2).await;
    world.settled().await;
    let calls = world.provider.counts().received;
    // A standby that everybody waits for, and that is not there.
    world.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'").await;
    world.sql("SELECT pg_reload_conf()").await;
    world.until_commits_wait().await;
    world.pay_many(5, 8, 2).await;
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'
                 AND application_name LIKE 'oncely % writer %'";
    world.until("commits that wait", async || world.count(waits).await > 0).await;
    // The lease of a worker whose heartbeats wait, too, is over by then.
    world.until("the worker to say so", async || !world.workers[0].is_ready().await).await;
    assert_eq!(world.provider.counts().received, calls, "a claim that may be lost sends nothing");
    world.sql("ALTER SYSTEM RESET synchronous_standby_names").await;
    world.sql("SELECT pg_reload_conf()").await;
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e1_the_database_answers_nobody_for_a_while() {
    let wiring = Wiring::invoices("silent").effects([charge(), usage()]);
    let mut world = World::plan(wiring).lease_ms(LEASE_MS).start().await;
    world.provider.set_latency(Duration::from_millis(30));
    world.run().await;
    world.run().await;
    world.pay_many(1, 30, 2).await;
    world.provider.wait_applied(5, oncely_tests::world::BOUND).await.unwrap();
    world.database_proxy.set(Mode::StallBoth);
    world.pay_many(31, 10, 2).await;
    for number in 0..2 {
        world.until("readiness to be lost", async || !world.workers[number].is_ready().await).await;
    }
    // Nobody sends without a lease.
    let (before, lease) = (world.provider.counts().received, Duration::from_millis(LEASE_MS));
    tokio::time::sleep(lease).await;
    assert_eq!(world.provider.counts().received, before);
    world.database_proxy.set(Mode::Pass);
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w2_w7_commits_whose_answers_are_lost() {
    let wiring = Wiring::invoices("commits").effects([charge(), receipt(), usage()]);
    let mut world = World::plan(wiring).lease_ms(2_000).start().await;
    let worker = world.run().await;
    let adopted =
        async |world: &World| world.workers[worker].metric("oncely_claims_adopted_total", "").await;
    let mut next = 1;
    // Until batches and settlements were among them, and a claim was lost sight of and found again.
    while next <= 30 || adopted(&world).await == 0.0 {
        assert!(next < 300, "no claim was ever lost sight of");
        world.database_proxy.set(Mode::lose_commit());
        let cut = world.database_proxy.traffic().cut;
        world.pay_many(next, 3, 2).await;
        next += 3;
        world.database_proxy.wait_cut(cut + 1, oncely_tests::world::BOUND).await.unwrap();
    }
    world.settled().await;
    let taken = world.count("SELECT sum(takeovers)::bigint FROM oncely.effect").await;
    assert_eq!(taken, 0, "a live worker finds its own claims");
    let counted = |outcome| world.workers[worker].metric("oncely_events_total", outcome);
    assert_eq!(counted("outcome=\"duplicate\"").await, 0.0, "its own redo is no duplicate");
    assert_eq!(counted("outcome=\"applied\"").await, (next - 1) as f64);
    assert_eq!(counted("").await, (next - 1) as f64);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r17_a_mail_by_smtp_goes_out_once_or_is_held() {
    let wiring = Wiring::invoices("letters").effects([letter()]);
    let mut world = World::plan(wiring).lease_ms(LEASE_MS).start().await;
    let first = world.run().await;
    for name in world.pay_many(1, 4, 2).await {
        world.owe("letter", &name, Ending::Done);
    }
    world.settled().await;
    // Taken by the mail server, which does not say so; then the worker dies.
    world.provider.hold_answers();
    for name in world.pay_many(5, 4, 2).await {
        world.owe("letter", &name, Ending::Held);
    }
    world.provider.wait_held(4, oncely_tests::world::BOUND).await.unwrap();
    world.workers[first].kill9().await;
    world.provider.release();
    world.run().await;
    world.until("letters held", async || world.effects_in("held").await == 4).await;
    let said = world.oncely(&["effects", "list", "--status", "held"]).await;
    assert_eq!(said.json["effects"].as_array().map(Vec::len), Some(4), "{said:?}");
    // A person looks into the mailbox.
    let names = [5, 6].map(World::invoice);
    for name in &names {
        let key = world.key_of("letter", name).await;
        world.overrides(&["effects", "resolve", &key, "--as", "done"]).await;
        world.owe("letter", name, Ending::Assumed);
    }
    // Of one nothing is found there; it is wanted again, and goes out under its own key.
    let key = world.key_of("letter", &World::invoice(7)).await;
    let said = world
        .oncely(&["effects", "resolve", &key, "--as", "retry", "--reason", "x", "--dry-run"])
        .await;
    assert!(said.ok, "{said:?}");
    assert_eq!(world.status_of("letter", &World::invoice(7)).await.as_deref(), Some("held"));
    let key = world.key_of("letter", &World::invoice(8)).await;
    world.overrides(&["effects", "resolve", &key, "--as", "skipped"]).await;
    world.owe("letter", &World::invoice(8), Ending::Unwanted);
    world.settled().await;
    world.check_invariants().await;
}
