//! Whether a run did what it was to do. A figure of a run that did not is worth nothing.
//!
//! Reads: the tables, and the provider's own log. Knows the workload, and nothing of how the product
//! works.

use std::collections::BTreeMap;

use oncely_rig::provider::Log;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::{BenchError, Result};
use crate::limits::uuid;
use crate::services::{Database, ProviderChild};
use crate::workload::Workload;

/// Every business id is applied, once, and no other; every entity has its highest version; what cannot be
/// decoded is parked, and nothing else.
pub(crate) async fn state(database: &Database, workload: Workload) -> Result<()> {
    let mut connection = database.connect("check").await?;
    let mut wanted: Vec<Uuid> =
        workload.distinct_events().map(|event| uuid(&event.key())).collect();
    wanted.sort_unstable();
    let mut applied: Vec<Uuid> =
        sqlx::query_scalar("SELECT key FROM oncely.inbox WHERE outcome = 'applied'")
            .fetch_all(&mut connection)
            .await?;
    applied.sort_unstable();
    if applied != wanted {
        let what = format!("{} of {} events are applied, or others", applied.len(), wanted.len());
        return Err(BenchError::wrong(what));
    }
    none(
        &mut connection,
        "events that are not applied",
        "SELECT count(*) FROM oncely.inbox WHERE outcome <> 'applied'",
    )
    .await?;
    let parked: (i64, i64) =
        sqlx::query_as("SELECT count(*), count(DISTINCT record_key) FROM oncely.parked")
            .fetch_one(&mut connection)
            .await?;
    let poisoned = i64::try_from(workload.poisoned()).unwrap_or(i64::MAX);
    if parked != (poisoned, poisoned) {
        let what = format!("{} records are parked, {poisoned} are poisoned", parked.0);
        return Err(BenchError::wrong(what));
    }
    let rows: Vec<(Uuid, i64)> =
        sqlx::query_as("SELECT key, version FROM oncely.entity").fetch_all(&mut connection).await?;
    let rows: BTreeMap<Uuid, i64> = rows.into_iter().collect();
    let highest = workload.versions().iter().map(|(key, version)| (uuid(key), *version)).collect();
    if rows != highest {
        return Err(BenchError::wrong("an entity has another version than its highest"));
    }
    Ok(())
}

/// Every event owes one effect. That of a healthy one is done; of a poisoned invoice one is held, and those
/// after it wait. The provider saw each key of what is done take effect once, and no other.
pub(crate) async fn effects(
    database: &Database,
    workload: Workload,
    provider: &ProviderChild,
) -> Result<()> {
    let mut connection = database.connect("check").await?;
    none(
        &mut connection,
        "events that do not owe one effect",
        "SELECT count(*) FROM oncely.inbox WHERE cardinality(effects) IS DISTINCT FROM 1",
    )
    .await?;
    none(
        &mut connection,
        "effects that are neither done nor held, nor wait for one that is held",
        "SELECT count(*) FROM oncely.effect e WHERE status NOT IN ('done', 'held') AND NOT EXISTS
         (SELECT FROM oncely.effect h WHERE h.lane = e.lane AND h.status = 'held')",
    )
    .await?;
    let done: Vec<Uuid> = sqlx::query_scalar("SELECT key FROM oncely.effect WHERE status = 'done'")
        .fetch_all(&mut connection)
        .await?;
    let log = Log::read(&provider.log)?;
    let seen = log.effects_per_key();
    if let Some((key, times)) = seen.iter().find(|(_, times)| **times != 1) {
        return Err(BenchError::wrong(format!("the provider did {key} {times} times")));
    }
    let healthy = workload.healthy().count();
    if done.len() != healthy || seen.len() != healthy {
        let (done, seen) = (done.len(), seen.len());
        let what =
            format!("{healthy} healthy events, {done} effects done, {seen} keys at the provider");
        return Err(BenchError::wrong(what));
    }
    let missing = done.iter().find(|key| !seen.contains_key(&*format!("ef_{}", key.simple())));
    missing.map_or(Ok(()), |key| {
        Err(BenchError::wrong(format!("effect {key} is done and the provider never saw it")))
    })
}

async fn none(connection: &mut PgConnection, what: &str, count: &'static str) -> Result<()> {
    let found: i64 = sqlx::query_scalar(count).fetch_one(connection).await?;
    if found == 0 { Ok(()) } else { Err(BenchError::wrong(format!("{found} {what}"))) }
}
