//! One event once more: what it owes by the file as it is, and what of that is added.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use oncely_connectors::file::Compiled;
use oncely_connectors::format;
use oncely_core::connector::Connector;
use oncely_core::decide::{Decided, Known, Moved, OwedAgain, Refusal, undone_keys};
use oncely_core::event::{self, Event};
use oncely_core::expr::{Header, Meta, Scope};
use oncely_core::key::Key;
use serde_json::json;

use crate::kafka::{self, Fetched};
use crate::store::admin::Change;
use crate::store::admin::replay::{self, Kept, Selected};
use crate::store::claim::Payload;
use crate::store::{PgConnection, StoreError};
use crate::worker::{read_headers, write_headers};

/// What becomes of effects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Skip,
    Missing,
    /// By the index of the rule.
    Rerun(Vec<usize>),
}

/// By what events are replayed.
pub(super) struct Rules<'a> {
    pub(super) compiled: &'a Compiled,
    pub(super) mode: &'a Mode,
    /// The name of the replay: part of the keys of a new generation.
    pub(super) request: &'a str,
    /// A person gave it that name, and may have given it before.
    pub(super) is_named: bool,
    /// The connector file, for the audit row.
    pub(super) file: String,
}

/// What came of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// All that it owes is on record.
    Absorbed,
    Added,
    TooOld,
    /// Neither its bytes nor its record are there any more.
    Gone,
    /// By the file as it is now, its record is another event.
    Differs,
    /// The file makes nothing usable of it.
    Refused,
    /// What is to run again has not come to its end yet.
    Open,
}

impl Came {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Absorbed => "absorbed",
            Self::Added => "added",
            Self::TooOld => "too_old",
            Self::Gone => "gone",
            Self::Differs => "differs",
            Self::Refused => "refused",
            Self::Open => "open",
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Played {
    pub(super) came: Came,
    /// Keys and ids of what was added; events that share an effect name it each, while nothing is written.
    pub(super) effects: Vec<(Key, String)>,
    /// Of these, calls that may have been made before, in what a failover has lost.
    pub(super) suspect: usize,
    pub(super) why: Option<String>,
}

impl Played {
    pub(super) const fn of(came: Came) -> Self {
        Self { came, effects: Vec::new(), suspect: 0, why: None }
    }

