//! Where things of the rig lie: the cache of fetched servers, throwaway directories, free ports.
//!
//! Reads the environment (`ONCELY_CACHE`, `XDG_CACHE_HOME`, `HOME`, `PATH`), and nothing else does in
//! this crate. `tests/cache-dir` gives the same cache directory to the scripts; change both together.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::RigError;

/// Ports are taken from here: below the range from which Linux takes ports for outgoing connections,
/// so that a server that was stopped finds its port free when it is started again.
const PORTS: std::ops::Range<u16> = 15_000..32_000;

/// What has to be free in memory before files are put there: several times what the tests need.
const MEMORY_BYTES_MIN: u64 = 10 << 30;

/// Ports that a process takes for itself at once.
const BLOCK_PORTS: usize = 50;

/// How many ports are tried before giving up.
const PORT_TRIES_MAX: usize = 200;

/// A user and a group by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunAs {
    /// User id.
    pub user: u32,
    /// Group id.
    pub group: u32,
}

impl RunAs {
    /// `nobody` and `nogroup`, as Debian numbers them.
    pub const NOBODY: Self = Self { user: 65_534, group: 65_534 };
}

#[allow(clippy::disallowed_methods, reason = "the one place of the rig that reads the environment")]
pub(crate) fn environment(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Where fetched servers are kept: `ONCELY_CACHE`, else `/var/cache/oncely` for root (whose home others
/// cannot read, and PostgreSQL refuses to run as root), else `oncely` in the user's cache directory.
#[must_use]
pub fn cache_dir() -> PathBuf {
    if let Some(dir) = environment("ONCELY_CACHE") {
        return PathBuf::from(dir);
    }
    if is_root() {
        return PathBuf::from("/var/cache/oncely");
    }
    if let Some(dir) = environment("XDG_CACHE_HOME") {
        return PathBuf::from(dir).join("oncely");
    }
    environment("HOME").map_or_else(env::temp_dir, PathBuf::from).join(".cache/oncely")
}

/// Where files lie in memory, if there is plenty of it: tests whose data nobody needs after a crash of the machine wait
/// for no disk there.
#[must_use]
pub fn memory_dir() -> Option<PathBuf> {
    let dir = Path::new("/dev/shm");
    let room = rustix::fs::statvfs(dir).ok()?;
    let room = room.f_bavail.saturating_mul(room.f_frsize);
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let available = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let available: u64 = available.trim().strip_suffix(" kB")?.parse().ok()?;
    let plenty = room.min(available.saturating_mul(1024)) >= MEMORY_BYTES_MIN;
    plenty.then(|| dir.to_path_buf())
}

/// The directories of `PATH`.
pub(crate) fn path_dirs() -> Vec<PathBuf> {
    environment("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default()
}

/// Whether this process runs as root.
#[must_use]
pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Whether somebody who is neither owner nor in the group can enter every directory down to `path`.
pub(crate) fn open_to_others(path: &Path) -> bool {
    path.ancestors()
        .all(|dir| fs::metadata(dir).is_ok_and(|found| found.permissions().mode() & 0o001 != 0))
}

/// A port on 127.0.0.1 that nobody listens on at this moment, and that no other process of the rig is
/// given while this one lives.
///
/// # Errors
/// `NoFreePort` after many tries.
pub fn free_port() -> Result<u16, RigError> {
    static OWN: Mutex<OwnPorts> = Mutex::new(OwnPorts { blocks: Vec::new(), left: Vec::new() });
    let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..PORT_TRIES_MAX {
        let Some(port) = own.next() else { continue };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(RigError::NoFreePort { from: PORTS.start, to: PORTS.end })
}

/// The ports of this process. Between looking for a free port and listening there somebody else could take
/// it; so each process has blocks of its own, and gives each port out once.
struct OwnPorts {
    /// Names that only one process of the machine can have; they go with it.
    blocks: Vec<UnixListener>,
    /// Not given out yet.
    left: Vec<u16>,
}

impl OwnPorts {
    /// `None`: the block that was tried is somebody else's.
    fn next(&mut self) -> Option<u16> {
        if self.left.is_empty() {
            let mut blocks = PORTS.step_by(BLOCK_PORTS);
            let first = blocks.nth(rand::random_range(0..blocks.len()))?;
            let name = SocketAddr::from_abstract_name(format!("oncely-ports-{first}")).ok()?;
            self.blocks.push(UnixListener::bind_addr(&name).ok()?);
            self.left = (first..PORTS.end).take(BLOCK_PORTS).collect();
        }
        self.left.pop()
    }
}

/// A throwaway directory, removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes `oncely-NAME-…` in `base`, or in the system's directory for temporary files.
    ///
    /// # Errors
    /// `Io` when the directory cannot be made.
    pub fn new(base: Option<&Path>, name: &str) -> Result<Self, RigError> {
        let base = base.map_or_else(env::temp_dir, Path::to_path_buf);
        let path = base.join(format!("oncely-{name}-{:016x}", rand::random::<u64>()));
        fs::create_dir_all(&path).map_err(RigError::at("make the directory", &path))?;
        Ok(Self { path })
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the directory to another user and closes it to the rest.
    pub(crate) fn give_to(&self, owner: Option<RunAs>) -> Result<(), RigError> {
        if let Some(owner) = owner {
            std::os::unix::fs::chown(&self.path, Some(owner.user), Some(owner.group))
                .map_err(RigError::at("give away", &self.path))?;
        }
        fs::set_permissions(&self.path, fs::Permissions::from_mode(0o700))
            .map_err(RigError::at("close to others", &self.path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Best effort: a directory that somebody else removed first is gone as well.
        drop(fs::remove_dir_all(&self.path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_directory_goes_when_dropped() {
        let scratch = Scratch::new(None, "place").unwrap();
        let path = scratch.path().to_path_buf();
        fs::write(path.join("file"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn a_port_is_given_out_once() {
        let ports: Vec<u16> = (0..120).map(|_| free_port().unwrap()).collect();
        let distinct: std::collections::BTreeSet<_> = ports.iter().collect();
        assert_eq!(distinct.len(), ports.len());
        assert!(ports.iter().all(|port| PORTS.contains(port)));
    }

    #[test]
    fn a_closed_ancestor_closes_all_below() {
        let scratch = Scratch::new(None, "closed").unwrap();
        let inner = scratch.path().join("inner");
        fs::create_dir(&inner).unwrap();
        assert!(open_to_others(&inner));
        scratch.give_to(None).unwrap();
        assert!(!open_to_others(&inner));
    }
}
