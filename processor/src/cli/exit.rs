//! Exit codes, and the errors that end a command.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::config::{ConfigError, ConfigErrors};
use crate::demo::DemoError;
use crate::kafka::{KafkaError, SettingsError};
use crate::store::error::NextStep;
use crate::store::{DriverError, MigrateError, StoreError};
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
    /// Findings, as the compiler of connector files tells them.
    #[error("{0}")]
    Connectors(String),
    #[error("kafka cannot be asked")]
    Kafka { source: KafkaError },
    #[error("the kafka settings are refused")]
    KafkaSettings { source: SettingsError },
    #[error("the processor stopped")]
    Run { source: RunError },
    #[error("the demo could not be shown")]
    Demo { source: Box<DemoError> },
    #[error("{what}")]
    Store { what: String, source: StoreError },
    #[error("the schema cannot be brought up to date")]
    Migrate { source: MigrateError },
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
            Self::Config(_) | Self::Connectors(_) | Self::KafkaSettings { .. } => Exit::Config,
            Self::Kafka { .. } => Exit::Unavailable,
            Self::Run { source } => match source {
                RunError::Effect { .. }
                | RunError::Kafka { .. }
                | RunError::Settings(_)
                | RunError::Database(_)
                | RunError::Retention { .. } => Exit::Config,
                RunError::Store { .. } | RunError::Fatal { .. } | RunError::Lost { .. } => {
                    Exit::Failed
                }
            },
            Self::Demo { source } if source.is_missing_dependency() => Exit::Unavailable,
            Self::Demo { source } if matches!(**source, DemoError::Settings(_)) => Exit::Config,
            Self::Demo { .. } => Exit::Failed,
            Self::Store { source, .. } => match source.next_step() {
                NextStep::Wait | NextStep::Again => Exit::Unavailable,
                NextStep::Bisect | NextStep::Halt => Exit::Failed,
            },
            Self::Migrate { source } => {
                let away = matches!(source, MigrateError::Execute(DriverError::Io(_)));
                if away { Exit::Unavailable } else { Exit::Failed }
            }
            Self::Failed(_) | Self::Unreadable { .. } | Self::Start { .. } => Exit::Failed,
        }
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error.into())
    }
}

impl From<StoreError> for CliError {
    fn from(source: StoreError) -> Self {
        Self::Store { what: "the database did not answer as expected".to_owned(), source }
    }
}
