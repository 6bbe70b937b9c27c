//! A private PgBouncer in front of a cluster, in transaction mode: each transaction of a client gets
//! whichever server connection is free.
//!
//! Reads: the program that `tests/pgbouncer/fetch` has built. Gives: an address, and a pooler that dies
//! with this process.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::child::{Child, ChildSpec};
use crate::places::{self, RunAs, Scratch};
use crate::postgres::{Cluster, Wire};
use crate::{RigError, wait};

/// As `tests/pgbouncer/fetch` builds it; change both together.
const VERSION: &str = "1.24.1";
const START_MS_MAX: u64 = 20_000;

/// A running pooler. Dropping it kills it.
#[derive(Debug)]
pub struct Pooler {
    child: Child,
    port: u16,
    // After the program that writes there.
    _scratch: Scratch,
}

impl Pooler {
    /// Starts one whose clients share `connections` server connections; the file of settings is `settings`
    /// with `{server}`, `{port}` and `{connections}` filled in.
    ///
    /// # Errors
    /// `NotFound` where none was built, `Ended` with its words when it does not start.
    pub async fn start(
        cluster: &Cluster,
        connections: u16,
        settings: &str,
    ) -> Result<Self, RigError> {
        let program = program()?;
        let scratch = Scratch::new(None, "pooler")?;
        // It refuses to be root, too.
        let run_as = places::is_root().then_some(RunAs::NOBODY);
        let port = places::free_port()?;
        let text = settings
            .replace("{server}", &format!("host=127.0.0.1 port={} user=postgres", cluster.port()))
            .replace("{port}", &port.to_string())
            .replace("{connections}", &connections.to_string());
        let file = scratch.path().join("pgbouncer.ini");
        fs::write(&file, text).map_err(RigError::at("write", &file))?;
        let mut child = Child::spawn(&ChildSpec {
            program,
            args: vec![file.into()],
            dir: Some(scratch.path().to_path_buf()),
            log: scratch.path().join("pgbouncer.log"),
            run_as,
            remove: Some(scratch.path().to_path_buf()),
            ..ChildSpec::default()
        })?;
        let bound = Duration::from_millis(START_MS_MAX);
        wait::until("PgBouncer to listen", bound, || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
                || child.ended().is_ok_and(|ended| ended.is_some())
        })
        .await?;
        child.must_run()?;
        Ok(Self { child, port, _scratch: scratch })
    }

    /// `host:port`, as a proxy's target.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// What it logged last.
    #[must_use]
    pub fn said(&self) -> String {
        self.child.said()
    }

    /// A connection through it.
    ///
    /// # Errors
    /// `Io` when nobody answers.
    pub async fn connect(&self, database: &str) -> Result<Wire, RigError> {
        Wire::connect(&self.address(), "postgres", database).await
    }
}

fn program() -> Result<PathBuf, RigError> {
    let path = places::cache_dir().join(format!("pgbouncer-{VERSION}/pgbouncer"));
    if path.is_file() {
        return Ok(path);
    }
    let next = "run tests/pgbouncer/fetch";
    Err(RigError::NotFound { what: "PgBouncer", looked_in: vec![path], next })
}
