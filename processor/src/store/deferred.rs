//! Events that wait for others of their entity.
//!
//! Whoever changes rows here has the entities locked, or names what it saw: a row that is gone is a lost race.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use oncely_core::decide::{DeferredNew, DeferredRow, Ending, InboxRow, Place, Plan, Waits};
use oncely_core::fingerprint::Fingerprint;
use oncely_core::key::Key;
use sqlx::{PgConnection, query_file, query_file_scalar};
use uuid::Uuid;

use super::batch::Written;
use super::columns::{elapsed, key, millis, uuid, uuids};
use super::error::Result;

/// What is on record of the order of some entities.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    pub waits: BTreeMap<Key, Waits>,
    /// The events that wait, as the inbox has them.
    pub inbox: BTreeMap<Key, InboxRow>,
    /// Bytes of each row's value, by its number.
    pub sizes: BTreeMap<i64, usize>,
}

/// Loads it; of each entity at most the `limit` lowest of the events that wait. What `deciding`, parked rows, hold
/// back is held back by them no more. Nothing is overdue whose time came after `read_until`.
pub async fn standing(
    tx: &mut PgConnection,
    connector: i32,
    (entities, deciding): (&[Key], &[i64]),
    read_until: Option<DateTime<Utc>>,
    limit: i64,
) -> Result<Standing> {
    let rows = query_file!(
        "src/store/sql/deferred_standing.sql",
        &uuids(entities),
        deciding,
        limit,
        connector,
        read_until
    );
    let mut standing = Standing::default();
    for row in rows.fetch_all(tx).await? {
        let waits = standing.waits.entry(key(row.entity)).or_default();
        waits.passed = row.passed;
        waits.ahead = row.ahead.into_iter().flatten().collect();
        waits.parked = row.held.into_iter().flatten().collect();
        let (Some(number), Some(event), Some(version)) = (row.id, row.event, row.version) else {
            continue;
        };
        let event = key(event);
        waits.deferred.push(DeferredRow {
            number: Some(number),
            event,
            version,
            overdue: row.overdue.unwrap_or(false),
            untimed: row.untimed.unwrap_or(false),
            input: None,
            changed: false,
        });
        let size = usize::try_from(row.bytes.unwrap_or(0)).unwrap_or(usize::MAX);
        standing.sizes.insert(number, size);
        if let (Some(fingerprint), Some(source), Some(partition), Some(offset)) =
            (row.fingerprint, row.source, row.partition, row.offset)
        {
            let known = InboxRow {
                fingerprint: Fingerprint(key(fingerprint)),
                ending: Ending::Deferred,
                effects: Vec::new(),
                first: Place { source, partition, offset },
                age_ms: elapsed(row.age_ms.unwrap_or(0)),
            };
            standing.inbox.insert(event, known);
        }
    }
    Ok(standing)
}

/// The record of an event that waits.
#[derive(Clone, Debug)]
pub struct DeferredRecord {
    pub number: i64,
    pub event: Key,
    pub entity: Key,
    pub version: i64,
    pub fingerprint: Fingerprint,
    pub tenant: String,
    pub business_id: String,
    pub place: Place,
    pub topic: String,
    pub timestamp_ms: Option<i64>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<u8>,
    /// It may have been run in what a failover has lost.
    pub suspect: bool,
}

/// The records of these rows, as far as they wait.
pub async fn records(tx: &mut PgConnection, numbers: &[i64]) -> Result<Vec<DeferredRecord>> {
    let rows = query_file!("src/store/sql/deferred_bytes.sql", numbers).fetch_all(tx).await?;
    Ok(rows
        .into_iter()
        .map(|row| DeferredRecord {
            number: row.id,
            event: key(row.event),
            entity: key(row.entity),
            version: row.version,
            fingerprint: Fingerprint(key(row.fingerprint)),
            tenant: row.tenant,
            business_id: row.business_id,
            place: Place {
                source: row.source,
                partition: row.record_partition,
                offset: row.record_offset,
            },
            topic: row.topic,
            timestamp_ms: row.record_timestamp,
            key: row.record_key,
            value: row.value,
            headers: row.headers,
            suspect: row.suspect,
        })
        .collect())
}

