//! What a story is made from.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use oncely_rig::kafka::{Kafka, KafkaOptions};
use oncely_rig::places::Scratch;
use oncely_rig::pooler::Pooler;
use oncely_rig::postgres::{Cluster, PostgresOptions};
use oncely_rig::provider::{Provider, ProviderOptions};
use oncely_rig::proxy::Proxy;

use super::produce::Producer;
use super::{ClusterOf, KafkaOf, World};
use crate::checker::Sampler;
use crate::ledger::Ledger;
use crate::servers;
use crate::wiring::{WEBHOOK_SECRETS, Wiring, examples};

/// Choices of a story; the defaults suit most.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) wiring: Wiring,
    partitions: u32,
    pub(super) lease_ms: u64,
    pub(super) heartbeat_ms: u64,
    pub(super) session_ms: u64,
    pub(super) env: Vec<(String, String)>,
    brokers: u16,
    own_postgres: bool,
    postgres_bin: Option<PathBuf>,
    small_disk: Option<u64>,
    pooled: bool,
    sampled: bool,
    apply_delay_ms: u64,
}

impl Plan {
    pub(super) fn new(wiring: Wiring) -> Self {
        Self {
            wiring,
            partitions: 2,
            lease_ms: 3_000,
            heartbeat_ms: 500,
            session_ms: 3_000,
            env: Vec::new(),
            brokers: 0,
            own_postgres: false,
            postgres_bin: None,
            small_disk: None,
            pooled: false,
            sampled: true,
            apply_delay_ms: 0,
        }
    }

    #[must_use]
    pub fn partitions(mut self, partitions: u32) -> Self {
        self.partitions = partitions;
        self
    }

    /// A lease so short that a death is found soon; heartbeats fit four times.
    #[must_use]
    pub fn lease_ms(mut self, lease_ms: u64) -> Self {
        (self.lease_ms, self.heartbeat_ms) = (lease_ms, lease_ms / 4);
        self
    }

    /// After so long the broker takes a silent member out of the group.
    #[must_use]
    pub fn session_ms(mut self, session_ms: u64) -> Self {
        self.session_ms = session_ms;
        self
    }

    /// A setting of every worker.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A Kafka of the story's own, to be broken.
    #[must_use]
    pub fn own_kafka(mut self, brokers: u16) -> Self {
        self.brokers = brokers;
        self
    }

    /// A PostgreSQL of the story's own, to be broken.
    #[must_use]
    pub fn own_postgres(mut self) -> Self {
        self.own_postgres = true;
        self
    }

    /// A PostgreSQL of the story's own, with the programs of this directory.
    #[must_use]
    pub fn postgres_from(mut self, bin_dir: PathBuf) -> Self {
        (self.own_postgres, self.postgres_bin) = (true, Some(bin_dir));
        self
    }

    /// A PostgreSQL of the story's own whose tables lie on a disk of so many bytes, to be filled up.
    #[must_use]
    pub fn small_disk(mut self, bytes: u64) -> Self {
        (self.own_postgres, self.small_disk) = (true, Some(bytes));
        self
    }

    /// Workers reach PostgreSQL by a PgBouncer in transaction mode.
    #[must_use]
    pub fn pooled(mut self) -> Self {
        self.pooled = true;
        self
    }

    /// Without the watch over committed offsets, for stories that end a topic's history.
    #[must_use]
    pub fn unsampled(mut self) -> Self {
        self.sampled = false;
        self
    }

    /// What effects of the provider that can be asked take to appear, when their answer is lost.
    #[must_use]
    pub fn apply_delay_ms(mut self, apply_delay_ms: u64) -> Self {
        self.apply_delay_ms = apply_delay_ms;
        self
    }

    /// Makes all of it; no worker runs yet.
    pub async fn start(self) -> World {
        let cluster = if self.own_postgres {
            let (small_disk, bin_dir) = (self.small_disk, self.postgres_bin.clone());
            let options = PostgresOptions { small_disk, bin_dir, ..servers::options() };
            ClusterOf::Own(Box::new(Cluster::start(&options).await.unwrap()))
        } else {
            ClusterOf::Shared(servers::postgres())
        };
        let kafka = match self.brokers {
            0 => KafkaOf::Shared(servers::kafka()),
            brokers => KafkaOf::Own(Box::new(
                Kafka::start(&KafkaOptions::returning(brokers)).await.unwrap(),
            )),
        };
        self.start_with(kafka, cluster).await
    }

