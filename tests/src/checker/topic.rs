//! The topic and the group's offsets, by a plain client.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use oncely_rig::kafka::Kafka;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::{Headers, Message};
use rdkafka::{Offset, TopicPartitionList};

use crate::ledger::Ledger;

/// Longest wait for an answer of the broker.
const ANSWER: Duration = Duration::from_secs(60);

/// A record as it lies in the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub partition: i32,
    pub offset: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

/// Clients by broker and group: making one costs more than asking.
type Clients = Mutex<HashMap<(String, String), Arc<BaseConsumer>>>;

static CLIENTS: OnceLock<Clients> = OnceLock::new();

/// Lets a group's client go: its story has ended.
pub fn forget(group: &str) {
    let mut clients = CLIENTS.get_or_init(Clients::default).lock().unwrap();
    clients.retain(|(_, of), _| of != group);
}

/// A client that asks for a group and joins none.
pub(super) fn client(brokers: &str, group: &str) -> Arc<BaseConsumer> {
    let mut clients = CLIENTS.get_or_init(Clients::default).lock().unwrap();
    let made = || {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", brokers).set("group.id", group);
        config.set("enable.auto.commit", "false").set("reconnect.backoff.max.ms", "500");
        config.set("auto.offset.reset", "earliest").set("fetch.wait.max.ms", "50");
        Arc::new(config.create().unwrap())
    };
    Arc::clone(clients.entry((brokers.to_owned(), group.to_owned())).or_insert_with(made))
}

fn partitions_of(client: &BaseConsumer, topic: &str) -> Vec<i32> {
    let start = Instant::now();
    loop {
        let metadata = client.fetch_metadata(Some(topic), ANSWER).unwrap();
        let found = &metadata.topics()[0];
        if found.error().is_none() && !found.partitions().is_empty() {
            return found.partitions().iter().map(|partition| partition.id()).collect();
        }
        // A broker that has just come back does not know all its topics, which is not the same as empty ones.
        assert!(start.elapsed() < ANSWER, "{topic}: {:?}", found.error());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// First and next offset of each partition.
pub async fn ends(kafka: &Kafka, topic: &str) -> BTreeMap<i32, (i64, i64)> {
    let (client, topic) = (client(&kafka.bootstrap(), "oncely-checker"), topic.to_owned());
    let asked = tokio::task::spawn_blocking(move || ends_of(&client, &topic));
    asked.await.unwrap()
}

fn ends_of(client: &BaseConsumer, topic: &str) -> BTreeMap<i32, (i64, i64)> {
    let partitions = partitions_of(client, topic).into_iter();
    partitions.map(|number| (number, watermarks(client, topic, number))).collect()
}

fn watermarks(client: &BaseConsumer, topic: &str, partition: i32) -> (i64, i64) {
    let start = Instant::now();
    loop {
        match client.fetch_watermarks(topic, partition, ANSWER) {
            Ok(ends) => return ends,
            // A broker that lags behind itself names no leader for a moment.
            Err(error) => {
                let lags = error.rdkafka_error_code() == Some(RDKafkaErrorCode::UnknownPartition);
                assert!(lags && start.elapsed() < ANSWER, "{topic}-{partition}: {error}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// Offsets that a group has committed; partitions without one are left out.
pub async fn committed(kafka: &Kafka, group: &str, topic: &str) -> BTreeMap<i32, i64> {
    let (client, topic) = (client(&kafka.bootstrap(), group), topic.to_owned());
    let asked = tokio::task::spawn_blocking(move || {
        let start = Instant::now();
        loop {
            // A coordinator that has just come back tells nothing for a moment.
            match committed_of(&client, &topic) {
                Some(committed) => return Some(committed),
                None if start.elapsed() > ANSWER => return None,
                None => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    });
    asked.await.unwrap().expect("the broker tells the group's offsets")
}

fn committed_of(client: &BaseConsumer, topic: &str) -> Option<BTreeMap<i32, i64>> {
    committed_at(client, topic, &partitions_now(client, topic)?)
}

/// Partitions of a topic; `None` while the broker does not tell.
pub(super) fn partitions_now(client: &BaseConsumer, topic: &str) -> Option<Vec<i32>> {
    let metadata = client.fetch_metadata(Some(topic), ANSWER).ok()?;
    Some(metadata.topics().first()?.partitions().iter().map(|partition| partition.id()).collect())
}

/// Offsets that the client's group has committed for these partitions; `None` while the broker does not tell.
pub(super) fn committed_at(
    client: &BaseConsumer,
    topic: &str,
    partitions: &[i32],
) -> Option<BTreeMap<i32, i64>> {
    let mut list = TopicPartitionList::new();
    for partition in partitions {
        list.add_partition(topic, *partition);
    }
    let answered = client.committed_offsets(list, ANSWER).ok()?;
    let offsets = answered.elements().into_iter().filter_map(|element| match element.offset() {
        Offset::Offset(offset) => Some((element.partition(), offset)),
        Offset::Beginning
        | Offset::End
        | Offset::Stored
        | Offset::Invalid
        | Offset::OffsetTail(_) => None,
    });
    Some(offsets.collect())
}

/// Every record of a topic.
pub async fn read_back(kafka: &Kafka, topic: &str) -> Vec<Found> {
    let (brokers, topic) = (kafka.bootstrap(), topic.to_owned());
    tokio::task::spawn_blocking(move || read(&brokers, &topic)).await.unwrap()
}

fn read(brokers: &str, topic: &str) -> Vec<Found> {
    let client = client(brokers, "oncely-checker-reader");
    let ends = ends_of(&client, topic);
    let mut list = TopicPartitionList::new();
    let mut left: BTreeMap<i32, i64> = BTreeMap::new();
    for (partition, (low, high)) in ends {
        if low < high {
            list.add_partition_offset(topic, partition, Offset::Offset(low)).unwrap();
            left.insert(partition, high);
        }
    }
    // One reader, taken up by several stories one after the other: a client of its own is safer.
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("group.id", "oncely-checker-reader");
    config.set("enable.auto.commit", "false").set("fetch.wait.max.ms", "50");
    let reader: BaseConsumer = config.create().unwrap();
    reader.assign(&list).unwrap();
    let mut found = Vec::new();
    let start = Instant::now();
    while !left.is_empty() {
        assert!(start.elapsed() < ANSWER * 2, "{topic} cannot be read back; left: {left:?}");
        let Some(message) = reader.poll(Duration::from_millis(200)) else { continue };
        let message = message.unwrap();
        let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
        found.push(Found {
            partition: message.partition(),
            offset: message.offset(),
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers: headers
                .map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec)))
                .collect(),
        });
        if left.get(&message.partition()).is_some_and(|high| message.offset() + 1 >= *high) {
            left.remove(&message.partition());
        }
    }
    found
}

/// The topic holds what the story's books say, and nothing else.
pub(super) fn check(ledger: &Ledger, topic: &str, found: &[Found]) -> Vec<String> {
    let here: BTreeSet<_> = found.iter().map(|found| (found.partition, found.offset)).collect();
    let of_topic = ledger.sent.iter().filter(|sent| sent.topic == topic);
    let booked: BTreeSet<_> = of_topic.map(|sent| (sent.partition, sent.offset)).collect();
    let mut wrong = Vec::new();
    for place in booked.difference(&here) {
        wrong.push(format!("books: no record at {place:?}"));
    }
    for place in here.difference(&booked) {
        wrong.push(format!("books: the record at {place:?} is in no book"));
    }
    wrong
}
