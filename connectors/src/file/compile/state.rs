//! States: the table of transitions, and which states exist and can be reached.

use std::collections::BTreeSet;

use oncely_core::connector::{
    AfterWait, GapWait, OnGap, OnInvalid, OnParked, StateRules, Transition,
};
use oncely_core::expr::spelling::nearest;

use super::super::diagnostic::{Code, Fault, Finding};
use super::super::raw::{
    RawAfterWait, RawGap, RawGapWait, RawInvalid, RawParked, RawState, RawTransition,
};
use super::super::read::{Field, listed};
use super::super::source::Span;
use super::{Compiler, text};

/// Events that may wait at a time unless the file says otherwise, and the most that it may say: each sweep
/// looks at all of them.
const DEFERRED_MAX: u32 = 10_000;
const DEFERRED_MAX_MAX: u32 = 1_000_000;

/// The names of the states of a connector.
#[derive(Clone, Debug, Default)]
pub(super) struct States {
    initial: String,
    /// States that some transition leads to.
    entered: BTreeSet<String>,
}

impl States {
    pub(super) fn of(raw: &RawState) -> Self {
        let transitions = raw.transitions.get().into_iter().flatten().filter_map(Field::get);
        let entered = transitions.filter_map(|transition| transition.to.get().cloned());
        Self { initial: raw.initial.get().cloned().unwrap_or_default(), entered: entered.collect() }
    }

    fn knows(&self, name: &str) -> bool {
        self.initial == name || self.entered.contains(name)
    }

    fn near(&self, name: &str) -> Option<&str> {
        let all = std::iter::once(&self.initial).chain(&self.entered);
        nearest(name, all.map(String::as_str))
    }

    /// What is wrong with the name of a state, if no event can ever bring an entity there.
    pub(super) fn never_entered(&self, span: Span, name: &str) -> Option<Finding> {
        if self.entered.contains(name) {
            return None;
        }
        if self.initial == name {
            let text = format!("no transition leads to `{name}`, so nothing ever enters it");
            let help =
                format!("every entity begins in `{name}`; name a state that a transition leads to");
            return Some(Fault::new(Code::UnknownState, span, text).help(help));
        }
        Some(self.unknown(span, name))
    }

    pub(super) fn unknown_state(&self, span: Span, name: &str) -> Option<Finding> {
        (!self.knows(name)).then(|| self.unknown(span, name))
    }

    fn unknown(&self, span: Span, name: &str) -> Finding {
        let near = self.near(name).map(|near| format!(", did you mean `{near}`?"));
        let text = format!("unknown state `{name}`{}", near.unwrap_or_default());
        let all = std::iter::once(&self.initial).chain(&self.entered);
        let known: Vec<&str> = all.map(String::as_str).filter(|name| !name.is_empty()).collect();
        let help = "a state is the initial one, or one that a transition leads to";
        Fault::new(Code::UnknownState, span, text).help(match known.as_slice() {
            [] => help.to_owned(),
            known => format!("{help}: {}", listed(known)),
        })
    }
}

