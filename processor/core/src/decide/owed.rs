//! The effects that an event owes.
//!
//! An effect key may be known already: two events may owe one effect. With the same request the
//! second shares the first; with another one it is a conflict and the event is quarantined.

use std::collections::BTreeMap;

use super::known::{EffectRow, Known};
use super::line::ledger_line;
use super::plan::{EffectNew, LedgerNew, Moved, ParkReason};
use crate::connector::{Connector, EffectBody, EffectRule, OnStale, RequestRule};
use crate::effect::marks::Marks;
use crate::effect::next::Why;
use crate::effect::order::{Turn, turn};
use crate::effect::status::Status;
use crate::event::Event;
use crate::expr::{Expr, Path, Root, Scope, StateView};
use crate::fingerprint::Fingerprint;
use crate::key::{Hasher, Key, PART_BYTES_MAX};
use crate::render;
use crate::value::Value;

/// All that one event owes.
#[derive(Debug, Default)]
pub(super) struct Owed {
    pub(super) effects: Vec<(Key, EffectNew)>,
    pub(super) ledger: Vec<(Key, LedgerNew)>,
    /// New and shared effects, in the order of the file.
    pub(super) keys: Vec<Key>,
    pub(super) needs_payload: bool,
    /// Something that it owes by how it moves its entity now is rendered later.
    pub(super) renders_later: bool,
    /// How it would have moved its entity, where something that it may have owed by that is rendered later.
    pub(super) as_if: Option<Moved>,
}

/// Why an event cannot owe what its connector says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: ParkReason,
    /// For a person: what is wrong and where. Holds no values of the event.
    pub detail: String,
}

impl Refusal {
    pub(super) fn expression(
        rule: &EffectRule,
        place: &str,
        error: impl std::fmt::Display,
    ) -> Self {
        let detail = format!("effects.{}.{place}: {error}", rule.id);
        Self { reason: ParkReason::ExpressionFailed, detail }
    }
}

/// What is asked about one event.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) connector: &'a Connector,
    pub(super) known: &'a Known,
    pub(super) event: &'a Event,
    pub(super) scope: Scope<'a>,
    pub(super) stale: bool,
    pub(super) moved: Option<&'a Moved>,
    /// The state of a stale event's entity, which it does not change.
    pub(super) current: Option<&'a str>,
    /// The event may have been run although the database does not know it.
    pub(super) suspect: bool,
}

pub(super) fn owed(question: &Question<'_>) -> Result<Owed, Refusal> {
    let Question { connector, event, .. } = question;
    let scope = Scope { state: state(question), tenant: Some(&event.tenant), ..question.scope };
    let mut owed = Owed::default();
    let mut statuses: BTreeMap<Key, Status> = BTreeMap::new();
    // `after` may name a later rule, so all keys are known before the first turn is asked for.
    let keys = wanted(question, &scope)?;
    for (index, rule) in connector.effects.iter().enumerate() {
        let Some(key) = keys.get(index).copied().flatten() else { continue };
        match &rule.body {
            EffectBody::Ledger(body) if !body.waits => {
                let line = ledger_line(rule, index, body, (event.key, &event.tenant), &scope)?;
                match question.known.ledger.get(&key) {
                    None => owed.ledger.push((key, line)),
                    Some(content) if *content == line.content => {}
                    Some(_) => return Err(conflict(rule, "ledger line")),
                }
                continue;
            }
            EffectBody::Ledger(_) | EffectBody::Call(_) | EffectBody::Publish(_) => {}
        }
        let (new, needs_event_later) = match &rule.body {
            EffectBody::Ledger(body) => {
                let hash = inputs(|visit| body.for_each_read(visit), &scope);
                (effect(question, index, (None, hash)), true)
            }
            EffectBody::Call(_) | EffectBody::Publish(_) => {
                let Some(sent) = rule.body.request() else { continue };
                let request = request(rule, sent, key, &scope)?;
                (effect(question, index, request), rule.body.needs_event_later())
            }
        };
        owed.keys.push(key);
        match question.known.effects.get(&key) {
            None => {
                statuses.insert(key, Status::Waiting);
                // A dead letter of the effect is the record that owed it.
                owed.renders_later |= needs_event_later;
                owed.needs_payload |= needs_event_later || connector.failure.dead_letter.is_some();
                owed.effects.push((key, new));
            }
            Some(EffectRow { status, request_hash }) if *request_hash == new.request_hash => {
                statuses.insert(key, *status);
            }
            Some(_) => return Err(conflict(rule, "request")),
        }
    }
    for (_, effect) in &mut owed.effects {
        order(question, &scope, effect, &keys, &statuses)?;
    }
    Ok(owed)
}

/// The keys of what the event owes, by the index of the rule.
fn wanted(question: &Question<'_>, scope: &Scope<'_>) -> Result<Vec<Option<Key>>, Refusal> {
    question.connector.effects.iter().map(|rule| key_of(question, rule, scope)).collect()
}

