//! Parked records that are decided again, and dead letters on their way to a topic.

use oncely_core::decide::{Ending, ParkReason, Place};
use oncely_core::key::Key;
use sqlx::{PgConnection, query_file, query_file_scalar};
use uuid::Uuid;

use super::columns::{clean, key, uuid, uuids};
use super::error::Result;

/// Characters of a detail, as the columns allow.
const DETAIL_CHARS_MAX: usize = 2_000;

/// A parked record that a person wants decided again.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub number: i64,
    pub place: Place,
    pub topic: String,
    /// Why it was parked.
    pub reason: String,
    /// The event that it was parked as; of a second content the one that has the first.
    pub event: Option<Key>,
    /// Its business id is known with another content.
    pub is_conflict: bool,
    /// The key that it runs under beside that one, once a person has released it.
    pub released: Option<Key>,
    /// A person has said that it is to be run.
    pub release: bool,
    /// The failover, by its number, that may have lost that it was decided again.
    pub failover: Option<i32>,
    pub timestamp_ms: Option<i64>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Option<Vec<u8>>,
}

/// Up to `limit` parked records of a connector that are wanted, oldest wish first.
pub async fn wanted(
    connection: &mut PgConnection,
    connector: i32,
    limit: i64,
) -> Result<Vec<Wanted>> {
    let rows = query_file!("src/store/sql/parked_wanted.sql", connector, limit);
    let rows = rows.fetch_all(connection).await?.into_iter();
    Ok(rows
        .map(|row| Wanted {
            number: row.id,
            place: Place {
                source: row.source,
                partition: row.record_partition,
                offset: row.record_offset,
            },
            topic: row.topic,
            event: row.event.map(key),
            released: row.released.map(key),
            is_conflict: row.reason == ParkReason::Conflict.as_str(),
            reason: row.reason,
            release: row.release,
            failover: row.failover,
            timestamp_ms: row.record_timestamp,
            key: row.record_key,
            value: row.value,
            headers: row.headers,
        })
        .collect())
}

/// Whether any is wanted, or an event waits that may go.
pub async fn is_any_wanted(connection: &mut PgConnection, connector: i32) -> Result<bool> {
    let query = query_file_scalar!("src/store/sql/parked_any_wanted.sql", connector);
    Ok(query.fetch_one(connection).await?)
}

/// Locks those of these rows that are still wanted; gives how many.
pub async fn lock(tx: &mut PgConnection, numbers: &[i64]) -> Result<usize> {
    let rows = query_file_scalar!("src/store/sql/parked_lock.sql", numbers);
    Ok(rows.fetch_all(tx).await?.len())
}

/// Forgets that these events were parked.
pub async fn forget(tx: &mut PgConnection, events: &[Key]) -> Result<()> {
    query_file!("src/store/sql/inbox_forget.sql", &uuids(events)).execute(tx).await?;
    Ok(())
}

/// The states that entities had before these events moved them.
pub async fn states_before(tx: &mut PgConnection, events: &[Key]) -> Result<Vec<(Key, String)>> {
    let rows = query_file!("src/store/sql/inbox_from_state.sql", &uuids(events));
    let rows = rows.fetch_all(tx).await?.into_iter();
    Ok(rows.filter_map(|row| Some((key(row.key), row.from_state?))).collect())
}

/// What became of a parked record that was decided again.
#[derive(Clone, Debug, Default)]
pub struct Decided {
    pub number: i64,
    /// How it ended, or would have.
    pub outcome: &'static str,
    /// `None`: it is closed.
    pub kind: Option<&'static str>,
    pub reason: Option<String>,
    pub detail: Option<String>,
    pub event: Option<Key>,
    /// See [`Wanted::released`].
    pub released: Option<Key>,
    pub tenant: Option<String>,
    pub business_id: Option<String>,
    pub fingerprint: Option<Key>,
    pub known_fingerprint: Option<Key>,
    /// The entity that it holds, and its version.
    pub holds: Option<(Key, i64)>,
}

impl Decided {
    /// It ended well.
    pub fn closed(number: i64, ending: Ending) -> Self {
        Self { number, outcome: ending.as_str(), ..Self::default() }
    }

