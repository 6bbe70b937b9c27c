//! The records of a run, made from their number alone: every part of the benchmark sees the same.
//!
//! Invoices with eight versions each, keyed by invoice; each fifth record is an event that was
//! published before. A value is JSON of 1,024 bytes. Where poison is asked for, a fifth of all records is cut
//! off in the middle; where poisoned keys are, a fifth of the invoices names a desk of the provider that breaks.

use std::collections::BTreeMap;
use std::time::Duration;

use oncely_core::key::Key;
use oncely_rig::kafka::Kafka;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

use crate::error::Result;

/// Name and scope of the connector, and its word for an entity: they are parts of the keys.
pub(crate) const SCOPE: &str = "bench";
pub(crate) const KIND: &str = "invoice";
/// Partitions of every topic.
pub(crate) const PARTITIONS: u32 = 12;
/// Bytes of a value.
pub(crate) const VALUE_BYTES: usize = 1_024;
/// Digits of an invoice's number.
const ENTITY_DIGITS: usize = 9;
/// Versions of an entity: one digit.
const VERSIONS: u64 = 8;
/// Entities whose versions come side by side: one version of each, then the next.
const SIDE_BY_SIDE: u64 = 2_000;
/// One record of so many is a repeat.
const REPEAT_EVERY: u64 = 5;
/// Records that can be decided, before each that cannot.
const POISON_AFTER: u64 = 4;
/// One invoice of so many has a poisoned key, where such are asked for.
const POISONED_EVERY: u64 = 5;
/// The provider's desk that answers nothing but errors.
pub(crate) const BROKEN: &str = "broken";
/// How far back the repeated event may lie, in events.
const REPEAT_BACK_MAX: u64 = 20_000;

/// One event, as its producer knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) entity: u64,
    pub(crate) version: u64,
}

impl Event {
    fn numbered(number: u64) -> Self {
        let group = number / (VERSIONS * SIDE_BY_SIDE);
        let within = number % (VERSIONS * SIDE_BY_SIDE);
        Self {
            entity: group * SIDE_BY_SIDE + within % SIDE_BY_SIDE,
            version: within / SIDE_BY_SIDE + 1,
        }
    }

    pub(crate) fn id(self) -> String {
        format!("{}:{}", self.entity_id(), self.version)
    }

    pub(crate) fn entity_id(self) -> String {
        format!("in_{:0ENTITY_DIGITS$}", self.entity)
    }

    /// The event of a record's value.
    pub(crate) fn of_value(value: &[u8]) -> Option<Self> {
        let id = value.strip_prefix(br#"{"id":"in_"#)?;
        let (entity, rest) = id.split_at_checked(ENTITY_DIGITS)?;
        let version = char::from(*rest.strip_prefix(b":")?.first()?).to_digit(10)?;
        let entity = std::str::from_utf8(entity).ok()?.parse().ok()?;
        Some(Self { entity, version: version.into() })
    }

    /// Whether it is of one of the invoices that can be poisoned.
    pub(crate) const fn is_poisoned(self) -> bool {
        self.entity.is_multiple_of(POISONED_EVERY)
    }

    pub(crate) fn cents(self) -> u64 {
        1_000 + scattered(self.entity * VERSIONS + self.version) % 90_000
    }

    pub(crate) fn key(self) -> Key {
        Key::event(SCOPE, "", &self.id())
    }

    pub(crate) fn entity_key(self) -> Key {
        Key::entity(SCOPE, "", KIND, &self.entity_id())
    }

    /// The record's value.
    pub(crate) fn value(self, poisons_keys: bool, into: &mut String) {
        let desk = if poisons_keys && self.is_poisoned() { BROKEN } else { "settlements" };
        let (id, entity, version, cents) = (self.id(), self.entity, self.version, self.cents());
        into.clear();
        into.push_str(&format!(
            r#"{{"id":"{id}","type":"invoice.updated","created":{created},"livemode":true,"data":{{"invoice":"{invoice}","version":{version},"number":"INV-{entity:09}","currency":"eur","desk":"{desk}","amount_cents":{cents},"tax_cents":{tax},"paid":{paid},"customer":{{"id":"cus_{customer:08}","name":"Customer number {customer}","email":"c{customer}@example.com","country":"DE"}},"lines":[{{"sku":"sku-{sku:04}","quantity":2,"cents":{half}}},{{"sku":"sku-0001","quantity":1,"cents":{rest}}}]}},"memo":""#,
            created = 1_760_000_000 + entity,
            invoice = self.entity_id(),
            tax = cents / 5,
            paid = version == VERSIONS,
            customer = entity % 50_000,
            sku = entity % 1_000,
            half = cents / 4,
            rest = cents - cents / 4 * 2,
        ));
        while into.len() < VALUE_BYTES - 2 {
            let room = VALUE_BYTES - 2 - into.len();
            const MEMO: &str = "Thank you for your business; payment is due within thirty days. ";
            into.push_str(MEMO.get(..room.min(MEMO.len())).unwrap_or_default());
        }
        into.push_str("\"}");
    }
}

/// A number of records, always the same ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    /// Records that can be decided.
    pub(crate) records: u64,
    /// After so many of them comes one that cannot be decoded, with a key of its own.
    poison_after: Option<u64>,
    poisons_keys: bool,
}

