//! Which client properties a person may set, and which ones this program sets itself.
//!
//! Reads: brokers and properties as configured. Gives: settings that are valid, or an error that
//! names the property and the reason. Never lets through what switches verification off, what
//! loads or runs code, or what would break the promise (offsets, isolation, group membership).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::error::KafkaError as ClientError;

use super::flow::FlowBounds;
use super::properties::check_property;

/// Longest wait for a drain before partitions are given up, unless set otherwise.
pub const DRAIN_DEFAULT: Duration = Duration::from_secs(20);
/// Time after which the broker takes a silent member out of the group.
pub const SESSION_TIMEOUT_DEFAULT: Duration = Duration::from_secs(45);
/// How often a member tells the broker that it lives. The answer tells it of changes of the group,
/// so this is also how long partitions that move may lie idle between two owners.
pub const HEARTBEAT_DEFAULT: Duration = Duration::from_secs(1);
/// Time without a poll after which the client leaves the group.
pub const POLL_INTERVAL_DEFAULT: Duration = Duration::from_secs(300);
// A drain that outlives the session would commit for partitions that are no longer ours.
const _: () = assert!(DRAIN_DEFAULT.as_secs() < SESSION_TIMEOUT_DEFAULT.as_secs());
const _: () = assert!(HEARTBEAT_DEFAULT.as_secs() * 3 <= SESSION_TIMEOUT_DEFAULT.as_secs());

/// A setting that cannot be used. `Display` says which one, why, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// No broker is named.
    #[error("brokers is empty: name at least one host:port")]
    NoBrokers,
    /// No topic is named.
    #[error("no topic is named")]
    NoTopics,
    /// The group has no name.
    #[error("the group has no name")]
    NoGroup,
    /// A topic name is not a plain name. Patterns are refused, since a pattern would take up
    /// topics that nobody wrote a start position for.
    #[error("topic {0:?} is not a plain topic name: use letters, digits, '.', '_' and '-'")]
    Topic(String),
    /// The property would switch off a check that keeps others from posing as the broker.
    #[error("{property} would switch verification off: {instead}")]
    Insecure {
        /// The property.
        property: String,
        /// What to do instead.
        instead: &'static str,
    },
    /// The property makes the client load or run code.
    #[error("{property} makes the client load or run code, which is not supported: remove it")]
    RunsCode {
        /// The property.
        property: String,
    },
    /// The property belongs to this program, and another value would lose or repeat work.
    #[error("{property} cannot be set: {reason}")]
    Promise {
        /// The property.
        property: String,
        /// Why.
        reason: &'static str,
    },
    /// The property has a setting of its own.
    #[error("{property} cannot be set here: use the setting {setting}")]
    HasSetting {
        /// The property.
        property: String,
        /// The setting to use.
        setting: &'static str,
    },
    /// The property is not one of those that may be passed on.
    #[error(
        "{property} is not among the properties that are passed on to the kafka client: {}",
        meant.map_or("remove it".to_owned(), |meant| format!("did you mean {meant}?"))
    )]
    NotPassedOn {
        /// The property.
        property: String,
        /// The one that was probably meant.
        meant: Option<&'static str>,
    },
    /// The client refuses the value.
    #[error("{property} is refused by the client itself: {reason}")]
    Value {
        /// The property.
        property: String,
        /// The client's words.
        reason: String,
    },
    /// Two times contradict one another.
    #[error("{shorter} ({shorter_ms} ms) must be shorter than {longer} ({longer_ms} ms)")]
    Order {
        /// The one that has to be shorter.
        shorter: &'static str,
        /// Its value.
        shorter_ms: u128,
        /// The one that has to be longer.
        longer: &'static str,
        /// Its value.
        longer_ms: u128,
    },
}

/// How to reach a cluster: valid by construction.
#[derive(Clone)]
pub struct ClientSettings {
    brokers: String,
    properties: BTreeMap<String, String>,
}

/// Shows the names of the properties, never their values: some are secrets.
impl fmt::Debug for ClientSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSettings")
            .field("brokers", &self.brokers)
            .field("properties", &self.properties.keys().collect::<Vec<_>>())
            .finish()
    }
}

