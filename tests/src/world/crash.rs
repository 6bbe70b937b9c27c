//! Workers that crash on purpose: armed by a permit of the story, which one of them uses up.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use oncely::crash::{self, Action, Order};

use super::{BOUND, World};

/// From the use of a permit to the signal.
const STOPPING: Duration = Duration::from_secs(2);
/// SIGKILL
const KILLED: i32 = 9;

impl World {
    /// Brings the story's permit into force: one of the armed workers crashes when it comes to its point
    /// from now on.
    pub fn permit_crash(&self) {
        crash::permit(&self.permit()).unwrap();
    }

    /// Takes the permit back, if nobody has used it.
    pub fn forbid_crash(&self) {
        std::fs::remove_file(self.permit()).ok();
    }

    /// Starts a worker that crashes at this order once that is permitted, if no other one has before it;
    /// gives its number.
    pub fn spawn_armed(&mut self, order: Order) -> usize {
        if !self.permit().exists() && !self.has_crashed() {
            crash::permit_later(&self.permit()).unwrap();
        }
        let permit: OsString = self.permit().into();
        let args = ["--crash-at".into(), order.to_string().into(), "--crash-permit".into(), permit];
        self.spawn_with(&args, &[])
    }

    /// Whether a worker has crashed by the story's permit.
    pub fn has_crashed(&self) -> bool {
        crash::used_by(&self.permit()).is_some()
    }

    /// Waits until one of the armed workers has crashed, and proves that it did so by its order: it used
    /// the permit, and SIGKILL ended it or SIGSTOP holds it. Gives its number.
    pub async fn crashed(&mut self, order: Order) -> usize {
        self.until(&format!("a crash at {order}"), async || self.has_crashed()).await;
        let pid = crash::used_by(&self.permit()).unwrap();
        let number = self.workers.iter().position(|worker| worker.pid() == pid);
        let number = number.expect("whoever used the permit is a worker of the story");
        match order.action {
            Action::Kill => {
                let status = self.workers[number].child.wait(BOUND).await.unwrap();
                assert_eq!(status.signal(), Some(KILLED), "{order}: {status}");
            }
            Action::Stop => {
                self.until("the worker to be frozen", async || is_stopped(pid)).await;
                self.workers[number].frozen = true;
            }
        }
        let log = self.workers[number].log();
        assert!(log.contains("crash point reached"), "{order} is not in the log of {number}");
        number
    }

    /// Waits a moment until a worker that has used its permit is frozen. Others may have thawed or killed it
    /// since.
    pub async fn wait_stopped(&mut self, number: usize) {
        let pid = self.workers[number].pid();
        let begun = Instant::now();
        while begun.elapsed() < STOPPING && !is_stopped(pid) && self.workers[number].runs() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// From now on another crash is meant; gives its number.
    pub fn next_crash(&mut self) -> u32 {
        self.permits += 1;
        self.permit = self.permits;
        self.permit
    }

    /// From now on this crash is meant again.
    pub fn turn_to_crash(&mut self, number: u32) {
        self.permit = number;
    }

    fn permit(&self) -> PathBuf {
        self.dir().join(format!("crash-{}.permit", self.permit))
    }
}

/// Whether a signal has stopped the process.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}
