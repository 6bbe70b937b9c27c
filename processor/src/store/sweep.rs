//! What every replica's sweeper does: claims of the dead, blocked effects, retention.

use chrono::{DateTime, Utc};
use oncely_core::key::Key;
use sqlx::{PgConnection, query_file, query_file_as};
use uuid::Uuid;

use super::claim::Recorded;
use super::columns::{clean, key, millis, uuid, uuids};
use super::error::Result;

/// A claim whose worker is dead.
#[derive(Clone, Debug)]
pub struct Orphan {
    pub key: Key,
    pub fence: i64,
    pub worker: Uuid,
    pub connector_id: i32,
    pub name: String,
    pub lane: Key,
    pub tenant: String,
    pub business_id: String,
    pub recorded: Recorded,
}

/// What a dead worker's claim becomes.
#[derive(Clone, Debug)]
pub struct Takeover {
    pub key: Key,
    pub fence: i64,
    /// `unknown`, `held` or `done`.
    pub status: &'static str,
    pub due_in_ms: u64,
    pub note: String,
    /// The provider is to be asked before anything is sent again.
    pub asks: bool,
    /// The dead worker may have sent it: it had not claimed it to ask.
    pub sent: bool,
}

/// How many effects of a connector are open that no person has to look at; counted up to `most`.
pub async fn backlog(connection: &mut PgConnection, connector_id: i32, most: u64) -> Result<u64> {
    let row = query_file!(
        "src/store/sql/effect_backlog.sql",
        connector_id,
        i64::try_from(most).unwrap_or(i64::MAX)
    );
    Ok(u64::try_from(row.fetch_one(connection).await?.open).unwrap_or(0))
}

/// Locks up to `limit` claims of dead workers on these effects; others skip them.
pub async fn orphans(
    tx: &mut PgConnection,
    connector_id: i32,
    names: &[String],
    limit: i64,
) -> Result<Vec<Orphan>> {
    let rows = query_file!("src/store/sql/claims_of_the_dead.sql", connector_id, names, limit)
        .fetch_all(tx)
        .await?;
    Ok(rows
        .into_iter()
        .map(|row| Orphan {
            key: key(row.key),
            fence: row.fence,
            worker: row.worker,
            connector_id: row.connector,
            name: row.name,
            lane: key(row.lane),
            tenant: row.tenant,
            business_id: row.business_id,
            recorded: Recorded::of(
                (row.attempts, row.failures, row.lookups),
                row.takeovers,
                (row.was_unknown, row.asks, row.suspect),
                (row.elapsed_ms, row.failing_ms, row.quiet_ms),
            ),
        })
        .collect())
}

/// Takes claims of the dead over; gives those that were.
pub async fn take_over(tx: &mut PgConnection, takeovers: &[Takeover]) -> Result<Vec<Key>> {
    let key_ = uuids(takeovers.iter().map(|takeover| &takeover.key));
    let fence: Vec<_> = takeovers.iter().map(|takeover| takeover.fence).collect();
    let status: Vec<_> = takeovers.iter().map(|takeover| takeover.status.to_owned()).collect();
    let due_in: Vec<_> = takeovers.iter().map(|takeover| millis(takeover.due_in_ms)).collect();
    let note: Vec<_> = takeovers.iter().map(|takeover| clean(&takeover.note, 500)).collect();
    let asks: Vec<_> = takeovers.iter().map(|takeover| takeover.asks).collect();
    let sent: Vec<_> = takeovers.iter().map(|takeover| takeover.sent).collect();
    let rows = query_file!(
        "src/store/sql/effect_take_over.sql",
        &key_,
        &fence,
        &status,
        &due_in,
        &note,
        &asks,
        &sent
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().map(|row| key(row.key)).collect())
}

/// Notes on the record of each of these claims (effect, fence, dead worker) that its attempt's outcome
/// is unknown.
pub async fn record_deaths(tx: &mut PgConnection, claims: &[(Key, i64, Uuid)]) -> Result<()> {
    let effect: Vec<_> = claims.iter().map(|(effect, ..)| uuid(*effect)).collect();
    let fence: Vec<_> = claims.iter().map(|(_, fence, _)| *fence).collect();
    let worker: Vec<_> = claims.iter().map(|(.., worker)| *worker).collect();
    query_file!("src/store/sql/attempt_of_the_dead.sql", &effect, &fence, &worker)
        .execute(tx)
        .await?;
    Ok(())
}

