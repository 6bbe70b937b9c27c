//! The broker of these tests, and topics on it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oncely::kafka::{ClientSettings, NewRecord, Producer};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::{Offset, TopicPartitionList};

pub(crate) const BOUND: Duration = Duration::from_secs(60);

pub(crate) fn brokers() -> String {
    std::env::var("ONCELY_TEST_BROKERS").expect("a broker")
}

pub(crate) fn settings() -> ClientSettings {
    ClientSettings::parse(&brokers(), []).unwrap()
}

/// A name that no other test uses.
pub(crate) fn fresh(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    format!("{prefix}-{}-{number}", now.as_millis())
}

pub(crate) fn admin() -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", brokers()).create().unwrap()
}

pub(crate) async fn create_topic(name: &str, partitions: i32) {
    create_topic_with(name, partitions, &[]).await;
}

pub(crate) async fn create_topic_with(name: &str, partitions: i32, settings: &[(&str, &str)]) {
    let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
    for (key, value) in settings {
        topic = topic.set(key, value);
    }
    for result in admin().create_topics([&topic], &AdminOptions::new()).await.unwrap() {
        result.unwrap();
    }
}

pub(crate) async fn delete_topic(name: &str) {
    for result in admin().delete_topics(&[name], &AdminOptions::new()).await.unwrap() {
        result.unwrap();
    }
}

/// Deletes the records below an offset.
pub(crate) async fn delete_records(topic: &str, partition: i32, below: i64) {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Offset(below)).unwrap();
    admin().delete_records(&list, &AdminOptions::new()).await.unwrap();
}

/// Sends `count` records round robin: value is the running number.
pub(crate) async fn fill(topic: &str, partitions: i32, count: i32) {
    let producer = Producer::new(&settings()).unwrap();
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
