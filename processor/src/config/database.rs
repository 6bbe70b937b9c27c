//! How to reach PostgreSQL.
//!
//! The driver's own default falls back to plain text in silence. Here a connection that leaves the
//! machine proves whom it talks to, or is refused.

use std::fmt;

use url::Url;

use super::environment::Environment;
use super::error::{ConfigError, ConfigErrors};
use super::kafka::is_loopback;
use super::keep;
use super::text::word_of;

const NAME: &str = "ONCELY_DATABASE_URL";

/// What a failover does to commits that were acknowledged.
const MAY_LOSE: &str = "may-lose";
const LOSSLESS: &str = "lossless";

/// The port of PostgreSQL where a URL names none.
const PORT: u16 = 5432;

/// A checked address. Shows neither user nor password.
#[derive(Clone)]
pub struct Database {
    url: String,
    /// `host:port/database`.
    place: String,
    /// A failover loses no commit that was acknowledged.
    pub lossless_failover: bool,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Database {
    /// # Errors
    /// No URL, one without a host, or one that does not prove whom it talks to.
    pub fn read(environment: &Environment) -> Result<Self, ConfigErrors> {
        let remedy = "give --database URL, set the variable, or set ONCELY_DATABASE_URL_FILE";
        let missing = ConfigError::Missing { name: NAME, remedy };
        let url = environment.get(NAME).and_then(|url| check(&url.ok_or(missing)?));
        let failover = word_of(environment, "ONCELY_DATABASE_FAILOVER", [MAY_LOSE, LOSSLESS]);
        let mut errors = Vec::new();
        match (keep(url, &mut errors), keep(failover, &mut errors)) {
            (Some((url, place)), Some(failover)) => {
                let lossless_failover = failover == Some(LOSSLESS);
                Ok(Self { url, place, lossless_failover })
            }
            _ => Err(ConfigErrors(errors)),
        }
    }

    /// For the one place that connects; may hold a password. Its `sslmode` is always written out.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// `host:port/database`, for messages.
    pub fn place(&self) -> &str {
        &self.place
    }
}

/// The URL with its `sslmode` written out, and where it leads.
fn check(text: &str) -> Result<(String, String), ConfigError> {
    let mut url = Url::parse(text).map_err(|_| ConfigError::DatabaseUrl)?;
    if !matches!(url.scheme(), "postgres" | "postgresql") {
        return Err(ConfigError::DatabaseUrl);
    }
    let (mut host, mut mode) = (url.host_str().unwrap_or("").replace("%2F", "/"), None);
    for (name, value) in url.query_pairs() {
        match &*name {
            "host" | "hostaddr" => host = value.into_owned(),
            "sslmode" | "ssl-mode" => mode = Some(value.into_owned()),
            _ => {}
        }
    }
    if host.is_empty() {
        return Err(ConfigError::DatabaseHost);
    }
    let local = host.starts_with('/') || is_loopback(&host);
    match (mode, local) {
        (Some(mode), _) if mode == "verify-full" => {}
        (Some(_), true) => {}
        (None, true) => {
            url.query_pairs_mut().append_pair("sslmode", "disable");
        }
        (mode, false) => {
            let mode = mode.unwrap_or_else(|| "prefer (the default)".to_owned());
            return Err(ConfigError::DatabaseTls { host, mode });
        }
    }
    let name = url.path().trim_start_matches('/');
    let place = match (host.starts_with('/'), host.contains(':') && !host.starts_with('[')) {
        (true, _) => format!("{name} at {host}"),
        (false, true) => format!("[{host}]:{}/{name}", url.port().unwrap_or(PORT)),
        (false, false) => format!("{host}:{}/{name}", url.port().unwrap_or(PORT)),
    };
    Ok((url.into(), place))
}
