//! Lets deferred events go, in the order of their versions, when what they waited for has come, or their time.
//!
//! Reads: what waits on each entity. Gives: their decisions, made as if they had come now. An entity is left
//! alone as soon as its lowest deferred event has to stay: those behind it wait for that one, too.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::fold::{Fold, Meaning, PANICKED};
use super::known::DeferredRow;
use super::plan::{ParkReason, Released};
use super::waits::{Standing, standing};
use crate::connector::{AfterWait, OnGap, StateRules};
use crate::key::Key;

const NOT_IN_TIME: &str = "a version before it did not come within `on_gap.wait`; when it has come, \
                           release this record, or discard it";
const CHANGED: &str = "the connector file gives this record another identity now than when it began to wait; \
                       redrive it to decide it by the file as it is";
const REFUSED: &str = "the database refuses a value that follows from this record";

/// How the lowest deferred event of an entity goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goes {
    InTurn,
    Over(AfterWait),
}

impl Fold<'_> {
    /// Lets go what may go on this entity, as far as a version. `escalate`: also what has waited long enough.
    pub(super) fn release(&mut self, entity: Key, up_to: i64, escalate: bool) {
        while let Some((row, goes)) = self.next_to_go(entity, up_to, escalate) {
            self.let_go(entity, row, goes);
        }
    }

    /// Takes the lowest deferred event of the entity out, if it may go.
    fn next_to_go(
        &mut self,
        entity: Key,
        up_to: i64,
        escalate: bool,
    ) -> Option<(DeferredRow, Goes)> {
        let first = self.known.waits.get(&entity)?.deferred.first()?;
        let row = Some(first).filter(|row| row.version <= up_to)?.clone();
        let goes = match &self.connector.state {
            None => Goes::InTurn,
            Some(rules) => self.goes(rules, entity, &row, escalate)?,
        };
        let is_beyond = self.plan.released.len() >= self.known.releases.max;
        if row.input.is_none() || (row.number.is_some() && is_beyond) {
            self.plan.hurried.extend(row.number);
            return None;
        }
        let waits = self.known.waits.get_mut(&entity)?;
        waits.deferred.remove(0);
        Some((row, goes))
    }

    fn goes(
        &mut self,
        rules: &StateRules,
        entity: Key,
        row: &DeferredRow,
        escalate: bool,
    ) -> Option<Goes> {
        match (standing(rules, &self.known, (entity, row.version)), &rules.on_gap) {
            (Standing::Free, _) => Some(Goes::InTurn),
            (Standing::Behind(_), _) => None,
            (Standing::Gap, OnGap::Wait(wait)) if escalate && row.overdue => {
                Some(Goes::Over(wait.then))
            }
            (Standing::Gap, OnGap::Wait(_) | OnGap::Apply) => {
                if row.untimed {
                    self.plan.timed.extend(row.number);
                    self.told_time(entity);
                }
                None
            }
        }
    }

    /// The lowest deferred event of the entity has a time from now on.
    fn told_time(&mut self, entity: Key) {
        let waits = self.known.waits.get_mut(&entity);
        if let Some(first) = waits.and_then(|waits| waits.deferred.first_mut()) {
            first.untimed = false;
        }
    }

    fn let_go(&mut self, entity: Key, row: DeferredRow, goes: Goes) {
        let inputs = self.inputs;
        let Some((index, input)) = row.input.and_then(|at| Some((at, inputs.get(at)?))) else {
            return;
        };
        let is_refused = self.known.releases.refused && row.number.is_some();
        // It is on record as deferred, or among what this batch would write so.
        self.known.inbox.remove(&row.event);
        self.plan.deferred.remove(&row.event);
        let meaning = if row.changed {
            Meaning::parked(false, ParkReason::IdentityChanged, CHANGED.to_owned())
        } else if is_refused {
            Meaning::parked(false, ParkReason::RefusedByDatabase, REFUSED.to_owned())
        } else if goes == Goes::Over(AfterWait::Quarantine) {
            Meaning::parked(true, ParkReason::VersionGap, NOT_IN_TIME.to_owned())
        } else {
            catch_unwind(AssertUnwindSafe(|| self.decided_now(input))).unwrap_or_else(|_| {
                Meaning::parked(false, ParkReason::Panicked, PANICKED.to_owned())
            })
        };
        let decision = self.apply(index, input, meaning);
        // It was not decided when it was read.
        self.known.set_at.remove(&entity);
        let escalated = match goes {
            Goes::InTurn => None,
            Goes::Over(then) => Some(then),
        };
        match row.number {
            Some(number) => {
                let event = row.event;
                let released = Released { number, event, input: index, escalated, decision };
                self.plan.released.push(released);
            }
            None => {
                if let Some(before) = self.plan.decisions.get_mut(index) {
                    *before = decision;
                }
            }
        }
        debug_assert!(self.known.waits.contains_key(&entity), "whoever waits stands in a list");
    }
}
