//! Failovers of the database, for people.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, query_file_as};

use crate::store::error::Result;

/// One row for each server that the database was found on.
#[derive(Clone, Debug)]
pub struct FailoverRow {
    pub number: i32,
    pub at: DateTime<Utc>,
    pub system_identifier: i64,
    pub timeline: i64,
    /// `None`: the first one.
    pub system_before: Option<i64>,
    pub timeline_before: Option<i64>,
    /// Nothing was lost, by the settings of whoever found it.
    pub lossless: bool,
    /// What was done after that may be forgotten.
    pub lost_since: DateTime<Utc>,
    /// Positions that were taken back.
    pub positions: i32,
    /// Open effects that may have been sent.
    pub effects: i32,
}

/// The last of them, newest first.
pub async fn list(connection: &mut PgConnection, limit: i64) -> Result<Vec<FailoverRow>> {
    let rows = query_file_as!(FailoverRow, "src/store/sql/admin_failovers.sql", limit);
    Ok(rows.fetch_all(connection).await?)
}
