//! One Kafka and one PostgreSQL for all stories of a test program; they end with it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use oncely_rig::kafka::{Kafka, KafkaOptions};
use oncely_rig::pooler::Pooler;
use oncely_rig::postgres::{Binaries, Cluster, PostgresOptions};

/// The broker that stories share. Each story has topics and a group of its own.
pub fn kafka() -> &'static Kafka {
    static KAFKA: OnceLock<Kafka> = OnceLock::new();
    KAFKA.get_or_init(|| {
        lasting(async { Kafka::start(&KafkaOptions::new(1).patient()).await.unwrap() })
    })
}

/// The PostgreSQL that stories share. Each story has a database of its own.
pub fn postgres() -> &'static Cluster {
    static POSTGRES: OnceLock<Cluster> = OnceLock::new();
    POSTGRES.get_or_init(|| lasting(async { Cluster::start(&options()).await.unwrap() }))
}

/// Name of a database of the shared PostgreSQL that has the schema and nothing else. Stories begin with a copy
/// of it: the migrations of two hundred stories would take a tenth of their time.
pub fn migrated() -> &'static str {
    const NAME: &str = "migrated";
    static MADE: OnceLock<()> = OnceLock::new();
    MADE.get_or_init(|| {
        let cluster = postgres();
        lasting(async { cluster.create_database(NAME).await.unwrap() });
        let mut migrate = Command::new(program());
        migrate.args(["migrate", "up"]).env("ONCELY_DATABASE_URL", cluster.url(NAME));
        let output = migrate.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    });
    NAME
}

/// Server connections of a pooler: fewer than the sessions of one worker.
const POOLED: u16 = 8;

/// A pooler before a cluster, with the settings that come with the program.
pub async fn pooler(cluster: &Cluster) -> Pooler {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/pgbouncer.ini");
    let text = std::fs::read_to_string(&file).unwrap();
    let lines = text.lines().map(|line| match line.split_once(" = ") {
        Some(("oncely", server)) => {
            let (_, query) = server.split_once("connect_query").expect("sessions have settings");
            format!("* = {{server}} connect_query{query}")
        }
        Some(("listen_addr", _)) => "listen_addr = 127.0.0.1".to_owned(),
        Some(("listen_port", _)) => "listen_port = {port}".to_owned(),
        Some(("default_pool_size", _)) => "default_pool_size = {connections}".to_owned(),
        Some(("auth_type", _)) => "auth_type = any".to_owned(),
        _ => line.to_owned(),
    });
    let settings: Vec<String> = lines.collect();
    Pooler::start(cluster, POOLED, &settings.join("\n")).await.unwrap()
}

/// How the shared cluster is made, and the clusters of stories that break one. Each database of the shared one
/// would be vacuumed once a minute by a process of its own, and there are hundreds that nobody uses any more.
pub fn options() -> PostgresOptions {
    PostgresOptions::quick().with("max_connections", "400").with("autovacuum", "off")
}

/// Programs of the PostgreSQL that people have from their distribution. Where none is installed, CI unpacks
/// its package beside the cache: nothing is installed, and no service is started; elsewhere `None`.
pub fn distribution() -> Option<PathBuf> {
    if let Some(found) = Binaries::packaged() {
        return Some(found.dir().to_path_buf());
    }
    if std::env::var_os("CI").is_none() {
        eprintln!("not run: no PostgreSQL of the distribution is installed (CI=true unpacks one)");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("postgres/fetch-distribution");
    let output = Command::new(script).output().unwrap();
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "the distribution's PostgreSQL could not be unpacked");
    Some(PathBuf::from(String::from_utf8(output.stdout).unwrap().trim()))
}

/// The program under test: built with this crate from the same source file, so never stale.
pub fn program() -> PathBuf {
    let own = std::env::current_exe().expect("the test program has a path");
    let dir = own.parent().and_then(|deps| deps.parent()).expect("cargo's layout");
    let program = dir.join("oncely-under-test");
    assert!(program.is_file(), "{} is missing: run the stories by cargo", program.display());
    program
}

/// Makes something on a runtime that lasts as long as the program.
fn lasting<T: Send>(making: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .unwrap();
            let made = runtime.block_on(making);
            std::mem::forget(runtime);
            made
        });
        thread.join().unwrap()
    })
}
