//! A database of maps that takes what plans say of events that wait, and orders that each event moves on.

use std::collections::{BTreeMap, BTreeSet};

use oncely_core::connector::{AfterWait, Connector, GapWait, OnGap, OnParked, Transition};
use oncely_core::decide::{
    DeferredRow, Ending, InboxRow, Input, Known, ParkReason, ParkedNew, Place, Plan, Releases,
    Waits, decide_with, releasable,
};
use oncely_core::event::{Event, identify};
use oncely_core::expr::{Expr, Scope};
use oncely_core::fingerprint::Fingerprint;
use oncely_core::key::Key;
use oncely_core::value::Value;

use crate::orders;

/// An order that any event moves on, and each owes one call.
pub(crate) fn connector(on_gap: OnGap, on_parked: OnParked) -> Connector {
    let mut connector = orders::connector();
    connector.identity.id = Expr::compile("event.order + string(event.version)").unwrap();
    let rules = connector.state.as_mut().unwrap();
    rules.transitions = vec![Transition {
        from: vec!["open".into()],
        to: "open".into(),
        condition: Some(Expr::compile("event.type != \"refused\"").unwrap()),
    }];
    rules.on_gap = on_gap;
    rules.on_parked = on_parked;
    connector.effects.truncate(1);
    connector.effects[0].when = None;
    connector.effects[0].key = vec![Expr::compile("event.version").unwrap()];
    connector
}

pub(crate) fn waiting(then: AfterWait, first: Option<i64>) -> OnGap {
    OnGap::Wait(GapWait { wait_ms: 1, then, first })
}

#[derive(Clone)]
pub(crate) struct Waiting {
    number: i64,
    entity: Key,
    version: i64,
    value: Value,
    fingerprint: Fingerprint,
    place: Place,
    /// Whether its time may come.
    timed: bool,
}

/// What is durable.
#[derive(Default)]
pub(crate) struct Database {
    pub(crate) known: Known,
    pub(crate) deferred: BTreeMap<Key, Waiting>,
    /// Version of parked events, by entity.
    pub(crate) holds: Vec<(Key, i64)>,
    pub(crate) passed: BTreeMap<Key, i64>,
    pub(crate) ahead: BTreeSet<(Key, i64)>,
    /// Events that were parked for a version or for room, with their entities and versions.
    pub(crate) missing: Vec<(Key, i64)>,
    /// Keys of effects as they came to be owed, lowest version first in each plan.
    pub(crate) owed: Vec<Key>,
    pub(crate) endings: BTreeMap<Key, Ending>,
    pub(crate) numbers: i64,
    pub(crate) offset: i64,
    pub(crate) releases: Releases,
    pub(crate) room: Option<usize>,
}

impl Database {
    pub(crate) fn load(&self, overdue: bool) -> Known {
        let mut known = self.known.clone();
        known.releases = self.releases;
        known.room = self.room;
        for (event, waiting) in &self.deferred {
            let waits: &mut Waits = known.waits.entry(waiting.entity).or_default();
            waits.deferred.push(DeferredRow {
                number: Some(waiting.number),
                event: *event,
                version: waiting.version,
                overdue: overdue && waiting.timed,
                untimed: !waiting.timed,
                input: None,
                changed: false,
            });
        }
        for (entity, version) in &self.holds {
            known.waits.entry(*entity).or_default().parked.insert(*version);
        }
        for (entity, version) in &self.passed {
            known.waits.entry(*entity).or_default().passed = Some(*version);
        }
        for (entity, version) in &self.ahead {
            known.waits.entry(*entity).or_default().ahead.insert(*version);
        }
        for waits in known.waits.values_mut() {
            waits.deferred.sort_by_key(|row| (row.version, row.number));
        }
        known
    }

