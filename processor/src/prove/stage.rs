//! Servers and processes of one crash point: a database, a broker, a provider, workers.
//!
//! Reads: the connector's topics. Gives: records written, workers started, armed and asked to end, and what
//! is on record. All of it ends with the value.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use oncely_core::connector::Connector;
use oncely_rig::child::{Child, ChildSpec, Signal};
use oncely_rig::places::{self, Scratch};
use oncely_rig::postgres::Cluster;
use oncely_rig::provider::{Provider, ProviderOptions};

use super::stand_in::StandIn;
use super::{Options, ProveError};
use crate::clock;
use crate::config::Environment;
use crate::crash::{self, Aim, Order};
use crate::kafka::{ClientSettings, MockBroker, NewRecord, Producer};
use crate::store::admin::progress;
use crate::store::admin::totals::{self, Totals};
use crate::store::{Session, Settings, StoreError, migrate};

const PARTITIONS: i32 = 2;
/// A death is found after so long.
const LEASE: &str = "1s";
const SESSION: &str = "1500ms";
/// Pause between two looks.
pub(super) const LOOK: Duration = Duration::from_millis(60);

pub(super) struct Stage {
    pub(super) provider: Provider,
    pub(super) workers: Vec<Child>,
    session: Session,
    producer: Producer,
    topic: String,
    connector: Arc<Connector>,
    written: i64,
    spec: ChildSpec,
    stand_in: StandIn,
    permit: PathBuf,
    _broker: MockBroker,
    // Last, so that it is removed when nobody writes there any more.
    scratch: Scratch,
}

pub(super) fn server(what: &'static str) -> impl FnOnce(oncely_rig::RigError) -> ProveError {
    move |source| ProveError::Server { what, source }
}

impl Stage {
    pub(super) async fn start(
        cluster: &Cluster,
        connector: &Arc<Connector>,
        options: &Options,
        name: &str,
    ) -> Result<Self, ProveError> {
        cluster.create_database(name).await.map_err(server("a database"))?;
        let url = cluster.url(name);
        let settings = Settings::parse(&url).map_err(StoreError::from)?;
        let mut session = Session::new(settings, "prove");
        migrate::up(session.connection().await?).await.map_err(Box::new)?;
        let broker = MockBroker::start()?;
        let read = connector.source.topics.iter().map(ToString::to_string);
        for topic in read.chain(connector.topics_written()) {
            broker.create_topic(&topic, PARTITIONS)?;
        }
        let client =
            ClientSettings::parse(&broker.brokers(), []).map_err(crate::kafka::KafkaError::from)?;
        let producer = Producer::new(&client)?;
        let scratch = Scratch::new(None, "prove").map_err(server("a directory"))?;
        let log = scratch.path().join("provider.log");
        let provider = ProviderOptions { latency_ms: 20, ..ProviderOptions::new(log) };
        let provider = Provider::start(&provider).await.map_err(server("a provider"))?;
        let stand_in =
            StandIn { http: provider.http_addr().port(), smtp: provider.smtp_addr().port() };
        let unset = Environment::of_process();
        let unset = unset.beginning("ONCELY_").map(|(name, _)| format!("ONCELY_{name}").into());
        let pairs = [
            ("ONCELY_DATABASE_URL", url.as_str()),
            ("ONCELY_KAFKA_BROKERS", &broker.brokers()),
            ("ONCELY_KAFKA_ASSIGNOR", "range"),
            ("ONCELY_KAFKA_SESSION_TIMEOUT", SESSION),
            ("ONCELY_KAFKA_HEARTBEAT", "300ms"),
            ("ONCELY_LEASE", LEASE),
            ("ONCELY_HEARTBEAT", "250ms"),
            ("ONCELY_DRAIN", "800ms"),
            ("ONCELY_SHUTDOWN_GRACE", "5s"),
            ("ONCELY_LOG", "info"),
            ("ONCELY_LOG_FORMAT", "text"),
        ];
        let spec = ChildSpec {
            program: options.program.clone(),
            args: vec!["run".into(), options.file.clone().into()],
            env: pairs.map(|(name, value)| (name.into(), value.into())).into(),
            unset: unset.collect(),
            log: scratch.path().join("workers.log"),
            remove: Some(scratch.path().to_path_buf()),
            ..ChildSpec::default()
        };
        let topic = connector.source.topics.first().map(ToString::to_string).unwrap_or_default();
        Ok(Self {
            provider,
            workers: Vec::new(),
            session,
            producer,
            topic,
            connector: Arc::clone(connector),
            written: 0,
            spec,
            stand_in,
            permit: scratch.path().join("permit"),
            _broker: broker,
            scratch,
        })
    }

