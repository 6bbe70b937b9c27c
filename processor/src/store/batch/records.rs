//! What keeps a record's bytes: payloads that are still needed, and parked records.

use oncely_core::decide::{ParkedNew, Place};
use oncely_core::event::{Event, Named};
use oncely_core::fingerprint::Fingerprint;
use oncely_core::key::Key;
use sqlx::{PgConnection, query_file};
use uuid::Uuid;

use super::super::columns::{clean, uuid, uuids};
use super::super::error::Result;

/// Characters of a parked record's detail.
const DETAIL_CHARS_MAX: usize = 2_000;

/// A record as it is parked.
#[derive(Clone, Copy, Debug)]
pub struct ParkedRecord<'a> {
    pub quarantine: bool,
    pub reason: &'a str,
    pub detail: &'a str,
    pub place: Place,
    pub timestamp_ms: Option<i64>,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a [u8],
    pub event: Option<&'a Event>,
    /// Whose it is, of a record that is no event.
    pub named: Option<&'a Named>,
    pub known_fingerprint: Option<Fingerprint>,
    /// The entity whose later events wait for it, and its version.
    pub holds: Option<(Key, i64)>,
    /// It may have been run before, though nothing is on record of it.
    pub suspect: bool,
}

impl<'a> ParkedRecord<'a> {
    /// A record that the core parked.
    pub fn decided(parked: &'a ParkedNew, record: Self, event: &'a Event) -> Self {
        Self {
            quarantine: parked.quarantine,
            reason: parked.reason.as_str(),
            detail: &parked.detail,
            event: Some(event),
            named: None,
            known_fingerprint: parked.known_fingerprint,
            holds: parked.holds,
            ..record
        }
    }
}

impl ParkedRecord<'_> {
    /// Tenant and business id, as far as they are known.
    fn name(&self) -> (Option<String>, Option<String>) {
        let of_event = self.event.map(|event| (&event.tenant, &event.id));
        let named = of_event.or(self.named.map(|named| (&named.tenant, &named.id)));
        named.map(|(tenant, id)| (tenant.to_string(), id.to_string())).unzip()
    }
}

/// Event bytes that are still needed.
#[derive(Clone, Copy, Debug)]
pub struct PayloadRecord<'a> {
    pub event: Key,
    pub place: Place,
    pub timestamp_ms: Option<i64>,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a [u8],
    pub previous: Option<&'a str>,
    pub current: Option<&'a str>,
}

/// Keeps the bytes of events that later effects are rendered from.
pub async fn write_payloads(tx: &mut PgConnection, payloads: &[PayloadRecord<'_>]) -> Result<()> {
    let event = uuids(payloads.iter().map(|payload| &payload.event));
    let source: Vec<_> = payloads.iter().map(|payload| payload.place.source).collect();
    let partition: Vec<_> = payloads.iter().map(|payload| payload.place.partition).collect();
    let offset: Vec<_> = payloads.iter().map(|payload| payload.place.offset).collect();
    let timestamp: Vec<_> = payloads.iter().map(|payload| payload.timestamp_ms).collect();
    let record_key: Vec<_> =
        payloads.iter().map(|payload| payload.key.map(<[u8]>::to_vec)).collect();
    let value: Vec<_> = payloads.iter().map(|payload| payload.value.map(<[u8]>::to_vec)).collect();
    let headers: Vec<_> = payloads.iter().map(|payload| payload.headers.to_vec()).collect();
    let previous: Vec<_> =
        payloads.iter().map(|payload| payload.previous.map(str::to_owned)).collect();
    let current: Vec<_> =
        payloads.iter().map(|payload| payload.current.map(str::to_owned)).collect();
    query_file!(
        "src/store/sql/payload_insert.sql",
        &event,
        &source,
        &partition,
        &offset,
        &timestamp as &[Option<i64>],
        &record_key as &[Option<Vec<u8>>],
        &value as &[Option<Vec<u8>>],
        &headers,
        &previous as &[Option<String>],
        &current as &[Option<String>],
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Parks records; gives the numbers of those that were not parked before.
pub async fn write_parked(
    tx: &mut PgConnection,
    connector_id: i32,
    parked: &[ParkedRecord<'_>],
) -> Result<Vec<(Place, i64)>> {
    let kind = |quarantine| if quarantine { "quarantine" } else { "dead_letter" }.to_owned();
    let kinds: Vec<_> = parked.iter().map(|record| kind(record.quarantine)).collect();
    let reason: Vec<_> = parked.iter().map(|record| record.reason.to_owned()).collect();
    let detail: Vec<_> =
        parked.iter().map(|record| clean(record.detail, DETAIL_CHARS_MAX)).collect();
    let source: Vec<_> = parked.iter().map(|record| record.place.source).collect();
    let partition: Vec<_> = parked.iter().map(|record| record.place.partition).collect();
    let offset: Vec<_> = parked.iter().map(|record| record.place.offset).collect();
    let timestamp: Vec<_> = parked.iter().map(|record| record.timestamp_ms).collect();
    let record_key: Vec<_> = parked.iter().map(|record| record.key.map(<[u8]>::to_vec)).collect();
    let value: Vec<_> = parked.iter().map(|record| record.value.map(<[u8]>::to_vec)).collect();
    let headers: Vec<_> = parked.iter().map(|record| record.headers.to_vec()).collect();
    let event: Vec<_> =
        parked.iter().map(|record| record.event.map(|event| uuid(event.key))).collect();
    let names = parked.iter().map(ParkedRecord::name);
    let (tenant, business_id): (Vec<Option<String>>, Vec<Option<String>>) = names.unzip();
    let fingerprint: Vec<_> =
        parked.iter().map(|record| record.event.map(|event| uuid(event.fingerprint.0))).collect();
    let known: Vec<_> =
        parked.iter().map(|record| record.known_fingerprint.map(|known| uuid(known.0))).collect();
    let holds: Vec<_> = parked.iter().map(|record| Some(uuid(record.holds?.0))).collect();
    let suspect: Vec<_> = parked.iter().map(|record| record.suspect).collect();
    let entity = |record: &ParkedRecord<'_>| Some(uuid(record.event?.entity.as_ref()?.key));
    let entity: Vec<_> = parked.iter().map(entity).collect();
    let held: Vec<_> = parked.iter().map(|record| Some(record.holds?.1)).collect();
    let rows = query_file!(
        "src/store/sql/parked_insert.sql",
        &kinds,
        &reason,
        &detail,
        &source,
        &partition,
        &offset,
        &timestamp as &[Option<i64>],
        &record_key as &[Option<Vec<u8>>],
        &value as &[Option<Vec<u8>>],
        &headers,
        &event as &[Option<Uuid>],
        &tenant as &[Option<String>],
        &business_id as &[Option<String>],
        &fingerprint as &[Option<Uuid>],
        &known as &[Option<Uuid>],
        connector_id,
        &holds as &[Option<Uuid>],
        &held as &[Option<i64>],
        &suspect,
        &entity as &[Option<Uuid>],
    )
    .fetch_all(tx)
    .await?;
    let place = |source, partition, offset| Place { source, partition, offset };
    let placed = rows.into_iter();
    Ok(placed.map(|r| (place(r.source, r.record_partition, r.record_offset), r.id)).collect())
}
