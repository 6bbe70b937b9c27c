//! Settling: outcomes go on record, and what waited for them may go.

use std::collections::{BTreeMap, BTreeSet};

use oncely_core::effect::order::{OpenEffect, Turn, awake};
use oncely_core::effect::status::Status;
use oncely_core::key::Key;
use sqlx::{PgConnection, query_file, query_file_as};
use uuid::Uuid;

use super::batch::{load_effects, load_open_named};
use super::claim::{Claim, ClaimRow};
use super::columns::{clean, key, millis, uuid, uuids};
use super::error::Result;

/// Characters of a note, as the columns allow.
const NOTE_CHARS_MAX: usize = 500;

/// One outcome, ready to be recorded.
#[derive(Clone, Debug)]
pub struct Settlement {
    pub key: Key,
    pub fence: i64,
    pub lane: Key,
    /// What the effect's state becomes.
    pub status: Status,
    pub due_in_ms: u64,
    pub status_code: Option<u16>,
    pub note: String,
    pub was_unknown: bool,
    /// The provider is to be asked before anything is sent again.
    pub asks: bool,
    /// How long ago an attempt began that may have been applied; `None`: this was none.
    pub unknown_ms: Option<u64>,
    pub result: Option<Vec<u8>>,
    /// What was seen, as the record of attempts has it.
    pub seen: &'static str,
    /// The effect took place.
    pub succeeded: bool,
    /// The attempt needs a row of its own: it was not the first, or did not succeed.
    pub on_record: bool,
    /// Attempts that this adds: none where nothing was sent.
    pub tries: i32,
    /// Those of them that the retry plan counts.
    pub failures: i32,
    /// Look-ups that this adds.
    pub lookups: i32,
}

/// Which rows order the effects of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneLock {
    Entity,
    /// Effects of an event without an entity.
    Inbox,
}

/// Locks lanes, entity before effect as the batch does, so that two predecessors settling at once or
/// a batch arriving meanwhile cannot leave a successor asleep.
pub async fn lock_lanes(tx: &mut PgConnection, lock: LaneLock, sorted: &[Key]) -> Result<()> {
    match lock {
        LaneLock::Entity => {
            super::batch::lock_entities(tx, sorted).await?;
        }
        LaneLock::Inbox => {
            query_file!("src/store/sql/inbox_lock.sql", &uuids(sorted)).fetch_all(tx).await?;
        }
    }
    Ok(())
}

fn status_code(code: Option<u16>) -> Option<i16> {
    code.and_then(|code| i16::try_from(code).ok())
}

/// Records outcomes of claims that are still this worker's; gives those keys.
pub async fn settle(
    tx: &mut PgConnection,
    worker: Uuid,
    settlements: &[Settlement],
) -> Result<Vec<Key>> {
    let key_ = uuids(settlements.iter().map(|settlement| &settlement.key));
    let fence: Vec<_> = settlements.iter().map(|settlement| settlement.fence).collect();
    let status: Vec<_> =
        settlements.iter().map(|settlement| settlement.status.as_str().to_owned()).collect();
    let due_in: Vec<_> =
        settlements.iter().map(|settlement| millis(settlement.due_in_ms)).collect();
    let code: Vec<_> =
        settlements.iter().map(|settlement| status_code(settlement.status_code)).collect();
    let note: Vec<_> = settlements.iter().map(note).collect();
    let unknown: Vec<_> = settlements.iter().map(|settlement| settlement.was_unknown).collect();
    let asks: Vec<_> = settlements.iter().map(|settlement| settlement.asks).collect();
    let unknown_ms: Vec<_> =
        settlements.iter().map(|settlement| settlement.unknown_ms.map(millis)).collect();
    let result: Vec<_> = settlements.iter().map(|settlement| settlement.result.clone()).collect();
    let tries: Vec<_> = settlements.iter().map(|settlement| settlement.tries).collect();
    let failures: Vec<_> = settlements.iter().map(|settlement| settlement.failures).collect();
    let lookups: Vec<_> = settlements.iter().map(|settlement| settlement.lookups).collect();
    let rows = query_file!(
        "src/store/sql/effect_settle.sql",
        worker,
        &key_,
        &fence,
        &status,
        &due_in,
        &code as &[Option<i16>],
        &note as &[Option<String>],
        &unknown,
        &asks,
        &unknown_ms as &[Option<i64>],
        &result as &[Option<Vec<u8>>],
        &tries,
        &failures,
        &lookups,
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().map(|row| key(row.key)).collect())
}

