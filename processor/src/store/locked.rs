//! Who keeps everybody from a table or from its rows: an ALTER, a VACUUM FULL or a LOCK, and above all one that waits for
//! a reader itself, since whoever comes later waits behind it; or a transaction that somebody has left open.
//!
//! Reads: the server's list of locks, by a connection of its own. Gives: one line in the log, now and then while it
//! lasts, that names the session at the root of the wait and what to do. Never ends anybody's process.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::PgConnection;
use sqlx::query_file_as;

use super::connection::LOCK_MS_MAX;
use super::error::Result;
use crate::clock::{self, Moment};

/// Between two lines of one process.
const EVERY: Duration = Duration::from_secs(30);

/// How the server calls our sessions.
const OURS: &str = "oncely ";

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

/// A session that keeps others from a table or from its rows, and whom it waits for.
struct InTheWay {
    relation: String,
    pid: i32,
    /// It locks the whole table, or waits for that and everybody behind it.
    is_whole: bool,
    query: String,
    program: String,
    state: String,
    /// Who waits for nobody, at the end of what the statement waits for.
    behind: Option<i32>,
    behind_program: String,
    behind_state: String,
    behind_query: String,
}

/// `open_for`: how long a transaction may have rows locked before it is in the way of somebody who does not wait just now.
async fn in_the_way(connection: &mut PgConnection, open_for: Duration) -> Result<Option<InTheWay>> {
    let query = query_file_as!(InTheWay, "src/store/sql/lock_held.sql", open_for.as_secs_f64());
    Ok(query.fetch_optional(connection).await?)
}

/// Says who keeps a table or rows of it, if anybody does at this moment.
pub(super) async fn tell(connection: &mut PgConnection) -> Result<()> {
    let Some(row) = in_the_way(connection, Duration::from_millis(LOCK_MS_MAX)).await? else {
        return Ok(());
    };
    let remedy = remedy(&row);
    let table = format!("oncely.{}", row.relation);
    let (pid, statement, program, state) = (row.pid, row.query, row.program, row.state);
    match row.behind {
        Some(behind) => {
            let (behind_state, behind_statement) = (row.behind_state, row.behind_query);
            let behind_program = row.behind_program;
            tracing::error!(
                table,
                pid,
                program,
                statement,
                behind,
                behind_program,
                behind_state,
                behind_statement,
                remedy,
                "a statement waits for a table, and all work waits behind it"
            );
        }
        None if row.is_whole => tracing::error!(
            table,
            pid,
            program,
            statement,
            remedy,
            "a statement locks a table, and work waits for it"
        ),
        None => tracing::error!(
            table,
            pid,
            program,
            state,
            statement,
            remedy,
            "a transaction has rows locked, and work waits for it"
        ),
    }
    Ok(())
}

/// What to do. A session of ours ends by itself: none is to be ended by hand.
fn remedy(row: &InTheWay) -> String {
    let pid = row.pid;
    match row.behind {
        Some(_) if row.behind_program.starts_with(OURS) => format!(
            "take the statement back (select pg_cancel_backend({pid})) and give it a lock_timeout; it waits for a \
             transaction of Oncely's, which ends by itself"
        ),
        Some(behind) => format!(
            "let process {behind} end its transaction, or end it (select pg_terminate_backend({behind})), \
             or take the statement back (select pg_cancel_backend({pid})) and give it a lock_timeout"
        ),
        None if row.is_whole => format!(
            "let it end, or take it back (select pg_cancel_backend({pid})); a table is rewritten while no \
             process runs"
        ),
        None => format!(
            "let process {pid} end its transaction, or end it (select pg_terminate_backend({pid})); rows of Oncely's \
             are changed by its own commands"
        ),
    }
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
        in_the_way(&mut asker, Duration::from_secs(60)).await.unwrap().map(|row| row.relation)
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

    /// A session under a name, and its number.
    async fn session(world: &World, program: &str) -> (PgConnection, i32) {
        let mut connection = world.connect().await;
        let name = format!("SET application_name = '{program}'");
        connection.execute(sqlx::AssertSqlSafe(name)).await.unwrap();
        let row = connection.fetch_one("SELECT pg_backend_pid()").await.unwrap();
        let pid = sqlx::Row::get(&row, 0);
        (connection, pid)
    }

    /// Begins a statement that waits, and gives back once it does.
    async fn waits(world: &World, program: &'static str, statement: &'static str) -> i32 {
        let (mut connection, pid) = session(world, program).await;
        drop(crate::task::spawn_to_the_end(async move { connection.execute(statement).await }));
        let blocked = format!("SELECT cardinality(pg_blocking_pids({pid}))");
        while world.text(&blocked).await == "0" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        pid
    }

    #[tokio::test]
    async fn a_row_that_a_person_has_locked_is_the_persons_and_no_victims() {
        let world = World::new().await;
        let (mut asker, _) = session(&world, "asker").await;
        let mut found = async |open_s| {
            let found = in_the_way(&mut asker, Duration::from_secs(open_s)).await.unwrap();
            found.map(|row| (row.pid, row.relation.clone(), row.state.clone(), remedy(&row)))
        };
        let (mut person, pid) = session(&world, "psql").await;
        person.execute("BEGIN; SELECT FROM oncely.connector FOR UPDATE").await.unwrap();
        assert_eq!(found(60).await, None, "nobody waits, and it has only begun");
        let named = found(0).await.unwrap();
        assert_eq!((named.0, &*named.1, &*named.2), (pid, "connector", "idle in transaction"));
        assert!(named.3.contains(&format!("pg_terminate_backend({pid})")), "{}", named.3);
        // A writer waits for the person, another person for the writer, another writer for that one.
        let change = "UPDATE oncely.connector SET group_name = group_name";
        for program in ["oncely c writer 0", "another psql", "oncely c writer 1"] {
            waits(&world, program, change).await;
        }
        assert_eq!(found(60).await, Some(named));
    }

    #[tokio::test]
    async fn who_waits_for_a_table_is_named_with_the_root_of_its_wait() {
        let world = World::new().await;
        let (mut asker, _) = session(&world, "asker").await;
        for (program, ends_it) in [("psql", true), ("oncely c writer 0", false)] {
            let (mut reader, pid) = session(&world, program).await;
            reader.execute("BEGIN; SELECT FROM oncely.connector").await.unwrap();
            let alter = "BEGIN; LOCK TABLE oncely.connector";
            let alters = waits(&world, "migration", alter).await;
            waits(&world, "oncely c writer 1", "SELECT FROM oncely.connector FOR UPDATE").await;
            let row = in_the_way(&mut asker, Duration::from_secs(60)).await.unwrap().unwrap();
            assert_eq!((row.pid, row.behind, row.is_whole), (alters, Some(pid), true));
            let told = remedy(&row);
            assert!(told.contains(&format!("pg_cancel_backend({alters})")), "{told}");
            assert_eq!(told.contains(&format!("pg_terminate_backend({pid})")), ends_it, "{told}");
            reader.execute("ROLLBACK").await.unwrap();
            while in_the_way(&mut asker, Duration::from_secs(60)).await.unwrap().is_some() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}
