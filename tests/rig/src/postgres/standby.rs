//! A second cluster that follows a first one, and can take over.
//!
//! Reads: a running cluster, copied while it runs between the two calls that PostgreSQL has for that.
//! Gives: a hot standby with asynchronous replication; what it has not received is lost when it takes over.

use std::fs;
use std::process::Command;
use std::time::Duration;

use super::{Cluster, USER};
use crate::places::{self, Scratch};
use crate::{RigError, clock, wait};

/// How long a standby may take to become a primary.
const PROMOTE_S_MAX: u64 = 60;

impl Cluster {
    /// Starts a standby of this cluster, with its settings and `settings`. It receives from `port` on
    /// 127.0.0.1, that of a proxy, or from the cluster itself.
    ///
    /// # Errors
    /// As `start`; `Sql` when the cluster cannot be copied.
    pub async fn start_standby(
        &self,
        port: Option<u16>,
        settings: &[(&str, &str)],
    ) -> Result<Self, RigError> {
        let base = self.scratch.path().parent();
        let scratch = Scratch::new(base, "standby")?;
        scratch.give_to(self.run_as)?;
        let data = scratch.path().join("data");
        let mut wire = self.connect("postgres").await?;
        wire.run("SELECT pg_backup_start('standby', true)").await?;
        copy(&self.data_dir(), &data)?;
        let label = wire.value("SELECT labelfile FROM pg_backup_stop(false)").await?;
        // The copied log has holes: it starts where the label says, from what the primary sends.
        remove(&data.join("postmaster.pid"))?;
        for (name, text) in [("backup_label", label.as_str()), ("standby.signal", "")] {
            let path = data.join(name);
            fs::write(&path, text).map_err(RigError::at("write", &path))?;
            if let Some(owner) = self.run_as {
                std::os::unix::fs::chown(&path, Some(owner.user), Some(owner.group))
                    .map_err(RigError::at("give away", &path))?;
            }
        }
        let from = port.unwrap_or(self.port);
        let mut all = self.settings.clone();
        all.push((
            "primary_conninfo".to_owned(),
            format!("host=127.0.0.1 port={from} user={USER} application_name=standby"),
        ));
        // After a broken connection it asks again soon.
        all.push(("wal_retrieve_retry_interval".to_owned(), "100ms".to_owned()));
        all.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let mut standby = Self {
            binaries: self.binaries.clone(),
            run_as: self.run_as,
            settings: all,
            port: places::free_port()?,
            server: None,
            scratch,
            disk: None,
        };
        standby.start_again().await?;
        Ok(standby)
    }

    /// Makes a standby the primary; it takes writes when this returns.
    ///
    /// # Errors
    /// `Sql` when it is no standby, `Unexpected` when it did not become one in time.
    pub async fn promote(&self) -> Result<(), RigError> {
        let statement = format!("SELECT pg_promote(true, {PROMOTE_S_MAX})");
        let promoted = self.connect("postgres").await?.value(&statement).await?;
        if promoted == "t" {
            return Ok(());
        }
        Err(RigError::Unexpected(format!(
            "the standby is none after {PROMOTE_S_MAX} s of promotion"
        )))
    }

    /// Moves to the port of a server that is gone, as an address that leads to whoever is the primary.
    ///
    /// # Errors
    /// As `stop_fast` and `start_again`.
    pub async fn move_to(&mut self, port: u16) -> Result<(), RigError> {
        self.stop_fast().await?;
        self.port = port;
        self.start_again().await
    }

    /// Waits until a standby has applied all that is committed here.
    ///
    /// # Errors
    /// `TimedOut` when none has within `bound`.
    pub async fn wait_standby(&self, bound: Duration) -> Result<(), RigError> {
        let mut wire = self.connect("postgres").await?;
        let here = wire.value("SELECT pg_current_wal_insert_lsn()").await?;
        let lag = format!(
            "SELECT count(*) FILTER (WHERE replay_lsn >= '{here}'), count(*) FROM pg_stat_replication"
        );
        let start = clock::now();
        loop {
            let rows = wire.run(&lag).await?;
            let counts: Vec<&str> = rows.iter().flatten().flatten().map(String::as_str).collect();
            if counts.first().is_some_and(|count| *count != "0") {
                return Ok(());
            }
            if clock::since(start) >= bound {
                let what = format!("a standby at {here}");
                let seen = format!("{} standbys behind it", counts.get(1).unwrap_or(&"no"));
                return Err(RigError::TimedOut { what, bound, seen });
            }
            tokio::time::sleep(Duration::from_millis(wait::LOOK_EVERY_MS)).await;
        }
    }
}

// ----------------------------------------------------------------------------------------------------

fn copy(from: &std::path::Path, to: &std::path::Path) -> Result<(), RigError> {
    // Files that come and go while the server runs are none that a backup needs; `cp` complains all the
    // same, so what counts is whether the copy can be started.
    let done = Command::new("cp").arg("-a").arg(from).arg(to).output();
    done.map(drop).map_err(RigError::at("copy", from))
}

fn remove(path: &std::path::Path) -> Result<(), RigError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(RigError::at("remove", path)(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
