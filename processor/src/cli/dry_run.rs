//! What events would come to, played against an empty memory. Pure: nothing is sent or written.

use oncely_connectors::format;
use oncely_core::connector::{Connector, OnGap};
use oncely_core::decide::{
    Decision, DeferredNew, EffectNew, Ending, Input, Known, LedgerNew, Place, Plan, WaitCause,
    decide,
};
use oncely_core::event::{self, Event};
use oncely_core::expr::{Meta, Scope, StateView};
use oncely_core::key::Key;

use super::ahead::{AheadOf, ahead};

/// The value of one record.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// As people know it: the file's name.
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
}

/// Samples in order, each with what became of it; later ones have seen the earlier ones.
#[derive(Debug)]
pub(super) struct Played<'a> {
    pub(super) connector: &'a Connector,
    pub(super) steps: Vec<Step>,
    pub(super) plan: Plan,
    /// What is rendered later of each effect.
    pub(super) ahead: AheadOf,
}

/// One sample.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) name: String,
    pub(super) bytes: usize,
    pub(super) outcome: Outcome,
}

#[derive(Debug)]
pub(super) enum Outcome {
    /// A dead letter: it cannot be read, or has no identity.
    Unusable {
        stage: &'static str,
        reason: &'static str,
        detail: String,
    },
    /// The connector's `match` is not true for it.
    NotMatched,
    Decided(Decided),
}

#[derive(Debug)]
pub(super) struct Decided {
    pub(super) event: Event,
    /// The first copy of its business id: what is owed, is owed by it.
    pub(super) is_first: bool,
    pub(super) decision: Decision,
    /// Why it was parked, for people.
    pub(super) detail: Option<String>,
}

impl Step {
    pub(super) fn ending(&self) -> Ending {
        match &self.outcome {
            Outcome::Unusable { .. } => Ending::DeadLettered,
            Outcome::NotMatched => Ending::Ignored,
            Outcome::Decided(decided) => decided.decision.ending,
        }
    }

    /// Why, where the ending has several causes.
    pub(super) fn reason(&self) -> Option<&'static str> {
        match &self.outcome {
            Outcome::Unusable { reason, .. } => Some(reason),
            Outcome::NotMatched => Some("not_matched"),
            Outcome::Decided(decided) => decided.decision.reason.map(|reason| reason.as_str()),
        }
    }
}

impl Played<'_> {
    /// Calls that this event is the first to owe, in the order of the file.
    pub(super) fn effects(&self, decided: &Decided) -> Vec<(Key, &EffectNew)> {
        let first = decided.is_first.then_some(decided.event.key);
        let of_event = self.plan.effects.iter().filter(|(_, effect)| Some(effect.event) == first);
        let mut effects: Vec<_> = of_event.map(|(key, effect)| (*key, effect)).collect();
        effects.sort_by_key(|(_, effect)| effect.rule);
        effects
    }

    /// Usage lines that this event is the first to write.
    pub(super) fn ledger(&self, decided: &Decided) -> Vec<&LedgerNew> {
        let first = decided.is_first.then_some(decided.event.key);
        let mut lines: Vec<_> =
            self.plan.ledger.values().filter(|line| Some(line.event) == first).collect();
        lines.sort_by_key(|line| line.rule);
        lines
    }

    /// The id of a rule in the connector file.
    pub(super) fn rule(&self, index: usize) -> &str {
        self.connector.effects.get(index).map_or("", |rule| &rule.id)
    }

    /// How often an effect of the file is owed, over all events.
    pub(super) fn owed(&self, id: &str) -> usize {
        let calls = self.plan.effects.values().map(|effect| effect.rule);
        let lines = self.plan.ledger.values().map(|line| line.rule);
        calls.chain(lines).filter(|rule| self.rule(*rule) == id).count()
    }

    /// The state of the last event's entity at the end.
    pub(super) fn state(&self) -> Option<&str> {
        let rules = self.connector.state.as_ref()?;
        let entity = self.steps.iter().rev().find_map(|step| match &step.outcome {
            Outcome::Decided(decided) => decided.event.entity.as_ref(),
            Outcome::Unusable { .. } | Outcome::NotMatched => None,
        });
        let written = entity.and_then(|entity| self.plan.entities.get(&entity.key));
        Some(written.map_or(&*rules.initial, |written| &written.row.state))
    }
}

