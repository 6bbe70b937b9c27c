//! How much is in flight between the consumer thread and the worker.
//!
//! Reads: what batches weigh, and that permits were dropped. Gives: whether there is room.
//! Invariant: every record delivered is counted exactly once, until its permit is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bounds on what the worker may hold at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowBounds {
    /// Records delivered and not let go.
    pub records_max: usize,
    /// Bytes delivered and not let go, counted as [`super::Record::weight`] does.
    pub bytes_max: usize,
}

impl Default for FlowBounds {
    fn default() -> Self {
        // What four writers have at work and in their queues, and what is being decoded.
        Self { records_max: 20_000, bytes_max: 32 << 20 }
    }
}

/// The shared count.
#[derive(Debug)]
pub(super) struct Flow {
    bounds: FlowBounds,
    records: AtomicUsize,
    bytes: AtomicUsize,
}

impl Flow {
    pub(super) fn new(bounds: FlowBounds) -> Arc<Self> {
        Arc::new(Self { bounds, records: AtomicUsize::new(0), bytes: AtomicUsize::new(0) })
    }

    /// Whether another batch may go out. A batch may overshoot the bound by its own size; waiting
    /// for room for all of it would stop for ever at a batch larger than the bound.
    pub(super) fn has_room(&self) -> bool {
        self.records() < self.bounds.records_max && self.bytes() < self.bounds.bytes_max
    }

    /// Whether at least half of both bounds is free again.
    pub(super) fn half_empty(&self) -> bool {
        self.records() <= self.bounds.records_max / 2 && self.bytes() <= self.bounds.bytes_max / 2
    }

    /// Records delivered and not let go.
    pub(super) fn records(&self) -> usize {
        self.records.load(Ordering::Acquire)
    }

    /// Bytes delivered and not let go.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// Counts a batch.
    pub(super) fn take(self: &Arc<Self>, records: usize, bytes: usize) -> Permit {
        self.records.fetch_add(records, Ordering::AcqRel);
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        Permit { flow: Arc::clone(self), records, bytes }
    }
}

/// A batch's share of the bounds, given back on drop.
#[derive(Debug)]
#[must_use = "dropping the permit lets the consumer fetch more"]
pub struct Permit {
    flow: Arc<Flow>,
    records: usize,
    bytes: usize,
}

impl Permit {
    /// Of a record that did not come from the consumer, and is in nobody's count.
    pub fn none() -> Self {
        Flow::new(FlowBounds::default()).take(0, 0)
    }

    /// Splits off the share of some records, for a batch whose parts become durable apart.
    /// Takes at most what is left.
    pub fn split(&mut self, records: usize, bytes: usize) -> Self {
        let records = records.min(self.records);
        let bytes = bytes.min(self.bytes);
        self.records = self.records.saturating_sub(records);
        self.bytes = self.bytes.saturating_sub(bytes);
        Self { flow: Arc::clone(&self.flow), records, bytes }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.flow.records.fetch_sub(self.records, Ordering::AcqRel);
        self.flow.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_larger_than_the_bound_goes_out_once() {
        let flow = Flow::new(FlowBounds { records_max: 10, bytes_max: 100 });
        assert!(flow.has_room());
        let permit = flow.take(5, 500);
        assert!(!flow.has_room());
        drop(permit);
        assert!(flow.has_room());
        assert_eq!((flow.records(), flow.bytes()), (0, 0));
    }

    #[test]
    fn parts_of_a_permit_give_back_what_they_hold_and_no_more() {
        let flow = Flow::new(FlowBounds { records_max: 10, bytes_max: 100 });
        let mut permit = flow.take(8, 80);
        let part = permit.split(5, 500);
        assert_eq!((flow.records(), flow.bytes()), (8, 80));
        drop(part);
        assert_eq!((flow.records(), flow.bytes()), (3, 0));
        assert!(flow.half_empty());
        drop(permit);
        assert_eq!((flow.records(), flow.bytes()), (0, 0));
    }
}
