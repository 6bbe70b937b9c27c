//! A worker that takes nothing for a while.

use std::time::{Duration, Instant};

use oncely::kafka::{Assignor, ConsumerHandle, Event, FlowBounds, GroupProtocol, StopMode};

use super::cluster::{BOUND, create_topic, fill, fresh};
use super::member::settings;

/// B39, K2: memory stays within its bound, polling goes on, and nothing is lost or repeated.
#[tokio::test(flavor = "multi_thread")]
async fn b39_a_worker_that_holds_everything_stops_the_fetching() {
    let (topic, group) = (fresh("full"), fresh("g"));
    create_topic(&topic, 3).await;
    fill(&topic, 3, 6_000).await;
    let mut settings = settings(&group, &[&topic], GroupProtocol::default());
    settings.flow = FlowBounds { records_max: 500, bytes_max: 1 << 20 };
    settings.batch_records_max = 200;
    let (handle, mut events) = ConsumerHandle::spawn(&settings).unwrap();
    let mut held = Vec::new();
    let mut seen = 0;
    let began = Instant::now();
    // Until it is full, and then a while in which more could come.
    let mut full_since = None;
    while full_since.is_none_or(|since: Instant| since.elapsed() < Duration::from_secs(2)) {
        assert!(began.elapsed() < BOUND, "not full at {seen}");
        match tokio::time::timeout(Duration::from_millis(200), events.recv()).await {
            Ok(Some(Event::Assigned(assigned))) => {
                for one in assigned {
                    handle.start(one.assignment, 0);
                }
            }
            Ok(Some(Event::Records(batch))) => {
                seen += batch.records.len();
                held.push(batch);
                if seen >= 500 {
                    full_since.get_or_insert_with(Instant::now);
                }
            }
            Ok(Some(other)) => panic!("{other:?}"),
            Ok(None) => panic!("closed"),
            Err(_) => {}
        }
        assert!(handle.in_flight().0 <= 700, "{:?}", handle.in_flight());
    }
    assert!((500..=700).contains(&seen), "{seen}");
    assert_eq!(handle.counts().back_pressure, 1);
    assert!(handle.silent_for() < Duration::from_secs(1), "polling stopped");
    let mut next = [0_i64; 3];
    let mut check = |batch: &oncely::kafka::RecordBatch| {
        for record in &batch.records {
            let next = &mut next[record.partition as usize];
            assert_eq!(record.offset, *next, "lost or repeated");
            *next += 1;
            assert_eq!(record.header("trace").unwrap().value.as_deref(), Some(&b"1"[..]));
            assert_eq!(record.header("empty").unwrap().value, None);
            assert!(!record.headers_broken);
        }
    };
    held.iter().for_each(&mut check);
    drop(held);
    let began = Instant::now();
    while seen < 6_000 {
        assert!(began.elapsed() < BOUND, "stuck at {seen}");
        if let Ok(Some(Event::Records(batch))) =
            tokio::time::timeout(Duration::from_millis(200), events.recv()).await
        {
            seen += batch.records.len();
            check(&batch);
        }
    }
    handle.stop(StopMode::Now);
    while let Some(event) = events.recv().await {
        if let Event::Closed { clean } = event {
            assert!(clean);
        }
    }
    assert_eq!(handle.in_flight(), (0, 0));
}

/// K2: calls take longer than a whole poll interval, and nobody gives the records to another member.
#[tokio::test(flavor = "multi_thread")]
async fn k2_a_worker_that_is_busy_for_longer_than_a_poll_interval_stays_a_member() {
    let (topic, group) = (fresh("busy"), fresh("g"));
    create_topic(&topic, 2).await;
    fill(&topic, 2, 600).await;
    let (session, heartbeat) = (Duration::from_secs(6), Duration::from_millis(500));
    let assignor = Assignor::CooperativeSticky;
    let protocol = GroupProtocol::Classic { assignor, session_timeout: session, heartbeat };
    let mut settings = settings(&group, &[&topic], protocol);
    settings.poll_interval = Duration::from_millis(6_500);
    settings.drain_max = Duration::from_secs(2);
    settings.flow = FlowBounds { records_max: 100, bytes_max: 1 << 20 };
    settings.batch_records_max = 50;
    let (handle, mut events) = ConsumerHandle::spawn(&settings).unwrap();
    let (mut held, mut seen, mut full_since) = (Vec::new(), 0, None);
    let began = Instant::now();
    let busy = settings.poll_interval.saturating_mul(2);
    while full_since.is_none_or(|since: Instant| since.elapsed() < busy) {
        assert!(began.elapsed() < BOUND, "not full at {seen}");
        match tokio::time::timeout(Duration::from_millis(200), events.recv()).await {
            Ok(Some(Event::Assigned(assigned))) => {
                for one in assigned {
                    handle.start(one.assignment, 0);
                }
            }
            Ok(Some(Event::Records(batch))) => {
                seen += batch.records.len();
                held.push(batch);
                if seen >= 100 {
                    full_since.get_or_insert_with(Instant::now);
                }
            }
            Ok(other) => panic!("taken from a busy member: {other:?}"),
            Err(_) => {}
        }
    }
    assert_eq!(handle.counts().poll_interval_exceeded, 0);
    // It is still the owner of what it holds, and of the rest.
    drop(held);
    let began = Instant::now();
    while seen < 600 {
        assert!(began.elapsed() < BOUND, "stuck at {seen}");
        match tokio::time::timeout(Duration::from_millis(200), events.recv()).await {
            Ok(Some(Event::Records(batch))) => seen += batch.records.len(),
            Ok(other) => panic!("{other:?}"),
            Err(_) => {}
        }
    }
    handle.stop(StopMode::Now);
    while let Some(event) = events.recv().await {
        if let Event::Closed { clean } = event {
            assert!(clean);
        }
    }
}
