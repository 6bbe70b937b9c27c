//! A person's word on an effect.

use oncely_core::effect::status::Status;
use sqlx::{PgConnection, query_file};

use super::audit::{Change, record};
use super::effects::EffectRow;
use crate::store::columns::{clean, uuid};
use crate::store::error::{Result, StoreError};
use crate::store::outbox;
use crate::store::settle::{LaneLock, lock_lanes, park_rejected, wake};
use crate::store::sweep;

/// Characters of a note, as the column allows.
const NOTE_CHARS_MAX: usize = 500;

/// What an effect is to become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It has happened. `result`: what later effects may read of it.
    Done { result: Option<Vec<u8>> },
    /// It has not: send it now, with the same key.
    Retry,
    /// The provider is to be asked, now.
    LookUp,
    /// It will not: a dead letter.
    Rejected,
    /// It is not wanted: what comes after it is skipped as well.
    Skipped,
}

impl Resolution {
    const fn status(&self) -> Status {
        match self {
            Self::Done { .. } => Status::Done,
            Self::Retry => Status::Waiting,
            Self::LookUp => Status::Unknown,
            Self::Rejected => Status::Rejected,
            Self::Skipped => Status::Skipped,
        }
    }

    const fn action(&self) -> &'static str {
        match self {
            Self::Done { .. } => "effects resolve --as done",
            Self::Retry => "effects resolve --as retry",
            Self::LookUp => "effects resolve --as lookup",
            Self::Rejected => "effects resolve --as rejected",
            Self::Skipped => "effects resolve --as skipped",
        }
    }
}

/// What became of the wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// It was so, and is resolved now (or would be, in a dry run).
    From {
        status: Status,
        /// A worker held it that is dead or ended.
        of_the_dead: bool,
    },
    NotFound,
    /// Nothing was changed.
    Refused {
        status: Status,
        why: &'static str,
    },
}

/// Resolves one effect in a transaction of its own, with its audit row, and wakes what waited for it
/// in its lane. What waits in other lanes is found by the next sweep. `seen` is the effect as the person has
/// it in mind: what was tried or changed since is left.
///
/// # Errors
/// As every query; then nothing was changed.
pub async fn resolve(
    tx: &mut PgConnection,
    seen: &EffectRow,
    resolution: &Resolution,
    change: &Change,
) -> Result<Resolved> {
    let effect = seen.key;
    let lock = if seen.lane == seen.event { LaneLock::Inbox } else { LaneLock::Entity };
    lock_lanes(tx, lock, &[seen.lane]).await?;
    let row = query_file!("src/store/sql/admin_effect_lock.sql", uuid(effect));
    let Some(row) = row.fetch_optional(&mut *tx).await? else { return Ok(Resolved::NotFound) };
    let corrupt = StoreError::Corrupt { key: effect, what: "unknown status" };
    let status = Status::parse(&row.status).ok_or(corrupt)?;
    let as_seen = (seen.status, seen.fence, seen.attempts, seen.takeovers);
    if as_seen != (status, row.fence, row.attempts, row.takeovers) {
        let why = "it was tried or changed since it was listed: look at it again";
        return Ok(Resolved::Refused { status, why });
    }
    let tried = row.attempts > 0 || row.takeovers > 0;
    let (blocked, of_the_dead, orphaned) = (row.blocked, row.dead, row.orphaned);
    let stand = Stand { status, blocked, tried, of_the_dead, orphaned };
    if let Some(why) = refusal(stand, resolution) {
        return Ok(Resolved::Refused { status, why });
    }
    if *resolution == Resolution::LookUp && !row.was_unknown {
        let why = "no attempt of it may have been applied, so there is nothing to ask for";
        return Ok(Resolved::Refused { status, why });
    }
    if *resolution == Resolution::LookUp && !row.asked {
        let why = "its connector file has no `lookup` for it, so nobody can be asked: look at the provider, and resolve \
                   it as done, retry, rejected or skipped";
        return Ok(Resolved::Refused { status, why });
    }
    if change.dry_run {
        return Ok(Resolved::From { status, of_the_dead });
    }
    let result = match resolution {
        Resolution::Done { result } => result.as_deref(),
        Resolution::Retry | Resolution::LookUp | Resolution::Rejected | Resolution::Skipped => None,
    };
    let note = clean(&format!("by hand: {}", change.reason), NOTE_CHARS_MAX);
    let becomes = resolution.status().as_str();
    query_file!("src/store/sql/admin_effect_resolve.sql", uuid(effect), becomes, note, result)
        .execute(&mut *tx)
        .await?;
    let detail = serde_json::json!({
        "status": status.as_str(),
        "attempts": row.attempts,
        "takeovers": row.takeovers,
        "was_unknown": row.was_unknown,
        "note": row.note,
    });
    record(tx, Some(effect), resolution.action(), change, &detail.to_string()).await?;
    if let (true, Some(worker), Some(fence)) = (of_the_dead, row.worker, row.fence) {
        sweep::record_deaths(tx, &[(effect, fence, worker)]).await?;
    }
    if resolution.status().is_final() {
        outbox::drop_of(tx, effect).await?;
    }
    if *resolution == Resolution::Rejected {
        park_rejected(tx, &[effect]).await?;
    }
    if resolution.status().is_final() {
        wake(tx, &[seen.lane], None).await?;
    }
    Ok(Resolved::From { status, of_the_dead })
}

/// How an effect stands that a person speaks of.
#[derive(Clone, Copy, Debug)]
struct Stand {
    status: Status,
    blocked: bool,
    tried: bool,
    /// It is claimed, by a worker that is dead or ended.
    of_the_dead: bool,
    orphaned: bool,
}

/// Why a person's word does not count here.
///
/// An effect that no connector file names any more is never tried: it can still be given up.
const fn refusal(stand: Stand, resolution: &Resolution) -> Option<&'static str> {
    let tries = matches!(resolution, Resolution::Retry | Resolution::LookUp);
    match stand.status {
        Status::Done | Status::Rejected | Status::Skipped => Some("it is final"),
        Status::Claimed if !stand.of_the_dead => {
            Some("a worker is sending it now: wait until it has settled or its worker is dead")
        }
        Status::Waiting if stand.blocked && stand.orphaned => Some(
            "it waits for an earlier effect: resolve that one first, then run this again, since nobody tries this one",
        ),
        Status::Waiting if stand.blocked => {
            Some("it waits for an earlier effect: resolve that one, and this one follows")
        }
        Status::Held | Status::Unknown | Status::Waiting | Status::Claimed
            if stand.orphaned && tries =>
        {
            Some(
                "it is orphaned: no connector file that runs has this effect, so nobody would try \
                 it; bring it back into its file, or resolve it as done, rejected or skipped",
            )
        }
        Status::Claimed if matches!(resolution, Resolution::LookUp) => {
            Some("its worker is dead: within seconds it becomes unknown, and its rule decides")
        }
        Status::Waiting if !stand.tried && matches!(resolution, Resolution::Retry) => {
            Some("it has not been tried yet")
        }
        Status::Held | Status::Unknown | Status::Waiting | Status::Claimed => None,
    }
}
