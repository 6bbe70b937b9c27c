//! Workers killed at every window between a record and its committed offset.

use std::time::Duration;

use oncely_rig::provider::{Fault, Rule};
use oncely_rig::proxy::{Direction, Mode};
use oncely_tests::ledger::Ending;
use oncely_tests::wiring::{charge, note, receipt, usage};
use oncely_tests::{Wiring, World};

/// A lease after which a death is found soon.
const LEASE_MS: u64 = 900;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w3_killed_between_claim_and_call() {
    let wiring = Wiring::invoices("w3").effects([charge(), note()]);
    let mut world = World::plan(wiring).lease_ms(LEASE_MS).start().await;
    let first = world.run().await;
    // Nothing reaches the provider: claimed in the database, and not one byte arrives.
    world.provider_proxy.set(Mode::Stall(Direction::ToServer));
    world.pay_many(1, 6, 2).await;
    world.until("claims", async || world.effects_in("claimed").await == 12).await;
    for number in 1..=6 {
        // It cannot be known from outside whether a byte has left.
        world.owe("note", &World::invoice(number), Ending::Held);
    }
    world.workers[first].kill9().await;
    world.provider_proxy.cut_all();
    assert_eq!(world.provider.counts().received, 0);
    world.provider_proxy.set(Mode::Pass);
    let second = world.run().await;
    world.settled().await;
    assert_eq!(world.count("SELECT count(*) FROM oncely.effect WHERE takeovers = 1").await, 12);
    // Whoever finds the dead tells of what is held, as whoever hears an answer does.
    let held = ["effect needs a look", "connector=", "status=held", "cause=", "effect=note"];
    let log = world.workers[second].log();
    let told = log.lines().filter(|line| held.iter().all(|part| line.contains(part)));
    assert_eq!(told.count(), 6, "{log}");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w5_b34_killed_between_the_effect_and_its_settling() {
    let wiring = Wiring::invoices("w5").effects([charge(), receipt(), note()]);
    let mut world = World::plan(wiring).lease_ms(LEASE_MS).start().await;
    let first = world.run().await;
    world.run().await;
    world.provider.hold_answers();
    world.pay_many(1, 8, 2).await;
    // All took effect, and nobody has been told.
    world.provider.wait_held(24, oncely_tests::world::BOUND).await.unwrap();
    let dead = world.count("SELECT count(*) FROM oncely.effect WHERE name = 'note'").await;
    assert_eq!(dead, 8);
    for number in 1..=8 {
        world.owe("note", &World::invoice(number), Ending::DoneOrHeld);
    }
    world.workers[first].kill9().await;
    world.provider.release();
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w8_w9_killed_between_settle_and_commit() {
    let wiring = Wiring::invoices("w8").effects([charge(), usage()]);
    let mut world = World::plan(wiring).partitions(1).lease_ms(LEASE_MS).start().await;
    let first = world.run().await;
    // The first record's effect hangs, so the offsets of those behind it cannot go.
    world.provider.fail(Rule::once(Fault::HangBefore).to("/v1/charges"));
    world.pay(&World::invoice(1), 0).await;
    world.provider.wait_held(1, oncely_tests::world::BOUND).await.unwrap();
    world.pay_many(2, 20, 1).await;
    world.until("twenty done", async || world.effects_in("done").await == 20).await;
    assert_eq!(world.committed(0).await.unwrap_or(0), 0, "nothing may be committed yet");
    world.workers[first].kill9().await;
    world.provider.heal();
    let second = world.run().await;
    world.settled().await;
    let worker = &world.workers[second];
    assert_eq!(worker.metric("oncely_dedupe_decisions_total", "decision=\"first\"").await, 0.0);
    // One for each effect, and one more for the one that hung.
    assert_eq!(world.provider.counts().received, 22);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w1_to_w9_r1_killed_at_any_moment_under_load() {
    let wiring = Wiring::invoices("kills").effects([
        charge(),
        receipt().with("after: [charge]"),
        note(),
        usage(),
    ]);
    let mut world = World::plan(wiring).partitions(3).lease_ms(LEASE_MS).start().await;
    world.provider.set_latency(Duration::from_millis(15));
    for _ in 0..3 {
        world.spawn(&[]);
    }
    let mut next = 1;
    for round in 0..5 {
        for name in world.pay_many(next, 30, 3).await {
            world.owe("note", &name, Ending::DoneOrHeld);
        }
        next += 30;
        // Somewhere in the middle of it, another place each time.
        let applied = world.provider.counts().applied + 7 + 11 * round;
        drop(world.provider.wait_applied(applied, Duration::from_secs(8)).await);
        let victim = world.workers.len() - 3;
        world.workers[victim].kill9().await;
        world.spawn(&[]);
    }
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_workers_chain_is_finished_by_another_process() {
    // The offset goes at once, so that nothing but the tables knows what is still owed.
    let letter = "after: [charge]\nrecord: { mail: response.json.id }";
    let mut wiring = Wiring::invoices("chain").effects([charge(), receipt().with(letter), usage()]);
    wiring.offset_wait = "0s";
    let mut world = World::plan(wiring).lease_ms(LEASE_MS).start().await;
    let first = world.run().await;
    world.provider.fail(Rule::always(Fault::HangBefore).to("/v1/charges"));
    let names = world.pay_many(1, 10, 2).await;
    world.provider.wait_held(10, oncely_tests::world::BOUND).await.unwrap();
    world
        .until("offsets let go", async || {
            world.committed(0).await == Some(5) && world.committed(1).await == Some(5)
        })
        .await;
    world.workers[first].kill9().await;
    world.provider.heal();
    world.run().await;
    world.settled().await;
    for name in names {
        assert_eq!(world.status_of("receipt", &name).await.as_deref(), Some("done"));
    }
    world.check_invariants().await;
}
