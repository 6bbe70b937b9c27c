//! The `tests:` of a file: which events are played, and what must become of them.

use oncely_core::connector::EffectRule;

use super::super::diagnostic::{Code, Fault};
use super::super::raw::{RawConnector, RawExpect, RawOutcome, RawTest};
use super::super::read::Field;
use super::super::source::Span;
use super::super::{Expect, ExpectedOutcome, TestCase, TestEvent};
use super::Compiler;

impl Compiler<'_> {
    pub(super) fn tests(&mut self, raw: &RawConnector, effects: &[EffectRule]) -> Vec<TestCase> {
        let ids = raw.effects.as_ref().and_then(Field::get).into_iter().flatten();
        let ids: Vec<&str> =
            ids.filter_map(|effect| effect.get()?.id.get().map(String::as_str)).collect();
        debug_assert!(effects.len() <= ids.len());
        let tests = raw.tests.as_ref().and_then(Field::get).into_iter().flatten();
        let valid: Vec<_> = tests.filter_map(Field::valid).collect();
        valid.into_iter().filter_map(|(span, test)| self.test(test, span, &ids)).collect()
    }

    fn test(&mut self, raw: &RawTest, at: Span, ids: &[&str]) -> Option<TestCase> {
        let name = self.need(&raw.name, "test.name", at);
        let events = self.need(&raw.events, "test.events", at).map(|(around, events)| {
            if events.is_empty() {
                let text = "a test plays at least one event";
                let help = "name files beside this one: `events: [samples/paid.json]`";
                self.add(Fault::new(Code::OutOfRange, around, text).help(help));
            }
            let valid = events.iter().filter_map(Field::valid);
            valid.map(|(span, file)| self.sample(span, file)).collect::<Vec<_>>()
        });
        let expect = self.need(&raw.expect, "test.expect", at);
        let count = events.as_ref().map_or(0, Vec::len);
        let expect = expect.map(|(span, expect)| self.expect(expect, span, count, ids));
        let line = self.source.line(at);
        Some(TestCase { name: name?.1.clone(), line, events: events?, expect: expect? })
    }

    fn sample(&mut self, span: Span, file: &str) -> TestEvent {
        let path = self.dir.join(file);
        if !path.is_file() {
            let text = format!("`{file}` is not there");
            let help = format!("events are files beside the connector file: {}", path.display());
            self.add(Fault::new(Code::Unreadable, span, text).help(help));
        }
        TestEvent { path, line: self.source.line(span) }
    }

    fn expect(&mut self, raw: &RawExpect, at: Span, events: usize, ids: &[&str]) -> Expect {
        let outcomes = raw.outcomes.as_ref().and_then(Field::valid);
        if let Some((span, outcomes)) = outcomes.filter(|(_, outcomes)| outcomes.len() != events) {
            let text = format!("{} outcomes for {events} events", outcomes.len());
            self.add(Fault::new(Code::OutOfRange, span, text).help("one outcome for each event"));
        }
        let outcomes = outcomes.map(|(_, outcomes)| {
            outcomes.iter().filter_map(Field::get).map(|outcome| (*outcome).into()).collect()
        });
        let state = raw.state.as_ref().and_then(Field::valid);
        if let Some((span, name)) = state {
            let states = self.states.clone().unwrap_or_default();
            if let Some(finding) = states.unknown_state(span, name) {
                self.add(finding);
            }
        }
        let mut effects = Vec::new();
        let counts = raw.effects.as_ref().and_then(Field::get);
        for (name, count) in counts.into_iter().flat_map(|counts| &counts.0) {
            let (Some((span, name)), Some(count)) = (name.valid(), count.get()) else { continue };
            if !ids.contains(&name.as_str()) {
                self.unknown_effect(span, name, ids);
            }
            effects.push((name.as_str().into(), *count));
        }
        let state: Option<Box<str>> = state.map(|(_, name)| name.as_str().into());
        if outcomes.is_none() && state.is_none() && effects.is_empty() {
            let text = "this test expects nothing";
            self.add(
                Fault::new(Code::MissingField, at, text)
                    .help("add `outcomes`, `state` or `effects`"),
            );
        }
        Expect { outcomes: outcomes.unwrap_or_default(), state, effects }
    }
}

impl From<RawOutcome> for ExpectedOutcome {
    fn from(raw: RawOutcome) -> Self {
        match raw {
            RawOutcome::Applied => Self::Applied,
            RawOutcome::Duplicate => Self::Duplicate,
            RawOutcome::Stale => Self::Stale,
            RawOutcome::Ignored => Self::Ignored,
            RawOutcome::Quarantined => Self::Quarantined,
            RawOutcome::DeadLettered => Self::DeadLettered,
            RawOutcome::Deferred => Self::Deferred,
        }
    }
}
