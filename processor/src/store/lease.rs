//! Worker rows: who is alive, and who has been declared dead.

use sqlx::{PgConnection, query_file};
use uuid::Uuid;

use super::error::Result;

/// What a heartbeat found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Pulse {
    Alive,
    /// Declared dead: nothing may be sent under this id any more.
    Dead,
}

/// Makes the row of a new worker.
pub async fn start(
    connection: &mut PgConnection,
    worker: Uuid,
    lease_ms: i32,
    host: &str,
) -> Result<()> {
    query_file!("src/store/sql/worker_start.sql", worker, lease_ms, host)
        .execute(connection)
        .await?;
    Ok(())
}

/// Renews the lease, unless the worker was declared dead.
pub async fn beat(connection: &mut PgConnection, worker: Uuid) -> Result<Pulse> {
    let done = query_file!("src/store/sql/worker_beat.sql", worker).execute(connection).await?;
    Ok(if done.rows_affected() == 1 { Pulse::Alive } else { Pulse::Dead })
}

/// Whether the worker is still alive, inside a transaction that claims for it.
pub async fn alive(tx: &mut PgConnection, worker: Uuid) -> Result<Pulse> {
    let row = query_file!("src/store/sql/worker_alive.sql", worker).fetch_optional(tx).await?;
    Ok(if row.is_some() { Pulse::Alive } else { Pulse::Dead })
}

/// Declares every worker dead whose heartbeat is older than its lease.
pub async fn declare_dead(connection: &mut PgConnection, judge: Uuid) -> Result<Vec<Uuid>> {
    let rows =
        query_file!("src/store/sql/worker_declare_dead.sql", judge).fetch_all(connection).await?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// Forgets workers that are long gone and left nothing behind.
pub async fn prune(connection: &mut PgConnection) -> Result<()> {
    query_file!("src/store/sql/worker_prune.sql").execute(connection).await?;
    Ok(())
}

/// Ends the row of a worker that has nothing in flight.
pub async fn end(connection: &mut PgConnection, worker: Uuid) -> Result<()> {
    query_file!("src/store/sql/worker_end.sql", worker).execute(connection).await?;
    Ok(())
}