impl ClientSettings {
    /// Checks brokers (`host:port`, comma separated) and client properties.
    ///
    /// # Errors
    /// The first property that may not be set, by name and reason.
    pub fn parse(
        brokers: &str,
        properties: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, SettingsError> {
        let brokers = brokers.trim();
        if brokers.split(',').all(|broker| broker.trim().is_empty()) {
            return Err(SettingsError::NoBrokers);
        }
        let mut kept = BTreeMap::new();
        for (name, value) in properties {
            check_property(&name, &value)?;
            kept.insert(name, value);
        }
        let settings = Self { brokers: brokers.to_owned(), properties: kept };
        settings.base().create_native_config().map_err(value_refused)?;
        Ok(settings)
    }

    /// The properties as configured; some values are secrets.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &str)> {
        self.properties.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The brokers as configured.
    #[must_use]
    pub fn brokers(&self) -> &str {
        &self.brokers
    }

    /// What every client of this program starts from.
    pub(super) fn base(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("client.id", "oncely");
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        config
            .set("bootstrap.servers", &self.brokers)
            // A topic that is missing is an error to show, never something to create by looking.
            .set("allow.auto.create.topics", "false");
        config
    }
}

impl ClientSettings {
    /// The same without what only means something to a client that reads a topic in full.
    pub(super) fn without_fetching(&self) -> ClientConfig {
        let mut config = self.base();
        for name in FETCHING.iter().map(|(name, _)| *name).chain(["fetch.message.max.bytes"]) {
            config.remove(name);
        }
        config
    }
}

fn value_refused(error: ClientError) -> SettingsError {
    if let ClientError::ClientConfig(_, reason, property, _) = error {
        return SettingsError::Value { property, reason };
    }
    SettingsError::Value { property: "one of the properties".to_owned(), reason: error.to_string() }
}

/// How partitions are shared out among the members of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupProtocol {
    /// The members share them out (every broker knows this).
    Classic {
        /// By which rule.
        assignor: Assignor,
        /// Time after which the broker takes a silent member out.
        session_timeout: Duration,
        /// Time between signs of life; at most a third of the session timeout.
        heartbeat: Duration,
    },
    /// The broker shares them out (KIP-848, brokers from 4.0). Its timeouts are the broker's.
    Consumer,
}

impl Default for GroupProtocol {
    fn default() -> Self {
        Self::Classic {
            assignor: Assignor::CooperativeSticky,
            session_timeout: SESSION_TIMEOUT_DEFAULT,
            heartbeat: HEARTBEAT_DEFAULT,
        }
    }
}

/// By which rule the members of a classic group share partitions out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignor {
    /// Partitions stay where they are unless they have to move; only those pause.
    CooperativeSticky,
    /// All partitions are given back at every change of the group. For the broker of the demo,
    /// which knows nothing else.
    Range,
}

/// All that a consumer is made from.
#[derive(Clone, Debug)]
pub struct ConsumerSettings {
    /// How to reach the cluster.
    pub client: ClientSettings,
    /// Name of the consumer group.
    pub group: String,
    /// Plain names of the topics.
    pub topics: Vec<String>,
    /// How partitions are shared out.
    pub protocol: GroupProtocol,
    /// Static membership: a name that is the same after each restart and unique in the group.
    pub instance_id: Option<String>,
    /// Time without a poll after which the client leaves the group.
    pub poll_interval: Duration,
    /// Longest wait for a drain.
    pub drain_max: Duration,
    /// Bounds on what the worker may hold.
    pub flow: FlowBounds,
    /// Records in one batch at most.
    pub batch_records_max: usize,
    /// Bytes in one batch at most, give or take one record.
    pub batch_bytes_max: usize,
}

impl ConsumerSettings {
    /// Settings with the defaults.
    #[must_use]
    pub fn new(client: ClientSettings, group: &str, topics: Vec<String>) -> Self {
        Self {
            client,
            group: group.to_owned(),
            topics,
            protocol: GroupProtocol::default(),
            instance_id: None,
            poll_interval: POLL_INTERVAL_DEFAULT,
            drain_max: DRAIN_DEFAULT,
            flow: FlowBounds::default(),
            batch_records_max: 1_000,
            batch_bytes_max: 4 << 20,
        }
    }

    /// Sets what the broker of the demo needs: it knows the range assignor only, and each change
    /// of a group takes it a session less one second, so that the session has to be short.
    #[must_use]
    pub fn for_mock_broker(mut self) -> Self {
        self.protocol = GroupProtocol::Classic {
            assignor: Assignor::Range,
            session_timeout: Duration::from_secs(3),
            heartbeat: Duration::from_millis(300),
        };
        self.drain_max = self.drain_max.min(Duration::from_secs(2));
        self
    }

