//! What can go wrong with Kafka, by what to do about it.

use rdkafka::error::{KafkaError as ClientError, RDKafkaErrorCode as Code};

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
        code: Code,
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
    /// The client calls a record delivered that no broker named a place for: it may be there or not.
    /// Send it again, with the id by which readers recognise it.
    #[error("the kafka client calls the record delivered, but no broker said where it lies")]
    Unplaced,
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
            | Self::Unplaced
            | Self::Produce(_) => true,
            Self::Settings(_)
            | Self::Client(_)
            | Self::Fatal { .. }
            | Self::Thread { .. }
            | Self::TopicMissing { .. } => false,
        }
    }

    /// Why this record is refused whatever the state of the brokers is; `None`: it may go later.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        let code = match self {
            Self::TopicMissing { .. } => return Some(Refusal::Topic),
            Self::Produce(ClientError::MessageProduction(code)) => code,
            Self::Produce(_)
            | Self::Unplaced
            | Self::Settings(_)
            | Self::Client(_)
            | Self::Fatal { .. }
            | Self::Thread { .. }
            | Self::Unavailable { .. }
            | Self::TimedOut { .. }
            | Self::Unreachable { .. } => return None,
        };
        let is_one_of = |codes: &[Code]| codes.contains(code);
        if is_one_of(&TOO_LARGE) {
            Some(Refusal::TooLarge)
        } else if is_one_of(&NO_TOPIC) {
            Some(Refusal::Topic)
        } else {
            is_one_of(&NO_RECORD).then_some(Refusal::Record)
        }
    }
}

/// Codes that refuse a record for its size, its topic, or what it says.
const TOO_LARGE: [Code; 3] =
    [Code::MessageSizeTooLarge, Code::MessageBatchTooLarge, Code::InvalidMessageSize];
const NO_TOPIC: [Code; 4] = [
    Code::UnknownTopic,
    Code::UnknownTopicOrPartition,
    Code::InvalidTopic,
    Code::TopicAuthorizationFailed,
];
const NO_RECORD: [Code; 4] = [
    Code::InvalidTimestamp,
    Code::InvalidRecord,
    Code::PolicyViolation,
    Code::UnsupportedForMessageFormat,
];

/// What of a record the brokers refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its size, or that of the batch in which it was sent.
    TooLarge,
    /// Its topic: it is not there, or may not be written to.
    Topic,
    /// What it says.
    Record,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w12_an_outage_refuses_no_record() {
        let produce = |code| KafkaError::Produce(ClientError::MessageProduction(code));
        for code in [
            Code::MessageTimedOut,
            Code::BrokerTransportFailure,
            Code::AllBrokersDown,
            Code::NotEnoughReplicas,
            Code::NotLeaderForPartition,
            Code::QueueFull,
            Code::RequestTimedOut,
        ] {
            assert_eq!(produce(code).refusal(), None, "{code}");
        }
        assert_eq!(produce(Code::MessageSizeTooLarge).refusal(), Some(Refusal::TooLarge));
        assert_eq!(produce(Code::TopicAuthorizationFailed).refusal(), Some(Refusal::Topic));
        assert_eq!(produce(Code::InvalidRecord).refusal(), Some(Refusal::Record));
    }
}
