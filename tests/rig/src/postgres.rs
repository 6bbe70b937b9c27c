//! A private, throwaway PostgreSQL cluster.
//!
//! Reads: binaries that are on this machine already (see [`Binaries::find`]). Gives: a running server
//! with a port, a socket and a data directory of its own, which can be stopped hard, frozen and started
//! again. Never touches a server that is not its own, installs nothing, and leaves nothing behind.

mod binaries;
mod standby;
mod wire;

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

pub use binaries::Binaries;
pub use wire::{Row, Wire};

use crate::child::{Child, ChildSpec, Signal};
use crate::disk::SmallDisk;
use crate::places::{self, RunAs, Scratch};
use crate::{RigError, wait};

/// How long a server may take until it accepts connections; recovery after a crash is part of it.
const START_MS_MAX: u64 = 60_000;
/// How long a server may take to end when asked to.
const STOP_MS_MAX: u64 = 30_000;
/// Longest directory in which a Unix socket still fits (the system's limit is 107 with the name).
const SOCKET_DIR_BYTES_MAX: usize = 85;
/// The only user of a cluster; it needs no password on 127.0.0.1.
const USER: &str = "postgres";
/// Where tables lie on a disk of their own.
const TABLESPACE: &str = "small";

/// How a cluster is made. The default is PostgreSQL's own defaults.
#[derive(Debug, Clone, Default)]
pub struct PostgresOptions {
    /// Directory with `initdb` and `postgres`; without one they are looked for.
    pub bin_dir: Option<PathBuf>,
    /// Directory in which the data directory is made, for example on a tmpfs; without one, the
    /// system's directory for temporary files.
    pub base_dir: Option<PathBuf>,
    /// Settings as in `postgresql.conf`; the later of two wins.
    pub settings: Vec<(String, String)>,
    /// Tables and indexes lie on a disk of so many bytes, which can be filled up; the log does not.
    pub small_disk: Option<u64>,
}

impl PostgresOptions {
    /// For tests: nothing is flushed to disk, or lies there at all where memory is plenty, which a killed server
    /// survives and a lost machine does not.
    #[must_use]
    pub fn quick() -> Self {
        Self { base_dir: places::memory_dir(), ..Self::default() }
            .with("fsync", "off")
            .with("full_page_writes", "off")
            .with("max_connections", "200")
    }

    /// Adds a setting.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// A running cluster. Dropping it kills the server and removes its files.
#[derive(Debug)]
pub struct Cluster {
    binaries: Binaries,
    run_as: Option<RunAs>,
    settings: Vec<(String, String)>,
    port: u16,
    server: Option<Child>,
    // After the server, so that it is dropped when nobody writes there any more.
    scratch: Scratch,
    disk: Option<SmallDisk>,
}

impl Cluster {
    /// Makes a cluster and starts it; ready when this returns. About a second.
    ///
    /// # Errors
    /// `NotFound` when there are no binaries, `Ended` with the server's words when it does not start.
    pub async fn start(options: &PostgresOptions) -> Result<Self, RigError> {
        let run_as = places::is_root().then_some(RunAs::NOBODY);
        let scratch = Scratch::new(options.base_dir.as_deref(), "postgres")?;
        let base = scratch.path().parent().unwrap_or(scratch.path());
        if run_as.is_some() && !places::open_to_others(base) {
            return Err(RigError::Unexpected(format!(
                "{} cannot be entered by the user that PostgreSQL runs as; give another directory",
                base.display()
            )));
        }
        let found = Binaries::find(options.bin_dir.as_deref())?;
        let binaries = found.readable_by(run_as, scratch.path())?;
        scratch.give_to(run_as)?;
        initdb(&binaries, run_as, scratch.path()).await?;
        let port = places::free_port()?;
        let mut settings = options.settings.clone();
        let disk = options.small_disk.map(|bytes| SmallDisk::mount(bytes, run_as)).transpose()?;
        if disk.is_some() {
            settings.push(("default_tablespace".to_owned(), TABLESPACE.to_owned()));
        }
        let mut cluster = Self { binaries, run_as, settings, port, server: None, scratch, disk };
        cluster.start_again().await?;
        if let Some(disk) = &cluster.disk {
            let place = disk.path().display();
            let statement = format!("CREATE TABLESPACE {TABLESPACE} LOCATION '{place}'");
            cluster.connect("postgres").await?.run(&statement).await?;
        }
        Ok(cluster)
    }

