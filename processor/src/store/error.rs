//! What went wrong in the database, and what to do next. Classified by SQLSTATE, never by text.

use oncely_core::key::Key;

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database is away, starting, read-only, full or overloaded: wait and try again.
    #[error("the database is not available ({code})")]
    Unavailable { code: String, source: Said },
    /// A deadlock or serialization failure: run the same transaction again at once.
    #[error("{} ({code})", contention(code))]
    Contended { code: String, source: Said },
    /// A value that the database refuses: bisect the batch until the record is found.
    #[error("the database refuses a value ({code})")]
    BadValue { code: String, source: Said },
    /// The database, the role, the schema or a right is not there: a person must act.
    #[error("{} ({code})", refusal(code))]
    Refused { code: String, source: Said },
    /// A stored value that this program cannot read.
    #[error("the row {key} cannot be read: {what}")]
    Corrupt { key: Key, what: &'static str },
}

/// A connector that was lost in a failover and made anew. No SQLSTATE is spelled so.
const RENUMBERED: &str = "renumbered";

/// TLS that cannot be begun: the server has none, or a file of the URL is no certificate. A handshake that breaks off is
/// a connection's error. No SQLSTATE is spelled so.
const TLS: &str = "tls";

/// In place of an SQLSTATE: nobody answered.
const SILENT: &str = "silent";

/// SQLSTATE lock_not_available: a lock was not to be had in time.
const LOCKED: &str = "55P03";

/// Against what a transaction lost, and what to do.
fn contention(code: &str) -> &'static str {
    match code {
        LOCKED => {
            "a lock was not to be had in time: pg_locks and pg_stat_activity say who holds it, and `oncely run` logs \
             who keeps everybody from a table"
        }
        _ => "the transaction lost against another one",
    }
}

/// What is not as it has to be, and what to do.
fn refusal(code: &str) -> &'static str {
    match code {
        "3D000" => "there is no such database: create it, or correct the URL",
        "28000" | "28P01" => {
            "the server does not let this role in: check user and password in the URL"
        }
        "42501" => "the role lacks a right: grant it, or use a role that has it",
        TLS => {
            "no TLS with this server as the URL asks for it: switch `ssl` on at the server, or correct sslmode and \
             certificates in the URL"
        }
        "3F000" | "42P01" | "42703" | "42883" | "client" => {
            "the schema is missing or of another version: run `oncely migrate up`"
        }
        RENUMBERED => {
            "a failover has lost the connector's row, and it has another number now: start this process again"
        }
        _ => "the database refuses the query",
    }
}

/// What the driver or the server said, in their own words and once: the driver's errors repeat
/// their causes, and name lines of the server's source.
#[derive(Debug)]
pub struct Said(pub sqlx::Error);

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0.as_database_error(), &self.0) {
            (Some(error), _) => write!(f, "{}", error.message()),
            (None, sqlx::Error::Io(error)) => write!(f, "{error}"),
            (None, error) => write!(f, "{error}"),
        }
    }
}

// Without a source: its text has the causes already.
impl std::error::Error for Said {}

/// What the caller does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Reconnect with back-off; nothing is lost, nothing is dead-lettered.
    Wait,
    /// The same transaction once more.
    Again,
    /// Half of the batch at a time.
    Bisect,
    /// Stop visibly.
    Halt,
}

impl StoreError {
    /// The number by which this process knows its connector is no longer that of its row.
    pub fn renumbered() -> Self {
        let source = Said(sqlx::Error::RowNotFound);
        Self::Refused { code: RENUMBERED.to_owned(), source }
    }

    /// No answer came for longer than the server itself lets anything take.
    pub(super) fn silent() -> Self {
        let source = sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
        Self::Unavailable { code: SILENT.to_owned(), source: Said(source) }
    }

    /// Whether nothing was heard, as of [`StoreError::silent`].
    pub(super) fn is_silent(&self) -> bool {
        matches!(self, Self::Unavailable { code, .. } if code == SILENT)
    }

    /// A lock that another transaction did not let go of in time: only what it holds was not to be had.
    pub fn is_locked(&self) -> bool {
        matches!(self, Self::Contended { code, .. } if code == LOCKED)
    }

    pub const fn next_step(&self) -> NextStep {
        match self {
            Self::Unavailable { .. } => NextStep::Wait,
            Self::Contended { .. } => NextStep::Again,
            Self::BadValue { .. } => NextStep::Bisect,
            Self::Refused { .. } | Self::Corrupt { .. } => NextStep::Halt,
        }
    }

