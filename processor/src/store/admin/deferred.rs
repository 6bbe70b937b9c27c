//! Events that wait for others of their entity, for people.

use chrono::{DateTime, Utc};
use oncely_core::key::Key;
use sqlx::{PgConnection, query_file, query_file_scalar};

use super::COUNTED_MAX;
use super::audit::{Change, record};
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
    /// `quarantine` or `dead_letter`: where that one lies.
    pub behind_kind: Option<String>,
    pub tenant: String,
    pub business_id: String,
    pub entity: Key,
    pub origin: Option<Origin>,
    /// When it went, and as what.
    pub closed: Option<(DateTime<Utc>, String)>,
    /// It went, or was parked, since what it waited for did not come in time.
    pub escalated: bool,
}

/// Which events a person lets go; `None` and empty take everything.
#[derive(Clone, Debug, Default)]
pub struct Which {
    /// As `list` shows them.
    pub numbers: Vec<i64>,
    pub connector: Option<String>,
    pub business_id: Option<String>,
}

/// What a person's word comes to.
#[derive(Clone, Debug, Default)]
pub struct Meant {
    /// Events that go: how many of those that were asked for, and the numbers of those that stand before them.
    pub asked: usize,
    pub before: Vec<i64>,
    /// Those that were asked for and wait on behind a parked record.
    pub held: Vec<Held>,
}

/// An event that waits behind a parked record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub number: i64,
    pub behind: i64,
    /// `quarantine` or `dead_letter`: where that one lies.
    pub kind: String,
}

/// Lets events go that wait for a version, as at their time, and with each what stands before it, with an audit row
/// each; gives which ones do (or would).
///
/// # Errors
/// As every query; then nothing was changed.
pub async fn release(tx: &mut PgConnection, which: &Which, change: &Change) -> Result<Meant> {
    let numbers = (!which.numbers.is_empty()).then_some(&*which.numbers);
    let rows = query_file!(
        "src/store/sql/admin_deferred_meant.sql",
        numbers,
        which.connector,
        which.business_id
    );
    let (mut meant, mut going) = (Meant::default(), Vec::new());
    for row in rows.fetch_all(&mut *tx).await? {
        if let Some((behind, kind)) = row.behind.zip(row.behind_kind) {
            meant.held.push(Held { number: row.id, behind, kind });
            continue;
        }
        going.push(row.id);
        if row.is_asked {
            meant.asked = meant.asked.saturating_add(1);
        } else {
            meant.before.push(row.id);
        }
        if !change.dry_run {
            let detail = serde_json::json!({
                "number": row.id,
                "connector": row.connector,
                "business_id": row.business_id,
                "version": row.version,
            });
            let subject = Some(key(row.event));
            record(tx, subject, "deferred release", change, &detail.to_string()).await?;
        }
    }
    if !change.dry_run {
        query_file!("src/store/sql/admin_deferred_release.sql", &going).execute(tx).await?;
    }
    Ok(meant)
}

/// How many events pass the filter, whatever its limit; counted up to [`COUNTED_MAX`].
///
/// # Errors
/// As every query.
pub async fn count(connection: &mut PgConnection, filter: &Filter) -> Result<i64> {
    let count = query_file_scalar!(
        "src/store/sql/admin_deferred_count.sql",
        filter.connector,
        filter.business_id,
        filter.event.map(uuid),
        filter.closed,
        COUNTED_MAX,
    );
    Ok(count.fetch_one(connection).await?)
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
            behind_kind: row.behind_kind,
            tenant: row.tenant,
            business_id: row.business_id,
            entity: key(row.entity),
            origin: Origin::of(row.topic, Some(row.record_partition), Some(row.record_offset)),
            closed: row.closed_at.zip(row.closed_as),
            escalated: row.escalated,
        })
        .collect())
}
