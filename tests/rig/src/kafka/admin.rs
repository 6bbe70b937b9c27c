//! What an administrator does to a cluster, by Kafka's protocol, past any proxy.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::admin::{
    AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication, TopicResult,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::Metadata;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::{RigError, clock, wait};

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(60);
/// How long the cluster may take until what was asked for is so everywhere.
const SETTLED: Duration = Duration::from_secs(60);

/// The rig's own connection to a cluster.
pub(super) struct Admin {
    client: Arc<AdminClient<DefaultClientContext>>,
    pub(super) bootstrap: String,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Admin").field("bootstrap", &self.bootstrap).finish_non_exhaustive()
    }
}

impl Admin {
    pub(super) fn new(bootstrap: &str) -> Result<Self, RigError> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", bootstrap);
        // A broker that is down on purpose is asked again soon, and nobody needs a line about it.
        config.set("reconnect.backoff.max.ms", "500").set("log.connection.close", "false");
        let client = config.create().map_err(refused("connect"))?;
        Ok(Self { client: Arc::new(client), bootstrap: bootstrap.to_owned() })
    }

    pub(super) async fn create_topic(
        &self,
        name: &str,
        partitions: u32,
        replicas: usize,
        config: &[(&str, &str)],
    ) -> Result<(), RigError> {
        let doing = format!("make the topic {name}");
        let count = i32::try_from(partitions).unwrap_or(i32::MAX);
        let replicas = TopicReplication::Fixed(i32::try_from(replicas).unwrap_or(1));
        let mut topic = NewTopic::new(name, count, replicas);
        for (setting, value) in config {
            topic = topic.set(setting, value);
        }
        let answers = self.client.create_topics([&topic], &options()).await;
        all_well(&doing, answers)?;
        let partitions = usize::try_from(partitions).unwrap_or(usize::MAX);
        self.wait_partitions(name, partitions).await
    }

    pub(super) async fn add_partitions(&self, topic: &str, total: u32) -> Result<(), RigError> {
        let total = usize::try_from(total).unwrap_or(usize::MAX);
        let wanted = NewPartitions::new(topic, total);
        let answers = self.client.create_partitions([&wanted], &options()).await;
        all_well(&format!("add partitions to {topic}"), answers)?;
        self.wait_partitions(topic, total).await
    }

    pub(super) async fn delete_topic(&self, topic: &str) -> Result<(), RigError> {
        let answers = self.client.delete_topics(&[topic], &options()).await;
        all_well(&format!("delete the topic {topic}"), answers)?;
        self.wait_metadata(&format!("{topic} to be gone"), SETTLED, |seen| {
            seen.topics().iter().all(|found| found.name() != topic || found.partitions().is_empty())
        })
        .await
    }

    pub(super) async fn delete_records(
        &self,
        topic: &str,
        partition: i32,
        before: i64,
    ) -> Result<(), RigError> {
        let doing = format!("delete records of {topic}");
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(before))
            .map_err(refused(&doing))?;
        let deleted =
            self.client.delete_records(&list, &options()).await.map_err(refused(&doing))?;
        deleted.elements().iter().try_for_each(|element| element.error()).map_err(refused(&doing))
    }

    pub(super) async fn delete_group(&self, group: &str) -> Result<(), RigError> {
        let doing = format!("delete the group {group}");
        let answers = self.client.delete_groups(&[group], &options()).await;
        all_well(&doing, answers)
    }

    pub(super) async fn offsets(
        &self,
        topic: &str,
        partition: i32,
    ) -> Result<(i64, i64), RigError> {
        let start = clock::now();
        loop {
            let (client, name) = (Arc::clone(&self.client), topic.to_owned());
            let asked = tokio::task::spawn_blocking(move || {
                client.inner().fetch_watermarks(&name, partition, REQUEST)
            });
            match asked.await.map_err(stopped)? {
                Ok(offsets) => return Ok(offsets),
                Err(error) if is_unsettled(&error) && clock::since(start) < SETTLED => {}
                Err(error) => return Err(refused(&format!("tell the offsets of {topic}"))(error)),
            }
            tokio::time::sleep(Duration::from_millis(wait::LOOK_EVERY_MS)).await;
        }
    }

    pub(super) async fn leader(
        &self,
        topic: &str,
        partition: i32,
    ) -> Result<Option<i32>, RigError> {
        let seen = self.metadata().await.map_err(refused("tell leaders"))?;
        let of_topic = seen.topics().iter().filter(|found| found.name() == topic);
        let found =
            of_topic.flat_map(|found| found.partitions()).find(|found| found.id() == partition);
        Ok(found.map(|found| found.leader()).filter(|leader| *leader >= 0))
    }

    pub(super) async fn wait_brokers(&self, count: usize, bound: Duration) -> Result<(), RigError> {
        self.wait_metadata(&format!("{count} brokers in the cluster"), bound, |seen| {
            seen.brokers().len() == count
        })
        .await
    }

    async fn wait_partitions(&self, topic: &str, count: usize) -> Result<(), RigError> {
        let what = format!("{count} partitions of {topic} with a leader");
        self.wait_metadata(&what, SETTLED, |seen| {
            let of_topic = seen.topics().iter().filter(|found| found.name() == topic);
            let led = of_topic.flat_map(|found| found.partitions());
            led.filter(|partition| partition.leader() >= 0 && partition.error().is_none()).count()
                == count
        })
        .await
    }

    /// Asks for the metadata until it is as wanted.
    async fn wait_metadata(
        &self,
        what: &str,
        bound: Duration,
        wanted: impl Fn(&Metadata) -> bool,
    ) -> Result<(), RigError> {
        let start = clock::now();
        loop {
            let seen = match self.metadata().await {
                Ok(seen) if wanted(&seen) => return Ok(()),
                Ok(seen) => format!("{} brokers, other partitions or none", seen.brokers().len()),
                Err(error) => error.to_string(),
            };
            if clock::since(start) >= bound {
                return Err(RigError::TimedOut { what: what.to_owned(), bound, seen });
            }
            tokio::time::sleep(Duration::from_millis(wait::LOOK_EVERY_MS)).await;
        }
    }

    async fn metadata(&self) -> Result<Metadata, KafkaError> {
        let client = Arc::clone(&self.client);
        let asked =
            tokio::task::spawn_blocking(move || client.inner().fetch_metadata(None, REQUEST));
        asked.await.unwrap_or(Err(KafkaError::MetadataFetch(RDKafkaErrorCode::Fail)))
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(REQUEST)).operation_timeout(Some(REQUEST))
}

fn refused(doing: &str) -> impl FnOnce(KafkaError) -> RigError {
    let doing = doing.to_owned();
    move |source| RigError::Kafka { doing, source }
}

/// A broker that the cluster names as a leader answers so until it has heard of it itself.
fn is_unsettled(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::NotLeaderForPartition
                | RDKafkaErrorCode::LeaderNotAvailable
                | RDKafkaErrorCode::UnknownTopicOrPartition
        )
    )
}

fn stopped(error: tokio::task::JoinError) -> RigError {
    RigError::Unexpected(format!("a request to Kafka was broken off: {error}"))
}

/// Every answer of an admin request has to be good.
fn all_well(doing: &str, answers: Result<Vec<TopicResult>, KafkaError>) -> Result<(), RigError> {
    for answer in answers.map_err(refused(doing))? {
        answer.map_err(|(_, code)| refused(doing)(KafkaError::AdminOp(code)))?;
    }
    Ok(())
}
