//! The settings of a process, checked.
//!
//! Reads: flags, `ONCELY_…` variables, a settings file; see [`SETTINGS`]. Gives: [`Settings`] and
//! its parts, in which nothing is left to refuse, and the [`Secrets`] of connector files.
//! Never: shows a secret. Nobody else reads the environment.

mod database;
mod environment;
mod error;
mod kafka;
mod log;
mod secrets;
mod text;
mod unknown;
mod worker;

use std::net::SocketAddr;
use std::path::PathBuf;

pub use database::Database;
pub use environment::Environment;
pub use error::{ConfigError, ConfigErrors};
pub use kafka::Kafka;
pub use log::{Log, LogFormat};
pub use secrets::Secrets;
pub use worker::Worker;

/// Every setting: name, default, meaning. `--help` shows it.
pub const SETTINGS: &[(&str, &str, &str)] = &[
    ("ONCELY_DATABASE_URL", "", "postgres://user@host:5432/database?sslmode=verify-full"),
    (
        "ONCELY_DATABASE_FAILOVER",
        "may-lose",
        "or lossless: a failover keeps all that was committed",
    ),
    ("ONCELY_KAFKA_BROKERS", "", "host:port, more of them after commas"),
    ("ONCELY_KAFKA__<PROPERTY>", "", "a librdkafka property; dots are underscores"),
    ("ONCELY_KAFKA_SESSION_TIMEOUT", "45s", "a silent member leaves a classic group"),
    ("ONCELY_KAFKA_HEARTBEAT", "3s", "between signs of life in a classic group"),
    ("ONCELY_KAFKA_ASSIGNOR", "cooperative-sticky", "or range"),
    ("ONCELY_KAFKA_INSTANCE_ID", "", "static membership, one name a process"),
    ("ONCELY_CONNECTORS", "connectors", "connector files or directories, colons between them"),
    ("ONCELY_SECRETS_DIR", "", "directory whose files are the values of ${secret:name}"),
    ("ONCELY_LEASE", "5s", "a worker that is silent for so long is declared dead"),
    ("ONCELY_HEARTBEAT", "1s", "three must fit in a lease"),
    ("ONCELY_DRAIN", "20s", "time to settle what is in flight when a partition goes"),
    ("ONCELY_SHUTDOWN_GRACE", "25s", "time to settle what is in flight after SIGTERM"),
    ("ONCELY_WRITERS", "4", "batch transactions side by side, 1 to 16"),
    ("ONCELY_EGRESS_ALLOW", "", "hosts that events may name although they are not public"),
    ("ONCELY_HTTP_LISTEN", "0.0.0.0:9090", "metrics and health"),
    ("ONCELY_LOG", "info,sqlx=warn", "level, or target=level after commas"),
    ("ONCELY_LOG_FORMAT", "text on a terminal, else json", "text or json"),
    ("ONCELY_LOG_BUSINESS_ID", "hash", "hash or plain"),
    ("ONCELY_ACTOR", "the user's name", "who stands in audit rows; --by wins"),
    (
        "ONCELY_CACHE",
        "~/.cache or /var/cache (root)",
        "where servers are kept that demo and tests fetch",
    ),
];

/// All that `oncely run` needs besides its connectors.
#[derive(Clone, Debug)]
pub struct Settings {
    pub database: Database,
    pub kafka: Kafka,
    pub worker: Worker,
    /// Where metrics and health are served.
    pub http_listen: SocketAddr,
    pub log: Log,
}

impl Settings {
    /// # Errors
    /// Everything that is wrong, at once.
    pub fn read(environment: &Environment) -> Result<Self, ConfigErrors> {
        let mut errors = Vec::new();
        let database = keep(Database::read(environment), &mut errors);
        let kafka = keep(Kafka::read(environment), &mut errors);
        // Known although something else is wrong there.
        let session = kafka::session_timeout(environment).ok();
        let worker = keep(Worker::read(environment, session), &mut errors);
        let http_listen = keep(http_listen(environment), &mut errors);
        let log = keep(Log::read(environment), &mut errors);
        match (database, kafka, worker, http_listen, log) {
            (Some(database), Some(kafka), Some(worker), Some(http_listen), Some(log)) => {
                Ok(Self { database, kafka, worker, http_listen, log })
            }
            _ => Err(ConfigErrors(errors)),
        }
    }
}

