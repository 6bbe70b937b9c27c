//! Offsets that are not there, brokers that are away, members that are refused.

use std::time::{Duration, Instant};

use oncely::kafka::{
    Assignor, ClientSettings, ConsumerHandle, ConsumerSettings, Event, GroupProtocol, RevokeCause,
    StopMode, TopicPartition, TroubleKind,
};
use oncely_rig::kafka::{Kafka, KafkaOptions};

use super::cluster::{BOUND, create_topic, fill, fill_at, fresh, kafka};
use super::member::{Manners, Member, Shared, cooperative, settings, until};

/// K10: a partition whose position is gone stops visibly; the others go on.
#[tokio::test(flavor = "multi_thread")]
async fn k10_a_position_out_of_range_stops_its_partition_only() {
    let (topic, group) = (fresh("range"), fresh("g"));
    create_topic(&topic, 3).await;
    fill(&topic, 3, 300).await;
    kafka().delete_records(&topic, 0, 50).await.unwrap();
    let board = Shared::default();
    let at = |partition| TopicPartition::new(topic.as_str(), partition);
    // Partition 0 is below what is kept, partition 1 above what there is, partition 2 is fine.
    board.lock().unwrap().positions.extend([(at(0), 10), (at(1), 1_000), (at(2), 90)]);
    let settings = settings(&group, &[&topic], cooperative());
    let member = Member::join("m", &settings, &board, Manners::default());
    until("both stop", &board, |b| b.out_of_range.len() == 2).await;
    until("the other goes on", &board, |b| b.delivered.len() == 10).await;
    {
        let mut board = board.lock().unwrap();
        board.out_of_range.sort();
        assert_eq!(board.out_of_range, [(at(0), 10, 50, 100), (at(1), 1_000, 0, 100)]);
        assert!(board.delivered.iter().all(|(partition, ..)| partition.partition == 2));
        assert_eq!(board.fatal, Vec::<String>::new());
    }
    assert_eq!(member.handle.counts().out_of_range, 2);
    fill(&topic, 3, 30).await;
    until("still going on", &board, |b| b.delivered.len() == 20).await;
    assert_eq!(board.lock().unwrap().out_of_range.len(), 2);
    member.leave().await;
}

/// A partition that the worker leaves stopped is never fetched.
#[tokio::test(flavor = "multi_thread")]
async fn k12_a_partition_that_is_left_stopped_is_not_read() {
    let (topic, group) = (fresh("stopped"), fresh("g"));
    create_topic(&topic, 2).await;
    fill(&topic, 2, 100).await;
    let settings = settings(&group, &[&topic], cooperative());
    let (handle, mut events) = ConsumerHandle::spawn(&settings).unwrap();
    let mut seen = 0;
    let began = Instant::now();
    // All of the other partition, and then a while in which the stopped one could show itself.
    let mut all_since = None;
    while all_since.is_none_or(|since: Instant| since.elapsed() < Duration::from_millis(1_500)) {
        assert!(began.elapsed() < BOUND, "stuck at {seen}");
        match tokio::time::timeout(Duration::from_millis(100), events.recv()).await {
            Ok(Some(Event::Assigned(assigned))) => {
                for one in assigned {
                    if one.partition.partition == 0 {
                        handle.leave_stopped(one.assignment);
                    } else {
                        handle.start(one.assignment, 20);
                    }
                }
            }
            Ok(Some(Event::Records(batch))) => {
                assert!(batch.records.iter().all(|r| r.partition == 1 && r.offset >= 20));
                seen += batch.records.len();
                all_since = (seen == 30).then(Instant::now);
            }
            Ok(Some(other)) => panic!("{other:?}"),
            Ok(None) => panic!("closed"),
            Err(_) => {}
        }
    }
    assert_eq!(seen, 30);
    handle.stop(StopMode::Drain);
    while let Some(event) = events.recv().await {
        if let Event::Revoked(revoked) = event {
            assert_eq!(revoked.partitions.len(), 2);
        }
    }
}

/// B13: no broker, no hang.
#[tokio::test(flavor = "multi_thread")]
async fn b13_stopping_without_a_broker_ends_in_time() {
    let client = ClientSettings::parse("127.0.0.1:9", []).unwrap();
    let settings = ConsumerSettings::new(client, "g", vec!["t".to_owned()]);
    let (handle, mut events) = ConsumerHandle::spawn(&settings).unwrap();
    let first = tokio::time::timeout(Duration::from_secs(10), events.recv()).await.unwrap();
    let Some(Event::Trouble(trouble)) = first else { panic!("{first:?}") };
    assert_eq!(trouble.kind, TroubleKind::Transport);
    assert!(handle.counts().trouble_transport > 0);
    let began = Instant::now();
    handle.stop(StopMode::Drain);
    while events.recv().await.is_some() {}
    assert!(began.elapsed() < Duration::from_secs(7), "{:?}", began.elapsed());
}

