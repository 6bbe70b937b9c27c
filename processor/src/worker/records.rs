//! What keeps a record's bytes: payloads that are still needed, parked records, and events that wait.

use oncely_core::connector::OnParked;
use oncely_core::decide::{Input, Place, Plan};
use oncely_core::key::Key;

use super::Shared;
use super::caught_up::matters;
use super::item::{Item, What};
use super::parked::REFUSED_BY_DATABASE;
use crate::store::batch::{self, ParkedRecord, PayloadRecord};
use crate::store::deferred::{self, NewRecord};
use crate::store::{PgConnection, StoreError};

/// Records that were parked now, by where they stand, and the numbers that people know them by.
pub(super) type Numbers = Vec<(Place, i64)>;

/// The records that a plan was made of.
pub(super) struct Kept<'a> {
    pub(super) items: &'a [Item],
    /// Those of the items that are events, by their index.
    pub(super) inputs: &'a [(usize, Input<'a>)],
    /// Those of the inputs behind them, which have waited.
    pub(super) waiting: &'a [Item],
    /// All items are parked, for this reason.
    pub(super) parked: Option<&'static str>,
    /// Of the connection; see [`oncely_core::failover::Doubt`].
    pub(super) generation: u64,
    /// Everything may be done although nothing is on record of it.
    pub(super) in_doubt: bool,
}

impl<'a> Kept<'a> {
    /// Whether any record is set aside.
    pub(super) fn parks(&self, plan: &Plan) -> bool {
        let unusable = |item: &Item| matches!(item.what, What::Unusable { .. });
        !plan.parked.is_empty() || self.parked.is_some() || self.items.iter().any(unusable)
    }

    fn item(&self, input: usize) -> Option<&'a Item> {
        match self.inputs.get(input) {
            Some((index, _)) => self.items.get(*index),
            None => self.waiting.get(input.checked_sub(self.inputs.len())?),
        }
    }
}

fn encoded(item: &Item) -> Vec<u8> {
    super::headers::encode(&item.record.headers)
}

/// What keeps a record's bytes: payloads that are still needed, events that wait, and parked records. Gives the
/// numbers of those that were parked now.
pub(super) async fn write(
    tx: &mut PgConnection,
    shared: &Shared,
    plan: &Plan,
    kept: &Kept<'_>,
) -> Result<Numbers, StoreError> {
    write_payloads(tx, plan, kept).await?;
    write_deferred(tx, shared, plan, kept).await?;
    let Kept { items, parked, .. } = *kept;
    let decided =
        plan.parked.iter().filter_map(|new| kept.item(new.input).map(|item| (item, Some(new))));
    let unusable = items
        .iter()
        .filter(|item| parked.is_some() || matches!(item.what, What::Unusable { .. }))
        .map(|item| (item, None));
    let letters: Vec<_> =
        decided.chain(unusable).map(|(item, new)| (item, new, encoded(item))).collect();
    let rows: Vec<_> = letters
        .iter()
        .map(|(item, new, headers)| {
            let holds = held_by(shared, item).filter(|_| parked.is_some());
            let suspect = kept.in_doubt || item.doubt.covers(item.place.offset, kept.generation);
            let record = ParkedRecord { holds, suspect, ..parked_record(item, headers, parked) };
            match (new, &item.what) {
                (Some(new), What::Event { event, .. }) => ParkedRecord::decided(new, record, event),
                (Some(_) | None, _) => record,
            }
        })
        .collect();
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    batch::write_parked(tx, shared.connector_id, &rows).await
}

async fn write_payloads(
    tx: &mut PgConnection,
    plan: &Plan,
    kept: &Kept<'_>,
) -> Result<(), StoreError> {
    let needed: Vec<_> = plan
        .payloads
        .iter()
        .filter_map(|payload| kept.item(payload.input).map(|item| (payload, item, encoded(item))))
        .collect();
    if !needed.is_empty() {
        let rows: Vec<_> = needed
            .iter()
            .map(|(payload, item, headers)| PayloadRecord {
                event: payload.event,
                place: item.place,
                timestamp_ms: item.record.timestamp_ms,
                key: item.record.key.as_deref(),
                value: item.record.value.as_deref(),
                headers,
                previous: payload.moved.as_ref().map(|moved| &*moved.from),
                current: payload.moved.as_ref().map(|moved| &*moved.to),
            })
            .collect();
        batch::write_payloads(tx, &rows).await?;
    }
    Ok(())
}

