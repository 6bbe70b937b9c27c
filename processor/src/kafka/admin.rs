//! Questions about the cluster, each answered within a limit.
//!
//! Reads: metadata, offsets, configurations, and single records. Gives: plain values. Changes
//! nothing, and never joins a group, also where it names one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oncely_core::progress::Witness;
use rdkafka::TopicPartitionList;
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::ClientContext;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{IsError, KafkaError as ClientError, RDKafkaErrorCode};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{Offset, statistics::Statistics};
use uuid::Uuid;

use super::error::KafkaError;
use super::peek;
use super::record::TopicPartition;
use super::settings::ClientSettings;
use super::topic_id::topic_ids;

/// Longest wait for one answer of a broker, unless said otherwise.
pub const ANSWER_MAX: Duration = Duration::from_secs(10);

/// How the client library names its brokers inside a process.
const MOCK_CLUSTER_PREFIX: &str = "mockCluster";

/// A topic as the cluster has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicInfo {
    /// Its name.
    pub name: String,
    /// Its id, which changes when the topic is deleted and made anew. `None` where the brokers
    /// keep no ids.
    pub id: Option<Uuid>,
    /// Its partitions, rising.
    pub partitions: Vec<i32>,
    /// Those of them that no broker leads at this moment.
    pub leaderless: Vec<i32>,
}

/// How long a topic keeps its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicRetention {
    /// Milliseconds after which records may be deleted; `None` is never by age.
    pub retention_ms: Option<u64>,
    /// Whether only the last record of each key is kept, so that older ones may be missing.
    pub compacted: bool,
}

/// What became of the record that a position's witness describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WitnessCheck {
    /// It is there, and the same.
    Same,
    /// It is no longer there: retention or compaction took it. Nothing can be said.
    Gone,
    /// Another record stands at its offset: the topic is not the one that it was.
    Different {
        /// What stands there now.
        found: Witness,
    },
    /// The partition ends before it: the topic was cut off or made anew.
    Shorter {
        /// Offset of the next record to be produced.
        high: i64,
    },
}

/// Asks one cluster. Clones share connections.
#[derive(Clone)]
pub struct Admin {
    inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) limit: Duration,
    admin: AdminClient<Quiet>,
    /// Reads offsets and single records. Assigns itself; one question at a time.
    reader: Mutex<BaseConsumer<Quiet>>,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").field("limit", &self.inner.limit).finish_non_exhaustive()
    }
}

/// Events of the client that are looked through for a reason.
const EVENTS_MAX: usize = 50;
/// Characters of the client's words that are kept.
const SAID_CHARS_MAX: usize = 500;

/// Logs at debug level: every error is also in an answer. Keeps the last one, since the client gives
/// no reason with a time-out.
#[derive(Clone, Default)]
pub(super) struct Quiet {
    said: Arc<Mutex<String>>,
}

impl Quiet {
    fn keep(&self, text: &str) {
        let text = text.chars().take(SAID_CHARS_MAX).collect();
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    fn said(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        tracing::debug!(?level, facility, text, "kafka admin client");
    }
    fn stats(&self, _statistics: Statistics) {}
    fn error(&self, error: ClientError, reason: &str) {
        // That all are down says less than why one of them is.
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::AllBrokersDown) {
            self.keep(reason);
        }
        tracing::debug!(%error, reason, "kafka admin client reports trouble");
    }
}

impl ConsumerContext for Quiet {}

impl Admin {
    /// Makes the clients. `group` is the one whose committed offsets are asked for.
    ///
    /// # Errors
    /// The client refuses its settings.
    pub fn new(settings: &ClientSettings, group: &str) -> Result<Self, KafkaError> {
        Self::with_limit(settings, group, ANSWER_MAX)
    }

    /// The same with another limit for each answer.
    ///
    /// # Errors
    /// As [`Admin::new`].
    pub fn with_limit(
        settings: &ClientSettings,
        group: &str,
        limit: Duration,
    ) -> Result<Self, KafkaError> {
        let admin =
            AdminClient::from_config_and_context(&settings.without_fetching(), Quiet::default())
                .map_err(KafkaError::Client)?;
        let reader = peek::reader_config(settings, group)
            .create_with_context(Quiet::default())
            .map_err(KafkaError::Client)?;
        Ok(Self { inner: Arc::new(Inner { limit, admin, reader: Mutex::new(reader) }) })
    }

