//! Workers for people: who lives, who is dead, and what each has in hand.

use sqlx::{PgConnection, query_file};
use uuid::Uuid;

use super::totals::unsigned;
use crate::store::error::Result;

/// One worker that has not ended in good order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerRow {
    pub id: Uuid,
    /// Name of its machine or pod.
    pub host: String,
    /// Declared dead by another worker.
    pub is_dead: bool,
    /// Effects that it holds: about to be sent, or sent and not yet on record.
    pub claims: u64,
}

/// Workers that have not ended, eldest first.
///
/// # Errors
/// As every query.
pub async fn list(connection: &mut PgConnection) -> Result<Vec<WorkerRow>> {
    let rows = query_file!("src/store/sql/admin_workers.sql").fetch_all(connection).await?;
    let row = rows.into_iter().map(|row| WorkerRow {
        id: row.id,
        host: row.host,
        is_dead: row.is_dead,
        claims: unsigned(row.claims),
    });
    Ok(row.collect())
}
