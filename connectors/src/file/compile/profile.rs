//! Profiles: those of the program, and those that the file declares.

use std::collections::BTreeMap;
use std::sync::Arc;

use oncely_core::connector::{OnUnknown, StatusClass, StatusRange, StatusRule};
use oncely_core::expr::spelling::nearest;

use super::super::diagnostic::{Code, Fault};
use super::super::profiles::{self, Known};
use super::super::raw::{
    RawBodyKind, RawEffect, RawMeaning, RawProfile, RawRequest, RawStatusRule,
};
use super::super::read::{Entries, Field, listed};
use super::super::source::Span;
use super::super::words::Statuses;
use super::call::header_name;
use super::{Compiler, text};

impl Compiler<'_> {
    /// Profiles by name; `others` are those that they may extend.
    pub(in super::super) fn profiles(
        &mut self,
        raw: &Entries<RawProfile>,
        others: &BTreeMap<String, Known>,
    ) -> BTreeMap<String, Known> {
        let mut made = BTreeMap::new();
        for (name, raw) in &raw.0 {
            let Some((span, name)) = name.valid() else { continue };
            let Some(name) = self.name(span, name, "a profile", true) else { continue };
            if others.contains_key(name) {
                let finding = Fault::new(
                    Code::DuplicateName,
                    span,
                    format!("a profile called `{name}` comes with the program"),
                );
                let help = format!("give it another name, and `extends: {name}` if it adds to it");
                self.add(finding.help(help));
                continue;
            }
            if let Some(raw) = raw.get() {
                let known = self.profile(name, raw, others);
                made.insert(name.to_owned(), known);
            }
        }
        made
    }

    fn profile(&mut self, name: &str, raw: &RawProfile, others: &BTreeMap<String, Known>) -> Known {
        let base = raw.extends.as_ref().and_then(Field::valid);
        let base = base.and_then(|(span, base)| self.known(span, base, others));
        let mut known = base.unwrap_or_else(|| Known::nothing(name));
        known.profile.name = name.into();
        if let Some((span, declared)) = raw.idempotency.as_ref().and_then(Field::valid) {
            self.key_of(declared, span, &mut known.profile);
        }
        if let Some(within) = raw.applies_within.as_ref().and_then(Field::get) {
            known.profile.applies_within_ms = Some(within.0);
        }
        if let Some(body) = raw.body.as_ref().and_then(Field::get) {
            known.body = Some(*body);
        }
        for (name, value) in
            raw.headers.as_ref().and_then(Field::get).into_iter().flat_map(|h| &h.0)
        {
            let (Some((span, name)), Some(value)) = (name.valid(), value.get()) else { continue };
            match header_name(name) {
                Some(name) => {
                    known.headers.retain(|(known, _)| **known != *name);
                    known.headers.push((name.into(), value.clone()));
                }
                None => self.no_header(span),
            }
        }
        if let Some((span, lookup)) = raw.lookup.as_ref().and_then(Field::valid) {
            // As it is used, it is compiled with an effect's request; a mistake shows without one.
            self.need(&lookup.url, "lookup.url", span);
            self.need(&lookup.done, "lookup.done", span);
            self.condition(&lookup.done, text::LOOKUP);
            if let Some(condition) = &lookup.not_found {
                self.condition(condition, text::LOOKUP);
            }
            if let Some(answer) = &lookup.answer {
                self.expr(answer, text::LOOKUP);
            }
            known.lookup = Some(Arc::new(lookup.clone()));
        }
        let statuses = raw.statuses.as_ref().and_then(Field::get).into_iter().flatten();
        let statuses = statuses.filter_map(Field::valid);
        let mut rules: Vec<StatusRule> =
            statuses.filter_map(|(span, raw)| self.status_rule(raw, span)).collect();
        rules.append(&mut known.profile.statuses);
        known.profile.statuses = rules;
        known
    }

    fn status_rule(&mut self, raw: &RawStatusRule, at: Span) -> Option<StatusRule> {
        let status = self.need(&raw.status, "status.status", at);
        let means = self.need(&raw.means, "status.means", at);
        let when = raw.when.as_ref().map(|when| self.condition(when, text::PROFILE));
        let (_, Statuses { first, last }) = status?;
        let class = match means?.1 {
            RawMeaning::Done => StatusClass::Done,
            RawMeaning::NotApplied => StatusClass::NotApplied,
            RawMeaning::Throttled => StatusClass::Throttled,
            RawMeaning::Rejected => StatusClass::Rejected,
            RawMeaning::Halted => StatusClass::Halted,
            RawMeaning::Unknown => StatusClass::Unknown,
        };
        let when = match when {
            None => None,
            Some(when) => Some(Arc::new(when?)),
        };
        Some(StatusRule { range: StatusRange { first: *first, last: *last }, when, class })
    }

    /// The profile that an effect names, or the one that its type implies.
    pub(super) fn profile_of(&mut self, raw: &RawEffect, implied: &str) -> Known {
        let named = raw.profile.as_ref().and_then(Field::valid);
        let found = match named {
            Some((span, name)) => match self.profiles.get(name) {
                Some(known) => Some(known.clone()),
                None => self.known(span, name, profiles::built_in()),
            },
            None => profiles::built_in().get(implied).cloned(),
        };
        found.unwrap_or_else(|| Known::nothing(implied))
    }

    fn known(&mut self, span: Span, name: &str, others: &BTreeMap<String, Known>) -> Option<Known> {
        if let Some(known) = others.get(name) {
            return Some(known.clone());
        }
        let names: Vec<&str> =
            self.profiles.keys().chain(others.keys()).map(String::as_str).collect();
        let near = nearest(name, names.iter().copied());
        let near = near.map(|near| format!(", did you mean `{near}`?"));
        let text = format!("unknown profile `{name}`{}", near.unwrap_or_default());
        let help = format!("known are {}; others are declared under `profiles:`", listed(&names));
        self.add(Fault::new(Code::UnknownProfile, span, text).help(help));
        None
    }

    /// A body of the other kind is not read by the provider.
    pub(super) fn body_fits(&mut self, known: &Known, request: &RawRequest) {
        let (wrong, right) = match known.body {
            None => return,
            Some(RawBodyKind::Form) => (request.json.as_ref().and_then(Field::span), "form"),
            Some(RawBodyKind::Json) => (request.form.as_ref().and_then(Field::span), "json"),
        };
        let Some(span) = wrong else { return };
        let name = &known.profile.name;
        let text = format!("by profile `{name}` a request has a `{right}` body");
        self.add(Fault::new(Code::Request, span, text).help(format!("write it as `{right}:`")));
    }

    /// A status that is repeated without asking, although it may come after the effect.
    pub(super) fn repeats_unasked(
        &mut self,
        known: &Known,
        on_unknown: OnUnknown,
        raw: &RawEffect,
    ) {
        match on_unknown {
            // The same key makes a repeat safe; and who assumes it done has declared the risk.
            OnUnknown::RetrySameKey | OnUnknown::AssumeDone => return,
            OnUnknown::Hold | OnUnknown::Reconcile => {}
        }
        let repeats = |rule: &&StatusRule| {
            let again = matches!(rule.class, StatusClass::NotApplied | StatusClass::Throttled);
            // 503 is what a full server says before it begins.
            let after_the_effect = rule.range.last >= 500 && rule.range.first <= 599;
            let only_full = rule.range.first == 503 && rule.range.last == 503;
            again && rule.when.is_none() && after_the_effect && !only_full
        };
        let Some(rule) = known.profile.statuses.iter().find(repeats) else { return };
        let StatusRange { first, last } = rule.range;
        let range = if first == last { first.to_string() } else { format!("{first}..{last}") };
        let name = &known.profile.name;
        let span = raw.on_unknown.as_ref().and_then(Field::span);
        let span = span.or_else(|| raw.profile.as_ref().and_then(Field::span));
        let text =
            format!("profile `{name}` repeats after {range}, which can come after the effect");
        let finding = Fault::new(Code::RetryPlan, span, text)
            .note("without a key that the provider knows, the repeat would act a second time")
            .help(
                "let `means: unknown` stand for it, name the one body that is sure with `when`, or \
                 use `on_unknown: retry_same_key` with a key",
            );
        self.add(finding);
    }
}
