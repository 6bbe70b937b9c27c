//! Repeats: the key that the provider knows, for how long, what follows from no answer, and the plan.

use oncely_core::connector::{OnUnknown, Profile, Timeout};
use oncely_core::effect::retry::{Retry, RetryError};

use super::super::diagnostic::{Code, Fault};
use super::super::raw::{RawEffect, RawIdempotency, RawUnknown};
use super::super::read::Field;
use super::super::source::Span;
use super::super::words::{Millis, Window};
use super::Compiler;
use super::call::header_name;

/// Without a word in the file only time bounds the attempts: a provider may be away for hours, and attempts that
/// are minutes apart burden nobody.
const ATTEMPTS: u32 = 1_000;
const ATTEMPTS_MAX: u32 = 1_000;
const BACKOFF_MS: (u64, u64) = (1_000, 600_000);
const ELAPSED_MS: u64 = 20 * 3_600_000;

impl Compiler<'_> {
    /// What the file says about the key, over what the profile says.
    pub(super) fn idempotency(&mut self, raw: &RawEffect, profile: &mut Profile) {
        let on_unknown = raw.on_unknown.as_ref().and_then(Field::get).copied();
        let Some((at, raw)) = raw.idempotency.as_ref().and_then(Field::valid) else { return };
        self.key_of(raw, at, profile);
        if let Some((span, Window::None)) = raw.window.as_ref().and_then(Field::valid) {
            self.window_not_known(span, on_unknown);
        }
    }

    /// The key's header and window, in a profile or in an effect.
    pub(super) fn key_of(&mut self, raw: &RawIdempotency, at: Span, profile: &mut Profile) {
        let known = profile.key_header.is_some();
        match raw.header.as_ref().map(Field::valid) {
            Some(Some((span, header))) => match header_name(header) {
                Some(name) => profile.key_header = Some(name.into()),
                None => self.no_header(span),
            },
            None if !known => self.missing("idempotency.header", at),
            Some(None) | None => {}
        }
        match raw.window.as_ref().map(Field::valid) {
            Some(Some((_, Window::For(window)))) => profile.key_window_ms = Some(window.0),
            Some(Some((_, Window::Forever | Window::None))) => profile.key_window_ms = None,
            None if !known => self.missing("idempotency.window", at),
            Some(None) | None => {}
        }
    }

    /// Repeats are bounded by `retry` alone, which is only safe if the receiver still knows the key.
    fn window_not_known(&mut self, span: Span, on_unknown: Option<RawUnknown>) {
        if on_unknown != Some(RawUnknown::RetrySameKey) {
            return;
        }
        let text = "no window is promised, and `retry_same_key` relies on one";
        let finding = Fault::new(Code::WindowNotKnown, span, text)
            .note("a repeat after the receiver has forgotten the key acts a second time")
            .help(
                "write how long it remembers a key (`24h`), or `forever` if it never forgets one; \
                 `retry.max_elapsed` bounds the repeats meanwhile",
            );
        self.add(finding);
    }

    pub(super) fn on_unknown(&mut self, raw: &RawEffect, profile: &Profile) -> OnUnknown {
        let Some((span, raw)) = raw.on_unknown.as_ref().and_then(Field::valid) else {
            return OnUnknown::Hold;
        };
        match raw {
            RawUnknown::Hold => OnUnknown::Hold,
            RawUnknown::AssumeDone => OnUnknown::AssumeDone,
            RawUnknown::Reconcile => OnUnknown::Reconcile,
            RawUnknown::RetrySameKey => {
                if profile.key_header.is_none() {
                    let text = "without a key that the provider knows, a repeat can act twice";
                    let finding = Fault::new(Code::NoKey, span, text);
                    let help = "declare `idempotency: { header: …, window: … }` if it has one, or use `on_unknown: hold`";
                    self.add(finding.help(help));
                }
                OnUnknown::RetrySameKey
            }
        }
    }

    pub(super) fn retry(
        &mut self,
        raw: &RawEffect,
        at: Span,
        profile: &Profile,
        on_unknown: OnUnknown,
        timeout: Timeout,
    ) -> Option<Retry> {
        let plan = raw.retry.as_ref().and_then(Field::valid);
        let attempts = plan.and_then(|(_, plan)| plan.attempts.as_ref()?.valid());
        let backoff = plan.and_then(|(_, plan)| plan.backoff.as_ref()?.get());
        let elapsed = plan.and_then(|(_, plan)| plan.max_elapsed.as_ref()?.valid());
        if let Some((span, attempts)) = attempts.filter(|(_, attempts)| **attempts > ATTEMPTS_MAX) {
            let text = format!("{attempts} attempts are more than {ATTEMPTS_MAX}");
            let help = "leave it out, and bound the repeats by time: `max_elapsed: 20h`";
            self.add(Fault::new(Code::RetryPlan, span, text).help(help));
        }
        let window = profile.key_window_ms.filter(|_| on_unknown == OnUnknown::RetrySameKey);
        // Leaves a sixth of the window for calls under way and clocks that differ.
        let within = window.map(|window| window.saturating_sub(window.checked_div(6).unwrap_or(0)));
        let elapsed_ms = match elapsed {
            Some((_, elapsed)) => elapsed.0,
            None => within.map_or(ELAPSED_MS, |within| within.min(ELAPSED_MS)),
        };
        if let Some(window) = window {
            let call = timeout.total_ms.saturating_add(profile.applies_within_ms.unwrap_or(0));
            if call >= window {
                self.forgotten_early(raw, at, window, call);
            } else if let Some((span, elapsed)) = elapsed
                && elapsed.0.saturating_add(call) > window
            {
                let fits = within.unwrap_or(0).min(window.saturating_sub(call));
                self.outlives(raw, span, *elapsed, window, fits);
            }
        }
        let (base_ms, cap_ms) = backoff.map_or(BACKOFF_MS, |b| (b.base.0, b.cap.0));
        let attempts = attempts.map_or(ATTEMPTS, |(_, attempts)| *attempts);
        let span = |field: Option<Span>| field.or(plan.map(|(span, _)| span)).unwrap_or(at);
        let places = (
            span(plan.and_then(|(_, plan)| plan.attempts.as_ref()?.span())),
            span(plan.and_then(|(_, plan)| plan.backoff.as_ref()?.span())),
        );
        let retry = Retry::new(attempts, base_ms, cap_ms, elapsed_ms);
        retry.map_err(|_| self.no_plan(places, attempts, (base_ms, cap_ms))).ok()
    }

    /// All that makes no plan, each where it stands.
    fn no_plan(
        &mut self,
        (of_attempts, of_backoff): (Span, Span),
        attempts: u32,
        (base_ms, cap_ms): (u64, u64),
    ) {
        let mut wrong = Vec::new();
        if attempts == 0 {
            let help = "write `1` to try once and never again; without it, `max_elapsed` alone ends the attempts";
            wrong.push((of_attempts, RetryError::NoAttempt, help.to_owned()));
        }
        if base_ms == 0 {
            let help = format!("begin with a wait: `1s..{}`", Millis(cap_ms.max(1_000)));
            wrong.push((of_backoff, RetryError::NoBackoff, help));
        }
        if cap_ms < base_ms {
            let help =
                format!("the shorter one comes first: `{}..{}`", Millis(cap_ms), Millis(base_ms));
            wrong.push((of_backoff, RetryError::CapBelowBase { base_ms, cap_ms }, help));
        }
        for (span, error, help) in wrong {
            self.add(Fault::new(Code::RetryPlan, span, error.to_string()).help(help));
        }
    }

    /// A key that is forgotten before one call is over suppresses nothing.
    fn forgotten_early(&mut self, raw: &RawEffect, at: Span, window: u64, call: u64) {
        let declared = raw.idempotency.as_ref().and_then(|raw| raw.get()?.window.as_ref()?.span());
        let (window, call) = (Millis(window), Millis(call));
        let text = format!(
            "the provider forgets a key after {window}, and one call may take effect for {call}"
        );
        let finding = Fault::new(Code::RetryOutlivesWindow, declared.unwrap_or(at), text)
            .note("with on_unknown: retry_same_key no call could ever be repeated")
            .help("write the provider's own window, lower `timeout`, or use on_unknown: hold");
        self.add(finding);
    }

    fn outlives(&mut self, raw: &RawEffect, span: Span, elapsed: Millis, window: u64, within: u64) {
        let declared = raw.idempotency.as_ref().and_then(|raw| raw.get()?.window.as_ref()?.span());
        let line = declared.map(|span| format!(" (line {})", self.source.line(span)));
        let window = Millis(window);
        let text = format!("retries may outlive the provider's key window ({elapsed} > {window})");
        let finding = Fault::new(Code::RetryOutlivesWindow, span, text)
            .label(format!("window is {window}{}", line.unwrap_or_default()))
            .note("with on_unknown: retry_same_key a late retry would act a second time")
            .help(format!("lower max_elapsed to {}, or use on_unknown: hold", Millis(within)));
        self.add(finding);
    }
}