/// The key under which the event owes this rule's effect, if it does.
pub(super) fn key_of(
    question: &Question<'_>,
    rule: &EffectRule,
    scope: &Scope<'_>,
) -> Result<Option<Key>, Refusal> {
    if question.stale && rule.on_stale == OnStale::Skip {
        return Ok(None);
    }
    let wanted = rule.when.as_ref().map_or(Ok(true), |when| when.is_true(scope));
    if !wanted.map_err(|error| Refusal::expression(rule, "when", error))? {
        return Ok(None);
    }
    let parts = key_parts(rule, &rule.key, scope)?;
    let (connector, event) = (question.connector, question.event);
    Ok(Some(Key::effect(&connector.scope, &event.tenant, &rule.id, &parts)))
}

/// What an effect comes after, and whether it may go.
pub(super) fn order(
    question: &Question<'_>,
    scope: &Scope<'_>,
    effect: &mut EffectNew,
    keys: &[Option<Key>],
    statuses: &BTreeMap<Key, Status>,
) -> Result<(), Refusal> {
    let Some(rule) = question.connector.effects.get(effect.rule) else { return Ok(()) };
    effect.after = rule.after.iter().filter_map(|at| keys.get(*at).copied().flatten()).collect();
    let undone = undone(question, rule, scope)?;
    effect.after.extend(undone);
    effect.undoes = undone;
    let status = |key: &Key| {
        let known = || question.known.effects.get(key).map(|row| row.status);
        statuses.get(key).copied().or_else(known)
    };
    let predecessors: BTreeMap<Key, Status> =
        effect.after.iter().filter_map(|key| Some((*key, status(key)?))).collect();
    let has_nothing_to_undo = undone.is_some_and(|key| !predecessors.contains_key(&key));
    let none = Vec::new();
    let lane = question.known.open.get(&effect.lane).unwrap_or(&none);
    effect.turn = if has_nothing_to_undo {
        may_be_done(question, rule, effect.lane).map_or(Turn::Skip, Turn::Hold)
    } else {
        turn(question.event.key, effect.version, &effect.after, lane, &predecessors)
    };
    Ok(())
}

/// Why what a rule undoes may have been done although nothing is on record of it under its key: forgotten with age or in
/// a failover, or known by the key of another time.
fn may_be_done(question: &Question<'_>, rule: &EffectRule, lane: Key) -> Option<Why> {
    let known = question.known;
    if question.suspect || known.forgetful.contains(&lane) {
        return Some(Why::UndoneForgotten);
    }
    let undone = rule.compensates.as_ref()?.effect;
    known.rekeyed.contains(&(lane, undone)).then_some(Why::UndoneRekeyed)
}

/// The keys of these rules. An event that does not owe one of them is refused.
pub(super) fn first_keys(question: &Question<'_>, rules: &[usize]) -> Result<Vec<Key>, Refusal> {
    let Question { connector, event, .. } = question;
    let scope = Scope { state: state(question), tenant: Some(&event.tenant), ..question.scope };
    let keys = wanted(question, &scope)?;
    let key = |index: &usize| {
        let id = connector.effects.get(*index).map_or("", |rule| &*rule.id);
        let detail = format!("effects.{id}: this event does not owe it");
        let refusal = Refusal { reason: ParkReason::ExpressionFailed, detail };
        keys.get(*index).copied().flatten().ok_or(refusal)
    };
    rules.iter().map(key).collect()
}

/// Effects of a new generation of these rules, under keys that hold `tag`.
pub(super) fn generation(
    question: &Question<'_>,
    rules: &[usize],
    tag: &str,
) -> Result<Owed, Refusal> {
    let Question { connector, event, .. } = question;
    let scope = Scope { state: state(question), tenant: Some(&event.tenant), ..question.scope };
    let mut keys = wanted(question, &scope)?;
    let mut owed = Owed::default();
    let mut statuses = BTreeMap::new();
    for index in rules {
        let Some(rule) = connector.effects.get(*index) else { continue };
        let refusal = |what: &str| {
            let detail = format!("effects.{}: {what}", rule.id);
            Refusal { reason: ParkReason::ExpressionFailed, detail }
        };
        let slot = keys.get_mut(*index).filter(|slot| slot.is_some());
        let slot = slot.ok_or_else(|| refusal("this event does not owe it"))?;
        let line = || refusal("a line of the ledger is written once; correct it by another event");
        let sent = rule.body.request().ok_or_else(line)?;
        let mut parts = key_parts(rule, &rule.key, &scope)?;
        parts.push(tag.to_owned());
        // No effect of a file can be called so.
        let id = format!("{}#again", rule.id);
        let key = Key::effect(&connector.scope, &event.tenant, &id, &parts);
        *slot = Some(key);
        statuses.insert(key, Status::Waiting);
        let request = request(rule, sent, key, &scope)?;
        owed.needs_payload |= rule.body.needs_event_later();
        owed.effects.push((key, effect(question, *index, request)));
    }
    for (_, effect) in &mut owed.effects {
        order(question, &scope, effect, &keys, &statuses)?;
    }
    Ok(owed)
}

