//! What an event may have owed when it came first, where a failover may have lost that.
//!
//! Its entity stands elsewhere by now than it may have stood then, for other events were read first: it is stale now,
//! or nothing leads from there, or it moves its entity by another transition. Whatever it could have owed by any
//! transition that takes it may have been sent, and a person says whether it was. Records have the same id again, so they
//! come only after a call. Lines were lost themselves with what made them owed, so those that it owes whichever of these
//! transitions took it are written again.
//! Reads: the event, the transitions, what is known of effects. Gives: effects that are held, or that wait for one, and
//! lines.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::line::ledger_line;
use super::owed::{Owed, Question, effect, inputs, key_of, order, request, state};
use super::plan::{EffectNew, LedgerNew, Moved};
use crate::connector::{EffectBody, EffectRule, StateRules};
use crate::effect::next::Why;
use crate::effect::order::Turn;
use crate::effect::status::Status;
use crate::expr::{Scope, StateView};
use crate::key::Key;

/// Adds what the event may have owed to what it owes now. `lines`: it may have come in time, so its lines count.
pub(super) fn add(question: &Question<'_>, rules: &StateRules, lines: bool, owed: &mut Owed) {
    let mut surely: Option<Vec<(Key, LedgerNew)>> = None;
    for moved in ways(question, rules) {
        let then = Question {
            stale: false,
            moved: Some(&moved),
            current: None,
            suspect: true,
            ..*question
        };
        if lines {
            let by_this = lines_of(&then);
            surely = Some(match surely {
                None => by_this,
                Some(others) => others.into_iter().filter(|line| by_this.contains(line)).collect(),
            });
        }
        // One state is kept of an event: that of the first way by which something is rendered later.
        if add_of(&then, owed) && owed.as_if.is_none() {
            owed.as_if = Some(moved);
        }
    }
    for (key, line) in surely.into_iter().flatten() {
        let is_known = question.known.ledger.contains_key(&key);
        if !is_known && owed.ledger.iter().all(|(other, _)| *other != key) {
            owed.ledger.push((key, line));
        }
    }
}

/// The lines that it owed if it moved so.
fn lines_of(then: &Question<'_>) -> Vec<(Key, LedgerNew)> {
    let tenant = Some(&*then.event.tenant);
    let scope = Scope { state: state(then), tenant, ..then.scope };
    let line = |(index, rule): (usize, &EffectRule)| {
        let EffectBody::Ledger(body) = &rule.body else { return None };
        if body.waits {
            return None;
        }
        let key = key_of(then, rule, &scope).ok()??;
        let whose = (then.event.key, &*then.event.tenant);
        Some((key, ledger_line(rule, index, body, whose, &scope).ok()?))
    };
    then.connector.effects.iter().enumerate().filter_map(line).collect()
}

/// The transitions that may have taken it.
fn ways(question: &Question<'_>, rules: &StateRules) -> Vec<Moved> {
    let Some(about) = &question.event.entity else { return Vec::new() };
    let mut ways = Vec::new();
    for transition in &rules.transitions {
        for from in &transition.from {
            let state =
                StateView { current: from, previous: from, version: about.version, moved: false };
            let tenant = Some(&*question.event.tenant);
            let scope = Scope { state: Some(state), tenant, ..question.scope };
            let condition = transition.condition.as_ref();
            // One that cannot be said took nobody then, either.
            if condition.is_none_or(|condition| condition.is_true(&scope).unwrap_or(false)) {
                let moved = Moved { from: Arc::from(&**from), to: Arc::from(&*transition.to) };
                if !ways.contains(&moved) {
                    ways.push(moved);
                }
            }
        }
    }
    ways
}

/// Adds what it may have owed by one of them, and says whether some of it is rendered later. What has no usable value
/// was not sent then, either.
fn add_of(then: &Question<'_>, owed: &mut Owed) -> bool {
    let tenant = Some(&*then.event.tenant);
    let scope = Scope { state: state(then), tenant, ..then.scope };
    let rules = &then.connector.effects;
    let keys: Vec<Option<Key>> =
        rules.iter().map(|rule| key_of(then, rule, &scope).ok().flatten()).collect();
    let mut wanted: Vec<bool> =
        rules.iter().map(|rule| matches!(rule.body, EffectBody::Call(_))).collect();
    let has = |wanted: &[bool], at: &usize| {
        wanted.get(*at) == Some(&true) && keys.get(*at).is_some_and(Option::is_some)
    };
    // Each round adds what comes after what the one before it has added.
    for _ in rules {
        let more: Vec<bool> = rules
            .iter()
            .zip(&wanted)
            .map(|(rule, is)| *is || rule.after.iter().any(|at| has(&wanted, at)))
            .collect();
        wanted = more;
    }
    let mut made: Vec<(Key, EffectNew)> = Vec::new();
    let mut statuses = BTreeMap::new();
    for (index, rule) in rules.iter().enumerate() {
        let key = keys.get(index).copied().flatten();
        let Some(key) = key.filter(|_| has(&wanted, &index)) else { continue };
        if owed.keys.contains(&key) {
            continue;
        }
        let new = match &rule.body {
            EffectBody::Ledger(body) if !body.waits => continue,
            EffectBody::Ledger(body) => {
                effect(then, index, (None, inputs(|visit| body.for_each_read(visit), &scope)))
            }
            EffectBody::Call(_) | EffectBody::Publish(_) => {
                let rendered = rule.body.request().map(|sent| request(rule, sent, key, &scope));
                let Some(Ok(rendered)) = rendered else { continue };
                effect(then, index, rendered)
            }
        };
        match then.known.effects.get(&key) {
            None => made.push((key, new)),
            Some(row) if row.request_hash == new.request_hash => {
                statuses.insert(key, row.status);
                owed.keys.push(key);
            }
            // On record, by another event: nothing of it is forgotten.
            Some(_) => {}
        }
    }
    statuses.extend(made.iter().map(|(key, _)| (*key, Status::Waiting)));
    let mut renders_later = false;
    for (key, mut new) in made {
        if order(then, &scope, &mut new, &keys, &statuses).is_err() {
            continue;
        }
        // What it comes after may be on record, done by another event: then nothing else would hold it back.
        let is_first = !new.after.iter().any(|after| statuses.contains_key(after));
        if new.turn == Turn::Ready || is_first && new.turn != Turn::Skip {
            new.turn = Turn::Hold(Why::OwedBefore);
        }
        let rule = rules.get(new.rule);
        let later = rule.is_some_and(|rule| {
            rule.body.needs_event_later() || matches!(rule.body, EffectBody::Ledger(_))
        });
        renders_later |= later;
        owed.needs_payload |= later || then.connector.failure.dead_letter.is_some();
        owed.keys.push(key);
        owed.effects.push((key, new));
    }
    renders_later
}
