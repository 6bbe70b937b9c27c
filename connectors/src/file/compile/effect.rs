//! Effects: what is owed, under which key, and by which kind of action.

use oncely_core::connector::{Compensation, EffectBody, EffectRule, LedgerRule, OnStale};
use oncely_core::template::Target;

use super::super::diagnostic::{Code, Fault};
use super::super::raw::{RawConnector, RawEffect, RawEffectType, RawEntry, RawStale};
use super::super::read::{Field, listed};
use super::super::source::Span;
use super::{Compiler, text};

impl RawEffectType {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Email => "email",
            Self::Billing => "billing",
            Self::Ledger => "ledger",
            Self::Webhook => "webhook",
            Self::Llm => "llm",
            Self::Publish => "publish",
        }
    }

    /// The fields that this type has beside those of all.
    const fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Http | Self::Billing => &[
                "request",
                "profile",
                "idempotency",
                "timeout",
                "retry",
                "on_unknown",
                "lookup",
                "record",
                "limits",
            ],
            Self::Email => &[
                "to",
                "from",
                "subject",
                "text",
                "html",
                "template",
                "provider",
                "profile",
                "idempotency",
                "timeout",
                "retry",
                "on_unknown",
                "lookup",
                "record",
                "limits",
            ],
            Self::Ledger => &["entry"],
            Self::Webhook => &[
                "endpoint",
                "event_type",
                "at",
                "json",
                "profile",
                "idempotency",
                "timeout",
                "retry",
                "on_unknown",
                "record",
                "limits",
            ],
            Self::Llm => &[
                "chat",
                "profile",
                "idempotency",
                "timeout",
                "retry",
                "on_unknown",
                "lookup",
                "record",
                "limits",
            ],
            Self::Publish => &["message"],
        }
    }
}