/// Where connector files are looked for when no path is given.
pub fn connector_paths(environment: &Environment) -> Vec<PathBuf> {
    let paths = environment.raw("ONCELY_CONNECTORS").unwrap_or("connectors");
    paths.split(':').filter(|path| !path.is_empty()).map(PathBuf::from).collect()
}

/// The name of this machine or pod, for people who read the worker table.
pub fn host_name() -> String {
    let name = Environment::of_process().raw("HOSTNAME").map(str::to_owned);
    name.or_else(|| std::fs::read_to_string("/etc/hostname").ok())
        .map_or_else(|| "unknown".to_owned(), |name| name.trim().chars().take(200).collect())
}

/// Hosts that calls may go to although an event names them and they are not public: `host` or
/// `host:port`, after commas.
pub fn egress_allowed(environment: &Environment) -> Vec<String> {
    let hosts = environment.raw("ONCELY_EGRESS_ALLOW").unwrap_or("").split(',').map(str::trim);
    hosts.filter(|host| !host.is_empty()).map(str::to_owned).collect()
}

/// Who types: stands in the audit row of what is overridden. Whoever became root by `sudo` is named,
/// not root; where no variable says who it is, the system does.
pub fn actor(environment: &Environment) -> String {
    let names = ["ONCELY_ACTOR", "SUDO_USER", "USER", "LOGNAME"];
    let named = names.iter().find_map(|name| environment.raw(name)).map(str::to_owned);
    named.or_else(user_of_process).unwrap_or_else(|| "unknown".to_owned())
}

/// The name of the user that this process runs as, or its number.
fn user_of_process() -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let uid = std::fs::metadata("/proc/self").ok()?.uid();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid.to_string()).then(|| name.to_owned())
    });
    Some(name.unwrap_or_else(|| format!("uid {uid}")))
}

/// The settings file of a named context.
pub fn context_file(environment: &Environment, context: &str) -> PathBuf {
    let home = || environment.raw("HOME").map_or_else(PathBuf::new, |home| home.into());
    let base = environment.raw("XDG_CONFIG_HOME");
    let base = base.map_or_else(|| home().join(".config"), PathBuf::from);
    base.join("oncely").join(format!("{context}.env"))
}

fn http_listen(environment: &Environment) -> Result<SocketAddr, ConfigError> {
    const NAME: &str = "ONCELY_HTTP_LISTEN";
    let value = environment.get(NAME)?.unwrap_or_else(|| "0.0.0.0:9090".to_owned());
    let expected = "address and port, as in 0.0.0.0:9090 or [::]:9090";
    value.parse().map_err(|_| ConfigError::Malformed { name: NAME, value, expected })
}

/// Refuses names that begin with `ONCELY_` and are no setting.
///
/// # Errors
/// Each of them, with the setting that was probably meant.
pub fn check_names(environment: &Environment) -> Result<(), ConfigErrors> {
    let unknown = unknown::unknown(environment);
    if unknown.is_empty() { Ok(()) } else { Err(ConfigErrors(unknown)) }
}

/// What was read, or one error more to tell.
fn keep<T>(read: Result<T, impl Into<ConfigErrors>>, errors: &mut Vec<ConfigError>) -> Option<T> {
    read.map_err(|error| errors.extend(error.into().0)).ok()
}

fn is_known(name: &str) -> bool {
    let plain = name.strip_suffix("_FILE").unwrap_or(name);
    kafka::property(name).is_some()
        || SETTINGS.iter().any(|(known, ..)| *known == plain || *known == name)
}

#[cfg(test)]
mod tests;
