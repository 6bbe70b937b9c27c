//! What effects undo: an effect of an earlier event of the same entity, whose outcome must be known first.

use oncely_core::connector::{Compensation, EffectRule};

use super::super::diagnostic::{Code, Fault};
use super::super::raw::{RawCompensate, RawEffect, RawEffectType, RawStale};
use super::super::read::Field;
use super::super::source::Span;
use super::graph::needed_states;
use super::{Compiler, text};

impl Compiler<'_> {
    /// What each effect undoes; `after` are those that it waits for anyway.
    pub(super) fn compensations(
        &mut self,
        raw: &[(Span, &RawEffect)],
        after: &[Vec<usize>],
    ) -> Vec<Option<Compensation>> {
        let mut all = Vec::with_capacity(raw.len());
        for (index, (_, effect)) in raw.iter().enumerate() {
            let undone = effect.compensate.as_ref().and_then(Field::valid);
            let after = after.get(index).map_or(&[][..], Vec::as_slice);
            all.push(
                undone.and_then(|(span, undone)| {
                    self.compensation(raw, (index, after), span, undone)
                }),
            );
        }
        all
    }

    fn compensation(
        &mut self,
        raw: &[(Span, &RawEffect)],
        (index, after): (usize, &[usize]),
        span: Span,
        compensate: &RawCompensate,
    ) -> Option<Compensation> {
        let (at, id) = match (&compensate.effect, &compensate.id) {
            (Some(effect), _) => effect.valid().map(|(span, id)| (span, id.as_str()))?,
            (None, id) => (span, id.as_deref()?),
        };
        let ids =
            raw.iter().map(|(_, effect)| effect.id.get().map(String::as_str).unwrap_or_default());
        let ids: Vec<&str> = ids.collect();
        let Some(undone) = ids.iter().position(|known| *known == id) else {
            self.unknown_effect(at, id, &ids);
            return None;
        };
        if let Some((what, help)) = self.wrong_compensation(raw, (index, after), undone, id) {
            self.add(Fault::new(Code::Compensation, at, what).help(help));
            return None;
        }
        let key = match &compensate.key {
            Some(key) => key.valid(),
            None => raw.get(undone).and_then(|(_, effect)| effect.key.valid()),
        };
        let (around, key) = key?;
        let parts = key.placed(around);
        let key: Vec<_> =
            parts.iter().map(|(span, part)| self.expr_at(*span, part, text::DECIDED)).collect();
        let key: Vec<_> = key.into_iter().collect::<Option<_>>()?;
        if compensate.key.is_some() {
            self.may_be_key(&key.iter().collect::<Vec<_>>(), around, "the key of what is undone");
        }
        Some(Compensation { effect: undone, key })
    }

    /// What an event owes, none of it may undo.
    pub(super) fn owed_together(&mut self, raw: &[(Span, &RawEffect)], effects: &[EffectRule]) {
        let rule = |effect: &RawEffect| {
            let id = effect.id.get()?;
            effects.iter().find(|rule| *rule.id == **id)
        };
        for (_, effect) in raw {
            let Some((span, _)) = effect.compensate.as_ref().and_then(Field::valid) else {
                continue;
            };
            let undoes = rule(effect).and_then(|rule| Some((rule, rule.compensates.as_ref()?)));
            let Some((undoing, undone)) = undoes else { continue };
            let undone = raw.get(undone.effect).and_then(|(_, effect)| rule(effect));
            let Some(undone) = undone.filter(|undone| one_event(undoing, undone)) else { continue };
            let (id, undone) = (&undoing.id, &undone.id);
            let text = format!(
                "an event that owes `{undone}` owes `{id}` as well, which undoes it at once"
            );
            let help = format!(
                "give `{id}` a `when` of a later state, such as `when: entered(\"cancelled\")`"
            );
            self.add(Fault::new(Code::Compensation, span, text).help(help));
        }
    }

    /// Why this cannot be undone by that, and the remedy.
    fn wrong_compensation(
        &self,
        raw: &[(Span, &RawEffect)],
        (index, after): (usize, &[usize]),
        undone: usize,
        id: &str,
    ) -> Option<(String, String)> {
        let because = |what: String, help: &str| Some((what, help.to_owned()));
        if undone == index {
            return because(format!("`{id}` undoes itself"), "name the effect that it takes back");
        }
        if self.states.is_none() {
            let what =
                format!("without a `state` block nobody knows whether `{id}` is still to come");
            let help = "add `state`: versions say which event of an entity came first";
            return because(what, help);
        }
        if after.contains(&undone) {
            let what = format!("it comes after `{id}` and undoes it");
            return because(what, "remove it from `after`: what is undone is waited for");
        }
        let (_, effect) = raw.get(undone)?;
        let runs_stale = effect.on_stale.as_ref().and_then(Field::get);
        if matches!(runs_stale, Some(RawStale::Run)) {
            let what = format!("`{id}` runs for stale events, so it may come after it was undone");
            return because(what, "remove `on_stale: run` there");
        }
        let waits = effect.after.is_some() || effect.compensate.is_some();
        if effect.kind.get() == Some(&RawEffectType::Ledger) && !waits {
            let what =
                format!("`{id}` is a line that is written with its event: it is always done");
            let help = "write a line of the opposite quantity, without `compensate`";
            return because(what, help);
        }
        None
    }
}

/// Whether one event surely owes both: the first is owed by every event, or for the same reason.
fn one_event(undoing: &EffectRule, undone: &EffectRule) -> bool {
    let Some(when) = &undoing.when else { return true };
    let Some(other) = &undone.when else { return false };
    when.text() == other.text() || !needed_states(undoing).is_disjoint(&needed_states(undone))
}
