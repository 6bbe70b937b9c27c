//! What is away or full is waited for, in sight: nothing is lost, nothing runs without its claim on record,
//! and no event pays for it.

use std::time::Duration;

use oncely_rig::proxy::Mode;
use oncely_tests::ledger::Ending;
use oncely_tests::wiring::{charge, hook, note, receipt};
use oncely_tests::{Wiring, World};

/// Room for the tables of a story, and little more.
const DISK: u64 = 48 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r31_too_many_open_effects_pause_the_intake_until_calls_have_caught_up() {
    let mut wiring = Wiring::invoices("backlog").effects([charge(), hook()]);
    (wiring.open_effects_max, wiring.offset_wait) = (40, "0s");
    let mut world = World::plan(wiring).start().await;
    let worker = world.run().await;
    world.provider_proxy.listener_off().await;
    // Three times what may be open, some of it before the first count after it.
    let paused = "oncely_intake_paused";
    world.pay_many(1, 30, 2).await;
    world.until("a pause", async || world.workers[worker].metric(paused, "").await == 1.0).await;
    world.pay_many(31, 60, 2).await;
    let read = "oncely_events_consumed_total";
    world
        .until("all to be read", async || world.workers[worker].metric(read, "").await == 90.0)
        .await;
    // Read and not decided, over several looks of everybody.
    let open = "SELECT count(*) FROM oncely.effect WHERE settled_at IS NULL";
    for _ in 0..3 {
        world.looked().await;
        assert_eq!(world.count(open).await, 60, "what was open before the pause");
    }
    let (code, _) = world.workers[worker].get("/healthz/ready").await.unwrap();
    assert_eq!(code, 200, "a pause is no fault of this process");
    assert_eq!(world.count("SELECT count(*) FROM oncely.parked").await, 0);
    // A process that joins sees for itself, and takes nothing either.
    let second = world.run().await;
    world.until("its pause", async || world.workers[second].metric(paused, "").await == 1.0).await;
    world.provider_proxy.listener_on().await.unwrap();
    world.settled().await;
    for number in [worker, second] {
        world
            .until("the end of it", async || world.workers[number].metric(paused, "").await == 0.0)
            .await;
    }
    assert!(world.workers[worker].log().contains("too many effects are open"));
    assert!(world.workers[worker].log().contains("calls have caught up"));
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e5_a_full_disk_is_waited_for() {
    let wiring = Wiring::invoices("full").effects([charge(), receipt(), note()]);
    let mut world = World::plan(wiring).small_disk(DISK).start().await;
    let first = world.run().await;
    world.run().await;
    for name in world.pay_many(1, 20, 2).await {
        world.owe("note", &name, Ending::DoneOrHeld);
    }
    world.settled().await;
    world.postgres().disk().unwrap().fill().unwrap();
    let full = "(53100)";
    let mut next = 21;
    // Pages that are there have room yet.
    while !world.workers.iter().any(|worker| worker.log().contains(full)) {
        for name in world.pay_many(next, 20, 2).await {
            world.owe("note", &name, Ending::DoneOrHeld);
        }
        next += 20;
        assert!(next < 5_000, "the disk is not full");
        world.looked().await;
    }
    // One dies meanwhile, and another begins.
    world.workers[first].kill9().await;
    world.spawn(&[]);
    world.looked().await;
    assert_eq!(world.count("SELECT count(*) FROM oncely.parked").await, 0);
    world.postgres().disk().unwrap().free().unwrap();
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_a_pooler_in_transaction_mode_each_effect_happens_once() {
    let wiring = Wiring::invoices("pooled").effects([charge(), receipt(), note(), hook()]);
    let mut world = World::plan(wiring).pooled().lease_ms(900).start().await;
    let first = world.run().await;
    let second = world.run().await;
    assert!(world.database_proxy.traffic().open > 0, "no way leads past the pooler");
    for name in world.pay_many(1, 30, 2).await {
        world.owe("note", &name, Ending::DoneOrHeld);
    }
    world.until("some done", async || world.effects_in("done").await >= 20).await;
    world.workers[first].kill9().await;
    world.run().await;
    for name in world.pay_many(31, 20, 2).await {
        world.owe("note", &name, Ending::DoneOrHeld);
    }
    // The next COMMIT goes through, and its answer is lost between worker and pooler.
    world.database_proxy.set(Mode::lose_commit());
    for name in world.pay_many(51, 20, 2).await {
        world.owe("note", &name, Ending::DoneOrHeld);
    }
    world.database_proxy.wait_cut(1, Duration::from_secs(30)).await.unwrap();
    world.database_proxy.set(Mode::Pass);
    // Every server connection goes, and the pooler makes new ones.
    world
        .sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .await;
    world.settled().await;
    let shared =
        world.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()");
    assert!(shared.await <= 8 + 4, "sessions share the pooler's connections");
    let log = world.workers[second].log();
    assert!(!log.contains("have no time-outs"), "the pooler gives its sessions their settings");
    world.check_invariants().await;
}
