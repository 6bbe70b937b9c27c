//! A private Apache Kafka: one broker or three, in KRaft mode, with topics and groups to break.
//!
//! Reads: the jars that `tests/kafka/fetch` brought, and a Java on this machine. Gives: running brokers on
//! ports of their own, each of which can be stopped, killed, frozen and started again, and the things that
//! an administrator does to a cluster. Leaves nothing behind.

mod admin;
mod broker;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::child::Signal;
use crate::places::{self, Scratch};
use crate::proxy::Proxy;
use crate::{RigError, wait};
use admin::Admin;
use broker::{Broker, Plan};

/// The release that `tests/kafka/fetch` brings, and its directory in the cache.
const FETCHED: &str = "kafka-4.1.1";
/// How long a cluster may take until every broker is known to all.
const START_MS_MAX: u64 = 90_000;
/// How long one of Kafka's own tools may take.
const TOOL_MS_MAX: u64 = 120_000;

/// How a cluster is made.
#[derive(Debug, Clone)]
pub struct KafkaOptions {
    /// Number of brokers: 1 or 3. Each of them is a controller too, unless that is a process of its own.
    pub brokers: u16,
    /// Directory in which the data is made; without one, the system's for temporary files.
    pub base_dir: Option<PathBuf>,
    /// Directory with the jars; without one, the cache.
    pub libs_dir: Option<PathBuf>,
    /// Settings as in `server.properties`; they win over the rig's own.
    pub settings: Vec<(String, String)>,
    /// Options of the Java machine of each broker.
    pub java: Vec<String>,
    /// Whether clients reach each broker through a proxy of its own.
    pub through_proxies: bool,
    /// Whether the controller is a process of its own, which outlives the brokers.
    pub own_controller: bool,
}

impl KafkaOptions {
    /// For tests: quick to start, small, with short bounds for sessions and rebalances.
    #[must_use]
    pub fn new(brokers: u16) -> Self {
        let java = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];
        Self {
            brokers,
            base_dir: None,
            libs_dir: None,
            settings: Vec::new(),
            java: java.map(str::to_owned).into(),
            through_proxies: false,
            own_controller: false,
        }
    }

    /// For brokers that are stopped or killed and come back. The controller of one alone outlives it.
    ///
    /// One that were its own controller would take itself for the leader when it comes back, until it finds that it
    /// was away, and would begin to load its groups twice; if the first load ends after the second has begun, groups
    /// of that partition get no assignment until it is started once more (Apache Kafka 4.1 to 4.4,
    /// `CoordinatorRuntime`: the end of a load is not held against the load that it is of).
    #[must_use]
    pub fn returning(brokers: u16) -> Self {
        Self { own_controller: brokers == 1, ..Self::new(brokers) }
    }

    /// For a broker that has no other one to hand over to and that nobody kills: a pause of the machine must not
    /// make its controller take it for dead, after which it refuses topics and groups for a moment.
    #[must_use]
    pub fn patient(self) -> Self {
        self.with("broker.session.timeout.ms", "120000")
    }

    /// Adds a setting.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// A running cluster. Dropping it kills the brokers and removes their files.
#[derive(Debug)]
pub struct Kafka {
    admin: Admin,
    brokers: Vec<Broker>,
    controller: Option<Broker>,
    libs: PathBuf,
    // After the brokers, so that it is dropped when nobody writes there any more.
    scratch: Scratch,
}

impl Kafka {
    /// Makes a cluster and starts it; ready when this returns. About 4 seconds for one broker.
    ///
    /// # Errors
    /// `NotFound` when Kafka or Java is missing, `Ended` with the broker's words when it does not start.
    pub async fn start(options: &KafkaOptions) -> Result<Self, RigError> {
        let libs = libs(options.libs_dir.as_deref())?;
        let scratch = Scratch::new(options.base_dir.as_deref(), "kafka")?;
        let plan = Plan::new(options, &libs, scratch.path())?;
        let mut brokers = Vec::new();
        for number in 1..=options.brokers {
            brokers.push(Broker::new(&plan, number, options.through_proxies).await?);
        }
        let mut controller = Broker::controller(&plan)?;
        broker::format(&plan, brokers.iter().chain(&controller)).await?;
        for node in controller.iter_mut().chain(&mut brokers) {
            node.start()?;
        }
        let admin = Admin::new(&plan.internal())?;
        let mut kafka = Self { admin, brokers, controller, libs, scratch };
        kafka.wait_ready(usize::from(options.brokers)).await?;
        Ok(kafka)
    }