pub(super) fn state<'a>(question: &Question<'a>) -> Option<StateView<'a>> {
    let version = question.event.entity.as_ref()?.version;
    match (question.moved, question.current) {
        (Some(moved), _) => {
            Some(StateView { current: &moved.to, previous: &moved.from, version, moved: true })
        }
        (None, Some(current)) => {
            Some(StateView { current, previous: current, version, moved: false })
        }
        (None, None) => None,
    }
}

fn conflict(rule: &EffectRule, what: &str) -> Refusal {
    let detail = format!(
        "effects.{}: another event owes this effect with another {what}; if both are meant, \
         `key` must tell them apart",
        rule.id
    );
    Refusal { reason: ParkReason::EffectConflict, detail }
}

/// The key of the effect that a rule undoes. Whether there is one, only who knows it can say.
fn undone(
    question: &Question<'_>,
    rule: &EffectRule,
    scope: &Scope<'_>,
) -> Result<Option<Key>, Refusal> {
    let Some(compensation) = &rule.compensates else { return Ok(None) };
    let Some(undone) = question.connector.effects.get(compensation.effect) else { return Ok(None) };
    let parts = key_parts(rule, &compensation.key, scope)?;
    Ok(Some(Key::effect(&question.connector.scope, &question.event.tenant, &undone.id, &parts)))
}

/// Keys of effects that an event may undo: what must be known of them before it is decided. Those that it
/// cannot name are none of its own, or are told when it is decided.
pub fn undone_keys(connector: &Connector, event: &Event, scope: &Scope<'_>) -> Vec<Key> {
    let scope = Scope { tenant: Some(&event.tenant), ..*scope };
    let undone = |rule: &EffectRule| {
        let compensation = rule.compensates.as_ref()?;
        let id = &connector.effects.get(compensation.effect)?.id;
        let parts = key_parts(rule, &compensation.key, &scope).ok()?;
        Some(Key::effect(&connector.scope, &event.tenant, id, &parts))
    };
    connector.effects.iter().filter_map(undone).collect()
}

fn key_parts(rule: &EffectRule, parts: &[Expr], scope: &Scope<'_>) -> Result<Vec<String>, Refusal> {
    let part = |expr: &Expr| {
        let value = expr.eval(scope).map_err(|error| Refusal::expression(rule, "key", error))?;
        let part = value.as_key_part().filter(|part| part.len() <= PART_BYTES_MAX);
        part.ok_or_else(|| {
            let what = format!(
                "is {}, not a text or an integer of at most {PART_BYTES_MAX} bytes",
                value.kind()
            );
            Refusal::expression(rule, "key", what)
        })
    };
    parts.iter().map(part).collect()
}

/// The request's bytes, unless it can only be made later, and what tells it from another one.
pub(super) type Rendered = (Option<Vec<u8>>, Key);

pub(super) fn request(
    rule: &EffectRule,
    body: &RequestRule,
    key: Key,
    scope: &Scope<'_>,
) -> Result<Rendered, Refusal> {
    let wire = key.wire();
    let scope = Scope { effect_key: Some(&wire), ..*scope };
    if rule.body.reads_results() {
        return Ok((None, inputs(|visit| body.for_each_read(visit), &scope)));
    }
    let request = render::request(body, &scope).map_err(|error| Refusal {
        reason: ParkReason::RequestFailed,
        detail: format!("effects.{}.request: {}", rule.id, chain(&error)),
    })?;
    let bytes = request.to_bytes();
    let hash = Hasher::new("request").bytes(&bytes).finish();
    let stored = match &rule.body {
        EffectBody::Call(call) => Marks::of(call).put(bytes),
        EffectBody::Publish(_) | EffectBody::Ledger(_) => bytes,
    };
    Ok((Some(stored), hash))
}

pub(super) fn effect(
    question: &Question<'_>,
    rule: usize,
    (request, request_hash): Rendered,
) -> EffectNew {
    let event = question.event;
    let body = question.connector.effects.get(rule).map(|rule| &rule.body);
    let is_call = matches!(body, Some(EffectBody::Call(_)));
    EffectNew {
        event: event.key,
        lane: event.entity.as_ref().map_or(event.key, |entity| entity.key),
        version: event.entity.as_ref().map_or(0, |entity| entity.version),
        rule,
        tenant: event.tenant.clone(),
        business_id: event.id.clone(),
        request_hash,
        request,
        after: Vec::new(),
        undoes: None,
        turn: Turn::Ready,
        // Lines are in the database itself, and a record that is published twice has the same id.
        suspect: question.suspect && is_call,
    }
}

pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Stands for what cannot be made yet: what it reads of the event.
pub(super) fn inputs(for_each_read: impl FnOnce(&mut dyn FnMut(&Path)), scope: &Scope<'_>) -> Key {
    let mut hasher = Hasher::new("request inputs");
    let mut feed = |path: &Path| {
        if path.root != Root::Effects {
            let value = scope.find(path).map_or(Value::Null, std::borrow::Cow::into_owned);
            let Fingerprint(hash) = Fingerprint::of([&value]);
            hasher = hasher.clone().bytes(hash.as_bytes());
        }
    };
    for_each_read(&mut feed);
    hasher.finish()
}
