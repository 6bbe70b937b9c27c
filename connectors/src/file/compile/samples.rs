//! The file against its sample events: what cannot work shows before it runs.

use std::collections::BTreeSet;
use std::fs;

use oncely_core::connector::{Connector, EffectBody, EffectRule, FingerprintRule};
use oncely_core::event::{self, Reject};
use oncely_core::expr::{EvalError, Expr, Path, Root, Scope};
use oncely_core::value::Value;

use super::super::TestCase;
use super::super::diagnostic::{Code, Fault};
use super::super::raw::{RawConnector, RawEffect};
use super::super::read::Field;
use super::super::source::Span;
use super::Compiler;
use crate::format;

impl Compiler<'_> {
    /// Warns of expressions that no sample has a value for, and of members that requests need and
    /// that no sample has. Samples that the connector does not want say nothing.
    pub(super) fn samples(
        &mut self,
        connector: &Connector,
        tests: &[TestCase],
        raw: &RawConnector,
    ) {
        let files: BTreeSet<_> =
            tests.iter().flat_map(|test| &test.events).map(|event| &event.path).collect();
        let samples: Vec<Value> = files
            .into_iter()
            .filter_map(|path| {
                format::decode(&connector.decode, Some(&fs::read(path).ok()?), &[]).ok()
            })
            .collect();
        if let Some(matches) = &connector.matches {
            self.try_out(matches, raw.matches.as_ref().and_then(Field::span), &samples, true);
        }
        let is_wanted = |event: &Value| {
            let matches = connector.matches.as_ref();
            matches.is_none_or(|matches| matches.is_true(&scope(event)).unwrap_or(false))
        };
        let samples: Vec<Value> = samples.into_iter().filter(is_wanted).collect();
        if samples.is_empty() {
            return;
        }
        self.try_identity(connector, raw, &samples);
        let effects = raw.effects.as_ref().and_then(Field::get).into_iter().flatten();
        let effects: Vec<(Span, &RawEffect)> = effects.filter_map(Field::valid).collect();
        for rule in &connector.effects {
            let named = |(_, raw): &&(Span, &RawEffect)| {
                raw.id.get().is_some_and(|id| id.as_str() == &*rule.id)
            };
            let Some((span, raw)) = effects.iter().find(named) else { continue };
            self.try_effect(rule, raw, &samples);
            self.members(rule, *span, raw, &samples);
        }
    }

    /// Warns where every sample would be set aside for the same part of its identity: nothing is there, or what
    /// is there is of the wrong kind.
    fn try_identity(&mut self, connector: &Connector, raw: &RawConnector, samples: &[Value]) {
        let identity = &connector.identity;
        let Some(of_identity) = raw.identity.get() else { return };
        let of_state = raw.state.as_ref().and_then(Field::get);
        let version = of_state.and_then(|state| state.version.get());
        let tried = samples.iter().map(|event| event::identify(connector, &scope(event)).map(drop));
        if let Some(reject) = rejected(tried) {
            let state = connector.state.as_ref();
            let (expr, span) = match reject.field {
                "identity.tenant" => {
                    (identity.tenant.as_ref(), of_identity.tenant.as_ref().and_then(Field::span))
                }
                "state.key" => {
                    (state.map(|state| &state.key), of_state.and_then(|state| state.key.span()))
                }
                "state.version.from" => (
                    state.map(|state| &state.version),
                    version.and_then(|version| version.from.span()),
                ),
                "identity.id" => (Some(&identity.id), of_identity.id.span()),
                // Each member of a fingerprint is tried below.
                _ => (None, None),
            };
            if expr.is_some_and(is_of_event) {
                self.fails(span, &reject.to_string());
            }
        }
        if let FingerprintRule::Fields(fields) = &identity.fingerprint {
            for field in fields {
                self.try_out(field, of_identity.fingerprint.span(), samples, false);
            }
        }
    }

    fn try_effect(&mut self, rule: &EffectRule, raw: &RawEffect, samples: &[Value]) {
        if let Some(when) = &rule.when {
            self.try_out(when, raw.when.as_ref().and_then(Field::span), samples, true);
        }
        let is_owed = |event: &&Value| {
            let when = rule.when.as_ref().filter(|when| is_of_event(when));
            when.is_none_or(|when| when.is_true(&scope(event)).unwrap_or(true))
        };
        for part in rule.key.chunks(1).filter(|part| part.iter().all(is_of_event)) {
            let owed = samples.iter().filter(is_owed);
            if let Some(reject) =
                rejected(owed.map(|event| event::key_parts(part, &scope(event)).map(drop)))
            {
                self.fails(raw.key.span(), &reject.to_string());
            }
        }
        if let (EffectBody::Ledger(ledger), Some(entry)) = (&rule.body, &raw.entry) {
            let Some(entry) = entry.get() else { return };
            self.try_out(&ledger.account, entry.account.span(), samples, false);
            self.try_out(&ledger.quantity, entry.quantity.span(), samples, false);
        }
    }

    /// Warns of an expression over the event alone that fails for every sample.
    fn try_out(&mut self, expr: &Expr, span: Option<Span>, samples: &[Value], yes_or_no: bool) {
        if expr.is_constant() || !is_of_event(expr) {
            return;
        }
        let tried = |event: &Value| match expr.is_true(&scope(event)) {
            Ok(_) => Ok(()),
            Err(EvalError::NotBool { .. }) if !yes_or_no => Ok(()),
            Err(error) => Err(error),
        };
        let mut failures = samples.iter().map(tried);
        let Some(Err(error)) = failures.next() else { return };
        if failures.all(|tried| tried.is_err()) {
            self.fails(span, &error.to_string());
        }
    }

    fn fails(&mut self, span: Option<Span>, why: &str) {
        let text = format!("this fails for every sample event: {why}");
        let help = "compare it with the events of `tests:`: either the name is mistyped, or the samples \
                    are of another kind";
        self.add(Fault::new(Code::FailsOnSamples, span, text).help(help));
    }

    /// Warns of members that a request reads and no sample has, where they are read.
    fn members(&mut self, rule: &EffectRule, effect: Span, raw: &RawEffect, samples: &[Value]) {
        let Some(request) = rule.body.request() else { return };
        let mut reads = BTreeSet::new();
        let mut of_event = |path: &Path| {
            if path.root == Root::Event {
                reads.insert(path.clone());
            }
        };
        request.for_each_read(&mut of_event);
        if let EffectBody::Call(call) = &rule.body {
            call.lookup.iter().for_each(|lookup| lookup.request.for_each_read(&mut of_event));
        }
        for path in reads.into_iter().filter(|path| !samples.iter().any(|event| has(event, path))) {
            let text = format!("`{}` reads `{path}`, which no sample event has", rule.id);
            let (place, file) = self.read_at(&path.to_string(), effect, raw);
            let mut fault = Fault::new(Code::NotInSamples, place, text);
            if let Some(file) = file {
                fault = fault.note(format!("it is read in {file}"));
            }
            let help = "correct the name, or add an event that has it to `tests:`; where it may be missing, \
                        give it a default: `{{ event.note | default('') }}`";
            self.add(fault.help(help));
        }
    }

    /// Where an effect reads a path, or where it names the file that does, with that name.
    pub(super) fn read_at<'r>(
        &self,
        path: &str,
        within: Span,
        raw: &'r RawEffect,
    ) -> (Option<Span>, Option<&'r str>) {
        if let Some(place) = self.place_of(path, within) {
            return (Some(place), None);
        }
        match raw.template.as_ref().and_then(Field::valid) {
            Some((span, file)) => (Some(span), Some(file)),
            None => (raw.id.span(), None),
        }
    }

    /// Where a path stands in the file, inside `within` and in no comment.
    fn place_of(&self, path: &str, within: Span) -> Option<Span> {
        let text = self.source.text.get(within.range())?;
        let in_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
        let goes_on = |rest: &str| rest.starts_with(|c| in_path(c) || c == '[');
        let is_one = |at: &usize| {
            let before = text.get(..*at).unwrap_or_default();
            let line = before.rsplit('\n').next().unwrap_or_default();
            let after = text.get(at.saturating_add(path.len())..);
            let is_comment = line.trim_start().starts_with('#') || line.contains(" # ");
            !before.ends_with(in_path) && !is_comment && after.is_some_and(|rest| !goes_on(rest))
        };
        let mut found = text.match_indices(path).map(|(at, _)| at);
        let at = found.find(is_one)?;
        let start = within.start.saturating_add(at);
        Some(Span::new(start, start.saturating_add(path.len())))
    }
}

/// Whether the event alone says what an expression comes to.
fn is_of_event(expr: &Expr) -> bool {
    expr.states_entered().is_empty() && expr.reads().iter().all(|path| path.root == Root::Event)
}

/// Why the first one is rejected, where all are, and for the same field.
fn rejected(mut tried: impl Iterator<Item = Result<(), Reject>>) -> Option<Reject> {
    let first = tried.next()?.err()?;
    tried.all(|one| one.is_err_and(|reject| reject.field == first.field)).then_some(first)
}

fn scope(event: &Value) -> Scope<'_> {
    Scope { event: Some(event), ..Scope::default() }
}

fn has(event: &Value, path: &Path) -> bool {
    scope(event).find(path).is_some()
}
