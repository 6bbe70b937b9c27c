//! Folds the events of a batch in order, with those that have waited for one of them.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::Input;
use super::forgotten;
use super::known::{DeferredRow, EffectRow, EntityRow, InboxRow, Known};
use super::owed::{Owed, Question, owed};
use super::plan::{
    Decision, DeferredNew, Ending, EntityWrite, InboxNew, Moved, ParkReason, ParkedNew, PayloadNew,
    Plan, WaitCause,
};
use super::state::{Step, step};
use super::verdict::{Verdict, verdict};
use super::waits::{Standing, follows, is_after_gap, reach, standing, waiting_before};
use crate::connector::{Connector, OnConflict, OnGap, OnParked, StateRules};
use crate::effect::order::{OpenEffect, Turn};
use crate::effect::status::Status;
use crate::event::Event;
use crate::fingerprint::Fingerprint;
use crate::key::Key;

/// Decides all events. `known` is what the database says of their keys; it comes back changed by
/// the batch and is of no further use.
pub fn decide(connector: &Connector, inputs: &[Input<'_>], known: Known) -> Plan {
    decide_with(connector, inputs, inputs.len(), known)
}

/// The same with events that wait on the entities of the first `fresh` inputs, or on others: they are the inputs
/// after these, and [`Known::waits`] says which is which. They go when their turn has come by what the fresh
/// ones bring, or their time. Decisions are those of the fresh ones; [`Plan::released`] has the others.
pub fn decide_with(
    connector: &Connector,
    inputs: &[Input<'_>],
    fresh: usize,
    known: Known,
) -> Plan {
    let defers = connector.defers() || !known.waits.is_empty();
    let mut fold = Fold { connector, inputs, known, plan: Plan::default(), copies: Vec::new() };
    let entities: Vec<Key> = fold.known.waits.keys().copied().collect();
    for (index, input) in inputs.iter().enumerate().take(fresh) {
        if defers && let Some(about) = &input.event.entity {
            // What waits with a lower version and may go comes first.
            fold.release(about.key, about.version.saturating_sub(1), false);
        }
        // One event is decided on a view that does not change, so a panic leaves nothing half done.
        let meaning = catch_unwind(AssertUnwindSafe(|| fold.meaning(input)))
            .unwrap_or_else(|_| Meaning::parked(false, ParkReason::Panicked, PANICKED.to_owned()));
        let decision = fold.apply(index, input, meaning);
        fold.plan.decisions.push(decision);
    }
    if defers {
        let about = inputs.iter().take(fresh).filter_map(|input| input.event.entity.as_ref());
        let touched: BTreeSet<Key> = about.map(|about| about.key).collect();
        touched.into_iter().for_each(|entity| fold.release(entity, i64::MAX, false));
    }
    // What these events have brought comes first: only then is it too late.
    entities.iter().for_each(|entity| fold.release(*entity, i64::MAX, true));
    fold.follow_up()
}

const TOO_OLD: &str = "its record is older than `retention.dedupe`, so it may have been run and forgotten; it was \
                       not run";
pub(super) const PANICKED: &str =
    "deciding this record panicked; please report it with the log of that time";
const FULL: &str = "it would have to wait for an earlier event of its entity, and as many events wait as \
                    `state.max_deferred` allows; release it when fewer do";

pub(super) struct Fold<'a> {
    pub(super) connector: &'a Connector,
    pub(super) inputs: &'a [Input<'a>],
    pub(super) known: Known,
    pub(super) plan: Plan,
    /// Copies of events that wait, by the index of their decisions.
    copies: Vec<(usize, Key)>,
}

/// What one event means, not yet folded in.
pub(super) enum Meaning {
    Again {
        row: InboxRow,
    },
    Conflict {
        known: Fingerprint,
    },
    /// The entity was set by this event, though the inbox has forgotten it.
    Known,
    Fresh {
        ending: Ending,
        moved: Option<Moved>,
        owed: Owed,
    },
    Parked {
        quarantine: bool,
        reason: ParkReason,
        detail: String,
    },
    Deferred {
        cause: WaitCause,
    },
}

impl Meaning {
    pub(super) const fn parked(quarantine: bool, reason: ParkReason, detail: String) -> Self {
        Self::Parked { quarantine, reason, detail }
    }
}

