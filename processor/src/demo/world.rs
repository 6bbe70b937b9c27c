//! The servers of the demo: a broker, a database, a provider, and files to look at.
//!
//! Reads: what the person gave (`--kafka`, `--database`). Gives: a world in which workers can run.
//! Takes away what it made: its own servers and files always, its topic and group on a given Kafka
//! when asked to. On a given database its rows stay, under a connector name of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use oncely_rig::RigError;
use oncely_rig::places::Scratch;
use oncely_rig::postgres::{Cluster, PostgresOptions};
use oncely_rig::provider::{Fault, FaultRates, Provider, ProviderOptions};

use super::error::DemoError;
use super::plan::PARTITIONS;
use super::{LeftBehind, Options};
use crate::config::{Database, Environment, Kafka};
use crate::kafka::{ClientSettings, MockBroker, Topics};
use crate::store::{Session, Settings, StoreError, migrate};

/// The connector file, with places for what differs from run to run.
const CONNECTOR: &str = include_str!("connector.yaml");
/// What every effect takes at the provider.
const LATENCY_MS: u64 = 25;
/// Attempts of one effect that may meet a fault by chance, so that a run ends.
const FAULTS_PER_KEY_MAX: u32 = 2;
/// Shortest session that brokers allow unless configured otherwise.
pub(super) const REAL_SESSION: Duration = Duration::from_secs(6);
/// Session with the broker inside, which allows any.
pub(super) const INSIDE_SESSION: Duration = Duration::from_millis(2_500);

/// Everything around the workers.
#[derive(Debug)]
pub(super) struct World {
    pub(super) provider: Provider,
    pub(super) broker: Broker,
    pub(super) client: ClientSettings,
    pub(super) store: Settings,
    pub(super) database_url: String,
    pub(super) connector: String,
    pub(super) topic: String,
    /// Distinguishes this run from all others in shared places.
    pub(super) run: String,
    /// The demo's own server, which ends with it.
    cluster: Option<Cluster>,
    host: String,
    /// The schema was not there before.
    schema_made: bool,
    // Last, so that it is removed when nobody writes there any more.
    pub(super) scratch: Scratch,
}

/// Where records are.
#[derive(Debug)]
pub(super) enum Broker {
    /// It lives as long as this value.
    Inside {
        _broker: MockBroker,
    },
    Given(Topics),
}

impl World {
    pub(super) async fn start(options: &Options) -> Result<Self, DemoError> {
        let run = format!("{:06x}", rand::random::<u32>() & 0x00ff_ffff);
        // What is given and absent is said before anything is made.
        let (cluster, database) = database(options).await?;
        let (database_url, host) = (database.url().to_owned(), database.place().to_owned());
        let store = Settings::parse(&database_url).map_err(StoreError::from)?;
        let schema_made = bring_schema(&store, cluster.is_some()).await?;
        let topic = format!("oncely-demo-{run}");
        let (broker, client) = broker(options, &topic).await?;
        let scratch = Scratch::new(None, "demo").map_err(server("a directory"))?;
        let provider = Provider::start(&provider_options(options.seed, scratch.path()))
            .await
            .map_err(server("the provider"))?;
        // A private database knows one demo only, so its keys can be the same in every run.
        let connector = if cluster.is_some() { "demo".to_owned() } else { format!("demo-{run}") };
        let world = Self {
            provider,
            broker,
            client,
            store,
            database_url,
            connector,
            topic,
            run,
            cluster,
            host,
            schema_made,
            scratch,
        };
        world.write_files()?;
        Ok(world)
    }

    /// Where the connector file is.
    pub(super) fn connectors_dir(&self) -> PathBuf {
        self.scratch.path().join("connectors")
    }

    /// Where the provider's tokens are, as files.
    pub(super) fn secrets_dir(&self) -> PathBuf {
        self.scratch.path().join("secrets")
    }

    pub(super) fn group(&self) -> String {
        format!("oncely.{}", self.connector)
    }

    pub(super) const fn is_inside(&self) -> bool {
        matches!(self.broker, Broker::Inside { .. })
    }

    /// Where the database is, without credentials.
    pub(super) fn store_shown(&self) -> String {
        match &self.cluster {
            Some(cluster) => format!("PostgreSQL of its own on {}", cluster.address()),
            None => format!("the database at {}", self.host),
        }
    }

    pub(super) fn session(&self) -> Session {
        Session::new(self.store.clone(), "demo")
    }

    pub(super) fn left_behind(&self) -> Option<LeftBehind> {
        let (database, connector) = (self.host.clone(), self.connector.clone());
        let left = LeftBehind { database, connector, schema_made: self.schema_made };
        self.cluster.is_none().then_some(left)
    }

