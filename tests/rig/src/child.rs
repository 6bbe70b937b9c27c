//! A program that dies with the program that started it.
//!
//! Reads: what to run. Gives: a [`Child`] that can be signalled, waited for, frozen and killed.
//! Keeps true: when the starting process ends, in whatever way (SIGKILL too), the child and its own
//! children are killed and the directory named in the spec is removed. A small shell beside each child
//! holds the reading end of a pipe; when the pipe closes without a word, it kills and tidies up.
//! The child itself waits for a word on a pipe of its own before it becomes the program, so that there
//! is no moment in which it runs unwatched.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Pid;

use crate::places::RunAs;
use crate::{RigError, clock, wait};

/// Waits to be watched, then becomes the program.
const GATE: &str = r#"IFS= read -r word || exit 1; exec "$@" </dev/null"#;

/// Waits for its word or for the end of the starting process. `$1` is the child, `$2` the directory.
const WATCHDOG: &str = r#"
trap '' HUP INT TERM
if IFS= read -r word; then exit 0; fi
exec 2>/dev/null
children() {
    for stat in /proc/[0-9]*/stat; do
        IFS= read -r line <"$stat" || continue
        pid=${line%% *}
        rest=${line##*) }
        rest=${rest#* }
        [ "${rest%% *}" = "$1" ] && echo "$pid"
    done
}
kill -s STOP "$1"
kill -s KILL $(children "$1") "$1"
kill -s KILL -- "-$1"
[ -n "$2" ] || exit 0
for try in 1 2 3 4 5; do rm -rf -- "$2" && exit 0; sleep 0.2; done
"#;

/// How long a program may take to end after SIGKILL, in milliseconds.
const KILL_MS_MAX: u64 = 10_000;

/// How many bytes of a program's output an error shows.
const SAID_BYTES_MAX: usize = 4_000;

/// What to run, and how.
#[derive(Debug, Clone, Default)]
pub struct ChildSpec {
    /// The program: a path, or a name found on `PATH`.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables added to the environment.
    pub env: Vec<(OsString, OsString)>,
    /// Variables of this process that the program does not inherit.
    pub unset: Vec<OsString>,
    /// Its working directory; without one, that of this process.
    pub dir: Option<PathBuf>,
    /// File that its output and errors are added to.
    pub log: PathBuf,
    /// The user it runs as; without one, the same as this process.
    pub run_as: Option<RunAs>,
    /// Removed after the child was killed because this process ended; otherwise it stays.
    pub remove: Option<PathBuf>,
}

/// The signals that the rig sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM
    Terminate,
    /// SIGINT
    Interrupt,
    /// SIGQUIT
    Quit,
    /// SIGKILL
    Kill,
    /// SIGSTOP
    Stop,
    /// SIGCONT
    Continue,
    /// SIGHUP
    HangUp,
}

impl Signal {
    const fn number(self) -> rustix::process::Signal {
        match self {
            Self::Terminate => rustix::process::Signal::TERM,
            Self::Interrupt => rustix::process::Signal::INT,
            Self::Quit => rustix::process::Signal::QUIT,
            Self::Kill => rustix::process::Signal::KILL,
            Self::Stop => rustix::process::Signal::STOP,
            Self::Continue => rustix::process::Signal::CONT,
            Self::HangUp => rustix::process::Signal::HUP,
        }
    }
}

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub struct Child {
    name: String,
    log: PathBuf,
    inner: process::Child,
    ended: Option<ExitStatus>,
    watchdog: Option<process::Child>,
}

impl Child {
    /// Starts the program under its watchdog.
    ///
    /// # Errors
    /// `Io` when the log cannot be opened or a shell cannot be started. That the program itself is
    /// missing shows as its end, with the shell's words in the log.
    pub fn spawn(spec: &ChildSpec) -> Result<Self, RigError> {
        let name = spec.program.file_name().unwrap_or(spec.program.as_os_str());
        let name = name.to_string_lossy().into_owned();
        let mut inner =
            gated(spec)?.spawn().map_err(RigError::io(format!("start a shell for {name}")))?;
        let watchdog = match watchdog(inner.id(), spec.remove.as_deref()).spawn() {
            Ok(watchdog) => watchdog,
            Err(source) => {
                drop(inner.kill());
                drop(inner.wait());
                return Err(RigError::Io { doing: format!("start a watchdog for {name}"), source });
            }
        };
        let go = inner.stdin.take();
        let child =
            Self { name, log: spec.log.clone(), inner, ended: None, watchdog: Some(watchdog) };
        // A gate that is gone already (no such user, no memory) shows as the child's end.
        drop(go.map(|mut gate| gate.write_all(b"go\n")));
        Ok(child)
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.inner.id()
    }

    /// The file with its output.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of its output.
    #[must_use]
    pub fn said(&self) -> String {
        tail(&self.log)
    }

    /// How it ended; `None` while it runs.
    ///
    /// # Errors
    /// `Io` when the system cannot say.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, RigError> {
        if self.ended.is_none() {
            let doing = RigError::io(format!("look at {}", self.name));
            self.ended = self.inner.try_wait().map_err(doing)?;
        }
        Ok(self.ended)
    }

    /// Fails with its last words when it has ended.
    ///
    /// # Errors
    /// `Ended` when it does not run any more.
    pub fn must_run(&mut self) -> Result<(), RigError> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => Err(RigError::Ended {
                program: self.name.clone(),
                status: status.to_string(),
                said: self.said(),
            }),
        }
    }

    /// Sends a signal to the program alone. Does nothing when it has ended.
    ///
    /// # Errors
    /// `Io` when the system refuses.
    pub fn signal(&mut self, signal: Signal) -> Result<(), RigError> {
        if self.ended()?.is_some() {
            return Ok(());
        }
        send(self.pid(), signal).map_err(RigError::io(format!("send {signal:?} to {}", self.name)))
    }

    /// Sends a signal to the program and to its children; to the program first, so that a stopped one
    /// makes no further children meanwhile.
    ///
    /// # Errors
    /// `Io` when the system refuses.
    pub fn signal_all(&mut self, signal: Signal) -> Result<(), RigError> {
        self.tell_all(signal).map(drop)
    }

    /// As `signal_all`; gives the children that were told.
    fn tell_all(&mut self, signal: Signal) -> Result<Vec<u32>, RigError> {
        // A parent that is killed first leaves children whose parent is another: list them before.
        let mut told = children_of(self.pid());
        self.signal(signal)?;
        for pid in children_of(self.pid()) {
            if !told.contains(&pid) {
                told.push(pid);
            }
        }
        for pid in &told {
            // Ended between the list and the signal: as good as signalled.
            drop(send(*pid, signal));
        }
        Ok(told)
    }

    /// Waits for the end, without asking for it.
    ///
    /// # Errors
    /// `TimedOut` after `bound`.
    pub async fn wait(&mut self, bound: Duration) -> Result<ExitStatus, RigError> {
        let what = format!("the end of {}", self.name);
        let start = clock::now();
        loop {
            if let Some(status) = self.ended()? {
                self.release_watchdog();
                return Ok(status);
            }
            if clock::since(start) >= bound {
                return Err(RigError::TimedOut { what, bound, seen: "still running".to_owned() });
            }
            tokio::time::sleep(Duration::from_millis(wait::LOOK_EVERY_MS)).await;
        }
    }

    /// Kills the program and its children, and waits until all of them are gone.
    ///
    /// # Errors
    /// `Io` when the system refuses, `TimedOut` when one does not die.
    pub async fn kill(&mut self) -> Result<ExitStatus, RigError> {
        let bound = Duration::from_millis(KILL_MS_MAX);
        self.signal(Signal::Stop)?;
        let children = self.tell_all(Signal::Kill)?;
        let status = self.wait(bound).await?;
        let what = format!("the children of {} to be gone", self.name);
        wait::until(&what, bound, || children.iter().all(|pid| is_gone(*pid))).await?;
        Ok(status)
    }

    fn release_watchdog(&mut self) {
        if let Some(mut watchdog) = self.watchdog.take() {
            drop(watchdog.stdin.take().map(|mut pipe| pipe.write_all(b"done\n")));
            drop(watchdog.wait());
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.ended.is_none() {
            drop(self.signal_all(Signal::Kill));
            drop(self.inner.wait());
        }
        self.release_watchdog();
    }
}