    /// The disk that its tables lie on, where [`PostgresOptions::small_disk`] asked for one.
    #[must_use]
    pub const fn disk(&self) -> Option<&SmallDisk> {
        self.disk.as_ref()
    }

    /// Where to connect: `postgres://postgres@127.0.0.1:PORT/DATABASE`.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port)
    }

    /// The port on 127.0.0.1; the same for the whole life of the cluster.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `host:port`, as a proxy's target.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The data directory.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.scratch.path().join("data")
    }

    /// The directory that the binaries in use are in.
    #[must_use]
    pub fn bin_dir(&self) -> &Path {
        self.binaries.dir()
    }

    /// The process id of the server; `None` while it is stopped.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(Child::pid)
    }

    /// The last lines of the server's log.
    #[must_use]
    pub fn said(&self) -> String {
        crate::child::tail(&self.log())
    }

    /// A connection for a few statements of the rig's own.
    ///
    /// # Errors
    /// `Io` when nobody answers, `Sql` when the server refuses.
    pub async fn connect(&self, database: &str) -> Result<Wire, RigError> {
        Wire::connect(&self.address(), USER, database).await
    }

    /// Makes a database.
    ///
    /// # Errors
    /// `Sql` when there is one of that name.
    pub async fn create_database(&self, name: &str) -> Result<(), RigError> {
        let statement = format!("CREATE DATABASE \"{}\"", name.replace('"', "\"\""));
        self.connect("postgres").await?.run(&statement).await.map(drop)
    }

    /// Makes a database that begins as a copy of `template`, to which nobody may be connected.
    ///
    /// # Errors
    /// `Sql` when there is one of that name, or no such template.
    pub async fn copy_database(&self, template: &str, name: &str) -> Result<(), RigError> {
        let quoted = |name: &str| name.replace('"', "\"\"");
        let (name, template) = (quoted(name), quoted(template));
        // File by file, which for a small one costs half of what writing it through the log does.
        let statement =
            format!("CREATE DATABASE \"{name}\" TEMPLATE \"{template}\" STRATEGY file_copy");
        self.connect("postgres").await?.run(&statement).await.map(drop)
    }

    /// Removes a database; who is connected to it is thrown out.
    ///
    /// # Errors
    /// `Sql` when there is none of that name.
    pub async fn drop_database(&self, name: &str) -> Result<(), RigError> {
        let statement = format!("DROP DATABASE \"{}\" WITH (FORCE)", name.replace('"', "\"\""));
        self.connect("postgres").await?.run(&statement).await.map(drop)
    }

    /// Stops the server at once, without a checkpoint (SIGQUIT); the next start recovers.
    ///
    /// # Errors
    /// `TimedOut` when it does not end.
    pub async fn stop_immediate(&mut self) -> Result<(), RigError> {
        self.stop(Signal::Quit).await
    }

    /// Stops the server after it has rolled back what is open and written a checkpoint (SIGINT).
    ///
    /// # Errors
    /// `TimedOut` when it does not end.
    pub async fn stop_fast(&mut self) -> Result<(), RigError> {
        self.stop(Signal::Interrupt).await
    }

    /// Kills the server and its backends (SIGKILL).
    ///
    /// # Errors
    /// `TimedOut` when it does not end.
    pub async fn kill(&mut self) -> Result<(), RigError> {
        if let Some(mut server) = self.server.take() {
            server.kill().await?;
        }
        Ok(())
    }

    /// Starts a stopped server on the same port, with the same data. Does nothing when it runs.
    ///
    /// # Errors
    /// `Ended` with the server's words when it does not start.
    pub async fn start_again(&mut self) -> Result<(), RigError> {
        if let Some(server) = &mut self.server
            && server.ended()?.is_none()
        {
            return Ok(());
        }
        let server = self.server.insert(Child::spawn(&self.spec())?);
        let ready = self.scratch.path().join("data/postmaster.pid");
        let bound = Duration::from_millis(START_MS_MAX);
        let pid = server.pid();
        wait::until("PostgreSQL to accept connections", bound, || {
            is_ready(&ready, pid) || server.ended().is_ok_and(|ended| ended.is_some())
        })
        .await?;
        server.must_run()
    }

    /// Adds settings; they count from the next start.
    pub fn change(&mut self, name: &str, value: &str) {
        self.settings.push((name.to_owned(), value.to_owned()));
    }

    /// Freezes the server and every backend (SIGSTOP): connections stay open and nobody answers.
    ///
    /// # Errors
    /// `Io` when the system refuses.
    pub fn pause(&mut self) -> Result<(), RigError> {
        self.signal_all(Signal::Stop)
    }

    /// Lets a frozen server go on (SIGCONT).
    ///
    /// # Errors
    /// `Io` when the system refuses.
    pub fn resume(&mut self) -> Result<(), RigError> {
        self.signal_all(Signal::Continue)
    }

    fn signal_all(&mut self, signal: Signal) -> Result<(), RigError> {
        self.server.as_mut().map_or(Ok(()), |server| server.signal_all(signal))
    }

    async fn stop(&mut self, signal: Signal) -> Result<(), RigError> {
        if let Some(mut server) = self.server.take() {
            server.signal(signal)?;
            server.wait(Duration::from_millis(STOP_MS_MAX)).await?;
        }
        Ok(())
    }

    fn log(&self) -> PathBuf {
        self.scratch.path().join("server.log")
    }

    fn spec(&self) -> ChildSpec {
        let scratch = self.scratch.path();
        let sockets =
            if scratch.as_os_str().len() <= SOCKET_DIR_BYTES_MAX { scratch } else { Path::new("") };
        let mut args: Vec<OsString> = vec!["-D".into(), self.data_dir().into()];
        args.extend(["-k".into(), sockets.into()]);
        args.extend(["-p".into(), self.port.to_string().into()]);
        args.extend(["-c".into(), "listen_addresses=127.0.0.1".into()]);
        // Shared memory in its own directory goes with it; the system's stays behind a server that was killed.
        args.extend(["-c".into(), "dynamic_shared_memory_type=mmap".into()]);
        for (name, value) in &self.settings {
            args.extend(["-c".into(), format!("{name}={value}").into()]);
        }
        let mut env: Vec<(OsString, OsString)> = vec![("TZ".into(), "UTC".into())];
        env.extend(self.binaries.library_path().map(|path| ("LD_LIBRARY_PATH".into(), path)));
        ChildSpec {
            program: self.binaries.postgres(),
            args,
            env,
            unset: Vec::new(),
            dir: Some(scratch.to_path_buf()),
            log: self.log(),
            run_as: self.run_as,
            remove: Some(scratch.to_path_buf()),
        }
    }
}