    /// Where clients connect: `host:port,…`, through the proxies where there are any.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        let addresses =
            self.brokers.iter().map(|broker| format!("127.0.0.1:{}", broker.client_port()));
        addresses.collect::<Vec<_>>().join(",")
    }

    /// Directory with the jars, Kafka's own tools among them.
    #[must_use]
    pub fn libs_dir(&self) -> &Path {
        &self.libs
    }

    /// Numbers of the brokers: from 1.
    #[must_use]
    pub fn broker_ids(&self) -> Vec<u16> {
        self.brokers.iter().map(Broker::number).collect()
    }

    /// The proxy before a broker, where the options asked for it.
    ///
    /// # Errors
    /// `Unexpected` when there is none.
    pub fn proxy(&mut self, broker: u16) -> Result<&mut Proxy, RigError> {
        let proxy = self.broker(broker)?.proxy.as_mut();
        proxy
            .ok_or_else(|| RigError::Unexpected("this cluster was made without proxies".to_owned()))
    }

    /// Each node's number and the last lines that it logged; a controller of its own is the last.
    pub fn said(&self) -> impl Iterator<Item = (u16, String)> {
        self.brokers
            .iter()
            .chain(&self.controller)
            .map(|broker| (broker.number(), crate::child::tail(&broker.log())))
    }

    // ---- brokers -----------------------------------------------------------------------------------

    /// Stops a broker in good order (SIGTERM): it hands its leaderships over first.
    ///
    /// # Errors
    /// `TimedOut` when it does not end; it is killed then.
    pub async fn stop(&mut self, broker: u16) -> Result<(), RigError> {
        self.broker(broker)?.stop().await
    }

    /// Kills a broker (SIGKILL).
    ///
    /// # Errors
    /// `TimedOut` when it does not end.
    pub async fn kill(&mut self, broker: u16) -> Result<(), RigError> {
        self.broker(broker)?.kill().await
    }

    /// Starts a stopped broker on the same ports with the same data, and waits until all know it. A controller of its
    /// own knows that the broker was away by then.
    ///
    /// # Errors
    /// `Ended` with the broker's words when it does not start, `TimedOut` when nobody misses it.
    pub async fn start_again(&mut self, broker: u16) -> Result<(), RigError> {
        if !self.broker(broker)?.is_started()
            && let Some(controller) = &mut self.controller
        {
            controller.must_run()?;
            controller.wait_missed(broker).await?;
        }
        self.broker(broker)?.start()?;
        let running = self.brokers.iter().filter(|broker| broker.is_started()).count();
        self.wait_ready(running).await
    }

    /// Freezes a broker (SIGSTOP).
    ///
    /// # Errors
    /// `Io` when the system refuses.
    pub fn pause(&mut self, broker: u16) -> Result<(), RigError> {
        self.broker(broker)?.signal(Signal::Stop)
    }

    /// Lets a frozen broker go on (SIGCONT).
    ///
    /// # Errors
    /// `Io` when the system refuses.
    pub fn resume(&mut self, broker: u16) -> Result<(), RigError> {
        self.broker(broker)?.signal(Signal::Continue)
    }

    // ---- topics and groups -------------------------------------------------------------------------

    /// Makes a topic, replicated to every broker, and waits until each partition has a leader.
    ///
    /// # Errors
    /// `Kafka` when it is refused, `TimedOut` when no leader is found.
    pub async fn create_topic(
        &self,
        name: &str,
        partitions: u32,
        config: &[(&str, &str)],
    ) -> Result<(), RigError> {
        self.admin.create_topic(name, partitions, self.brokers.len(), config).await
    }

    /// Raises the number of partitions of a topic to `total`.
    ///
    /// # Errors
    /// `Kafka` when it is refused.
    pub async fn add_partitions(&self, topic: &str, total: u32) -> Result<(), RigError> {
        self.admin.add_partitions(topic, total).await
    }

    /// Deletes a topic and waits until it is gone.
    ///
    /// # Errors
    /// `Kafka` when it is refused, `TimedOut` when it stays.
    pub async fn delete_topic(&self, topic: &str) -> Result<(), RigError> {
        self.admin.delete_topic(topic).await
    }

    /// Deletes the records of a partition below an offset.
    ///
    /// # Errors
    /// `Kafka` when it is refused.
    pub async fn delete_records(
        &self,
        topic: &str,
        partition: i32,
        before: i64,
    ) -> Result<(), RigError> {
        self.admin.delete_records(topic, partition, before).await
    }

    /// Deletes a group without members, and its offsets with it.
    ///
    /// # Errors
    /// `Kafka` when it is refused, for example because the group has members.
    pub async fn delete_group(&self, group: &str) -> Result<(), RigError> {
        self.admin.delete_group(group).await
    }

    /// Deletes the offsets of a group for a topic that no member reads at this moment; the group stays.
    ///
    /// # Errors
    /// `Ended` with the words of Kafka's own tool.
    pub async fn delete_group_offsets(&self, group: &str, topic: &str) -> Result<(), RigError> {
        let class = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
        let args = ["--delete-offsets", "--group", group, "--topic", topic];
        self.tool(class, &args, None).await.map(drop)
    }

    /// First and next offset of a partition.
    ///
    /// # Errors
    /// `Kafka` when nobody says.
    pub async fn offsets(&self, topic: &str, partition: i32) -> Result<(i64, i64), RigError> {
        self.admin.offsets(topic, partition).await
    }

    /// Number of the broker that leads a partition, if any.
    ///
    /// # Errors
    /// `Kafka` when nobody says.
    pub async fn leader(&self, topic: &str, partition: i32) -> Result<Option<i32>, RigError> {
        self.admin.leader(topic, partition).await
    }

    // ---- Kafka's own tools -------------------------------------------------------------------------

    /// Produces each line of a file with Kafka's own console producer. `producer` are settings of the
    /// producer (`compression.type`), `reader` of its line reader (`parse.key`, `key.separator`).
    ///
    /// # Errors
    /// `Ended` with the words of the tool.
    pub async fn console_produce(
        &self,
        topic: &str,
        file: &Path,
        producer: &[(&str, &str)],
        reader: &[(&str, &str)],
    ) -> Result<(), RigError> {
        let pairs = |option: &str, pairs: &[(&str, &str)]| {
            let words = pairs
                .iter()
                .flat_map(|(name, value)| [option.to_owned(), format!("{name}={value}")]);
            words.collect::<Vec<_>>()
        };
        let mut args = vec!["--topic".to_owned(), topic.to_owned()];
        args.extend(pairs("--producer-property", producer));
        args.extend(pairs("--property", reader));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.tool("org.apache.kafka.tools.ConsoleProducer", &args, Some(file)).await.map(drop)
    }

    /// Runs one of Kafka's own tools with `--bootstrap-server` and these arguments; gives its output.
    ///
    /// # Errors
    /// `Ended` with its words when it fails, `TimedOut`.
    pub async fn tool(
        &self,
        class: &str,
        args: &[&str],
        input: Option<&Path>,
    ) -> Result<String, RigError> {
        let mut command =
            broker::java(&self.libs, self.scratch.path(), &broker::TOOL_JAVA.map(str::to_owned));
        command.args([class, "--bootstrap-server", &self.admin.bootstrap]).args(args);
        command.stdin(match input {
            None => Stdio::null(),
            Some(path) => std::fs::File::open(path).map_err(RigError::at("open", path))?.into(),
        });
        let running = tokio::process::Command::from(command).kill_on_drop(true).output();
        let bound = Duration::from_millis(TOOL_MS_MAX);
        let output = match tokio::time::timeout(bound, running).await {
            Ok(output) => output.map_err(RigError::io(format!("run {class}")))?,
            Err(_) => {
                let (what, seen) = (format!("the end of {class}"), "still running".to_owned());
                return Err(RigError::TimedOut { what, bound, seen });
            }
        };
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        // The console producer ends well even when a record was refused; it says so as an error.
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() && !complaint.contains("ERROR") {
            return Ok(said);
        }
        let (program, status) = (class.to_owned(), output.status.to_string());
        Err(RigError::Ended { program, status, said: said + &complaint })
    }

    // ------------------------------------------------------------------------------------------------

    fn broker(&mut self, number: u16) -> Result<&mut Broker, RigError> {
        let found = self.brokers.iter_mut().find(|broker| broker.number() == number);
        found.ok_or_else(|| RigError::Unexpected(format!("there is no broker {number}")))
    }

    /// Waits until every running broker accepts connections and the cluster knows that many.
    async fn wait_ready(&mut self, count: usize) -> Result<(), RigError> {
        let bound = Duration::from_millis(START_MS_MAX);
        let mut nodes: Vec<&mut Broker> =
            self.brokers.iter_mut().chain(&mut self.controller).collect();
        wait::until("the brokers to accept connections", bound, || {
            nodes.iter_mut().all(|node| node.listens() || node.must_run().is_err())
        })
        .await?;
        nodes.into_iter().try_for_each(Broker::must_run)?;
        self.admin.wait_brokers(count, bound).await
    }
}

fn libs(asked: Option<&Path>) -> Result<PathBuf, RigError> {
    let place =
        asked.map_or_else(|| places::cache_dir().join(FETCHED).join("libs"), Path::to_path_buf);
    if !place.is_dir() {
        let next = "run tests/kafka/fetch";
        return Err(RigError::NotFound { what: "Apache Kafka", looked_in: vec![place], next });
    }
    let java =
        places::path_dirs().into_iter().map(|dir| dir.join("java")).find(|path| path.is_file());
    match java {
        Some(_) => Ok(place),
        None => Err(RigError::NotFound {
            what: "Java",
            looked_in: places::path_dirs(),
            next: "run tests/install, or install Debian's package default-jre-headless",
        }),
    }
}

/// The class path of a directory of jars.
fn class_path(libs: &Path) -> OsString {
    libs.join("*").into_os_string()
}