    /// The cluster's id.
    ///
    /// # Errors
    /// No broker answered in time.
    pub async fn cluster_id(&self) -> Result<String, KafkaError> {
        self.ask("cluster id", Inner::cluster_id).await
    }

    /// Whether this is a [`super::MockBroker`]. It leaves admin requests unanswered instead of
    /// refusing them, so none is sent to it, and its groups need
    /// [`super::ConsumerSettings::for_mock_broker`].
    ///
    /// # Errors
    /// As [`Admin::cluster_id`].
    pub async fn is_mock_broker(&self) -> Result<bool, KafkaError> {
        self.ask("cluster id", Inner::is_mock_broker).await
    }

    /// The named topics, in that order.
    ///
    /// # Errors
    /// One of them is missing or may not be seen; no answer in time.
    pub async fn topics(&self, names: &[String]) -> Result<Vec<TopicInfo>, KafkaError> {
        let names = names.to_vec();
        self.ask("topics", move |inner| {
            let mut infos = names
                .iter()
                .map(|name| inner.topic(name))
                .collect::<Result<Vec<_>, KafkaError>>()?;
            if let Some(ids) = inner.topic_ids(&names)? {
                for info in &mut infos {
                    // Deleted between the two questions: not a topic without an id.
                    let missing = || KafkaError::TopicMissing { topic: info.name.clone() };
                    info.id = *ids.get(&info.name).ok_or_else(missing)?;
                }
            }
            Ok(infos)
        })
        .await
    }

    /// The ids of those of the named topics that exist and have one, by one request.
    ///
    /// # Errors
    /// No answer in time.
    pub async fn topic_ids(&self, names: &[String]) -> Result<HashMap<String, Uuid>, KafkaError> {
        let names = names.to_vec();
        self.ask("topic ids", move |inner| {
            if let Some(name) = names.first() {
                inner.must_answer(name)?;
            }
            let ids = inner.topic_ids(&names)?.unwrap_or_default();
            Ok(ids.into_iter().filter_map(|(name, id)| Some((name, id?))).collect())
        })
        .await
    }

    /// First offset, and the offset up to which all is decided (the next record's, unless a
    /// transaction is open), of one partition.
    ///
    /// # Errors
    /// No answer in time; no such partition.
    pub async fn watermarks(&self, partition: &TopicPartition) -> Result<(i64, i64), KafkaError> {
        let partition = partition.clone();
        self.ask("watermarks", move |inner| watermarks(&inner.reader(), &partition, inner.limit))
            .await
    }

