//! What keeps a record's bytes: payloads that are still needed, and parked records.

use oncely_core::decide::{Input, Place, Plan};

use super::Shared;
use super::item::{Item, What};
use super::parked::REFUSED_BY_DATABASE;
use crate::store::batch::{self, ParkedRecord, PayloadRecord};
use crate::store::{PgConnection, StoreError};

/// Records that were parked now, by where they stand, and the numbers that people know them by.
pub(super) type Numbers = Vec<(Place, i64)>;

/// What keeps a record's bytes: payloads that are still needed, and parked records. Gives the numbers
/// of those that were parked now.
pub(super) async fn write(
    tx: &mut PgConnection,
    shared: &Shared,
    plan: &Plan,
    items: &[Item],
    inputs: &[(usize, Input<'_>)],
    parked: Option<&'static str>,
) -> Result<Numbers, StoreError> {
    let encoded = |item: &Item| super::headers::encode(&item.record.headers);
    let item_of = |input: usize| inputs.get(input).and_then(|(index, _)| items.get(*index));
    let kept: Vec<_> = plan
        .payloads
        .iter()
        .filter_map(|payload| item_of(payload.input).map(|item| (payload, item, encoded(item))))
        .collect();
    if !kept.is_empty() {
        let rows: Vec<_> = kept
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
    let decided =
        plan.parked.iter().filter_map(|new| item_of(new.input).map(|item| (item, Some(new))));
    let unusable = items
        .iter()
        .filter(|item| parked.is_some() || matches!(item.what, What::Unusable { .. }))
        .map(|item| (item, None));
    let letters: Vec<_> =
        decided.chain(unusable).map(|(item, new)| (item, new, encoded(item))).collect();
    let rows: Vec<_> = letters
        .iter()
        .map(|(item, new, headers)| {
            let record = parked_record(item, headers, parked);
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

fn parked_record<'a>(
    item: &'a Item,
    headers: &'a [u8],
    parked: Option<&'static str>,
) -> ParkedRecord<'a> {
    let (reason, detail) = match (&item.what, parked) {
        (_, Some(detail)) => (REFUSED_BY_DATABASE, detail),
        (What::Unusable { reason, detail }, None) => (*reason, &**detail),
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
        known_fingerprint: None,
    }
}
