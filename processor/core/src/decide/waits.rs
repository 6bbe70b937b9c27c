//! What an event has to wait for: a version that is missing, or a parked event of its entity.
//!
//! Reads: the rules of the connector, and what is on record of the entity. Gives: whether the event may go.
//! Decides nothing about the event itself.
//! Invariant: an event that comes after what its entity has reached without a gap never waits for a version.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::Input;
use super::known::Known;
use crate::connector::{Connector, OnGap, OnParked, StateRules};
use crate::key::Key;

/// Whether an event may go, as far as its entity's other events are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Free,
    /// A version before it is missing.
    Gap,
    /// Behind a parked event of this version.
    Behind(i64),
}

/// The version up to which an entity's events were decided: what was decided ahead of a missing one counts as soon
/// as that has come.
pub(super) fn reach(known: &Known, entity: Key) -> Option<i64> {
    let stored = known.entities.get(&entity).map(|row| row.version);
    let Some(waits) = known.waits.get(&entity) else { return stored };
    let reached = stored.max(waits.passed)?;
    let after = (Bound::Excluded(reached), Bound::Unbounded);
    let steps = waits.ahead.range(after).zip(1_i64..);
    let steps = steps.take_while(|(ahead, step)| reached.checked_add(*step) == Some(**ahead));
    Some(steps.last().map_or(reached, |(ahead, _)| *ahead))
}

pub(super) fn standing(
    rules: &StateRules,
    known: &Known,
    (entity, version): (Key, i64),
) -> Standing {
    let stored = known.entities.get(&entity).map(|row| row.version);
    if stored.is_some_and(|stored| version <= stored) {
        // Stale, or in conflict: nothing that comes makes it another thing.
        return Standing::Free;
    }
    // One at or below the entity's version holds nothing back: the entity has gone by.
    let holds = known.waits.get(&entity).map(|waits| waits.parked.iter().copied());
    let parked = holds.and_then(|mut holds| holds.find(|parked| Some(*parked) > stored));
    if let Some(parked) = parked.filter(|_| rules.on_parked == OnParked::Wait)
        && parked < version
    {
        return Standing::Behind(parked);
    }
    if !follows(rules, reach(known, entity), version) {
        return Standing::Gap;
    }
    Standing::Free
}

/// The lowest event of the entity that waits, below this version: it may go, and nobody has let it go yet. What
/// comes later does not pass it by.
pub(super) fn waiting_before(known: &Known, entity: Key, version: i64) -> Option<i64> {
    let stored = known.entities.get(&entity).map(|row| row.version);
    let first = known.waits.get(&entity)?.deferred.first()?.version;
    (first < version && stored.is_none_or(|stored| version > stored)).then_some(first)
}

/// Whether nothing is missing between what was reached and this version.
pub(super) fn follows(rules: &StateRules, reached: Option<i64>, version: i64) -> bool {
    let OnGap::Wait(wait) = &rules.on_gap else { return true };
    match (reached, wait.first) {
        (None, None) => true,
        (None, Some(first)) => version <= first,
        (Some(reached), _) => version <= reached.saturating_add(1),
    }
}

/// Whether versions are missing before this event, whatever the connector says of gaps.
pub(super) fn is_after_gap(known: &Known, entity: Key, version: i64) -> bool {
    reach(known, entity).is_some_and(|reached| version > reached.saturating_add(1))
}

/// The numbers of deferred events that may go with these inputs, or without any: their bytes are needed to
/// decide. Some of them may stay all the same.
pub fn releasable(connector: &Connector, known: &Known, inputs: &[Input<'_>]) -> Vec<i64> {
    let mut coming: BTreeMap<Key, BTreeSet<i64>> = BTreeMap::new();
    for about in inputs.iter().filter_map(|input| input.event.entity.as_ref()) {
        coming.entry(about.key).or_default().insert(about.version);
    }
    let mut numbers = Vec::new();
    for (entity, waits) in &known.waits {
        // Versions behind which another one can follow, now or when the inputs are decided.
        let mut steps = coming.remove(entity).unwrap_or_default();
        for row in &waits.deferred {
            let free = match &connector.state {
                None => true,
                Some(rules) => match standing(rules, known, (*entity, row.version)) {
                    Standing::Free => true,
                    // Whatever takes the parked one's version ends its hold.
                    Standing::Behind(parked) => steps.contains(&parked),
                    Standing::Gap => {
                        let mut before = row.version.saturating_sub(1);
                        while waits.ahead.contains(&before) {
                            before = before.saturating_sub(1);
                        }
                        row.overdue
                            || [before, row.version].iter().any(|version| steps.contains(version))
                    }
                },
            };
            if free {
                steps.insert(row.version);
                numbers.extend(row.number);
            }
        }
    }
    numbers
}