    /// The class of an SQLSTATE (PostgreSQL manual, appendix A).
    fn class(code: &str) -> NextStep {
        match code {
            // Deadlock, serialization, lock and statement time-outs of a busy database.
            "55P03" | "57014" => NextStep::Again,
            _ if code.starts_with("40") => NextStep::Again,
            // Numeric overflow, bad encoding, NUL, check violation, row too large.
            _ if code.starts_with("22") || code == "23514" || code.starts_with("54") => {
                NextStep::Bisect
            }
            // 25: the transaction is not what it should be, on a demoted primary (25006), or since the
            // server has ended one that a starved process left idle (25P03). 26: a statement is gone
            // that was prepared. In both the connection is to be closed, not kept. 55: the database lets
            // nobody in for now (ALLOW_CONNECTIONS).
            _ if ["08", "25", "26", "53", "55", "57", "58", "XX"]
                .iter()
                .any(|class| code.starts_with(class)) =>
            {
                NextStep::Wait
            }
            _ => NextStep::Halt,
        }
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(source: sqlx::Error) -> Self {
        let database = source.as_database_error().and_then(|error| error.code());
        let Some(code) = database.map(std::borrow::Cow::into_owned) else {
            // Everything without an SQLSTATE is a broken, refused or timed-out connection, save for
            // rows that do not look as expected and TLS that the server does not have.
            let misfit = matches!(
                source,
                sqlx::Error::ColumnDecode { .. }
                    | sqlx::Error::ColumnNotFound(_)
                    | sqlx::Error::TypeNotFound { .. }
                    | sqlx::Error::Decode(_)
                    | sqlx::Error::Encode(_)
            );
            let is_tls = matches!(source, sqlx::Error::Tls(_));
            let source = Said(source);
            return match (misfit, is_tls) {
                (true, _) => Self::Refused { code: "client".to_owned(), source },
                (false, true) => Self::Refused { code: TLS.to_owned(), source },
                (false, false) => Self::Unavailable { code: "connection".to_owned(), source },
            };
        };
        let source = Said(source);
        match Self::class(&code) {
            NextStep::Wait => Self::Unavailable { code, source },
            NextStep::Again => Self::Contended { code, source },
            NextStep::Bisect => Self::BadValue { code, source },
            NextStep::Halt => Self::Refused { code, source },
        }
    }
}

pub type Result<T> = std::result::Result<T, StoreError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b31_e2_a_demoted_primary_is_a_dead_connection() {
        assert_eq!(StoreError::class("25006"), NextStep::Wait);
    }

    #[test]
    fn a_database_that_lets_nobody_in_is_waited_for() {
        assert_eq!(StoreError::class("55000"), NextStep::Wait);
        assert_eq!(StoreError::class("57P03"), NextStep::Wait);
        assert_eq!(StoreError::class("55P03"), NextStep::Again, "a lock that was not to be had");
    }

    #[test]
    fn a_refusal_names_what_a_person_has_to_do() {
        let refused = |code: &str| StoreError::Refused {
            code: code.to_owned(),
            source: Said(sqlx::Error::Io(std::io::ErrorKind::ConnectionRefused.into())),
        };
        for (code, remedy) in [
            ("3D000", "create it"),
            ("28P01", "user and password"),
            ("42501", "grant it"),
            ("42P01", "oncely migrate up"),
        ] {
            let text = refused(code).to_string();
            assert!(text.contains(remedy), "{text}");
            assert!(code == "42P01" || !text.contains("migrate"), "{text}");
        }
        let cause = std::error::Error::source(&refused("3D000")).unwrap().to_string();
        assert_eq!(cause, "connection refused");
    }

    #[test]
    fn e1_e5_e6_outages_wait_races_run_again_bad_values_are_bisected() {
        for code in
            ["57P01", "57P03", "53100", "53200", "53300", "08006", "25P03", "25P04", "26000"]
        {
            assert_eq!(StoreError::class(code), NextStep::Wait, "{code}");
        }
        for code in ["40P01", "40001"] {
            assert_eq!(StoreError::class(code), NextStep::Again, "{code}");
        }
        for code in ["22021", "22P05", "22003", "23514", "54000"] {
            assert_eq!(StoreError::class(code), NextStep::Bisect, "{code}");
        }
        for code in ["42P01", "42501", "3F000"] {
            assert_eq!(StoreError::class(code), NextStep::Halt, "{code}");
        }
    }
}
