//! The clocks of the rig, and the only place that reads them.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Now, on the monotonic clock.
#[allow(clippy::disallowed_methods, reason = "the one place that reads this clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Time passed since `moment`.
pub(crate) fn since(moment: Instant) -> Duration {
    now().saturating_duration_since(moment)
}

/// Wall-clock time in microseconds since 1970.
#[allow(clippy::disallowed_methods, reason = "the one place that reads this clock")]
pub(crate) fn wall_us() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX)
}