    /// Decides a batch, with what waits; gives the endings of the batch.
    pub(crate) fn run(
        &mut self,
        connector: &Connector,
        batch: &[Value],
        overdue: bool,
        durable: bool,
    ) -> Vec<Ending> {
        let mut known = self.load(overdue);
        let scope = |value| Scope { event: Some(value), ..Scope::default() };
        let events: Vec<Event> =
            batch.iter().map(|value| identify(connector, &scope(value)).unwrap()).collect();
        let mut inputs: Vec<Input<'_>> = events
            .iter()
            .zip(batch)
            .zip(self.offset..)
            .map(|((event, value), offset)| {
                let place = Place { source: 1, partition: 0, offset };
                Input { event, scope: scope(value), place, age_ms: None }
            })
            .collect();
        let wanted: BTreeSet<i64> = releasable(connector, &known, &inputs).into_iter().collect();
        let old: Vec<Waiting> =
            self.deferred.values().filter(|one| wanted.contains(&one.number)).cloned().collect();
        let old_events: Vec<Event> =
            old.iter().map(|one| identify(connector, &scope(&one.value)).unwrap()).collect();
        for (event, one) in old_events.iter().zip(&old) {
            let mut rows = known.waits.values_mut().flat_map(|waits| &mut waits.deferred);
            let row = rows.find(|row| row.number == Some(one.number)).unwrap();
            row.input = Some(inputs.len());
            let input = Input { event, scope: scope(&one.value), place: one.place, age_ms: None };
            inputs.push(input);
        }
        let plan = decide_with(connector, &inputs, batch.len(), known);
        assert_eq!(plan.decisions.len(), batch.len());
        let endings = plan.decisions.iter().map(|decision| decision.ending).collect();
        if durable {
            self.offset += i64::try_from(batch.len()).unwrap();
            self.write(plan, &inputs);
        }
        endings
    }

    fn write(&mut self, plan: Plan, inputs: &[Input<'_>]) {
        for released in &plan.released {
            let gone = self.deferred.remove(&released.event).unwrap();
            assert_eq!(gone.number, released.number);
            let was = self.known.inbox.remove(&released.event).unwrap();
            assert_eq!(was.ending, Ending::Deferred);
        }
        for (key, write) in plan.entities {
            let before = self.known.entities.insert(key, write.row.clone());
            assert_eq!(before.as_ref().map(|before| before.version), write.was);
            assert!(before.is_none_or(|before| before.version < write.row.version));
        }
        for (key, new) in plan.inbox {
            self.endings.insert(key, new.ending);
            let row = InboxRow {
                fingerprint: new.fingerprint,
                ending: new.ending,
                effects: new.effects,
                first: new.place,
                age_ms: 0,
            };
            assert!(self.known.inbox.insert(key, row).is_none(), "an id is decided once");
        }
        for (event, new) in plan.deferred {
            self.numbers += 1;
            let waiting = Waiting {
                number: self.numbers,
                entity: new.entity,
                version: new.version,
                value: inputs[new.input].scope.event.unwrap().clone(),
                fingerprint: new.fingerprint,
                place: inputs[new.input].place,
                timed: new.cause == oncely_core::decide::WaitCause::Gap,
            };
            assert_eq!(inputs[new.input].event.fingerprint, waiting.fingerprint);
            assert!(self.deferred.insert(event, waiting).is_none());
        }
        for number in plan.timed {
            let row = self.deferred.values_mut().find(|one| one.number == number).unwrap();
            assert!(!std::mem::replace(&mut row.timed, true), "it had no time");
        }
        self.passed.extend(plan.passed);
        self.ahead.extend(plan.ahead);
        for entity in plan.overtaken {
            let stored = self.known.entities.get(&entity).map(|row| row.version);
            let reached = stored.max(self.passed.get(&entity).copied());
            self.passed.retain(|of, version| *of != entity || stored < Some(*version));
            self.ahead.retain(|(of, version)| *of != entity || reached < Some(*version));
        }
        let gone = |parked: &&ParkedNew| {
            matches!(parked.reason, ParkReason::VersionGap | ParkReason::DeferredFull)
        };
        let about = |parked: &ParkedNew| {
            let about = inputs[parked.input].event.entity.as_ref().unwrap();
            (about.key, about.version)
        };
        self.missing.extend(plan.parked.iter().filter(gone).map(about));
        self.holds.extend(plan.parked.iter().filter_map(|parked| parked.holds));
        let mut effects: Vec<_> = plan.effects.iter().collect();
        effects.sort_by_key(|(_, new)| new.version);
        self.owed.extend(effects.into_iter().map(|(key, _)| *key));
    }

    /// A person gives up all that was parked for a version or for room.
    pub(crate) fn discard_missing(&mut self) {
        for (entity, version) in std::mem::take(&mut self.missing) {
            self.holds.retain(|held| *held != (entity, version));
            self.ahead.insert((entity, version));
        }
    }

    pub(crate) fn version(&self) -> Option<i64> {
        self.known.entities.values().next().map(|row| row.version)
    }
}

pub(crate) fn paid(version: i64) -> Value {
    orders::value("paid", version)
}