/// Events that wait from now on, and what else the order of entities hangs on.
async fn write_deferred(
    tx: &mut PgConnection,
    shared: &Shared,
    plan: &Plan,
    kept: &Kept<'_>,
) -> Result<(), StoreError> {
    if !plan.deferred.is_empty() {
        let new = plan.deferred.iter().filter_map(|(event, new)| {
            kept.item(new.input).map(|item| (*event, new, item, encoded(item)))
        });
        let new: Vec<_> = new.collect();
        let rows: Vec<_> = new
            .iter()
            .map(|(event, new, item, headers)| NewRecord {
                event: *event,
                new,
                place: item.place,
                timestamp_ms: item.record.timestamp_ms,
                key: item.record.key.as_deref(),
                value: item.record.value.as_deref(),
                headers,
            })
            .collect();
        let wait_ms = super::deferred::wait_ms(shared);
        deferred::put(tx, shared.connector_id, wait_ms, &rows).await?;
    }
    if !plan.hurried.is_empty() {
        deferred::hurry(tx, &plan.hurried).await?;
    }
    if !plan.timed.is_empty() {
        deferred::give_time(tx, &plan.timed, super::deferred::wait_ms(shared)).await?;
    }
    let is_beyond = |(entity, version): &(&Key, &i64)| {
        plan.entities.get(entity).is_none_or(|write| write.row.version < **version)
    };
    let passed: Vec<(Key, i64)> =
        plan.passed.iter().filter(is_beyond).map(|(key, version)| (*key, *version)).collect();
    if !passed.is_empty() {
        deferred::raise_passed(tx, shared.connector_id, &passed).await?;
    }
    let refused = kept.items.iter().filter(|_| kept.parked.is_some());
    let refused = refused.filter_map(|item| about(item).filter(|_| matters(&shared.connector)));
    let ahead: Vec<(Key, i64)> = plan.ahead.iter().copied().chain(refused).collect();
    if !ahead.is_empty() {
        deferred::note_ahead(tx, shared.connector_id, &ahead).await?;
    }
    if !plan.overtaken.is_empty() {
        deferred::overtaken(tx, &plan.overtaken).await?;
    }
    Ok(())
}

/// The entity that a record holds while it is parked, and its version.
fn held_by(shared: &Shared, item: &Item) -> Option<(Key, i64)> {
    let rules = shared.connector.state.as_ref();
    rules.filter(|rules| rules.on_parked == OnParked::Wait)?;
    about(item)
}

/// The entity of an event, and its version.
fn about(item: &Item) -> Option<(Key, i64)> {
    let What::Event { event, .. } = &item.what else { return None };
    event.entity.as_ref().map(|about| (about.key, about.version))
}

fn parked_record<'a>(
    item: &'a Item,
    headers: &'a [u8],
    parked: Option<&'static str>,
) -> ParkedRecord<'a> {
    let (reason, detail) = match (&item.what, parked) {
        (_, Some(detail)) => (REFUSED_BY_DATABASE, detail),
        (What::Unusable { reason, detail, .. }, None) => (*reason, &**detail),
        (What::Event { .. }, None) => ("", ""),
    };
    ParkedRecord {
        quarantine: false,
        reason,
        detail,
        place: item.place,
        timestamp_ms: item.record.timestamp_ms,
        key: item.record.key.as_deref(),
        value: item.record.value.as_deref(),
        headers,
        event: None,
        named: match &item.what {
            What::Unusable { named, .. } => named.as_ref(),
            What::Event { .. } => None,
        },
        known_fingerprint: None,
        holds: None,
        suspect: false,
    }
}
