//! Order between the effects of one event, and results that later ones read.

use std::collections::BTreeSet;

use oncely_core::connector::{Compensation, EffectBody, EffectRule};
use oncely_core::expr::spelling::nearest;
use oncely_core::expr::{Path, Root, Step};

use super::super::diagnostic::{Code, Fault, Finding};
use super::super::raw::RawEffect;
use super::super::read::{Field, listed};
use super::super::source::Span;
use super::Compiler;

impl Compiler<'_> {
    /// The indexes that each effect waits for.
    pub(super) fn graph(&mut self, raw: &[(Span, &RawEffect)]) -> Vec<Vec<usize>> {
        let ids: Vec<&str> = raw
            .iter()
            .map(|(_, effect)| effect.id.get().map(String::as_str).unwrap_or_default())
            .collect();
        let mut graph = Vec::with_capacity(raw.len());
        for (_, effect) in raw {
            let mut after = Vec::new();
            let names = effect.after.as_ref().and_then(Field::get).into_iter().flatten();
            for (span, name) in names.filter_map(Field::valid) {
                match ids.iter().position(|id| id == name) {
                    Some(index) if !after.contains(&index) => after.push(index),
                    Some(_) => {}
                    None => self.unknown_effect(span, name, &ids),
                }
            }
            graph.push(after);
        }
        graph
    }

    /// An id that no effect of the file has.
    pub(super) fn unknown_effect(&mut self, span: Span, name: &str, ids: &[&str]) {
        let ids: BTreeSet<&str> = ids.iter().copied().filter(|id| !id.is_empty()).collect();
        let ids = Vec::from_iter(ids);
        let near = nearest(name, ids.iter().copied());
        let near = near.map(|near| format!(", did you mean `{near}`?"));
        let text = format!("unknown effect `{name}`{}", near.unwrap_or_default());
        let help = match ids.as_slice() {
            [] => "the file has no effects; each has an `id`".to_owned(),
            ids => format!("the effects of this file are {}", listed(ids)),
        };
        self.add(Fault::new(Code::UnknownEffect, span, text).help(help));
    }

    /// Nothing may wait for itself; what is undone is waited for as well.
    pub(super) fn cycles(
        &mut self,
        raw: &[(Span, &RawEffect)],
        graph: &[Vec<usize>],
        undone: &[Option<Compensation>],
    ) {
        let edges = graph.iter().zip(undone).map(|(after, undone)| {
            let undone = undone.iter().map(|undone| undone.effect);
            after.iter().copied().chain(undone).collect()
        });
        let edges: Vec<Vec<usize>> = edges.collect();
        for (index, (_, effect)) in raw.iter().enumerate() {
            if before(&edges, index).contains(&index) {
                let span = effect.after.as_ref().and_then(Field::span);
                let span = span.or_else(|| effect.compensate.as_ref().and_then(Field::span));
                let id = effect.id.get().map(String::as_str).unwrap_or_default();
                let text = format!("`{id}` waits for itself, directly or through others");
                let help =
                    format!("take out of `after` what does not have to be done before `{id}`");
                self.add(Fault::new(Code::Cycle, span, text).help(help));
            }
        }
    }

    /// Whether a field in there is none: what is missing may be what was mistyped.
    fn has_slip(&self, within: Span) -> bool {
        self.findings.has(Code::UnknownField, within)
    }

    /// Who reads a result must wait for it, and it must be recorded.
    pub(super) fn results(
        &mut self,
        raw: &[(Span, &RawEffect)],
        effects: &[EffectRule],
        graph: &[Vec<usize>],
    ) {
        let ids: Vec<&str> =
            raw.iter().filter_map(|(_, effect)| effect.id.get()).map(String::as_str).collect();
        for (index, (at, effect)) in raw.iter().enumerate() {
            let Some(id) = effect.id.get() else { continue };
            let Some(rule) = effects.iter().find(|rule| &*rule.id == id.as_str()) else { continue };
            let mut waits = before(graph, index);
            waits.extend(rule.compensates.as_ref().map(|undone| undone.effect));
            for path in results_read(rule) {
                let Some(name) = path.first_member() else { continue };
                let (span, file) = self.read_at(&path.to_string(), *at, effect);
                let place = |fault: Fault| match &file {
                    Some(file) => fault.note(format!("it is read in {file}")),
                    None => fault,
                };
                let finding = match raw
                    .iter()
                    .position(|(_, e)| e.id.get().is_some_and(|i| i == name))
                {
                    None => {
                        let text = format!("`{path}` reads a result of an unknown effect");
                        let known = Vec::from_iter(ids.iter().copied().collect::<BTreeSet<_>>());
                        let help = format!("the effects of this file are {}", listed(&known));
                        Some(place(Fault::new(Code::UnknownEffect, span, text)).help(help))
                    }
                    // What it waits for is not known: that is told already, and this may follow from it.
                    Some(_) if waits_for_unknown(effect, &ids) => None,
                    Some(read)
                        if !waits.contains(&read)
                            || of_another_event(rule, read, effects, name) =>
                    {
                        let text = if waits.contains(&read) {
                            format!(
                                "`{id}` reads `{path}`, and `after` waits for effects of its own event only"
                            )
                        } else {
                            format!("`{id}` reads `{path}` without waiting for `{name}`")
                        };
                        let made = effects.iter().find(|rule| &*rule.id == name);
                        let help = match effect.after.as_ref().and_then(Field::get) {
                            _ if made.is_some_and(|made| other_event(rule, made)) => format!(
                                "`{id}` is owed by a later event than `{name}`: if it takes `{name}` back, write \
                                 `compensate: {name}`, which waits for its outcome; else read what the event says"
                            ),
                            None => format!("add `after: [{name}]` to `{id}`"),
                            Some(_) => format!("add `{name}` to the `after` of `{id}`"),
                        };
                        Some(place(Fault::new(Code::ResultNotThere, span, text)).help(help))
                    }
                    // A field beside it is mistyped, and may be its `record`.
                    Some(read) if raw.get(read).is_some_and(|(at, _)| self.has_slip(*at)) => None,
                    Some(read) => {
                        let made = effects.iter().find(|rule| &*rule.id == name);
                        let read = raw.get(read).map(|(_, effect)| *effect);
                        unrecorded(&path, name, (read, made), span, place)
                    }
                };
                if let Some(finding) = finding {
                    self.add(finding);
                }
            }
        }
    }
}

