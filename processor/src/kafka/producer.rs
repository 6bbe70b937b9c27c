//! Sends records and waits until all in-sync replicas have them.
//!
//! Keys go to the partition that Java clients would choose, so that one entity stays in one
//! partition whoever produces. Sending again after an error may put a record there twice; readers
//! recognise it by the id that the record carries.

use std::fmt;
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

type Answer = Box<oneshot::Sender<Result<Delivered, ClientError>>>;

struct Deliveries;

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
        let delivered = match result {
            Ok(message) => {
                Ok(Delivered { partition: message.partition(), offset: message.offset() })
            }
            Err((error, _)) => Err(error.clone()),
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
        let client = config.create_with_context(Deliveries).map_err(KafkaError::Client)?;
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
        let client = config.create_with_context(Deliveries).map_err(KafkaError::Client)?;
        Ok(Self { client })
    }

    /// Sends one record and waits for its delivery, at most [`DELIVERY_MAX`] and a little. Many
    /// calls at once share batches.
    ///
    /// # Errors
    /// [`KafkaError::Produce`] when it was not delivered, or when that is not known; sending it
    /// again may then put it there twice. [`KafkaError::Fatal`] when this producer can send
    /// nothing any more and another one has to be made.
    pub async fn produce(&self, record: NewRecord<'_>) -> Result<Delivered, KafkaError> {
        let answer = self.enqueue(record).await?;
        let delivered = match answer.await {
            Ok(delivered) => delivered,
            Err(_) => Err(ClientError::Canceled),
        };
        delivered.map_err(|error| self.failed(error))
    }

    /// Sends one record and waits as [`Producer::produce`] does, but not for room in the queue: what is
    /// sent leaves these hands now, or not at all.
    ///
    /// # Errors
    /// As [`Producer::produce`].
    pub async fn produce_now(&self, record: NewRecord<'_>) -> Result<Delivered, KafkaError> {
        let (answer, delivered) = oneshot::channel();
        if let Err((error, _)) = self.client.send(to_base(&record, Box::new(answer))) {
            return Err(self.failed(error));
        }
        let delivered = delivered.await.unwrap_or(Err(ClientError::Canceled));
        delivered.map_err(|error| self.failed(error))
    }

    async fn enqueue(
        &self,
        record: NewRecord<'_>,
    ) -> Result<oneshot::Receiver<Result<Delivered, ClientError>>, KafkaError> {
        let began = clock::now();
        loop {
            let (answer, delivered) = oneshot::channel();
            match self.client.send(to_base(&record, Box::new(answer))) {
                Ok(()) => return Ok(delivered),
                Err((ClientError::MessageProduction(RDKafkaErrorCode::QueueFull), _))
                    if clock::since(began) < DELIVERY_MAX => {}
                Err((error, _)) => return Err(self.failed(error)),
            }
            tokio::time::sleep(QUEUE_FULL_PAUSE).await;
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
