//! Why the demo could not be shown, each with what to do next.

use oncely_rig::RigError;

use crate::config::ConfigErrors;
use crate::kafka::KafkaError;
use crate::store::{SchemaError, StoreError};

/// The demo could not run to its end. A wrong number is no error: it stands in the report.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("the demo needs PostgreSQL's programs and finds none; {remedy}")]
    NoPostgres { remedy: &'static str, source: RigError },
    #[error("a server of the demo could not be had: {what}")]
    Server { what: &'static str, source: RigError },
    #[error("the broker inside the demo could not be started")]
    Broker { source: KafkaError },
    #[error("kafka at {brokers} cannot be used; look at the address given with --kafka")]
    Kafka { brokers: String, source: KafkaError },
    #[error("a record could not be published")]
    Publish { source: KafkaError },
    #[error("the settings for kafka")]
    Settings(#[from] ConfigErrors),
    #[error("the database cannot be used")]
    Store(#[from] StoreError),
    #[error("the schema cannot be brought up to date")]
    Migrate { source: Box<SchemaError> },
    #[error(
        "the schema `oncely` in that database is of another version; run `oncely migrate up` with \
         the same --database first"
    )]
    OtherSchema,
    #[error("a file of the demo cannot be written: {path}")]
    File { path: String, source: std::io::Error },
    #[error("this program does not know where it is")]
    OwnPath { source: std::io::Error },
    #[error("{worker} ended, though it was to run; the end of what it said:\n{said}")]
    WorkerEnded { worker: String, said: String },
    #[error("{what} within {seconds} seconds; look at the workers' logs with --keep")]
    Stuck { what: &'static str, seconds: u64 },
    #[error("interrupted")]
    Interrupted,
}
