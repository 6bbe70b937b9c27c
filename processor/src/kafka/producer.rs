//! Sends records and waits until all in-sync replicas have them.
//!
//! Keys go to the partition that Java clients would choose, so that one entity stays in one
//! partition whoever produces. Sending again after an error may put a record there twice; readers
//! recognise it by the id that the record carries.
//!
//! The client calls some records delivered that no broker has: when a broker takes a record for one that it
//! knows, and when a batch failed and the next one, sent before its answer, was taken. A broker that does not
//! know this producer yet takes such a batch, whatever was to come before it. What all these have in common is
//! that no broker named a place for them, so a record without a place counts as not delivered.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError as ClientError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};
use tokio::sync::oneshot;

use super::error::KafkaError;
use super::settings::ClientSettings;
use crate::clock;

/// Longest time for a record to be delivered, tries of the client included.
pub const DELIVERY_MAX: Duration = Duration::from_secs(30);
/// Bytes of one record: what the queue holds.
const RECORD_BYTES_MAX: u32 = 64 << 20;
/// Pause before a full queue is tried again.
const QUEUE_FULL_PAUSE: Duration = Duration::from_millis(10);

/// A record to send.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewRecord<'a> {
    /// Topic to send it to.
    pub topic: &'a str,
    /// Partition; `None` lets the key decide.
    pub partition: Option<i32>,
    /// Key; `None` is null.
    pub key: Option<&'a [u8]>,
    /// Value; `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Headers, in order.
    pub headers: &'a [(&'a str, Option<&'a [u8]>)],
    /// Milliseconds since 1970; `None` is now.
    pub timestamp_ms: Option<i64>,
}

/// Where a record came to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Partition.
    pub partition: i32,
    /// Offset.
    pub offset: i64,
}

/// Sends records. Clones share one client.
#[derive(Clone)]
pub struct Producer {
    client: ThreadedProducer<Deliveries>,
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").finish_non_exhaustive()
    }
}

/// Why a record is not known to be delivered.
enum Undelivered {
    Client(ClientError),
    /// Called delivered, and no broker named a place.
    Unplaced,
}

/// Whom to tell, and the number that the record was sent under.
type Answer = Box<(u64, oneshot::Sender<Result<Delivered, Undelivered>>)>;

/// What the client reports.
#[derive(Default)]
struct Deliveries {
    /// Records sent so far.
    sent: AtomicU64,
    unplaced: Mutex<Option<Unplaced>>,
}

/// The last record without a place: of a batch whose offsets the client counts on from there.
struct Unplaced {
    topic: String,
    partition: i32,
    next: i64,
    /// How many records had been sent when the batch was first told of: one that was sent later is not of it.
    of: u64,
}

impl Deliveries {
    fn number(&self) -> u64 {
        self.sent.fetch_add(1, Ordering::AcqRel)
    }

    fn place(
        &self,
        number: u64,
        (topic, partition, offset): (&str, i32, i64),
    ) -> Result<Delivered, Undelivered> {
        let mut unplaced = self.unplaced.lock().unwrap_or_else(PoisonError::into_inner);
        let counted_on = unplaced.take_if(|last| {
            last.topic == topic
                && last.partition == partition
                && last.next == offset
                && number < last.of
        });
        if offset >= 0 && counted_on.is_none() {
            *unplaced = None;
            return Ok(Delivered { partition, offset });
        }
        let of = counted_on.map_or_else(|| self.sent.load(Ordering::Acquire), |last| last.of);
        let (topic, next) = (topic.to_owned(), offset.saturating_add(1));
        *unplaced = Some(Unplaced { topic, partition, next, of });
        Err(Undelivered::Unplaced)
    }
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        super::log_client(level, facility, text);
    }

    fn error(&self, error: ClientError, reason: &str) {
        tracing::debug!(%error, reason, "kafka producer reports trouble");
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Answer;

    fn delivery(&self, result: &DeliveryResult<'_>, answer: Answer) {
        let (number, answer) = *answer;
        let delivered = match result {
            Ok(message) => {
                self.place(number, (message.topic(), message.partition(), message.offset()))
            }
            Err((error, _)) => Err(Undelivered::Client(error.clone())),
        };
        // Whoever asked may have stopped waiting.
        answer.send(delivered).ok();
    }
}

impl Producer {
    /// Makes an idempotent producer that waits for all in-sync replicas.
    ///
    /// # Errors
    /// The client refuses its settings.
    pub fn new(settings: &ClientSettings) -> Result<Self, KafkaError> {
        let config = Self::config(settings);
        let client =
            config.create_with_context(Deliveries::default()).map_err(KafkaError::Client)?;
        Ok(Self { client })
    }

    fn config(settings: &ClientSettings) -> ClientConfig {
        let mut config = settings.without_fetching();
        config
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("partitioner", "murmur2_random")
            .set("linger.ms", "5")
            .set("delivery.timeout.ms", DELIVERY_MAX.as_millis().to_string())
            .set("queue.buffering.max.kbytes", "65536");
        config
    }

    /// The same for records of any size: the topic says what is too large.
    ///
    /// # Errors
    /// As [`Producer::new`].
    pub fn for_any_size(settings: &ClientSettings) -> Result<Self, KafkaError> {
        let mut config = Self::config(settings);
        config.set("message.max.bytes", RECORD_BYTES_MAX.to_string());
        let client =
            config.create_with_context(Deliveries::default()).map_err(KafkaError::Client)?;
        Ok(Self { client })
    }

