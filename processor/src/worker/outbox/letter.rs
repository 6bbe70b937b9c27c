//! A dead letter as it is sent to its topic: key, value, headers and time of the record as they were read, and
//! headers that say what was wrong, in the names that Kafka Connect and Spring made common and in our own.
//!
//! Headers of an earlier journey are replaced, so that a record can be sent back any number of times without
//! growing. What is too large for the topic is sent as a pointer: what was wrong, and where the record lies.

use oncely_core::key::Key;

use super::record::{Letter, MESSAGE_ID};
use crate::store::origin::Origin;
use crate::store::outbox::DeadLetter;
use crate::worker::headers;

/// Families of headers that are ours to set.
const CONNECT: &str = "__connect.errors.";
const SPRING: &str = "kafka_dlt-";
const OURS: [&str; 9] = [
    MESSAGE_ID,
    "oncely-reason",
    "oncely-attempts",
    "oncely-business-id",
    "oncely-redrive-count",
    "oncely-effect",
    "oncely-effect-key",
    POINTER,
    "oncely-value-bytes",
];
/// The id under which a record came that had been published by Oncely itself.
const ORIGINAL_ID: &str = "oncely-original-message-id";
/// Where the record lies that this one stands for.
const POINTER: &str = "oncely-pointer";
/// How often records of this letter were redriven.
const REDRIVES: &str = "oncely-redrive-count";
/// Bytes of a key that a pointer still carries.
const POINTER_KEY_MAX: usize = 1_024;

/// Which families are set, beside our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Families {
    pub(super) connect: bool,
    pub(super) spring: bool,
}

/// The record of a dead letter. `is_pointer`: without what may be too large.
pub(super) fn letter(
    message: Key,
    dead: &DeadLetter,
    families: Families,
    is_pointer: bool,
) -> Letter {
    let known = dead.headers.as_deref().and_then(headers::decode).unwrap_or_default();
    let redrives = redrives(dead, &known);
    let mut kept = original(known);
    // Without the record itself there is nothing but the place where it lies.
    let is_pointer = is_pointer || dead.headers.is_none();
    if is_pointer {
        kept.clear();
    }
    let mut headers = Headers(kept);
    if families.connect {
        connect(&mut headers, dead);
    }
    if families.spring {
        spring(&mut headers, dead);
    }
    headers.text("oncely-reason", &dead.reason);
    headers.text("oncely-attempts", &dead.attempts.to_string());
    if let Some(id) = &dead.business_id {
        headers.text("oncely-business-id", id);
    }
    headers.text(REDRIVES, &redrives.to_string());
    if let Some((key, name)) = &dead.effect {
        headers.text("oncely-effect", name);
        headers.text("oncely-effect-key", &key.wire());
    }
    let mut key = dead.key.clone();
    let mut value = dead.value.clone();
    if is_pointer {
        key = key.filter(|key| key.len() <= POINTER_KEY_MAX);
        let bytes = value.take().map_or(0, |value| value.len());
        let place = dead.origin.as_ref().map(ToString::to_string).unwrap_or_default();
        headers.text(POINTER, &place);
        headers.text("oncely-value-bytes", &bytes.to_string());
    }
    headers.text(MESSAGE_ID, &message.wire());
    Letter { key, value, headers: headers.0, timestamp_ms: dead.timestamp_ms }
}

fn is_ours(name: &str) -> bool {
    name.starts_with(CONNECT) || name.starts_with(SPRING) || OURS.contains(&name)
}

/// The record's own headers, with repeats and in order.
fn original(known: Vec<Header>) -> Vec<Header> {
    let has_id = known.iter().any(|(name, _)| name == ORIGINAL_ID);
    let id = known.iter().find(|(name, _)| name == MESSAGE_ID && !has_id);
    let id = id.map(|(_, value)| (ORIGINAL_ID.to_owned(), value.clone()));
    // A letter that was written back into its topic had none of its own before.
    let was_letter = known.iter().any(|(name, _)| name == REDRIVES);
    let id = id.filter(|_| !was_letter);
    known.into_iter().filter(|(name, _)| !is_ours(name)).chain(id).collect()
}

/// Here, and on an earlier journey.
fn redrives(dead: &DeadLetter, known: &[Header]) -> i64 {
    let before = known.iter().rev().find(|(name, _)| name == REDRIVES);
    let before = before.and_then(|(_, value)| std::str::from_utf8(value.as_deref()?).ok());
    let before = before.and_then(|text| text.parse::<i32>().ok());
    // It was written back into its topic by somebody.
    let before = before.map_or(0, |before| i64::from(before).saturating_add(1));
    before.saturating_add(dead.redrives.into())
}

type Header = (String, Option<Vec<u8>>);

struct Headers(Vec<Header>);

impl Headers {
    fn text(&mut self, name: &str, value: &str) {
        self.bytes(name, value.as_bytes());
    }

    fn bytes(&mut self, name: &str, value: &[u8]) {
        self.0.push((name.to_owned(), Some(value.to_vec())));
    }
}

