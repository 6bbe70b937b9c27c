//! One broker: its settings, its files, its process.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{KafkaOptions, class_path};
use crate::RigError;
use crate::child::{Child, ChildSpec, Signal};
use crate::places;
use crate::proxy::Proxy;
use crate::wait;

/// How long a broker may take to end in good order.
const STOP_MS_MAX: u64 = 60_000;
/// The node that only controls, where the brokers do not.
const CONTROLLER: u16 = 100;

/// Options of the Java machine of Kafka's own tools: small, and quick to start.
pub(super) const TOOL_JAVA: [&str; 3] = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/// The ports of one node: for clients, for other brokers and the rig, for controllers.
#[derive(Debug, Clone, Copy)]
struct Ports {
    client: u16,
    internal: u16,
    controller: u16,
}

/// What all brokers of a cluster are made from.
#[derive(Debug)]
pub(super) struct Plan {
    cluster_id: String,
    ports: Vec<Ports>,
    /// Of the node that only controls.
    controller: Option<u16>,
    settings: Vec<(String, String)>,
    java: Vec<String>,
    libs: PathBuf,
    scratch: PathBuf,
}

impl Plan {
    pub(super) fn new(
        options: &KafkaOptions,
        libs: &Path,
        scratch: &Path,
    ) -> Result<Self, RigError> {
        let mut ports = Vec::new();
        for _ in 0..options.brokers {
            let (client, internal) = (places::free_port()?, places::free_port()?);
            ports.push(Ports { client, internal, controller: places::free_port()? });
        }
        let controller = options.own_controller.then(places::free_port).transpose()?;
        Ok(Self {
            cluster_id: cluster_id(),
            ports,
            controller,
            settings: options.settings.clone(),
            java: options.java.clone(),
            libs: libs.to_path_buf(),
            scratch: scratch.to_path_buf(),
        })
    }

    /// Where the rig itself connects, past any proxy.
    pub(super) fn internal(&self) -> String {
        let addresses = self.ports.iter().map(|ports| format!("127.0.0.1:{}", ports.internal));
        addresses.collect::<Vec<_>>().join(",")
    }

    fn voters(&self) -> String {
        if let Some(port) = self.controller {
            return format!("{CONTROLLER}@127.0.0.1:{port}");
        }
        let voters = (1..).zip(&self.ports);
        let voters =
            voters.map(|(number, ports)| format!("{number}@127.0.0.1:{}", ports.controller));
        voters.collect::<Vec<_>>().join(",")
    }

    /// What a broker does and where: the first lines of its `server.properties`.
    fn broker(&self, ports: Ports, advertised: u16) -> String {
        let Ports { client, internal, controller } = ports;
        let (roles, controls) = match self.controller {
            Some(_) => ("broker", String::new()),
            None => ("broker,controller", format!(",CONTROLLER://127.0.0.1:{controller}")),
        };
        format!(
            "process.roles={roles}
listeners=CLIENT://127.0.0.1:{client},INTERNAL://127.0.0.1:{internal}{controls}
advertised.listeners=CLIENT://127.0.0.1:{advertised},INTERNAL://127.0.0.1:{internal}
inter.broker.listener.name=INTERNAL
"
        )
    }

    /// The settings of a node, as a `server.properties`; `place` says what it does and where.
    fn properties(&self, number: u16, place: &str, data: &Path) -> String {
        let count = self.ports.len();
        let in_sync = if count > 2 { 2 } else { 1 };
        let mut text = format!(
            "{place}node.id={number}
controller.quorum.voters={voters}
listener.security.protocol.map=CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable=false
default.replication.factor={count}
min.insync.replicas={in_sync}
offsets.topic.replication.factor={count}
offsets.topic.num.partitions=4
transaction.state.log.replication.factor={count}
transaction.state.log.min.isr={in_sync}
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor={count}
share.coordinator.state.topic.min.isr={in_sync}
share.coordinator.state.topic.num.partitions=4
log.cleaner.dedupe.buffer.size=16777216
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
group.initial.rebalance.delay.ms=0
# Records that say that they are old stay for as long as a test needs them.
log.initial.task.delay.ms=86400000
log.retention.check.interval.ms=86400000
group.min.session.timeout.ms=1000
group.consumer.min.heartbeat.interval.ms=100
group.consumer.heartbeat.interval.ms=500
group.consumer.min.session.timeout.ms=1000
group.consumer.session.timeout.ms=6000
",
            voters = self.voters(),
            data = data.display(),
        );
        for (name, value) in &self.settings {
            text.extend([
                name, "=", value, "
",
            ]);
        }
        text
    }
}

