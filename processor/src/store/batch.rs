//! What the batch transaction loads and writes.
//!
//! Lock order, everywhere: entities, then effects, then inbox, ledger, payload, parked, repeat; keys
//! sorted inside each. Inserts that find a key taken write nothing for it and say so.

use std::collections::BTreeMap;

use oncely_core::connector::Connector;
use oncely_core::decide::{EffectRow, EntityRow, InboxRow, Place, Plan};
use oncely_core::decide::{Ending, ParkedNew};
use oncely_core::effect::order::{OpenEffect, Turn};
use oncely_core::effect::status::Status;
use oncely_core::event::Event;
use oncely_core::fingerprint::Fingerprint;
use oncely_core::key::Key;
use sqlx::{PgConnection, query_file};
use uuid::Uuid;

use super::columns::{clean, elapsed, joined, key, keys, uuid, uuids};
use super::error::{Result, StoreError};

/// Characters of a parked record's detail.
const DETAIL_CHARS_MAX: usize = 2_000;

/// Another writer was first with a key of this batch: roll back, load again, decide again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Written {
    All,
    LostRace,
}

/// What an effect of the batch came to in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced {
    pub key: Key,
    /// Present when it was claimed.
    pub fence: Option<i64>,
}

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
    pub known_fingerprint: Option<Fingerprint>,
}