// ----------------------------------------------------------------------------------------------------
fn gated(spec: &ChildSpec) -> Result<Command, RigError> {
    let log = open_log(&spec.log)?;
    let also = log.try_clone().map_err(RigError::at("share", &spec.log))?;
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(GATE).arg("sh").arg(&spec.program).args(&spec.args);
    for name in &spec.unset {
        command.env_remove(name);
    }
    command.envs(spec.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::piped()).stdout(log).stderr(also);
    // A group of its own: Ctrl-C in a terminal is for the program that started it.
    command.process_group(0);
    if let Some(dir) = &spec.dir {
        command.current_dir(dir);
    }
    if let Some(run_as) = spec.run_as {
        command.uid(run_as.user).gid(run_as.group);
    }
    Ok(command)
}

fn watchdog(pid: u32, remove: Option<&Path>) -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(WATCHDOG).arg("sh").arg(pid.to_string());
    command.arg(remove.map_or_else(OsString::new, |path| path.as_os_str().to_owned()));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.current_dir("/").process_group(0);
    command
}

fn open_log(path: &Path) -> Result<File, RigError> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).open(path).map_err(RigError::at("open", path))
}

fn send(pid: u32, signal: Signal) -> std::io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(std::io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::kill_process(pid, signal.number())?)
}

/// The processes whose parent is `pid`, from `/proc`.
fn children_of(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|child| parent_of(*child) == Some(pid)).collect()
}

fn parent_of(pid: u32) -> Option<u32> {
    state_and_parent(pid)?.1.parse().ok()
}

/// Whether a process has ended, whether or not somebody has looked at how.
fn is_gone(pid: u32) -> bool {
    state_and_parent(pid).is_none_or(|(state, _)| matches!(state.as_str(), "Z" | "X"))
}

fn state_and_parent(pid: u32) -> Option<(String, String)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may hold anything; state and parent follow it.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut words = rest.split(' ').map(str::to_owned);
    Some((words.next()?, words.next()?))
}

/// The last lines of a file, or why there are none.
pub(crate) fn tail(path: &Path) -> String {
    match fs::read(path) {
        Ok(bytes) => {
            let from = bytes.len().saturating_sub(SAID_BYTES_MAX);
            String::from_utf8_lossy(bytes.get(from..).unwrap_or_default()).into_owned()
        }
        Err(error) => format!("({}: {error})", path.display()),
    }
}
