//! Writes the provider's log: one JSON line per thing seen or done.
//!
//! Reads: lines from any task. Gives: a number to wait for until the line is on disk.
//! Never loses a line that an answer was given for (unless the benchmark asked not to wait), and once
//! writing has failed every later wait fails, so that nothing is answered that is not on record.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;

use crate::RigError;

/// When the log is flushed to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// Every line is in the file before its request goes on, and on disk before its answer is sent;
    /// answers that wait at once share a flush. For stories.
    EachAnswer,
    /// Lines are written and flushed together. For the benchmark.
    Group {
        /// The longest that a line waits for its group, in milliseconds.
        every_ms: u64,
        /// Whether an answer waits until its lines are on disk.
        answers_wait: bool,
    },
}

/// Number of a line; later lines have higher ones.
pub(super) type LineNo = u64;

/// What waiters see: the last line on disk, or that no more will get there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Durable {
    UpTo(LineNo),
    Failed,
}

#[derive(Debug)]
struct State {
    file: File,
    /// Lines not handed to the system yet (groups only).
    buffer: Vec<u8>,
    lines: LineNo,
    /// Lines that a flush was asked for, at least.
    asked: LineNo,
    closed: bool,
    failed: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves whole lines behind: every change is one call.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The open log.
#[derive(Debug)]
pub(super) struct Journal {
    shared: Arc<Shared>,
    flush: Flush,
    durable: watch::Receiver<Durable>,
    flusher: Option<JoinHandle<()>>,
}

impl Journal {
    pub(super) fn open(path: &Path, flush: Flush) -> Result<Self, RigError> {
        let mut options = OpenOptions::new();
        let opened = options.create(true).append(true).open(path);
        let file = opened.map_err(RigError::at("open the log", path))?;
        let to_sync = file.try_clone().map_err(RigError::at("share the log", path))?;
        let state =
            State { file, buffer: Vec::new(), lines: 0, asked: 0, closed: false, failed: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), wake: Condvar::new() });
        let (tell, durable) = watch::channel(Durable::UpTo(0));
        let for_thread = Arc::clone(&shared);
        let flusher = thread::Builder::new()
            .name("provider-log".to_owned())
            .spawn(move || flush_until_closed(&for_thread, &to_sync, flush, &tell))
            .map_err(RigError::io("start the thread of the log"))?;
        Ok(Self { shared, flush, durable, flusher: Some(flusher) })
    }

    /// Adds a line.
    pub(super) fn add(&self, line: &impl Serialize) -> LineNo {
        let mut state = self.shared.lock();
        let before = state.buffer.len();
        if serde_json::to_writer(&mut state.buffer, line).is_err() {
            state.buffer.truncate(before);
            state.failed = true;
        }
        state.buffer.push(b'\n');
        state.lines = state.lines.saturating_add(1);
        match self.flush {
            Flush::EachAnswer => {
                let State { file, buffer, failed, .. } = &mut *state;
                *failed |= file.write_all(buffer).is_err();
                buffer.clear();
            }
            Flush::Group { .. } => {
                // The flusher sleeps only while there is nothing to write.
                if before == 0 {
                    self.shared.wake.notify_one();
                }
            }
        }
        state.lines
    }

    /// Waits until a line is as safe as the flush mode promises; false when it never will be.
    pub(super) async fn safe(&self, line: LineNo) -> bool {
        match self.flush {
            Flush::Group { answers_wait: false, .. } => return !self.shared.lock().failed,
            Flush::Group { answers_wait: true, .. } => {}
            Flush::EachAnswer => {
                let mut state = self.shared.lock();
                state.asked = state.asked.max(line);
                self.shared.wake.notify_one();
            }
        }
        let mut durable = self.durable.clone();
        let reached = durable.wait_for(|durable| match durable {
            Durable::UpTo(last) => *last >= line,
            Durable::Failed => true,
        });
        reached.await.is_ok_and(|durable| *durable != Durable::Failed)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.wake.notify_one();
        drop(self.flusher.take().map(JoinHandle::join));
    }
}

fn flush_until_closed(shared: &Shared, file: &File, mode: Flush, tell: &watch::Sender<Durable>) {
    let mut durable = 0;
    loop {
        let (bytes, lines, closed) = next_group(shared, mode, durable);
        let mut file_ref = file;
        let written = file_ref.write_all(&bytes).and_then(|()| file.sync_data());
        if written.is_err() || shared.lock().failed {
            shared.lock().failed = true;
            tell.send_replace(Durable::Failed);
            return;
        }
        durable = lines;
        tell.send_replace(Durable::UpTo(lines));
        if closed {
            return;
        }
    }
}

/// Sleeps until something is to be flushed; gives what is to be written first, the number of the last
/// line that this flush makes safe, and whether it is the last flush.
fn next_group(shared: &Shared, mode: Flush, durable: LineNo) -> (Vec<u8>, LineNo, bool) {
    let mut state = shared.lock();
    while !state.closed && state.buffer.is_empty() && state.asked <= durable {
        state = shared.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    if let (Flush::Group { every_ms, .. }, false) = (mode, state.closed) {
        drop(state);
        thread::sleep(Duration::from_millis(every_ms));
        state = shared.lock();
    }
    (std::mem::take(&mut state.buffer), state.lines, state.closed)
}