impl Workload {
    pub(crate) const fn of(records: u64) -> Self {
        Self { records, poison_after: None, poisons_keys: false }
    }

    /// The same records, and among all of them a fifth that cannot be decoded.
    pub(crate) const fn with_poison(self) -> Self {
        Self { poison_after: Some(POISON_AFTER), ..self }
    }

    /// The same records, of which a fifth of the invoices has calls that fail.
    pub(crate) const fn with_poisoned_keys(self) -> Self {
        Self { poisons_keys: true, ..self }
    }

    /// Events whose call can succeed.
    pub(crate) fn healthy(self) -> impl Iterator<Item = Event> {
        self.distinct_events().filter(move |event| !(self.poisons_keys && event.is_poisoned()))
    }

    /// Records that cannot be decoded.
    pub(crate) fn poisoned(self) -> u64 {
        self.poison_after.map_or(0, |after| self.records / after)
    }

    /// The events of the records, in order; repeats included.
    pub(crate) fn events(self) -> impl Iterator<Item = Event> {
        let mut fresh: u64 = 0;
        (0..self.records).map(move |record| {
            if record % REPEAT_EVERY == REPEAT_EVERY - 1 && fresh > 0 {
                let back = scattered(record) % fresh.min(REPEAT_BACK_MAX);
                return Event::numbered(fresh - 1 - back);
            }
            fresh += 1;
            Event::numbered(fresh - 1)
        })
    }

    /// Distinct events.
    pub(crate) fn distinct(self) -> u64 {
        let whole = self.records / REPEAT_EVERY * (REPEAT_EVERY - 1);
        whole + (self.records % REPEAT_EVERY).min(REPEAT_EVERY - 1)
    }

    /// Every distinct event.
    pub(crate) fn distinct_events(self) -> impl Iterator<Item = Event> {
        (0..self.distinct()).map(Event::numbered)
    }

    /// The highest version of each entity, by its key.
    pub(crate) fn versions(self) -> BTreeMap<Key, i64> {
        let mut versions = BTreeMap::new();
        for event in self.distinct_events() {
            let version = i64::try_from(event.version).unwrap_or(i64::MAX);
            let highest = versions.entry(event.entity_key()).or_insert(version);
            *highest = version.max(*highest);
        }
        versions
    }

    /// Makes the topic and writes all records. Gives the next offset of each partition.
    pub(crate) async fn preload(self, kafka: &Kafka, topic: &str) -> Result<Vec<i64>> {
        kafka.create_topic(topic, PARTITIONS, &[]).await?;
        let (bootstrap, name) = (kafka.bootstrap(), topic.to_owned());
        let produced = move || {
            let producer = producer(&bootstrap)?;
            let mut value = String::with_capacity(VALUE_BYTES);
            for (number, event) in (1..).zip(self.events()) {
                event.value(self.poisons_keys, &mut value);
                send(&producer, &name, &event.entity_id(), &value)?;
                if self.poison_after.is_some_and(|after| number % after == 0) {
                    value.truncate(VALUE_BYTES / 2);
                    send(&producer, &name, &format!("poison_{number:09}"), &value)?;
                }
            }
            producer.flush(Duration::from_secs(60))
        };
        tokio::task::spawn_blocking(produced).await??;
        let mut ends = Vec::new();
        for partition in 0..i32::try_from(PARTITIONS).unwrap_or(i32::MAX) {
            ends.push(kafka.offsets(topic, partition).await?.1);
        }
        Ok(ends)
    }
}

/// A producer that is quick and keeps the order of each key.
pub(crate) fn producer(bootstrap: &str) -> std::result::Result<BaseProducer, KafkaError> {
    ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("enable.idempotence", "true")
        .set("linger.ms", "5")
        .set("batch.size", "1000000")
        .set("queue.buffering.max.kbytes", "131072")
        .create()
}

/// Sends one record; waits while the queue is full.
pub(crate) fn send(
    producer: &BaseProducer,
    topic: &str,
    key: &str,
    value: &str,
) -> std::result::Result<(), KafkaError> {
    let mut record = BaseRecord::to(topic).key(key).payload(value);
    loop {
        match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), again)) => {
                producer.poll(Duration::from_millis(10));
                record = again;
            }
            Err((error, _)) => return Err(error),
        }
    }
}

/// A number that looks like chance and is always the same.
fn scattered(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