    /// It is parked anew.
    pub fn parked(number: i64, quarantine: bool, reason: &str, detail: &str) -> Self {
        let (kind, ending) = if quarantine {
            ("quarantine", Ending::Quarantined)
        } else {
            ("dead_letter", Ending::DeadLettered)
        };
        Self {
            number,
            outcome: ending.as_str(),
            kind: Some(kind),
            reason: Some(reason.to_owned()),
            detail: Some(clean(detail, DETAIL_CHARS_MAX)),
            ..Self::default()
        }
    }

    /// The command that shows it, where it is parked anew.
    pub fn look(&self) -> String {
        let list = if self.kind == Some("quarantine") { "quarantine" } else { "dlq" };
        format!("oncely {list} show {}", self.number)
    }

    /// The outcome, and why it is parked anew.
    pub fn told(&self) -> (&'static str, Option<&str>) {
        (self.outcome, self.reason.as_deref())
    }
}

/// Puts on record what became of parked records.
pub async fn decided(tx: &mut PgConnection, decided: &[Decided]) -> Result<()> {
    let id: Vec<_> = decided.iter().map(|one| one.number).collect();
    let outcome: Vec<&str> = decided.iter().map(|one| one.outcome).collect();
    let kind: Vec<Option<&str>> = decided.iter().map(|one| one.kind).collect();
    let reason: Vec<Option<&str>> = decided.iter().map(|one| one.reason.as_deref()).collect();
    let detail: Vec<Option<&str>> = decided.iter().map(|one| one.detail.as_deref()).collect();
    let event: Vec<_> = decided.iter().map(|one| one.event.map(uuid)).collect();
    let released: Vec<_> = decided.iter().map(|one| one.released.map(uuid)).collect();
    let tenant: Vec<Option<&str>> = decided.iter().map(|one| one.tenant.as_deref()).collect();
    let business_id: Vec<Option<&str>> =
        decided.iter().map(|one| one.business_id.as_deref()).collect();
    let fingerprint: Vec<_> = decided.iter().map(|one| one.fingerprint.map(uuid)).collect();
    let known: Vec<_> = decided.iter().map(|one| one.known_fingerprint.map(uuid)).collect();
    let holds: Vec<_> = decided.iter().map(|one| Some(uuid(one.holds?.0))).collect();
    let held: Vec<_> = decided.iter().map(|one| Some(one.holds?.1)).collect();
    query_file!(
        "src/store/sql/parked_decided.sql",
        &id,
        &outcome as &[&str],
        &kind as &[Option<&str>],
        &reason as &[Option<&str>],
        &detail as &[Option<&str>],
        &event as &[Option<Uuid>],
        &tenant as &[Option<&str>],
        &business_id as &[Option<&str>],
        &fingerprint as &[Option<Uuid>],
        &known as &[Option<Uuid>],
        &holds as &[Option<Uuid>],
        &held as &[Option<i64>],
        &released as &[Option<Uuid>],
    )
    .execute(tx)
    .await?;
    Ok(())
}

// --------------------------------------------------------------------------------------------- //

/// A dead letter that is to go to its connector's topic.
#[derive(Clone, Debug)]
pub struct LetterDue {
    pub number: i64,
    pub redrives: i32,
    pub effect: Option<Key>,
    /// What tells the record from every other one; of an effect none.
    pub record: Option<String>,
    pub record_key: Option<Vec<u8>>,
}

/// Whether there are any.
pub async fn is_any_letter(connection: &mut PgConnection, connector: i32) -> Result<bool> {
    let query = query_file_scalar!("src/store/sql/letters_any.sql", connector);
    Ok(query.fetch_one(connection).await?)
}

/// Dead letters of a connector that are not in the outbox yet, oldest first, locked.
pub async fn letters_due(
    tx: &mut PgConnection,
    connector: i32,
    limit: i64,
) -> Result<Vec<LetterDue>> {
    let rows = query_file!("src/store/sql/letters_due.sql", connector, limit);
    let rows = rows.fetch_all(tx).await?.into_iter();
    Ok(rows
        .map(|row| LetterDue {
            number: row.id,
            redrives: row.redrives,
            effect: row.effect.map(key),
            record: row.record,
            record_key: row.record_key,
        })
        .collect())
}

/// Notes that these dead letters are in the outbox.
pub async fn letters_queued(tx: &mut PgConnection, numbers: &[i64]) -> Result<()> {
    query_file!("src/store/sql/letters_queued.sql", numbers).execute(tx).await?;
    Ok(())
}
