//! What was sent, or refused, is put on record, and what waited for it may go.

use std::time::Duration;

use oncely_core::effect::outcome::OutcomeClass;
use oncely_core::effect::status::Status;
use oncely_core::key::Key;

use crate::crash::{self, Step};
use crate::kafka::Delivered;
use crate::store::outbox::{self, Published, Waiting, What};
use crate::store::{Session, StoreError, settle};
use crate::telemetry::{Finished, Published as Counted};
use crate::worker::Shared;
use crate::worker::prepared::tell;

/// A record whose end is to be put on record.
#[derive(Debug)]
pub(super) struct Over {
    pub(super) row: Waiting,
    pub(super) how: Result<Delivered, String>,
    pub(super) took: Duration,
}

/// Log lines about one transaction; a topic that is not there must not fill the disk.
const LINES_MAX: usize = 10;

/// Puts ends on record in one transaction; gives effects that hold no offset back any more.
///
/// # Errors
/// As every query; then nothing is on record.
pub(super) async fn record(
    shared: &Shared,
    session: &mut Session,
    worker: uuid::Uuid,
    over: &[Over],
) -> Result<Vec<Key>, StoreError> {
    let effect = |over: &Over| match &over.row.what {
        What::Effect(effect) => Some((over.row.message, effect.lane)),
        What::DeadLetter(_) | What::Gone(_) => None,
    };
    let mut lanes: Vec<Key> = over.iter().filter_map(effect).map(|(_, lane)| lane).collect();
    lanes.sort_unstable();
    lanes.dedup();
    let mut tx = session.begin().await?;
    if !lanes.is_empty() {
        settle::lock_lanes(&mut tx, shared.lane_lock(), &lanes).await?;
    }
    let mut sent = Vec::new();
    let mut results = Vec::new();
    let mut refused = Vec::new();
    for one in over {
        match &one.how {
            Ok(at) => {
                sent.push((one.row.id, at.partition, at.offset, one.row.message));
                if let Some((key, _)) = effect(one) {
                    results.push((key, result(&one.row.topic, *at)));
                }
            }
            Err(why) => refused.push((one.row.id, one.row.message, why.clone())),
        }
    }
    let mut let_go = Vec::new();
    if !sent.is_empty() {
        outbox::sent(&mut tx, &sent).await?;
    }
    if !results.is_empty() {
        let_go.extend(outbox::published(&mut tx, &results).await?);
    }
    if !refused.is_empty() {
        let held = outbox::hold(&mut tx, worker, &refused).await?;
        let effects: Vec<(Key, String)> = over
            .iter()
            .filter(|one| held.contains(&one.row.id))
            .filter_map(|one| Some((effect(one)?.0, one.how.as_ref().err()?.clone())))
            .collect();
        if !effects.is_empty() {
            let_go.extend(outbox::unpublished(&mut tx, worker, &effects).await?);
        }
    }
    if !results.is_empty() {
        let woken = settle::wake(&mut tx, &lanes, None).await?;
        let_go.extend(woken.skipped);
        if woken.due {
            shared.lanes.iter().flatten().for_each(|lane| lane.set_backlog(true));
        }
    }
    let names = || over.iter().filter_map(effect_name);
    crash::before_of(Step::PublishCommit, names);
    tx.commit().await?;
    crash::after_of(Step::PublishCommit, names);
    Ok(let_go)
}

fn effect_name(over: &Over) -> Option<&str> {
    over.row.what.effect().map(|effect| &*effect.name)
}

/// What later effects and people read: where the record lies.
fn result(topic: &str, at: Delivered) -> Vec<u8> {
    let result = serde_json::json!({
        "topic": topic, "partition": at.partition, "offset": at.offset,
    });
    result.to_string().into_bytes()
}

/// Counts what is on record, and tells of what a person has to look at.
pub(super) fn count(shared: &Shared, over: &[Over]) {
    let mut lines: usize = 0;
    for one in over {
        let counted = if one.how.is_ok() { Counted::Sent } else { Counted::Held };
        shared.metrics.outbox_record(!matches!(one.row.what, What::Effect(_)), counted);
        let refused = one.how.as_ref().err();
        if refused.is_some() {
            lines = lines.saturating_add(1);
        }
        match &one.row.what {
            What::Effect(effect) => of_effect(shared, one, effect, lines <= LINES_MAX),
            What::DeadLetter(letter) if lines <= LINES_MAX => {
                let Some(cause) = refused else { continue };
                let number = letter.number;
                let (topic, look) = (&one.row.topic, "oncely outbox list --status held");
                tracing::warn!(topic, dead_letter = number, cause, look, "dead letter not sent");
            }
            What::DeadLetter(_) | What::Gone(_) => {}
        }
    }
}

fn of_effect(shared: &Shared, one: &Over, effect: &Published, told: bool) {
    let rules = &shared.connector.effects;
    let Some(rule) = rules.iter().position(|rule| *rule.id == *effect.name) else { return };
    let Some(metrics) = shared.metrics.effect(rule) else { return };
    match &one.how {
        Ok(_) => {
            metrics.attempt(OutcomeClass::Done, one.took);
            metrics.finished(Finished::Done, 1);
        }
        Err(why) => {
            metrics.attempt(OutcomeClass::Rejected, one.took);
            metrics.held(1);
            if told {
                let id = shared.shown(&effect.tenant, &effect.business_id);
                tell(one.row.message, &effect.name, &id, Status::Held, (None, why));
            }
        }
    }
}
