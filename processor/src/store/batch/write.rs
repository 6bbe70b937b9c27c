//! What the batch transaction writes of a plan.

use std::collections::BTreeMap;

use oncely_core::connector::Connector;
use oncely_core::decide::{LedgerNew, Plan};
use oncely_core::effect::order::Turn;
use oncely_core::effect::status::Status;
use oncely_core::key::Key;
use sqlx::postgres::PgQueryResult;
use sqlx::{PgConnection, query_file};
use uuid::Uuid;

use super::super::columns::{joined, key, uuid, uuids};
use super::super::error::Result;

/// Another writer was first with a key of this batch: roll back, load again, decide again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Written {
    All,
    LostRace,
}

/// What an effect of the batch came to in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced {
    pub key: Key,
    /// Present when it was claimed.
    pub fence: Option<i64>,
}

/// Writes entities: new ones first, then those that moved.
pub async fn write_entities(tx: &mut PgConnection, plan: &Plan) -> Result<Written> {
    let (new, moved): (Vec<_>, Vec<_>) =
        plan.entities.iter().partition(|(_, write)| write.was.is_none());
    if !new.is_empty() {
        let key = uuids(new.iter().map(|(key, _)| *key));
        let event = uuids(new.iter().map(|(_, write)| &write.row.event));
        let version: Vec<_> = new.iter().map(|(_, write)| write.row.version).collect();
        let tenant: Vec<&str> = new.iter().map(|(_, write)| &*write.tenant).collect();
        let state: Vec<&str> = new.iter().map(|(_, write)| &*write.row.state).collect();
        let done = query_file!(
            "src/store/sql/entity_insert.sql",
            &key,
            &event,
            &version,
            &tenant as &[&str],
            &state as &[&str],
        )
        .execute(&mut *tx)
        .await;
        if all_new(done)? == Written::LostRace {
            return Ok(Written::LostRace);
        }
    }
    if !moved.is_empty() {
        let key = uuids(moved.iter().map(|(key, _)| *key));
        let event = uuids(moved.iter().map(|(_, write)| &write.row.event));
        let version: Vec<_> = moved.iter().map(|(_, write)| write.row.version).collect();
        let state: Vec<&str> = moved.iter().map(|(_, write)| &*write.row.state).collect();
        let was: Vec<_> = moved.iter().map(|(_, write)| write.was.unwrap_or_default()).collect();
        let done = query_file!(
            "src/store/sql/entity_advance.sql",
            &key,
            &event,
            &version,
            &state as &[&str],
            &was,
        )
        .execute(tx)
        .await?;
        if usize::try_from(done.rows_affected()) != Ok(key.len()) {
            return Ok(Written::LostRace);
        }
    }
    Ok(Written::All)
}

/// A key that is taken ends the statement, and with it the transaction, which would be rolled back
/// anyway: looking for each key before it is inserted (`ON CONFLICT`) costs a third more for all the
/// batches that lose nothing.
fn all_new(done: std::result::Result<PgQueryResult, sqlx::Error>) -> Result<Written> {
    match done {
        Ok(_) => Ok(Written::All),
        Err(error) if is_taken(&error) => Ok(Written::LostRace),
        Err(error) => Err(error.into()),
    }
}

fn is_taken(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.is_unique_violation())
}

/// What becomes of an effect whose turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// Due now, for whoever has a free slot.
    Waiting,
    /// This worker sends it at once.
    Claimed,
    /// Its record goes into the outbox in this transaction.
    Queued,
}

