//! Brokers, membership, and properties of the Kafka client.
//!
//! `ONCELY_KAFKA__SASL_PASSWORD` sets `sasl.password`: upper case, dots as underscores (no property
//! of a consumer has an underscore of its own); with `_FILE` at the end the value is read from that
//! file. Which properties may be set at all is for [`crate::kafka::ClientSettings`] to say.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use super::environment::{Environment, read_value};
use super::error::{ConfigError, ConfigErrors};
use super::keep;
use super::text::{duration_of, word_of};
use crate::kafka::ClientSettings;

const PREFIX: &str = "ONCELY_KAFKA__";

/// Properties whose own name ends in `.file`: `_FILE` is no suffix of ours there.
const FILES: [&str; 3] = [
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.jwt.template.file",
];

/// How to reach Kafka, and how to be a member of its groups. Shows no values of properties.
#[derive(Clone, Debug)]
pub struct Kafka {
    /// Brokers, and the properties of the client that the operator set; some are secrets.
    pub client: ClientSettings,
    /// After so long the broker takes a silent member out of a classic group.
    pub session_timeout: Duration,
    /// Between signs of life in a classic group.
    pub heartbeat: Duration,
    /// Static membership, where it was asked for.
    pub instance_id: Option<String>,
    /// Eager assignment, for brokers that know nothing else.
    pub range_assignor: bool,
}

impl Kafka {
    /// # Errors
    /// No brokers, a value out of its bounds, a property that may not be set or that the client
    /// refuses, or credentials that would travel in the clear.
    pub fn read(environment: &Environment) -> Result<Self, ConfigErrors> {
        let mut errors = Vec::new();
        let remedy = "give --brokers host:9092 or set the variable";
        let missing = ConfigError::Missing { name: "ONCELY_KAFKA_BROKERS", remedy };
        let brokers = environment.get("ONCELY_KAFKA_BROKERS");
        let brokers = keep(brokers.and_then(|brokers| brokers.ok_or(missing)), &mut errors);
        let session = keep(session_timeout(environment), &mut errors);
        let ms = Duration::from_millis;
        let bounds = (ms(100), ms(1_200_000));
        let heartbeat = duration_of(environment, "ONCELY_KAFKA_HEARTBEAT", ms(3_000), bounds);
        let heartbeat = keep(heartbeat, &mut errors);
        if let (Some(session), Some(heartbeat)) = (session, heartbeat)
            && heartbeat.saturating_mul(3) > session
        {
            let (heartbeat_ms, session_ms) = (heartbeat.as_millis(), session.as_millis());
            errors.push(ConfigError::HeartbeatsPerSession { heartbeat_ms, session_ms });
        }
        let words = ["cooperative-sticky", "range"];
        let assignor = keep(word_of(environment, "ONCELY_KAFKA_ASSIGNOR", words), &mut errors);
        let instance_id = keep(environment.get("ONCELY_KAFKA_INSTANCE_ID"), &mut errors);
        let client = keep(client(environment, brokers.as_deref()), &mut errors);
        match (client, session, heartbeat, assignor, instance_id) {
            (
                Some(client),
                Some(session_timeout),
                Some(heartbeat),
                Some(assignor),
                Some(instance_id),
            ) if errors.is_empty() => Ok(Self {
                client,
                session_timeout,
                heartbeat,
                instance_id,
                range_assignor: assignor == Some("range"),
            }),
            _ => Err(ConfigErrors(errors)),
        }
    }
}

/// The time-out of a session alone.
///
/// # Errors
/// A value out of its bounds.
pub(super) fn session_timeout(environment: &Environment) -> Result<Duration, ConfigError> {
    let ms = Duration::from_millis;
    let bounds = (ms(1_000), ms(3_600_000));
    duration_of(environment, "ONCELY_KAFKA_SESSION_TIMEOUT", ms(45_000), bounds)
}

/// Stands for brokers that are not named, while properties are looked at.
const NO_BROKERS: &str = "localhost";

fn client(
    environment: &Environment,
    brokers: Option<&str>,
) -> Result<ClientSettings, ConfigErrors> {
    let mut errors = Vec::new();
    let brokers = brokers.unwrap_or(NO_BROKERS);
    let mut properties = BTreeMap::new();
    for (variable, value) in environment.beginning(PREFIX) {
        let Some((property, from_file)) = named(variable) else { continue };
        let value = if from_file { read_value(Path::new(value)) } else { Ok(value.to_owned()) };
        let Some(value) = keep(value, &mut errors) else { continue };
        let in_the_clear =
            property == "security.protocol" && value.eq_ignore_ascii_case("sasl_plaintext");
        if in_the_clear && !on_this_machine(brokers) {
            errors.push(ConfigError::CredentialsInTheClear);
        }
        // Each for itself, so that one that is refused hides no other.
        let alone = ClientSettings::parse(NO_BROKERS, [(property.clone(), value.clone())]);
        keep(alone.map_err(ConfigError::KafkaClient), &mut errors);
        if properties.insert(property, value).is_some() {
            let plain = variable.strip_suffix("_FILE").unwrap_or(variable);
            errors.push(ConfigError::SetTwice { name: format!("{PREFIX}{plain}") });
        }
    }
    if !errors.is_empty() {
        return Err(ConfigErrors(errors));
    }
    Ok(ClientSettings::parse(brokers, properties).map_err(ConfigError::KafkaClient)?)
}

/// The property that a variable sets; `None` for a variable that is not ours.
pub(super) fn property(variable: &str) -> Option<String> {
    named(variable.strip_prefix(PREFIX)?).map(|(property, _)| property)
}

/// The property, and whether the value is the name of a file.
fn named(variable: &str) -> Option<(String, bool)> {
    let allowed = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    if variable.is_empty() || !variable.bytes().all(allowed) {
        return None;
    }
    let property = variable.to_ascii_lowercase().replace('_', ".");
    match property.strip_suffix(".file") {
        Some(plain) if !FILES.contains(&property.as_str()) => Some((plain.to_owned(), true)),
        _ => Some((property, false)),
    }
}

fn on_this_machine(brokers: &str) -> bool {
    brokers.split(',').all(|broker| {
        let broker = broker.trim();
        let host = broker.rsplit_once(':').map_or(broker, |(host, _)| host);
        is_loopback(host)
    })
}

/// `localhost` or a loopback address, in brackets or not.
pub(super) fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
