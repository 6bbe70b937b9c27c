//! Members come and go while records flow.

use std::time::{Duration, Instant};

use oncely::kafka::{Admin, Assignor, GroupProtocol, RevokeCause, TopicPartition};

use super::cluster::{create_topic, fill, fresh};
use super::member::{
    Gate, Manners, Member, Shared, classic, cooperative, count_of, settings, until,
};

const PARTITIONS: i32 = 6;
const PARTITIONS_TOTAL: u32 = 6;

fn range() -> GroupProtocol {
    classic(Assignor::Range)
}

/// K3, K4, B3, B5: every record is delivered once, in order, whoever has its partition, since each
/// move drains and starts at the position.
async fn members_come_and_go(protocol: GroupProtocol) {
    let (topic, group) = (fresh("moves"), fresh("g"));
    create_topic(&topic, PARTITIONS_TOTAL).await;
    let board = Shared::default();
    let settings = settings(&group, &[&topic], protocol);
    let stays = Member::join("stays", &settings, &board, Manners::default());
    until("all partitions", &board, |b| count_of(b, "stays") == 6).await;
    let mut sent = 0;
    for round in 0..6 {
        let topic = topic.clone();
        let filling = tokio::spawn(async move { fill(&topic, PARTITIONS, 600).await });
        let name = format!("guest-{round}");
        let guest = Member::join(&name, &settings, &board, Manners::default());
        until("its share", &board, |b| count_of(b, &name) == 3 && count_of(b, "stays") == 3).await;
        tokio::time::sleep(Duration::from_millis(50 * round)).await;
        guest.leave().await;
        until("all again", &board, |b| count_of(b, "stays") == 6).await;
        filling.await.unwrap();
        sent += 600;
        until("all records", &board, |b| b.delivered.len() >= sent).await;
    }
    stays.leave().await;
    let admin = Admin::new(&super::cluster::settings(), &group).unwrap();
    let all: Vec<_> = (0..PARTITIONS).map(|p| TopicPartition::new(topic.as_str(), p)).collect();
    let committed = admin.committed(&all).await.unwrap();
    let board = board.lock().unwrap();
    assert_eq!(board.wrong, Vec::<String>::new());
    assert_eq!(board.fatal, Vec::<String>::new());
    assert_eq!(board.delivered.len(), sent);
    assert!(board.closed.iter().all(|(_, clean)| *clean), "{:?}", board.closed);
    assert_eq!(committed, board.positions, "what is committed is what is finished");
}

#[tokio::test(flavor = "multi_thread")]
async fn k3_members_come_and_go_cooperative() {
    members_come_and_go(cooperative()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k20_members_come_and_go_broker_assigned() {
    members_come_and_go(GroupProtocol::Consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k3_members_come_and_go_range() {
    members_come_and_go(range()).await;
}

/// While the database is away nothing is fetched, and the group goes on: others get their share at
/// once, also out of partitions whose start is not known yet.
async fn a_start_that_takes_long(protocol: GroupProtocol) {
    let (topic, group) = (fresh("late"), fresh("g"));
    create_topic(&topic, PARTITIONS_TOTAL).await;
    fill(&topic, PARTITIONS, 600).await;
    let board = Shared::default();
    for partition in 0..PARTITIONS {
        board.lock().unwrap().positions.insert(TopicPartition::new(topic.as_str(), partition), 40);
    }
    let settings = settings(&group, &[&topic], protocol);
    let away = Manners { start: Gate::shut(), ..Manners::default() };
    let first = Member::join("first", &settings, &board, away.clone());
    until("all partitions", &board, |b| count_of(b, "first") == 6).await;
    let second = Member::join("second", &settings, &board, Manners::default());
    until("a share each", &board, |b| count_of(b, "first") == 3 && count_of(b, "second") == 3)
        .await;
    until("half of the records", &board, |b| b.delivered.len() == 180).await;
    assert!(board.lock().unwrap().delivered.iter().all(|(_, _, name)| name == "second"));
    assert!(first.handle.silent_for() < Duration::from_secs(1));
    away.start.open();
    until("all records", &board, |b| b.delivered.len() == 360).await;
    first.leave().await;
    second.leave().await;
    assert_eq!(board.lock().unwrap().wrong, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_takes_long_cooperative() {
    a_start_that_takes_long(cooperative()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_takes_long_broker_assigned() {
    a_start_that_takes_long(GroupProtocol::Consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_takes_long_range() {
    a_start_that_takes_long(range()).await;
}

/// How long the drains take that are waited for: many looks of [`until`].
const DRAIN: Duration = Duration::from_secs(1);

/// B10: the next owner of a partition waits until the drain is over.
async fn a_drain_is_waited_for(protocol: GroupProtocol) {
    let (topic, group) = (fresh("drain"), fresh("g"));
    create_topic(&topic, 2).await;
    fill(&topic, 2, 100).await;
    let board = Shared::default();
    let mut settings = settings(&group, &[&topic], protocol);
    settings.drain_max = Duration::from_secs(20);
    let slow = Manners { drain_for: DRAIN, ..Manners::default() };
    let first = Member::join("first", &settings, &board, slow);
    until("all records", &board, |b| b.delivered.len() == 100).await;
    let second = Member::join("second", &settings, &board, Manners::default());
    until("a share each", &board, |b| {
        let drained = !b.revoked.is_empty();
        let has_it = count_of(b, "second") == 1;
        assert!(drained || !has_it, "the drain was not waited for");
        has_it
    })
    .await;
    let stopping = Instant::now();
    first.leave().await;
    assert!(stopping.elapsed() >= DRAIN);
    until("all partitions", &board, |b| count_of(b, "second") == 2).await;
    second.leave().await;
    let board = board.lock().unwrap();
    assert_eq!(board.wrong, Vec::<String>::new());
    let causes: Vec<_> = board.revoked.iter().map(|(_, cause, _)| *cause).collect();
    assert_eq!(causes, [RevokeCause::Rebalance, RevokeCause::Stop, RevokeCause::Stop]);
}

#[tokio::test(flavor = "multi_thread")]
async fn b10_a_drain_is_waited_for_cooperative() {
    a_drain_is_waited_for(cooperative()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b10_a_drain_is_waited_for_broker_assigned() {
    a_drain_is_waited_for(GroupProtocol::Consumer).await;
}

/// A worker that never answers a revoke holds the group up for the bound, not for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_never_ends_is_cut_off() {
    let (topic, group) = (fresh("stuck"), fresh("g"));
    create_topic(&topic, 2).await;
    let board = Shared::default();
    let mut settings = settings(&group, &[&topic], cooperative());
    settings.drain_max = Duration::from_secs(1);
    let never = Manners { drain: Gate::shut(), ..Manners::default() };
    let first = Member::join("first", &settings, &board, never.clone());
    until("all partitions", &board, |b| count_of(b, "first") == 2).await;
    let second = Member::join("second", &settings, &board, Manners::default());
    until("a share", &board, |b| count_of(b, "second") == 1).await;
    assert_eq!(first.handle.counts().drains_late, 1);
    never.drain.open();
    first.leave().await;
    second.leave().await;
}
