//! Folds the events of a batch in order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::Input;
use super::known::{EffectRow, EntityRow, InboxRow, Known};
use super::owed::{Owed, Question, owed};
use super::plan::{
    Decision, Ending, EntityWrite, InboxNew, Moved, ParkReason, ParkedNew, PayloadNew, Plan,
};
use super::state::{Step, step};
use super::verdict::{Verdict, verdict};
use crate::connector::{Connector, OnConflict};
use crate::effect::order::{OpenEffect, Turn};
use crate::effect::status::Status;
use crate::event::Event;
use crate::fingerprint::Fingerprint;
use crate::key::Key;

/// Decides all events. `known` is what the database says of their keys; it comes back changed by
/// the batch and is of no further use.
pub fn decide(connector: &Connector, inputs: &[Input<'_>], known: Known) -> Plan {
    let mut fold = Fold { connector, known, plan: Plan::default() };
    for (index, input) in inputs.iter().enumerate() {
        // One event is decided on a view that does not change, so a panic leaves nothing half done.
        let meaning = catch_unwind(AssertUnwindSafe(|| fold.meaning(input)))
            .unwrap_or_else(|_| Meaning::parked(false, ParkReason::Panicked, PANICKED.to_owned()));
        let decision = fold.apply(index, input, meaning);
        fold.plan.decisions.push(decision);
    }
    fold.plan
}

const TOO_OLD: &str = "its record is older than `retention.dedupe`, so it may have been run and forgotten; it was \
                       not run";
const PANICKED: &str = "deciding this record panicked; please report it with the log of that time";

struct Fold<'a> {
    connector: &'a Connector,
    known: Known,
    plan: Plan,
}

/// What one event means, not yet folded in.
enum Meaning {
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
}

impl Meaning {
    const fn parked(quarantine: bool, reason: ParkReason, detail: String) -> Self {
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
        let event = input.event;
        if input.age_ms.is_some_and(|age_ms| age_ms > self.connector.retention.dedupe_ms) {
            return Meaning::parked(false, ParkReason::TooOld, TOO_OLD.to_owned());
        }
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
                    Step::Ignored => {
                        let owed = Owed::default();
                        return Meaning::Fresh { ending: Ending::Ignored, moved: None, owed };
                    }
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
        };
        match owed(&question) {
            Ok(owed) => Meaning::Fresh { ending, moved, owed },
            Err(refusal) => {
                let quarantine = refusal.reason == ParkReason::EffectConflict;
                Meaning::parked(quarantine, refusal.reason, refusal.detail)
            }
        }
    }

    fn apply(&mut self, index: usize, input: &Input<'_>, meaning: Meaning) -> Decision {
        match meaning {
            Meaning::Again { row } => {
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
                self.park(index, quarantine, ParkReason::Conflict, detail.to_owned(), Some(known))
            }
            Meaning::Parked { quarantine, reason, detail } => {
                let decision = self.park(index, quarantine, reason, detail, None);
                self.remember(input, decision.ending, None, Vec::new());
                decision
            }
            Meaning::Fresh { ending, moved, owed } => self.take(index, input, ending, moved, owed),
        }
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
        }
        if owed.needs_payload {
            let moved = moved.clone().or_else(|| self.stood(event));
            let payload = PayloadNew { input: index, event: event.key, moved };
            self.plan.payloads.push(payload);
        }
        for (key, line) in owed.ledger {
            self.known.ledger.insert(key, line.content);
            self.plan.ledger.insert(key, line);
        }
        for (key, effect) in owed.effects {
            let status = match effect.turn {
                Turn::Skip => Status::Skipped,
                Turn::Hold => Status::Held,
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
        input: usize,
        quarantine: bool,
        reason: ParkReason,
        detail: String,
        known_fingerprint: Option<Fingerprint>,
    ) -> Decision {
        self.plan.parked.push(ParkedNew { input, quarantine, reason, detail, known_fingerprint });
        let ending = if quarantine { Ending::Quarantined } else { Ending::DeadLettered };
        ended(ending, Some(reason))
    }
}

const fn ended(ending: Ending, reason: Option<ParkReason>) -> Decision {
    Decision { ending, reason, effects: Vec::new(), age_ms: 0, is_first: false, moved: None }
}