/// Writes the effects; `chosen` says what becomes of the ready ones. Keys that
/// are missing in the answer exist already. Where all of them are missing, `worker` may also be one that claims
/// and may not, or the database elsewhere than at the failover of this `number`.
pub async fn write_effects(
    tx: &mut PgConnection,
    plan: &Plan,
    connector: (&Connector, i32),
    (worker, number): (Uuid, Option<i32>),
    chosen: impl Fn(&Key) -> Chosen,
) -> Result<Vec<Fenced>> {
    let (rules, connector_id) = connector;
    let effects: Vec<_> = plan.effects.iter().collect();
    let name = |rule: usize| rules.effects.get(rule).map_or("", |rule| &*rule.id);
    let status = |key: &Key, turn: Turn| match turn {
        Turn::Skip => Status::Skipped.as_str(),
        Turn::Hold(_) => Status::Held.as_str(),
        Turn::Blocked => Status::Waiting.as_str(),
        Turn::Ready => match chosen(key) {
            Chosen::Waiting => Status::Waiting.as_str(),
            Chosen::Claimed => Status::Claimed.as_str(),
            Chosen::Queued => "queued",
        },
    };
    let key_ = uuids(effects.iter().map(|(key, _)| *key));
    let event = uuids(effects.iter().map(|(_, new)| &new.event));
    let lane = uuids(effects.iter().map(|(_, new)| &new.lane));
    let version: Vec<_> = effects.iter().map(|(_, new)| new.version).collect();
    let ordinal: Vec<_> =
        effects.iter().map(|(_, new)| i16::try_from(new.rule).unwrap_or(i16::MAX)).collect();
    let names: Vec<&str> = effects.iter().map(|(_, new)| name(new.rule)).collect();
    let tenant: Vec<&str> = effects.iter().map(|(_, new)| &*new.tenant).collect();
    let business_id: Vec<&str> = effects.iter().map(|(_, new)| &*new.business_id).collect();
    let request_hash = uuids(effects.iter().map(|(_, new)| &new.request_hash));
    let request: Vec<Option<&[u8]>> =
        effects.iter().map(|(_, new)| new.request.as_deref()).collect();
    let after: Vec<_> = effects.iter().map(|(_, new)| joined(&new.after)).collect();
    let statuses: Vec<&str> = effects.iter().map(|(key, new)| status(key, new.turn)).collect();
    let suspect: Vec<_> = effects.iter().map(|(_, new)| new.suspect).collect();
    let blocked: Vec<_> = effects.iter().map(|(_, new)| new.turn == Turn::Blocked).collect();
    let notes: Vec<Option<&str>> = effects
        .iter()
        .map(|(_, new)| match new.turn {
            Turn::Hold(why) => Some(why.as_str()),
            Turn::Ready | Turn::Blocked | Turn::Skip => None,
        })
        .collect();
    let claims = statuses.contains(&Status::Claimed.as_str());
    let rows = query_file!(
        "src/store/sql/effect_insert.sql",
        &key_,
        &event,
        &lane,
        &version,
        &ordinal,
        &names as &[&str],
        &tenant as &[&str],
        &business_id as &[&str],
        &request_hash,
        &request as &[Option<&[u8]>],
        &after,
        &statuses as &[&str],
        &blocked,
        worker,
        connector_id,
        &suspect,
        number,
        claims,
        &notes as &[Option<&str>],
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().map(|row| Fenced { key: key(row.key), fence: row.fence }).collect())
}

/// Notes which effects undo which; most plans have none.
pub async fn write_compensations(tx: &mut PgConnection, plan: &Plan) -> Result<()> {
    let pairs = plan.effects.iter().filter_map(|(key, new)| Some((uuid(*key), uuid(new.undoes?))));
    let (effect, undoes): (Vec<Uuid>, Vec<Uuid>) = pairs.unzip();
    if !effect.is_empty() {
        query_file!("src/store/sql/compensation_insert.sql", &effect, &undoes).execute(tx).await?;
    }
    Ok(())
}