/// Plays samples as the records of one partition of the connector's first topic.
pub(super) fn play<'a>(connector: &'a Connector, samples: &[Sample]) -> Played<'a> {
    let topic = connector.source.topics.first().map_or("", |topic| topic);
    let values: Vec<_> = samples
        .iter()
        .map(|sample| format::decode(&connector.decode, Some(&sample.bytes), &[]))
        .collect();
    let mut read = Vec::new();
    for (offset, value) in (0_i64..).zip(&values) {
        let scope = |value| Scope {
            event: Some(value),
            meta: Some(Meta { topic, partition: 0, offset, timestamp_ms: None, key: None }),
            ..Scope::default()
        };
        read.push(match value {
            Ok(value) => identified(connector, scope(value), offset),
            Err(error) => Read::Out(Outcome::Unusable {
                stage: "decode",
                reason: error.reason.as_str(),
                detail: error.to_string(),
            }),
        });
    }
    let inputs: Vec<Input<'_>> = read
        .iter()
        .filter_map(|read| match read {
            Read::In { event, scope, place } => {
                Some(Input { event, scope: *scope, place: *place, age_ms: None })
            }
            Read::Out(_) => None,
        })
        .collect();
    let plan = decide(connector, &inputs, Known::default());
    drop(inputs);
    let mut decisions = plan.decisions.iter().cloned().enumerate();
    let (mut steps, mut later) = (Vec::new(), AheadOf::new());
    for (sample, read) in samples.iter().zip(read) {
        let outcome = match read {
            Read::Out(outcome) => outcome,
            Read::In { event, place, scope } => match decisions.next() {
                Some((input, decision)) => {
                    later.extend(of_event(connector, &plan, (&event, &decision), scope));
                    let parked = plan.parked.iter().find(|parked| parked.input == input);
                    let waiting = plan.deferred.get(&event.key);
                    let waiting = waiting.filter(|waiting| waiting.input == input);
                    let detail = parked.map(|parked| parked.detail.clone());
                    let detail = detail.or_else(|| waiting.map(|one| waits(connector, one)));
                    let first = plan.inbox.get(&event.key).map(|row| row.place);
                    let is_first = first == Some(place);
                    Outcome::Decided(Decided { event, is_first, decision, detail })
                }
                None => Outcome::NotMatched,
            },
        };
        steps.push(Step { name: sample.name.clone(), bytes: sample.bytes.len(), outcome });
    }
    Played { connector, steps, plan, ahead: later }
}

/// What is rendered later of the effects that an event owes.
fn of_event(
    connector: &Connector,
    plan: &Plan,
    (event, decision): (&Event, &Decision),
    scope: Scope<'_>,
) -> AheadOf {
    let moved = decision.moved.as_ref().zip(event.entity.as_ref());
    let state = moved.map(|(moved, entity)| StateView {
        current: &moved.to,
        previous: &moved.from,
        version: entity.version,
        moved: true,
    });
    let scope = Scope { state, ..scope };
    let mine = plan.effects.iter().filter(|(_, effect)| effect.event == event.key);
    mine.map(|(key, effect)| (*key, ahead(connector, (*key, effect), &scope))).collect()
}

/// What an event waits for, for people.
fn waits(connector: &Connector, waiting: &DeferredNew) -> String {
    let on_gap = connector.state.as_ref().map(|rules| rules.on_gap);
    match (waiting.cause, on_gap) {
        (WaitCause::Gap, Some(OnGap::Wait(wait))) => format!(
            "a version before {} is missing; it waits for {} ms, then: {}",
            waiting.version,
            wait.wait_ms,
            wait.then.as_str()
        ),
        (WaitCause::Gap | WaitCause::Parked, _) => {
            "an earlier event of its entity is parked; it waits until a person has decided"
                .to_owned()
        }
    }
}

/// A record before it is decided.
enum Read<'a> {
    In { event: Event, scope: Scope<'a>, place: Place },
    Out(Outcome),
}

fn identified<'a>(connector: &Connector, scope: Scope<'a>, offset: i64) -> Read<'a> {
    let identified = match event::matches(connector, &scope) {
        Ok(false) => return Read::Out(Outcome::NotMatched),
        Ok(true) => event::identify(connector, &scope),
        Err(reject) => Err(reject),
    };
    match identified {
        Ok(event) => Read::In { event, scope, place: Place { source: 0, partition: 0, offset } },
        Err(reject) => Read::Out(Outcome::Unusable {
            stage: "identity",
            reason: reject.reason.as_str(),
            detail: reject.to_string(),
        }),
    }
}
