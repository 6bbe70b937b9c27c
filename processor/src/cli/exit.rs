//! Exit codes, and the errors that end a command.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use super::prove::needs_programs;
use crate::config::ConfigErrors;
use crate::demo::DemoError;
use crate::kafka::KafkaError;
use crate::prove::ProveError;
use crate::store::error::NextStep;
use crate::store::{SchemaError, StoreError};
use crate::worker::RunError;

/// How a command ended. Documented in `oncely --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Ok,
    /// A check failed, or what was asked for is not there.
    Failed,
    Usage,
    /// The database or the brokers are away.
    Unavailable,
    /// Settings or a connector file are wrong.
    Config,
}

impl Exit {
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unavailable => 69,
            Self::Config => 78,
        }
    }

    /// For machines, beside the code.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::Unavailable => "unavailable",
            Self::Config => "config",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why a command could not answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum CliError {
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// Findings, as the compiler of connector files tells them, for people and for machines.
    #[error("{rendered}")]
    Connectors { rendered: String, findings: serde_json::Value },
    #[error("{what}")]
    Kafka { what: String, source: KafkaError },
    #[error("the processor stopped")]
    Run { source: RunError },
    #[error("nothing could be proven")]
    Prove { source: Box<ProveError> },
    #[error("the demo could not be shown")]
    Demo { source: Box<DemoError> },
    #[error("{what}")]
    Store { what: String, source: StoreError },
    #[error("the schema is not up to date")]
    Migrate { source: SchemaError },
    #[error(
        "nothing can be served at {address}: stop what listens there, or choose another address \
         with --http-listen or ONCELY_HTTP_LISTEN"
    )]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("{0}")]
    Failed(String),
    #[error("the file {} cannot be read", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("the process cannot start")]
    Start { source: std::io::Error },
}

impl CliError {
    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::Config(_) | Self::Connectors { .. } | Self::Listen { .. } => Exit::Config,
            Self::Kafka { source, .. } => of_kafka(source),
            Self::Run { source } => match source {
                RunError::Effect { .. }
                | RunError::Kafka { .. }
                | RunError::Database(_)
                | RunError::Retention { .. } => Exit::Config,
                RunError::Store { source, .. } => of_store(source),
                RunError::Fatal { .. } | RunError::Lost { .. } => Exit::Failed,
            },
            Self::Demo { source } => of_demo(source),
            Self::Prove { source } if needs_programs(source) => Exit::Unavailable,
            Self::Prove { .. } => Exit::Failed,
            Self::Store { source, .. } => of_store(source),
            Self::Migrate { source } => of_schema(source),
            Self::Failed(_) | Self::Unreadable { .. } | Self::Start { .. } => Exit::Failed,
        }
    }
}

/// Away: it may pass by itself. Refused: a person has to put a setting, the role or the schema right.
pub(super) fn of_store(error: &StoreError) -> Exit {
    match (error, error.next_step()) {
        (_, NextStep::Wait | NextStep::Again) => Exit::Unavailable,
        (StoreError::Refused { .. }, _) => Exit::Config,
        (_, NextStep::Bisect | NextStep::Halt) => Exit::Failed,
    }
}

fn of_schema(error: &SchemaError) -> Exit {
    error.store().map_or(Exit::Config, of_store)
}

fn of_kafka(error: &KafkaError) -> Exit {
    match error {
        KafkaError::Settings(_) | KafkaError::Client(_) => Exit::Config,
        KafkaError::TopicMissing { .. } => Exit::Failed,
        KafkaError::Fatal { .. }
        | KafkaError::Thread { .. }
        | KafkaError::Unavailable { .. }
        | KafkaError::TimedOut { .. }
        | KafkaError::Unreachable { .. }
        | KafkaError::Unplaced
        | KafkaError::Produce(_) => Exit::Unavailable,
    }
}

fn of_demo(error: &DemoError) -> Exit {
    match error {
        DemoError::Settings(_) | DemoError::OtherSchema => Exit::Config,
        DemoError::Store(source) => of_store(source),
        DemoError::Migrate { source } => of_schema(source),
        DemoError::NoPostgres { .. } => Exit::Unavailable,
        DemoError::Kafka { source, .. } => of_kafka(source),
        DemoError::Server { .. }
        | DemoError::Broker { .. }
        | DemoError::Publish { .. }
        | DemoError::File { .. }
        | DemoError::OwnPath { .. }
        | DemoError::WorkerEnded { .. }
        | DemoError::Stuck { .. }
        | DemoError::Interrupted => Exit::Failed,
    }
}

impl From<StoreError> for CliError {
    fn from(source: StoreError) -> Self {
        Self::Store { what: "the database could not answer".to_owned(), source }
    }
}
