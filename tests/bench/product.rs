//! The product as it is run: `oncely run` in processes of its own, and what one run costs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use oncely::clock;
use oncely_rig::child::{Child, ChildSpec, Signal};
use oncely_rig::places;
use sqlx::PgConnection;

use crate::cpu;
use crate::error::{BenchError, Result};
use crate::services::{Database, Services};

/// How long a run may go without any progress.
const SILENCE: Duration = Duration::from_secs(60);
/// How long a worker may take to end when asked to.
const STOP: Duration = Duration::from_secs(40);
/// How often is looked.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A running `oncely run`.
pub(crate) struct Worker {
    pub(crate) child: Child,
    /// Where it serves metrics.
    pub(crate) http: String,
}

impl Worker {
    /// Starts one. `extra` are further settings.
    pub(crate) fn start(
        services: &Services,
        database: &Database,
        connector: &Path,
        extra: &[(&str, &str)],
    ) -> Result<Self> {
        let port = places::free_port()?;
        let http = format!("127.0.0.1:{port}");
        let stem = connector.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut settings = vec![
            ("ONCELY_DATABASE_URL", database.url.clone()),
            ("ONCELY_KAFKA_BROKERS", services.kafka.bootstrap()),
            ("ONCELY_CONNECTORS", connector.display().to_string()),
            ("ONCELY_HTTP_LISTEN", http.clone()),
            ("ONCELY_LOG", "info".to_owned()),
            ("ONCELY_LOG_FORMAT", "text".to_owned()),
        ];
        settings.extend(extra.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let env = settings.into_iter().map(|(name, value)| (name.into(), OsString::from(value)));
        let child = Child::spawn(&ChildSpec {
            program: program()?,
            args: vec!["run".into()],
            env: env.collect(),
            dir: Some(services.scratch.path().to_path_buf()),
            log: services.scratch.path().join(format!("{stem}.{port}.log")),
            ..ChildSpec::default()
        })?;
        Ok(Self { child, http: format!("http://{http}") })
    }

    /// Asks it to end, and wants a clean end.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.child.signal(Signal::Terminate)?;
        let status = self.child.wait(STOP).await?;
        if status.success() {
            return Ok(());
        }
        Err(BenchError::wrong(format!("oncely ended with {status}:\n{}", self.child.said())))
    }
}

/// The product's program lies beside this one.
fn program() -> Result<PathBuf> {
    let own = std::env::current_exe().map_err(BenchError::io("find the own program"))?;
    let program = own.with_file_name("oncely");
    if program.is_file() {
        return Ok(program);
    }
    let next = "build it first: cargo build --release -p oncely";
    Err(BenchError::wrong(format!("{} is not there; {next}", program.display())))
}

/// What one run took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// From the begin of the first batch to the last position on record, by the database's clock.
    pub(crate) seconds: f64,
    pub(crate) memory_mb: f64,
    pub(crate) wal_bytes: f64,
    /// Statements where the server counts them, else transactions.
    pub(crate) statements: f64,
    pub(crate) cpu_product: f64,
    pub(crate) cpu_postgres: f64,
    pub(crate) cpu_broker: f64,
}

/// Runs one worker over a topic that lies ready, to its end.
pub(crate) async fn run(
    services: &Services,
    database: &Database,
    connector: &Path,
    ends: &[i64],
) -> Result<Run> {
    let mut connection = database.connect("watch").await?;
    let wal = wal_bytes(&mut connection).await?;
    let (postgres, broker) = services.cpu();
    let mut worker = Worker::start(services, database, connector, &[])?;
    until_end(&mut connection, std::slice::from_mut(&mut worker), ends).await?;
    let pid = worker.child.pid();
    let memory_mb = cpu::memory_peak_mb(pid).unwrap_or(f64::INFINITY);
    let cpu_product = cpu::seconds(pid);
    let (postgres_after, broker_after) = services.cpu();
    let wal_bytes = wal_bytes(&mut connection).await? - wal;
    let statements = statements(services, &mut connection).await?;
    worker.stop().await?;
    let seconds: f64 = sqlx::query_scalar(
        "SELECT extract(epoch FROM (SELECT max(updated_at) FROM oncely.progress)
                               - (SELECT min(first_seen_at) FROM oncely.inbox))::float8",
    )
    .fetch_one(&mut connection)
    .await?;
    let (cpu_postgres, cpu_broker) = (postgres_after - postgres, broker_after - broker);
    Ok(Run { seconds, memory_mb, wal_bytes, statements, cpu_product, cpu_postgres, cpu_broker })
}

/// Waits until the positions on record are `ends`.
pub(crate) async fn until_end(
    connection: &mut PgConnection,
    workers: &mut [Worker],
    ends: &[i64],
) -> Result<()> {
    let wanted: i64 = ends.iter().sum();
    let mut seen = 0;
    let mut moved = clock::now();
    loop {
        let position: i64 = positions(connection).await?.iter().map(|(_, position)| position).sum();
        if position >= wanted {
            return Ok(());
        }
        if position != seen {
            (seen, moved) = (position, clock::now());
        }
        for worker in workers.iter_mut() {
            worker.child.must_run()?;
        }
        if clock::since(moved) > SILENCE {
            let said = workers.first().map(|worker| worker.child.said()).unwrap_or_default();
            let what =
                format!("no progress since position {seen} of {wanted}; oncely said:\n{said}");
            return Err(BenchError::wrong(what));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The position on record of each partition.
pub(crate) async fn positions(connection: &mut PgConnection) -> Result<Vec<(i32, i64)>> {
    let query = "SELECT partition, position FROM oncely.progress ORDER BY partition";
    Ok(sqlx::query_as(query).fetch_all(connection).await?)
}

async fn wal_bytes(connection: &mut PgConnection) -> Result<f64> {
    let query = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8";
    Ok(sqlx::query_scalar(query).fetch_one(connection).await?)
}

async fn statements(services: &Services, connection: &mut PgConnection) -> Result<f64> {
    let query = if services.counts_statements {
        "SELECT sum(calls)::float8 FROM pg_stat_statements s
         JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = current_database()"
    } else {
        "SELECT xact_commit::float8 FROM pg_stat_database WHERE datname = current_database()"
    };
    Ok(sqlx::query_scalar(query).fetch_one(connection).await?)
}
