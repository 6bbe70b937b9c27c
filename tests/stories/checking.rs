//! The checker itself: a story that was tampered with must not pass.

use oncely_rig::proxy::Mode;
use oncely_tests::ledger::{Ending, Fate};
use oncely_tests::wiring::charge;
use oncely_tests::{Event, Wiring, World};

/// A small story at rest, and the statement that spoils its tables.
async fn spoiled(name: &str, statement: &str) {
    let mut world = World::plan(Wiring::invoices(name).effects([charge()])).start().await;
    world.run().await;
    world.pay_many(1, 3, 1).await;
    world.settled().await;
    world.sql(statement).await;
    world.check_at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[should_panic(expected = "I2: evt-inv00001-001 is remembered 0 times")]
async fn a_lost_record_is_noticed() {
    spoiled("lost", "DELETE FROM oncely.inbox WHERE first_offset = 0 AND first_partition = 0")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[should_panic(expected = "is waiting, applied 1, not Done")]
async fn an_open_effect_is_noticed() {
    spoiled(
        "open",
        "UPDATE oncely.effect SET status = 'waiting', settled_at = NULL, result = NULL,
                due_at = now() + interval '1 hour' WHERE business_id LIKE '%inv00002%'",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[should_panic(expected = "I3: inv00003 is at")]
async fn a_wrong_version_is_noticed() {
    spoiled("version", "UPDATE oncely.entity SET version = 9").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[should_panic(expected = "I7: 0 overrides, 1 audit rows")]
async fn an_audit_row_too_many_is_noticed() {
    spoiled("audit", "INSERT INTO oncely.audit (actor, action, reason) VALUES ('a', 'b', 'c')")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[should_panic(expected = "I4: ")]
async fn an_offset_committed_too_early_is_noticed() {
    let mut world = World::plan(Wiring::invoices("early").effects([charge()])).start().await;
    world.run().await;
    world.pay_many(1, 4, 1).await;
    world.settled().await;
    // Nobody remembers the first record any more, and its offset stays committed.
    world.sql("DELETE FROM oncely.inbox WHERE first_offset = 0 AND first_partition = 0").await;
    world.looked().await;
    let lost = Event::paid(&World::invoice(1), 1);
    world.sql("TRUNCATE oncely.effect").await;
    assert_eq!(lost.id, "evt-inv00001-001");
    world.check_sampled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[should_panic(expected = "I4: ")]
async fn w10_an_offset_that_stays_ahead_after_a_failover_is_noticed() {
    let mut world = World::plan(Wiring::invoices("ahead").effects([charge()])).start().await;
    let worker = world.run().await;
    world.pay_many(1, 4, 1).await;
    world.settled().await;
    world.workers[worker].kill9().await;
    // A failover as it would stand on record, which has lost a record for good.
    world
        .sql(
            "DELETE FROM oncely.inbox WHERE first_offset = 0;
             INSERT INTO oncely.failover (number, system_identifier, timeline, system_before,
                timeline_before, lost_since, quiet_at, lossless)
             SELECT 2, system_identifier, timeline, 1, 1, now(), now(), false FROM oncely.failover",
        )
        .await;
    world.looked().await;
    // Only what lasts counts then: that is how long.
    tokio::time::sleep(std::time::Duration::from_secs(11)).await;
    world.check_sampled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[should_panic(expected = "took effect 2 times")]
async fn a_second_effect_is_noticed() {
    let mut world = World::plan(Wiring::invoices("second").effects([charge()])).start().await;
    world.run().await;
    world.pay_many(1, 2, 1).await;
    world.settled().await;
    // The provider forgets its keys, and somebody sends the same request again.
    world.provider.forget_keys();
    let key = world.key_of("charge", &World::invoice(1)).await;
    world.provider_proxy.set(Mode::Pass);
    world.call_provider("/v1/charges", &key, "description=inv00001").await;
    world.check_at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[should_panic(expected = "I1: nobody owed request")]
async fn a_call_that_nobody_owed_is_noticed() {
    let mut world = World::plan(Wiring::invoices("unowed").effects([charge()])).start().await;
    world.run().await;
    world.owe("charge", &World::invoice(1), Ending::Done);
    world.event(&Event::paid(&World::invoice(1), 1), 0, Fate::Applied).await;
    world.settled().await;
    world.call_provider("/v1/charges", "ef_other", "description=inv00009").await;
    world.check_at_rest().await;
}
