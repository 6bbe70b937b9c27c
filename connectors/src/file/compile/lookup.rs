//! Look-ups: how a provider is asked, and when its "not found" is believed.

use oncely_core::connector::{
    Auth, HttpRule, LookupRule, OnNotFound, OnUnknown, RequestRule, Timeout, WebhookRule,
};
use oncely_core::expr::Root;

use super::super::diagnostic::{Code, Fault};
use super::super::profiles::Known;
use super::super::raw::{RawAskMethod, RawEffect, RawLookup, RawNotFound};
use super::super::read::Field;
use super::super::source::Span;
use super::super::words::Millis;
use super::{Compiler, text};

/// What a look-up is made for.
pub(super) struct Asked<'a> {
    pub(super) raw: &'a RawEffect,
    pub(super) known: &'a Known,
    pub(super) on_unknown: OnUnknown,
    pub(super) timeout: Timeout,
    pub(super) request: &'a RequestRule,
}

impl Compiler<'_> {
    /// The effect's own look-up, or the one of its profile.
    pub(super) fn lookup(&mut self, at: Span, asked: &Asked<'_>) -> Option<LookupRule> {
        let own = asked.raw.lookup.as_ref();
        if let Some(own) = own {
            if matches!(asked.on_unknown, OnUnknown::Hold | OnUnknown::AssumeDone) {
                let text = "nobody asks: `on_unknown` is neither `reconcile` nor `retry_same_key`";
                let help = "remove it, or write `on_unknown: reconcile`";
                self.add(Fault::new(Code::Unused, own.span(), text).help(help));
            }
            let (span, own) = own.valid()?;
            return self.lookup_by(own, span, false, asked);
        }
        let on_unknown = asked.raw.on_unknown.as_ref().and_then(Field::span);
        match (&asked.known.lookup, asked.on_unknown) {
            (Some(lookup), OnUnknown::Reconcile) => {
                let lookup = lookup.clone();
                self.lookup_by(&lookup, on_unknown.unwrap_or(at), true, asked)
            }
            (Some(lookup), OnUnknown::RetrySameKey) if carries_key(asked.request) => {
                let lookup = lookup.clone();
                self.lookup_by(&lookup, on_unknown.unwrap_or(at), true, asked)
            }
            (None, OnUnknown::Reconcile) => {
                let text = "`reconcile` asks the provider, and nobody says how";
                let finding = Fault::new(Code::NoLookup, on_unknown, text);
                let help = "add `lookup: { url: \"https://host/path?key={{ effect.key }}\", done: \
                            response.json.items.size() > 0, applies_within: 30s }`, or use \
                            `on_unknown: hold`";
                self.add(finding.help(help));
                None
            }
            (Some(_), OnUnknown::RetrySameKey | OnUnknown::Hold | OnUnknown::AssumeDone)
            | (None, OnUnknown::RetrySameKey | OnUnknown::Hold | OnUnknown::AssumeDone) => None,
        }
    }

    fn lookup_by(
        &mut self,
        raw: &RawLookup,
        at: Span,
        of_profile: bool,
        asked: &Asked<'_>,
    ) -> Option<LookupRule> {
        let request = self.asking_request(raw, at, asked);
        self.need(&raw.done, "lookup.done", at);
        let done = self.condition(&raw.done, text::LOOKUP);
        let not_found = raw.not_found.as_ref().map(|text| self.condition(text, text::LOOKUP));
        let record = self.record(raw.record.as_ref());
        let answer = raw.answer.as_ref().map(|text| self.expr(text, text::LOOKUP));
        if answer.is_none() {
            self.records_all(&record, at, asked.raw);
        }
        let settle_ms = self.settle_delay(raw, at, asked);
        let on_not_found = match raw.on_not_found.as_ref().and_then(Field::get) {
            None | Some(RawNotFound::Resend) => OnNotFound::Resend,
            Some(RawNotFound::Fail) => OnNotFound::Fail,
        };
        let request = request?;
        self.asks_for_it(&request, raw, at, of_profile, asked);
        let not_found = match not_found {
            None => None,
            Some(not_found) => Some(not_found?),
        };
        let answer = match answer {
            None => None,
            Some(answer) => Some(answer?),
        };
        let (done, settle_ms) = (done?, settle_ms?);
        Some(LookupRule { request, done, not_found, record, answer, settle_ms, on_not_found })
    }

    fn asking_request(&mut self, raw: &RawLookup, at: Span, asked: &Asked<'_>) -> Option<HttpRule> {
        let method = match raw.method.as_ref().and_then(Field::get) {
            None | Some(RawAskMethod::Get) => "GET",
            Some(RawAskMethod::Post) => "POST",
        };
        if method == "GET"
            && let Some(span) = [&raw.json, &raw.form].into_iter().flatten().find_map(Field::span)
        {
            let finding = Fault::new(Code::Request, span, "a `GET` has no body");
            self.add(finding.help("add `method: POST`, or ask by the url"));
        }
        let base = match asked.request {
            RequestRule::Http(http) | RequestRule::Webhook(WebhookRule { http, .. }) => {
                Some(http.url.text())
            }
            RequestRule::Smtp(_) | RequestRule::Record(_) => None,
        };
        let (span, written) = self.need(&raw.url, "lookup.url", at)?;
        let Some(full) = beside(written, base) else {
            let text = "a mail has no url that this could begin with";
            let finding = Fault::new(Code::Request, span, text);
            self.add(finding.help("write it as `https://host/path`"));
            return None;
        };
        let url = self.url(&Field::Valid(span, full));
        // The key goes into the url or the body of a look-up; no header carries it.
        let mut known = asked.known.clone();
        known.profile.key_header = None;
        let headers = self.headers(raw.headers.as_ref(), &known);
        let declared = raw.auth.as_ref().map(|auth| self.auth(auth));
        let body = self.body(raw.json.as_ref(), raw.form.as_ref());
        let url = url?;
        let auth = match declared {
            Some(declared) => Some(declared?),
            None => same_auth(asked.request, url.text()),
        };
        Some(HttpRule { method: method.into(), url, headers, auth, body: body? })
    }

    /// Later effects read what the call records, wherever its result came from.
    fn records_all(
        &mut self,
        record: &[(Box<str>, oncely_core::expr::Expr)],
        at: Span,
        raw: &RawEffect,
    ) {
        let wanted = raw.record.as_ref().and_then(Field::get);
        for (span, name) in wanted.into_iter().flat_map(|w| &w.0).filter_map(|(n, _)| n.valid()) {
            if record.iter().all(|(known, _)| **known != **name) {
                let text = format!("`{name}` is recorded of an answer, and of no look-up");
                let finding = Fault::new(Code::ResultNotThere, span, text);
                let line = self.source.line(at);
                let help = format!(
                    "add `answer: response.json.items[0]` to the look-up (line {line}), so that \
                     `record` reads it there, or a `record` of its own"
                );
                self.add(finding.help(help));
            }
        }
    }

    /// How long "not found" is not believed.
    fn settle_delay(&mut self, raw: &RawLookup, at: Span, asked: &Asked<'_>) -> Option<u64> {
        let declared = raw.applies_within.as_ref().and_then(Field::get).map(|within| within.0);
        let within = declared.or(asked.known.profile.applies_within_ms);
        let Some(within) = within else {
            if !matches!(raw.applies_within, Some(Field::Invalid(_))) {
                self.missing("lookup.applies_within", at);
            }
            return None;
        };
        let total = asked.timeout.total_ms;
        let least = total.saturating_add(within);
        let Some((span, delay)) = raw.settle_delay.as_ref().and_then(Field::valid) else {
            return Some(least);
        };
        if delay.0 < least {
            let text = format!(
                "`settle_delay` {delay} is shorter than the time-out and `applies_within` together \
                 ({} + {})",
                Millis(total),
                Millis(within)
            );
            let finding = Fault::new(Code::SettleDelay, span, text)
                .note("a request that arrives late would be sent a second time")
                .help(format!("raise it to {}, or leave it out", Millis(least)));
            self.add(finding);
        }
        Some(delay.0)
    }

    /// A look-up finds what the request has told the provider, or it finds nothing and is believed.
    fn asks_for_it(
        &mut self,
        lookup: &HttpRule,
        raw: &RawLookup,
        at: Span,
        of_profile: bool,
        asked: &Asked<'_>,
    ) {
        let (mut by_key, mut by_event) = (false, false);
        lookup.for_each_read(&mut |path| match path.root {
            Root::Effect => by_key = true,
            Root::Tenant | Root::Response => {}
            Root::Event | Root::Headers | Root::Meta | Root::State | Root::Effects => {
                by_event = true;
            }
        });
        if !by_key && !by_event {
            let text = "the look-up asks the same for every effect";
            let finding = Fault::new(Code::LookupBlind, raw.url.span(), text);
            self.add(finding.help("ask by what the request carries: `?key={{ effect.key }}`"));
            return;
        }
        let header = asked.known.profile.key_header.is_some() && !of_profile;
        if !by_key || by_event || header || carries_key(asked.request) {
            return;
        }
        let text = "the look-up asks by `effect.key`, which the request does not carry";
        let carried = raw.carried_as.as_ref().and_then(Field::get);
        let help = match carried {
            Some(carried) => format!("add {carried} to the request"),
            None => "put `{{ effect.key }}` into the request, where the provider keeps it as its \
                     reference; or declare the header in `idempotency`"
                .to_owned(),
        };
        let finding = Fault::new(Code::LookupBlind, at, text)
            .note("it would never be found, and be sent again each time");
        self.add(finding.help(help));
    }
}

