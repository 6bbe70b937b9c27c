//! What is logged, and how.

use std::io::IsTerminal;

use super::environment::Environment;
use super::error::ConfigErrors;
use super::keep;
use super::text::word_of;

/// The database's notices are news to nobody.
const FILTER: &str = "info,sqlx=warn";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// As tracing-subscriber reads it: `info`, or `oncely=debug,warn`.
    pub filter: String,
    pub format: LogFormat,
    /// Business ids as they are, instead of a hash.
    pub plain_business_ids: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

impl Log {
    /// # Errors
    /// A word that is none of those allowed.
    pub fn read(environment: &Environment) -> Result<Self, ConfigErrors> {
        let mut errors = Vec::new();
        let format = word_of(environment, "ONCELY_LOG_FORMAT", ["text", "json"]);
        let format = keep(format, &mut errors).map(|word| match word {
            Some("text") => LogFormat::Text,
            None if std::io::stderr().is_terminal() => LogFormat::Text,
            Some(_) | None => LogFormat::Json,
        });
        let shown = word_of(environment, "ONCELY_LOG_BUSINESS_ID", ["hash", "plain"]);
        let shown = keep(shown, &mut errors);
        let filter = keep(environment.get("ONCELY_LOG"), &mut errors);
        match (format, shown, filter) {
            (Some(format), Some(shown), Some(filter)) => Ok(Self {
                filter: filter.unwrap_or_else(|| FILTER.to_owned()),
                format,
                plain_business_ids: shown == Some("plain"),
            }),
            _ => Err(ConfigErrors(errors)),
        }
    }
}
