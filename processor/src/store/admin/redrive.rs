//! Parked rows that a person sends on: decided again, tried again, released, or given up.
//!
//! Records are marked, and the workers of their connector decide them again by the same transaction as all
//! others; a rejected effect becomes a waiting one under its own key. Every row that is changed has an audit row
//! in the same transaction.

use std::collections::BTreeSet;

use oncely_core::key::Key;
use sqlx::{PgConnection, query_file, query_file_scalar};

use super::audit::{Change, record};
use super::parked::Place;
use crate::store::columns::{clean, key, millis, uuids};
use crate::store::deferred;
use crate::store::error::Result;
use crate::store::origin::Origin;
use crate::store::settle::{LaneLock, lock_lanes, wake};

/// Characters of a note, as the column allows.
const NOTE_CHARS_MAX: usize = 500;

/// Which open rows are meant; `None` and empty take everything.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// As `list` shows them.
    pub numbers: Vec<i64>,
    pub connector: Option<String>,
    /// Why they were parked.
    pub cause: Option<String>,
    pub business_id: Option<String>,
    /// Rejected effects of this id of the connector file.
    pub effect: Option<String>,
    /// Parked no longer ago.
    pub since_ms: Option<u64>,
    /// Rows at most.
    pub limit: i64,
}

/// What is to become of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Decided, or tried, once more. `over_limit`: also those that were redriven as often as is allowed.
    Redrive { over_limit: bool },
    /// A quarantined record is run as it is: a person has looked at both.
    Release { over_limit: bool },
    /// Nothing follows from them.
    Discard,
}

impl Wish {
    const fn action(self, place: Place) -> &'static str {
        match (self, place) {
            (Self::Redrive { .. } | Self::Release { .. }, Place::DeadLetters) => "dlq redrive",
            (Self::Redrive { .. } | Self::Release { .. }, Place::Quarantine) => {
                "quarantine release"
            }
            (Self::Discard, Place::DeadLetters) => "dlq discard",
            (Self::Discard, Place::Quarantine) => "quarantine discard",
        }
    }

    const fn over_limit(self) -> bool {
        match self {
            Self::Redrive { over_limit } | Self::Release { over_limit } => over_limit,
            Self::Discard => true,
        }
    }
}

/// One row that is meant.
#[derive(Clone, Debug)]
pub struct Meant {
    pub number: i64,
    pub connector: String,
    pub reason: String,
    pub tenant: String,
    pub business_id: Option<String>,
    pub detail: String,
    /// How often it was redriven so far.
    pub redrives: i32,
    pub origin: Option<Origin>,
    /// Key and id of a rejected effect.
    pub effect: Option<(Key, String)>,
    /// It may have been done already: whatever has neither a key nor a look-up is held when it is tried again.
    pub suspect: bool,
    /// Why nothing is done with it.
    pub left: Option<&'static str>,
    event: Option<Key>,
    lane: Option<(Key, bool)>,
}

/// Does what is wished to every row that is meant, or says what would be done; gives the rows.
///
/// # Errors
/// As every query; then nothing was changed.
pub async fn change(
    tx: &mut PgConnection,
    place: Place,
    filter: &Filter,
    wish: Wish,
    change: &Change,
) -> Result<Vec<Meant>> {
    let mut meant = pick(tx, place, filter, wish).await?;
    if change.dry_run {
        return Ok(meant);
    }
    let of = |effects: bool| {
        let chosen = meant.iter().filter(|one| one.left.is_none());
        chosen.filter(move |one| one.effect.is_some() == effects)
    };
    let mut done: BTreeSet<i64> = BTreeSet::new();
    if wish == Wish::Discard {
        let numbers: Vec<i64> = of(true).chain(of(false)).map(|one| one.number).collect();
        let rows = query_file_scalar!("src/store/sql/admin_parked_discard.sql", &numbers);
        done.extend(rows.fetch_all(&mut *tx).await?);
        deferred::give_up(tx, &numbers).await?;
    } else {
        let records: Vec<i64> = of(false).map(|one| one.number).collect();
        if !records.is_empty() {
            let release = matches!(wish, Wish::Release { .. });
            let rows = query_file_scalar!("src/store/sql/admin_parked_want.sql", &records, release);
            done.extend(rows.fetch_all(&mut *tx).await?);
        }
        let effects: Vec<Meant> = of(true).cloned().collect();
        if !effects.is_empty() {
            done.extend(again(tx, &effects, change).await?);
        }
    }
    for one in &mut meant {
        if one.left.is_none() && !done.contains(&one.number) {
            one.left = Some("somebody else has changed it meanwhile");
        }
    }
    for one in meant.iter().filter(|one| one.left.is_none()) {
        let detail = serde_json::json!({
            "number": one.number,
            "connector": one.connector,
            "cause": one.reason,
            "redrives": one.redrives,
            "suspect": one.suspect,
            "from": one.origin.as_ref().map(ToString::to_string),
            "effect": one.effect.as_ref().map(|(key, _)| key.wire()),
        });
        let subject = one.effect.as_ref().map(|(key, _)| *key).or(one.event);
        record(tx, subject, wish.action(place), change, &detail.to_string()).await?;
    }
    Ok(meant)
}

