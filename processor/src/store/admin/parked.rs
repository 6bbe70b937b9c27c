//! Dead letters and quarantine for people.

use chrono::{DateTime, Utc};
use oncely_core::key::Key;
use sqlx::{PgConnection, query_file, query_file_scalar};

use super::COUNTED_MAX;
use crate::store::columns::key;
use crate::store::error::Result;
use crate::store::origin::Origin;

/// Which of the two places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    DeadLetters,
    Quarantine,
}

impl Place {
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::DeadLetters => "dead_letter",
            Self::Quarantine => "quarantine",
        }
    }
}

/// Which rows are asked for; `None` takes everything.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub connector: Option<String>,
    pub reason: Option<String>,
    pub business_id: Option<String>,
    /// Closed ones as well.
    pub closed: bool,
    /// Rows at most.
    pub limit: i64,
}

/// One parked record, or one rejected effect.
#[derive(Clone, Debug)]
pub struct ParkedRow {
    pub id: i64,
    pub at: DateTime<Utc>,
    pub connector: Option<String>,
    pub reason: String,
    pub tenant: String,
    pub business_id: Option<String>,
    pub detail: String,
    /// `None` for a rejected effect.
    pub origin: Option<Origin>,
    pub effect: Option<Key>,
    /// How often it was decided, or tried, again.
    pub redrives: i32,
    /// It is to be decided again by the next worker that looks.
    pub wanted: bool,
    /// It may have been done already: a failover may have lost that the record was decided again, or an attempt of
    /// the effect may have been applied.
    pub suspect: bool,
    /// When it was closed, and as what.
    pub closed: Option<(DateTime<Utc>, String)>,
}

/// Why it was parked first, of one that was parked anew since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct First {
    pub at: DateTime<Utc>,
    pub reason: String,
    pub detail: String,
}

impl First {
    pub(super) fn of(
        at: Option<DateTime<Utc>>,
        reason: Option<String>,
        detail: Option<String>,
    ) -> Option<Self> {
        Some(Self { at: at?, reason: reason?, detail: detail? })
    }
}

/// What both queries give of a row; each has a type of its own.
macro_rules! head {
    ($row:expr) => {
        ParkedRow {
            id: $row.id,
            at: $row.parked_at,
            connector: $row.connector,
            reason: $row.reason,
            tenant: $row.tenant,
            business_id: $row.business_id,
            detail: $row.detail,
            origin: Origin::of($row.topic, $row.record_partition, $row.record_offset),
            effect: $row.effect.map(key),
            redrives: $row.redrives,
            wanted: $row.wanted,
            suspect: $row.suspect,
            closed: $row.closed_at.zip($row.closed_as),
        }
    };
}

/// How many parked rows pass the filter, whatever its limit; counted up to [`COUNTED_MAX`].
pub async fn count(connection: &mut PgConnection, place: Place, filter: &Filter) -> Result<i64> {
    let count = query_file_scalar!(
        "src/store/sql/admin_parked_count.sql",
        place.kind(),
        filter.connector,
        filter.reason,
        filter.business_id,
        COUNTED_MAX,
        filter.closed,
    );
    Ok(count.fetch_one(connection).await?)
}

/// Parked rows that pass the filter, newest first.
pub async fn list(
    connection: &mut PgConnection,
    place: Place,
    filter: &Filter,
) -> Result<Vec<ParkedRow>> {
    let rows = query_file!(
        "src/store/sql/admin_parked.sql",
        place.kind(),
        filter.connector,
        filter.reason,
        filter.business_id,
        filter.limit,
        filter.closed,
    );
    let rows = rows.fetch_all(connection).await?.into_iter();
    Ok(rows.map(|row| head!(row)).collect())
}

/// All that was kept of one parked row.
#[derive(Clone, Debug)]
pub struct ParkedWhole {
    pub row: ParkedRow,
    pub first: Option<First>,
    pub event: Option<Key>,
    /// Of the record, and of the event known under the same id.
    pub fingerprint: Option<Key>,
    pub known_fingerprint: Option<Key>,
    /// The first copy of the event known under the same id: where it lies, and since when it is known.
    pub known: Option<(Origin, DateTime<Utc>)>,
    /// Its value, where its bytes are kept.
    pub known_value: Option<Vec<u8>>,
    pub timestamp_ms: Option<i64>,
    pub record_key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Option<Vec<u8>>,
}

pub async fn show(
    connection: &mut PgConnection,
    place: Place,
    id: i64,
) -> Result<Option<ParkedWhole>> {
    let row = query_file!("src/store/sql/admin_parked_one.sql", place.kind(), id);
    let row = row.fetch_optional(connection).await?;
    Ok(row.map(|row| ParkedWhole {
        first: First::of(row.first_at, row.first_reason, row.first_detail),
        row: head!(row),
        event: row.event.map(key),
        fingerprint: row.fingerprint.map(key),
        known_fingerprint: row.known_fingerprint.map(key),
        known: Origin::of(row.known_topic, row.known_partition, row.known_offset).zip(row.known_at),
        known_value: row.known_value,
        timestamp_ms: row.record_timestamp,
        record_key: row.record_key,
        value: row.value,
        headers: row.headers,
    }))
}
