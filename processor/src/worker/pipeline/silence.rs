//! When the consumer counts as stuck, so that the process is better ended: it has not polled for too
//! long, or it has lost every broker although the cluster answers others.

use std::time::Duration;

use super::Pipeline;
use crate::clock::Moment;
use crate::kafka::POLL_INTERVAL_DEFAULT;

/// Longest time without a poll, beyond a drain.
const SILENT_MAX: Duration = Duration::from_secs(30);
/// How much sooner than its poll interval a silent consumer is given up.
const MARGIN: Duration = Duration::from_millis(500);

/// Past the longest drain, but never as long as would make the client leave the group for it: under
/// the consumer protocol it may not survive that.
fn bound(drain: Duration) -> Duration {
    SILENT_MAX.saturating_add(drain).min(POLL_INTERVAL_DEFAULT.saturating_sub(MARGIN))
}

impl Pipeline {
    /// Why the client can only be helped by a new process.
    pub(super) fn stuck_client(&self) -> Option<&'static str> {
        if self.handle.silent_for() > bound(self.shared.timing.drain) {
            return Some("the consumer has not polled for too long");
        }
        let lost = "the consumer has lost every broker, and the cluster answers others";
        self.touch.is_lost().then_some(lost)
    }
}

/// How long the consumer may be without a broker while the cluster answers another client.
const LOST_MAX: Duration = Duration::from_secs(60);
/// Longest time between two answers that still count as one after the other.
const GAP_MAX: Duration = Duration::from_secs(10);

/// Whether the consumer still knows the cluster. A client that was told of no broker at all, as by a
/// cluster of one whose broker had been frozen, forgets what it knew and begins anew; it has been seen
/// not to come back.
#[derive(Debug, Default)]
pub(super) struct Touch {
    /// Since when the cluster has been answering, and when it last did, while the consumer saw no broker.
    lost: Option<(Moment, Moment)>,
}

impl Touch {
    /// The cluster answered another client. `broker_up`: whether the consumer is connected to any.
    pub(super) fn answered(&mut self, broker_up: Option<bool>, now: Moment) {
        let lost = self.lost.filter(|(_, last)| now.saturating_duration_since(*last) <= GAP_MAX);
        let since = lost.map_or(now, |(since, _)| since);
        self.lost = (broker_up == Some(false)).then_some((since, now));
    }

    /// Whether it has been so for too long.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_some_and(|(since, last)| last.saturating_duration_since(since) > LOST_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_finds_no_broker_of_a_cluster_that_answers_is_given_up() {
        let begun = crate::clock::now();
        let at = |s: u64| begun.checked_add(Duration::from_secs(s)).unwrap();
        let mut touch = Touch::default();
        for s in 0..=60 {
            touch.answered(Some(false), at(s));
            assert!(!touch.is_lost(), "{s}");
        }
        touch.answered(Some(false), at(61));
        assert!(touch.is_lost());
        // Found again, or not known yet.
        touch.answered(Some(true), at(62));
        assert!(!touch.is_lost());
        touch.answered(None, at(63));
        assert!(!touch.is_lost());
        // Away for both of them for an hour: the time is counted from when it answers again.
        touch.answered(Some(false), at(70));
        for s in 3_600..=3_660 {
            touch.answered(Some(false), at(s));
            assert!(!touch.is_lost(), "{s}");
        }
    }

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
