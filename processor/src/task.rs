//! Tasks and threads that cannot die unseen.
//!
//! [`spawn`] is for work whose loss its owner notices: a panic comes back as [`Panicked`].
//! [`Vital::spawn`] and [`Vital::thread`] are for loops that the process cannot go on without: when
//! one panics or ends before it was asked to, [`Vital::failed`] fires and the process ends.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::Span;

use crate::telemetry::Metrics;

/// The work panicked or was aborted. What it held is to be treated as unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{task} panicked; the log line before names the place")]
pub struct Panicked {
    pub task: &'static str,
}

/// Starts `future`; its panic is caught, counted, and given to whoever awaits the handle. Dropping
/// the handle lets the work go on.
#[allow(clippy::disallowed_methods, reason = "the one place that starts tasks")]
pub fn spawn<F>(
    task: &'static str,
    metrics: &Metrics,
    future: F,
) -> JoinHandle<Result<F::Output, Panicked>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(Caught::new(task, metrics, future))
}

/// Starts `future` and gives its end, or its panic, to `then`, in one task and within the caller's span.
#[allow(clippy::disallowed_methods, reason = "the one place that starts tasks")]
pub fn spawn_then<F>(
    task: &'static str,
    metrics: &Metrics,
    future: F,
    then: impl FnOnce(Result<F::Output, Panicked>) + Send + 'static,
) where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let (caught, span) = (Caught::new(task, metrics, future), Span::current());
    drop(tokio::spawn(async move {
        let end = caught.await;
        span.in_scope(|| then(end));
    }));
}

/// Starts `future`, which goes on when whoever waits for it loses patience. Its panic is the handle's error, told by
/// the log and not counted.
#[allow(clippy::disallowed_methods, reason = "the one place that starts tasks")]
pub fn spawn_to_the_end<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(future)
}

/// Calls `work` and catches its panic, for pure work on one record.
///
/// # Errors
/// [`Panicked`]; the panic was counted.
pub fn catch<T>(
    task: &'static str,
    metrics: &Metrics,
    work: impl FnOnce() -> T,
) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_: Box<dyn Any + Send>| {
        metrics.task_panics(task).add(1);
        Panicked { task }
    })
}

struct Caught<F> {
    task: &'static str,
    metrics: Metrics,
    future: Pin<Box<F>>,
    /// Whose lines its log lines are: those of whoever started it.
    span: Span,
}

impl<F> Caught<F> {
    fn new(task: &'static str, metrics: &Metrics, future: F) -> Self {
        Self { task, metrics: metrics.clone(), future: Box::pin(future), span: Span::current() }
    }
}

impl<F: Future> Future for Caught<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let _entered = this.span.enter();
        match catch(this.task, &this.metrics, || this.future.as_mut().poll(context)) {
            Ok(poll) => poll.map(Ok),
            Err(panicked) => Poll::Ready(Err(panicked)),
        }
    }
}

// --------------------------------------------------------------------------------------------- //

/// The loops that the process cannot go on without. Clones share one fate.
#[derive(Clone, Debug)]
pub struct Vital {
    metrics: Metrics,
    failed: Arc<watch::Sender<Option<&'static str>>>,
}

impl Vital {
    pub fn new(metrics: &Metrics) -> Self {
        Self { metrics: metrics.clone(), failed: Arc::new(watch::Sender::new(None)) }
    }

    /// Starts a loop that ends with `Ok` only when it was asked to, and with `Err` when the process
    /// cannot go on.
    #[allow(clippy::disallowed_methods, reason = "the one place that starts tasks")]
    pub fn spawn<F>(&self, task: &'static str, future: F) -> JoinHandle<()>
    where
        F: Future<Output = Result<(), Stopped>> + Send + 'static,
    {
        let vital = self.clone();
        let caught = Caught::new(task, &self.metrics, future);
        tokio::spawn(async move { vital.ended(task, caught.await) })
    }

    /// Starts a thread with the same contract.
    ///
    /// # Errors
    /// When the system gives no thread.
    #[allow(clippy::disallowed_methods, reason = "the one place that starts threads")]
    pub fn thread(
        &self,
        task: &'static str,
        work: impl FnOnce() -> Result<(), Stopped> + Send + 'static,
    ) -> std::io::Result<std::thread::JoinHandle<()>> {
        let vital = self.clone();
        std::thread::Builder::new().name(task.to_owned()).spawn(move || {
            let ended = catch(task, &vital.metrics, work);
            vital.ended(task, ended);
        })
    }

    /// Waits until one of them failed; says which.
    pub async fn failed(&self) -> &'static str {
        let mut failed = self.failed.subscribe();
        loop {
            if let Some(task) = *failed.borrow_and_update() {
                return task;
            }
            if failed.changed().await.is_err() {
                // Cannot be: `self` holds the sender.
                std::future::pending::<()>().await;
            }
        }
    }

    fn ended(&self, task: &'static str, ended: Result<Result<(), Stopped>, Panicked>) {
        match ended {
            Ok(Ok(())) => return,
            Ok(Err(stopped)) => tracing::error!(task, cause = %stopped, "a vital loop stopped"),
            Err(panicked) => tracing::error!(task, cause = %panicked, "a vital loop stopped"),
        }
        self.failed.send_if_modified(|failed| {
            let first = failed.is_none();
            failed.get_or_insert(task);
            first
        });
    }
}

/// Why a vital loop cannot go on; one sentence for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Stopped(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn w19_a_panic_comes_back_as_a_value() {
        let metrics = Metrics::new().unwrap();
        let lost = spawn("call", &metrics, async { panic!("canary") }).await.unwrap();
        assert_eq!(lost, Err(Panicked { task: "call" }));
        assert_eq!(metrics.task_panics("call").get(), 1);
        assert_eq!(spawn("call", &metrics, async { 7 }).await.unwrap(), Ok(7));
    }

    #[tokio::test]
    async fn a_lost_loop_ends_the_process_and_a_finished_one_does_not() {
        let vital = Vital::new(&Metrics::new().unwrap());
        vital.spawn("asked", async { Ok(()) }).await.unwrap();
        assert_eq!(*vital.failed.borrow(), None);
        vital.thread("poll", || panic!("lost")).unwrap().join().unwrap();
        vital.spawn("late", async { Err(Stopped("fatal".to_owned())) }).await.unwrap();
        assert_eq!(vital.failed().await, "poll");
    }
}