/// Of outcomes that found no claim: those that are on record already, by the same fence. That is a
/// redo whose COMMIT had gone through.
pub async fn done_by(tx: &mut PgConnection, outcomes: &[&Settlement]) -> Result<Vec<Key>> {
    let key_ = uuids(outcomes.iter().map(|settlement| &settlement.key));
    let fence: Vec<_> = outcomes.iter().map(|settlement| settlement.fence).collect();
    let status: Vec<_> =
        outcomes.iter().map(|settlement| settlement.status.as_str().to_owned()).collect();
    let rows = query_file!("src/store/sql/effect_done_by.sql", &key_, &fence, &status)
        .fetch_all(tx)
        .await?;
    Ok(rows.into_iter().map(|row| key(row.key)).collect())
}

fn note(settlement: &Settlement) -> Option<String> {
    let note = clean(&settlement.note, NOTE_CHARS_MAX);
    (!note.is_empty()).then_some(note)
}

/// Keeps attempts; `evidence` ones are of a stale owner. One that is on record already stays.
pub async fn record_attempts(
    tx: &mut PgConnection,
    worker: Uuid,
    attempts: &[(&Settlement, bool)],
) -> Result<()> {
    let effect = uuids(attempts.iter().map(|(settlement, _)| &settlement.key));
    let fence: Vec<_> = attempts.iter().map(|(settlement, _)| settlement.fence).collect();
    let outcome: Vec<_> =
        attempts.iter().map(|(settlement, _)| settlement.seen.to_owned()).collect();
    let code: Vec<_> =
        attempts.iter().map(|(settlement, _)| status_code(settlement.status_code)).collect();
    let notes: Vec<_> = attempts.iter().map(|(settlement, _)| note(settlement)).collect();
    let evidence: Vec<_> = attempts.iter().map(|(_, evidence)| *evidence).collect();
    query_file!(
        "src/store/sql/attempt_insert.sql",
        worker,
        &effect,
        &fence,
        &outcome,
        &code as &[Option<i16>],
        &notes as &[Option<String>],
        &evidence,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Settles effects by what a stale owner saw succeed; gives those that were not final yet.
pub async fn settle_by_evidence(
    tx: &mut PgConnection,
    successes: &[&Settlement],
) -> Result<Vec<Key>> {
    let key_ = uuids(successes.iter().map(|settlement| &settlement.key));
    let result: Vec<_> = successes.iter().map(|settlement| settlement.result.clone()).collect();
    let code: Vec<_> =
        successes.iter().map(|settlement| status_code(settlement.status_code)).collect();
    let notes: Vec<_> = successes.iter().map(|settlement| note(settlement)).collect();
    let rows = query_file!(
        "src/store/sql/effect_evidence.sql",
        &key_,
        &result as &[Option<Vec<u8>>],
        &code as &[Option<i16>],
        &notes as &[Option<String>],
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().map(|row| key(row.key)).collect())
}

/// Up to `limit` effects that wait behind these, which are held now: lane and version.
pub async fn behind(tx: &mut PgConnection, held: &[(Key, i64)], limit: usize) -> Result<Vec<Key>> {
    let lanes = uuids(held.iter().map(|(lane, _)| lane));
    let versions: Vec<i64> = held.iter().map(|(_, version)| *version).collect();
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = query_file!("src/store/sql/effect_behind.sql", &lanes, &versions, limit)
        .fetch_all(tx)
        .await?;
    Ok(rows.into_iter().map(|row| key(row.key)).collect())
}

/// Makes dead letters of effects that were rejected.
pub async fn park_rejected(tx: &mut PgConnection, rejected: &[Key]) -> Result<()> {
    query_file!("src/store/sql/parked_effect_insert.sql", &uuids(rejected)).execute(tx).await?;
    Ok(())
}

/// Whoever wakes effects may claim them at once, where a slot is free.
#[allow(missing_debug_implementations, reason = "a closure has none")]
#[derive(Clone, Copy)]
pub struct Claiming<'a> {
    pub worker: Uuid,
    /// Only effects of this connector are claimed; those of others become due.
    pub connector_id: i32,
    /// Takes a slot for an effect of that name, if one is free.
    pub take_slot: &'a (dyn Fn(&str) -> bool + Sync),
    /// Whether that name is a ledger line, which is written at once instead.
    pub is_line: &'a (dyn Fn(&str) -> bool + Sync),
}

/// What became of effects that waited for others.
#[derive(Clone, Debug, Default)]
pub struct Woken {
    pub skipped: Vec<Key>,
    /// With the effect's name.
    pub claimed: Vec<(String, Claim)>,
    /// Ledger lines that are due, to be written by whoever woke them.
    pub lines: Vec<(String, Claim)>,
    /// Some are due now.
    pub due: bool,
}

/// Looks at the order of lanes again, in a statement later than what settled them: blocked effects
/// whose turn has come are claimed or become due, those that never can run are skipped. The lanes
/// are locked by the caller.
pub async fn wake(
    tx: &mut PgConnection,
    lanes: &[Key],
    claiming: Option<Claiming<'_>>,
) -> Result<Woken> {
    let mut woken = Woken::default();
    let mut again = wake_lowest(tx, lanes, claiming.as_ref(), &mut woken).await?;
    while !again.is_empty() {
        again = wake_lowest(tx, &again, claiming.as_ref(), &mut woken).await?;
    }
    Ok(woken)
}

/// Wakes among the effects of each lane's lowest open version. Gives the lanes in which one of them was
/// skipped: the next version may be the lowest now.
async fn wake_lowest(
    tx: &mut PgConnection,
    lanes: &[Key],
    claiming: Option<&Claiming<'_>>,
    woken: &mut Woken,
) -> Result<Vec<Key>> {
    let (open, names): (Vec<OpenEffect>, Vec<(i32, String)>) =
        load_open_named(tx, lanes).await?.into_iter().unzip();
    if !open.iter().any(|effect| effect.blocked) {
        return Ok(Vec::new());
    }
    let settled = settled_predecessors(tx, &open).await?;
    let turns = awake(&open, &settled);
    let named = open.iter().zip(&names);
    let mut key_ = Vec::new();
    let mut turn = Vec::new();
    for (effect, (connector, name)) in named {
        let slot = || {
            let mine = claiming.filter(|claiming| claiming.connector_id == *connector);
            mine.is_some_and(|claiming| (claiming.take_slot)(name))
        };
        turn.push(match turns.get(&effect.key) {
            None | Some(Turn::Blocked | Turn::Hold(_)) => continue,
            Some(Turn::Skip) => "skip".to_owned(),
            Some(Turn::Ready) => if slot() { "claim" } else { "due" }.to_owned(),
        });
        key_.push(uuid(effect.key));
    }
    if key_.is_empty() {
        return Ok(Vec::new());
    }
    let worker = claiming.map(|claiming| claiming.worker);
    let rows = query_file_as!(ClaimRow, "src/store/sql/effect_wake.sql", &key_, &turn, worker as _)
        .fetch_all(tx)
        .await?;
    let mut again = BTreeSet::new();
    for row in rows {
        if row.status == Status::Skipped.as_str() {
            again.insert(key(row.lane));
            woken.skipped.push(key(row.key));
        } else if row.status == Status::Claimed.as_str() {
            woken.claimed.push((row.name.clone(), Claim::from(row)));
        } else if claiming
            .is_some_and(|c| c.connector_id == row.connector && (c.is_line)(&row.name))
        {
            woken.lines.push((row.name.clone(), Claim::from(row)));
        } else {
            woken.due = true;
        }
    }
    Ok(again.into_iter().collect())
}

/// The status of effects that others name with `after` and that are not among them.
async fn settled_predecessors(
    tx: &mut PgConnection,
    open: &[OpenEffect],
) -> Result<BTreeMap<Key, Status>> {
    let here: BTreeSet<Key> = open.iter().map(|effect| effect.key).collect();
    let named: BTreeSet<Key> = open
        .iter()
        .filter(|effect| effect.blocked)
        .flat_map(|effect| effect.after.iter().copied())
        .filter(|key| !here.contains(key))
        .collect();
    if named.is_empty() {
        return Ok(BTreeMap::new());
    }
    let named: Vec<Key> = named.into_iter().collect();
    Ok(load_effects(tx, &named).await?.into_iter().map(|(key, row)| (key, row.status)).collect())
}
