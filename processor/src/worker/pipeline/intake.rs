//! Records come in: tracked, decoded, and spread over the writers by entity.

use std::collections::HashMap;
use std::sync::Arc;

use oncely_core::decide::{Ending, Place};
use oncely_core::progress::{Delivery, Finished, Witness};

use super::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX, JOBS_MAX, Pipeline, WAITING_MAX};
use crate::clock;
use crate::kafka::RecordBatch;
use crate::telemetry::Stage;
use crate::worker::item::{Item, Prepared, prepare};

impl Pipeline {
    pub(super) fn take(&mut self, mut batch: RecordBatch) {
        let begun = clock::now();
        let writers = self.shards.len();
        let mut consumed: HashMap<Arc<str>, u64> = HashMap::new();
        let mut ignored: u64 = 0;
        for record in batch.records {
            let Some(partition) = self.partitions.get_mut(&record.assignment) else { continue };
            if partition.draining || record.start != partition.start {
                continue;
            }
            let witness = Witness::of(
                record.offset,
                record.timestamp_ms,
                record.key.as_deref(),
                record.value.as_deref(),
            );
            match partition.tracker.deliver(witness) {
                Delivery::New => {}
                Delivery::Again | Delivery::Finished => continue,
            }
            let times = consumed.entry(Arc::clone(&record.topic)).or_insert(0);
            *times = times.saturating_add(1);
            match prepare(&self.shared.connector, &self.shared.wanted, &record) {
                Prepared::Ignored => {
                    partition.read(record.offset, false);
                    ignored = ignored.saturating_add(1);
                    partition.tracker.finish(Finished::without_effects(record.offset));
                }
                Prepared::Wanted(what) => {
                    partition.read(record.offset, true);
                    partition.unwritten = partition.unwritten.saturating_add(1);
                    let place = Place {
                        source: partition.source,
                        partition: record.partition,
                        offset: record.offset,
                    };
                    let permit = batch.permit.split(1, record.weight());
                    let doubt = partition.doubt;
                    let item = Item { record, place, what, doubt, _permit: permit };
                    if let Some(shard) = self.shards.get_mut(item.shard(writers)) {
                        shard.queue.push_back(item);
                    }
                }
            }
        }
        let metrics = &self.shared.metrics;
        for (topic, times) in consumed {
            metrics.consumed(&topic, times);
        }
        if ignored > 0 {
            metrics.events(Ending::Ignored, "", ignored);
        }
        metrics.stage(Stage::Decode, clock::since(begun));
    }

    /// Gives idle writers what lies in their queues, and busy ones a full batch for later. While too much is
    /// open the queues stay as they are, and their bounds hold the consumer up.
    pub(super) fn dispatch(&mut self) {
        if self.waiting.len() > WAITING_MAX || self.shared.backlog.is_full() {
            return;
        }
        let mut released: usize = 0;
        for shard in &mut self.shards {
            let full = shard.queue.len() >= BATCH_RECORDS_MAX;
            if shard.queue.is_empty() || shard.given >= if full { JOBS_MAX } else { 1 } {
                continue;
            }
            let mut bytes: usize = 0;
            let mut job = Vec::new();
            while job.len() < BATCH_RECORDS_MAX && bytes < BATCH_BYTES_MAX {
                let Some(item) = shard.queue.pop_front() else { break };
                let live = self.partitions.get(&item.record.assignment);
                if live.is_none_or(|partition| partition.draining) {
                    released = released.saturating_add(1);
                    if let Some(partition) = self.partitions.get_mut(&item.record.assignment) {
                        partition.unwritten = partition.unwritten.saturating_sub(1);
                    }
                    continue;
                }
                bytes = bytes.saturating_add(item.record.weight());
                job.push(item);
            }
            if !job.is_empty() && shard.jobs.try_send(job).is_ok() {
                shard.given = shard.given.saturating_add(1);
            }
        }
        self.shared.metrics.released(released);
    }
}