impl Compiler<'_> {
    pub(super) fn state(&mut self, raw: &RawState, at: Span) -> Option<StateRules> {
        let entity = self.need(&raw.entity, "state.entity", at);
        let entity = entity.and_then(|(span, name)| self.name(span, name, "an entity", true));
        let key = self.need(&raw.key, "state.key", at).is_some();
        let key = if key { self.expr(&raw.key, text::TENANT) } else { None };
        if let (Some(key), Some(span)) = (&key, raw.key.span()) {
            self.identifies(&[key], span, "an entity's key");
        }
        let mut on_gap = OnGap::Apply;
        let version = self.need(&raw.version, "state.version", at).and_then(|(span, version)| {
            if let Some((span, RawGap::Wait(wait))) = version.on_gap.as_ref().and_then(Field::valid)
            {
                on_gap = self.gap(wait, span);
            }
            self.need(&version.from, "state.version.from", span)?;
            self.expr(&version.from, text::TENANT)
        });
        let initial = self.need(&raw.initial, "state.initial", at);
        let initial = initial.and_then(|(span, name)| self.name(span, name, "a state", true));
        let transitions = self.need(&raw.transitions, "state.transitions", at);
        let transitions = transitions.map(|(_, raw)| {
            let valid = raw.iter().filter_map(Field::valid);
            let all: Vec<_> = valid.map(|(span, raw)| self.transition(raw, span)).collect();
            self.reachable(raw);
            self.ambiguous(raw);
            all
        });
        let on_invalid = match raw.on_invalid.as_ref().and_then(Field::get) {
            None | Some(RawInvalid::Quarantine) => OnInvalid::Quarantine,
            Some(RawInvalid::DeadLetter) => OnInvalid::DeadLetter,
            Some(RawInvalid::Ignore) => OnInvalid::Ignore,
        };
        let on_parked = match raw.on_parked.as_ref().and_then(Field::get) {
            None | Some(RawParked::Apply) => OnParked::Apply,
            Some(RawParked::Wait) => OnParked::Wait,
        };
        let defers = matches!(on_gap, OnGap::Wait(_)) || on_parked == OnParked::Wait;
        let deferred_max = self.deferred_max(raw, defers);
        Some(StateRules {
            entity: entity?.into(),
            key: key?,
            version: version?,
            initial: initial?.into(),
            transitions: transitions?.into_iter().collect::<Option<Vec<_>>>()?,
            on_invalid,
            on_gap,
            on_parked,
            deferred_max,
        })
    }

    fn gap(&mut self, raw: &RawGapWait, at: Span) -> OnGap {
        let wait = raw.wait.valid();
        if let Some((span, _)) = wait.filter(|(_, wait)| wait.0 == 0) {
            let text = "an event that waits for no time does not wait";
            let help =
                "write how long the missing ones may take: `wait: 30s`; or use `on_gap: apply`";
            self.add(Fault::new(Code::OutOfRange, span, text).help(help));
        }
        let then = match raw.then.as_ref().and_then(Field::get) {
            None | Some(RawAfterWait::Apply) => AfterWait::Apply,
            Some(RawAfterWait::Quarantine) => AfterWait::Quarantine,
        };
        let first = raw.first.as_ref().and_then(Field::valid);
        let first = first.and_then(|(span, first)| match i64::try_from(*first) {
            Ok(first) => Some(first),
            Err(_) => {
                let text = "this is larger than any version";
                let help = "write the version that an entity begins with: `first: 1`";
                self.add(Fault::new(Code::OutOfRange, span, text).help(help));
                None
            }
        });
        if self.has_match {
            let text = "versions of records that `match` leaves out are waited for and never come";
            let note = "an event waits for every version below its own, and then its time is over";
            let help = "read them as well, with `on_invalid: ignore`, or use `on_gap: apply`";
            let finding = Fault::new(Code::GapNeverFilled, at, text);
            self.add(finding.note(note).help(help));
        }
        OnGap::Wait(GapWait { wait_ms: wait.map_or(0, |(_, wait)| wait.0), then, first })
    }

    /// How many events may wait at a time.
    fn deferred_max(&mut self, raw: &RawState, defers: bool) -> u32 {
        let Some((span, max)) = raw.max_deferred.as_ref().and_then(Field::valid) else {
            return DEFERRED_MAX;
        };
        if !(1..=DEFERRED_MAX_MAX).contains(max) {
            let text = format!("between 1 and {DEFERRED_MAX_MAX} events may wait, not {max}");
            let help = "leave it out for 10000";
            self.add(Fault::new(Code::OutOfRange, span, text).help(help));
        } else if !defers {
            let text = "no event of this connector waits, so their number needs no bound";
            let help = "it belongs to `version.on_gap: { wait: … }` and `on_parked: wait`";
            self.add(Fault::new(Code::Unused, span, text).help(help));
        }
        *max
    }

    fn transition(&mut self, raw: &RawTransition, at: Span) -> Option<Transition> {
        let to = self.need(&raw.to, "transition.to", at);
        let to = to.and_then(|(span, name)| self.name(span, name, "a state", true));
        let from = self.need(&raw.from, "transition.from", at).map(|(around, from)| {
            let placed = from.placed(around);
            if placed.is_empty() {
                let text = "at least one state is needed";
                let help = "where the entity may be before: `from: [open, past_due]`";
                self.add(Fault::new(Code::OutOfRange, around, text).help(help));
            }
            for (span, name) in &placed {
                let states = self.states.as_ref();
                if let Some(finding) = states.and_then(|states| states.unknown_state(*span, name)) {
                    self.add(finding);
                }
            }
            placed.into_iter().map(|(_, name)| name.into()).collect()
        });
        let condition = raw.condition.as_ref().map(|text| self.condition(text, text::TENANT));
        let condition = match condition {
            None => None,
            Some(condition) => Some(condition?),
        };
        Some(Transition { from: from?, to: to?.into(), condition })
    }

    /// Every state that a transition leads to must be reachable from the initial one.
    fn reachable(&mut self, raw: &[Field<RawTransition>]) {
        let Some(states) = self.states.clone() else { return };
        let mut reached = BTreeSet::from([states.initial.clone()]);
        let leads: Vec<(Vec<&str>, &str, Span)> = raw
            .iter()
            .filter_map(|transition| {
                let (_, transition) = transition.valid()?;
                let (around, from) = transition.from.valid()?;
                let (span, to) = transition.to.valid()?;
                let from = from.placed(around).into_iter().map(|(_, name)| name).collect();
                Some((from, to.as_str(), span))
            })
            .collect();
        loop {
            let open = leads.iter().find(|(from, to, _)| {
                !reached.contains(*to) && from.iter().any(|name| reached.contains(*name))
            });
            let Some((_, to, _)) = open else { break };
            reached.insert((*to).to_owned());
        }
        let mut told = BTreeSet::new();
        for (_, to, span) in leads {
            if !reached.contains(to) && told.insert(to) {
                let text = format!("state `{to}` can never be reached from `{}`", states.initial);
                let help =
                    format!("add a transition from a state that is reached, or remove `{to}`");
                self.add(Fault::new(Code::UnreachableState, span, text).help(help));
            }
        }
    }

    /// The first transition whose condition holds is taken: behind one that always is, or behind the same
    /// condition, none ever would be.
    fn ambiguous(&mut self, raw: &[Field<RawTransition>]) {
        let mut free = BTreeSet::new();
        let mut asked = BTreeSet::new();
        for transition in raw.iter().filter_map(Field::get) {
            let Some((around, from)) = transition.from.valid() else { continue };
            let condition =
                transition.condition.as_ref().and_then(Field::get).map(|text| text.trim());
            for (span, name) in from.placed(around) {
                if condition.is_some_and(|condition| !asked.insert((name, condition))) {
                    let text = format!("an earlier transition from `{name}` has the same `if`");
                    let help = "the first one is taken: give this one another `if`, or remove it";
                    self.add(Fault::new(Code::AmbiguousTransition, span, text).help(help));
                }
                if free.contains(name) {
                    let text = format!(
                        "an earlier transition from `{name}` has no `if` and is always taken"
                    );
                    let help = "give the earlier one an `if`, or remove this one";
                    self.add(Fault::new(Code::AmbiguousTransition, span, text).help(help));
                }
            }
            if transition.condition.is_none() {
                free.extend(from.placed(around).into_iter().map(|(_, name)| name));
            }
        }
    }
}