/// Lanes with effects that wait although nothing is left to wait for.
pub async fn blocked_lanes(
    connection: &mut PgConnection,
    connector_id: i32,
    limit: i64,
) -> Result<Vec<Key>> {
    let rows = query_file!("src/store/sql/effect_blocked.sql", connector_id, limit)
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(|row| key(row.lane)).collect())
}

/// What retention takes away, a slice at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// Parked rows that were closed.
    Parked,
    /// Events that waited once.
    Deferred,
    /// What was noted of versions that are not missing.
    Passed,
    /// Records of the outbox that were sent or given up.
    Outbox,
}

/// Removes a slice of what is older than the retention; gives how many rows it took.
pub async fn remove(
    connection: &mut PgConnection,
    expired: Expired,
    connector: i32,
    retention_ms: u64,
    limit: i64,
) -> Result<u64> {
    let kept = millis(retention_ms);
    let query = match expired {
        Expired::Parked => {
            query_file!("src/store/sql/retention_parked.sql", connector, kept, limit)
        }
        Expired::Deferred => {
            query_file!("src/store/sql/retention_deferred.sql", connector, kept, limit)
        }
        Expired::Passed => {
            query_file!("src/store/sql/retention_passed.sql", connector, kept, limit)
        }
        Expired::Outbox => {
            query_file!("src/store/sql/retention_outbox.sql", connector, kept, limit)
        }
    };
    Ok(query.execute(connection).await?.rows_affected())
}

/// How far looks at events by their age have come: when the last one was seen, and its key. What is passed is not
/// looked at again, so that a look costs the same however many rows stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    last: Option<(DateTime<Utc>, Uuid)>,
}

/// What one look at old events found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    pub events: i64,
    /// Of their rows, or of their effects' rows, those that were changed.
    pub removed: i64,
}

/// Of one look: the last row that it came to, and its counts.
struct LookedRow {
    seen_at: DateTime<Utc>,
    key: Uuid,
    looked: i64,
    removed: i64,
}

impl Walk {
    fn from(&self) -> (Option<DateTime<Utc>>, Uuid) {
        let (at, key) = self.last.unzip();
        (at, key.unwrap_or_default())
    }

    fn came_to(&mut self, found: Option<LookedRow>) -> Looked {
        found.map_or_else(Looked::default, |row| {
            self.last = Some((row.seen_at, row.key));
            Looked { events: row.looked, removed: row.removed }
        })
    }
}

/// Looks at up to `limit` events older than the retention, and removes those of the connector of which nothing is open,
/// with their effects.
pub async fn remove_closed(
    connection: &mut PgConnection,
    connector: i32,
    retention_ms: u64,
    limit: i64,
    walk: &mut Walk,
) -> Result<Looked> {
    let (kept, (at, key)) = (millis(retention_ms), walk.from());
    let found = query_file_as!(
        LookedRow,
        "src/store/sql/retention_closed.sql",
        connector,
        kept,
        limit,
        at,
        key
    )
    .fetch_optional(connection)
    .await?;
    Ok(walk.came_to(found))
}

/// The same for requests and results of final effects; their keys stay and still suppress. Results of `undoable` effects
/// stay as long as these.
pub async fn clear_results(
    connection: &mut PgConnection,
    connector: i32,
    retention_ms: u64,
    limit: i64,
    walk: &mut Walk,
    undoable: &[String],
) -> Result<Looked> {
    let (kept, (at, key)) = (millis(retention_ms), walk.from());
    let found = query_file_as!(
        LookedRow,
        "src/store/sql/retention_results.sql",
        connector,
        kept,
        limit,
        at,
        key,
        undoable
    )
    .fetch_optional(connection)
    .await?;
    Ok(walk.came_to(found))
}

/// Removes the bytes of events from which nothing is rendered any more, in the same way.
pub async fn remove_payloads(
    connection: &mut PgConnection,
    connector: i32,
    retention_ms: u64,
    limit: i64,
    walk: &mut Walk,
) -> Result<Looked> {
    let (kept, (at, key)) = (millis(retention_ms), walk.from());
    let found = query_file_as!(
        LookedRow,
        "src/store/sql/retention_payloads.sql",
        connector,
        kept,
        limit,
        at,
        key
    )
    .fetch_optional(connection)
    .await?;
    Ok(walk.came_to(found))
}