    /// What the group has committed; partitions without an offset are left out.
    ///
    /// # Errors
    /// No answer in time; no right to read the group.
    pub async fn committed(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<HashMap<TopicPartition, i64>, KafkaError> {
        let partitions = partitions.to_vec();
        self.ask("committed offsets", move |inner| {
            let mut list = TopicPartitionList::with_capacity(partitions.len());
            for TopicPartition { topic, partition } in &partitions {
                list.add_partition(topic, *partition);
            }
            let unavailable =
                |source| KafkaError::Unavailable { asked: "committed offsets", source };
            let found = inner.reader().committed_offsets(list, inner.limit).map_err(unavailable)?;
            let mut committed = HashMap::new();
            for element in found.elements() {
                element.error().map_err(unavailable)?;
                if let Offset::Offset(offset) = element.offset() {
                    let partition = TopicPartition::new(element.topic(), element.partition());
                    committed.insert(partition, offset);
                }
            }
            Ok(committed)
        })
        .await
    }

    /// How long a topic keeps its records; `None` where the brokers do not say, or not to us.
    ///
    /// # Errors
    /// No answer in time; no such topic.
    pub async fn retention(&self, topic: &str) -> Result<Option<TopicRetention>, KafkaError> {
        let asked = "retention of a topic";
        if self.is_mock_broker().await? {
            return Ok(None);
        }
        let options = AdminOptions::new().request_timeout(Some(self.inner.limit));
        let resource = [ResourceSpecifier::Topic(topic)];
        let answer = self.inner.admin.describe_configs(&resource, &options);
        // The client's own limit may not count the search for a broker.
        let answer = tokio::time::timeout(self.inner.limit, answer)
            .await
            .map_err(|_| KafkaError::TimedOut { asked })?;
        let configs = match answer {
            Ok(configs) => configs,
            Err(error) if is_unsupported(&error) => return Ok(None),
            Err(source) => return Err(KafkaError::Unavailable { asked, source }),
        };
        match configs.into_iter().next() {
            None => Ok(None),
            Some(Err(RDKafkaErrorCode::UnknownTopicOrPartition)) => {
                Err(KafkaError::TopicMissing { topic: topic.to_owned() })
            }
            Some(Err(
                RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::ClusterAuthorizationFailed,
            )) => Ok(None),
            Some(Err(code)) => {
                Err(KafkaError::Unavailable { asked, source: ClientError::AdminOp(code) })
            }
            // The client gives no error for a topic that is not there, only no entries.
            Some(Ok(config)) if config.entries.is_empty() => {
                Err(KafkaError::TopicMissing { topic: topic.to_owned() })
            }
            Some(Ok(config)) => {
                let value = |name: &str| config.get(name).and_then(|entry| entry.value.as_deref());
                let policy = value("cleanup.policy").unwrap_or("delete");
                let by_age = policy.contains("delete");
                let age = value("retention.ms").and_then(|text| text.parse::<u64>().ok());
                Ok(Some(TopicRetention {
                    retention_ms: age.filter(|_| by_age),
                    compacted: policy.contains("compact"),
                }))
            }
        }
    }

    /// For each partition the witness of the last record below an offset; left out where none is
    /// found within a bounded look back (markers and compaction leave gaps).
    ///
    /// # Errors
    /// No answer in time.
    pub async fn witnesses_before(
        &self,
        positions: &[(TopicPartition, i64)],
    ) -> Result<HashMap<TopicPartition, Witness>, KafkaError> {
        let positions = positions.to_vec();
        self.ask("records before positions", move |inner| {
            peek::witnesses_before(&inner.reader(), (&positions, false), inner.limit)
        })
        .await
    }

    /// The last records below these ends, however far below: none where a partition has no record.
    ///
    /// # Errors
    /// No answer in time.
    pub async fn last_records(
        &self,
        ends: &[(TopicPartition, i64)],
    ) -> Result<HashMap<TopicPartition, Witness>, KafkaError> {
        let ends = ends.to_vec();
        self.ask("last records", move |inner| {
            peek::witnesses_before(&inner.reader(), (&ends, true), inner.limit)
        })
        .await
    }

    /// Compares witnesses with what is there now.
    ///
    /// # Errors
    /// No answer in time.
    pub async fn check_witnesses(
        &self,
        witnesses: &[(TopicPartition, Witness)],
    ) -> Result<HashMap<TopicPartition, WitnessCheck>, KafkaError> {
        let witnesses = witnesses.to_vec();
        self.ask("witnesses", move |inner| {
            peek::check_witnesses(&inner.reader(), &witnesses, inner.limit)
        })
        .await
    }

    /// Runs a blocking question on a thread of its own.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        asked: &'static str,
        question: impl FnOnce(&Inner) -> Result<T, KafkaError> + Send + 'static,
    ) -> Result<T, KafkaError> {
        let inner = Arc::clone(&self.inner);
        match tokio::task::spawn_blocking(move || question(&inner)).await {
            Ok(answer) => answer,
            Err(error) => {
                Err(KafkaError::Thread { reason: format!("asking for {asked} failed: {error}") })
            }
        }
    }
}

