//! One story: a topic, a database, a provider, worker processes, and a network that can fail.
//!
//! Everything that a worker talks to lies behind a proxy of the story's own; the checker goes past it.
//! Waits are for states, bounded, and say what was there instead. A story that fails shows the
//! workers' logs and the tables.

mod command;
mod crash;
mod dump;
mod failover;
mod look;
mod plan;
mod process;
mod produce;
mod published;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncely_rig::kafka::Kafka;
use oncely_rig::places::Scratch;
use oncely_rig::pooler::Pooler;
use oncely_rig::postgres::{Cluster, Wire};
use oncely_rig::provider::Provider;
use oncely_rig::proxy::Proxy;

pub use command::Said;
pub use failover::Standby;
pub use plan::Plan;
pub use process::Worker;
pub use published::Message;

use crate::checker::{self, Sampler};
use crate::ledger::Ledger;
use crate::wiring::Wiring;

/// Longest wait for a state of a story; machines under load are slow, and a wait ends early.
pub const BOUND: Duration = Duration::from_secs(90);

const GIVEN_BACK: &str = "servers that were not given back";

/// A running story.
pub struct World {
    pub name: String,
    pub wiring: Wiring,
    pub provider: Provider,
    /// Between workers and the provider.
    pub provider_proxy: Proxy,
    /// Between workers and the provider's mail server.
    pub smtp_proxy: Proxy,
    /// Between workers and PostgreSQL.
    pub database_proxy: Proxy,
    /// Between the proxy and PostgreSQL, where [`Plan::pooled`] asked for one.
    pub pooler: Option<Pooler>,
    pub workers: Vec<Worker>,
    plan: Plan,
    kafka: Option<KafkaOf>,
    cluster: Option<ClusterOf>,
    producer: produce::Producer,
    ledger: Arc<Mutex<Ledger>>,
    sampler: Option<Sampler>,
    /// Connections to the story's database that nobody uses at this moment.
    wires: Mutex<Vec<Wire>>,
    /// Crash permits that were made so far, and the one that is meant.
    permits: u32,
    permit: u32,
    // After all that writes there.
    scratch: Scratch,
}

/// The shared broker, or one of the story's own.
enum KafkaOf {
    Shared(&'static Kafka),
    Own(Box<Kafka>),
}

enum ClusterOf {
    Shared(&'static Cluster),
    Own(Box<Cluster>),
}

impl World {
    /// A story with this connector file; see [`Plan`] for what else can be chosen.
    pub fn plan(wiring: Wiring) -> Plan {
        Plan::new(wiring)
    }

    pub fn kafka(&self) -> &Kafka {
        match self.kafka.as_ref().expect(GIVEN_BACK) {
            KafkaOf::Shared(kafka) => kafka,
            KafkaOf::Own(kafka) => kafka,
        }
    }

    pub fn postgres(&self) -> &Cluster {
        match self.cluster.as_ref().expect(GIVEN_BACK) {
            ClusterOf::Shared(cluster) => cluster,
            ClusterOf::Own(cluster) => cluster,
        }
    }

    /// The cluster that [`Plan::own_postgres`] asked for, to be broken.
    pub fn own_postgres(&mut self) -> &mut Cluster {
        match self.cluster.as_mut().expect(GIVEN_BACK) {
            ClusterOf::Own(cluster) => cluster,
            ClusterOf::Shared(_) => panic!("the shared PostgreSQL is not to be broken"),
        }
    }

    pub fn own_kafka(&mut self) -> &mut Kafka {
        match self.kafka.as_mut().expect(GIVEN_BACK) {
            KafkaOf::Own(kafka) => kafka,
            KafkaOf::Shared(_) => panic!("the shared Kafka is not to be broken"),
        }
    }

    /// Ends a story that [`Plan::start_on`] began: removes what it left on the servers, and gives them back.
    pub async fn give_back(mut self) -> (Box<Kafka>, Box<Cluster>) {
        assert!(self.workers.iter_mut().all(|worker| !worker.runs()), "nobody works any more");
        self.wires.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.kafka().delete_topic(self.topic()).await.unwrap();
        let drop_all = format!("DROP DATABASE \"{}\" WITH (FORCE)", self.name);
        self.postgres().connect("postgres").await.unwrap().run(&drop_all).await.unwrap();
        match (self.kafka.take(), self.cluster.take()) {
            (Some(KafkaOf::Own(kafka)), Some(ClusterOf::Own(cluster))) => (kafka, cluster),
            _ => panic!("the shared servers stay"),
        }
    }

    pub fn topic(&self) -> &str {
        &self.wiring.topic
    }

    pub fn group(&self) -> &str {
        &self.wiring.group
    }

    /// Where the story's files are.
    pub fn dir(&self) -> PathBuf {
        self.scratch.path().to_path_buf()
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of an invoice: of fixed length, so that none is part of another.
    pub fn invoice(number: usize) -> String {
        format!("inv{number:05}")
    }

    /// Ends the watch over committed offsets, for stories that do to a topic what ends its history.
    pub async fn stop_sampling(&mut self) {
        if let Some(sampler) = self.sampler.take() {
            sampler.finish().await;
        }
    }

    /// Strikes the records of a topic that is gone from the books.
    pub async fn forget_topic(&self) {
        let now = self.sql("SELECT now()").await;
        let mut ledger = self.ledger();
        ledger.since.clone_from(now[0][0].as_ref().unwrap());
        ledger.sent.clear();
    }

    /// Whether committed offsets are watched.
    pub(crate) const fn is_watched(&self) -> bool {
        self.sampler.is_some()
    }

    pub(crate) fn looks(&self) -> u64 {
        self.sampler.as_ref().map_or(0, Sampler::looks)
    }

    pub(crate) fn take_sampler(&mut self) -> Option<Sampler> {
        self.sampler.take()
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("World").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() && self.cluster.is_some() {
            eprintln!("{}", self.dump());
        }
        checker::forget(&self.wiring.group);
    }
}