    fn because(came: Came, why: impl Into<String>) -> Self {
        Self { why: Some(why.into()), ..Self::of(came) }
    }
}

/// A record whose bytes were kept for its effects; `None` when they cannot be read.
pub(super) fn kept(payload: &Payload) -> Option<Fetched> {
    let headers = read_headers(&payload.headers)?.into_iter();
    Some(Fetched {
        timestamp_ms: payload.timestamp_ms,
        key: payload.key.clone().map(Bytes::from),
        value: payload.value.clone().map(Bytes::from),
        headers: headers
            .map(|(name, value)| kafka::Header { name: name.into(), value: value.map(Bytes::from) })
            .collect(),
    })
}

/// Replays one event inside a transaction that the caller ends.
///
/// # Errors
/// As every query; then nothing was changed.
pub(super) async fn play(
    tx: &mut PgConnection,
    rules: &Rules<'_>,
    event: &Selected,
    record: Option<&Fetched>,
    change: &Change,
) -> Result<Played, StoreError> {
    let connector = &rules.compiled.connector;
    let replay_ms = connector.retention.replay_ms;
    if replay_ms > 0 && event.age_ms > replay_ms {
        return Ok(Played::because(Came::TooOld, "it is older than `retention.replay`"));
    }
    let Some(record) = record else {
        return Ok(Played::because(Came::Gone, "its record is not in the topic any more"));
    };
    let headers: Vec<Header<'_>> = record
        .headers
        .iter()
        .map(|header| Header { name: &header.name, value: header.value.as_deref() })
        .collect();
    let value = match format::decode(&connector.decode, record.value.as_deref(), &headers) {
        Ok(value) => value,
        Err(error) => return Ok(Played::because(Came::Differs, error.to_string())),
    };
    let scope = Scope {
        event: Some(&value),
        headers: &headers,
        meta: Some(Meta {
            topic: &event.topic,
            partition: event.partition,
            offset: event.offset,
            timestamp_ms: record.timestamp_ms,
            key: record.key.as_deref(),
        }),
        ..Scope::default()
    };
    match same(connector, event, &scope) {
        Ok(identified) => again(tx, rules, (event, &identified, scope), record, change).await,
        Err(why) => Ok(Played::because(Came::Differs, why)),
    }
}

/// The event that a record is by the file as it is now, if that is the one on record.
fn same(connector: &Connector, event: &Selected, scope: &Scope<'_>) -> Result<Event, String> {
    let identified = event::identify(connector, scope).map_err(|reject| reject.to_string())?;
    if identified.key != event.key {
        return Err("the file gives it another identity now".to_owned());
    }
    if identified.fingerprint != event.fingerprint {
        return Err("the file gives it another fingerprint now".to_owned());
    }
    Ok(identified)
}

/// Adds what the event owes and what is not on record, as the mode says.
async fn again(
    tx: &mut PgConnection,
    rules: &Rules<'_>,
    (event, identified, scope): (&Selected, &Event, Scope<'_>),
    record: &Fetched,
    change: &Change,
) -> Result<Played, StoreError> {
    let connector = &rules.compiled.connector;
    let moved = event.from_state.as_deref().zip(event.to_state.as_deref());
    let moved = moved.map(|(from, to)| Moved { from: Arc::from(from), to: Arc::from(to) });
    // Where the entity of a stale event stands is known once its lane is locked.
    let Some((_, known)) = replay::lock(tx, event, connector, &[]).await? else {
        return Ok(Played::because(Came::Gone, "retention removed it meanwhile"));
    };
    let may_be_again = match rules.mode {
        Mode::Skip => false,
        Mode::Missing => true,
        Mode::Rerun(_) => rules.is_named,
    };
    // What is not on record may have been added, and forgotten by a failover.
    let suspect = may_be_again && replay::in_doubt(tx, connector, event).await?;
    let entity = event.entity.and_then(|entity| known.entities.get(&entity).cloned());
    let current = entity.map(|entity| entity.state);
    let decided = Decided {
        connector,
        event: identified,
        scope,
        moved: moved.as_ref(),
        stale: event.is_stale,
        current: current.as_deref(),
        suspect,
    };
    let mut asked = match decided.keys() {
        Ok(keys) => keys,
        Err(refusal) => return Ok(Played::because(Came::Refused, refusal.detail)),
    };
    asked.extend(undone_keys(connector, identified, &scope));
    let Some((mut owes, mut known)) = replay::lock(tx, event, connector, &asked).await? else {
        return Ok(Played::because(Came::Gone, "retention removed it meanwhile"));
    };
    let owed = match rules.mode {
        Mode::Skip => return Ok(Played::of(Came::Absorbed)),
        Mode::Missing => decided
            .missing(&mut known)
            .map_err(|refusal| Played::because(Came::Refused, refusal.detail)),
        Mode::Rerun(indexes) => generation(&decided, &known, (indexes, rules.request), &owes),
    };
    let owed = match owed {
        Ok(owed) => owed,
        Err(played) => return Ok(played),
    };
    let is_new = owed.keys.iter().any(|key| !owes.contains(key)) || !owed.ledger.is_empty();
    if !is_new {
        return Ok(Played::of(Came::Absorbed));
    }
    let rule = |index: usize| connector.effects.get(index).map(|rule| rule.id.to_string());
    let effects = owed.effects.iter().map(|(key, effect)| (*key, effect.rule));
    let effects = effects.chain(owed.ledger.iter().map(|(key, line)| (*key, line.rule)));
    let suspect = owed.effects.values().filter(|effect| effect.suspect).count();
    let effects: Vec<(Key, String)> =
        effects.filter_map(|(key, index)| Some((key, rule(index)?))).collect();
    if *rules.mode == Mode::Missing
        && let Some(id) = on_record(tx, event, &effects, &owes, &owed).await?
    {
        let why = format!(
            "effects.{id}: it is on record under another key, so `key` makes others than it did: what was done would \
             be done again; give it back the `key` that it had, or another `id` where it shall be done once more"
        );
        return Ok(Played::because(Came::Refused, why));
    }
    let stored = write_headers(&record.headers);
    let kept = Kept {
        timestamp_ms: record.timestamp_ms,
        key: record.key.as_deref(),
        value: record.value.as_deref(),
        headers: &stored,
    };
    replay::add(tx, event, (connector, owed), &mut owes, &kept).await?;
    let action = match rules.mode {
        Mode::Rerun(_) => "replay --effects rerun",
        Mode::Skip | Mode::Missing => "replay --effects missing",
    };
    let detail = BTreeMap::from([
        ("request", json!(rules.request)),
        ("effects", effects.iter().map(|(_, id)| id.as_str()).collect()),
        ("keys", effects.iter().map(|(key, _)| key.wire()).collect()),
        ("connector", json!(*connector.name)),
        ("file", json!(rules.file)),
    ]);
    replay::note(tx, event.key, action, change, &detail).await?;
    Ok(Played { came: Came::Added, effects, suspect, why: None })
}

/// An effect or line that is to be added, and is on record under another key.
async fn on_record(
    tx: &mut PgConnection,
    event: &Selected,
    effects: &[(Key, String)],
    owes: &[Key],
    owed: &OwedAgain,
) -> Result<Option<String>, StoreError> {
    let named = replay::named(tx, event, owes, !owed.ledger.is_empty()).await?;
    let new = effects.iter().filter(|(key, _)| !owes.contains(key));
    let mut ids = new.map(|(_, id)| id).filter(|id| named.contains(*id));
    Ok(ids.next().cloned())
}

/// A new generation of effects whose first one has come to its end.
fn generation(
    decided: &Decided<'_>,
    known: &Known,
    (indexes, request): (&[usize], &str),
    owes: &[Key],
) -> Result<OwedAgain, Played> {
    let refused = |refusal: Refusal| Played::because(Came::Refused, refusal.detail);
    let originals = decided.keys_of(indexes).map_err(refused)?;
    for original in originals {
        match known.effects.get(&original).map(|row| row.status) {
            None => {
                let why = "it is not on record: --effects missing adds it";
                return Err(Played::because(Came::Refused, why));
            }
            Some(status) if !status.is_final() => {
                let why = "its outcome is not known yet: resolve it first (oncely effects list)";
                return Err(Played::because(Came::Open, why));
            }
            Some(_) => {}
        }
    }
    let made = decided.generation(known, indexes, request).map_err(refused)?;
    Ok(unknown_of(made, owes))
}

/// Of a new generation what is not on record: the same request was replayed before.
fn unknown_of(mut made: OwedAgain, owes: &[Key]) -> OwedAgain {
    made.effects.retain(|key, _| !owes.contains(key));
    made
}
