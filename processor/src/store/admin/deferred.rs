//! Events that wait for others of their entity, for people.

use chrono::{DateTime, Utc};
use oncely_core::key::Key;
use sqlx::{PgConnection, query_file};

use crate::store::columns::{key, uuid};
use crate::store::error::Result;
use crate::store::origin::Origin;

/// Which events are asked for; `None` takes everything.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub connector: Option<String>,
    pub business_id: Option<String>,
    pub event: Option<Key>,
    /// Also those that wait no more.
    pub closed: bool,
    /// Rows at most.
    pub limit: i64,
}

/// One event that waits, or waited.
#[derive(Clone, Debug)]
pub struct DeferredRow {
    pub id: i64,
    pub at: DateTime<Utc>,
    /// When it goes whatever has not come; `None`: when a person has decided.
    pub due_at: Option<DateTime<Utc>>,
    /// `None` when the connector's row is gone.
    pub connector: Option<String>,
    /// `gap` or `parked`.
    pub cause: String,
    pub version: i64,
    /// The version up to which its entity's events were decided.
    pub reached: Option<i64>,
    /// The number of the parked record that it is behind.
    pub behind: Option<i64>,
    pub tenant: String,
    pub business_id: String,
    pub entity: Key,
    pub origin: Option<Origin>,
    /// When it went, and as what.
    pub closed: Option<(DateTime<Utc>, String)>,
    /// It went, or was parked, since what it waited for did not come in time.
    pub escalated: bool,
}

/// Events that pass the filter: those that wait first, in the order in which their time comes.
///
/// # Errors
/// As every query.
pub async fn list(connection: &mut PgConnection, filter: &Filter) -> Result<Vec<DeferredRow>> {
    let rows = query_file!(
        "src/store/sql/admin_deferred.sql",
        filter.connector,
        filter.business_id,
        filter.event.map(uuid),
        filter.closed,
        filter.limit,
    );
    let rows = rows.fetch_all(connection).await?.into_iter();
    Ok(rows
        .map(|row| DeferredRow {
            id: row.id,
            at: row.deferred_at,
            due_at: row.due_at,
            connector: row.connector,
            cause: row.cause,
            version: row.version,
            reached: row.reached,
            behind: row.behind,
            tenant: row.tenant,
            business_id: row.business_id,
            entity: key(row.entity),
            origin: Origin::of(row.topic, Some(row.record_partition), Some(row.record_offset)),
            closed: row.closed_at.zip(row.closed_as),
            escalated: row.escalated,
        })
        .collect())
}
