//! A disk of a few megabytes, which can be filled up and freed again.
//!
//! Gives: a tmpfs of its own under a throwaway directory, unmounted when dropped. Mounting is root's; any
//! other user needs `sudo` that does not ask.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::RigError;
use crate::places::{self, RunAs, Scratch};

/// Bytes of one write of ballast; what is left is smaller than a table's page.
const CHUNK: [u8; 4_096] = [0; 4_096];

/// A mounted disk.
#[derive(Debug)]
pub struct SmallDisk {
    scratch: Scratch,
}

impl SmallDisk {
    /// Mounts a disk of so many bytes that belongs to `owner`, or to this process's user.
    ///
    /// # Errors
    /// `Ended` with the words of `mount`, where nobody may.
    pub fn mount(bytes: u64, owner: Option<RunAs>) -> Result<Self, RigError> {
        let scratch = Scratch::new(None, "disk")?;
        let own = RunAs {
            user: rustix::process::getuid().as_raw(),
            group: rustix::process::getgid().as_raw(),
        };
        let RunAs { user, group } = owner.unwrap_or(own);
        let options = format!("size={bytes},mode=0700,uid={user},gid={group}");
        let path = scratch.path().display().to_string();
        as_root(&["mount", "-t", "tmpfs", "-o", &options, "oncely", &path])?;
        Ok(Self { scratch })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// Writes until nothing more fits.
    ///
    /// # Errors
    /// `Io` when something else is wrong.
    pub fn fill(&self) -> Result<(), RigError> {
        let path = self.ballast();
        let mut file = File::create(&path).map_err(RigError::at("make", &path))?;
        loop {
            match file.write_all(&CHUNK) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(RigError::at("fill", &path)(error)),
            }
        }
    }

    /// Takes away what [`SmallDisk::fill`] has written.
    ///
    /// # Errors
    /// `Io` when the system refuses.
    pub fn free(&self) -> Result<(), RigError> {
        let path = self.ballast();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(RigError::at("remove", &path)(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a server that is just being killed may still be in there.
        drop(as_root(&["umount", "-l", &self.path().display().to_string()]));
    }
}

fn as_root(words: &[&str]) -> Result<(), RigError> {
    let sudo: &[&str] = if places::is_root() { &[] } else { &["sudo", "-n"] };
    let mut all = sudo.iter().chain(words);
    let program = all.next().copied().unwrap_or_default();
    let output = Command::new(program).args(all).output();
    let output = output.map_err(RigError::io(format!("run {program}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(RigError::Ended {
        program: words.join(" "),
        status: output.status.to_string(),
        said: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fills_up_and_is_free_again_and_goes_when_dropped() {
        let disk = SmallDisk::mount(1 << 20, None).unwrap();
        let path = disk.path().to_path_buf();
        fs::write(path.join("first"), [1; 8_192]).unwrap();
        disk.fill().unwrap();
        let full = fs::write(path.join("second"), [2; 8_192]).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        assert_eq!(fs::read(path.join("first")).unwrap().len(), 8_192);
        disk.free().unwrap();
        disk.free().unwrap();
        fs::write(path.join("second"), [2; 8_192]).unwrap();
        drop(disk);
        assert!(!path.exists());
    }
}
