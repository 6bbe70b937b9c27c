//! How a process runs: before its servers, beside other connectors, within its limits.

use std::time::Duration;

use oncely_rig::provider::{Fault, Rule};
use oncely_tests::ledger::{Ending, Fate};
use oncely_tests::wiring::{charge, hook, usage};
use oncely_tests::world::BOUND;
use oncely_tests::{Event, Wiring, World};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e1_a_worker_that_starts_before_its_database() {
    let wiring = Wiring::invoices("early").effects([charge(), usage()]);
    let mut world = World::plan(wiring).start().await;
    world.database_proxy.listener_off().await;
    world.pay_many(1, 6, 2).await;
    let worker = world.spawn(&[]);
    world
        .until("a worker that says that it lives", async || {
            matches!(world.workers[worker].get("/healthz/live").await, Some((200, _)))
        })
        .await;
    assert!(!world.workers[worker].is_ready().await);
    world.database_proxy.listener_on().await.unwrap();
    world.wait_ready(worker).await;
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k8_the_only_broker_is_away_at_the_start_and_later() {
    let wiring = Wiring::invoices("alone").effects([charge()]);
    let mut world = World::plan(wiring).own_kafka(1).session_ms(6_000).unsampled().start().await;
    world.pay_many(1, 6, 2).await;
    world.own_kafka().stop(1).await.unwrap();
    let worker = world.spawn(&[]);
    world
        .until("a worker that says that it lives", async || {
            matches!(world.workers[worker].get("/healthz/live").await, Some((200, _)))
        })
        .await;
    assert_eq!(world.provider.counts().received, 0);
    world.own_kafka().start_again(1).await.unwrap();
    world.wait_ready(worker).await;
    world.settled().await;
    world.own_kafka().kill(1).await.unwrap();
    let busy = world.workers[worker].busy_in(Duration::from_secs(5)).await;
    assert!(busy < Duration::from_secs(2), "whoever waits rests: {busy:?} of five seconds");
    world.own_kafka().start_again(1).await.unwrap();
    world.pay_many(7, 6, 2).await;
    world.settled().await;
    assert!(world.workers[worker].runs(), "a broker that comes back finds the same process");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claimed_means_about_to_be_sent() {
    let few = "limits: { concurrency: 3 }";
    let wiring = Wiring::invoices("slots").effects([charge().with(few)]);
    let mut world = World::plan(wiring).start().await;
    let first = world.run().await;
    world.provider.hold_answers();
    world.pay_many(1, 12, 2).await;
    world.provider.wait_held(3, BOUND).await.unwrap();
    world.until("the rest to wait", async || world.effects_in("waiting").await == 9).await;
    world.looked().await;
    assert_eq!(world.effects_in("claimed").await, 3, "a claim is made into a free slot alone");
    assert_eq!(world.provider.counts().received, 3);
    // What was never sent is not lost with its worker, nor waited for.
    world.workers[first].kill9().await;
    world.provider.release();
    world.run().await;
    world.settled().await;
    assert_eq!(world.count("SELECT count(*) FROM oncely.effect WHERE takeovers > 0").await, 3);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_is_kept() {
    let wiring = Wiring::invoices("rate").effects([charge().with("limits: { rate: 5/s }")]);
    let mut world = World::plan(wiring).start().await;
    world.run().await;
    world.pay_many(1, 20, 2).await;
    world.settled().await;
    let log = world.provider.read_log().unwrap();
    let at: Vec<u64> = log.calls().map(|call| call.at).collect();
    // A bucket of one second's calls, filled at that rate: the first five at once, then one each 200 ms.
    let took = Duration::from_micros(at.last().unwrap() - at.first().unwrap());
    assert!(took >= Duration::from_millis(2_500), "20 calls at 5 a second took {took:?}");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_connectors_read_one_topic_in_one_process() {
    let wiring = Wiring::invoices("pair").effects([charge()]);
    let mut world = World::plan(wiring).unsampled().start().await;
    let mut other = Wiring::invoices(&format!("{}-other", world.name)).effects([hook()]);
    other.topic = world.topic().to_owned();
    world.write_another("other.yaml", &other);
    // The books are those of both.
    world.wiring.effects.extend(other.effects);
    world.run().await;
    for number in 1..=10_i32 {
        let event = Event::paid(&World::invoice(usize::try_from(number).unwrap()), 1);
        world.owe("charge", &event.invoice, Ending::Done);
        world.owe("hook", &event.id, Ending::Done);
        // Both copies in one partition: which is the first is the same for both.
        world.event(&event, number % 2, Fate::Applied).await;
        world.event(&event, number % 2, Fate::Applied).await;
    }
    world.until("both to be through", async || world.effects_in("done").await == 20).await;
    let positions = "SELECT count(*) FROM oncely.progress WHERE position = 10";
    world.until_count("two groups at the end of two partitions", positions, 4).await;
    let log = world.provider.read_log().unwrap();
    assert_eq!((log.effects_at("/v1/charges"), log.effects_at("/keyed/hooks")), (10, 10));
    assert_eq!(world.count("SELECT count(*) FROM oncely.inbox").await, 20, "memories are apart");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_throttle_that_outlives_the_retry_plan_uses_none_of_it_up() {
    let mut charge = charge();
    charge.replace(
        "attempts: 20, backoff: 50ms..400ms, max_elapsed: 10m",
        "attempts: 6, backoff: 400ms..400ms, max_elapsed: 2s",
    );
    let wiring = Wiring::invoices("throttled").effects([charge]);
    let mut world = World::plan(wiring).start().await;
    world.run().await;
    world.provider.fail(Rule::always(Fault::status(429)).to("/v1/charges"));
    world.pay(&World::invoice(1), 0).await;
    let long = "SELECT count(*) FROM oncely.effect
        WHERE attempts >= 10 AND now() - first_sent_at > interval '3 seconds'";
    world.until_count("a throttle longer than the plan", long, 1).await;
    // Then the provider is away for a moment, as when it is started anew.
    world.provider_proxy.listener_off().await;
    let failed = "SELECT count(*) FROM oncely.effect WHERE failures > 0";
    world.until_count("a refused connection", failed, 1).await;
    world.provider.heal();
    world.provider_proxy.listener_on().await.unwrap();
    world.settled().await;
    assert_eq!(world.effects_in("done").await, 1, "nothing is held for a person");
    world.check_invariants().await;
}

/// A busy topic leaves more behind than one look of retention removes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b25_retention_keeps_up_with_what_grows_too_old() {
    let mut world = World::plan(Wiring::invoices("behind").effects([charge()])).start().await;
    world.run().await;
    world.pay_many(1, 6, 2).await;
    world.settled().await;
    let old = "INSERT INTO oncely.inbox (key, fingerprint, first_offset, first_partition, source, outcome, tenant,
                                         first_seen_at)
               SELECT gen_random_uuid(), fingerprint, first_offset, first_partition, source, 'ignored', tenant,
                      now() - interval '1000 days'
               FROM (SELECT * FROM oncely.inbox LIMIT 1) AS one, generate_series(1, 30000)";
    world.sql(old).await;
    let left =
        "SELECT count(*) FROM oncely.inbox WHERE first_seen_at < now() - interval '999 days'";
    world.until_count("retention to come by all of it", left, 0).await;
    world.check_invariants().await;
}
