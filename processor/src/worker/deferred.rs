//! Events that wait for others of their entity, on their way into a batch and out of it.
//!
//! Reads: the rows of a batch's entities, and the bytes of those that may go with it. They are read as events by
//! the connector file as it is now; one that has another identity by it is parked when its turn comes. Decides
//! nothing: the core says who goes.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use oncely_core::connector::{AfterWait, OnGap};
use oncely_core::decide::{self, Ending, Input, Known, Plan, Released, Releases};
use oncely_core::event::{EntityEvent, Event};
use oncely_core::failover::Doubt;
use oncely_core::key::Key;
use oncely_core::value::Value;

use super::Shared;
use super::headers;
use super::item::{Item, Prepared, What, prepare};
use super::pipeline::BATCH_BYTES_MAX;
use crate::kafka::{AssignmentId, Header, Permit, Record, StartId};
use crate::store::deferred::{self, DeferredRecord};
use crate::store::{PgConnection, StoreError};

/// Deferred events that one transaction lets go.
const RELEASES_MAX: usize = 500;
/// Those of one entity that it looks at: one more, so that it is seen that there are more.
const ROWS_MAX: i64 = 501;
/// Lines about one batch.
const LINES_MAX: usize = 10;

/// What a transaction lets go besides what its own records bring.
#[derive(Clone, Debug, Default)]
pub(super) struct Releasing {
    /// Entities that are looked at although no record of theirs is in the batch.
    pub(super) due: Vec<Key>,
    pub(super) releases: Releases,
}

impl Releasing {
    /// With the deferred events that may go, or without any.
    pub(super) fn with(releases: bool) -> Self {
        let max = if releases { RELEASES_MAX } else { 0 };
        Self { due: Vec::new(), releases: Releases { max, refused: false } }
    }

    /// The database refuses a value of it: half of the entities, then one event, then that one parked. Gives the
    /// other half; `None` when nothing is left to try.
    pub(super) fn narrowed(&mut self) -> Option<Option<Self>> {
        if self.due.len() > 1 {
            let due = self.due.split_off(self.due.len() / 2);
            return Some(Some(Self { due, releases: self.releases }));
        }
        let Releases { max, refused } = &mut self.releases;
        if *max > 1 {
            *max = 1;
        } else if *refused {
            return None;
        } else {
            *refused = true;
        }
        Some(None)
    }
}

