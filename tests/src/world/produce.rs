//! Writes records, and books what must become of them.

use std::path::Path;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::World;
use crate::checker::{self, Found};
use crate::ledger::{Ending, Fate, Owed, Sent};
use crate::record::{Event, Record};

/// Longest time until a record is acknowledged.
const DELIVERY: Duration = Duration::from_secs(60);

/// Looked after while something is sent: a thread that polled would spin for a millisecond of each hundred, in each
/// of the stories that run at once.
pub(super) struct Producer(BaseProducer<Deliveries>);

struct Deliveries;

type Answer = Box<oneshot::Sender<Result<i64, KafkaError>>>;

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Answer;

    fn delivery(&self, result: &DeliveryResult<'_>, answer: Answer) {
        let offset = result.as_ref().map(Message::offset).map_err(|(error, _)| error.clone());
        answer.send(offset).ok();
    }
}

impl Producer {
    pub(super) fn new(brokers: &str) -> Self {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", brokers).set("linger.ms", "0").set("acks", "all");
        // A broker that dies before it has answered is asked again, and the record is there once.
        config.set("enable.idempotence", "true");
        config.set("reconnect.backoff.max.ms", "500");
        // Partitions that are added are found soon.
        config.set("topic.metadata.refresh.interval.ms", "1000");
        Self(config.create_with_context(Deliveries).unwrap())
    }

