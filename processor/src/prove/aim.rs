//! Which effects come to a crash point, and how a crash is made to hit one of them.
//!
//! Reads: the connector's rules and what the samples owe. Gives: targets, each of which is a play of its own.
//! Does nothing itself.

use std::collections::BTreeSet;

use oncely_core::connector::{Connector, EffectBody};

use super::Owed;
use super::stand_in::Class;
use crate::crash::{Aim, Step};

/// What a place is of, and so what a crash there hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// The process, before it has taken anything up: whatever it would have done.
    Process,
    /// Records, and so what they owe.
    Records,
    /// The effects that are at the place when it is come to.
    Effects,
    /// What the process has in its hands when it is asked to give them up, or when it died before.
    Hands,
}

pub(super) const fn of(step: Step) -> Of {
    match step {
        Step::Start => Of::Process,
        Step::Records | Step::Position | Step::OffsetCommit => Of::Records,
        Step::BatchCommit
        | Step::ClaimCommit
        | Step::Connect
        | Step::Request
        | Step::Outcome
        | Step::LookUp
        | Step::SettleCommit
        | Step::TakeOver
        | Step::Publish
        | Step::PublishCommit => Of::Effects,
        Step::Revoke | Step::Death | Step::GiveBack | Step::End => Of::Hands,
    }
}

/// One play of a point.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// Indexes of the rules that are hit when it crashes as it is meant to.
    pub(super) rules: BTreeSet<usize>,
    pub(super) aim: Option<Aim>,
}

/// Plays that hit every rule which comes to the step. Where a crash turns out to have hit more, those that it
/// hit need no other.
pub(super) fn targets(connector: &Connector, owed: &[Owed], step: Step) -> Vec<Target> {
    let comes: BTreeSet<usize> =
        owed.iter().map(|one| one.rule).filter(|rule| comes_to(connector, *rule, step)).collect();
    match of(step) {
        Of::Process if comes.is_empty() => Vec::new(),
        Of::Process => vec![Target { rules: comes, aim: None }],
        Of::Records => {
            let first = |rule: &usize| {
                owed.iter().filter(|one| one.rule == *rule).map(|one| one.sample).min()
            };
            let samples: BTreeSet<usize> = comes.iter().filter_map(first).collect();
            let of_sample = |sample: usize| {
                let rules = comes.iter().filter(|rule| first(rule) == Some(sample)).copied();
                let below = i64::try_from(sample).unwrap_or(i64::MAX).saturating_add(1);
                Target { rules: rules.collect(), aim: Some(Aim::Below(below)) }
            };
            samples.into_iter().map(of_sample).collect()
        }
        Of::Effects | Of::Hands => {
            let by_place = of(step) == Of::Effects;
            let of_rule = |rule: usize| {
                let id = connector.effects.get(rule).map(|rule| rule.id.clone());
                let aim = id.filter(|_| by_place).map(Aim::Effect);
                Target { rules: BTreeSet::from([rule]), aim }
            };
            comes.into_iter().map(of_rule).collect()
        }
    }
}

/// Whether an effect of such a rule has the step.
fn comes_to(connector: &Connector, rule: usize, step: Step) -> bool {
    let Some(rule) = connector.effects.get(rule) else { return false };
    match step {
        Step::Start
        | Step::Records
        | Step::BatchCommit
        | Step::Position
        | Step::OffsetCommit
        | Step::Revoke
        | Step::GiveBack
        | Step::End => true,
        Step::ClaimCommit
        | Step::Connect
        | Step::Request
        | Step::Outcome
        | Step::Death
        | Step::TakeOver => matches!(rule.body, EffectBody::Call(_)),
        Step::LookUp => {
            matches!(&rule.body, EffectBody::Call(call) if Class::of(call) == Class::Asked)
        }
        Step::SettleCommit => match &rule.body {
            EffectBody::Call(_) => true,
            // It is written by the settlement of the call that it waits for.
            EffectBody::Ledger(line) => {
                let of_call = |before: &usize| comes_to(connector, *before, Step::SettleCommit);
                line.waits && rule.after.iter().any(of_call)
            }
            EffectBody::Publish(_) => false,
        },
        Step::Publish | Step::PublishCommit => matches!(rule.body, EffectBody::Publish(_)),
    }
}
