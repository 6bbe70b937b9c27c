//! Partitions that are begun anew while they are read.

use std::time::{Duration, Instant};

use oncely::kafka::{ConsumerHandle, Event, Events, GroupProtocol, RecordBatch, StopMode};

use super::cluster::{BOUND, create_topic, fill, fresh};
use super::member::settings;

async fn batch(events: &mut Events) -> RecordBatch {
    match tokio::time::timeout(BOUND, events.recv()).await.expect("an event") {
        Some(Event::Records(batch)) => batch,
        other => panic!("{other:?}"),
    }
}

/// W10: whoever goes back to a lower offset is not given records of before as the first ones from there. They would
/// be finished first, and what lies below a position is never read.
#[tokio::test(flavor = "multi_thread")]
async fn w10_records_of_before_a_new_start_are_told_from_those_after_it() {
    let (topic, group) = (fresh("anew"), fresh("g"));
    create_topic(&topic, 1).await;
    fill(&topic, 1, 100).await;
    let settings = settings(&group, &[&topic], GroupProtocol::default());
    let (handle, mut events) = ConsumerHandle::spawn(&settings).unwrap();
    let Some(Event::Assigned(assigned)) = events.recv().await else { panic!("no assignment") };
    let assignment = assigned[0].assignment;
    let first = handle.start(assignment, 0);
    let mut seen = 0;
    while seen < 100 {
        let batch = batch(&mut events).await;
        assert!(batch.records.iter().all(|record| record.start == first));
        seen += batch.records.len();
    }
    // A hundred more are fetched, and nobody has taken them yet.
    fill(&topic, 1, 100).await;
    let began = Instant::now();
    while handle.counts().records < 200 {
        assert!(began.elapsed() < BOUND, "{:?}", handle.counts());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    handle.leave_stopped(assignment);
    let again = handle.start(assignment, 0);
    let (mut before, mut after) = (Vec::new(), Vec::new());
    while after.len() < 200 {
        for record in batch(&mut events).await.records {
            let of = if record.start == again { &mut after } else { &mut before };
            of.push(record.offset);
        }
    }
    assert_eq!(before, (100..200).collect::<Vec<_>>());
    assert_eq!(after, (0..200).collect::<Vec<_>>());
    handle.stop(StopMode::Now);
}