impl Compiler<'_> {
    /// All effects that could be made, in the order of the file.
    pub(super) fn effects(&mut self, raw: &RawConnector) -> Vec<EffectRule> {
        let raw = raw.effects.as_ref().and_then(Field::get);
        let raw: Vec<(Span, &RawEffect)> =
            raw.into_iter().flatten().filter_map(Field::valid).collect();
        self.distinct(&raw);
        let graph = self.graph(&raw);
        let undone = self.compensations(&raw, &graph);
        self.cycles(&raw, &graph, &undone);
        let mut effects = Vec::with_capacity(raw.len());
        for (index, ((span, effect), undone)) in raw.iter().zip(undone).enumerate() {
            let after = graph.get(index).cloned().unwrap_or_default();
            effects.extend(self.effect(effect, *span, after, undone));
        }
        self.results(&raw, &effects, &graph);
        self.owed_together(&raw, &effects);
        effects
    }

    fn distinct(&mut self, raw: &[(Span, &RawEffect)]) {
        let mut seen: Vec<&str> = Vec::new();
        for (_, effect) in raw {
            let Some((span, id)) = effect.id.valid() else { continue };
            if seen.contains(&id.as_str()) {
                let text = format!("two effects are called `{id}`");
                let help = "give one of them another id: keys are made of ids";
                self.add(Fault::new(Code::DuplicateName, span, text).help(help));
            }
            seen.push(id);
        }
    }

    fn effect(
        &mut self,
        raw: &RawEffect,
        at: Span,
        after: Vec<usize>,
        compensates: Option<Compensation>,
    ) -> Option<EffectRule> {
        let id = self.need(&raw.id, "effect.id", at);
        let id = id.and_then(|(span, id)| self.name(span, id, "an effect", false));
        let kind = self.need(&raw.kind, "effect.type", at);
        let when = raw.when.as_ref().map(|when| self.condition(when, text::DECIDED));
        let key = self.need(&raw.key, "effect.key", at).map(|(around, key)| {
            let parts = key.placed(around);
            let exprs: Vec<_> =
                parts.iter().map(|(span, part)| self.expr_at(*span, part, text::DECIDED)).collect();
            if let Some(exprs) = exprs.iter().map(Option::as_ref).collect::<Option<Vec<_>>>() {
                if exprs.is_empty() {
                    let text = "an effect needs a key";
                    let help = "what this is done once for: `key: event.data.invoice_id`";
                    self.add(Fault::new(Code::OutOfRange, around, text).help(help));
                } else {
                    self.identifies(&exprs, around, "an effect's key");
                }
            }
            exprs
        });
        let on_stale = match raw.on_stale.as_ref().and_then(Field::valid) {
            None | Some((_, RawStale::Skip)) => OnStale::Skip,
            Some((span, RawStale::Run)) => {
                self.stale_runs(kind.map(|(_, kind)| *kind), span);
                OnStale::Run
            }
        };
        let (_, kind) = kind?;
        self.fields_of(raw, *kind);
        let body = match kind {
            RawEffectType::Http => self.http(raw, at),
            RawEffectType::Billing => self.billing(raw, at),
            RawEffectType::Email => self.email(raw, at),
            RawEffectType::Ledger => {
                self.ledger(raw, at, !after.is_empty() || compensates.is_some())
            }
            RawEffectType::Webhook => self.webhook(raw, at),
            RawEffectType::Llm => self.llm(raw, at),
            RawEffectType::Publish => self.publish(raw, at),
        };
        let when = match when {
            None => None,
            Some(when) => Some(when?),
        };
        Some(EffectRule {
            id: id?.into(),
            when,
            key: key?.into_iter().collect::<Option<Vec<_>>>()?,
            after,
            compensates,
            on_stale,
            body: body?,
        })
    }

    /// Ledger lines are usually owed whatever the order; other effects seldom are.
    fn stale_runs(&mut self, kind: Option<RawEffectType>, span: Span) {
        if self.states.is_none() {
            let text = "without a `state` block no event is stale";
            self.add(Fault::new(Code::Unused, span, text).help("remove it"));
        } else if kind != Some(RawEffectType::Ledger) {
            let text = "events older than the entity will run this effect, too";
            let help = "remove it, unless an old event is to be told to the world as well";
            self.add(Fault::new(Code::StaleRuns, span, text).help(help));
        }
    }

    /// Fields that belong to another type of effect.
    fn fields_of(&mut self, raw: &RawEffect, kind: RawEffectType) {
        let known = kind.fields();
        if known.is_empty() {
            return;
        }
        let present = [
            ("request", raw.request.as_ref().and_then(Field::span)),
            ("to", raw.to.as_ref().and_then(Field::span)),
            ("from", raw.from.as_ref().and_then(Field::span)),
            ("subject", raw.subject.as_ref().and_then(Field::span)),
            ("text", raw.text.as_ref().and_then(Field::span)),
            ("html", raw.html.as_ref().and_then(Field::span)),
            ("template", raw.template.as_ref().and_then(Field::span)),
            ("provider", raw.provider.as_ref().and_then(Field::span)),
            ("profile", raw.profile.as_ref().and_then(Field::span)),
            ("chat", raw.chat.as_ref().and_then(Field::span)),
            ("endpoint", raw.endpoint.as_ref().and_then(Field::span)),
            ("event_type", raw.event_type.as_ref().and_then(Field::span)),
            ("at", raw.at.as_ref().and_then(Field::span)),
            ("json", raw.json.as_ref().and_then(Field::span)),
            ("message", raw.message.as_ref().and_then(Field::span)),
            ("entry", raw.entry.as_ref().and_then(Field::span)),
            ("idempotency", raw.idempotency.as_ref().and_then(Field::span)),
            ("timeout", raw.timeout.as_ref().and_then(Field::span)),
            ("retry", raw.retry.as_ref().and_then(Field::span)),
            ("on_unknown", raw.on_unknown.as_ref().and_then(Field::span)),
            ("lookup", raw.lookup.as_ref().and_then(Field::span)),
            ("record", raw.record.as_ref().and_then(Field::span)),
            ("limits", raw.limits.as_ref().and_then(Field::span)),
        ];
        for (name, span) in present {
            let Some(span) = span.filter(|_| !known.contains(&name)) else { continue };
            let text = format!("an effect of type `{}` has no field `{name}`", kind.name());
            let help = format!("beside those of all effects it has {}", listed(known));
            self.add(Fault::new(Code::FieldOfOtherType, span, text).help(help));
        }
    }

    /// `waits`: it comes after other effects.
    fn ledger(&mut self, raw: &RawEffect, at: Span, waits: bool) -> Option<EffectBody> {
        let Some(entry) = &raw.entry else {
            self.missing("ledger.entry", at);
            return None;
        };
        let (span, entry): (Span, &RawEntry) = entry.valid()?;
        self.need(&entry.account, "entry.account", span);
        let account = self.expr(&entry.account, text::LINE);
        let metric = self.need(&entry.metric, "entry.metric", span);
        let metric =
            metric.and_then(|(span, text)| self.template_in(span, text, Target::Text, text::LINE));
        self.need(&entry.quantity, "entry.quantity", span);
        let quantity = self.expr(&entry.quantity, text::LINE);
        let when = entry.at.as_ref().map(|at| self.expr(at, text::LINE));
        let when = match when {
            None => None,
            Some(when) => Some(when?),
        };
        let (account, metric, quantity) = (account?, metric?, quantity?);
        let rule = LedgerRule { account, metric, quantity, at: when, waits };
        Some(EffectBody::Ledger(Box::new(rule)))
    }
}
