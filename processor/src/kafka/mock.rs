//! A broker inside this process, for the demo and for quick tests.
//!
//! It knows producing, fetching, groups with the range assignor, and commits. It has no admin
//! requests, and what it holds ends with it. Other processes reach it by its address.

use std::fmt;

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;

use super::error::KafkaError;

/// A broker that lives as long as this value.
pub struct MockBroker {
    cluster: MockCluster<'static, DefaultProducerContext>,
}

impl fmt::Debug for MockBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockBroker").field("brokers", &self.brokers()).finish()
    }
}

impl MockBroker {
    /// Starts it on a free port of this machine.
    ///
    /// # Errors
    /// It could not be made.
    pub fn start() -> Result<Self, KafkaError> {
        let cluster = MockCluster::new(1).map_err(KafkaError::Client)?;
        Ok(Self { cluster })
    }

    /// Its address, as brokers are configured.
    #[must_use]
    pub fn brokers(&self) -> String {
        self.cluster.bootstrap_servers()
    }

    /// Makes a topic.
    ///
    /// # Errors
    /// The topic exists, or its name is refused.
    pub fn create_topic(&self, name: &str, partitions: i32) -> Result<(), KafkaError> {
        self.cluster.create_topic(name, partitions, 1).map_err(KafkaError::Client)
    }
}