impl Fold<'_> {
    fn meaning(&self, input: &Input<'_>) -> Meaning {
        let event = input.event;
        let seen = self.known.inbox.get(&event.key);
        match (verdict(seen, event.fingerprint), seen) {
            (Verdict::Fresh, _) | (_, None) => self.fresh(input),
            (Verdict::Duplicate, Some(row)) => Meaning::Again { row: row.clone() },
            (Verdict::Conflict, Some(row)) => {
                // A person may have released this very content before.
                let released = Key::released(event.key, event.fingerprint);
                match self.known.inbox.get(&released) {
                    Some(row) => Meaning::Again { row: row.clone() },
                    None => Meaning::Conflict { known: row.fingerprint },
                }
            }
        }
    }

    fn fresh(&self, input: &Input<'_>) -> Meaning {
        if input.age_ms.is_some_and(|age_ms| age_ms > self.connector.retention.dedupe_ms) {
            return Meaning::parked(false, ParkReason::TooOld, TOO_OLD.to_owned());
        }
        match self.waits_for(input.event) {
            None => self.decided_now(input),
            Some(_) if self.is_full() => {
                Meaning::parked(true, ParkReason::DeferredFull, FULL.to_owned())
            }
            Some(cause) => Meaning::Deferred { cause },
        }
    }

    fn waits_for(&self, event: &Event) -> Option<WaitCause> {
        let rules = self.connector.state.as_ref()?;
        if !rules.defers() && self.known.waits.is_empty() {
            return None;
        }
        let about = event.entity.as_ref()?;
        match standing(rules, &self.known, (about.key, about.version)) {
            Standing::Free => {
                waiting_before(&self.known, about.key, about.version).map(|_| WaitCause::Parked)
            }
            Standing::Gap if self.known.insisted.contains(&event.key) => None,
            Standing::Gap => Some(WaitCause::Gap),
            Standing::Behind(_) => Some(WaitCause::Parked),
        }
    }

    fn is_full(&self) -> bool {
        self.known.room.is_some_and(|room| self.plan.deferred.len() >= room)
    }

    /// What a new event means that waits for nothing, or for nothing any more.
    pub(super) fn decided_now(&self, input: &Input<'_>) -> Meaning {
        let event = input.event;
        let scope = crate::expr::Scope { tenant: Some(&event.tenant), ..input.scope };
        let mut current = None;
        let (ending, moved) = match (&self.connector.state, &event.entity) {
            (Some(rules), Some(about)) => {
                let stored = self.known.entities.get(&about.key);
                match step(rules, stored, event.key, about, &scope) {
                    Step::Moves(moved) => (Ending::Applied, Some(moved)),
                    Step::Stale { current: state } => {
                        current = Some(state);
                        (Ending::Stale, None)
                    }
                    Step::Known => return Meaning::Known,
                    Step::Ignored => (Ending::Ignored, None),
                    Step::Parked { quarantine, reason, detail } => {
                        return Meaning::parked(quarantine, reason, detail);
                    }
                }
            }
            (Some(_) | None, _) => (Ending::Applied, None),
        };
        let question = Question {
            connector: self.connector,
            known: &self.known,
            event,
            scope,
            stale: ending == Ending::Stale,
            moved: moved.as_ref(),
            current: current.as_deref(),
            suspect: self.known.suspect.contains(&event.key),
        };
        // What is ignored owes nothing.
        let owed = if ending == Ending::Ignored { Ok(Owed::default()) } else { owed(&question) };
        match owed {
            Ok(mut owed) => {
                if let (Some(rules), true) = (&self.connector.state, question.suspect)
                    && !(moved.is_some() && self.is_next(event))
                    && !(question.stale && self.known.late.contains(&event.key))
                {
                    // What was parked came too late for its lines, unless a person had it run since.
                    let is_read = question.stale && !self.known.redriven;
                    let lines = is_read && !self.known.is_behind(event, input.place);
                    forgotten::add(&question, rules, lines, &mut owed);
                }
                Meaning::Fresh { ending, moved, owed }
            }
            Err(refusal) => {
                let quarantine = refusal.reason == ParkReason::EffectConflict;
                Meaning::parked(quarantine, refusal.reason, refusal.detail)
            }
        }
    }

    /// Whether its entity stands at the version right before. Then it is taken to have moved from there the first time
    /// as well: so it did unless that version was read after it then, and stale. To hold whatever else it could have
    /// owed would hold something of nearly every event that is read again.
    fn is_next(&self, event: &Event) -> bool {
        let Some(about) = &event.entity else { return false };
        let stored = self.known.entities.get(&about.key);
        stored.is_some_and(|row| row.version.saturating_add(1) == about.version)
    }

    pub(super) fn apply(&mut self, index: usize, input: &Input<'_>, meaning: Meaning) -> Decision {
        match meaning {
            Meaning::Again { row } => {
                if row.ending == Ending::Deferred {
                    self.copies.push((index, input.event.key));
                }
                let is_first = input.place == row.first;
                // The first copy itself, delivered again, is no repeat of it.
                if !is_first {
                    self.plan.repeats.push((input.event.key, input.place));
                }
                Decision {
                    ending: Ending::Duplicate,
                    reason: None,
                    effects: row.effects,
                    age_ms: row.age_ms,
                    is_first,
                    moved: None,
                }
            }
            Meaning::Known => ended(Ending::Duplicate, None),
            Meaning::Conflict { known } => {
                let quarantine = self.connector.identity.on_conflict == OnConflict::Quarantine;
                let detail = "this business id is known with another content; it was not run";
                let reason = ParkReason::Conflict;
                self.park(index, input, quarantine, reason, detail.to_owned(), Some(known))
            }
            Meaning::Parked { quarantine, reason, detail } => {
                let decision = self.park(index, input, quarantine, reason, detail, None);
                self.remember(input, decision.ending, None, Vec::new());
                decision
            }
            Meaning::Deferred { cause } => self.defer(index, input, cause),
            Meaning::Fresh { ending, moved, owed } => {
                if ending == Ending::Ignored {
                    self.pass(input.event);
                }
                self.take(index, input, ending, moved, owed)
            }
        }
    }

    /// The event waits, behind those of its entity that wait with lower versions.
    fn defer(&mut self, index: usize, input: &Input<'_>, cause: WaitCause) -> Decision {
        let event = input.event;
        let Some(about) = &event.entity else { return ended(Ending::Ignored, None) };
        if cause == WaitCause::Gap {
            self.plan.gaps = self.plan.gaps.saturating_add(1);
        }
        let waits = self.known.waits.entry(about.key).or_default();
        let at = waits.deferred.partition_point(|row| row.version <= about.version);
        let row = DeferredRow {
            number: None,
            event: event.key,
            version: about.version,
            overdue: false,
            untimed: false,
            input: Some(index),
            changed: false,
        };
        waits.deferred.insert(at, row);
        let new = DeferredNew {
            input: index,
            entity: about.key,
            version: about.version,
            cause,
            tenant: event.tenant.clone(),
            business_id: event.id.clone(),
            fingerprint: event.fingerprint,
            suspect: self.known.suspect.contains(&event.key),
        };
        self.plan.deferred.insert(event.key, new);
        self.remember(input, Ending::Deferred, None, Vec::new());
        ended(Ending::Deferred, None)
    }

    /// The event is decided and leaves its entity where it is: its version is not missing.
    fn pass(&mut self, event: &Event) {
        let minds = |rules: &&StateRules| matches!(rules.on_gap, OnGap::Wait(_));
        let Some(rules) = self.connector.state.as_ref().filter(minds) else { return };
        let Some(about) = &event.entity else { return };
        let reached = reach(&self.known, about.key);
        if reached.is_some_and(|reached| about.version <= reached) {
            return;
        }
        let waits = self.known.waits.entry(about.key).or_default();
        if follows(rules, reached, about.version) {
            waits.passed = Some(about.version);
            self.plan.passed.insert(about.key, about.version);
        } else if waits.ahead.insert(about.version) {
            self.plan.ahead.insert((about.key, about.version));
        }
    }

    /// Later events of the entity wait for this one, if the connector says so.
    fn hold(&mut self, event: &Event) -> Option<(Key, i64)> {
        let rules = self.connector.state.as_ref();
        rules.filter(|rules| rules.on_parked == OnParked::Wait)?;
        let about = event.entity.as_ref()?;
        let stored = self.known.entities.get(&about.key).map(|row| row.version);
        if stored.is_some_and(|stored| stored >= about.version) {
            // The entity has gone by already: what comes later has no reason to wait for this one.
            return None;
        }
        self.known.waits.entry(about.key).or_default().parked.insert(about.version);
        Some((about.key, about.version))
    }

    /// A copy of an event that waited waits for what that one owes now.
    fn follow_up(mut self) -> Plan {
        for (index, event) in &self.copies {
            if let (Some(row), Some(decision)) =
                (self.known.inbox.get(event), self.plan.decisions.get_mut(*index))
            {
                decision.effects.clone_from(&row.effects);
            }
        }
        for (entity, waits) in &self.known.waits {
            let Some(reached) = reach(&self.known, *entity) else { continue };
            self.plan.ahead.retain(|(of, version)| of != entity || *version > reached);
            let stored = self.known.entities.get(entity).map(|row| row.version);
            if stored.max(waits.passed) < Some(reached) {
                self.plan.passed.insert(*entity, reached);
            }
            let is_behind = waits.passed.is_some_and(|passed| stored >= Some(passed));
            if is_behind || waits.ahead.first().is_some_and(|first| *first <= reached) {
                self.plan.overtaken.insert(*entity);
            }
        }
        self.plan
    }

    fn take(
        &mut self,
        index: usize,
        input: &Input<'_>,
        ending: Ending,
        moved: Option<Moved>,
        owed: Owed,
    ) -> Decision {
        let event = input.event;
        if let (Some(about), Some(moved)) = (&event.entity, &moved) {
            // One that had to wait was counted when it came.
            let applies = self.connector.state.as_ref().map(|rules| rules.on_gap);
            if applies == Some(OnGap::Apply) && is_after_gap(&self.known, about.key, about.version)
            {
                self.plan.gaps = self.plan.gaps.saturating_add(1);
            }
            let row = EntityRow {
                event: event.key,
                version: about.version,
                state: Arc::clone(&moved.to),
            };
            let before = self.known.entities.insert(about.key, row.clone());
            let was = match self.plan.entities.get(&about.key) {
                Some(write) => write.was,
                None => before.map(|before| before.version),
            };
            let write = EntityWrite { row, tenant: event.tenant.clone(), was };
            self.plan.entities.insert(about.key, write);
            if !self.known.suspect.is_empty() {
                self.known.set_at.insert(about.key, input.place);
            }
        }
        if owed.needs_payload {
            let as_it_is = moved.clone();
            let so =
                if owed.renders_later { as_it_is.or(owed.as_if) } else { owed.as_if.or(as_it_is) };
            let so = so.or_else(|| self.stood(event));
            let payload = PayloadNew { input: index, event: event.key, moved: so };
            self.plan.payloads.push(payload);
        }
        for (key, line) in owed.ledger {
            self.known.ledger.insert(key, line.content);
            self.plan.ledger.insert(key, line);
        }
        for (key, effect) in owed.effects {
            let status = match effect.turn {
                Turn::Skip => Status::Skipped,
                Turn::Hold(_) => Status::Held,
                Turn::Ready | Turn::Blocked => Status::Waiting,
            };
            let row = EffectRow { status, request_hash: effect.request_hash };
            self.known.effects.insert(key, row);
            if !status.is_final() {
                self.known.open.entry(effect.lane).or_default().push(OpenEffect {
                    key,
                    lane: effect.lane,
                    event: effect.event,
                    version: effect.version,
                    blocked: effect.turn == Turn::Blocked,
                    status,
                    after: effect.after.clone(),
                });
            }
            self.plan.effects.insert(key, effect);
        }
        self.remember(input, ending, moved.clone(), owed.keys.clone());
        Decision { effects: owed.keys, moved, ..ended(ending, None) }
    }

    /// Where the entity of a stale event stands, as a step that leads nowhere: what is rendered later
    /// reads the same state as what is rendered now.
    fn stood(&self, event: &Event) -> Option<Moved> {
        let about = event.entity.as_ref()?;
        let state = &self.known.entities.get(&about.key)?.state;
        Some(Moved { from: Arc::clone(state), to: Arc::clone(state) })
    }

    fn remember(
        &mut self,
        input: &Input<'_>,
        ending: Ending,
        moved: Option<Moved>,
        effects: Vec<Key>,
    ) {
        let event = input.event;
        let row = InboxRow {
            fingerprint: event.fingerprint,
            ending,
            effects: effects.clone(),
            first: input.place,
            age_ms: 0,
        };
        self.known.inbox.insert(event.key, row);
        let new = InboxNew {
            fingerprint: event.fingerprint,
            entity: event.entity.as_ref().map(|about| (about.key, about.version)),
            place: input.place,
            ending,
            tenant: event.tenant.clone(),
            moved,
            effects,
        };
        self.plan.inbox.insert(event.key, new);
    }

    fn park(
        &mut self,
        index: usize,
        input: &Input<'_>,
        quarantine: bool,
        reason: ParkReason,
        detail: String,
        known_fingerprint: Option<Fingerprint>,
    ) -> Decision {
        // Whoever may still be run in its turn is missing until a person gives it up, and a copy with other content is
        // not the event of its version.
        let missing = [ParkReason::VersionGap, ParkReason::DeferredFull, ParkReason::Conflict];
        if !missing.contains(&reason) {
            self.pass(input.event);
        }
        let holds = self.hold(input.event);
        self.plan.parked.push(ParkedNew {
            input: index,
            quarantine,
            reason,
            detail,
            known_fingerprint,
            holds,
        });
        let ending = if quarantine { Ending::Quarantined } else { Ending::DeadLettered };
        ended(ending, Some(reason))
    }
}

const fn ended(ending: Ending, reason: Option<ParkReason>) -> Decision {
    Decision { ending, reason, effects: Vec::new(), age_ms: 0, is_first: false, moved: None }
}
