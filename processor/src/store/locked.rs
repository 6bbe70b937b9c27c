//! Who keeps everybody from a table: an ALTER, a VACUUM FULL or a LOCK, and above all one that waits for a reader
//! itself, since whoever comes later waits behind it.
//!
//! Reads: the server's list of locks, by a connection of its own. Gives: one line in the log, now and then while it
//! lasts, that names statement and process and what to do. Never ends anybody's process.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::PgConnection;
use sqlx::query_file;

use super::error::Result;
use crate::clock::{self, Moment};

/// Between two lines of one process.
const EVERY: Duration = Duration::from_secs(30);

/// When it was told last. Clones tell it together.
#[derive(Clone, Debug, Default)]
pub(super) struct Told(Arc<Mutex<Option<Moment>>>);

impl Told {
    /// Whether it is time to look, and to tell what is found.
    pub(super) fn is_due(&self) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = told.is_none_or(|told| clock::since(told) >= EVERY);
        if due {
            *told = Some(clock::now());
        }
        due
    }
}

/// Says who keeps a table, if anybody does at this moment.
pub(super) async fn tell(connection: &mut PgConnection) -> Result<()> {
    let row = query_file!("src/store/sql/lock_held.sql").fetch_optional(connection).await?;
    let Some(row) = row else { return Ok(()) };
    let table = format!("oncely.{}", row.relation);
    let (pid, statement, program) = (row.pid, row.query, row.program);
    match row.behind.filter(|_| !row.granted) {
        Some(behind) => {
            let remedy = format!(
                "let process {behind} end its transaction, or end it (select pg_terminate_backend({behind})), \
                 or take the statement back (select pg_cancel_backend({pid})) and give it a lock_timeout"
            );
            let (behind_state, behind_statement) = (row.behind_state, row.behind_query);
            tracing::error!(
                table,
                pid,
                program,
                statement,
                behind,
                behind_state,
                behind_statement,
                remedy,
                "a statement waits for a table, and all work waits behind it"
            );
        }
        None => {
            let remedy = format!(
                "let it end, or take it back (select pg_cancel_backend({pid})); a table is rewritten while no \
                 process runs"
            );
            tracing::error!(
                table,
                pid,
                program,
                statement,
                remedy,
                "a statement locks a table, and work waits for it"
            );
        }
    }
    Ok(())
}