/// K7, B12: a member whose name is taken by another one has to end its process.
#[tokio::test(flavor = "multi_thread")]
async fn k7_a_static_name_that_is_taken_is_fatal() {
    let (topic, group) = (fresh("static"), fresh("g"));
    create_topic(&topic, 1).await;
    let board = Shared::default();
    let mut settings = settings(&group, &[&topic], cooperative());
    settings.instance_id = Some("pod-0".to_owned());
    let first = Member::join("first", &settings, &board, Manners::default());
    until("its partition", &board, |b| super::member::count_of(b, "first") == 1).await;
    let second = Member::join("second", &settings, &board, Manners::default());
    until("the first is refused", &board, |b| !b.fatal.is_empty()).await;
    until("its thread ends", &board, |b| b.closed.iter().any(|(name, _)| name == "first")).await;
    second.leave().await;
    first.leave().await;
}

/// A topic that does not exist is trouble to be seen, not silence.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_topic_is_reported() {
    let (topic, group) = (fresh("missing"), fresh("g"));
    let board = Shared::default();
    let settings = settings(&group, &[&topic], cooperative());
    let member = Member::join("m", &settings, &board, Manners::default());
    until("trouble", &board, |b| b.trouble.iter().any(|t| t.contains(&topic))).await;
    assert!(board.lock().unwrap().trouble[0].starts_with("TopicMissing"));
    member.leave().await;
}

/// K8: a broker that answers nothing for a while stops the fetching and nothing else. Commits wait
/// for it on their own thread; afterwards nothing is lost or repeated.
#[tokio::test(flavor = "multi_thread")]
async fn k8_a_frozen_broker_does_not_stop_the_polling() {
    // Patient with itself: a broker that is its own controller fences itself else when it is thawed,
    // and names no broker at all to who asks in that moment. Clients forget all that they know then
    // and begin anew, mostly within a second; that is another story than this one.
    let patient = KafkaOptions::new(1).patient();
    let mut kafka = Kafka::start(&patient).await.unwrap();
    kafka.create_topic("frozen", 2, &[]).await.unwrap();
    let client = ClientSettings::parse(&kafka.bootstrap(), []).unwrap();
    fill_at(&client, "frozen", 2, 100).await;
    let board = Shared::default();
    let settings = ConsumerSettings::new(client.clone(), "g", vec!["frozen".to_owned()]);
    let member = Member::join("m", &settings, &board, Manners::default());
    until("the first records", &board, |b| b.delivered.len() == 100).await;
    fill_at(&client, "frozen", 2, 100).await;
    kafka.pause(1).unwrap();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(member.handle.silent_for() < Duration::from_secs(1), "polling stopped");
    }
    kafka.resume(1).unwrap();
    fill_at(&client, "frozen", 2, 100).await;
    until("all records", &board, |b| b.delivered.len() == 300).await;
    until("a commit", &board, |_| member.handle.counts().commits_done > 0).await;
    member.leave().await;
    let board = board.lock().unwrap();
    assert_eq!(board.wrong, Vec::<String>::new());
    assert_eq!(board.fatal, Vec::<String>::new());
}

/// K5, B10: when the session is over, the partitions are lost: no drain, no commit, and a new
/// assignment afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn k5_a_session_that_is_over_loses_the_partitions() {
    let patient = KafkaOptions::new(1).patient();
    let mut kafka = Kafka::start(&patient).await.unwrap();
    kafka.create_topic("lost", 2, &[]).await.unwrap();
    let client = ClientSettings::parse(&kafka.bootstrap(), []).unwrap();
    fill_at(&client, "lost", 2, 100).await;
    let board = Shared::default();
    let mut settings = ConsumerSettings::new(client.clone(), "g", vec!["lost".to_owned()]);
    settings.protocol = GroupProtocol::Classic {
        assignor: Assignor::CooperativeSticky,
        session_timeout: Duration::from_secs(3),
        heartbeat: Duration::from_millis(500),
    };
    settings.drain_max = Duration::from_secs(2);
    let member = Member::join("m", &settings, &board, Manners::default());
    until("the first records", &board, |b| b.delivered.len() == 100).await;
    kafka.pause(1).unwrap();
    until("the loss", &board, |b| !b.revoked.is_empty()).await;
    assert_eq!(board.lock().unwrap().revoked, [("m".to_owned(), RevokeCause::Lost, 2)]);
    assert_eq!(member.handle.counts().rebalances_lost, 1);
    kafka.resume(1).unwrap();
    until("both again", &board, |b| super::member::count_of(b, "m") == 2).await;
    fill_at(&client, "lost", 2, 100).await;
    until("all records", &board, |b| b.delivered.len() == 200).await;
    member.leave().await;
    assert_eq!(board.lock().unwrap().wrong, Vec::<String>::new());
}
