//! What a durable batch came to: for the pipeline, and for the metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use oncely_core::decide::{Decision, Ending, Input, Plan};
use oncely_core::effect::order::Turn;
use oncely_core::key::Key;
use oncely_core::progress::Hold;

use super::claims::Held;
use super::item::{Item, What};
use super::parked::REFUSED_BY_DATABASE;
use super::{Shared, hold_of};
use crate::clock;
use crate::kafka::AssignmentId;
use crate::store::batch;
use crate::store::{Session, StoreError};

/// What became of one record.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) assignment: AssignmentId,
    pub(super) offset: i64,
    /// Effects that still hold its offset back.
    pub(super) open: Vec<Key>,
    pub(super) age_ms: u64,
    /// In which it was read; see [`oncely_core::failover::Doubt`].
    pub(super) generation: u64,
}

/// A batch that is durable.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) done: Vec<Done>,
    pub(super) claimed: Vec<Held>,
    /// Deferred events that were decided.
    pub(super) released: usize,
}

/// Which effects of known events still hold offsets back.
///
/// # Errors
/// Where the question fails, all of them do: they are asked for again with the open ones.
pub(super) async fn duplicates(
    session: &mut Session,
    plan: &Plan,
) -> Result<BTreeMap<Key, Hold>, StoreError> {
    let keys: BTreeSet<Key> = plan
        .decisions
        .iter()
        .flat_map(|decision| &decision.effects)
        .filter(|key| !plan.effects.contains_key(key))
        .copied()
        .collect();
    let keys: Vec<Key> = keys.into_iter().collect();
    if keys.is_empty() {
        return Ok(BTreeMap::new());
    }
    let statuses = batch::effect_statuses(session.connection().await?, &keys).await?;
    Ok(statuses.into_iter().map(|(key, (status, held))| (key, hold_of(status, held))).collect())
}

pub(super) fn done(
    items: &[Item],
    inputs: &[(usize, Input<'_>)],
    plan: &Plan,
    statuses: &BTreeMap<Key, Hold>,
) -> Vec<Done> {
    let decided: BTreeMap<usize, &Decision> =
        inputs.iter().map(|(index, _)| *index).zip(&plan.decisions).collect();
    let is_open = |key: &&Key| match plan.effects.get(*key) {
        Some(effect) => !matches!(effect.turn, Turn::Skip | Turn::Hold(_)),
        None => statuses.get(*key) != Some(&Hold::LetsGo),
    };
    let open = |decision: &&Decision| -> Vec<Key> {
        decision.effects.iter().filter(is_open).copied().collect()
    };
    let items = items.iter().enumerate();
    items
        .map(|(index, item)| {
            let decision = decided.get(&index);
            Done {
                assignment: item.record.assignment,
                offset: item.record.offset,
                open: decision.map(open).unwrap_or_default(),
                age_ms: decision.map_or(0, |decision| decision.age_ms),
                generation: item.doubt.generation,
            }
        })
        .collect()
}

pub(super) fn count(shared: &Shared, plan: &Plan, items: &[Item], parked: Option<&'static str>) {
    let metrics = &shared.metrics;
    let mut endings: BTreeMap<(Ending, &'static str), u64> = BTreeMap::new();
    let mut add = |ending, reason| {
        let times = endings.entry((ending, reason)).or_insert(0);
        *times = times.saturating_add(1);
    };
    for decision in &plan.decisions {
        add(decision.ending, decision.reason.map_or("", |reason| reason.as_str()));
        if let Some(moved) = &decision.moved {
            metrics.transition(&moved.from, &moved.to, 1);
        }
    }
    for item in items {
        match (&item.what, parked) {
            (_, Some(_)) => add(Ending::DeadLettered, REFUSED_BY_DATABASE),
            (What::Unusable { reason, .. }, None) => add(Ending::DeadLettered, reason),
            (What::Event { .. }, None) => {}
        }
    }
    for ((ending, reason), times) in endings {
        metrics.events(ending, reason, times);
    }
    let bytes = items.iter().map(|item| item.record.weight()).fold(0, usize::saturating_add);
    metrics.batch(items.len(), bytes);
    for timestamp_ms in items.iter().filter_map(|item| item.record.timestamp_ms) {
        metrics.end_to_end(clock::age_of(timestamp_ms));
    }
    let released = plan.released.iter().map(|released| &released.decision);
    let owed: usize =
        plan.decisions.iter().chain(released).map(|decision| decision.effects.len()).sum();
    let first = plan.effects.len();
    let [first, again] =
        [first, owed.saturating_sub(first)].map(|count| u64::try_from(count).unwrap_or(0));
    metrics.effects_owed(first, again);
    for decision in &plan.decisions {
        if decision.ending == Ending::Duplicate {
            metrics.redelivery_age(Duration::from_millis(decision.age_ms));
        }
    }
}