    /// Starts a worker; one that is armed crashes at `order`, where what is aimed at is there.
    pub(super) fn spawn(&mut self, order: Option<(Order, Option<&Aim>)>) -> Result<(), ProveError> {
        let port = places::free_port().map_err(server("a port"))?;
        let mut spec = self.spec.clone();
        let mut add = |word: OsString| spec.args.push(word);
        add("--http-listen".into());
        add(format!("127.0.0.1:{port}").into());
        add("--stand-in".into());
        add(self.stand_in.to_string().into());
        if let Some((order, aim)) = order {
            crash::permit(&self.permit)?;
            add("--crash-at".into());
            add(order.to_string().into());
            add("--crash-permit".into());
            add(self.permit.clone().into());
            if let Some(aim) = aim {
                add("--crash-aim".into());
                add(aim.to_string().into());
            }
        }
        self.workers.push(Child::spawn(&spec).map_err(server("a worker"))?);
        Ok(())
    }

    /// Whether the armed worker has crashed.
    pub(super) fn has_crashed(&self) -> bool {
        crash::used_by(&self.permit).is_some()
    }

    /// The effects, by their ids, that were at the place where it crashed.
    pub(super) fn crashed_with(&self) -> Vec<String> {
        crash::crashed_with(&self.permit)
    }

    /// Asks the first worker to end.
    pub(super) fn ask_to_end(&mut self) -> Result<(), ProveError> {
        let Some(worker) = self.workers.first_mut() else { return Ok(()) };
        worker.signal(Signal::Terminate).map_err(server("a worker"))
    }

    /// SIGKILL to all.
    pub(super) async fn kill_all(&mut self) -> Result<(), ProveError> {
        for mut worker in std::mem::take(&mut self.workers) {
            if worker.ended().map_err(server("a worker"))?.is_none() {
                worker.kill().await.map_err(server("a killed worker"))?;
            }
        }
        Ok(())
    }

    /// A worker that ended otherwise than by its crash point or because it was asked to.
    pub(super) fn must_run(&mut self) -> Result<(), ProveError> {
        for worker in &mut self.workers {
            if let Some(status) = worker.ended().map_err(server("a worker"))?
                && status.code().is_some_and(|code| code != 0)
            {
                return Err(ProveError::WorkerEnded { said: worker.said() });
            }
        }
        Ok(())
    }

    /// Writes the samples into one partition, in their order.
    pub(super) async fn write(&mut self, samples: &[Vec<u8>]) -> Result<(), ProveError> {
        for value in samples {
            let record = NewRecord {
                topic: &self.topic,
                partition: Some(0),
                value: Some(value),
                ..NewRecord::default()
            };
            let delivered = self.producer.produce(record).await?;
            self.written = delivered.offset.saturating_add(1);
        }
        Ok(())
    }

    pub(super) async fn totals(&mut self) -> Result<Totals, ProveError> {
        let connection = self.session.connection().await?;
        Ok(totals::of_connector(connection, &self.connector.name).await?)
    }

    /// Whether the position of what was written is at its end.
    pub(super) async fn is_read(&mut self) -> Result<bool, ProveError> {
        let filter = progress::Filter { partition: Some(0), ..progress::Filter::default() };
        let rows = progress::list(self.session.connection().await?, &filter).await?;
        Ok(rows.iter().any(|row| row.topic == self.topic && row.position >= self.written))
    }

    pub(super) fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Waits for a state; whether it came within `bound`.
    pub(super) async fn until(
        &mut self,
        bound: Duration,
        mut reached: impl AsyncFnMut(&mut Self) -> Result<bool, ProveError>,
    ) -> Result<bool, ProveError> {
        let begun = clock::now();
        loop {
            if reached(self).await? {
                return Ok(true);
            }
            self.must_run()?;
            if clock::since(begun) > bound {
                return Ok(false);
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("dir", &self.scratch.path()).finish_non_exhaustive()
    }
}