    /// Gives the offset.
    async fn produce(&self, topic: &str, record: &Record) -> i64 {
        let start = tokio::time::Instant::now();
        loop {
            match self.try_produce(topic, record).await {
                Ok(offset) => return offset,
                Err(error) => {
                    // Not refused, but not known yet: surely not written.
                    let unknown = Some(RDKafkaErrorCode::UnknownPartition);
                    let again = error.rdkafka_error_code() == unknown;
                    assert!(again && start.elapsed() < DELIVERY, "{topic}: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    async fn try_produce(&self, topic: &str, record: &Record) -> Result<i64, KafkaError> {
        let (answer, mut delivered) = oneshot::channel();
        let mut new = BaseRecord::<[u8], [u8], Answer>::with_opaque_to(topic, Box::new(answer));
        new.partition = Some(record.partition);
        new.key = record.key.as_deref();
        new.payload = record.value.as_deref();
        new.timestamp = record.timestamp_ms;
        if !record.headers.is_empty() {
            let mut headers = OwnedHeaders::new();
            for (key, value) in &record.headers {
                headers = headers.insert(Header { key, value: value.as_deref() });
            }
            new.headers = Some(headers);
        }
        self.0.send(new).map_err(|(error, _)| error)?;
        let start = tokio::time::Instant::now();
        loop {
            self.0.poll(Duration::ZERO);
            match delivered.try_recv() {
                Ok(delivered) => return delivered,
                Err(TryRecvError::Closed) => panic!("a record without a word about its delivery"),
                Err(TryRecvError::Empty) => assert!(start.elapsed() < DELIVERY, "{topic}: no word"),
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl World {
    /// Writes a record of the story's topic that must end as `fate`.
    pub async fn produce(&self, record: &Record, id: Option<&str>, fate: Fate) -> i64 {
        self.write(record, id, fate, None).await
    }

    /// Writes an event; what it owes is to be booked with [`World::owe`].
    pub async fn event(&self, event: &Event, partition: i32, fate: Fate) -> i64 {
        let entity = Some((event.invoice.clone(), event.version));
        self.write(&event.record(partition), Some(&event.id), fate, entity).await
    }

    /// Writes an event that must be applied, and books that every call and every line of the
    /// connector file is owed for it and done in the end.
    pub async fn pay(&self, invoice: &str, partition: i32) -> i64 {
        self.owe_all(invoice);
        self.event(&Event::paid(invoice, 1), partition, Fate::Applied).await
    }

    /// Pays invoices from `first`, spread over the partitions; gives their names.
    pub async fn pay_many(&self, first: usize, count: usize, partitions: i32) -> Vec<String> {
        let names: Vec<String> = (first..first + count).map(Self::invoice).collect();
        for (number, name) in (first..).zip(&names) {
            let partition = i32::try_from(number).unwrap() % partitions;
            self.pay(name, partition).await;
        }
        names
    }

    /// Books that each effect of the connector file is owed for an invoice.
    pub fn owe_all(&self, mark: &str) {
        for effect in &self.wiring.effects {
            self.owe(effect.id, mark, Ending::Done);
        }
    }

    /// Books what an effect must end as.
    pub fn owe(&self, effect: &str, mark: &str, ending: Ending) {
        let owed = Owed { effect: effect.to_owned(), mark: mark.to_owned() };
        self.ledger().owed.insert(owed, ending);
    }

    /// Books that an event is stale by now: it was decided again after a newer one.
    pub fn forgive_stale(&self, id: &str) {
        for sent in &mut self.ledger().sent {
            if sent.id.as_deref() == Some(id) {
                sent.fate = Fate::Stale;
            }
        }
    }

    /// Writes events into partition 0 in one transaction, which is committed or aborted.
    pub async fn transaction(&self, events: &[Event], commit: bool) {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.kafka().bootstrap());
        config.set("transactional.id", format!("{}-transactions", self.name));
        let producer: BaseProducer = config.create().unwrap();
        producer.init_transactions(DELIVERY).unwrap();
        producer.begin_transaction().unwrap();
        let (_, before) = self.kafka().offsets(self.topic(), 0).await.unwrap();
        for event in events {
            let value = event.json().to_string();
            let record = BaseRecord::to(self.topic()).partition(0).key(&event.invoice);
            producer.send(record.payload(&value)).map_err(|(error, _)| error).unwrap();
        }
        producer.flush(DELIVERY).unwrap();
        if !commit {
            producer.abort_transaction(DELIVERY).unwrap();
            return;
        }
        for (offset, event) in (before..).zip(events) {
            self.ledger().sent.push(Sent {
                topic: self.topic().to_owned(),
                partition: 0,
                offset,
                id: Some(event.id.clone()),
                fate: Fate::Applied,
                entity: Some((event.invoice.clone(), event.version)),
            });
        }
        producer.commit_transaction(DELIVERY).unwrap();
    }

    async fn write(
        &self,
        record: &Record,
        id: Option<&str>,
        fate: Fate,
        entity: Option<(String, i64)>,
    ) -> i64 {
        let topic = self.topic().to_owned();
        let offset = self.producer.produce(&topic, record).await;
        let (partition, id) = (record.partition, id.map(str::to_owned));
        self.ledger().sent.push(Sent { topic, partition, offset, id, fate, entity });
        offset
    }

    /// Writes the lines of a file with Kafka's own console producer, and books them as `what` says.
    pub async fn console(
        &self,
        lines: &[String],
        reader: &[(&str, &str)],
        what: impl Fn(&Found) -> Option<(String, Fate, Option<(String, i64)>)>,
    ) {
        let path = self.dir().join("lines.txt");
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        self.console_file(&path, reader).await;
        let known = self.ledger().sent.len();
        let found = checker::read_back(self.kafka(), self.topic()).await;
        let mut ledger = self.ledger();
        for found in found {
            let at = |sent: &Sent| (sent.partition, sent.offset) == (found.partition, found.offset);
            if ledger.sent.iter().any(at) {
                continue;
            }
            let (id, fate, entity) = what(&found).expect("a line of this file");
            ledger.sent.push(Sent {
                topic: self.topic().to_owned(),
                partition: found.partition,
                offset: found.offset,
                id: Some(id),
                fate,
                entity,
            });
        }
        assert_eq!(ledger.sent.len(), known + lines.len(), "every line is in the topic, once");
    }

    async fn console_file(&self, path: &Path, reader: &[(&str, &str)]) {
        self.kafka().console_produce(self.topic(), path, &[("acks", "all")], reader).await.unwrap();
    }
}
