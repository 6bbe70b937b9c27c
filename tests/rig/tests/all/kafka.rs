//! A private Kafka: records go in and come out, brokers die and come back.

use std::fs;
use std::time::Duration;

use oncely_rig::kafka::{Kafka, KafkaOptions};
use oncely_rig::places::Scratch;
use oncely_rig::proxy::Mode;
use rdkafka::ClientConfig;
use rdkafka::Message;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::producer::{BaseRecord, Producer, ThreadedProducer};

const BOUND: Duration = Duration::from_secs(30);

fn produce(kafka: &Kafka, topic: &str, values: &[&str]) {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", kafka.bootstrap()).set("acks", "all");
    let producer: ThreadedProducer<_> = config.create().unwrap();
    for value in values {
        let record = BaseRecord::<(), str>::to(topic).payload(value);
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(BOUND).unwrap();
}

fn consumer(kafka: &Kafka, group: &str, protocol: &str) -> BaseConsumer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", kafka.bootstrap()).set("group.id", group);
    config.set("auto.offset.reset", "earliest").set("group.protocol", protocol);
    config.set("enable.auto.commit", "false");
    if protocol == "classic" {
        config.set("session.timeout.ms", "1500").set("heartbeat.interval.ms", "300");
    }
    config.create().unwrap()
}

/// Reads that many values as a member of a group, and commits them.
fn consume(kafka: &Kafka, topic: &str, group: &str, protocol: &str, count: usize) -> Vec<String> {
    let consumer = consumer(kafka, group, protocol);
    consumer.subscribe(&[topic]).unwrap();
    let start = std::time::Instant::now();
    let mut values = Vec::new();
    while values.len() < count {
        assert!(start.elapsed() < BOUND, "only {values:?} after {BOUND:?}");
        if let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) {
            values
                .push(String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned());
        }
    }
    consumer.commit_consumer_state(CommitMode::Sync).unwrap();
    values
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_broker_does_what_an_administrator_asks() {
    let kafka = Kafka::start(&KafkaOptions::new(1)).await.unwrap();
    kafka.create_topic("orders", 1, &[("retention.ms", "3600000")]).await.unwrap();
    let error = kafka.create_topic("orders", 1, &[]).await.unwrap_err();
    assert!(error.to_string().contains("make the topic orders"), "{error}");

    let scratch = Scratch::new(None, "lines").unwrap();
    let file = scratch.path().join("lines");
    fs::write(&file, "k1=one\nk2=two\n").unwrap();
    let reader = [("parse.key", "true"), ("key.separator", "=")];
    kafka.console_produce("orders", &file, &[("compression.type", "zstd")], &reader).await.unwrap();
    produce(&kafka, "orders", &["three"]);
    assert_eq!(kafka.offsets("orders", 0).await.unwrap(), (0, 3));
    assert_eq!(consume(&kafka, "orders", "g", "classic", 3), ["one", "two", "three"]);
    assert_eq!(consume(&kafka, "orders", "new", "consumer", 3).len(), 3);

    kafka.delete_records("orders", 0, 2).await.unwrap();
    assert_eq!(kafka.offsets("orders", 0).await.unwrap(), (2, 3));
    kafka.delete_group_offsets("g", "orders").await.unwrap();
    assert_eq!(consume(&kafka, "orders", "g", "classic", 1), ["three"]);
    kafka.delete_group("g").await.unwrap();

    kafka.add_partitions("orders", 3).await.unwrap();
    assert_eq!(kafka.leader("orders", 2).await.unwrap(), Some(1));
    kafka.delete_topic("orders").await.unwrap();
    kafka.create_topic("orders", 1, &[]).await.unwrap();
    assert_eq!(kafka.offsets("orders", 0).await.unwrap(), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_brokers_lose_one_and_get_it_back() {
    let options = KafkaOptions { through_proxies: true, ..KafkaOptions::new(3) };
    let mut kafka = Kafka::start(&options).await.unwrap();
    kafka.create_topic("orders", 3, &[]).await.unwrap();
    produce(&kafka, "orders", &["one", "two"]);
    let leader = kafka.leader("orders", 0).await.unwrap().unwrap();
    let killed = u16::try_from(leader).unwrap();
    kafka.kill(killed).await.unwrap();
    produce(&kafka, "orders", &["three"]);
    kafka.start_again(killed).await.unwrap();
    kafka.pause(killed).unwrap();
    kafka.resume(killed).unwrap();
    kafka.proxy(killed).unwrap().set(Mode::DelayMs(1));
    assert_eq!(consume(&kafka, "orders", "g", "classic", 3).len(), 3);
    // Which broker a client talks to is for the cluster to say; that it comes through a proxy is ours.
    let ids = kafka.broker_ids();
    let connections = |id| kafka.proxy(id).unwrap().traffic().connections;
    assert!(ids.into_iter().map(connections).sum::<u64>() > 0, "clients come through the proxies");
    kafka.stop(killed).await.unwrap();
    kafka.start_again(killed).await.unwrap();
}

/// A group is read on after its only broker was killed, as often as that happens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_alone_comes_back_with_its_groups() {
    let mut kafka = Kafka::start(&KafkaOptions::returning(1)).await.unwrap();
    kafka.create_topic("orders", 1, &[]).await.unwrap();
    for (round, value) in ["one", "two", "three"].into_iter().enumerate() {
        produce(&kafka, "orders", &[value]);
        assert_eq!(consume(&kafka, "orders", "g", "classic", 1), [value], "round {round}");
        kafka.kill(1).await.unwrap();
        kafka.start_again(1).await.unwrap();
    }
    kafka.stop(1).await.unwrap();
    kafka.start_again(1).await.unwrap();
    produce(&kafka, "orders", &["four"]);
    assert_eq!(consume(&kafka, "orders", "g", "classic", 1), ["four"]);
}
