//! What can be wrong with the settings of a process. Every text names the setting and what to do;
//! none shows a value that may be a secret.

use std::path::PathBuf;

use crate::kafka::SettingsError;

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{name} is not set: {remedy}")]
    Missing { name: &'static str, remedy: &'static str },
    #[error("{name} and {name}_FILE are both set: keep one of them")]
    SetTwice { name: String },
    #[error("{name} is {value:?}, which is no {expected}")]
    Malformed { name: &'static str, value: String, expected: &'static str },
    #[error("{name} is {value:?}: write {} or {}", words[0], words[1])]
    NoWord { name: &'static str, value: String, words: [&'static str; 2] },
    #[error("{name} must lie between {least} and {most}, and is {value}")]
    OutOfRange { name: &'static str, value: String, least: String, most: String },
    #[error("the file {} cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("the file {} has more than {bytes_max} bytes", path.display())]
    TooLong { path: PathBuf, bytes_max: usize },
    #[error(
        "{}:{line} is no setting: write NAME=value with a name that `oncely help settings` lists",
        path.display()
    )]
    NoSetting { path: PathBuf, line: usize },
    #[error("{}:{line}: {}", path.display(), no_setting(name, meant.as_deref()))]
    UnknownInFile { path: PathBuf, line: usize, name: String, meant: Option<String> },
    #[error("{}", no_setting(name, meant.as_deref()))]
    Unknown { name: String, meant: Option<String> },

    #[error("a property of the kafka client is refused: {0}")]
    KafkaClient(SettingsError),

    #[error("ONCELY_DATABASE_URL is no URL: write postgres://user@host:5432/database")]
    DatabaseUrl,
    #[error("ONCELY_DATABASE_URL names no host: write postgres://user@host:5432/database")]
    DatabaseHost,
    #[error(
        "ONCELY_DATABASE_URL reaches {host} with sslmode={mode}, which does not prove whom it talks \
         to: add sslmode=verify-full (and sslrootcert=FILE for an own authority); other modes are \
         for this machine only"
    )]
    DatabaseTls { host: String, mode: String },

    #[error(
        "ONCELY_KAFKA__SECURITY_PROTOCOL would send credentials in the clear: use sasl_ssl; \
         sasl_plaintext is for brokers on this machine only"
    )]
    CredentialsInTheClear,

    #[error(
        "ONCELY_HEARTBEAT is {heartbeat_ms} ms and ONCELY_LEASE {lease_ms} ms: three heartbeats \
         must fit in a lease, so that one lost packet kills no worker; raise the lease or lower \
         the heartbeat"
    )]
    HeartbeatsPerLease { heartbeat_ms: u128, lease_ms: u128 },
    #[error(
        "ONCELY_KAFKA_HEARTBEAT is {heartbeat_ms} ms and ONCELY_KAFKA_SESSION_TIMEOUT \
         {session_ms} ms: three heartbeats must fit in a session; raise the session time-out or \
         lower the heartbeat"
    )]
    HeartbeatsPerSession { heartbeat_ms: u128, session_ms: u128 },
    #[error(
        "ONCELY_DRAIN is {drain_ms} ms and the group's session time-out {session_ms} ms: a drain \
         that outlives the session would write for partitions that others own; lower ONCELY_DRAIN \
         or raise ONCELY_KAFKA_SESSION_TIMEOUT"
    )]
    DrainOutlivesSession { drain_ms: u128, session_ms: u128 },
    #[error(
        "ONCELY_DRAIN is {drain_ms} ms and ONCELY_SHUTDOWN_GRACE {grace_ms} ms: what is in flight \
         is drained inside the grace; raise the grace or lower the drain"
    )]
    DrainOutlivesGrace { drain_ms: u128, grace_ms: u128 },
}

fn no_setting(name: &str, meant: Option<&str>) -> String {
    match meant {
        Some(meant) => format!("{name} is no setting, did you mean {meant}?"),
        None => format!(
            "{name} is no setting: remove it, or name it otherwise if a connector file reads it; \
             `oncely help settings` lists them all"
        ),
    }
}

/// Everything that is wrong, at once.
#[derive(Debug)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl std::fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}
