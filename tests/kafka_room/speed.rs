//! How fast records come through the poll thread when nobody does anything with them.

use std::time::{Duration, Instant};

use oncely::kafka::{ConsumerHandle, Event, GroupProtocol, NewRecord, Producer, StopMode};

use super::cluster::{create_topic, fresh, settings as client};
use super::member::settings;

const RECORDS: usize = 400_000;

/// Prints records per second and the processor time of the whole program per record. Run it by
/// name, in release mode, on a quiet machine.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement, not a check"]
async fn records_per_second_of_the_poll_thread() {
    let (topic, group) = (fresh("speed"), fresh("g"));
    create_topic(&topic, 6).await;
    let producer = Producer::new(&client()).unwrap();
    let value = vec![b'x'; 1024];
    let mut sends = tokio::task::JoinSet::new();
    for worker in 0..200 {
        let (producer, topic, value) = (producer.clone(), topic.clone(), value.clone());
        sends.spawn(async move {
            for number in 0..RECORDS / 200 {
                let record = NewRecord {
                    topic: &topic,
                    partition: Some(((number + worker) % 6) as i32),
                    key: Some(b"0123456789abcdef"),
                    value: Some(&value),
                    ..NewRecord::default()
                };
                producer.produce(record).await.unwrap();
            }
        });
    }
    while let Some(sent) = sends.join_next().await {
        sent.unwrap();
    }
    let settings = settings(&group, &[&topic], GroupProtocol::default());
    let (handle, mut events) = ConsumerHandle::spawn(&settings).unwrap();
    let (mut seen, mut batches) = (0, 0);
    let mut began = (Instant::now(), Duration::ZERO);
    while seen < RECORDS {
        match events.recv().await.unwrap() {
            Event::Assigned(assigned) => {
                began = (Instant::now(), processor_time());
                for one in assigned {
                    handle.start(one.assignment, 0);
                }
            }
            Event::Records(batch) => {
                seen += batch.records.len();
                batches += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    let (took, used) = (began.0.elapsed(), processor_time() - began.1);
    let rate = RECORDS as f64 / took.as_secs_f64();
    let each = used.as_secs_f64() / RECORDS as f64 * 1e6;
    println!("{rate:.0} records/s, {each:.2} µs of processor per record, {batches} batches");
    handle.stop(StopMode::Now);
}

/// Processor time of this program so far, in steps of 10 ms.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}
