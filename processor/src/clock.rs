//! The clocks of this process, and the only place that reads them.
//!
//! A worker's clock measures how long something took and when to look again. It never decides about
//! rows: their times are the database's own.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A moment of the monotonic clock.
pub type Moment = Instant;

/// Now, on the monotonic clock. It stands still while the machine sleeps, so nothing that others
/// rely on (a lease) may be derived from it without a margin.
#[allow(clippy::disallowed_methods, reason = "the one place that reads this clock")]
pub fn now() -> Moment {
    Instant::now()
}

/// Time passed since `moment`; zero for one that lies ahead.
pub fn since(moment: Moment) -> Duration {
    now().saturating_duration_since(moment)
}

/// Wall-clock time in milliseconds since 1970, comparable with record timestamps. May jump.
#[allow(clippy::disallowed_methods, reason = "the one place that reads this clock")]
pub fn wall_ms() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX)
}

/// How old a record with this timestamp is; zero for one from the future.
pub fn age_of(timestamp_ms: i64) -> Duration {
    let age = wall_ms().saturating_sub(timestamp_ms);
    Duration::from_millis(u64::try_from(age).unwrap_or(0))
}

/// For log lines: seconds with one decimal.
pub fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10.0).round() / 10.0
}

/// Calls per period for loops that must not drift; the first tick comes at once, and missed ones
/// are skipped instead of made up for.
pub fn every(period: Duration) -> tokio::time::Interval {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    interval
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_from_the_future_have_no_age() {
        assert_eq!(age_of(i64::MAX), Duration::ZERO);
        assert!(age_of(0) > Duration::from_secs(1_000_000_000));
    }
}