    /// The same on servers that were there before, to be broken and given back by [`World::give_back`].
    pub async fn start_on(self, kafka: Box<Kafka>, cluster: Box<Cluster>) -> World {
        self.start_with(KafkaOf::Own(kafka), ClusterOf::Own(cluster)).await
    }

    async fn start_with(mut self, kafka: KafkaOf, cluster: ClusterOf) -> World {
        let name = fresh(&self.wiring.name);
        if self.wiring.topic == self.wiring.name {
            self.wiring.topic.clone_from(&name);
        }
        self.wiring.group = format!("oncely.{name}");
        let (cluster_ref, kafka_ref) = (
            match &cluster {
                ClusterOf::Shared(cluster) => cluster,
                ClusterOf::Own(cluster) => &**cluster,
            },
            match &kafka {
                KafkaOf::Shared(kafka) => kafka,
                KafkaOf::Own(kafka) => &**kafka,
            },
        );
        let migrated = matches!(cluster, ClusterOf::Shared(_)) && !self.pooled;
        if migrated {
            cluster_ref.copy_database(servers::migrated(), &name).await.unwrap();
        } else {
            cluster_ref.create_database(&name).await.unwrap();
        }
        kafka_ref.create_topic(&self.wiring.topic, self.partitions, &[]).await.unwrap();
        let scratch = Scratch::new(None, &name).unwrap();
        let mut options = ProviderOptions::new(scratch.path().join("provider.log"));
        options.keep_bodies = true;
        options.apply_delay_ms = self.apply_delay_ms;
        let provider = Provider::start(&options).await.unwrap();
        let provider_proxy = Proxy::start(provider.http_addr().to_string()).await.unwrap();
        let smtp_proxy = Proxy::start(provider.smtp_addr().to_string()).await.unwrap();
        let pooler = match self.pooled {
            true => Some(servers::pooler(cluster_ref).await),
            false => None,
        };
        let database = pooler.as_ref().map_or_else(|| cluster_ref.address(), Pooler::address);
        let database_proxy = Proxy::start(database).await.unwrap();
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let producer = Producer::new(&kafka_ref.bootstrap());
        let bootstrap = kafka_ref.bootstrap();
        let sampler = self.sampled.then(|| {
            let database = (cluster_ref.address(), name.clone());
            Sampler::start(&bootstrap, &self.wiring, database, Arc::clone(&ledger))
        });
        let world = World {
            name,
            wiring: self.wiring.clone(),
            provider,
            provider_proxy,
            smtp_proxy,
            database_proxy,
            pooler,
            workers: Vec::new(),
            plan: self,
            kafka: Some(kafka),
            cluster: Some(cluster),
            producer,
            ledger,
            sampler,
            wires: Mutex::default(),
            permits: 0,
            permit: 0,
            scratch,
        };
        world.write_wiring();
        if !migrated {
            let said = world.oncely(&["migrate", "up"]).await;
            assert!(said.ok, "{said:?}");
        }
        world
    }
}

impl World {
    /// Writes the connector file, as it is now.
    pub fn write_wiring(&self) {
        let provider = format!("http://{}", self.provider_proxy.addr());
        let dir = self.dir().join("connectors");
        std::fs::create_dir_all(&dir).unwrap();
        let yaml = self.wiring.yaml(&provider, &self.smtp_proxy.addr().to_string());
        std::fs::write(dir.join("story.yaml"), yaml).unwrap();
        if self.wiring.example.is_some() {
            for beside in ["templates", "samples"] {
                copy(&examples().join(beside), &dir.join(beside));
            }
        }
        let secrets = self.dir().join("secrets");
        std::fs::create_dir_all(&secrets).unwrap();
        for name in ["billing_token", "mail_token", "model_token"] {
            std::fs::write(secrets.join(name), "token-of-the-story\n").unwrap();
        }
        // The one tenant of the examples.
        std::fs::write(secrets.join("webhook-acct_7"), WEBHOOK_SECRETS[0].1).unwrap();
        for (name, secret) in WEBHOOK_SECRETS {
            std::fs::write(secrets.join(name), secret).unwrap();
        }
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

impl World {
    /// Writes a second connector file beside the story's own.
    pub fn write_another(&self, file: &str, wiring: &Wiring) {
        let provider = format!("http://{}", self.provider_proxy.addr());
        let yaml = wiring.yaml(&provider, &self.smtp_proxy.addr().to_string());
        std::fs::write(self.dir().join("connectors").join(file), yaml).unwrap();
    }
}

/// A name that no other story of this machine uses.
fn fresh(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{}-{number}", std::process::id())
}
