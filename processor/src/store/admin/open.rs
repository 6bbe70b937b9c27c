//! What is open, counted for gauges, by one worker for all.

use oncely_core::effect::status::Status;
use sqlx::{PgConnection, query_file, query_file_scalar};
use uuid::Uuid;

use crate::store::error::Result;
use crate::telemetry::{DeferredOpen, EffectsOpen, OpenThings, OutboxOpen, ParkedOpen};

/// Counts what is open, if `me` is the worker to do so; `None` for all others.
pub async fn count(connection: &mut PgConnection, me: Uuid) -> Result<Option<OpenThings>> {
    let eldest = query_file_scalar!("src/store/sql/admin_eldest_worker.sql");
    if eldest.fetch_optional(&mut *connection).await? != Some(me) {
        return Ok(None);
    }
    let effects = query_file!("src/store/sql/admin_open_effects.sql");
    let effects = effects.fetch_all(&mut *connection).await?.into_iter();
    let parked = query_file!("src/store/sql/admin_open_parked.sql");
    let parked = parked.fetch_all(&mut *connection).await?.into_iter();
    let outbox = query_file!("src/store/sql/admin_open_outbox.sql");
    let outbox = outbox.fetch_all(&mut *connection).await?.into_iter();
    let deferred = query_file!("src/store/sql/admin_open_deferred.sql");
    let deferred = deferred.fetch_all(connection).await?.into_iter();
    Ok(Some(OpenThings {
        deferred: deferred
            .map(|row| DeferredOpen {
                connector: row.connector,
                cause: row.cause,
                count: unsigned(row.count),
                oldest_at: unsigned(row.oldest),
            })
            .collect(),
        outbox: outbox
            .map(|row| OutboxOpen {
                connector: row.connector,
                waiting: unsigned(row.waiting),
                held: unsigned(row.held),
                oldest_at: unsigned(row.oldest),
            })
            .collect(),
        effects: effects
            .filter_map(|row| {
                Some(EffectsOpen {
                    connector: row.connector,
                    effect: row.effect,
                    status: Status::parse(&row.status)?,
                    count: unsigned(row.count),
                    oldest_at: unsigned(row.oldest),
                    orphaned: row.orphaned,
                })
            })
            .collect(),
        parked: parked
            .map(|row| ParkedOpen {
                connector: row.connector,
                dead_letters: unsigned(row.dead_letters),
                quarantined: unsigned(row.quarantined),
            })
            .collect(),
    }))
}

/// Open effects of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owed {
    pub connector: String,
    pub effect: String,
    pub count: u64,
    /// No connector file that runs has it.
    pub orphaned: bool,
}

/// What is owed, by connector and effect.
///
/// # Errors
/// As every query.
pub async fn owed(connection: &mut PgConnection) -> Result<Vec<Owed>> {
    let rows = query_file!("src/store/sql/admin_open_of.sql").fetch_all(connection).await?;
    let owed = rows.into_iter().map(|row| Owed {
        connector: row.connector,
        effect: row.effect,
        count: unsigned(row.count),
        orphaned: row.orphaned,
    });
    Ok(owed.collect())
}

fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