/// Writes inbox rows.
pub async fn write_inbox(tx: &mut PgConnection, plan: &Plan) -> Result<Written> {
    let rows: Vec<_> = plan.inbox.iter().collect();
    let key = uuids(rows.iter().map(|(key, _)| *key));
    let fingerprint = uuids(rows.iter().map(|(_, new)| &new.fingerprint.0));
    let entity: Vec<_> = rows.iter().map(|(_, new)| new.entity.map(|(key, _)| uuid(key))).collect();
    let version: Vec<_> =
        rows.iter().map(|(_, new)| new.entity.map(|(_, version)| version)).collect();
    let offset: Vec<_> = rows.iter().map(|(_, new)| new.place.offset).collect();
    let partition: Vec<_> = rows.iter().map(|(_, new)| new.place.partition).collect();
    let source: Vec<_> = rows.iter().map(|(_, new)| new.place.source).collect();
    let outcome: Vec<&str> = rows.iter().map(|(_, new)| new.ending.as_str()).collect();
    let tenant: Vec<&str> = rows.iter().map(|(_, new)| &*new.tenant).collect();
    let from: Vec<Option<&str>> =
        rows.iter().map(|(_, new)| new.moved.as_ref().map(|moved| &*moved.from)).collect();
    let to: Vec<Option<&str>> =
        rows.iter().map(|(_, new)| new.moved.as_ref().map(|moved| &*moved.to)).collect();
    let effects: Vec<_> = rows.iter().map(|(_, new)| joined(&new.effects)).collect();
    let done = query_file!(
        "src/store/sql/inbox_insert.sql",
        &key,
        &fingerprint,
        &entity as &[Option<Uuid>],
        &version as &[Option<i64>],
        &offset,
        &partition,
        &source,
        &outcome as &[&str],
        &tenant as &[&str],
        &from as &[Option<&str>],
        &to as &[Option<&str>],
        &effects,
    )
    .execute(tx)
    .await;
    all_new(done)
}

/// Writes ledger lines and gives the keys that were new.
pub async fn write_lines(
    tx: &mut PgConnection,
    lines: &BTreeMap<Key, LedgerNew>,
    connector: (&Connector, i32),
) -> Result<Vec<Key>> {
    if lines.is_empty() {
        return Ok(Vec::new());
    }
    let (rules, connector_id) = connector;
    let key_ = uuids(lines.keys());
    let event = uuids(lines.values().map(|line| &line.event));
    let content = uuids(lines.values().map(|line| &line.content));
    let name = |rule: usize| rules.effects.get(rule).map_or("", |rule| &*rule.id);
    let names: Vec<&str> = lines.values().map(|line| name(line.rule)).collect();
    let tenant: Vec<&str> = lines.values().map(|line| &*line.tenant).collect();
    let account: Vec<&str> = lines.values().map(|line| &*line.account).collect();
    let metric: Vec<&str> = lines.values().map(|line| &*line.metric).collect();
    let quantity: Vec<&str> = lines.values().map(|line| &*line.quantity).collect();
    let at: Vec<_> = lines.values().map(|line| line.at_ms).collect();
    let rows = query_file!(
        "src/store/sql/ledger_insert.sql",
        &key_,
        &event,
        &content,
        &names as &[&str],
        &tenant as &[&str],
        &account as &[&str],
        &metric as &[&str],
        &quantity as &[&str],
        &at as &[Option<i64>],
        connector_id,
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().map(|row| key(row.key)).collect())
}

/// Counts repeats of known events; one that is read again is not counted again.
pub async fn write_repeats(tx: &mut PgConnection, plan: &Plan) -> Result<()> {
    let key = uuids(plan.repeats.iter().map(|(key, _)| key));
    let source: Vec<_> = plan.repeats.iter().map(|(_, place)| place.source).collect();
    let partition: Vec<_> = plan.repeats.iter().map(|(_, place)| place.partition).collect();
    let offset: Vec<_> = plan.repeats.iter().map(|(_, place)| place.offset).collect();
    query_file!("src/store/sql/repeat_add.sql", &key, &source, &partition, &offset)
        .execute(tx)
        .await?;
    Ok(())
}