/// One node, running or not: a broker, or what only controls.
#[derive(Debug)]
pub(super) struct Broker {
    number: u16,
    /// Where it accepts connections, those of clients first.
    ports: Vec<u16>,
    pub(super) proxy: Option<Proxy>,
    spec: ChildSpec,
    config: PathBuf,
    child: Option<Child>,
}

impl Broker {
    /// Writes the settings; starts nothing.
    pub(super) async fn new(
        plan: &Plan,
        number: u16,
        behind_proxy: bool,
    ) -> Result<Self, RigError> {
        let place = usize::from(number).saturating_sub(1);
        let ports =
            plan.ports.get(place).copied().ok_or(RigError::NoFreePort { from: 0, to: 0 })?;
        let proxy = match behind_proxy {
            true => Some(Proxy::start(format!("127.0.0.1:{}", ports.client)).await?),
            false => None,
        };
        let advertised = proxy.as_ref().map_or(ports.client, Proxy::port);
        let place = plan.broker(ports, advertised);
        let mut broker = Self::node(plan, number, &place, vec![ports.client, ports.internal])?;
        broker.proxy = proxy;
        Ok(broker)
    }

    /// The node that only controls, where there is one. It says whom it takes for dead.
    pub(super) fn controller(plan: &Plan) -> Result<Option<Self>, RigError> {
        let Some(port) = plan.controller else { return Ok(None) };
        let place = format!("process.roles=controller\nlisteners=CONTROLLER://127.0.0.1:{port}\n");
        let mut node = Self::node(plan, CONTROLLER, &place, vec![port])?;
        node.spec.args.insert(0, "-Dlog4j2.level=INFO".into());
        node.spec.args.retain(|arg| arg != LOG_LEVEL);
        Ok(Some(node))
    }

    fn node(plan: &Plan, number: u16, place: &str, ports: Vec<u16>) -> Result<Self, RigError> {
        let dir = plan.scratch.join(format!("broker-{number}"));
        fs::create_dir_all(&dir).map_err(RigError::at("make", &dir))?;
        let config = dir.join("server.properties");
        let text = plan.properties(number, place, &dir.join("data"));
        fs::write(&config, text).map_err(RigError::at("write", &config))?;
        let command = java(&plan.libs, &plan.scratch, &plan.java);
        let mut args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        args.extend(["kafka.Kafka".into(), config.clone().into()]);
        let spec = ChildSpec {
            program: command.get_program().into(),
            args,
            dir: Some(dir.clone()),
            log: dir.join("broker.log"),
            remove: Some(plan.scratch.clone()),
            ..ChildSpec::default()
        };
        Ok(Self { number, ports, proxy: None, spec, config, child: None })
    }

    pub(super) fn number(&self) -> u16 {
        self.number
    }

    pub(super) fn client_port(&self) -> u16 {
        let own = self.ports.first().copied().unwrap_or_default();
        self.proxy.as_ref().map_or(own, Proxy::port)
    }

    pub(super) fn log(&self) -> PathBuf {
        self.spec.log.clone()
    }

    pub(super) fn is_started(&self) -> bool {
        self.child.is_some()
    }

    pub(super) fn start(&mut self) -> Result<(), RigError> {
        if self.child.is_none() {
            self.child = Some(Child::spawn(&self.spec)?);
        }
        Ok(())
    }

