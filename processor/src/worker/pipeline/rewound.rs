//! Positions that were lowered while they were read.

use super::{Partition, Pipeline};
use crate::kafka::{Assigned, TopicPartition};
use crate::store::progress::Epochs;

impl Pipeline {
    /// Begins partitions anew whose position was lowered by a person: what is finished beyond it counts no
    /// more.
    pub(super) fn follow(&mut self, epochs: &Epochs) {
        let is_old = |partition: &&Partition| {
            let TopicPartition { topic, partition: number } = &partition.assigned.partition;
            let key = (topic.to_string(), partition.topic_id.clone(), *number);
            !partition.draining && epochs.get(&key).is_some_and(|epoch| *epoch > partition.epoch)
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
