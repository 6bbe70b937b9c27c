//! Positions that were lowered while they were read, and topics that were made anew.

use std::collections::HashMap;

use uuid::Uuid;

use super::{Partition, Pipeline};
use crate::kafka::{Assigned, TopicPartition};
use crate::store::progress::Epochs;

impl Pipeline {
    /// Stops reading topics that are not those any more that were begun.
    pub(super) fn compare(&mut self, ids: &HashMap<String, Uuid>) {
        let changed = |partition: &&Partition| {
            // Without ids nothing can be said.
            let id = ids.get(&*partition.assigned.partition.topic).map(Uuid::to_string);
            let is_other = |id: String| !partition.topic_id.is_empty() && id != partition.topic_id;
            !partition.draining && id.is_some_and(is_other)
        };
        let changed: Vec<Assigned> =
            self.partitions.values().filter(changed).map(|one| one.assigned.clone()).collect();
        if changed.is_empty() {
            return;
        }
        for assigned in &changed {
            tracing::error!(partition = %assigned.partition, "the topic was made anew while it was read");
            self.handle.leave_stopped(assigned.assignment);
            self.forget(assigned.assignment);
        }
        drop(self.starter.send(changed));
    }

    /// Begins partitions anew whose position was lowered, by a person or by a failover that lost commits: what
    /// is finished beyond it counts no more.
    pub(super) fn follow(&mut self, epochs: &Epochs, generation: u64) {
        let is_old = |partition: &&Partition| {
            let TopicPartition { topic, partition: number } = &partition.assigned.partition;
            let key = (topic.to_string(), partition.topic_id.clone(), *number);
            let is_lowered = epochs.get(&key).is_some_and(|epoch| *epoch > partition.epoch);
            // The row itself may be among what was lost.
            !partition.draining && (is_lowered || partition.doubt.generation < generation)
        };
        let rewound: Vec<Assigned> =
            self.partitions.values().filter(is_old).map(|one| one.assigned.clone()).collect();
        if rewound.is_empty() {
            return;
        }
        for assigned in &rewound {
            tracing::warn!(partition = %assigned.partition, "the position was lowered; going back to it");
            self.handle.leave_stopped(assigned.assignment);
            self.forget(assigned.assignment);
        }
        drop(self.starter.send(rewound));
    }
}
