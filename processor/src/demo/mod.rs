//! The demo: events, repeats, faults and kills, and a table of what took place.
//!
//! Reads: a seed, and servers if a person gave some. Gives: what happens while it happens ([`Show`])
//! and a [`Report`] that is computed from the provider's own log and the demo's own list. Starts a
//! broker, a database and a provider of its own where none was given, and worker processes that are
//! this same program; all of them end with the demo. Prints nothing.
//!
//! - [`plan`]: what is published, and what is owed for it
//! - [`world`], [`workers`]: servers and processes
//! - [`director`]: publishes, breaks and kills
//! - [`verdict`]: what took place, and whether it is what was owed

mod director;
mod error;
mod plan;
mod show;
mod verdict;
mod workers;
mod world;

use std::path::{Path, PathBuf};

use self::director::Director;
pub use self::error::DemoError;
pub use self::show::{Happening, Moment, Show, Tally};
pub use self::verdict::Report;
use self::workers::Workers;
use self::world::World;
use crate::config::Environment;

/// What a demo is made from.
#[derive(Clone, Debug)]
pub struct Options {
    /// Equal seeds publish the same events. On a private database, where the keys are the same in
    /// every run, the provider fails the same attempts as well; which of them are under way at a kill
    /// is up to the machine.
    pub seed: u64,
    /// `host:port` of a real Kafka; without it, a broker inside this process.
    pub kafka: Option<String>,
    /// URL of a real database; without it, a private one.
    pub database: Option<String>,
    /// Settings of the Kafka client that a given Kafka needs.
    pub environment: Environment,
    /// The program that workers are: this one.
    pub program: PathBuf,
}

/// A demo that has run. Its servers and workers stay up until it is dropped or left.
#[derive(Debug)]
pub struct Finished {
    pub report: Report,
    workers: Workers,
    world: World,
    settings: Vec<(String, String)>,
}

/// What a demo leaves in a database that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftBehind {
    /// `host:port/database`.
    pub database: String,
    /// Whose rows stay.
    pub connector: String,
    /// The schema `oncely` was not there before.
    pub schema_made: bool,
}

/// Runs the demo to its verdict.
///
/// # Errors
/// [`DemoError`] when it could not be run; a wrong number is no error.
pub async fn run(options: &Options, show: &dyn Show) -> Result<Finished, DemoError> {
    let began = crate::clock::now();
    let mut world = World::start(options).await?;
    let mut workers = Workers::new(options, &world);
    let settings = workers::settings(options, &world);
    let mut director = Director::new(options.seed, &mut world, &mut workers, show)?;
    let report = director.run(began).await?;
    Ok(Finished { report, workers, world, settings })
}

impl Finished {
    /// Settings with which the commands find what the demo left up.
    pub fn settings(&self) -> impl Iterator<Item = (&str, &str)> {
        self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Workers that run, with the addresses at which they serve metrics and health.
    pub fn served(&self) -> impl Iterator<Item = (&str, &str)> {
        self.workers.running().iter().map(|worker| (worker.name.as_str(), worker.http.as_str()))
    }

    /// Connector file, logs, and the provider's log.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.world.scratch.path()
    }

    /// The connector's name, as the commands know it.
    #[must_use]
    pub fn connector(&self) -> &str {
        &self.world.connector
    }

    /// What stays in a database that was given; `None` for a private one, which goes whole.
    #[must_use]
    pub fn left_behind(&self) -> Option<LeftBehind> {
        self.world.left_behind()
    }

    /// Ends the workers in good order and takes away what the demo made.
    ///
    /// # Errors
    /// A worker that did not end well; a topic or group that could not be removed.
    pub async fn leave(mut self) -> Result<(), DemoError> {
        self.workers.stop().await?;
        self.world.leave_kafka().await
    }
}
