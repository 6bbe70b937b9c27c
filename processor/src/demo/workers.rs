//! Worker processes of the demo: this same program, run as `oncely run`.
//!
//! Keeps true: they end with the demo, in whatever way it ends, and so do the files.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use oncely_rig::child::{Child, ChildSpec, Signal};
use oncely_rig::places;

use super::Options;
use super::error::DemoError;
use super::world::{INSIDE_SESSION, REAL_SESSION, World, client_settings, server};
use crate::config::Environment;

/// How long a worker may take to end when asked to.
const STOP_MAX: Duration = Duration::from_secs(15);
/// A worker that is silent for so long is declared dead.
const LEASE: Duration = Duration::from_millis(2_500);

/// A running worker.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) name: String,
    /// Where its metrics and its health are served.
    pub(super) http: String,
    child: Child,
}

/// The workers that are to run at this moment.
#[derive(Debug)]
pub(super) struct Workers {
    program: PathBuf,
    env: Vec<(OsString, OsString)>,
    unset: Vec<OsString>,
    dir: PathBuf,
    run: String,
    started: u32,
    running: Vec<Worker>,
}

impl Workers {
    /// None yet; all will get the same settings.
    pub(super) fn new(options: &Options, world: &World) -> Self {
        let unset = Environment::of_process();
        let unset = unset.beginning("ONCELY_").map(|(name, _)| format!("ONCELY_{name}").into());
        Self {
            program: options.program.clone(),
            env: settings(options, world)
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            unset: unset.collect(),
            dir: world.scratch.path().to_path_buf(),
            run: world.run.clone(),
            started: 0,
            running: Vec::new(),
        }
    }

    /// Starts one more; gives its name.
    pub(super) fn start(&mut self) -> Result<String, DemoError> {
        self.started = self.started.saturating_add(1);
        let name = format!("worker-{}", self.started);
        let port = places::free_port().map_err(server("a port"))?;
        let mut env = self.env.clone();
        env.push(("HOSTNAME".into(), self.host(&name).into()));
        let http = format!("127.0.0.1:{port}");
        env.push(("ONCELY_HTTP_LISTEN".into(), (&http).into()));
        let spec = ChildSpec {
            program: self.program.clone(),
            args: vec!["run".into()],
            env,
            unset: self.unset.clone(),
            log: self.dir.join(format!("{name}.log")),
            remove: Some(self.dir.clone()),
            ..ChildSpec::default()
        };
        let child = Child::spawn(&spec).map_err(server("a worker"))?;
        self.running.push(Worker { name: name.clone(), http, child });
        Ok(name)
    }

    /// What a worker calls its machine: by that its row in the database is found.
    pub(super) fn host(&self, worker: &str) -> String {
        format!("oncely-demo-{}-{worker}", self.run)
    }

    /// Those that run.
    pub(super) fn running(&self) -> &[Worker] {
        &self.running
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.running.iter().map(|worker| worker.name.clone()).collect()
    }

    /// SIGKILL.
    pub(super) async fn kill(&mut self, name: &str) -> Result<(), DemoError> {
        let Some(place) = self.running.iter().position(|worker| worker.name == name) else {
            return Ok(());
        };
        let mut worker = self.running.swap_remove(place);
        worker.child.kill().await.map(drop).map_err(server("a killed worker"))
    }

    /// A worker that ended by itself is the end of the demo.
    pub(super) fn must_run(&mut self) -> Result<(), DemoError> {
        for worker in &mut self.running {
            if worker.child.ended().map_err(server("a worker"))?.is_some() {
                return Err(DemoError::WorkerEnded {
                    worker: worker.name.clone(),
                    said: worker.child.said(),
                });
            }
        }
        Ok(())
    }

    /// Asks all to end, and waits for it.
    pub(super) async fn stop(&mut self) -> Result<(), DemoError> {
        for worker in &mut self.running {
            worker.child.signal(Signal::Terminate).map_err(server("a worker"))?;
        }
        for mut worker in std::mem::take(&mut self.running) {
            let ended = worker.child.wait(STOP_MAX).await.map_err(server("a stopping worker"))?;
            if !ended.success() {
                let said = worker.child.said();
                return Err(DemoError::WorkerEnded { worker: worker.name, said });
            }
        }
        Ok(())
    }
}

/// The environment by which workers, and the commands of a person, find everything.
pub(super) fn settings(options: &Options, world: &World) -> Vec<(String, String)> {
    let path = |path: PathBuf| path.display().to_string();
    let ms = |duration: Duration| format!("{}ms", duration.as_millis());
    let session = if world.is_inside() { INSIDE_SESSION } else { REAL_SESSION };
    let own = [
        ("ONCELY_DATABASE_URL", world.database_url.clone()),
        ("ONCELY_KAFKA_BROKERS", world.client.brokers().to_owned()),
        ("ONCELY_CONNECTORS", path(world.connectors_dir())),
        ("ONCELY_SECRETS_DIR", path(world.secrets_dir())),
        ("ONCELY_LEASE", ms(LEASE)),
        ("ONCELY_HEARTBEAT", "500ms".to_owned()),
        ("ONCELY_DRAIN", "1500ms".to_owned()),
        ("ONCELY_SHUTDOWN_GRACE", "5s".to_owned()),
        ("ONCELY_KAFKA_SESSION_TIMEOUT", ms(session)),
        ("ONCELY_KAFKA_HEARTBEAT", "500ms".to_owned()),
        ("ONCELY_LOG", "info".to_owned()),
        ("ONCELY_LOG_FORMAT", "text".to_owned()),
        ("ONCELY_LOG_BUSINESS_ID", "plain".to_owned()),
    ];
    let mut all: Vec<(String, String)> =
        own.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    if world.is_inside() {
        // The broker inside knows no other way to share partitions out.
        all.push(("ONCELY_KAFKA_ASSIGNOR".to_owned(), "range".to_owned()));
    } else {
        all.extend(client_settings(&options.environment));
    }
    all
}
