//! For test programs that run many stories at once: options, jobs, and failures as values.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

/// The options of a test program, beside those of Cargo's own test programs.
#[derive(Debug)]
pub struct Options(Vec<String>);

impl Options {
    pub fn of_process() -> Self {
        Self(std::env::args().skip(1).collect())
    }

    pub fn flag(&self, name: &str) -> bool {
        self.0.iter().any(|word| word == name)
    }

    /// The word after `name`.
    pub fn text(&self, name: &str) -> Option<&str> {
        let at = self.0.iter().position(|word| word == name)?;
        self.0.get(at + 1).map(String::as_str)
    }

    /// The number after `name`.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        let text = self.text(name)?;
        Some(text.parse().unwrap_or_else(|_| panic!("{name} {text}: no number")))
    }

    /// Whether `cargo test` with its filters means this program: one that asks for tests by name, or
    /// for a list of them, does not.
    pub fn is_meant(&self, name: &str) -> bool {
        let ours =
            self.0.first().is_none_or(|word| word.starts_with("--") || name.contains(&**word));
        ours && !self.flag("--list")
    }
}

/// Calls `job` with each of `all`, `at_once` at a time, each on a thread of its own.
pub fn each<T: Send>(all: Vec<T>, at_once: usize, job: impl Fn(T) + Sync) {
    let left = Mutex::new(VecDeque::from(all));
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let next = left.lock().unwrap().pop_front();
                    let Some(next) = next else { return };
                    job(next);
                }
            });
        }
    });
}

/// Runs a story on a runtime of its own; its panic comes back as text.
///
/// # Errors
/// With what the story said when it failed.
pub fn on_runtime<T>(story: impl Future<Output = T>) -> Result<T, String> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(story)));
    runtime.shutdown_background();
    ended.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        text.unwrap_or_else(|| "panicked".to_owned())
    })
}