    /// Sends one record and waits for its delivery, at most [`DELIVERY_MAX`] and a little. Many
    /// calls at once share batches.
    ///
    /// # Errors
    /// [`KafkaError::Produce`] when it was not delivered, or when that is not known; sending it
    /// again may then put it there twice. [`KafkaError::Unplaced`] when the client calls it delivered
    /// and no broker said where: send it again. [`KafkaError::Fatal`] when this producer can send
    /// nothing any more and another one has to be made.
    pub async fn produce(&self, record: NewRecord<'_>) -> Result<Delivered, KafkaError> {
        let answer = self.enqueue(record).await?;
        let delivered = match answer.await {
            Ok(delivered) => delivered,
            Err(_) => Err(Undelivered::Client(ClientError::Canceled)),
        };
        delivered.map_err(|error| self.undelivered(error))
    }

    /// Sends one record and waits as [`Producer::produce`] does, but not for room in the queue: what is
    /// sent leaves these hands now, or not at all.
    ///
    /// # Errors
    /// As [`Producer::produce`].
    pub async fn produce_now(&self, record: NewRecord<'_>) -> Result<Delivered, KafkaError> {
        let (answer, delivered) = self.answer();
        if let Err((error, _)) = self.client.send(to_base(&record, answer)) {
            return Err(self.failed(error));
        }
        let canceled = Err(Undelivered::Client(ClientError::Canceled));
        delivered.await.unwrap_or(canceled).map_err(|error| self.undelivered(error))
    }

    async fn enqueue(
        &self,
        record: NewRecord<'_>,
    ) -> Result<oneshot::Receiver<Result<Delivered, Undelivered>>, KafkaError> {
        let began = clock::now();
        loop {
            let (answer, delivered) = self.answer();
            match self.client.send(to_base(&record, answer)) {
                Ok(()) => return Ok(delivered),
                Err((ClientError::MessageProduction(RDKafkaErrorCode::QueueFull), _))
                    if clock::since(began) < DELIVERY_MAX => {}
                Err((error, _)) => return Err(self.failed(error)),
            }
            tokio::time::sleep(QUEUE_FULL_PAUSE).await;
        }
    }

    fn answer(&self) -> (Answer, oneshot::Receiver<Result<Delivered, Undelivered>>) {
        let (answer, delivered) = oneshot::channel();
        (Box::new((self.client.client().context().number(), answer)), delivered)
    }

    fn undelivered(&self, why: Undelivered) -> KafkaError {
        match why {
            Undelivered::Client(error) => self.failed(error),
            Undelivered::Unplaced => KafkaError::Unplaced,
        }
    }

    fn failed(&self, error: ClientError) -> KafkaError {
        match self.client.client().fatal_error() {
            Some((code, reason)) => KafkaError::Fatal { code, reason },
            None => KafkaError::Produce(error),
        }
    }
}

fn to_base<'a>(record: &NewRecord<'a>, answer: Answer) -> BaseRecord<'a, [u8], [u8], Answer> {
    let mut base = BaseRecord::with_opaque_to(record.topic, answer);
    base.key = record.key;
    base.payload = record.value;
    base.partition = record.partition;
    base.timestamp = record.timestamp_ms;
    if !record.headers.is_empty() {
        let mut headers = OwnedHeaders::new_with_capacity(record.headers.len());
        for (key, value) in record.headers {
            headers = headers.insert(Header { key, value: *value });
        }
        base.headers = Some(headers);
    }
    base
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w12_a_record_without_a_place_is_not_delivered() {
        let deliveries = Deliveries::default();
        // All of them were sent before the first is told of.
        let numbers: Vec<u64> = (0..20).map(|_| deliveries.number()).collect();
        let mut numbers = numbers.into_iter();
        let mut place = |topic, partition, offset| {
            let place = (topic, partition, offset);
            deliveries.place(numbers.next().unwrap(), place).ok().map(|at| at.offset)
        };
        assert_eq!(place("t", 0, 7), Some(7));
        assert_eq!(place("t", 0, -1001), None, "acknowledged by the next batch alone");
        assert_eq!(place("t", 0, 8), Some(8));
        // A batch of four that a broker took for one that it knows.
        for offset in -1..3 {
            assert_eq!(place("t", 0, offset), None, "{offset}");
        }
        assert_eq!(place("t", 1, 3), Some(3), "another partition");
        assert_eq!(place("t", 0, 3), Some(3));
    }

    #[test]
    fn w12_a_record_that_was_sent_after_an_unplaced_one_has_its_place() {
        let deliveries = Deliveries::default();
        let place =
            |number, offset| deliveries.place(number, ("t", 0, offset)).ok().map(|at| at.offset);
        let (one, other) = (deliveries.number(), deliveries.number());
        assert_eq!(place(one, -1), None);
        let later = deliveries.number();
        assert_eq!(place(other, 0), None, "of the same batch, as far as anybody knows");
        assert_eq!(place(later, 1), Some(1));
        assert_eq!(place(deliveries.number(), -1), None);
        assert_eq!(place(deliveries.number(), 0), Some(0), "the first of an empty partition");
    }
}
