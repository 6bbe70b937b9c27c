//! The outbox for people, and sending again what the brokers refused.

use chrono::{DateTime, Utc};
use oncely_core::key::Key;
use sqlx::{PgConnection, query_file, query_file_scalar};

use super::COUNTED_MAX;
use super::audit::{Change, record};
use crate::store::columns::key;
use crate::store::error::Result;
use crate::store::settle::{LaneLock, lock_lanes};

/// Which records are asked for; `None` and empty take everything.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// `waiting`, `held`, `done`, `skipped`.
    pub statuses: Vec<String>,
    pub connector: Option<String>,
    pub topic: Option<String>,
    pub number: Option<i64>,
    /// Rows at most.
    pub limit: i64,
}

/// One record as it stands.
#[derive(Clone, Debug)]
pub struct OutboxRow {
    pub number: i64,
    pub message: Key,
    /// `None` when the connector's row is gone.
    pub connector: Option<String>,
    pub topic: String,
    pub status: String,
    pub attempts: i32,
    pub created_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
    /// Partition and offset, when the brokers have it.
    pub sent: Option<(i32, i64)>,
    /// Of a dead letter.
    pub parked: Option<i64>,
    pub effect: Option<String>,
    pub tenant: Option<String>,
    pub business_id: Option<String>,
    pub note: Option<String>,
}

/// How many records pass the filter, whatever its limit; counted up to [`COUNTED_MAX`].
///
/// # Errors
/// As every query.
pub async fn count(connection: &mut PgConnection, filter: &Filter) -> Result<i64> {
    let statuses = (!filter.statuses.is_empty()).then_some(&*filter.statuses);
    let count = query_file_scalar!(
        "src/store/sql/admin_outbox_count.sql",
        statuses,
        filter.connector,
        filter.topic,
        filter.number,
        COUNTED_MAX,
    );
    Ok(count.fetch_one(connection).await?)
}

/// Records that pass the filter, newest first.
///
/// # Errors
/// As every query.
pub async fn list(connection: &mut PgConnection, filter: &Filter) -> Result<Vec<OutboxRow>> {
    let statuses = (!filter.statuses.is_empty()).then_some(&*filter.statuses);
    let rows = query_file!(
        "src/store/sql/admin_outbox.sql",
        statuses,
        filter.connector,
        filter.topic,
        filter.number,
        filter.limit,
    );
    let rows = rows.fetch_all(connection).await?.into_iter();
    Ok(rows
        .map(|row| OutboxRow {
            number: row.id,
            message: key(row.message),
            connector: row.connector,
            topic: row.topic,
            status: row.status,
            attempts: row.attempts,
            created_at: row.created_at,
            finished_at: row.finished_at,
            sent: row.sent_partition.zip(row.sent_offset),
            parked: row.parked,
            effect: row.effect,
            tenant: row.tenant,
            business_id: row.business_id,
            note: row.note,
        })
        .collect())
}

/// Sends held records again, with an audit row each; gives how many were (or would be).
///
/// # Errors
/// As every query; then nothing was changed.
pub async fn retry(tx: &mut PgConnection, filter: &Filter, change: &Change) -> Result<usize> {
    let Filter { connector, topic, number, .. } = filter;
    if change.dry_run {
        let held = Filter { statuses: vec!["held".to_owned()], limit: i64::MAX, ..filter.clone() };
        return Ok(list(tx, &held).await?.len());
    }
    let lanes = query_file!(
        "src/store/sql/admin_outbox_lanes.sql",
        connector.as_deref(),
        topic.as_deref(),
        *number,
    );
    let lanes = lanes.fetch_all(&mut *tx).await?;
    for (lock, events) in [(LaneLock::Entity, false), (LaneLock::Inbox, true)] {
        let of_kind = lanes.iter().filter(|lane| lane.is_event == events);
        let sorted: Vec<Key> = of_kind.map(|lane| key(lane.lane)).collect();
        if !sorted.is_empty() {
            lock_lanes(tx, lock, &sorted).await?;
        }
    }
    let rows = query_file!(
        "src/store/sql/admin_outbox_retry.sql",
        connector.as_deref(),
        topic.as_deref(),
        *number,
    );
    let rows = rows.fetch_all(&mut *tx).await?;
    for row in &rows {
        let detail = serde_json::json!({
            "number": row.id, "topic": row.topic, "dead_letter": row.parked,
        });
        record(tx, Some(key(row.message)), "outbox retry", change, &detail.to_string()).await?;
    }
    Ok(rows.len())
}
