//! Worker processes: the real program, started, killed, frozen.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use oncely_rig::child::{Child, ChildSpec, Signal};
use oncely_rig::places;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{BOUND, World};
use crate::servers;

/// A worker process.
#[derive(Debug)]
pub struct Worker {
    pub(super) child: Child,
    port: u16,
    pub(super) frozen: bool,
}

impl Worker {
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Whether it still runs (a frozen one does).
    pub fn runs(&mut self) -> bool {
        self.child.ended().unwrap().is_none()
    }

    /// Whether it runs and is not frozen.
    pub fn goes_on(&mut self) -> bool {
        !self.frozen && self.runs()
    }

    /// Kills it as an out-of-memory killer does.
    pub async fn kill9(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Asks it to end, as a scheduler does.
    pub fn sigterm(&mut self) {
        self.child.signal(Signal::Terminate).unwrap();
    }

    pub fn freeze(&mut self) {
        self.frozen = true;
        self.child.signal(Signal::Stop).unwrap();
    }

    pub fn thaw(&mut self) {
        self.frozen = false;
        self.child.signal(Signal::Continue).unwrap();
    }

    /// Waits for its end; gives the exit code, `None` when a signal ended it.
    pub async fn wait_exit(&mut self, bound: Duration) -> Option<i32> {
        self.child.wait(bound).await.unwrap().code()
    }

    /// Processor time that it takes in so long, all its threads together.
    pub async fn busy_in(&self, time: Duration) -> Duration {
        // In hundredths of a second, behind the name in parentheses.
        let taken = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
            let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
            let ticks: u64 =
                fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
            Duration::from_millis(ticks * 10)
        };
        let before = taken();
        tokio::time::sleep(time).await;
        taken() - before
    }

    /// All that it logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.child.log()).unwrap_or_default()
    }

    /// What one of its pages answers: status and body. `None` while nobody listens.
    pub async fn get(&self, path: &str) -> Option<(u16, String)> {
        let asked = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
            let request =
                format!("GET {path} HTTP/1.1\r\nhost: worker\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.ok()?;
            let status = answer.split(' ').nth(1)?.parse().ok()?;
            let body = answer.split_once("\r\n\r\n")?.1.to_owned();
            Some((status, body))
        };
        tokio::time::timeout(Duration::from_secs(2), asked).await.ok().flatten()
    }

    /// Sum of all series of a metric whose labels hold `labels`; zero when there are none.
    pub async fn metric(&self, name: &str, labels: &str) -> f64 {
        let Some((200, text)) = self.get("/metrics").await else { return 0.0 };
        let of_name = |line: &&str| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
                && line.contains(labels)
        };
        let value = |line: &str| line.rsplit(' ').next().and_then(|v| v.parse::<f64>().ok());
        text.lines().filter(of_name).filter_map(value).sum()
    }

    pub async fn is_ready(&self) -> bool {
        matches!(self.get("/healthz/ready").await, Some((200, _)))
    }
}

impl World {
    /// Starts a worker and waits until it says that it is ready; gives its number.
    pub async fn run(&mut self) -> usize {
        let number = self.spawn(&[]);
        self.wait_ready(number).await;
        number
    }

    pub async fn wait_ready(&mut self, number: usize) {
        let bound = tokio::time::Instant::now() + BOUND;
        while !self.workers[number].is_ready().await {
            assert!(self.workers[number].runs(), "worker {number} ended before it was ready");
            assert!(tokio::time::Instant::now() < bound, "worker {number} is not ready");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Starts a worker with further settings, and waits for nothing; gives its number.
    pub fn spawn(&mut self, env: &[(&str, &str)]) -> usize {
        self.spawn_with(&[], env)
    }

    /// The same, with further arguments.
    pub(super) fn spawn_with(&mut self, args: &[OsString], env: &[(&str, &str)]) -> usize {
        let number = self.workers.len();
        let port = places::free_port().unwrap();
        let mut all = self.environment();
        let mut set = |name: &str, value: &str| all.push((name.into(), value.into()));
        set("ONCELY_HTTP_LISTEN", &format!("127.0.0.1:{port}"));
        env.iter().for_each(|(name, value)| set(name, value));
        let spec = ChildSpec {
            program: servers::program(),
            args: std::iter::once("run".into()).chain(args.iter().cloned()).collect(),
            env: all,
            log: self.log_of(number),
            ..ChildSpec::default()
        };
        self.workers.push(Worker { child: Child::spawn(&spec).unwrap(), port, frozen: false });
        number
    }

    pub(super) fn log_of(&self, number: usize) -> PathBuf {
        self.dir().join(format!("worker-{number}.log"))
    }

    /// Ends all workers as a scheduler does, and waits: each must end well.
    pub async fn stop_all(&mut self) {
        for worker in &mut self.workers {
            if worker.frozen {
                worker.thaw();
            }
            if worker.runs() {
                worker.sigterm();
            }
        }
        for number in 0..self.workers.len() {
            if self.workers[number].runs() {
                let code = self.workers[number].wait_exit(BOUND).await;
                assert_eq!(code, Some(0), "worker {number} did not end well");
            }
        }
    }

    /// The settings of workers and commands.
    pub(super) fn environment(&self) -> Vec<(OsString, OsString)> {
        let plan = &self.plan;
        let url = self.postgres().url(&self.name);
        let url = match &self.pooler {
            Some(pooler) => url.replace(&self.postgres().address(), &pooler.address()),
            None => url,
        };
        let database = self.database_proxy.through(&url);
        let ms = |value: u64| format!("{value}ms");
        let drain = ms(plan.session_ms.saturating_sub(1_000).max(500));
        let mut all: Vec<(OsString, OsString)> = Vec::new();
        let mut set = |name: &str, value: &str| all.push((name.into(), value.into()));
        set("ONCELY_DATABASE_URL", &database);
        set("ONCELY_KAFKA_BROKERS", &self.kafka().bootstrap());
        set("ONCELY_CONNECTORS", &self.dir().join("connectors").to_string_lossy());
        set("ONCELY_LEASE", &ms(plan.lease_ms));
        set("ONCELY_HEARTBEAT", &ms(plan.heartbeat_ms));
        set("ONCELY_KAFKA_SESSION_TIMEOUT", &ms(plan.session_ms));
        set("ONCELY_KAFKA_HEARTBEAT", &ms(plan.session_ms / 6));
        set("ONCELY_DRAIN", &drain);
        set("ONCELY_SHUTDOWN_GRACE", "8s");
        set("ONCELY_LOG", "info,oncely=debug");
        set("ONCELY_LOG_FORMAT", "text");
        set("ONCELY_LOG_BUSINESS_ID", "plain");
        set("ONCELY_ACTOR", "story");
        // Each session plans its own statements: on a machine full of workers, two writers are enough to race.
        set("ONCELY_WRITERS", "2");
        // No provider of a story has a certificate, and reading all of the system's costs a start more than all else.
        set("SSL_CERT_FILE", "/dev/null");
        let provider = format!("http://{}", self.provider_proxy.addr());
        set("BILLING_URL", &provider);
        set("MAIL_URL", &provider);
        set("SETTLE_URL", &format!("{provider}/keyed/settlements"));
        set("MODEL_URL", &format!("{provider}/model/v1"));
        set("SMTP_URL", &format!("smtp://{}", self.smtp_proxy.addr()));
        set("ONCELY_SECRETS_DIR", &self.dir().join("secrets").to_string_lossy());
        set("STORY_TOKEN", "token-of-the-story");
        plan.env.iter().for_each(|(name, value)| set(name, value));
        all
    }
}
