//! Who keeps everybody from a table: an ALTER, a VACUUM FULL or a LOCK, and above all one that waits for a reader
//! itself, since whoever comes later waits behind it.
//!
//! Reads: the server's list of locks, by a connection of its own. Gives: one line in the log, now and then while it
//! lasts, that names statement and process and what to do. Never ends anybody's process.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::PgConnection;
use sqlx::query_file_as;

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

/// A statement that keeps others from a table, and whom it waits for.
struct InTheWay {
    relation: String,
    pid: i32,
    /// It has its lock; else it waits for one, and everybody behind it.
    granted: bool,
    query: String,
    program: String,
    behind: Option<i32>,
    behind_state: String,
    behind_query: String,
}

async fn in_the_way(connection: &mut PgConnection) -> Result<Option<InTheWay>> {
    let query = query_file_as!(InTheWay, "src/store/sql/lock_held.sql");
    Ok(query.fetch_optional(connection).await?)
}

/// Says who keeps a table, if anybody does at this moment.
pub(super) async fn tell(connection: &mut PgConnection) -> Result<()> {
    let Some(row) = in_the_way(connection).await? else { return Ok(()) };
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

#[cfg(test)]
mod tests {
    use sqlx::{Connection as _, Executor as _};

    use super::*;
    use crate::store::database_tests::World;

    /// The table that is named while somebody holds a lock.
    async fn named(world: &World, program: &str, lock: &str) -> Option<String> {
        let mut holder = world.connect().await;
        let mut tx = holder.begin().await.unwrap();
        let name = format!("SET LOCAL application_name = '{program}'");
        tx.execute(sqlx::AssertSqlSafe(name)).await.unwrap();
        tx.execute(sqlx::AssertSqlSafe(format!("LOCK TABLE {lock}"))).await.unwrap();
        let mut asker = world.connect().await;
        in_the_way(&mut asker).await.unwrap().map(|row| row.relation)
    }

    #[tokio::test]
    async fn e3_a_failover_that_is_being_recorded_is_nobody_who_is_in_the_way() {
        let world = World::new().await;
        let failover = "oncely.failover IN EXCLUSIVE MODE";
        assert_eq!(named(&world, "oncely shop writer", failover).await, None);
        let named_failover = Some("failover".to_owned());
        assert_eq!(named(&world, "psql", failover).await, named_failover);
        // Nothing of ours takes more than that.
        let whole = "oncely.failover IN ACCESS EXCLUSIVE MODE";
        assert_eq!(named(&world, "oncely shop writer", whole).await, named_failover);
        let effect = "oncely.effect IN EXCLUSIVE MODE";
        assert_eq!(named(&world, "oncely shop writer", effect).await, Some("effect".to_owned()));
        assert_eq!(named(&world, "psql", "oncely.effect IN ROW EXCLUSIVE MODE").await, None);
    }
}