    /// Removes topic and group from a Kafka that is not ours. What cannot be removed is said.
    pub(super) async fn leave_kafka(&self) -> Result<(), DemoError> {
        let Broker::Given(topics) = &self.broker else { return Ok(()) };
        let failed =
            |source| DemoError::Kafka { brokers: self.client.brokers().to_owned(), source };
        topics.delete(&self.topic).await.map_err(failed)?;
        topics.delete_group(&self.group()).await.map_err(failed)
    }

    fn write_files(&self) -> Result<(), DemoError> {
        let text = CONNECTOR
            .replace("@connector@", &self.connector)
            .replace("@topic@", &self.topic)
            .replace("@provider@", &self.provider.http_url());
        write(&self.connectors_dir().join("demo.yaml"), &text)?;
        write(&self.secrets_dir().join("billing_token"), "sk_demo\n")?;
        write(&self.secrets_dir().join("mail_token"), "re_demo\n")
    }
}

// --------------------------------------------------------------------------------------------- //

pub(super) fn server(what: &'static str) -> impl FnOnce(RigError) -> DemoError {
    move |source| DemoError::Server { what, source }
}

async fn database(options: &Options) -> Result<(Option<Cluster>, Database), DemoError> {
    let read = |url: &str| {
        let mut environment = Environment::default();
        environment.set("ONCELY_DATABASE_URL", url);
        Database::read(&environment)
    };
    if let Some(url) = &options.database {
        return Ok((None, read(url)?));
    }
    let cluster = Cluster::start(&PostgresOptions::quick()).await.map_err(|source| {
        if !matches!(source, RigError::NotFound { .. }) {
            return DemoError::Server { what: "PostgreSQL", source };
        }
        let remedy = "run `make demo`, which fetches them, install Debian's package postgresql, or \
                      give --database URL";
        DemoError::NoPostgres { remedy, source }
    })?;
    cluster.create_database("demo").await.map_err(server("a database"))?;
    let database = read(&cluster.url("demo"))?;
    Ok((Some(cluster), database))
}

/// Makes the schema where there is none, and says whether it did. One that is there and of another version is left alone.
async fn bring_schema(store: &Settings, is_private: bool) -> Result<bool, DemoError> {
    let mut session = Session::new(store.clone(), "demo");
    let connection = session.connection().await?;
    let failed = |source| DemoError::Migrate { source: Box::new(source) };
    let steps = migrate::status(connection).await.map_err(failed)?;
    let applied = steps.iter().filter(|step| step.applied).count();
    if applied == steps.len() {
        return Ok(false);
    }
    if applied > 0 && !is_private {
        return Err(DemoError::OtherSchema);
    }
    let connection = session.connection().await?;
    migrate::up(connection).await.map_err(failed)?;
    Ok(true)
}

async fn broker(options: &Options, topic: &str) -> Result<(Broker, ClientSettings), DemoError> {
    let Some(brokers) = &options.kafka else {
        let inside = |source| DemoError::Broker { source };
        let broker = MockBroker::start().map_err(inside)?;
        broker.create_topic(topic, PARTITIONS).map_err(inside)?;
        let client = ClientSettings::parse(&broker.brokers(), []);
        let client = client.map_err(|error| inside(error.into()))?;
        return Ok((Broker::Inside { _broker: broker }, client));
    };
    let given = |source| DemoError::Kafka { brokers: brokers.clone(), source };
    let mut environment = options.environment.clone();
    environment.set("ONCELY_KAFKA_BROKERS", brokers.as_str());
    let client = Kafka::read(&environment)?.client;
    let topics = Topics::new(&client).map_err(given)?;
    topics.create(topic, PARTITIONS).await.map_err(given)?;
    Ok((Broker::Given(topics), client))
}

/// Settings of the Kafka client that a person's own brokers need.
pub(super) fn client_settings(environment: &Environment) -> Vec<(String, String)> {
    const PREFIX: &str = "ONCELY_KAFKA__";
    let pairs = environment.beginning(PREFIX);
    pairs.map(|(name, value)| (format!("{PREFIX}{name}"), value.to_owned())).collect()
}

/// What goes wrong by chance: errors before anything happened, and answers lost after it did.
fn provider_options(seed: u64, dir: &Path) -> ProviderOptions {
    let throttled = Fault::StatusBefore { status: 429, retry_after_s: Some(1) };
    let rates = vec![
        (0.030, Fault::status(503)),
        (0.020, throttled),
        (0.010, Fault::CloseBefore),
        (0.030, Fault::CloseAfter),
        (0.010, Fault::ResetAfter),
        (0.015, Fault::StatusAfter { status: 502 }),
        (0.010, Fault::HalfBody),
        (0.006, Fault::HangAfter),
    ];
    ProviderOptions {
        keep_bodies: true,
        latency_ms: LATENCY_MS,
        rates: FaultRates { seed, rates, attempts_max: FAULTS_PER_KEY_MAX },
        ..ProviderOptions::new(dir.join("provider.log"))
    }
}

fn write(path: &Path, text: &str) -> Result<(), DemoError> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(path, text))
        .map_err(|source| DemoError::File { path: path.display().to_string(), source })
}
