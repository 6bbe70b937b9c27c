//! What the pipeline shows of itself: partitions, lag, commits, and whether positions move.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use oncely_core::connector::OffsetWait;

use super::{Pipeline, STUCK_AFTER};
use crate::clock;
use crate::telemetry::CommitResult;

impl Pipeline {
    pub(super) fn show_partitions(&self) {
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        self.shared.metrics.partitions_assigned(count(self.partitions.len()));
        self.shared.metrics.partitions_stopped(count(self.stopped.len()));
        let stopped = self
            .stopped
            .values()
            .next()
            .map(|one| format!("{}: {}", one.assigned.partition, one.why));
        self.health.stuck(&self.shared.connector.name, stopped.or_else(|| self.stuck()));
    }

    /// Why positions do not move although there is something to finish.
    fn stuck(&self) -> Option<String> {
        let wait = match self.shared.connector.failure.offset_wait {
            OffsetWait::Millis(ms) => Duration::from_millis(ms),
            OffsetWait::Forever => STUCK_AFTER.saturating_mul(5),
        };
        let unfinished = self.partitions.values().any(|one| one.tracker.unfinished() > 0);
        let still = clock::since(self.moved_last);
        (unfinished && still > wait.saturating_add(STUCK_AFTER))
            .then(|| format!("no position has moved for {} s", still.as_secs()))
    }

    pub(super) fn show_flow(&mut self) {
        let uncommitted: usize =
            self.partitions.values().map(|partition| partition.tracker.unfinished()).sum();
        // A pause is told as what it is.
        if uncommitted == 0 || self.shared.backlog.is_full() {
            self.moved_last = clock::now();
        }
        self.show_partitions();
        let metrics = &self.shared.metrics;
        for lane in self.shared.lanes.iter().flatten() {
            lane.tell_lasting();
            if let Some(effect) = metrics.effect(lane.rule) {
                effect.circuit_open(lane.keeps_waiting().is_some());
            }
        }
        if let Some(up) = self.handle.broker_up() {
            self.health.brokers(&self.shared.connector.name, up);
            if up {
                self.shared.kafka.back("brokers");
            } else {
                self.shared.kafka.away("brokers", "no broker can be reached");
            }
        }
        let counts = self.handle.counts();
        for (result, now, before) in [
            (CommitResult::Ok, counts.commits_done, self.counted.commits_done),
            (CommitResult::Rebalancing, counts.commits_refused, self.counted.commits_refused),
            (CommitResult::Error, counts.commits_failed, self.counted.commits_failed),
        ] {
            metrics.committed(result, now.saturating_sub(before));
        }
        self.counted = counts;
        metrics.uncommitted(u64::try_from(uncommitted).unwrap_or(u64::MAX));
        let mut ages: HashMap<Arc<str>, Duration> = HashMap::new();
        for offsets in self.handle.offsets() {
            let mut partitions = self.partitions.values();
            let tracker = partitions
                .find(|partition| partition.assigned.partition == offsets.partition)
                .map(|partition| &partition.tracker);
            let Some(tracker) = tracker else { continue };
            let Some(lag) = offsets.lag(tracker.position()) else { continue };
            let topic = &offsets.partition.topic;
            let records = u64::try_from(lag).unwrap_or(0);
            metrics.lag_records(topic, offsets.partition.partition, records);
            let oldest = tracker.oldest().or(tracker.witness());
            let age = match oldest.and_then(|witness| witness.timestamp_ms) {
                Some(timestamp_ms) if records > 0 => clock::age_of(timestamp_ms),
                Some(_) | None => Duration::ZERO,
            };
            let known = ages.entry(Arc::clone(topic)).or_default();
            *known = age.max(*known);
        }
        for topic in &self.shared.connector.source.topics {
            match ages.get(&**topic) {
                Some(age) => metrics.lag(topic, *age),
                None => metrics.forget_topic(topic),
            }
        }
    }
}