impl<'a> ParkedRecord<'a> {
    /// A record that the core parked.
    pub fn decided(parked: &'a ParkedNew, record: Self, event: &'a Event) -> Self {
        Self {
            quarantine: parked.quarantine,
            reason: parked.reason.as_str(),
            detail: &parked.detail,
            event: Some(event),
            known_fingerprint: parked.known_fingerprint,
            ..record
        }
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

/// Locks the entities and loads them. `sorted` without repeats.
pub async fn lock_entities(
    tx: &mut PgConnection,
    sorted: &[Key],
) -> Result<BTreeMap<Key, EntityRow>> {
    let rows = query_file!("src/store/sql/entity_lock.sql", &uuids(sorted)).fetch_all(tx).await?;
    let entity = |row: EntityLocked| {
        (
            key(row.key),
            EntityRow { event: key(row.event), version: row.version, state: row.state.into() },
        )
    };
    Ok(rows
        .into_iter()
        .map(|row| EntityLocked {
            key: row.key,
            event: row.event,
            version: row.version,
            state: row.state,
        })
        .map(entity)
        .collect())
}

struct EntityLocked {
    key: Uuid,
    event: Uuid,
    version: i64,
    state: String,
}

/// Loads inbox rows; after the entities are locked, so that what another writer of the same entity
/// committed is seen.
pub async fn load_inbox(tx: &mut PgConnection, sorted: &[Key]) -> Result<BTreeMap<Key, InboxRow>> {
    let rows = query_file!("src/store/sql/inbox_load.sql", &uuids(sorted)).fetch_all(tx).await?;
    rows.into_iter()
        .map(|row| {
            let ending = Ending::parse(&row.outcome);
            let ending =
                ending.ok_or(StoreError::Corrupt { key: key(row.key), what: "unknown outcome" })?;
            let first = Place {
                source: row.source,
                partition: row.first_partition,
                offset: row.first_offset,
            };
            let inbox = InboxRow {
                fingerprint: Fingerprint(key(row.fingerprint)),
                ending,
                effects: keys(row.effects),
                first,
                age_ms: elapsed(row.age_ms),
            };
            Ok((key(row.key), inbox))
        })
        .collect()
}

/// Loads the open effects of lanes.
pub async fn load_open(tx: &mut PgConnection, lanes: &[Key]) -> Result<Vec<OpenEffect>> {
    let named = load_open_named(tx, lanes).await?;
    Ok(named.into_iter().map(|(effect, _)| effect).collect())
}

/// The same with each effect's connector and name: connectors of one scope share lanes.
pub(super) async fn load_open_named(
    tx: &mut PgConnection,
    lanes: &[Key],
) -> Result<Vec<(OpenEffect, (i32, String))>> {
    let rows = query_file!("src/store/sql/effect_open.sql", &uuids(lanes)).fetch_all(tx).await?;
    rows.into_iter()
        .map(|row| {
            let status = Status::parse(&row.status);
            let effect = OpenEffect {
                key: key(row.key),
                lane: key(row.lane),
                event: key(row.event),
                version: row.version,
                blocked: row.blocked,
                status: status
                    .ok_or(StoreError::Corrupt { key: key(row.key), what: "unknown status" })?,
                after: keys(row.after_keys),
            };
            Ok((effect, (row.connector, row.name)))
        })
        .collect()
}

/// Loads effects that exist already.
pub async fn load_effects(
    tx: &mut PgConnection,
    sorted: &[Key],
) -> Result<BTreeMap<Key, EffectRow>> {
    let rows = query_file!("src/store/sql/effect_load.sql", &uuids(sorted)).fetch_all(tx).await?;
    rows.into_iter()
        .map(|row| {
            let status = Status::parse(&row.status)
                .ok_or(StoreError::Corrupt { key: key(row.key), what: "unknown status" })?;
            Ok((key(row.key), EffectRow { status, request_hash: key(row.request_hash) }))
        })
        .collect()
}

/// Loads ledger lines that exist already: key and hash of the content.
pub async fn load_ledger(tx: &mut PgConnection, sorted: &[Key]) -> Result<BTreeMap<Key, Key>> {
    let rows = query_file!("src/store/sql/ledger_load.sql", &uuids(sorted)).fetch_all(tx).await?;
    Ok(rows.into_iter().map(|row| (key(row.key), key(row.content))).collect())
}

/// Writes entities: new ones first, then those that moved.
pub async fn write_entities(tx: &mut PgConnection, plan: &Plan) -> Result<Written> {
    let (new, moved): (Vec<_>, Vec<_>) = plan.entities.iter().partition(|(_, write)| write.is_new);
    if !new.is_empty() {
        let key = uuids(new.iter().map(|(key, _)| *key));
        let event = uuids(new.iter().map(|(_, write)| &write.row.event));
        let version: Vec<_> = new.iter().map(|(_, write)| write.row.version).collect();
        let tenant: Vec<_> = new.iter().map(|(_, write)| write.tenant.to_string()).collect();
        let state: Vec<_> = new.iter().map(|(_, write)| write.row.state.to_string()).collect();
        let done =
            query_file!("src/store/sql/entity_insert.sql", &key, &event, &version, &tenant, &state)
                .execute(&mut *tx)
                .await?;
        if !wrote_all(done.rows_affected(), key.len()) {
            return Ok(Written::LostRace);
        }
    }
    if !moved.is_empty() {
        let key = uuids(moved.iter().map(|(key, _)| *key));
        let event = uuids(moved.iter().map(|(_, write)| &write.row.event));
        let version: Vec<_> = moved.iter().map(|(_, write)| write.row.version).collect();
        let state: Vec<_> = moved.iter().map(|(_, write)| write.row.state.to_string()).collect();
        let done = query_file!("src/store/sql/entity_advance.sql", &key, &event, &version, &state)
            .execute(tx)
            .await?;
        if !wrote_all(done.rows_affected(), key.len()) {
            return Ok(Written::LostRace);
        }
    }
    Ok(Written::All)
}

fn wrote_all(rows: u64, wanted: usize) -> bool {
    usize::try_from(rows).is_ok_and(|rows| rows == wanted)
}

/// Writes the effects; `claimed` says which of the ready ones this worker sends at once. Keys that
/// are missing in the answer exist already.
pub async fn write_effects(
    tx: &mut PgConnection,
    plan: &Plan,
    connector: (&Connector, i32),
    worker: Uuid,
    claimed: impl Fn(&Key) -> bool,
) -> Result<Vec<Fenced>> {
    let (rules, connector_id) = connector;
    let effects: Vec<_> = plan.effects.iter().collect();
    let name = |rule: usize| rules.effects.get(rule).map_or("", |rule| &rule.id).to_owned();
    let status = |key: &Key, turn: Turn| match turn {
        Turn::Skip => Status::Skipped,
        Turn::Ready if claimed(key) => Status::Claimed,
        Turn::Ready | Turn::Blocked => Status::Waiting,
    };
    let key_ = uuids(effects.iter().map(|(key, _)| *key));
    let event = uuids(effects.iter().map(|(_, new)| &new.event));
    let lane = uuids(effects.iter().map(|(_, new)| &new.lane));
    let version: Vec<_> = effects.iter().map(|(_, new)| new.version).collect();
    let ordinal: Vec<_> =
        effects.iter().map(|(_, new)| i16::try_from(new.rule).unwrap_or(i16::MAX)).collect();
    let names: Vec<_> = effects.iter().map(|(_, new)| name(new.rule)).collect();
    let tenant: Vec<_> = effects.iter().map(|(_, new)| new.tenant.to_string()).collect();
    let business_id: Vec<_> = effects.iter().map(|(_, new)| new.business_id.to_string()).collect();
    let request_hash = uuids(effects.iter().map(|(_, new)| &new.request_hash));
    let request: Vec<_> = effects.iter().map(|(_, new)| new.request.clone()).collect();
    let after: Vec<_> = effects.iter().map(|(_, new)| joined(&new.after)).collect();
    let statuses: Vec<_> =
        effects.iter().map(|(key, new)| status(key, new.turn).as_str().to_owned()).collect();
    let blocked: Vec<_> = effects.iter().map(|(_, new)| new.turn == Turn::Blocked).collect();
    let rows = query_file!(
        "src/store/sql/effect_insert.sql",
        &key_,
        &event,
        &lane,
        &version,
        &ordinal,
        &names,
        &tenant,
        &business_id,
        &request_hash,
        &request as &[Option<Vec<u8>>],
        &after,
        &statuses,
        &blocked,
        worker,
        connector_id,
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().map(|row| Fenced { key: key(row.key), fence: row.fence }).collect())
}

/// Writes inbox rows.
pub async fn write_inbox(tx: &mut PgConnection, plan: &Plan) -> Result<Written> {
    let rows: Vec<_> = plan.inbox.iter().collect();
    let key = uuids(rows.iter().map(|(key, _)| *key));
    let fingerprint = uuids(rows.iter().map(|(_, new)| &new.fingerprint.0));
    let entity: Vec<_> = rows.iter().map(|(_, new)| new.entity.map(|(key, _)| uuid(key))).collect();
    let version: Vec<_> =
        rows.iter().map(|(_, new)| new.entity.map(|(_, version)| version)).collect();
    let offset: Vec<_> = rows.iter().map(|(_, new)| new.place.offset).collect();
    let partition: Vec<_> = rows.iter().map(|(_, new)| new.place.partition).collect();
    let source: Vec<_> = rows.iter().map(|(_, new)| new.place.source).collect();
    let outcome: Vec<_> = rows.iter().map(|(_, new)| new.ending.as_str().to_owned()).collect();
    let tenant: Vec<_> = rows.iter().map(|(_, new)| new.tenant.to_string()).collect();
    let from: Vec<_> = rows
        .iter()
        .map(|(_, new)| new.moved.as_ref().map(|moved| moved.from.to_string()))
        .collect();
    let to: Vec<_> =
        rows.iter().map(|(_, new)| new.moved.as_ref().map(|moved| moved.to.to_string())).collect();
    let effects: Vec<_> = rows.iter().map(|(_, new)| joined(&new.effects)).collect();
    let done = query_file!(
        "src/store/sql/inbox_insert.sql",
        &key,
        &fingerprint,
        &entity as &[Option<Uuid>],
        &version as &[Option<i64>],
        &offset,
        &partition,
        &source,
        &outcome,
        &tenant,
        &from as &[Option<String>],
        &to as &[Option<String>],
        &effects,
    )
    .execute(tx)
    .await?;
    Ok(if wrote_all(done.rows_affected(), key.len()) { Written::All } else { Written::LostRace })
}

/// Writes ledger lines and gives the keys that were new.
pub async fn write_ledger(
    tx: &mut PgConnection,
    plan: &Plan,
    connector: (&Connector, i32),
) -> Result<Vec<Key>> {
    let (rules, connector_id) = connector;
    let lines: Vec<_> = plan.ledger.iter().collect();
    let key_ = uuids(lines.iter().map(|(key, _)| *key));
    let event = uuids(lines.iter().map(|(_, line)| &line.event));
    let content = uuids(lines.iter().map(|(_, line)| &line.content));
    let name = |rule: usize| rules.effects.get(rule).map_or("", |rule| &rule.id).to_owned();
    let names: Vec<_> = lines.iter().map(|(_, line)| name(line.rule)).collect();
    let tenant: Vec<_> = lines.iter().map(|(_, line)| line.tenant.to_string()).collect();
    let account: Vec<_> = lines.iter().map(|(_, line)| line.account.to_string()).collect();
    let metric: Vec<_> = lines.iter().map(|(_, line)| line.metric.to_string()).collect();
    let quantity: Vec<_> = lines.iter().map(|(_, line)| line.quantity.to_string()).collect();
    let at: Vec<_> = lines.iter().map(|(_, line)| line.at_ms).collect();
    let rows = query_file!(
        "src/store/sql/ledger_insert.sql",
        &key_,
        &event,
        &content,
        &names,
        &tenant,
        &account,
        &metric,
        &quantity,
        &at as &[Option<i64>],
        connector_id,
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().map(|row| key(row.key)).collect())
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
    let tenant: Vec<_> =
        parked.iter().map(|record| record.event.map(|event| event.tenant.to_string())).collect();
    let business_id: Vec<_> =
        parked.iter().map(|record| record.event.map(|event| event.id.to_string())).collect();
    let fingerprint: Vec<_> =
        parked.iter().map(|record| record.event.map(|event| uuid(event.fingerprint.0))).collect();
    let known: Vec<_> =
        parked.iter().map(|record| record.known_fingerprint.map(|known| uuid(known.0))).collect();
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
    )
    .fetch_all(tx)
    .await?;
    let place = |source, partition, offset| Place { source, partition, offset };
    let placed = rows.into_iter();
    Ok(placed.map(|r| (place(r.source, r.record_partition, r.record_offset), r.id)).collect())
}

/// Counts repeats of known events; one that is read again is not counted again.
pub async fn write_repeats(tx: &mut PgConnection, plan: &Plan) -> Result<()> {
    let key = uuids(plan.repeats.iter().map(|(key, _)| key));
    let source: Vec<_> = plan.repeats.iter().map(|(_, place)| place.source).collect();
    let partition: Vec<_> = plan.repeats.iter().map(|(_, place)| place.partition).collect();
    let offset: Vec<_> = plan.repeats.iter().map(|(_, place)| place.offset).collect();
    query_file!("src/store/sql/repeat_add.sql", &key, &source, &partition, &offset)
        .execute(tx)
        .await?;
    Ok(())
}

/// Whether effects hold their records' offsets back: key, status, and whether a held one is in the
/// way. Keys that are missing were removed by retention.
pub async fn effect_statuses(
    connection: &mut PgConnection,
    sorted: &[Key],
) -> Result<BTreeMap<Key, (Status, bool)>> {
    let rows = query_file!("src/store/sql/effect_status.sql", &uuids(sorted))
        .fetch_all(connection)
        .await?;
    rows.into_iter()
        .map(|row| {
            let status = Status::parse(&row.status)
                .ok_or(StoreError::Corrupt { key: key(row.key), what: "unknown status" })?;
            Ok((key(row.key), (status, row.behind_held)))
        })
        .collect()
}

/// Registers a connector and gives its number.
pub async fn register_connector(
    connection: &mut PgConnection,
    connector: &Connector,
) -> Result<i32> {
    let Connector { name, scope, source, .. } = connector;
    let query =
        query_file!("src/store/sql/connector_register.sql", &**name, &**scope, &*source.group);
    Ok(query.fetch_one(connection).await?.id)
}

/// Registers a topic as a connector reads it and gives its number.
pub async fn register_source(
    connection: &mut PgConnection,
    connector_id: i32,
    cluster_id: &str,
    topic_id: &str,
    topic: &str,
) -> Result<i32> {
    let query =
        query_file!("src/store/sql/source_register.sql", connector_id, cluster_id, topic_id, topic);
    Ok(query.fetch_one(connection).await?.id)
}
