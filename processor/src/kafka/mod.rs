//! Kafka: the only room that knows the client library.
//!
//! Reads: topics, and what the worker decides about positions. Gives: events with assignments,
//! records and errors; answers about the cluster; a producer. Never decides a start position,
//! never knows the database, never performs an effect.
//!
//! A consumer is one thread that polls at its own pace ([`ConsumerHandle::spawn`]). It sends
//! [`Event`]s and takes commands. The protocol with the worker:
//!
//! 1. [`Event::Assigned`] names partitions with fresh [`AssignmentId`]s. Nothing of them is
//!    fetched until [`ConsumerHandle::start`] gives the offset. That answer may take as long as it
//!    takes: the group does not wait for it.
//! 2. [`Event::Records`] brings records; their [`Permit`] bounds what is in flight.
//! 3. [`ConsumerHandle::commit`] names the lowest unfinished offset of an assignment. A commit for
//!    an assignment that has ended is dropped.
//! 4. [`Event::Revoked`] asks for a drain within a bound; its answer carries the last offsets.
//! 5. [`ConsumerHandle::stop`] does the same for all partitions, then leaves the group.

use std::time::Duration;

use rdkafka::config::RDKafkaLogLevel;

mod admin;
mod batch;
mod commit;
mod consumer;
mod context;
mod error;
mod event;
mod fetch;
mod flow;
mod mock;
mod peek;
mod producer;
mod properties;
mod record;
mod settings;
mod slots;
mod stats;
mod thread;
mod topic_id;
mod topics;
mod trouble;

pub use admin::{ANSWER_MAX, Admin, TopicInfo, TopicRetention, WitnessCheck};
pub use consumer::{ConsumerHandle, StopMode};
pub use error::{KafkaError, Refusal};
pub use event::{Assigned, DrainAnswer, Event, Events, RevokeCause, Revoked, Trouble, TroubleKind};
pub use fetch::Fetched;
pub use flow::{FlowBounds, Permit};
pub use mock::MockBroker;
pub use producer::{DELIVERY_MAX, Delivered, NewRecord, Producer};
pub use record::{AssignmentId, Header, Record, RecordBatch, StartId, TopicPartition};
pub use settings::{
    Assignor, ClientSettings, ConsumerSettings, DRAIN_DEFAULT, GroupProtocol, HEARTBEAT_DEFAULT,
    POLL_INTERVAL_DEFAULT, SESSION_TIMEOUT_DEFAULT, SettingsError,
};
pub use stats::{ConsumerCounts, PartitionOffsets};
pub use topics::Topics;

/// Trouble of one kind is reported at most this often; every case is counted.
pub const TROUBLE_INTERVAL: Duration = Duration::from_secs(10);
/// How often the broker's offsets per partition are renewed.
pub const STATISTICS_INTERVAL: Duration = Duration::from_secs(5);

/// Passes the client's own log lines on.
fn log_client(level: RDKafkaLogLevel, facility: &str, text: &str) {
    match level {
        RDKafkaLogLevel::Emerg
        | RDKafkaLogLevel::Alert
        | RDKafkaLogLevel::Critical
        | RDKafkaLogLevel::Error => tracing::error!(facility, text, "kafka client"),
        RDKafkaLogLevel::Warning => tracing::warn!(facility, text, "kafka client"),
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {
            tracing::info!(facility, text, "kafka client");
        }
        RDKafkaLogLevel::Debug => tracing::debug!(facility, text, "kafka client"),
    }
}
