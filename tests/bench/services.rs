//! The servers of a run: PostgreSQL, Kafka, and the fake provider in a process of its own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use oncely::store;
use oncely_rig::child::{Child, ChildSpec};
use oncely_rig::kafka::{Kafka, KafkaOptions};
use oncely_rig::places::Scratch;
use oncely_rig::postgres::{Cluster, PostgresOptions};
use oncely_rig::provider::{Fault, Flush, Provider, ProviderOptions, Rule};
use oncely_rig::wait;

use sqlx::PgConnection;

use crate::cpu;
use crate::error::{BenchError, Result};
use crate::workload::BROKEN;

/// How long the provider may take to listen.
const PROVIDER_MS_MAX: u64 = 10_000;
/// How often the provider writes its log; its answers do not wait for that.
const LOG_EVERY_MS: u64 = 5;

/// All of them. Dropping it ends them and removes their files.
pub(crate) struct Services {
    pub(crate) postgres: Cluster,
    pub(crate) kafka: Kafka,
    /// Process id of the broker.
    pub(crate) broker: u32,
    /// Whether statements are counted.
    pub(crate) counts_statements: bool,
    /// Name of the database of the run that was last begun.
    last: Mutex<Option<String>>,
    // Last, so that nobody writes there any more.
    pub(crate) scratch: Scratch,
}

impl Services {
    /// Starts PostgreSQL and Kafka, side by side.
    pub(crate) async fn start(bin_dir: Option<PathBuf>) -> Result<Self> {
        let mut options = PostgresOptions { bin_dir, ..PostgresOptions::default() }
            .with("shared_buffers", "4GB")
            .with("max_wal_size", "8GB")
            .with("fsync", "on");
        let counts_statements = counts_statements(options.bin_dir.as_deref());
        if counts_statements {
            options = options.with("shared_preload_libraries", "pg_stat_statements");
        }
        let mut kafka = KafkaOptions::new(1).patient();
        kafka.java = ["-Xms1g", "-Xmx1g", "-XX:+UseSerialGC"].map(str::to_owned).into();
        let (postgres, kafka) = tokio::try_join!(Cluster::start(&options), Kafka::start(&kafka))?;
        let broker = cpu::children(std::process::id()).into_iter();
        let broker = broker.filter(|pid| cpu::name(*pid).as_deref() == Some("java")).max();
        let broker =
            broker.ok_or_else(|| BenchError::wrong("the broker's process is not found"))?;
        let scratch = Scratch::new(None, "bench")?;
        Ok(Self { postgres, kafka, broker, counts_statements, last: Mutex::default(), scratch })
    }

    /// A fresh database with the product's schema, and a checkpoint, so that its run does not pay
    /// for what others wrote. The one before it is gone: its vacuums would go on beside this one.
    pub(crate) async fn database(&self, name: &str) -> Result<Database> {
        let last = self.last.lock().map_or(None, |mut last| last.replace(name.to_owned()));
        if let Some(last) = last {
            self.postgres.drop_database(&last).await?;
        }
        self.postgres.create_database(name).await?;
        let url = self.postgres.url(name);
        let database = Database { url, settings: settings(&self.postgres.url(name))? };
        let mut connection = database.connect("bench").await?;
        store::migrate::up(&mut connection).await?;
        if self.counts_statements {
            sqlx::query("CREATE EXTENSION pg_stat_statements").execute(&mut connection).await?;
        }
        sqlx::query("CHECKPOINT").execute(&mut connection).await?;
        Ok(database)
    }

    /// The provider, with an empty log.
    pub(crate) async fn provider(&self, name: &str) -> Result<ProviderChild> {
        ProviderChild::start(&self.scratch.path().join(name)).await
    }

    /// CPU seconds of PostgreSQL and of the broker so far.
    pub(crate) fn cpu(&self) -> (f64, f64) {
        (self.postgres.pid().map_or(0.0, cpu::tree_seconds), cpu::seconds(self.broker))
    }
}

/// One database of a run.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    pub(crate) url: String,
    settings: store::Settings,
}

impl Database {
    /// A connection like the product's own.
    pub(crate) async fn connect(&self, task: &str) -> Result<PgConnection> {
        Ok(self.settings.connect(task).await?)
    }

    /// For the statements of a limit, planned as the product's are.
    pub(crate) async fn connect_steady(&self, task: &str) -> Result<PgConnection> {
        Ok(self.settings.planned_once().connect(task).await?)
    }
}

fn settings(url: &str) -> Result<store::Settings> {
    Ok(store::Settings::parse(url)?)
}

/// Whether the binaries bring the extension that counts statements.
fn counts_statements(bin_dir: Option<&Path>) -> bool {
    let Ok(binaries) = oncely_rig::postgres::Binaries::find(bin_dir) else { return false };
    let output =
        std::process::Command::new(binaries.dir().join("pg_config")).arg("--sharedir").output();
    let share = match output {
        Ok(output) => PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()),
        Err(_) => binaries.dir().join("../share"),
    };
    share.join("extension/pg_stat_statements.control").is_file()
}

// --------------------------------------------------------------------------------------------- //

/// The fake provider in its own process, so that its CPU is not the benchmark's.
pub(crate) struct ProviderChild {
    pub(crate) child: Child,
    pub(crate) url: String,
    pub(crate) log: PathBuf,
}

impl ProviderChild {
    async fn start(dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir).map_err(BenchError::io("make the provider's directory"))?;
        let own = std::env::current_exe().map_err(BenchError::io("find the own program"))?;
        let args: Vec<OsString> = vec!["provider".into(), dir.into()];
        let log = dir.join("provider.out");
        let mut child =
            Child::spawn(&ChildSpec { program: own, args, log, ..ChildSpec::default() })?;
        let bound = Duration::from_millis(PROVIDER_MS_MAX);
        let address = dir.join("address");
        let url = wait::until_some("the provider to listen", bound, || {
            std::fs::read_to_string(&address).ok().filter(|url| url.ends_with('\n'))
        })
        .await?;
        child.must_run()?;
        Ok(Self { child, url: url.trim().to_owned(), log: dir.join("log") })
    }
}

/// The provider's own process: listens until it is killed.
pub(crate) async fn provide(dir: &Path) -> Result<()> {
    let flush = Flush::Group { every_ms: LOG_EVERY_MS, answers_wait: false };
    let options = ProviderOptions { flush, ..ProviderOptions::new(dir.join("log")) };
    let provider = Provider::start(&options).await?;
    provider.fail(Rule::always(Fault::status(500)).to(&format!("/keyed/{BROKEN}")));
    let address = format!("{}\n", provider.http_url());
    std::fs::write(dir.join("address"), address).map_err(BenchError::io("write the address"))?;
    std::future::pending::<()>().await;
    drop(provider);
    Ok(())
}