impl Inner {
    pub(super) fn reader(&self) -> std::sync::MutexGuard<'_, BaseConsumer<Quiet>> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cluster_id(&self) -> Result<String, KafkaError> {
        let id = self.admin.inner().fetch_cluster_id(self.limit);
        id.ok_or_else(|| {
            let (asked, said) = ("cluster id", self.why_unreachable());
            if said.is_empty() {
                KafkaError::TimedOut { asked }
            } else {
                KafkaError::Unreachable { asked, said }
            }
        })
    }

    /// What the client last said of brokers that it could not use; empty for nothing. Only the reader
    /// hands on what it meets, and only when it is polled.
    fn why_unreachable(&self) -> String {
        let reader = self.reader();
        for _ in 0..EVENTS_MAX {
            drop(reader.poll(Duration::from_millis(1)));
        }
        reader.context().said()
    }

    fn is_mock_broker(&self) -> Result<bool, KafkaError> {
        Ok(self.cluster_id()?.starts_with(MOCK_CLUSTER_PREFIX))
    }

    /// While no broker can be reached, an administrator's request keeps two threads of the client busy until its
    /// limit; one for metadata waits.
    fn must_answer(&self, topic: &str) -> Result<(), KafkaError> {
        let asked = self.admin.inner().fetch_metadata(Some(topic), self.limit);
        asked.map(drop).map_err(|source| KafkaError::Unavailable { asked: "topics", source })
    }

    /// `None`: the brokers keep no ids. Topics that are not there are left out.
    fn topic_ids(
        &self,
        names: &[String],
    ) -> Result<Option<HashMap<String, Option<Uuid>>>, KafkaError> {
        if self.is_mock_broker()? {
            return Ok(None);
        }
        match topic_ids(self.admin.inner(), names, self.limit) {
            Ok(ids) => Ok(Some(ids)),
            Err(error) if is_unsupported(&error) => Ok(None),
            Err(source) => Err(KafkaError::Unavailable { asked: "topic ids", source }),
        }
    }

    fn topic(&self, name: &str) -> Result<TopicInfo, KafkaError> {
        let unavailable = |source| KafkaError::Unavailable { asked: "topics", source };
        let metadata =
            self.admin.inner().fetch_metadata(Some(name), self.limit).map_err(unavailable)?;
        let missing = || KafkaError::TopicMissing { topic: name.to_owned() };
        let topic =
            metadata.topics().iter().find(|topic| topic.name() == name).ok_or_else(missing)?;
        match topic.error() {
            None => {}
            Some(
                RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART
                | RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
            ) => return Err(missing()),
            Some(error) if error.is_error() => {
                return Err(unavailable(ClientError::MetadataFetch(error.into())));
            }
            Some(_) => {}
        }
        let mut partitions: Vec<i32> =
            topic.partitions().iter().map(rdkafka::metadata::MetadataPartition::id).collect();
        if partitions.is_empty() {
            return Err(missing());
        }
        partitions.sort_unstable();
        let leaderless = topic.partitions().iter().filter(|partition| partition.leader() < 0);
        let leaderless = leaderless.map(rdkafka::metadata::MetadataPartition::id).collect();
        Ok(TopicInfo { name: name.to_owned(), id: None, partitions, leaderless })
    }
}

pub(super) fn watermarks(
    reader: &BaseConsumer<Quiet>,
    partition: &TopicPartition,
    limit: Duration,
) -> Result<(i64, i64), KafkaError> {
    let TopicPartition { topic, partition: number } = partition;
    // What a client remembers of leaders outlives them: it renews that by itself only for topics
    // that it reads.
    let unavailable = |source| KafkaError::Unavailable { asked: "watermarks", source };
    reader.fetch_metadata(Some(topic), limit).map_err(unavailable)?;
    reader.fetch_watermarks(topic, *number, limit).map_err(|source| {
        match source.rdkafka_error_code() {
            Some(
                RDKafkaErrorCode::UnknownTopic
                | RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::UnknownPartition,
            ) => KafkaError::TopicMissing { topic: topic.to_string() },
            Some(_) | None => unavailable(source),
        }
    })
}

/// Whether the brokers do not know the request at all.
fn is_unsupported(error: &ClientError) -> bool {
    // The client's own accessor leaves this variant out.
    let code = if let ClientError::AdminOp(code) = error {
        Some(*code)
    } else {
        error.rdkafka_error_code()
    };
    matches!(
        code,
        Some(RDKafkaErrorCode::UnsupportedFeature | RDKafkaErrorCode::UnsupportedVersion)
    )
}