/// Whether it says that it waits for, or takes back, what no effect is.
fn waits_for_unknown(effect: &RawEffect, ids: &[&str]) -> bool {
    let after = effect.after.as_ref().and_then(Field::get).into_iter().flatten();
    let mut after = after.filter_map(Field::get).map(String::as_str);
    let undone = match &effect.compensate {
        None => None,
        Some(Field::Invalid(_)) => return true,
        Some(field) => field.get().and_then(|undone| match &undone.effect {
            Some(effect) => effect.get().map(String::as_str),
            None => undone.id.as_deref(),
        }),
    };
    after.any(|name| !ids.contains(&name)) || undone.is_some_and(|name| !ids.contains(&name))
}

/// Whether it reads what an event of another state owes, and does not undo that.
fn of_another_event(reader: &EffectRule, read: usize, effects: &[EffectRule], name: &str) -> bool {
    let undoes = reader.compensates.as_ref().is_some_and(|undone| undone.effect == read);
    let made = effects.iter().find(|rule| &*rule.id == name);
    !undoes && made.is_some_and(|made| other_event(reader, made))
}

/// Whether the two are owed in different states, and so by different events: `after` orders effects of one.
fn other_event(reader: &EffectRule, read: &EffectRule) -> bool {
    let (mine, its) = (needed_states(reader), needed_states(read));
    !mine.is_empty() && !its.is_empty() && mine.is_disjoint(&its)
}

/// The states of which an event has to enter one that it owes this effect; none where that is not sure, since
/// another half of a choice may hold, or what is named may be denied.
pub(super) fn needed_states(rule: &EffectRule) -> BTreeSet<&str> {
    let choices = ["||", "!", "?", "false"];
    let sure =
        rule.when.iter().filter(|when| !choices.iter().any(|part| when.text().contains(part)));
    sure.flat_map(|when| when.states_entered()).map(|state| &**state).collect()
}

/// A result that is read and that its effect does not record.
fn unrecorded(
    path: &Path,
    name: &str,
    (read, made): (Option<&RawEffect>, Option<&EffectRule>),
    span: Option<Span>,
    place: impl FnOnce(Fault) -> Fault,
) -> Option<Finding> {
    let wanted = match path.steps.get(1) {
        Some(Step::Member(wanted)) => wanted,
        Some(Step::Index(_)) | None => return None,
    };
    let record = read?.record.as_ref().and_then(Field::get);
    let recorded: Vec<&str> = record
        .into_iter()
        .flat_map(|record| &record.0)
        .filter_map(|(name, _)| name.get().map(String::as_str))
        .collect();
    // Some types record of themselves what every answer has.
    let implied: Vec<&str> = match made.map(|rule| &rule.body) {
        Some(EffectBody::Call(call)) => call.record.iter().map(|(name, _)| &**name).collect(),
        Some(EffectBody::Publish(_)) => vec!["topic", "partition", "offset"],
        Some(EffectBody::Ledger(_)) | None => Vec::new(),
    };
    let recorded: Vec<&str> = recorded.into_iter().chain(implied).collect();
    if recorded.contains(&&**wanted) {
        return None;
    }
    let near = nearest(wanted, recorded.iter().copied());
    let near = near.map(|near| format!(", did you mean `{near}`?"));
    let text = format!("`{name}` records no `{wanted}`{}", near.unwrap_or_default());
    let fault = place(Fault::new(Code::ResultNotThere, span, text));
    let has_answer = made.is_none_or(|rule| matches!(rule.body, EffectBody::Call(_)));
    Some(fault.help(match (has_answer, recorded.as_slice()) {
        (true, _) => format!("add `record: {{ {wanted}: response.json.… }}` to `{name}`"),
        (false, []) => format!("`{name}` has no answer; read what it is made of from the event"),
        (false, recorded) => format!("`{name}` records {}", listed(recorded)),
    }))
}

/// Everything that effect `index` waits for, directly or not.
fn before(graph: &[Vec<usize>], index: usize) -> BTreeSet<usize> {
    let mut all = BTreeSet::new();
    let mut open: Vec<usize> = graph.get(index).cloned().unwrap_or_default();
    while let Some(next) = open.pop() {
        if all.insert(next) {
            open.extend(graph.get(next).into_iter().flatten());
        }
    }
    all
}

/// The paths below `effects` that an effect's request or line reads.
pub(super) fn results_read(rule: &EffectRule) -> Vec<Path> {
    let mut paths = BTreeSet::new();
    let mut of_results = |path: &Path| {
        if path.root == Root::Effects {
            paths.insert(path.clone());
        }
    };
    match &rule.body {
        EffectBody::Call(call) => {
            call.request.for_each_read(&mut of_results);
            call.lookup.iter().for_each(|lookup| lookup.request.for_each_read(&mut of_results));
        }
        EffectBody::Ledger(line) => line.for_each_read(&mut of_results),
        EffectBody::Publish(publish) => publish.request.for_each_read(&mut of_results),
    }
    paths.into_iter().collect()
}