    /// The configuration of the client, checked.
    pub(super) fn config(&self) -> Result<ClientConfig, SettingsError> {
        self.check()?;
        let mut config = self.client.base();
        for (name, value) in FETCHING {
            if config.get(name).is_none() {
                config.set(*name, *value);
            }
        }
        for (name, value) in FIXED {
            config.set(*name, *value);
        }
        config
            .set("group.id", &self.group)
            .set("max.poll.interval.ms", self.poll_interval.as_millis().to_string());
        if let Some(instance_id) = &self.instance_id {
            config.set("group.instance.id", instance_id);
        }
        match &self.protocol {
            GroupProtocol::Classic { assignor, session_timeout, heartbeat } => {
                config
                    .set("group.protocol", "classic")
                    .set("session.timeout.ms", session_timeout.as_millis().to_string())
                    .set("heartbeat.interval.ms", heartbeat.as_millis().to_string())
                    .set(
                        "partition.assignment.strategy",
                        match assignor {
                            Assignor::CooperativeSticky => "cooperative-sticky",
                            Assignor::Range => "range",
                        },
                    );
            }
            // Session, heartbeat and assignor are the broker's here; naming one of them makes the
            // client refuse to start.
            GroupProtocol::Consumer => {
                config.set("group.protocol", "consumer");
            }
        }
        Ok(config)
    }

    fn check(&self) -> Result<(), SettingsError> {
        if self.group.is_empty() {
            return Err(SettingsError::NoGroup);
        }
        if self.topics.is_empty() {
            return Err(SettingsError::NoTopics);
        }
        if let Some(topic) = self.topics.iter().find(|topic| !is_topic_name(topic)) {
            return Err(SettingsError::Topic(topic.clone()));
        }
        if let GroupProtocol::Classic { session_timeout, heartbeat, .. } = &self.protocol {
            shorter(("heartbeat", *heartbeat), ("session_timeout", *session_timeout))?;
            shorter(("drain", self.drain_max), ("session_timeout", *session_timeout))?;
            shorter(("session_timeout", *session_timeout), ("poll_interval", self.poll_interval))?;
        }
        shorter(("drain", self.drain_max), ("poll_interval", self.poll_interval))
    }
}

fn shorter(
    (shorter, shorter_time): (&'static str, Duration),
    (longer, longer_time): (&'static str, Duration),
) -> Result<(), SettingsError> {
    if shorter_time < longer_time {
        return Ok(());
    }
    Err(SettingsError::Order {
        shorter,
        shorter_ms: shorter_time.as_millis(),
        longer,
        longer_ms: longer_time.as_millis(),
    })
}

fn is_topic_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=249).contains(&name.len()) && name.chars().all(plain) && name != "." && name != ".."
}

/// Fetching, unless set otherwise: small queues, since each holds whole fetches in memory, and
/// short waits, since a full queue must not stall for a second.
const FETCHING: &[(&str, &str)] = &[
    ("fetch.wait.max.ms", "100"),
    ("fetch.min.bytes", "1"),
    ("fetch.max.bytes", "8388608"),
    ("max.partition.fetch.bytes", "1048576"),
    ("queued.max.messages.kbytes", "32768"),
];

/// What no configuration may change.
const FIXED: &[(&str, &str)] = &[
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    ("auto.offset.reset", "error"),
    ("isolation.level", "read_committed"),
    ("check.crcs", "true"),
    ("enable.partition.eof", "false"),
    ("queued.min.messages", "20000"),
    ("fetch.queue.backoff.ms", "20"),
    ("statistics.interval.ms", "5000"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_broker_managed_protocol_names_no_session_times() {
        let client = ClientSettings::parse("localhost:9092", []).unwrap();
        let mut settings = ConsumerSettings::new(client, "g", vec!["t".to_owned()]);
        let classic = settings.config().unwrap();
        assert_eq!(classic.get("partition.assignment.strategy"), Some("cooperative-sticky"));
        assert_eq!(classic.get("auto.offset.reset"), Some("error"));
        settings.protocol = GroupProtocol::Consumer;
        let consumer = settings.config().unwrap();
        for name in ["session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"]
        {
            assert_eq!(consumer.get(name), None, "{name}");
        }
    }

    #[test]
    fn times_that_contradict_one_another_are_refused() {
        let client = ClientSettings::parse("localhost:9092", []).unwrap();
        let mut settings = ConsumerSettings::new(client, "g", vec!["t".to_owned()]);
        settings.drain_max = SESSION_TIMEOUT_DEFAULT;
        assert!(matches!(settings.config(), Err(SettingsError::Order { shorter: "drain", .. })));
        settings.drain_max = DRAIN_DEFAULT;
        settings.topics = vec!["^orders.*".to_owned()];
        assert!(matches!(settings.config(), Err(SettingsError::Topic(_))));
    }
}