/// Whether a request tells the provider the effect key in its url, headers or body.
fn carries_key(request: &RequestRule) -> bool {
    // A mail's Message-ID is made of it.
    let mut carries = matches!(request, RequestRule::Smtp(_));
    request.for_each_read(&mut |path| carries |= path.root == Root::Effect);
    carries
}

/// A look-up's url in full: as it is written, or on the host of the request, or below its url, or that
/// url with another query.
fn beside(written: &str, base: Option<&str>) -> Option<String> {
    let path = base.map(|base| base.split_once('?').map_or(base, |(path, _)| path));
    if let Some(below) = written.strip_prefix("./") {
        return Some(format!("{}/{below}", path?.trim_end_matches('/')));
    }
    if written.starts_with('?') {
        return Some(format!("{}{written}", path?));
    }
    if written.starts_with('/') {
        return Some(format!("{}{written}", origin(base?)?));
    }
    Some(written.to_owned())
}

/// `https://host:port` of a url template.
fn origin(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.split(['/', '?', '#']).next()?;
    url.get(..scheme.len().saturating_add(3).saturating_add(host.len()))
}

/// The request's own credentials, where the look-up goes to the same host.
fn same_auth(request: &RequestRule, url: &str) -> Option<Auth> {
    match request {
        RequestRule::Http(http) if origin(http.url.text()) == origin(url) => http.auth.clone(),
        RequestRule::Http(_)
        | RequestRule::Webhook(_)
        | RequestRule::Smtp(_)
        | RequestRule::Record(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_can_begin_where_the_request_goes() {
        let base = Some("https://api.test:8443/v1/charges?expand=a");
        for (written, want) in [
            ("./search?q=1", "https://api.test:8443/v1/charges/search?q=1"),
            ("?key=1", "https://api.test:8443/v1/charges?key=1"),
            ("/v1/list", "https://api.test:8443/v1/list"),
            ("https://other.test/x", "https://other.test/x"),
        ] {
            assert_eq!(beside(written, base).as_deref(), Some(want));
        }
        assert_eq!(beside("./x", None), None);
        assert_eq!(beside("/x", None), None);
    }
}