    pub(super) async fn stop(&mut self) -> Result<(), RigError> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        child.signal(Signal::Terminate)?;
        child.wait(Duration::from_millis(STOP_MS_MAX)).await.map(drop)
    }

    pub(super) async fn kill(&mut self) -> Result<(), RigError> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        child.kill().await.map(drop)
    }

    pub(super) fn signal(&mut self, signal: Signal) -> Result<(), RigError> {
        self.child.as_mut().map_or(Ok(()), |child| child.signal_all(signal))
    }

    /// Fails when the broker was started and has ended.
    pub(super) fn must_run(&mut self) -> Result<(), RigError> {
        self.child.as_mut().map_or(Ok(()), Child::must_run)
    }

    /// Waits until this node, which controls, has found that a broker is away.
    pub(super) async fn wait_missed(&self, broker: u16) -> Result<(), RigError> {
        let bound = Duration::from_millis(STOP_MS_MAX);
        let (gone, there) =
            (format!("Fencing broker {broker} "), format!("broker {broker} to unfence has"));
        wait::until("the controller to miss the broker", bound, || {
            let said = fs::read_to_string(&self.spec.log).unwrap_or_default();
            said.rfind(&gone) > said.rfind(&there)
        })
        .await
    }

    /// Whether it accepts connections; one that is not started has nothing to accept.
    pub(super) fn listens(&self) -> bool {
        self.child.is_none()
            || self
                .ports
                .iter()
                .all(|port| TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_ok())
    }
}

/// Prepares the data directories with Kafka's own tool, all at once.
pub(super) async fn format<'a>(
    plan: &Plan,
    nodes: impl Iterator<Item = &'a Broker>,
) -> Result<(), RigError> {
    let mut running = Vec::new();
    for broker in nodes {
        let mut command = java(&plan.libs, &plan.scratch, &TOOL_JAVA.map(str::to_owned));
        command.args(["kafka.tools.StorageTool", "format", "-t", &plan.cluster_id, "-c"]);
        command
            .arg(&broker.config)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut command = tokio::process::Command::from(command);
        running.push(command.kill_on_drop(true).spawn().map_err(RigError::io("run java"))?);
    }
    for tool in running {
        let output = tool.wait_with_output().await.map_err(RigError::io("wait for java"))?;
        if !output.status.success() {
            let said = [output.stdout, output.stderr].concat();
            return Err(RigError::Ended {
                program: "kafka.tools.StorageTool".to_owned(),
                status: output.status.to_string(),
                said: String::from_utf8_lossy(&said).into_owned(),
            });
        }
    }
    Ok(())
}

/// What a broker says of itself.
const LOG_LEVEL: &str = "-Dlog4j2.level=WARN";

/// Java with Kafka's class path; a class and its arguments are to follow.
pub(super) fn java(libs: &Path, scratch: &Path, options: &[String]) -> Command {
    let mut command = Command::new("java");
    command.args(options);
    command
        .args(class_archive(libs).map(|file| format!("-XX:SharedArchiveFile={}", file.display())));
    command.arg(LOG_LEVEL).arg(format!("-Djava.io.tmpdir={}", scratch.display()));
    command.arg("-cp").arg(class_path(libs));
    command
}

/// The newest file of classes that `tests/kafka/fetch` made; a Java that it is not of goes without it.
fn class_archive(libs: &Path) -> Option<PathBuf> {
    let files = fs::read_dir(libs.parent()?).ok()?.flatten();
    let archives = files.filter(|file| {
        let name = file.file_name();
        name.to_str().is_some_and(|name| name.starts_with("classes-") && name.ends_with(".jsa"))
    });
    let newest = archives.max_by_key(|file| file.metadata().and_then(|data| data.modified()).ok());
    newest.map(|file| file.path())
}

/// A cluster id as Kafka wants it: 16 bytes in 22 characters, of which the last holds two bits.
fn cluster_id() -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let letter =
        || LETTERS.get(rand::random_range(0..LETTERS.len())).copied().map_or('A', char::from);
    let mut id: String = (0..21).map(|_| letter()).collect();
    id.push('Q');
    id
}
