//! Waiting for a state.
//!
//! Gives: nothing but the fact that the state was reached, or an error that names it.
//! Never sleeps for luck: a check is repeated until it holds or its bound is over.

use std::time::Duration;

use tokio::sync::watch;

use crate::{RigError, clock};

/// Pause between two looks at a state that cannot announce itself.
pub const LOOK_EVERY_MS: u64 = 10;

/// Repeats `check` until it says true.
///
/// # Errors
/// `TimedOut` with `what` when it did not within `bound`.
pub async fn until(
    what: &str,
    bound: Duration,
    mut check: impl FnMut() -> bool,
) -> Result<(), RigError> {
    until_some(what, bound, || check().then_some(())).await
}

/// Repeats `check` until it gives a value.
///
/// # Errors
/// `TimedOut` with `what` when it did not within `bound`.
pub async fn until_some<T>(
    what: &str,
    bound: Duration,
    mut check: impl FnMut() -> Option<T>,
) -> Result<T, RigError> {
    let start = clock::now();
    loop {
        if let Some(value) = check() {
            return Ok(value);
        }
        if clock::since(start) >= bound {
            return Err(RigError::TimedOut {
                what: what.to_owned(),
                bound,
                seen: "not yet so".to_owned(),
            });
        }
        tokio::time::sleep(Duration::from_millis(LOOK_EVERY_MS)).await;
    }
}

/// Waits until a watched value is such that `reached` says true.
///
/// # Errors
/// `TimedOut` with `what` and the value as it is.
pub async fn until_seen<T: Copy + std::fmt::Debug>(
    mut watched: watch::Receiver<T>,
    what: &str,
    bound: Duration,
    reached: impl FnMut(&T) -> bool,
) -> Result<T, RigError> {
    if let Ok(Ok(reached)) = tokio::time::timeout(bound, watched.wait_for(reached)).await {
        return Ok(*reached);
    }
    let seen = format!("{:?}", *watched.borrow());
    Err(RigError::TimedOut { what: what.to_owned(), bound, seen })
}