/// The rows that are meant, each with why nothing can be done with it.
async fn pick(
    tx: &mut PgConnection,
    place: Place,
    filter: &Filter,
    wish: Wish,
) -> Result<Vec<Meant>> {
    let numbers = (!filter.numbers.is_empty()).then_some(&*filter.numbers);
    let rows = query_file!(
        "src/store/sql/admin_parked_pick.sql",
        place.kind(),
        numbers,
        filter.connector,
        filter.cause,
        filter.business_id,
        filter.effect,
        filter.since_ms.map(millis),
        filter.limit,
    );
    let rows = rows.fetch_all(tx).await?.into_iter();
    Ok(rows
        .map(|row| {
            let left = match wish {
                Wish::Discard => None,
                _ if row.wanted => Some("it is being decided again already"),
                _ if !row.wired => {
                    Some("no connector file that runs has it, so nobody would take it up")
                }
                _ if !wish.over_limit() && row.redrives >= row.redrives_max => Some(
                    "it was redriven as often as `failure.max_redrives` allows; see --over-limit",
                ),
                Wish::Redrive { .. } | Wish::Release { .. } => None,
            };
            Meant {
                number: row.id,
                connector: row.connector,
                reason: row.reason,
                tenant: row.tenant,
                business_id: row.business_id,
                detail: row.detail,
                redrives: row.redrives,
                origin: Origin::of(row.topic, row.record_partition, row.record_offset),
                effect: row.effect.map(|effect| (key(effect), row.effect_name.unwrap_or_default())),
                suspect: row.suspect,
                left,
                event: row.event.map(key),
                lane: row.lane.map(|lane| (key(lane), row.is_event.unwrap_or(false))),
            }
        })
        .collect())
}

/// Tries rejected effects again, and lets what was skipped because of them wait for them; gives the numbers of
/// their rows.
async fn again(tx: &mut PgConnection, effects: &[Meant], change: &Change) -> Result<Vec<i64>> {
    let keys: Vec<Key> = effects.iter().filter_map(|one| Some(one.effect.as_ref()?.0)).collect();
    let mut lanes: BTreeSet<(bool, Key)> = BTreeSet::new();
    lanes
        .extend(effects.iter().filter_map(|one| one.lane).map(|(lane, is_event)| (is_event, lane)));
    lanes.extend(followers(tx, &keys).await?.into_iter().map(|follower| follower.lane));
    let of = |event: bool| lanes.iter().filter(move |(is_event, _)| *is_event == event);
    for (is_event, lock) in [(false, LaneLock::Entity), (true, LaneLock::Inbox)] {
        let sorted: Vec<Key> = of(is_event).map(|(_, lane)| *lane).collect();
        if !sorted.is_empty() {
            lock_lanes(tx, lock, &sorted).await?;
        }
    }
    let note = clean(&format!("redriven: {}", change.reason), NOTE_CHARS_MAX);
    let rows = query_file!("src/store/sql/admin_effects_redrive.sql", &uuids(&keys), note);
    let rows = rows.fetch_all(&mut *tx).await?;
    let redriven: Vec<Key> = rows.iter().map(|row| key(row.key)).collect();
    // Of lanes that are locked: what has come meanwhile in another one is not ours to move.
    let mut follow = followers(tx, &redriven).await?;
    follow.retain(|follower| lanes.contains(&follower.lane));
    let follow = uuids(follow.iter().map(|follower| &follower.key));
    query_file!("src/store/sql/admin_effects_follow.sql", &follow).execute(&mut *tx).await?;
    let all: Vec<Key> = lanes.into_iter().map(|(_, lane)| lane).collect();
    wake(tx, &all, None).await?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// An effect that was skipped because another one was not done.
struct Follower {
    key: Key,
    /// Whether it is an event's own, and its key.
    lane: (bool, Key),
}

/// What was skipped because of these, in whatever event: whoever redrives a charge has its refund back as well.
async fn followers(tx: &mut PgConnection, keys: &[Key]) -> Result<Vec<Follower>> {
    let rows = query_file!("src/store/sql/admin_effects_followers.sql", &uuids(keys));
    let rows = rows.fetch_all(tx).await?.into_iter();
    Ok(rows
        .map(|row| Follower { key: key(row.key), lane: (row.is_event, key(row.lane)) })
        .collect())
}
