//! Positions that have moved, how far all is decided, and partitions that are out of doubt, on their way to the keeper
//! and back.

use std::time::Duration;

use super::{Partition, Pipeline};
use crate::clock;
use crate::store::progress::Raise;
use crate::worker::keeper::{Keep, Positions};

/// How often it is written how far everything is decided, where events wait for a time.
const AHEAD_EVERY: Duration = Duration::from_secs(1);

impl Pipeline {
    /// Sends positions that have moved to the keeper, one write at a time.
    pub(super) fn keep(&mut self) {
        if self.keeping {
            return;
        }
        let mut kept = Keep::default();
        let is_time = self.shows_ahead && clock::since(self.ahead_last) >= AHEAD_EVERY;
        for partition in self.partitions.values_mut() {
            let position = partition.tracker.position();
            if position > partition.asked {
                partition.asked = position;
                kept.positions.push((partition.assigned.assignment, partition.raise()));
            }
            if partition.again.take_if(|again| again.is_over()).is_some() {
                kept.decided.push(partition.raise());
            }
            let decided = if is_time { partition.tracker.decided() } else { position };
            if decided > position.max(partition.ahead) {
                partition.ahead = decided;
                kept.ahead.push((partition.raise(), decided));
            }
        }
        if is_time {
            self.ahead_last = clock::now();
        }
        if !kept.is_empty() {
            self.keeping = true;
            drop(self.keeper.send(kept));
        }
    }

    pub(super) fn kept(&mut self, positions: Positions) {
        self.keeping = false;
        if !positions.is_empty() {
            self.moved_last = clock::now();
        }
        for (assignment, raise) in positions {
            // A position of an earlier epoch was not written.
            if let Some(partition) = self.partitions.get_mut(&assignment)
                && partition.epoch == raise.epoch
            {
                partition.kept = raise.position;
                self.handle.commit(assignment, raise.position);
            }
        }
    }
}

impl Partition {
    pub(super) fn read(&mut self, offset: i64, decides: bool) {
        if let Some(again) = &mut self.again {
            again.read(offset, decides);
        }
    }

    fn raise(&self) -> Raise {
        Raise {
            topic: self.assigned.partition.topic.to_string(),
            topic_id: self.topic_id.clone(),
            partition: self.assigned.partition.partition,
            epoch: self.epoch,
            position: self.tracker.position(),
            witness: self.tracker.witness(),
        }
    }
}
