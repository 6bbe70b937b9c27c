//! Giving partitions up: what is in flight is finished within a bound, the rest is the next owner's.

use std::time::Duration;

use super::{Pipeline, Shard};
use crate::clock::{self, Moment};
use crate::crash::{self, Step};
use crate::kafka::{AssignmentId, DrainAnswer, RevokeCause, Revoked};
use crate::telemetry::RebalanceKind;

/// Partitions that are being given up.
pub(super) struct Drain {
    assignments: Vec<AssignmentId>,
    deadline: Moment,
    answer: DrainAnswer,
    /// The process ends: nothing is claimed any more.
    stopping: bool,
}

/// For so long no call may have been in flight before a stop waits for no effect any more: what was
/// settled last is still on its way here.
const QUIET: Duration = Duration::from_millis(300);

impl Pipeline {
    pub(super) fn revoke(&mut self, revoked: Revoked) {
        let Revoked { partitions, cause, drain_max, answer } = revoked;
        let assignments: Vec<AssignmentId> = partitions.iter().map(|one| one.assignment).collect();
        for assigned in &partitions {
            self.live.remove(&assigned.assignment);
            self.stopped.remove(&assigned.assignment);
            let partition = &assigned.partition;
            self.shared.metrics.forget_partition(&partition.topic, partition.partition);
        }
        match cause {
            RevokeCause::Lost => {
                self.shared.metrics.rebalanced(RebalanceKind::Lost);
                tracing::warn!(partitions = partitions.len(), "partitions lost");
                assignments.iter().for_each(|assignment| self.forget(*assignment));
            }
            RevokeCause::Rebalance | RevokeCause::Stop => {
                self.shared.metrics.rebalanced(RebalanceKind::Revoked);
                tracing::info!(partitions = partitions.len(), "partitions are given up");
                for assignment in &assignments {
                    if let Some(partition) = self.partitions.get_mut(assignment) {
                        partition.draining = true;
                    }
                }
                // What no writer has begun is the next owner's.
                let queued = |shards: &[Shard]| shards.iter().map(|shard| shard.queue.len()).sum();
                let before: usize = queued(&self.shards);
                for shard in &mut self.shards {
                    let partitions = &mut self.partitions;
                    shard.queue.retain(|item| {
                        let Some(partition) = partitions.get_mut(&item.record.assignment) else {
                            return false;
                        };
                        if partition.draining {
                            partition.unwritten = partition.unwritten.saturating_sub(1);
                        }
                        !partition.draining
                    });
                }
                let released = before.saturating_sub(queued(&self.shards));
                self.shared.metrics.released(released);
                let wait = drain_max.min(self.shared.timing.drain);
                let deadline =
                    clock::now().checked_add(wait.mul_f32(0.9)).unwrap_or_else(clock::now);
                let stopping = cause == RevokeCause::Stop;
                self.drains.push(Drain { assignments, deadline, answer, stopping });
            }
        }
        self.show_partitions();
    }

    /// Answers drains whose partitions have nothing in flight any more, or whose time is up.
    pub(super) fn finish_drains(&mut self) {
        if self.drains.is_empty() {
            return;
        }
        self.keep();
        let now = clock::now();
        self.quiet_since = match self.quiet_since {
            _ if self.claims.count() > 0 => None,
            quiet => Some(quiet.unwrap_or(now)),
        };
        let is_quiet = self.quiet_since.is_some_and(|since| clock::since(since) >= QUIET);
        let mut open = Vec::new();
        for drain in std::mem::take(&mut self.drains) {
            // Effects that wait for their next attempt are not claimed by a process that ends.
            let nothing_comes = drain.stopping && is_quiet;
            let in_flight = |assignment: &AssignmentId| {
                self.partitions.get(assignment).is_some_and(|partition| {
                    partition.unwritten > 0
                        || (self.waiting.of(*assignment) > 0 && !nothing_comes)
                        || partition.tracker.position() > partition.kept
                })
            };
            if now < drain.deadline && drain.assignments.iter().any(in_flight) {
                open.push(drain);
                continue;
            }
            let kept = |assignment: &AssignmentId| {
                self.partitions.get(assignment).map(|partition| (*assignment, partition.kept))
            };
            let positions = drain.assignments.iter().filter_map(kept).collect();
            crash::before(Step::Revoke);
            drain.answer.drained(positions);
            crash::after(Step::Revoke);
            for assignment in drain.assignments {
                self.forget(assignment);
            }
        }
        self.drains = open;
        self.show_partitions();
    }

    pub(super) fn forget(&mut self, assignment: AssignmentId) {
        self.partitions.remove(&assignment);
        self.waiting.forget(assignment);
        self.stopped.remove(&assignment);
    }
}
