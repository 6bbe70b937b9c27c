//! What the database knows of a batch's keys.

use std::collections::BTreeMap;

use oncely_core::decide::{EffectRow, Ending, EntityRow, InboxRow, Place};
use oncely_core::effect::order::OpenEffect;
use oncely_core::effect::status::Status;
use oncely_core::fingerprint::Fingerprint;
use oncely_core::key::Key;
use sqlx::{PgConnection, query_file, query_file_as};
use uuid::Uuid;

use super::super::columns::{elapsed, key, keys, uuids};
use super::super::error::{Result, StoreError};

/// The database's clock, in milliseconds since 1970.
pub async fn now_ms(tx: &mut PgConnection) -> Result<i64> {
    Ok(query_file!("src/store/sql/now.sql").fetch_one(tx).await?.now_ms)
}

struct EntityFound {
    key: Uuid,
    event: Uuid,
    version: i64,
    state: String,
}

impl EntityFound {
    fn all(rows: Vec<Self>) -> BTreeMap<Key, EntityRow> {
        let entity = |row: Self| {
            let found =
                EntityRow { event: key(row.event), version: row.version, state: row.state.into() };
            (key(row.key), found)
        };
        rows.into_iter().map(entity).collect()
    }
}

/// Locks the entities and loads them. `sorted` without repeats.
pub async fn lock_entities(
    tx: &mut PgConnection,
    sorted: &[Key],
) -> Result<BTreeMap<Key, EntityRow>> {
    let rows = query_file_as!(EntityFound, "src/store/sql/entity_lock.sql", &uuids(sorted));
    Ok(EntityFound::all(rows.fetch_all(tx).await?))
}

/// Loads the entities without a lock: whoever moves one names the version that was seen.
pub async fn load_entities(
    tx: &mut PgConnection,
    sorted: &[Key],
) -> Result<BTreeMap<Key, EntityRow>> {
    let rows = query_file_as!(EntityFound, "src/store/sql/entity_load.sql", &uuids(sorted));
    Ok(EntityFound::all(rows.fetch_all(tx).await?))
}

/// How an entity stands of whose event it is unknown whether it was run.
#[derive(Clone, Copy, Debug)]
pub struct Stood {
    /// Where it stands, it stood before the failover that may have lost that.
    pub before: bool,
    /// The record by which it stands so, if that was decided as soon as it was read.
    pub set_at: Option<Place>,
}

/// Since when these entities stand where they stand. Each with the failover, by its number, that is asked about;
/// `None`: the one in doubt.
pub async fn stood(
    tx: &mut PgConnection,
    asked: &[(Key, Option<i32>)],
) -> Result<Vec<((Key, Option<i32>), Stood)>> {
    let entities = uuids(asked.iter().map(|(entity, _)| entity));
    let failovers: Vec<Option<i32>> = asked.iter().map(|(_, failover)| *failover).collect();
    let rows =
        query_file!("src/store/sql/entity_stood.sql", &entities, &failovers as &[Option<i32>]);
    let rows = rows.fetch_all(tx).await?.into_iter();
    Ok(rows
        .map(|row| {
            let place = row.source.zip(row.partition).zip(row.offset);
            let set_at =
                place.map(|((source, partition), offset)| Place { source, partition, offset });
            ((key(row.key), row.failover), Stood { before: row.before, set_at })
        })
        .collect())
}

/// Loads inbox rows; after the entities, so that what another writer of the same entity committed is
/// seen.
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

/// Loads the open effects of lanes that order hangs on: those of the lowest version.
pub async fn load_open(tx: &mut PgConnection, lanes: &[Key]) -> Result<Vec<OpenEffect>> {
    let named = load_open_named(tx, lanes).await?;
    Ok(named.into_iter().map(|(effect, _)| effect).collect())
}

/// The same with each effect's connector and name: connectors of one scope share lanes.
pub(in crate::store) async fn load_open_named(
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