/// Notes what became of the events that wait no more; before the inbox is written.
pub async fn close(tx: &mut PgConnection, plan: &Plan) -> Result<Written> {
    let number: Vec<_> = plan.released.iter().map(|one| one.number).collect();
    let outcome: Vec<&str> = plan.released.iter().map(|one| one.decision.ending.as_str()).collect();
    let escalated: Vec<_> = plan.released.iter().map(|one| one.escalated.is_some()).collect();
    let closed =
        query_file!("src/store/sql/deferred_close.sql", &number, &outcome as &[&str], &escalated);
    let closed = closed.execute(tx).await?.rows_affected();
    let all = usize::try_from(closed) == Ok(number.len());
    Ok(if all { Written::All } else { Written::LostRace })
}

/// An event that waits from now on, and the record that it stands in.
#[derive(Clone, Copy, Debug)]
pub struct NewRecord<'a> {
    pub event: Key,
    pub new: &'a DeferredNew,
    pub place: Place,
    pub timestamp_ms: Option<i64>,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a [u8],
}

/// Writes them; those that miss a version wait for `wait_ms`.
pub async fn put(
    tx: &mut PgConnection,
    connector: i32,
    wait_ms: u64,
    records: &[NewRecord<'_>],
) -> Result<()> {
    let event = uuids(records.iter().map(|record| &record.event));
    let entity = uuids(records.iter().map(|record| &record.new.entity));
    let fingerprint: Vec<_> = records.iter().map(|record| uuid(record.new.fingerprint.0)).collect();
    let version: Vec<_> = records.iter().map(|record| record.new.version).collect();
    let cause: Vec<&str> = records.iter().map(|record| record.new.cause.as_str()).collect();
    let tenant: Vec<&str> = records.iter().map(|record| &*record.new.tenant).collect();
    let business_id: Vec<&str> = records.iter().map(|record| &*record.new.business_id).collect();
    let source: Vec<_> = records.iter().map(|record| record.place.source).collect();
    let partition: Vec<_> = records.iter().map(|record| record.place.partition).collect();
    let offset: Vec<_> = records.iter().map(|record| record.place.offset).collect();
    let timestamp: Vec<_> = records.iter().map(|record| record.timestamp_ms).collect();
    let suspect: Vec<_> = records.iter().map(|record| record.new.suspect).collect();
    let record_key: Vec<Option<&[u8]>> = records.iter().map(|record| record.key).collect();
    let value: Vec<Option<&[u8]>> = records.iter().map(|record| record.value).collect();
    let headers: Vec<&[u8]> = records.iter().map(|record| record.headers).collect();
    query_file!(
        "src/store/sql/deferred_insert.sql",
        &event,
        &entity,
        &fingerprint,
        &version,
        &cause as &[&str],
        &tenant as &[&str],
        &business_id as &[&str],
        &source,
        &partition,
        &offset,
        &timestamp as &[Option<i64>],
        &record_key as &[Option<&[u8]>],
        &value as &[Option<&[u8]>],
        &headers as &[&[u8]],
        connector,
        millis(wait_ms),
        &suspect,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Gives those a time that waited for a person and wait for a version now.
pub async fn give_time(tx: &mut PgConnection, numbers: &[i64], wait_ms: u64) -> Result<()> {
    query_file!("src/store/sql/deferred_time.sql", numbers, millis(wait_ms)).execute(tx).await?;
    Ok(())
}

/// Lets these be found as due: they may go, and nothing that comes will bring that to light.
pub async fn hurry(tx: &mut PgConnection, numbers: &[i64]) -> Result<()> {
    query_file!("src/store/sql/deferred_hurry.sql", numbers).execute(tx).await?;
    Ok(())
}

/// Notes how far versions were decided of entities that were left where they are.
pub async fn raise_passed(
    tx: &mut PgConnection,
    connector: i32,
    passed: &[(Key, i64)],
) -> Result<()> {
    let entity: Vec<Uuid> = passed.iter().map(|(entity, _)| uuid(*entity)).collect();
    let version: Vec<_> = passed.iter().map(|(_, version)| *version).collect();
    query_file!("src/store/sql/passed_raise.sql", &entity, &version, connector).execute(tx).await?;
    Ok(())
}

/// Notes versions that were decided while one before them was missing.
pub async fn note_ahead(tx: &mut PgConnection, connector: i32, ahead: &[(Key, i64)]) -> Result<()> {
    let entity: Vec<Uuid> = ahead.iter().map(|(entity, _)| uuid(*entity)).collect();
    let version: Vec<_> = ahead.iter().map(|(_, version)| *version).collect();
    query_file!("src/store/sql/ahead_insert.sql", &entity, &version, connector).execute(tx).await?;
    Ok(())
}

/// Notes that nobody misses the versions of these parked rows any more, which were parked for want of another or of
/// room, and are closed.
pub async fn give_up(tx: &mut PgConnection, parked: &[i64]) -> Result<()> {
    query_file!("src/store/sql/ahead_of_parked.sql", parked).execute(tx).await?;
    Ok(())
}

/// Removes what was noted beyond these entities, as far as they have come; after they were written.
pub async fn overtaken(tx: &mut PgConnection, entities: &BTreeSet<Key>) -> Result<()> {
    query_file!("src/store/sql/passed_overtaken.sql", &uuids(entities)).execute(tx).await?;
    Ok(())
}

/// Which deferred events are looked at, whether what they wait for has come unseen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Those that began to wait a short time ago, since it may have come at that very moment, and those that a
    /// person let go a short time ago.
    Young,
    /// All: another connector of the scope may have brought it.
    All,
}

/// The database's moment, and whether the time of an event has come since `read_until`.
pub async fn timed(
    connection: &mut PgConnection,
    connector: i32,
    read_until: Option<DateTime<Utc>>,
) -> Result<(DateTime<Utc>, bool)> {
    let row = query_file!("src/store/sql/deferred_timed.sql", connector, read_until);
    let row = row.fetch_one(connection).await?;
    Ok((row.now, row.any))
}

/// What a connector's events may wait for.
#[derive(Clone, Copy, Debug)]
pub struct MayWait {
    /// For the versions before them.
    pub for_versions: bool,
    /// For a person's word about a parked one.
    pub for_parked: bool,
}

/// Entities of a connector of which a deferred event may go. Nobody's time has come after `read_until`.
pub async fn due(
    connection: &mut PgConnection,
    connector: i32,
    may_wait: MayWait,
    (look, read_until): (Look, Option<DateTime<Utc>>),
    limit: i64,
) -> Result<Vec<Key>> {
    let all = look == Look::All;
    let rows = query_file_scalar!(
        "src/store/sql/deferred_due.sql",
        connector,
        may_wait.for_parked,
        limit,
        all,
        read_until,
        may_wait.for_versions
    );
    let mut due: Vec<Key> = rows.fetch_all(connection).await?.into_iter().map(key).collect();
    due.sort_unstable();
    Ok(due)
}

/// Takes over events that wait under a name that this connector had: it has the same scope, and nobody runs it.
pub async fn adopt(connection: &mut PgConnection, connector: i32) -> Result<u64> {
    let adopted = query_file!("src/store/sql/deferred_adopt.sql", connector);
    Ok(adopted.execute(connection).await?.rows_affected())
}

/// Whether events of a connector wait, or may still be made to by a worker that came before this one: its file may be
/// another.
pub async fn may_be_left(
    connection: &mut PgConnection,
    connector: i32,
    worker: Uuid,
) -> Result<bool> {
    let query = query_file_scalar!("src/store/sql/deferred_left.sql", connector, worker);
    Ok(query.fetch_one(connection).await?)
}

/// How many events of a connector wait, counted as far as `limit`.
pub async fn count(tx: &mut PgConnection, connector: i32, limit: u32) -> Result<usize> {
    let count = query_file_scalar!("src/store/sql/deferred_count.sql", connector, i64::from(limit));
    Ok(usize::try_from(count.fetch_one(tx).await?).unwrap_or(0))
}
