//! Effects whose turn has come after the batch transaction: rendered where that had to wait for results, and
//! put into the outbox. Any relay does it for all slices.

use oncely_core::connector::Connector;
use oncely_core::effect::request::Request;
use oncely_core::key::{Hasher, Key};

use super::is_published;
use crate::store::outbox::{self, Outgoing};
use crate::store::parked::{self, LetterDue};
use crate::store::{Session, StoreError, settle};
use crate::worker::Shared;
use crate::worker::claims::Held;
use crate::worker::late;

/// Effects looked at in one transaction.
const SLICE: i64 = 500;

/// What one look came to.
#[derive(Debug, Default)]
pub(super) struct Turned {
    /// Effects that hold no offset back any more.
    pub(super) let_go: Vec<Key>,
    /// Rejected, with the reason: no record can be made.
    pub(super) rejected: Vec<(Held, String)>,
    /// There may be more.
    pub(super) more: bool,
}

/// Looks once.
///
/// # Errors
/// As every query; then nothing was changed.
pub(super) async fn look(
    shared: &Shared,
    session: &mut Session,
    worker: uuid::Uuid,
) -> Result<Turned, StoreError> {
    let id = shared.connector_id;
    let names: Vec<String> = (shared.connector.effects.iter())
        .filter(|rule| is_published(&rule.body))
        .map(|rule| rule.id.to_string())
        .collect();
    if names.is_empty() {
        return Ok(Turned::default());
    }
    let lanes = outbox::lanes_due(session.connection().await?, id, &names, SLICE).await?;
    if lanes.is_empty() {
        return Ok(Turned::default());
    }
    let mut tx = session.begin().await?;
    settle::lock_lanes(&mut tx, shared.lane_lock(), &lanes).await?;
    let due = outbox::due(&mut tx, id, &names, &lanes).await?;
    let mut held: Vec<Held> = due
        .into_iter()
        .filter_map(|(name, claim)| {
            let rule = shared.connector.effects.iter().position(|rule| *rule.id == *name)?;
            Some(Held::new(worker, rule, claim))
        })
        .collect();
    late::render_missing(&mut tx, &shared.connector, &mut held).await?;
    let mut turned = Turned { more: !held.is_empty(), ..Turned::default() };
    let mut records = Vec::new();
    let mut rejected = Vec::new();
    for held in held {
        match record_of(&held) {
            Ok(record) => records.push((held.claim.key, record)),
            Err(why) => rejected.push((held, why)),
        }
    }
    let outgoing: Vec<Outgoing<'_>> = records
        .iter()
        .map(|(message, (topic, key))| Outgoing {
            message: *message,
            topic,
            record_key: key.as_deref().map(str::as_bytes),
            parked: None,
        })
        .collect();
    if !outgoing.is_empty() {
        outbox::put(&mut tx, id, &outgoing).await?;
        let keys: Vec<Key> = records.iter().map(|(key, _)| *key).collect();
        outbox::queued(&mut tx, &keys).await?;
    }
    if !rejected.is_empty() {
        let noted: Vec<(Key, String)> =
            rejected.iter().map(|(held, why)| (held.claim.key, why.clone())).collect();
        let keys = outbox::reject(&mut tx, &noted).await?;
        settle::park_rejected(&mut tx, &keys).await?;
        let woken = settle::wake(&mut tx, &lanes, None).await?;
        turned.let_go.extend(keys);
        turned.let_go.extend(woken.skipped);
        if woken.due {
            shared.lanes.iter().flatten().for_each(|lane| lane.set_backlog(true));
        }
    }
    tx.commit().await?;
    turned.rejected = rejected;
    Ok(turned)
}

/// Puts dead letters into the outbox that are not there yet.
///
/// # Errors
/// As every query; then nothing was changed.
pub(super) async fn letters(shared: &Shared, session: &mut Session) -> Result<(), StoreError> {
    let Some(letters) = &shared.connector.failure.dead_letter else { return Ok(()) };
    let id = shared.connector_id;
    if !parked::is_any_letter(session.connection().await?, id).await? {
        return Ok(());
    }
    let mut tx = session.begin().await?;
    let due = parked::letters_due(&mut tx, id, SLICE).await?;
    let outgoing: Vec<Outgoing<'_>> = due
        .iter()
        .map(|due| Outgoing {
            message: message_of(&shared.connector, due),
            topic: &letters.topic,
            record_key: due.record_key.as_deref(),
            parked: Some(due.number),
        })
        .collect();
    outbox::put(&mut tx, id, &outgoing).await?;
    let numbers: Vec<i64> = due.iter().map(|due| due.number).collect();
    parked::letters_queued(&mut tx, &numbers).await?;
    Ok(tx.commit().await?)
}

/// The message id of a dead letter: that of its effect or its record, and of how often it was redriven. Another
/// connector of the scope has letters of its own.
fn message_of(connector: &Connector, due: &LetterDue) -> Key {
    let hasher = Hasher::new("dead letter").part(&connector.scope).part(&connector.name);
    let hasher = hasher.bytes(&due.redrives.to_be_bytes());
    match &due.effect {
        Some(effect) => hasher.part("effect").bytes(effect.as_bytes()),
        None => hasher.part(due.record.as_deref().unwrap_or_default()),
    }
    .finish()
}

/// Topic and key of an effect's record, or why it has none.
fn record_of(held: &Held) -> Result<(Box<str>, Option<Box<str>>), String> {
    if let Some(why) = &held.unrenderable {
        return Err(why.clone());
    }
    match &held.claim.request {
        Some(Ok(Request::Record(record))) => Ok((record.topic.clone(), record.key.clone())),
        Some(Ok(Request::Http(_) | Request::Email(_))) => {
            Err("the effect was of another type when it was owed".to_owned())
        }
        Some(Err(why)) => Err(format!("the record cannot be read: {why}")),
        None => Err("the record was removed by retention before it could be sent".to_owned()),
    }
}
