//! Members that come and go, and brokers that go.

use std::time::{Duration, Instant};

use oncely_rig::provider::{Fault, Rule};
use oncely_rig::proxy::Mode;
use oncely_tests::wiring::{charge, hook, note, usage};
use oncely_tests::world::BOUND;
use oncely_tests::{Wiring, World};

/// Scales from one member to three and back while there is always something in flight.
async fn members_come_and_go(name: &str, protocol: &'static str) {
    let slow = "limits: { concurrency: 6 }";
    let mut wiring =
        Wiring::invoices(name).effects([charge().with(slow), hook().with(slow), usage()]);
    wiring.protocol = protocol;
    let mut world = World::plan(wiring).partitions(6).start().await;
    world.provider.set_latency(Duration::from_millis(25));
    world.run().await;
    let mut next = 1;
    // What each round does: a member more, or one less (the oldest that runs).
    for (round, joins) in [true, true, false, true, false, false].into_iter().enumerate() {
        world.pay_many(next, 60, 6).await;
        next += 60;
        // Somewhere in the middle of it, or at the end where machines are slow.
        let all = 2 * (u64::try_from(next).unwrap() - 1);
        let applied = (world.provider.counts().applied + 20).min(all);
        world.provider.wait_applied(applied, BOUND).await.unwrap();
        if joins {
            world.run().await;
        } else {
            let oldest = (0..world.workers.len()).find(|number| world.workers[*number].runs());
            let leaving = &mut world.workers[oldest.unwrap()];
            leaving.sigterm();
            assert_eq!(leaving.wait_exit(BOUND).await, Some(0), "round {round}");
        }
    }
    world.settled().await;
    let calls = world.provider.counts().received;
    assert_eq!(calls, 2 * (u64::try_from(next).unwrap() - 1), "nobody was called twice");
    assert_eq!(
        world.count("SELECT count(*) FROM oncely.worker WHERE dead_at IS NOT NULL").await,
        0
    );
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k3_k19_r2_r4_members_come_and_go_under_load() {
    members_come_and_go("classic", "classic").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k20_members_come_and_go_under_load_as_the_broker_says() {
    members_come_and_go("kip848", "consumer").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w15_b50_sigterm_settles_what_is_in_flight() {
    let wiring = Wiring::invoices("drain").effects([charge()]);
    let mut world = World::plan(wiring).start().await;
    let first = world.run().await;
    world.provider.hold_answers();
    world.pay_many(1, 8, 2).await;
    world.provider.wait_held(8, BOUND).await.unwrap();
    world.workers[first].sigterm();
    world.until("readiness to be lost", async || !world.workers[first].is_ready().await).await;
    // Too late for this one.
    world.pay_many(9, 4, 2).await;
    world.provider.release();
    assert_eq!(world.workers[first].wait_exit(BOUND).await, Some(0));
    assert_eq!(world.effects_in("done").await, 8);
    let ended = "SELECT count(*) FROM oncely.worker WHERE ended_at IS NOT NULL AND dead_at IS NULL";
    assert_eq!(world.count(ended).await, 1, "it signed off");
    assert_eq!(world.committed(0).await, Some(4));
    assert_eq!(world.committed(1).await, Some(4));
    world.run().await;
    world.settled().await;
    assert_eq!(world.provider.counts().received, 12);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w15_a_provider_that_never_answers_cannot_keep_a_worker() {
    let wiring = Wiring::invoices("grace").effects([charge()]);
    let plan = World::plan(wiring).lease_ms(900).session_ms(2_000);
    let mut world = plan.env("ONCELY_SHUTDOWN_GRACE", "2s").start().await;
    let first = world.run().await;
    world.provider.fail(Rule::always(Fault::HangAfter).to("/v1/charges"));
    world.pay_many(1, 4, 2).await;
    world.provider.wait_held(4, BOUND).await.unwrap();
    world.workers[first].sigterm();
    let asked = Instant::now();
    world.workers[first].wait_exit(BOUND).await;
    assert!(asked.elapsed() < Duration::from_secs(8), "it took {:?} to end", asked.elapsed());
    world.provider.heal();
    world.run().await;
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b13_a_stop_in_the_middle_of_a_batch_gives_back_what_it_claims() {
    let wiring = Wiring::invoices("midway").effects([charge(), note()]);
    // The grace is what signing off at a slow database may take, on a busy machine too.
    let plan = World::plan(wiring).env("ONCELY_DRAIN", "100ms").env("ONCELY_SHUTDOWN_GRACE", "40s");
    let mut world = plan.start().await;
    let first = world.run().await;
    world.database_proxy.set(Mode::DelayMs(150));
    world.pay_many(1, 6, 2).await;
    let claiming = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE '%writer%'
          AND xact_start IS NOT NULL AND query LIKE '%INTO oncely.effect %'";
    world.until("claims in an open batch", async || world.count(claiming).await > 0).await;
    world.workers[first].sigterm();
    assert_eq!(world.workers[first].wait_exit(BOUND).await, Some(0));
    assert!(world.effects_in("waiting").await > 0, "the batch was written");
    assert_eq!(world.effects_in("claimed").await, 0, "what was never sent was given back");
    let ended = "SELECT count(*) FROM oncely.worker WHERE ended_at IS NOT NULL AND dead_at IS NULL";
    assert_eq!(world.count(ended).await, 1, "it signed off");
    world.database_proxy.set(Mode::Pass);
    world.run().await;
    world.settled().await;
    // Nothing is held: a note that was claimed and never sent is no doubt.
    assert_eq!(world.effects_in("done").await, 12);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_are_given_up_before_any_outcome_are_counted() {
    let wiring = Wiring::invoices("unread").effects([usage()]);
    let mut world = World::plan(wiring).env("ONCELY_WRITERS", "1").start().await;
    let first = world.run().await;
    world.database_proxy.set(Mode::DelayMs(300));
    world.pay(&World::invoice(1), 0).await;
    let writing = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND application_name LIKE '%writer%' AND xact_start IS NOT NULL";
    world.until("an open batch", async || world.count(writing).await > 0).await;
    world.pay_many(2, 50, 2).await;
    let counted = async |world: &World, name| world.workers[first].metric(name, "").await;
    let all_read = async || counted(&world, "oncely_events_consumed_total").await == 51.0;
    world.until("all to be read", all_read).await;
    world.workers[first].sigterm();
    let given_up = async || counted(&world, "oncely_events_released_total").await == 50.0;
    world.until("what no writer has begun to be given up", given_up).await;
    assert_eq!(world.workers[first].wait_exit(BOUND).await, Some(0));
    world.database_proxy.set(Mode::Pass);
    world.run().await;
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b13_an_idle_worker_ends_at_once() {
    let wiring = Wiring::invoices("idle").effects([charge()]);
    let mut world = World::plan(wiring).start().await;
    let first = world.run().await;
    world.pay(&World::invoice(1), 0).await;
    world.settled().await;
    world.workers[first].sigterm();
    let asked = Instant::now();
    assert_eq!(world.workers[first].wait_exit(BOUND).await, Some(0));
    assert!(asked.elapsed() < Duration::from_secs(5), "it took {:?} to end", asked.elapsed());
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k7_b12_two_processes_with_one_name_do_not_go_on_in_silence() {
    let wiring = Wiring::invoices("namesakes").effects([charge()]);
    let mut world = World::plan(wiring).start().await;
    let name = [("ONCELY_KAFKA_INSTANCE_ID", "worker-0")];
    let first = world.spawn(&name);
    world.wait_ready(first).await;
    world.pay_many(1, 4, 2).await;
    world.settled().await;
    let second = world.spawn(&name);
    let code = world.workers[first].wait_exit(BOUND).await;
    assert!(code.is_some_and(|code| code != 0), "the first is pushed out and says so: {code:?}");
    world.wait_ready(second).await;
    world.pay_many(5, 4, 2).await;
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k8_a_broker_is_lost_and_comes_back() {
    let wiring = Wiring::invoices("brokers").effects([charge()]);
    let mut world = World::plan(wiring).partitions(3).own_kafka(3).session_ms(6_000).start().await;
    world.run().await;
    world.run().await;
    world.pay_many(1, 15, 3).await;
    let topic = world.topic().to_owned();
    let leader = world.kafka().leader(&topic, 0).await.unwrap().unwrap();
    let leader = u16::try_from(leader).unwrap();
    world.own_kafka().kill(leader).await.unwrap();
    world.pay_many(16, 15, 3).await;
    world.settled().await;
    world.own_kafka().start_again(leader).await.unwrap();
    world.pay_many(31, 15, 3).await;
    world.settled().await;
    world.check_invariants().await;
}
