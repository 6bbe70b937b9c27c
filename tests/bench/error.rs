//! What can go wrong in the benchmark; each ends the run with a failure.

use oncely::store::StoreError;
use oncely_rig::RigError;

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    #[error("a service of the benchmark")]
    Rig(#[from] RigError),
    #[error("the database")]
    Sql(#[from] sqlx::Error),
    #[error("a query of the product")]
    Store(#[from] StoreError),
    #[error("the migrations")]
    Migrate(#[from] oncely::store::SchemaError),
    #[error("the kafka client")]
    Kafka(#[from] rdkafka::error::KafkaError),
    #[error("the fake provider does not answer")]
    Http(#[from] reqwest::Error),
    #[error("{doing}")]
    Io { doing: String, source: std::io::Error },
    #[error("a task of the benchmark was lost")]
    Lost(#[from] tokio::task::JoinError),
    /// A figure of something that is wrong would be worth nothing.
    #[error("{0}")]
    Wrong(String),
}

impl BenchError {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    pub(crate) fn wrong(what: impl std::fmt::Display) -> Self {
        Self::Wrong(what.to_string())
    }
}

pub(crate) type Result<T> = std::result::Result<T, BenchError>;