/// Texts, as `DeadLetterQueueReporter` of Kafka Connect writes them.
fn connect(headers: &mut Headers, dead: &DeadLetter) {
    let mut add = |name: &str, value: &str| headers.text(&format!("{CONNECT}{name}"), value);
    if let Some(Origin { topic, partition, offset }) = &dead.origin {
        add("topic", topic);
        add("partition", &partition.to_string());
        add("offset", &offset.to_string());
    }
    add("connector.name", &dead.connector);
    add("task.id", "0");
    add("stage", if dead.effect.is_some() { "TASK_PUT" } else { "VALUE_CONVERTER" });
    add("class.name", "oncely");
    add("exception.class.name", &format!("oncely.{}", dead.reason));
    add("exception.message", &dead.detail);
    add("exception.stacktrace", "");
}

/// As `DeadLetterPublishingRecoverer` of Spring Kafka writes them: numbers are big-endian.
fn spring(headers: &mut Headers, dead: &DeadLetter) {
    if let Some(Origin { topic, partition, offset }) = &dead.origin {
        headers.text("kafka_dlt-original-topic", topic);
        headers.bytes("kafka_dlt-original-partition", &partition.to_be_bytes());
        headers.bytes("kafka_dlt-original-offset", &offset.to_be_bytes());
    }
    if let Some(timestamp_ms) = dead.timestamp_ms {
        headers.bytes("kafka_dlt-original-timestamp", &timestamp_ms.to_be_bytes());
        headers.text("kafka_dlt-original-timestamp-type", "CreateTime");
    }
    headers.text("kafka_dlt-original-consumer-group", &dead.group);
    headers.text("kafka_dlt-exception-fqcn", &format!("oncely.{}", dead.reason));
    headers.text("kafka_dlt-exception-message", &dead.detail);
    headers.text("kafka_dlt-exception-stacktrace", "");
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Families = Families { connect: true, spring: true };

    fn dead(headers: &[Header]) -> DeadLetter {
        let pairs: Vec<crate::kafka::Header> = headers
            .iter()
            .map(|(name, value)| crate::kafka::Header {
                name: name.as_str().into(),
                value: value.clone().map(Into::into),
            })
            .collect();
        DeadLetter {
            number: 7,
            connector: "invoice-paid".to_owned(),
            group: "oncely.invoice-paid".to_owned(),
            reason: "syntax".to_owned(),
            detail: "line 1: no value".to_owned(),
            business_id: None,
            attempts: 1,
            redrives: 0,
            origin: Some(Origin { topic: "t".to_owned(), partition: 3, offset: 258 }),
            timestamp_ms: Some(1_700_000_000_000),
            effect: None,
            key: Some(vec![0xff, 0]),
            value: Some(b"{\xfe".to_vec()),
            headers: Some(headers::encode(&pairs)),
        }
    }

    fn value<'a>(letter: &'a Letter, name: &str) -> &'a [u8] {
        let mut named = letter.headers.iter().filter(|(known, _)| known == name);
        let value = named.next().unwrap_or_else(|| panic!("no {name}")).1.as_deref().unwrap();
        assert!(named.next().is_none(), "{name} stands twice");
        value
    }

    #[test]
    fn b19_d7_key_value_headers_and_time_are_those_of_the_record() {
        let own = [
            ("a".to_owned(), Some(vec![0xff])),
            ("a".to_owned(), None),
            ("b".to_owned(), Some(vec![])),
        ];
        let message = Key::from_bytes([1; 16]);
        let letter = letter(message, &dead(&own), BOTH, false);
        assert_eq!(letter.key.as_deref(), Some(&[0xff, 0][..]));
        assert_eq!(letter.value.as_deref(), Some(&b"{\xfe"[..]));
        assert_eq!(letter.timestamp_ms, Some(1_700_000_000_000));
        assert_eq!(letter.headers[..3], own);
        assert_eq!(value(&letter, "__connect.errors.offset"), b"258");
        assert_eq!(value(&letter, "kafka_dlt-original-partition"), [0, 0, 0, 3]);
        assert_eq!(value(&letter, "kafka_dlt-original-offset"), [0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(value(&letter, "oncely-reason"), b"syntax");
        assert_eq!(value(&letter, MESSAGE_ID), message.wire().as_bytes());
    }

    #[test]
    fn headers_of_ten_journeys_are_those_of_one() {
        let mut own = vec![("trace".to_owned(), Some(b"abc".to_vec()))];
        own.push((MESSAGE_ID.to_owned(), Some(b"first".to_vec())));
        let mut sizes = Vec::new();
        for journey in 0..10 {
            let letter = letter(Key::from_bytes([journey; 16]), &dead(&own), BOTH, false);
            assert_eq!(value(&letter, REDRIVES), journey.to_string().as_bytes());
            assert_eq!(value(&letter, ORIGINAL_ID), b"first");
            assert_eq!(value(&letter, "trace"), b"abc");
            sizes.push(letter.headers.len());
            own = letter.headers;
        }
        assert!(sizes.iter().all(|size| *size == sizes[0]), "{sizes:?}");
    }

    #[test]
    fn d9_a_pointer_says_where_the_record_lies() {
        let own = vec![("trace".to_owned(), Some(vec![b'x'; 100_000]))];
        let letter = letter(Key::from_bytes([1; 16]), &dead(&own), BOTH, true);
        assert_eq!(letter.value, None);
        assert_eq!(value(&letter, POINTER), b"t[3]@258");
        assert_eq!(value(&letter, "oncely-value-bytes"), b"2");
        let bytes: usize = letter
            .headers
            .iter()
            .map(|(name, value)| name.len() + value.as_ref().map_or(0, Vec::len))
            .sum();
        assert!(bytes < 2_000, "{bytes}");
    }
}
