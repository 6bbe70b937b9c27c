//! How long the consumer may be silent before it counts as stuck, and the process is better ended.

use std::time::Duration;

use crate::kafka::POLL_INTERVAL_DEFAULT;

/// Longest time without a poll, beyond a drain.
const SILENT_MAX: Duration = Duration::from_secs(30);
/// How much sooner than its poll interval a silent consumer is given up.
const MARGIN: Duration = Duration::from_millis(500);

/// Past the longest drain, but never as long as would make the client leave the group for it: under
/// the consumer protocol it may not survive that.
pub(super) fn bound(drain: Duration) -> Duration {
    SILENT_MAX.saturating_add(drain).min(POLL_INTERVAL_DEFAULT.saturating_sub(MARGIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k20_a_silent_consumer_is_given_up_after_its_drain_and_before_its_poll_interval() {
        // A drain is refused unless it is shorter than the interval.
        for drain_s in [0, 1, 20, 250, 269, 270, 271, 299] {
            let drain = Duration::from_secs(drain_s);
            assert!(bound(drain) > drain, "{drain_s}");
            assert!(bound(drain) < POLL_INTERVAL_DEFAULT, "{drain_s}");
        }
    }
}
