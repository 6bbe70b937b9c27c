//! The broker of these tests, and topics on it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oncely::kafka::{ClientSettings, NewRecord, Producer};
use oncely_rig::kafka::{Kafka, KafkaOptions};

pub(crate) const BOUND: Duration = Duration::from_secs(60);

/// One broker for all tests of this program, on a runtime that outlives each of them.
pub(crate) fn kafka() -> &'static Kafka {
    static KAFKA: OnceLock<Kafka> = OnceLock::new();
    KAFKA.get_or_init(|| {
        let (started, kafka) = std::sync::mpsc::sync_channel(1);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let options =
                KafkaOptions::new(1).patient().with("group.consumer.heartbeat.interval.ms", "500");
            started.send(runtime.block_on(Kafka::start(&options)).expect("a broker")).unwrap();
            runtime.block_on(std::future::pending::<()>());
        });
        kafka.recv().unwrap()
    })
}

pub(crate) fn settings() -> ClientSettings {
    ClientSettings::parse(&kafka().bootstrap(), []).unwrap()
}

/// A name that no other test uses.
pub(crate) fn fresh(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{prefix}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) async fn create_topic(name: &str, partitions: u32) {
    kafka().create_topic(name, partitions, &[]).await.unwrap();
}

/// Sends `count` records round robin: value is the running number.
pub(crate) async fn fill(topic: &str, partitions: i32, count: i32) {
    fill_at(&settings(), topic, partitions, count).await;
}

pub(crate) async fn fill_at(settings: &ClientSettings, topic: &str, partitions: i32, count: i32) {
    let producer = Producer::new(settings).unwrap();
    let sends = (0..count).map(|number| {
        let producer = producer.clone();
        let topic = topic.to_owned();
        tokio::spawn(async move {
            let value = number.to_string();
            let record = NewRecord {
                topic: &topic,
                partition: Some(number % partitions),
                key: Some(b"k"),
                value: Some(value.as_bytes()),
                headers: &[("trace", Some(b"1")), ("empty", None)],
                ..NewRecord::default()
            };
            producer.produce(record).await.unwrap()
        })
    });
    for send in sends.collect::<Vec<_>>() {
        send.await.unwrap();
    }
}
