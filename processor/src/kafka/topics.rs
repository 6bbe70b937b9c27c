//! Makes and removes topics and groups, for programs that bring their own and take them away again.
//!
//! The processor itself never does: a missing topic is reported, never created.

use std::fmt;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError as ClientError, RDKafkaErrorCode};

use super::admin::{ANSWER_MAX, Quiet};
use super::error::KafkaError;
use super::settings::ClientSettings;

/// Replicas as the cluster is configured.
const REPLICAS_OF_THE_CLUSTER: i32 = -1;

/// Changes one cluster.
pub struct Topics {
    admin: AdminClient<Quiet>,
}

impl fmt::Debug for Topics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topics").finish_non_exhaustive()
    }
}

impl Topics {
    /// Makes the client; nothing is asked yet.
    ///
    /// # Errors
    /// The client refuses its settings.
    pub fn new(settings: &ClientSettings) -> Result<Self, KafkaError> {
        let admin =
            AdminClient::from_config_and_context(&settings.without_fetching(), Quiet::default())
                .map_err(KafkaError::Client)?;
        Ok(Self { admin })
    }

    /// Makes a topic with the cluster's own settings.
    ///
    /// # Errors
    /// No answer in time, no right to, or the topic exists.
    pub async fn create(&self, name: &str, partitions: i32) -> Result<(), KafkaError> {
        let replicas = TopicReplication::Fixed(REPLICAS_OF_THE_CLUSTER);
        let topic = NewTopic::new(name, partitions, replicas);
        let options = options();
        let answer = self.admin.create_topics([&topic], &options);
        one("creation of a topic", answer).await
    }

    /// Removes a topic with all its records.
    ///
    /// # Errors
    /// No answer in time, no right to, or no such topic.
    pub async fn delete(&self, name: &str) -> Result<(), KafkaError> {
        let options = options();
        let names = [name];
        let answer = self.admin.delete_topics(&names, &options);
        one("removal of a topic", answer).await
    }

    /// Removes a group without members, and its offsets with it.
    ///
    /// # Errors
    /// No answer in time, no right to, or the group has members.
    pub async fn delete_group(&self, group: &str) -> Result<(), KafkaError> {
        let options = options();
        let groups = [group];
        let answer = self.admin.delete_groups(&groups, &options);
        one("removal of a group", answer).await
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(ANSWER_MAX)).operation_timeout(Some(ANSWER_MAX))
}

/// What the client says of one topic or group.
type Changed = Result<String, (String, RDKafkaErrorCode)>;

/// The answer to a change of one thing.
async fn one(
    asked: &'static str,
    answer: impl Future<Output = Result<Vec<Changed>, ClientError>>,
) -> Result<(), KafkaError> {
    // The client's own limit may not count the search for a broker.
    let bound = ANSWER_MAX.saturating_add(Duration::from_secs(1));
    let answers = tokio::time::timeout(bound, answer)
        .await
        .map_err(|_| KafkaError::TimedOut { asked })?
        .map_err(|source| KafkaError::Unavailable { asked, source })?;
    match answers.into_iter().next() {
        Some(Err((_, code))) => {
            Err(KafkaError::Unavailable { asked, source: ClientError::AdminOp(code) })
        }
        Some(Ok(_)) | None => Ok(()),
    }
}
