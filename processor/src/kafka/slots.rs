//! The partitions that this process has, and how far each has come.
//!
//! Keeps true: one assignment per partition; an assignment that has ended is never found again.

use std::sync::Arc;

use rdkafka::{Offset, TopicPartitionList};

use super::event::Assigned;
use super::record::{AssignmentId, StartId, TopicPartition};

/// Where an assigned partition stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The worker has not said where to start. The client knows nothing of the partition.
    Waiting,
    /// The start is known, and not yet given to the client.
    Ready,
    /// The client fetches it.
    Fetching,
    /// The client had it, and stopped because the next offset was out of range.
    OutOfRange,
    /// The worker wants nothing from it. The client knows nothing of it.
    Stopped,
}

impl State {
    /// Whether the partition is in the client's own assignment.
    pub(super) fn is_with_client(self) -> bool {
        matches!(self, Self::Fetching | Self::OutOfRange)
    }
}

/// One assigned partition.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) assigned: Assigned,
    pub(super) state: State,
    /// Offset that is to be delivered next, or the start offset.
    pub(super) next: i64,
    /// The last start that the worker asked for.
    pub(super) start: StartId,
    /// Whether the worker asked for a pause.
    pub(super) paused: bool,
    /// Whether the client was told to pause it. Only such a partition is ever resumed.
    pub(super) paused_in_client: bool,
}

/// All assigned partitions.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    /// Where the last record was found: records come in runs.
    last: usize,
    /// Changes with every change of the set.
    version: u64,
}

impl Slots {
    /// Takes partitions in under fresh assignments.
    pub(super) fn add(&mut self, partitions: &TopicPartitionList) -> Vec<Assigned> {
        self.version = self.version.wrapping_add(1);
        let mut added = Vec::with_capacity(partitions.count());
        for element in partitions.elements() {
            let topic = self.topic(element.topic());
            let partition = TopicPartition { topic, partition: element.partition() };
            self.slots.retain(|slot| slot.assigned.partition != partition);
            let assigned = Assigned { assignment: AssignmentId::fresh(), partition };
            added.push(assigned.clone());
            self.slots.push(Slot {
                assigned,
                state: State::Waiting,
                next: 0,
                start: StartId::fresh(),
                paused: false,
                paused_in_client: false,
            });
        }
        added
    }

    /// A shared name, so that all records of a topic share one.
    fn topic(&self, name: &str) -> Arc<str> {
        self.slots
            .iter()
            .find(|slot| &*slot.assigned.partition.topic == name)
            .map_or_else(|| Arc::from(name), |slot| Arc::clone(&slot.assigned.partition.topic))
    }

    /// Takes out those of the named partitions that are here.
    pub(super) fn remove(&mut self, partitions: &TopicPartitionList) -> Vec<Slot> {
        let named = partitions.elements();
        self.extract(|slot| {
            named.iter().any(|element| {
                element.partition() == slot.assigned.partition.partition
                    && element.topic() == &*slot.assigned.partition.topic
            })
        })
    }

    /// Takes out all.
    pub(super) fn remove_all(&mut self) -> Vec<Slot> {
        self.extract(|_| true)
    }

    fn extract(&mut self, mut which: impl FnMut(&Slot) -> bool) -> Vec<Slot> {
        self.version = self.version.wrapping_add(1);
        let (gone, kept) = std::mem::take(&mut self.slots).into_iter().partition(|s| which(s));
        self.slots = kept;
        gone
    }

    /// The slot of a partition.
    pub(super) fn find(&mut self, topic: &str, partition: i32) -> Option<&mut Slot> {
        let is_it = |slot: &Slot| {
            slot.assigned.partition.partition == partition
                && &*slot.assigned.partition.topic == topic
        };
        if !self.slots.get(self.last).is_some_and(is_it) {
            self.last = self.slots.iter().position(is_it)?;
        }
        self.slots.get_mut(self.last)
    }

    /// The slot of an assignment that has not ended.
    pub(super) fn by_assignment(&mut self, assignment: AssignmentId) -> Option<&mut Slot> {
        self.slots.iter_mut().find(|slot| slot.assigned.assignment == assignment)
    }

    pub(super) fn is_live(&self, assignment: AssignmentId) -> bool {
        self.slots.iter().any(|slot| slot.assigned.assignment == assignment)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.slots.iter_mut()
    }

    pub(super) fn has(&self, state: State) -> bool {
        self.slots.iter().any(|slot| slot.state == state)
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }
}

/// The client's list of some partitions, without offsets.
pub(super) fn list_of<'a>(slots: impl IntoIterator<Item = &'a Slot>) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for slot in slots {
        let TopicPartition { topic, partition } = &slot.assigned.partition;
        list.add_partition(topic, *partition);
    }
    list
}

/// The client's list of some partitions, each with the offset that is to be delivered next.
pub(super) fn starts_of<'a>(slots: impl IntoIterator<Item = &'a Slot>) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for slot in slots {
        let TopicPartition { topic, partition } = &slot.assigned.partition;
        let mut element = list.add_partition(topic, *partition);
        if element.set_offset(Offset::Offset(slot.next.max(0))).is_err() {
            tracing::error!(%topic, partition, next = slot.next, "start offset was refused");
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(partitions: &[i32]) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        for partition in partitions {
            list.add_partition("t", *partition);
        }
        list
    }

    #[test]
    fn a_partition_that_comes_back_has_another_assignment() {
        let mut slots = Slots::default();
        let first = slots.add(&list(&[0, 1]));
        let gone = slots.remove(&list(&[1, 7]));
        assert_eq!(gone.len(), 1);
        assert!(slots.by_assignment(first[1].assignment).is_none());
        let again = slots.add(&list(&[1]));
        assert_ne!(again[0].assignment, first[1].assignment);
        assert!(slots.is_live(first[0].assignment));
        assert_eq!(slots.find("t", 1).unwrap().assigned, again[0]);
        assert!(slots.find("t", 7).is_none());
        assert!(slots.find("u", 0).is_none());
        assert_eq!(slots.remove_all().len(), 2);
        assert!(slots.find("t", 0).is_none());
    }
}
