//! Faults that were found by trying to break it, each kept as a story.

use std::time::Duration;

use oncely_rig::provider::{Fault, Rule};
use oncely_rig::proxy::Mode;
use oncely_tests::ledger::Ending;
use oncely_tests::wiring::{charge, hook, note, receipt, usage};
use oncely_tests::world::BOUND;
use oncely_tests::{Wiring, World};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn br1_e1_connections_that_died_without_a_word_are_given_up() {
    let wiring = Wiring::invoices("mute").effects([charge(), usage()]);
    let mut world = World::plan(wiring).start().await;
    world.run().await;
    world.pay_many(1, 6, 2).await;
    world.settled().await;
    // The database moved: nobody says so on the old connections, new ones are answered.
    world.database_proxy.forget_open();
    world.pay_many(7, 6, 2).await;
    let done = async || world.effects_in("done").await == 12;
    world.until_within("a new connection", Duration::from_secs(120), done).await;
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn br2_k12_a_topic_made_anew_under_a_running_worker_loses_nothing_in_silence() {
    let wiring = Wiring::invoices("swapped").effects([charge()]);
    let plan = World::plan(wiring).partitions(1).unsampled();
    let plan = plan.env("ONCELY_KAFKA__TOPIC_METADATA_REFRESH_INTERVAL_MS", "1000");
    let mut world = plan.start().await;
    let worker = world.run().await;
    world.pay_many(1, 3, 1).await;
    world.settled().await;
    let topic = world.topic().to_owned();
    world.kafka().delete_topic(&topic).await.unwrap();
    world.kafka().create_topic(&topic, 1, &[]).await.unwrap();
    world.forget_topic().await;
    world.pay_many(4, 8, 1).await;
    let stopped = "SELECT count(*) FROM oncely.progress WHERE stopped IS NOT NULL";
    world
        .until("all read, or a clear stop", async || {
            world.effects_in("done").await == 11 || world.count(stopped).await > 0
        })
        .await;
    if world.count(stopped).await > 0 {
        let group = world.group().to_owned();
        world.accept(&group, &topic).await;
        world.until("the rest", async || world.effects_in("done").await == 11).await;
    }
    assert!(world.workers[worker].runs());
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn br2_k12_a_topic_made_anew_and_filled_while_nobody_fetched_is_noticed_soon() {
    let wiring = Wiring::invoices("refilled").effects([charge()]);
    let plan = World::plan(wiring).partitions(1).session_ms(30_000).unsampled();
    let mut world = plan.env("ONCELY_SHUTDOWN_GRACE", "40s").start().await;
    let worker = world.run().await;
    world.pay_many(1, 2, 1).await;
    world.settled().await;
    let topic = world.topic().to_owned();
    world.workers[worker].freeze();
    world.kafka().delete_topic(&topic).await.unwrap();
    world.kafka().create_topic(&topic, 1, &[]).await.unwrap();
    world.forget_topic().await;
    // The position fits the new topic as well: its offset is there.
    world.pay_many(3, 6, 1).await;
    world.workers[worker].thaw();
    let stopped = "SELECT count(*) FROM oncely.progress WHERE stopped LIKE '%made anew%'";
    let noticed = async || world.count(stopped).await == 1;
    world.until_within("a clear stop", Duration::from_secs(3), noticed).await;
    let group = world.group().to_owned();
    world.accept(&group, &topic).await;
    world.until("all of it", async || world.effects_in("done").await == 8).await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn br3_k10_records_deleted_under_a_running_worker_can_be_accepted() {
    let wiring = Wiring::invoices("expired").effects([charge()]);
    let plan = World::plan(wiring).partitions(1).session_ms(30_000).unsampled();
    let plan = plan.env("ONCELY_SHUTDOWN_GRACE", "40s").env("ONCELY_DRAIN", "2s");
    let mut world = plan.start().await;
    let worker = world.run().await;
    world.pay_many(1, 3, 1).await;
    world.settled().await;
    let topic = world.topic().to_owned();
    let stopped = "SELECT count(*) FROM oncely.progress WHERE stopped IS NOT NULL";
    let mut sent = 3;
    // The fetch that lies at the broker when the worker freezes may take along what is written then: until
    // one was too early for what is deleted.
    while world.count(stopped).await == 0 {
        assert!(sent < 60, "what was deleted had always been read before");
        world.workers[worker].freeze();
        world.pay_many(sent + 1, 4, 1).await;
        sent += 4;
        let before = i64::try_from(sent).unwrap() - 2;
        world.kafka().delete_records(&topic, 0, before).await.unwrap();
        world.workers[worker].thaw();
        let all = i64::try_from(sent).unwrap();
        world
            .until("all read, or the partition to be stopped", async || {
                world.effects_in("done").await == all || world.count(stopped).await == 1
            })
            .await;
    }
    let group = world.group().to_owned();
    world.accept(&group, &topic).await;
    let last = World::invoice(sent);
    let done = async || world.status_of("charge", &last).await.as_deref() == Some("done");
    world.until("what is left, without a restart", done).await;
    // The books cannot be laid beside a topic whose beginning is gone, and which of it was read is chance.
    world.stop_all().await;
    assert!(world.provider.read_log().unwrap().repeated().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn br5_w15_a_database_that_is_gone_cannot_keep_a_worker() {
    let wiring = Wiring::invoices("kept").effects([charge()]);
    let mut world = World::plan(wiring).start().await;
    world.provider.set_latency(Duration::from_millis(300));
    let worker = world.run().await;
    world.pay_many(1, 20, 2).await;
    world.provider.wait_applied(3, BOUND).await.unwrap();
    world.database_proxy.set(Mode::StallBoth);
    world.workers[worker].sigterm();
    // The grace of stories is eight seconds.
    world.workers[worker].wait_exit(Duration::from_secs(13)).await;
    world.database_proxy.set(Mode::Pass);
    world.run().await;
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn br4_a_held_effect_lets_go_of_all_that_waits_behind_it() {
    let hook = hook().with("after: [receipt]\nwhen: entered(\"paid\")");
    let mut wiring =
        Wiring::invoices("chained").effects([note(), receipt().with("after: [note]"), hook]);
    wiring.offset_wait = "forever";
    let mut world = World::plan(wiring).start().await;
    world.run().await;
    world.provider.fail(Rule::times(1, Fault::CloseAfter).to("/plain/notes"));
    let names = world.pay_many(1, 1, 1).await;
    world.until("one held", async || world.effects_in("held").await == 1).await;
    world.owe("note", &names[0], Ending::Held);
    world.owe("receipt", &names[0], Ending::Blocked);
    world.owe("hook", &names[0], Ending::Blocked);
    world.pay_many(2, 3, 1).await;
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn br6_k10_a_topic_that_comes_later_is_read_and_its_absence_keeps_nobody() {
    let wiring = Wiring::invoices("later").effects([charge()]);
    let plan = World::plan(wiring).partitions(1).unsampled();
    let plan = plan.env("ONCELY_KAFKA__TOPIC_METADATA_REFRESH_INTERVAL_MS", "1000");
    let mut world = plan.start().await;
    let topic = world.topic().to_owned();
    world.kafka().delete_topic(&topic).await.unwrap();
    let first = world.spawn(&[]);
    let said = async |world: &World| world.workers[first].log().contains("topic retention");
    world.until("a word about the topic", async || said(&world).await).await;
    world.workers[first].sigterm();
    assert_eq!(world.workers[first].wait_exit(Duration::from_secs(15)).await, Some(0));
    let second = world.spawn(&[]);
    world.kafka().create_topic(&topic, 1, &[]).await.unwrap();
    world.pay_many(1, 3, 1).await;
    world.settled().await;
    assert!(world.workers[second].runs());
    world.check_invariants().await;
}
