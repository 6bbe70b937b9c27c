//! What can go wrong with Kafka, by what to do about it.

use rdkafka::error::{KafkaError as ClientError, RDKafkaErrorCode};

use super::settings::SettingsError;

/// An error of this room. The cause, where there is one, is the source.
#[derive(Clone, Debug, thiserror::Error)]
pub enum KafkaError {
    /// A client property is refused or invalid: correct the configuration.
    #[error("a kafka setting is not usable")]
    Settings(#[from] SettingsError),
    /// The client could not be made: correct the configuration.
    #[error("the kafka client could not be made")]
    Client(#[source] ClientError),
    /// The client gave up for good: end the process, so that it is started anew.
    #[error("the kafka client stopped for good: {reason} ({code})")]
    Fatal {
        /// The client's code.
        code: RDKafkaErrorCode,
        /// The client's words.
        reason: String,
    },
    /// The thread of the consumer ended unexpectedly: end the process.
    #[error("the consumer thread ended unexpectedly: {reason}")]
    Thread {
        /// What it said last.
        reason: String,
    },
    /// A request did not succeed: try again later.
    #[error("kafka did not answer: {asked}")]
    Unavailable {
        /// What was asked.
        asked: &'static str,
        /// What the client said.
        #[source]
        source: ClientError,
    },
    /// A request was not answered within its limit: try again later.
    #[error("kafka did not answer in time: {asked}")]
    TimedOut {
        /// What was asked.
        asked: &'static str,
    },
    /// No broker can be used, and the client says why: an address, a certificate, a credential.
    #[error("kafka did not answer in time: {asked} ({said})")]
    Unreachable {
        /// What was asked.
        asked: &'static str,
        /// The client's last words.
        said: String,
    },
    /// The topic does not exist, or may not be seen: create it or grant access.
    #[error("topic {topic} does not exist, or this client may not see it")]
    TopicMissing {
        /// The topic.
        topic: String,
    },
    /// A record was not accepted: the caller decides whether to send it again.
    #[error("kafka did not accept the record")]
    Produce(#[source] ClientError),
}

impl KafkaError {
    /// Whether the same request may succeed later without anybody changing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable { .. }
            | Self::TimedOut { .. }
            | Self::Unreachable { .. }
            | Self::Produce(_) => true,
            Self::Settings(_)
            | Self::Client(_)
            | Self::Fatal { .. }
            | Self::Thread { .. }
            | Self::TopicMissing { .. } => false,
        }
    }
}
