//! Finds PostgreSQL's own programs on this machine.
//!
//! Reads: the cache of fetched servers, `PATH`, and the directories of Debian's packages.
//! Gives: a directory with `initdb` and `postgres`. Downloads nothing: `tests/postgres/fetch` does.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::RigError;
use crate::places::{self, RunAs};

/// The release that `tests/postgres/fetch` brings, and its directory in the cache.
const FETCHED: &str = "postgres-18.1.0";

/// Where Debian's packages put one directory for each major version.
const PACKAGED: &str = "/usr/lib/postgresql";

/// A directory with PostgreSQL's programs.
#[derive(Debug, Clone)]
pub struct Binaries {
    dir: PathBuf,
}

impl Binaries {
    /// Looks in: `asked` and nowhere else when given; the cache; `PATH`; Debian's packages, newest first.
    ///
    /// # Errors
    /// `NotFound` with every place that was looked at.
    pub fn find(asked: Option<&Path>) -> Result<Self, RigError> {
        let places = asked.map_or_else(usual_places, |dir| vec![dir.to_path_buf()]);
        let found = places.iter().find(|dir| is_complete(dir)).cloned();
        found.map(|dir| Self { dir }).ok_or(RigError::NotFound {
            what: "PostgreSQL (initdb and postgres)",
            looked_in: places,
            next: "run tests/postgres/fetch, or install Debian's package postgresql",
        })
    }

    /// The newest of Debian's packages on this machine, if any.
    #[must_use]
    pub fn packaged() -> Option<Self> {
        packaged_dirs().into_iter().find(|dir| is_complete(dir)).map(|dir| Self { dir })
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn postgres(&self) -> PathBuf {
        self.dir.join("postgres")
    }

    pub(super) fn initdb(&self) -> PathBuf {
        self.dir.join("initdb")
    }

    /// Where a package that was only unpacked (`tests/postgres/fetch-distribution`) has its libraries.
    pub(super) fn library_path(&self) -> Option<OsString> {
        let tree = self.dir.ancestors().nth(5).filter(|tree| tree.parent().is_some())?;
        let packaged = self.dir.starts_with(tree.join("usr/lib/postgresql"));
        let libraries = tree.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
        packaged.then(|| libraries.into_os_string())
    }

    /// The same programs where `user` can read them: here, or else copied into `scratch` (60 MB).
    pub(super) fn readable_by(self, user: Option<RunAs>, scratch: &Path) -> Result<Self, RigError> {
        let real = fs::canonicalize(self.postgres())
            .map_err(RigError::at("find the real", &self.postgres()))?;
        if user.is_some() && !places::open_to_others(&real) {
            return self.copied(&real, scratch);
        }
        // A link on PATH (/usr/bin/postgres) is followed: initdb looks for its files from there.
        let bin = real.parent().filter(|bin| is_complete(bin)).map(Path::to_path_buf);
        Ok(bin.map_or(self, |dir| Self { dir }))
    }

    fn copied(&self, real: &Path, scratch: &Path) -> Result<Self, RigError> {
        let tree = real.parent().and_then(Path::parent).unwrap_or(&self.dir);
        let copy = scratch.join("binaries");
        let done = Command::new("cp").arg("-a").arg(tree).arg(&copy).status();
        let done = done.map_err(RigError::at("copy", tree))?;
        let opened = Command::new("chmod").args(["-R", "a+rX"]).arg(&copy).status();
        let opened = opened.map_err(RigError::at("open to others", &copy))?;
        if done.success() && opened.success() {
            return Ok(Self { dir: copy.join("bin") });
        }
        Err(RigError::Unexpected(format!(
            "PostgreSQL in {} cannot be read by the user it has to run as, nor copied to {}; \
             set ONCELY_CACHE to a directory that everybody can read",
            tree.display(),
            copy.display()
        )))
    }
}

fn usual_places() -> Vec<PathBuf> {
    let mut places = vec![places::cache_dir().join(FETCHED).join("bin")];
    places.extend(places::path_dirs());
    places.extend(packaged_dirs());
    places
}

fn packaged_dirs() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(PACKAGED) else { return Vec::new() };
    let mut versions: Vec<(u32, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin")))
        })
        .collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    versions.into_iter().map(|(_, dir)| dir).collect()
}

fn is_complete(dir: &Path) -> bool {
    dir.join("initdb").is_file() && dir.join("postgres").is_file()
}
