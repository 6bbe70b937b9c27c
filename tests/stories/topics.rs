//! Where reading begins, and topics that change under the reader.

use oncely_rig::proxy::Mode;
use oncely_tests::ledger::Fate;
use oncely_tests::wiring::charge;
use oncely_tests::world::BOUND;
use oncely_tests::{Event, Wiring, World};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k18_the_groups_offsets_are_deleted_and_the_position_holds() {
    let wiring = Wiring::invoices("offsets").effects([charge()]);
    let mut world = World::plan(wiring).start().await;
    let first = world.run().await;
    world.pay_many(1, 10, 2).await;
    world.settled().await;
    world.workers[first].sigterm();
    assert_eq!(world.workers[first].wait_exit(BOUND).await, Some(0));
    world.kafka().delete_group(world.group()).await.unwrap();
    world.pay_many(11, 10, 2).await;
    let second = world.run().await;
    world.settled().await;
    let worker = &world.workers[second];
    let read = worker.metric("oncely_events_consumed_total", "").await;
    assert_eq!(read, 10.0, "what was read before is not read again");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k10_latest_is_decided_before_the_first_record() {
    let mut wiring = Wiring::invoices("latest").effects([charge()]);
    wiring.start = "latest";
    let mut world = World::plan(wiring).start().await;
    for number in 1..=3 {
        // Before the group was there: none of its business.
        let event = Event::paid(&World::invoice(number), 1);
        world.event(&event, 0, Fate::Ignored).await;
    }
    let first = world.run().await;
    world.until_count("positions", "SELECT count(*) FROM oncely.progress", 2).await;
    world.workers[first].sigterm();
    assert_eq!(world.workers[first].wait_exit(BOUND).await, Some(0));
    // While nobody was there: owed.
    world.pay_many(4, 6, 2).await;
    world.run().await;
    world.settled().await;
    assert_eq!(world.effects_in("done").await, 6);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k13_a_partition_that_comes_later_is_read_from_its_beginning() {
    let mut wiring = Wiring::invoices("added").effects([charge()]);
    wiring.start = "latest";
    let plan = World::plan(wiring).partitions(1);
    let plan = plan.env("ONCELY_KAFKA__TOPIC_METADATA_REFRESH_INTERVAL_MS", "500");
    let mut world = plan.start().await;
    world.run().await;
    world.until_count("a position", "SELECT count(*) FROM oncely.progress", 1).await;
    world.pay_many(1, 4, 1).await;
    world.settled().await;
    world.kafka().add_partitions(world.topic(), 3).await.unwrap();
    // Written before the reader has noticed that there are more.
    for number in 5..=16 {
        world.pay(&World::invoice(number), i32::try_from(number).unwrap() % 3).await;
    }
    // Keys move when partitions are added: the next version lies elsewhere.
    for number in 1..=4 {
        let late = Event::past_due(&World::invoice(number), 0);
        world.event(&late, 2, Fate::Stale).await;
    }
    world.settled().await;
    assert_eq!(world.effects_in("done").await, 16);
    world.check_invariants().await;
}

/// Lets the connector read a second topic beside the story's own; gives its name.
fn reads_another(world: &World) -> String {
    let (topic, other) = (world.topic().to_owned(), format!("{}-other", world.topic()));
    let file = world.dir().join("connectors/story.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let both = text.replace(&format!("[{topic}]"), &format!("[{topic}, {other}]"));
    assert_ne!(both, text);
    std::fs::write(file, both).unwrap();
    other
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_gone_holds_up_no_other() {
    let wiring = Wiring::invoices("gone").effects([charge()]);
    let mut world = World::plan(wiring).start().await;
    let other = reads_another(&world);
    world.kafka().create_topic(&other, 2, &[]).await.unwrap();
    world.pay_many(1, 4, 2).await;
    world.database_proxy.set(Mode::DelayMs(200));
    let worker = world.spawn(&[]);
    // The positions of one are being looked for while the other goes.
    world
        .until("an assignment", async || {
            world.workers[worker].log().contains("partitions assigned")
        })
        .await;
    world.kafka().delete_topic(&other).await.unwrap();
    world.database_proxy.set(Mode::Pass);
    world.settled().await;
    assert_eq!(world.effects_in("done").await, 4);
    // Made again, it is read.
    world.kafka().create_topic(&other, 1, &[]).await.unwrap();
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_comes_later_and_keeps_its_records_too_long_is_not_read() {
    let wiring = Wiring::invoices("longer").effects([charge()]);
    let plan = World::plan(wiring).env("ONCELY_KAFKA__TOPIC_METADATA_REFRESH_INTERVAL_MS", "500");
    let mut world = plan.start().await;
    let other = reads_another(&world);
    let worker = world.run().await;
    world.pay_many(1, 2, 2).await;
    world.settled().await;
    let days = (90_u64 * 86_400_000).to_string();
    world.kafka().create_topic(&other, 1, &[("retention.ms", &days)]).await.unwrap();
    world
        .until("the other topic to be stopped", async || {
            world.workers[worker].metric("oncely_partitions_stopped", "").await == 1.0
        })
        .await;
    let said = "raise retention.dedupe to at least 90d";
    assert!(world.workers[worker].log().contains(said), "and it says why");
    world.pay_many(3, 2, 2).await;
    world.settled().await;
    assert_eq!(world.effects_in("done").await, 4, "its neighbour is read on");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k12_a_topic_made_anew_stops_until_a_person_accepts_it() {
    let wiring = Wiring::invoices("anew").effects([charge()]);
    let mut world = World::plan(wiring).partitions(1).unsampled().start().await;
    let first = world.run().await;
    world.pay_many(1, 5, 1).await;
    world.settled().await;
    world.workers[first].sigterm();
    assert_eq!(world.workers[first].wait_exit(BOUND).await, Some(0));
    let topic = world.topic().to_owned();
    world.kafka().delete_topic(&topic).await.unwrap();
    world.kafka().create_topic(&topic, 1, &[]).await.unwrap();
    world.forget_topic().await;
    // One that is known, from a record that is gone, and two that are new.
    world.event(&Event::paid(&World::invoice(1), 1), 0, Fate::Ignored).await;
    world.pay_many(6, 2, 1).await;
    let second = world.spawn(&[]);
    let stopped = "SELECT count(*) FROM oncely.progress WHERE stopped IS NOT NULL";
    world.until_count("the topic to be stopped", stopped, 1).await;
    world
        .until("a clear state", async || {
            let worker = &world.workers[second];
            worker.metric("oncely_partitions_stopped", "").await == 1.0
        })
        .await;
    assert_eq!(world.provider.counts().received, 5, "nothing is read meanwhile");
    let group = world.group().to_owned();
    world.accept(&group, &topic).await;
    world.workers[second].sigterm();
    assert_eq!(world.workers[second].wait_exit(BOUND).await, Some(0));
    world.run().await;
    world.until("the new records", async || world.effects_in("done").await == 7).await;
    assert_eq!(world.provider.counts().received, 7, "what is known is not done again");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k10_records_deleted_before_they_were_read_stop_the_partition() {
    let wiring = Wiring::invoices("deleted").effects([charge()]);
    let mut world = World::plan(wiring).partitions(1).unsampled().start().await;
    let first = world.run().await;
    world.pay_many(1, 3, 1).await;
    world.settled().await;
    world.workers[first].sigterm();
    assert_eq!(world.workers[first].wait_exit(BOUND).await, Some(0));
    world.pay_many(4, 4, 1).await;
    let topic = world.topic().to_owned();
    world.kafka().delete_records(&topic, 0, 5).await.unwrap();
    let second = world.spawn(&[]);
    let stopped = "SELECT count(*) FROM oncely.progress WHERE stopped IS NOT NULL";
    world.until_count("the partition to be stopped", stopped, 1).await;
    assert_eq!(world.provider.counts().received, 3);
    let group = world.group().to_owned();
    world.accept(&group, &topic).await;
    // The process that stopped goes on by itself.
    world.until("what is left", async || world.effects_in("done").await == 5).await;
    assert!(world.workers[second].runs());
    // The books cannot be laid beside a topic whose beginning is gone: what was paid for is counted instead.
    world.stop_all().await;
    assert_eq!(world.provider.counts().applied, 5);
    assert!(world.provider.read_log().unwrap().repeated().is_empty());
}