// ----------------------------------------------------------------------------------------------------

/// The server writes its state into the lock file: the first line is its process id, the eighth says
/// `ready` once it accepts connections. That is what `pg_ctl` looks at, too.
fn is_ready(lock_file: &Path, pid: u32) -> bool {
    let Ok(text) = fs::read_to_string(lock_file) else { return false };
    let mut lines = text.lines().map(str::trim);
    lines.next() == Some(pid.to_string().as_str()) && lines.nth(6) == Some("ready")
}

async fn initdb(
    binaries: &Binaries,
    run_as: Option<RunAs>,
    scratch: &Path,
) -> Result<(), RigError> {
    let mut command = Command::new(binaries.initdb());
    command.args(["--no-sync", "--no-instructions", "--no-locale", "-E", "UTF8"]);
    command.args(["-A", "trust", "-U", USER, "-D"]).arg(scratch.join("data"));
    command.current_dir(scratch).stdin(Stdio::null());
    if let Some(run_as) = run_as {
        command.uid(run_as.user).gid(run_as.group);
    }
    command.envs(binaries.library_path().map(|path| ("LD_LIBRARY_PATH", path)));
    let output = tokio::process::Command::from(command).kill_on_drop(true).output().await;
    let output = output.map_err(RigError::at("run", &binaries.initdb()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(RigError::Ended {
        program: "initdb".to_owned(),
        status: output.status.to_string(),
        said: String::from_utf8_lossy(&said).into_owned(),
    })
}