/// Loads who waits on these entities, and gives the records of those that may go; `known` names them as the inputs
/// behind `events`. `deciding`: parked rows that hold nothing back any more.
pub(super) async fn load(
    tx: &mut PgConnection,
    shared: &Shared,
    known: &mut Known,
    events: &[Input<'_>],
    (entities, deciding): (&[Key], &[i64]),
    generation: u64,
) -> Result<Vec<Item>, StoreError> {
    if entities.is_empty() {
        return Ok(Vec::new());
    }
    let standing = deferred::standing(
        tx,
        shared.connector_id,
        (entities, deciding),
        shared.read_until.get(generation),
        ROWS_MAX,
    )
    .await?;
    known.waits = standing.waits;
    known.inbox.extend(standing.inbox);
    let mut bytes: usize = 0;
    let numbers: Vec<i64> = decide::releasable(&shared.connector, known, events)
        .into_iter()
        .take(known.releases.max)
        .take_while(|number| {
            let before = bytes;
            let size = standing.sizes.get(number).copied().unwrap_or(0);
            bytes = bytes.saturating_add(size);
            before == 0 || bytes <= BATCH_BYTES_MAX
        })
        .collect();
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    let mut items = Vec::new();
    for record in deferred::records(tx, &numbers).await? {
        let number = record.number;
        let (item, changed) = item(shared, record, generation);
        let rows = known.waits.values_mut().flat_map(|waits| &mut waits.deferred);
        if let Some(row) = rows.into_iter().find(|row| row.number == Some(number)) {
            row.input = Some(events.len().saturating_add(items.len()));
            row.changed = changed;
            items.push(item);
        }
    }
    Ok(items)
}

/// The record as an event, and whether it is another one now than when it began to wait.
fn item(shared: &Shared, waiting: DeferredRecord, generation: u64) -> (Item, bool) {
    let stored = headers::decode(&waiting.headers);
    let record = Record {
        topic: waiting.topic.as_str().into(),
        partition: waiting.place.partition,
        offset: waiting.place.offset,
        timestamp_ms: waiting.timestamp_ms,
        key: waiting.key.map(Bytes::from),
        value: waiting.value.map(Bytes::from),
        headers_broken: stored.is_none(),
        headers: stored
            .unwrap_or_default()
            .into_iter()
            .map(|(name, value)| Header { name: name.into(), value: value.map(Bytes::from) })
            .collect(),
        assignment: AssignmentId::fresh(),
        start: StartId::fresh(),
    };
    let (entity, version) = (waiting.entity, waiting.version);
    let mut what = prepare(&shared.connector, &shared.wanted, &record);
    let mut same = false;
    if let Prepared::Wanted(What::Event { event, .. }) = &mut what {
        // Content that a person has released has a key of its own.
        if Key::released(event.key, event.fingerprint) == waiting.event {
            event.key = waiting.event;
        }
        let about = event.entity.as_ref();
        same = event.key == waiting.event
            && about.is_some_and(|about| (about.key, about.version) == (entity, version));
    }
    let what = match what {
        Prepared::Wanted(what) if same => what,
        Prepared::Wanted(_) | Prepared::Ignored => {
            let event = Event {
                tenant: waiting.tenant.into(),
                id: waiting.business_id.into(),
                key: waiting.event,
                fingerprint: waiting.fingerprint,
                entity: Some(EntityEvent { key: entity, id: "".into(), version }),
            };
            What::Event { event, value: Value::Null }
        }
    };
    let doubt = Doubt::of(waiting.suspect, generation);
    (Item { record, place: waiting.place, what, doubt, _permit: Permit::none() }, !same)
}

/// Whether events may wait of a connector whose file lets none: it may have been another one before. What waits goes
/// before anything that comes later.
#[derive(Debug)]
pub(super) struct Left(AtomicBool);

impl Default for Left {
    /// Nobody has looked yet.
    fn default() -> Self {
        Self(AtomicBool::new(true))
    }
}

impl Left {
    pub(super) fn may_be(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn seen(&self, may_be: bool) {
        self.0.store(may_be, Ordering::Relaxed);
    }
}

/// Whether any event of the connector waits.
pub(super) async fn is_any_left(
    tx: &mut PgConnection,
    shared: &Shared,
) -> Result<bool, StoreError> {
    Ok(deferred::count(tx, shared.connector_id, 1).await? > 0)
}

/// How many more events of the connector may wait.
pub(super) async fn room(tx: &mut PgConnection, shared: &Shared) -> Result<usize, StoreError> {
    let rules = shared.connector.state.as_ref();
    let max = rules.map_or(0, |rules| rules.deferred_max);
    let waiting = deferred::count(tx, shared.connector_id, max).await?;
    Ok(usize::try_from(max).unwrap_or(usize::MAX).saturating_sub(waiting))
}

/// How long an event waits for a version.
pub(super) fn wait_ms(shared: &Shared) -> u64 {
    match shared.connector.state.as_ref().map(|rules| rules.on_gap) {
        Some(OnGap::Wait(wait)) => wait.wait_ms,
        Some(OnGap::Apply) | None => 0,
    }
}

/// Counts those that wait no more, and tells of those that went without what they waited for, or are parked now.
pub(super) fn say(shared: &Shared, plan: &Plan) {
    let metrics = &shared.metrics;
    metrics.version_gaps(plan.gaps);
    for released in &plan.released {
        metrics.deferred_released(released.decision.ending);
        if let Some(moved) = &released.decision.moved {
            metrics.transition(&moved.from, &moved.to, 1);
        }
        if let Some(then) = released.escalated {
            metrics.deferred_escalated(then);
        }
    }
    let parked =
        |one: &&Released| matches!(one.decision.ending, Ending::Quarantined | Ending::DeadLettered);
    for released in plan.released.iter().filter(parked).take(LINES_MAX) {
        let reason = released.decision.reason.map_or("", |reason| reason.as_str());
        let list =
            if released.decision.ending == Ending::Quarantined { "quarantine" } else { "dlq" };
        let look = format!("oncely {list} list --connector {}", shared.connector.name);
        tracing::warn!(reason, look, "deferred event parked");
    }
    let over = plan.released.iter().filter(|one| one.escalated == Some(AfterWait::Apply)).count();
    if over > 0 {
        let look = format!("oncely deferred list --closed --connector {}", shared.connector.name);
        tracing::warn!(
            events = over,
            look,
            "versions did not come in time, later ones applied without them"
        );
    }
}
