//! Order between the effects of one event, and results that later ones read.

use std::collections::BTreeSet;

use oncely_core::connector::{Compensation, EffectBody, EffectRule};
use oncely_core::expr::spelling::nearest;
use oncely_core::expr::{Path, Root, Step};

use super::super::diagnostic::{Code, Finding};
use super::super::raw::RawEffect;
use super::super::read::Field;
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
                    None => {
                        let near = nearest(name, ids.iter().copied());
                        let near = near.map(|near| format!(", did you mean `{near}`?"));
                        let text = format!("unknown effect `{name}`{}", near.unwrap_or_default());
                        self.add(Finding::new(Code::UnknownEffect, span, text));
                    }
                }
            }
            graph.push(after);
        }
        graph
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
                self.add(Finding::new(Code::Cycle, span, text));
            }
        }
    }

    /// Who reads a result must wait for it, and it must be recorded.
    pub(super) fn results(
        &mut self,
        raw: &[(Span, &RawEffect)],
        effects: &[EffectRule],
        graph: &[Vec<usize>],
    ) {
        for (index, (at, effect)) in raw.iter().enumerate() {
            let Some(id) = effect.id.get() else { continue };
            let Some(rule) = effects.iter().find(|rule| &*rule.id == id.as_str()) else { continue };
            let mut waits = before(graph, index);
            waits.extend(rule.compensates.as_ref().map(|undone| undone.effect));
            for path in results_read(rule) {
                let Some(name) = path.first_member() else { continue };
                let finding = match raw
                    .iter()
                    .position(|(_, e)| e.id.get().is_some_and(|i| i == name))
                {
                    None => {
                        let text = format!("`{path}` reads a result of an unknown effect");
                        Some(Finding::new(
                            Code::UnknownEffect,
                            effect.id.span().unwrap_or(*at),
                            text,
                        ))
                    }
                    Some(read) if !waits.contains(&read) => {
                        let text = format!("`{id}` reads `{path}` without waiting for `{name}`");
                        let finding = Finding::new(Code::ResultNotThere, effect.id.span(), text);
                        Some(finding.help(format!("add `after: [{name}]`")))
                    }
                    Some(read) => {
                        let made = effects.iter().find(|rule| &*rule.id == name);
                        unrecorded(&path, name, (raw.get(read).map(|(_, e)| *e), made), effect)
                    }
                };
                if let Some(finding) = finding {
                    self.add(finding);
                }
            }
        }
    }
}

/// A result that is read and that its effect does not record.
fn unrecorded(
    path: &Path,
    name: &str,
    (read, made): (Option<&RawEffect>, Option<&EffectRule>),
    by: &RawEffect,
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
    let finding = Finding::new(Code::ResultNotThere, by.id.span(), text);
    Some(finding.help(format!("add `record: {{ {wanted}: response.json.… }}` to `{name}`")))
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
