//! The provider's side of the promise, tried on a person's own connector file.
//!
//! Reads: a connector and sample events. Gives: for every crash point and every effect, what became of the
//! effect when a process died there, in the effect's own call, settlement or claim, counted in the log of a provider that this program plays. Starts a
//! private PostgreSQL, brokers inside this process, and workers that are this same program; all of them
//! end with it. Never calls anybody but its own provider, and needs no secret. Prints nothing.
//!
//! - [`stand_in`]: the connector's rules, with this program's provider in place of the real ones
//! - [`stage`]: servers and processes of one crash point
//! - [`window`]: how one crash point is played, for every effect
//! - [`aim`]: which effects come to a point, and how a crash is made to hit them
//! - [`verdict`]: what is safe, held, or a risk

mod aim;
mod stage;
pub mod stand_in;
mod verdict;
mod window;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use oncely_core::connector::Connector;
use oncely_core::key::Key;
use oncely_rig::RigError;
use oncely_rig::postgres::{Cluster, PostgresOptions};
use tokio::task::JoinSet;

use crate::crash::{self, Point};
use crate::kafka::KafkaError;
use crate::store::{SchemaError, StoreError};
pub use stand_in::{Class, StandIn};
pub use verdict::{Fate, Verdict, Window};

/// Crash points that are played at once; most of each is waiting for a lease.
const AT_ONCE: usize = 6;

/// What is proven, and by what.
#[derive(Clone, Debug)]
pub struct Options {
    /// The connector file, as workers are given it.
    pub file: PathBuf,
    /// Values of sample records, in their order.
    pub samples: Vec<Vec<u8>>,
    /// What the samples owe.
    pub owed: Vec<Owed>,
    /// Which points; all when empty.
    pub points: Vec<Point>,
    /// The program that workers are: this one.
    pub program: PathBuf,
}

/// An effect or a ledger line that the samples owe.
#[derive(Clone, Copy, Debug)]
pub struct Owed {
    pub key: Key,
    /// Index of its rule in the connector.
    pub rule: usize,
    /// Index of the first sample that owes it.
    pub sample: usize,
}

/// Why nothing could be proven.
#[derive(Debug, thiserror::Error)]
pub enum ProveError {
    #[error("PostgreSQL's programs are needed and were not found; {remedy}")]
    NoPostgres { remedy: &'static str, source: RigError },
    #[error("{what} could not be had")]
    Server { what: &'static str, source: RigError },
    #[error("the broker inside could not be used")]
    Broker(#[from] KafkaError),
    #[error("the private database cannot be used")]
    Store(#[from] StoreError),
    #[error("the schema cannot be made")]
    Migrate(#[from] Box<SchemaError>),
    #[error("a file cannot be written")]
    File(#[from] std::io::Error),
    #[error("a worker ended, though it was to run; the end of what it said:\n{said}")]
    WorkerEnded { said: String },
    #[error("a crash point's play was lost; the log line before names the place")]
    Lost,
}

/// Plays every point, on a `LocalSet`: the brokers inside stay on one thread. The windows come in the order
/// of a record's way. `played` hears of each as it ends.
///
/// # Errors
/// [`ProveError`] when it could not be tried; a risk that was found is no error.
pub async fn run(
    connector: &Arc<Connector>,
    options: &Options,
    played: &dyn Fn(usize, usize),
) -> Result<Vec<Window>, ProveError> {
    let cluster = Cluster::start(&PostgresOptions::quick()).await.map_err(|source| {
        if !matches!(source, RigError::NotFound { .. }) {
            return ProveError::Server { what: "PostgreSQL", source };
        }
        let remedy = "`make demo` fetches them, or install Debian's package postgresql";
        ProveError::NoPostgres { remedy, source }
    })?;
    let cluster = Arc::new(cluster);
    let wanted = |point: &Point| options.points.is_empty() || options.points.contains(point);
    let left: VecDeque<Point> = crash::points().filter(wanted).collect();
    let all = left.len();
    let left = Arc::new(Mutex::new(left));
    let mut playing = JoinSet::new();
    let mut windows = Vec::new();
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    loop {
        while playing.len() < AT_ONCE
            && let Some(point) = next()
        {
            let (cluster, connector) = (Arc::clone(&cluster), Arc::clone(connector));
            let options = options.clone();
            playing.spawn_local(async move {
                window::play(&cluster, &connector, &options, point).await
            });
        }
        let Some(ended) = playing.join_next().await else { break };
        windows.push(ended.map_err(|_| ProveError::Lost)??);
        played(windows.len(), all);
    }
    windows.sort_by_key(|window| window.point);
    Ok(windows)
}
