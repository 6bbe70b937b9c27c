//! What can go wrong in the rig, each with what to do next.
//!
//! Reads nothing. Never repeats a cause in its own text: the cause is in `source`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A server of the rig could not be had, or did not reach the state waited for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RigError {
    /// The files of a server are in none of the places looked at.
    #[error("{what} not found in {}; {next}", listed(.looked_in))]
    NotFound {
        /// What was looked for.
        what: &'static str,
        /// Every place, in the order in which they were looked at.
        looked_in: Vec<PathBuf>,
        /// The command that brings it.
        next: &'static str,
    },
    /// A file, directory, socket or process call failed.
    #[error("could not {doing}")]
    Io {
        /// What was being done, with the path or address.
        doing: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A program of the rig ended though it should run, or ended with a failure.
    #[error("{program} ended ({status}); the end of what it said:\n{said}")]
    Ended {
        /// The program.
        program: String,
        /// Its exit status.
        status: String,
        /// The last lines of its output.
        said: String,
    },
    /// A state was not reached in time.
    #[error("waited {} ms for {what}; last seen: {seen}", .bound.as_millis())]
    TimedOut {
        /// The state waited for.
        what: String,
        /// How long.
        bound: Duration,
        /// What was there instead.
        seen: String,
    },
    /// No port could be bound in many tries.
    #[error("no free port found between {from} and {to}; is a firewall or a sandbox in the way?")]
    NoFreePort {
        /// First port tried from.
        from: u16,
        /// Last port tried from.
        to: u16,
    },
    /// PostgreSQL refused a statement of the rig itself.
    #[error("PostgreSQL refused `{statement}`: {code} {message}")]
    Sql {
        /// The statement, or `connect`.
        statement: String,
        /// The SQLSTATE.
        code: String,
        /// PostgreSQL's words.
        message: String,
    },
    /// Kafka refused an admin request of the rig.
    #[error("Kafka did not {doing}")]
    Kafka {
        /// What was asked for.
        doing: String,
        /// Kafka's answer.
        source: rdkafka::error::KafkaError,
    },
    /// A line of the provider's log cannot be read.
    #[error("line {line} of {} is no log entry; was the file written by another version?", .path.display())]
    LogLine {
        /// The log.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// What the parser said.
        source: serde_json::Error,
    },
    /// Something answered what it never should.
    #[error("unexpected: {0}")]
    Unexpected(String),
}

impl RigError {
    /// Wraps an I/O error with what was being done.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    /// Wraps an I/O error with a verb and the path it was for.
    pub(crate) fn at<'a>(verb: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self::Io { doing: format!("{verb} {}", path.display()), source }
    }
}

fn listed(paths: &[PathBuf]) -> String {
    let shown: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    if shown.is_empty() { "any place".to_owned() } else { shown.join(", ") }
}
