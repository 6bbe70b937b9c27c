//! When the time of an event comes that waits for a version: what keeps it from coming, and what does not.

use oncely_rig::provider::Hold;
use oncely_tests::ledger::Fate;
use oncely_tests::world::BOUND;
use oncely_tests::{Event, Record, World};

use super::gaps::{PARKED, WAITING, send, wiring};

/// A time counts what is read and decided. That a call takes its time is its own entity's affair, however long its
/// offset waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_hangs_keeps_no_other_entity_waiting() {
    let mut wiring = wiring("gap-hangs", "{ wait: 2s, then: apply, first: 1 }");
    wiring.offset_wait = "forever";
    // Longer than the times that are to come meanwhile.
    wiring.effects[0].replace("total: 5s", "total: 60s");
    let mut world = World::plan(wiring).start().await;
    world.run().await;
    world.provider.hold(Hold::BeforeApply);
    send(&world, &Event::paid(&World::invoice(1), 1), 0, Fate::Applied).await;
    world.provider.wait_held(1, BOUND).await.unwrap();
    for (number, partition) in [(2, 1), (3, 0)] {
        let event = Event::new("invoice.voided", &World::invoice(number), 3);
        send(&world, &event, partition, Fate::Applied).await;
    }
    world.until_count("two to wait", WAITING, 2).await;
    world.until_count("their time", WAITING, 0).await;
    let positions = "SELECT position FROM oncely.progress WHERE partition = 0";
    assert_eq!(world.count(positions).await, 0, "the offset still waits for its call");
    world.provider.release();
    world.settled().await;
    world.check_invariants().await;
}

/// What lay in a topic that is gone nobody will read. It is told, and no time waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_gone_keeps_no_time_from_coming() {
    let wiring = wiring("gap-gone", "{ wait: 1s, then: apply, first: 1 }");
    let mut world = World::plan(wiring).unsampled().start().await;
    let topic = world.topic().to_owned();
    let other = format!("{topic}.other");
    world.kafka().create_topic(&other, 1, &[]).await.unwrap();
    let file = world.dir().join("connectors/story.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let both = text.replace(&format!("topics: [{topic}]"), &format!("topics: [{topic}, {other}]"));
    std::fs::write(&file, both).unwrap();
    let worker = world.run().await;
    for number in 1..=2 {
        let event = Event::new("invoice.voided", &World::invoice(number), 3);
        send(&world, &event, 0, Fate::Applied).await;
        world.until_count("it to wait", WAITING, 1).await;
        world.until_count("its time", WAITING, 0).await;
        let told = world.workers[worker].log().contains("go on without it");
        assert_eq!(told, number == 2);
        if number == 1 {
            world.kafka().delete_topic(&other).await.unwrap();
        }
    }
    world.settled().await;
    world.check_invariants().await;
}

/// More entities than one look takes have an event without a time behind one that still has to wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s23_events_that_have_to_stay_starve_none_whose_time_has_come() {
    let mut wiring = wiring("gap-crowd", "{ wait: 1s, then: apply, first: 1 }");
    wiring.on_parked = "wait\n  max_deferred: 20000";
    let mut world = World::plan(wiring).partitions(1).unsampled().start().await;
    let first = world.run().await;
    send(&world, &Event::past_due(&World::invoice(1), 1), 0, Fate::Applied).await;
    world.settled().await;
    world.workers[first].kill9().await;
    world
        .sql(
            "INSERT INTO oncely.deferred
                 (event, entity, fingerprint, version, record_offset, record_partition, source, connector, due_at,
                  cause, tenant, business_id, headers)
             SELECT gen_random_uuid(), e.entity, e.entity, v.version, 1000, 0, s.id, s.connector,
                    v.due_at::timestamptz, v.cause, 'acct_7', 'crowd', ''
             FROM oncely.source AS s,
                  (SELECT gen_random_uuid() AS entity FROM generate_series(1, 5100)) AS e,
                  (VALUES (3, 'tomorrow', 'gap'), (5, 'infinity', 'parked')) AS v (version, due_at, cause)",
        )
        .await;
    world.run().await;
    let voided = Event::new("invoice.voided", &World::invoice(1), 3);
    send(&world, &voided, 0, Fate::Applied).await;
    let waits = |what| format!("{WAITING} AND business_id {what} 'crowd'");
    let done = async || world.status_of("hook", &voided.id).await.as_deref() == Some("done");
    world.until("its time", done).await;
    assert_eq!(world.count(&waits("<>")).await, 0);
    assert_eq!(world.count(&waits("=")).await, 10_200, "nobody else was let go");
    world.sql("DELETE FROM oncely.deferred WHERE business_id = 'crowd'").await;
    world.settled().await;
    world.check_invariants().await;
}

/// A record that is parked still is not forgotten, nor is that its version was decided.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s23_a_parked_record_is_passed_for_as_long_as_it_is_parked() {
    let wiring = wiring("gap-parked", "{ wait: 10m, first: 1 }");
    let mut world = World::plan(wiring).start().await;
    world.run().await;
    let name = World::invoice(1);
    let mut json = Event::paid(&name, 1).json();
    json["data"]["amount"] = "many".into();
    let record = Record::of(json.to_string()).key(&name);
    let id = Event::paid(&name, 1).id;
    world.produce(&record, Some(&id), Fate::Parked("expression_failed")).await;
    world.until_count("it to be parked", PARKED, 1).await;
    // Long ago; and another one, of which nothing is there any more.
    world
        .sql(
            "UPDATE oncely.passed SET noted_at = now() - interval '40 days';
             INSERT INTO oncely.passed (entity, version, noted_at, connector)
             SELECT gen_random_uuid(), 3, now() - interval '40 days', c.id FROM oncely.connector c",
        )
        .await;
    world.until_count("the other one to go", "SELECT count(*) FROM oncely.passed", 1).await;
    send(&world, &Event::paid(&name, 2), 0, Fate::Applied).await;
    world.settled().await;
    let applied = "SELECT count(*) FROM oncely.inbox WHERE outcome = 'applied' AND version = 2";
    assert_eq!(world.count(applied).await, 1);
    world.check_invariants().await;
}
