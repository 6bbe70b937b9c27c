//! Calls: the request, its limits, and what is recorded of an answer.

use oncely_core::connector::{
    Auth, BodyRule, CallRule, EffectBody, HttpRule, Limits, Rate, RequestRule, Timeout,
};
use oncely_core::expr::Root;
use oncely_core::template::url::{is_dots, path_segments};
use oncely_core::template::{Target, Template, TextTree};

use super::super::diagnostic::{Code, Fault};
use super::super::profiles::Known;
use super::super::raw::{RawAuth, RawEffect, RawMethod, RawTree};
use super::super::read::{Entries, Field};
use super::super::source::Span;
use super::super::words::Millis;
use super::lookup::Asked;
use super::{Compiler, text};

const CONNECT_MS: u64 = 2_000;
const TOTAL_MS: u64 = 15_000;
const TOTAL_MS_MAX: u64 = 600_000;
/// What holds where nothing is said.
const TIMEOUT: &str = "{ connect: 2s, total: 15s }";
const CONCURRENCY: u32 = 16;
const CONCURRENCY_MAX: u32 = 1024;

/// Headers that the client writes, or that have a field of their own.
const RESERVED: [&str; 8] = [
    "authorization",
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-authorization",
    "te",
    "transfer-encoding",
];

impl Compiler<'_> {
    pub(super) fn http(&mut self, raw: &RawEffect, at: Span) -> Option<EffectBody> {
        self.call(raw, at, "http", |this, known| this.request(raw, at, known))
    }

    /// Stripe's conventions.
    pub(super) fn billing(&mut self, raw: &RawEffect, at: Span) -> Option<EffectBody> {
        self.call(raw, at, "stripe-v1", |this, known| this.request(raw, at, known))
    }

    /// What is the same for every call; `request` makes what is not.
    pub(super) fn call(
        &mut self,
        raw: &RawEffect,
        at: Span,
        implied: &str,
        request: impl FnOnce(&mut Self, &Known) -> Option<RequestRule>,
    ) -> Option<EffectBody> {
        let mut known = self.profile_of(raw, implied);
        self.idempotency(raw, &mut known.profile);
        let on_unknown = self.on_unknown(raw, &known.profile);
        self.repeats_unasked(&known, on_unknown, raw);
        let timeout = self.timeout(raw);
        let retry = self.retry(raw, at, &known.profile, on_unknown, timeout);
        let record = self.record(raw.record.as_ref());
        let limits = self.limits(raw);
        let request = request(self, &known)?;
        let asked = Asked { raw, known: &known, on_unknown, timeout, request: &request };
        let lookup = self.lookup(at, &asked);
        let mut reads_results = false;
        request.for_each_read(&mut |path| reads_results |= path.root == Root::Effects);
        Some(EffectBody::Call(Box::new(CallRule {
            kind: raw.kind.valid().map_or("http", |(_, kind)| kind.name()),
            model: None,
            request,
            reads_results,
            record,
            profile: known.profile,
            on_unknown,
            lookup,
            retry: retry?,
            timeout,
            limits,
        })))
    }

    fn timeout(&mut self, raw: &RawEffect) -> Timeout {
        let raw = raw.timeout.as_ref().and_then(Field::valid);
        let connect = raw.and_then(|(_, raw)| raw.connect.as_ref()?.get());
        let total = raw.and_then(|(_, raw)| raw.total.as_ref()?.get());
        let total_ms = total.map_or(TOTAL_MS, |total| total.0);
        let connect_ms = connect.map_or(CONNECT_MS.min(total_ms), |connect| connect.0);
        self.within_grace(total_ms, raw.map(|(span, _)| span));
        let Some((span, _)) = raw else { return Timeout { connect_ms, total_ms } };
        if connect_ms == 0 || total_ms == 0 {
            let fault =
                Fault::new(Code::Timeout, span, "a timeout of nothing lets nothing through");
            self.add(fault.help(format!("leave it out for `{TIMEOUT}`, or write longer times")));
        } else if connect_ms > total_ms {
            let text = format!(
                "connecting may take longer ({}) than everything ({})",
                Millis(connect_ms),
                Millis(total_ms)
            );
            let help = format!("raise `total` above {}, or lower `connect`", Millis(connect_ms));
            self.add(Fault::new(Code::Timeout, span, text).help(help));
        } else if total_ms > TOTAL_MS_MAX {
            let text = format!("a call may take {} at most", Millis(TOTAL_MS_MAX));
            let help = "what takes longer is begun by one effect and looked after by its provider";
            self.add(Fault::new(Code::Timeout, span, text).help(help));
        }
        Timeout { connect_ms, total_ms }
    }

    /// A call that is given up in the middle has an outcome that nobody knows.
    fn within_grace(&mut self, total_ms: u64, at: Option<Span>) {
        let Some(grace_ms) = self.bounds.grace_ms.filter(|grace| total_ms >= *grace) else {
            return;
        };
        let (total, grace) = (Millis(total_ms), Millis(grace_ms));
        let text = format!("a call may take {total}, and a process that stops waits for {grace}");
        let finding = Fault::new(Code::OutlivesGrace, at, text)
            .note("whatever is under way then is given up, and its outcome is unknown")
            .help(format!(
                "lower `timeout.total`, or raise ONCELY_SHUTDOWN_GRACE above {total} (and the \
                 termination grace of the pod above that)"
            ));
        self.add(finding);
    }

    pub(super) fn record(
        &mut self,
        raw: Option<&Field<Entries<String>>>,
    ) -> Vec<(Box<str>, oncely_core::expr::Expr)> {
        let raw = raw.and_then(Field::get);
        let mut record = Vec::new();
        for (name, expr) in raw.into_iter().flat_map(|raw| &raw.0) {
            let Some((span, name)) = name.valid() else { continue };
            let name = self.name(span, name, "a recorded value", false);
            let expr = self.expr(expr, text::ANSWER);
            if let (Some(name), Some(expr)) = (name, expr) {
                record.push((name.into(), expr));
            }
        }
        record
    }

    fn limits(&mut self, raw: &RawEffect) -> Limits {
        let raw = raw.limits.as_ref().and_then(Field::get);
        let concurrency = raw.and_then(|raw| raw.concurrency.as_ref()?.valid());
        if let Some((span, _)) =
            concurrency.filter(|(_, calls)| !(1..=CONCURRENCY_MAX).contains(*calls))
        {
            let text = format!("1 to {CONCURRENCY_MAX} calls may be in flight");
            let help = format!("leave it out for {CONCURRENCY}; `rate: 50/s` bounds their pace");
            self.add(Fault::new(Code::Limit, span, text).help(help));
        }
        let rate = raw.and_then(|raw| raw.rate.as_ref()?.get());
        Limits {
            concurrency: concurrency.map_or(CONCURRENCY, |(_, calls)| *calls),
            rate: rate.map(|rate| Rate { calls: rate.calls, per_ms: rate.per_ms }),
        }
    }

    // ----------------------------------------------------------------------------------------- //

    fn request(&mut self, raw: &RawEffect, at: Span, known: &Known) -> Option<RequestRule> {
        let Some(request) = &raw.request else {
            self.missing("effect.request", at);
            return None;
        };
        let (span, request) = request.valid()?;
        let method = match request.method.as_ref().and_then(Field::get) {
            None | Some(RawMethod::Post) => "POST",
            Some(RawMethod::Get) => "GET",
            Some(RawMethod::Put) => "PUT",
            Some(RawMethod::Patch) => "PATCH",
            Some(RawMethod::Delete) => "DELETE",
        };
        self.need(&request.url, "request.url", span);
        let url = self.url(&request.url);
        let headers = self.headers(request.headers.as_ref(), known);
        let auth = request.auth.as_ref().map(|auth| self.auth(auth));
        self.body_fits(known, request);
        let body = self.body(request.json.as_ref(), request.form.as_ref());
        let auth = match auth {
            None => None,
            Some(auth) => Some(auth?),
        };
        Some(RequestRule::Http(HttpRule {
            method: method.into(),
            url: url?,
            headers,
            auth,
            body: body?,
        }))
    }

    /// Scheme, host and port stand in the file: an event never says where a request goes.
    pub(super) fn url(&mut self, field: &Field<String>) -> Option<Template> {
        let (span, _) = field.valid()?;
        let template = self.template(field, Target::Url)?;
        if let Some(text) = wrong_url(template.text()) {
            if template.text().contains('@') {
                self.findings.hide(span);
            }
            let finding = Fault::new(Code::Request, span, text);
            self.add(finding.help("write it as `https://host/path`"));
            return None;
        }
        Some(template)
    }

    pub(super) fn headers(
        &mut self,
        raw: Option<&Field<Entries<String>>>,
        known: &Known,
    ) -> Vec<(Box<str>, Template)> {
        let mut headers: Vec<(Box<str>, Template)> = Vec::new();
        let raw = raw.and_then(Field::get);
        for (name, value) in raw.into_iter().flat_map(|raw| &raw.0) {
            let Some((span, written)) = name.valid() else { continue };
            let Some(name) = header_name(written) else {
                self.no_header(span);
                continue;
            };
            if RESERVED.contains(&name.as_str()) {
                let finding =
                    Fault::new(Code::Request, span, format!("header `{name}` is not set here"));
                let help = "credentials go into `auth`; the rest belongs to the connection";
                self.add(finding.help(help));
                self.findings.hide(value.span().unwrap_or(span));
                continue;
            }
            if known.profile.key_header.as_deref() == Some(name.as_str()) {
                let text = format!("header `{name}` carries the effect key and is set by itself");
                let help =
                    "remove it; another header may have it: `x-reference: \"{{ effect.key }}\"`";
                self.add(Fault::new(Code::Request, span, text).help(help));
                continue;
            }
            if headers.iter().any(|(other, _)| **other == *name) {
                let text = format!("header `{name}` stands twice");
                let help = "remove one; upper and lower case make no difference";
                self.add(Fault::new(Code::DuplicateName, span, text).help(help));
                continue;
            }
            headers.extend(self.template(value, Target::Text).map(|value| (name.into(), value)));
        }
        for (name, value) in &known.headers {
            if headers.iter().all(|(declared, _)| declared != name) {
                let value = Template::compile(value, Target::Text).ok();
                headers.extend(value.map(|value| (name.clone(), value)));
            }
        }
        headers
    }

    pub(super) fn auth(&mut self, field: &Field<RawAuth>) -> Option<Auth> {
        let (span, raw) = field.valid()?;
        match (&raw.bearer, &raw.basic, &raw.header) {
            (Some(token), None, None) => self.secret(token).map(Auth::Bearer),
            (None, Some(basic), None) => {
                let (span, basic) = basic.valid()?;
                self.need(&basic.user, "basic.user", span);
                let user = self.setting(&basic.user);
                let password = match &basic.password {
                    Some(password) => self.secret(password),
                    // Some services take the token as user name and no password.
                    None => self
                        .secret(&basic.user)
                        .map(|_| oncely_core::connector::SecretText("".into())),
                };
                Some(Auth::Basic { user: user?, password: password? })
            }
            (None, None, Some(header)) => {
                let (span, header) = header.valid()?;
                let name = self.need(&header.name, "header.name", span);
                self.need(&header.value, "header.value", span);
                let value = self.secret(&header.value);
                let (span, name) = name?;
                let known = header_name(name);
                if known.is_none() {
                    self.no_header(span);
                }
                Some(Auth::Header { name: known?.into(), value: value? })
            }
            _ => {
                let text = "`auth` has one of `bearer`, `basic`, `header`";
                let help = "keep the one that the provider asks for: `auth: { bearer: \"${secret:token}\" }`";
                self.add(Fault::new(Code::Request, span, text).help(help));
                None
            }
        }
    }

    pub(super) fn no_header(&mut self, span: Span) {
        let fault = Fault::new(Code::BadName, span, "this is no header's name");
        self.add(
            fault.help("letters, digits and dashes, without spaces or colons: `x-api-version`"),
        );
    }

    pub(super) fn body(
        &mut self,
        json: Option<&Field<RawTree>>,
        form: Option<&Field<RawTree>>,
    ) -> Option<BodyRule> {
        match (json, form) {
            (None, None) => Some(BodyRule::None),
            (Some(json), None) => self.tree(json).map(BodyRule::Json),
            (None, Some(form)) => {
                let (span, tree) = form.valid()?;
                if !matches!(tree, RawTree::Map(_)) {
                    let text = "a form is a map of names and values";
                    let help = "write `form: { amount: \"{{ event.amount }}\" }`";
                    self.add(Fault::new(Code::WrongType, span, text).help(help));
                    return None;
                }
                let mut pairs = Vec::new();
                self.form(&mut pairs, String::new(), form);
                Some(BodyRule::Form(pairs))
            }
            (Some(_), Some(form)) => {
                let text = "a request has `json` or `form`, not both";
                let help = "keep the one that the provider reads";
                self.add(Fault::new(Code::Request, form.span(), text).help(help));
                None
            }
        }
    }

    pub(super) fn tree(&mut self, field: &Field<RawTree>) -> Option<TextTree> {
        // A member that is written `name:` or `name: null` is null.
        let Some((span, tree)) = field.valid() else { return Some(TextTree::Null) };
        Some(match tree {
            RawTree::Null => TextTree::Null,
            RawTree::Bool(value) => TextTree::Bool(*value),
            RawTree::Int(number) => TextTree::Int(*number),
            RawTree::Decimal(number) => TextTree::Decimal(number.clone()),
            RawTree::Text(text) => TextTree::Text(self.node(span, text)?),
            RawTree::List(items) => {
                let items: Vec<_> = items.iter().map(|item| self.tree(item)).collect();
                TextTree::List(items.into_iter().collect::<Option<_>>()?)
            }
            RawTree::Map(members) => {
                let member = |(name, value): &(Field<String>, Field<RawTree>)| {
                    let value = self.tree(value);
                    Some((name.get()?.as_str().into(), value?))
                };
                let members: Vec<_> = members.iter().map(member).collect();
                TextTree::Object(members.into_iter().collect::<Option<_>>()?)
            }
        })
    }

    /// `a: { b: c }` becomes `a[b]=c`, as Stripe and PHP read it.
    fn form(
        &mut self,
        pairs: &mut Vec<(Box<str>, Template)>,
        name: String,
        field: &Field<RawTree>,
    ) {
        let Some((span, tree)) = field.valid() else { return };
        let inner = |part: &str| {
            if name.is_empty() { part.to_owned() } else { format!("{name}[{part}]") }
        };
        let text = match tree {
            RawTree::Map(members) => {
                for (part, value) in members {
                    if let Some(part) = part.get() {
                        self.form(pairs, inner(part), value);
                    }
                }
                return;
            }
            RawTree::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.form(pairs, inner(&index.to_string()), item);
                }
                return;
            }
            RawTree::Null => return,
            RawTree::Bool(value) => value.to_string(),
            RawTree::Int(number) => number.to_string(),
            RawTree::Decimal(number) => number.as_str().to_owned(),
            RawTree::Text(text) => text.clone(),
        };
        let template = self.template_at(span, &text, Target::Text);
        pairs.extend(template.map(|template| (name.into(), template)));
    }
}

/// In lower case, when it is one (RFC 9110, a token).
pub(super) fn header_name(name: &str) -> Option<String> {
    let letters = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    (!name.is_empty() && name.bytes().all(letters)).then(|| name.to_ascii_lowercase())
}

/// What is wrong with a URL template, if something is.
fn wrong_url(text: &str) -> Option<&'static str> {
    let literal = text.find("{{").into_iter().chain(text.find("{%")).min();
    let fixed = text.get(..literal.unwrap_or(text.len())).unwrap_or_default();
    let Some((scheme, rest)) = fixed.split_once("://") else {
        return Some("scheme and host must be written out");
    };
    if !["http", "https"].contains(&scheme) {
        return Some("only `http` and `https` are called");
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if literal.is_some() && authority.len() == rest.len() {
        return Some("an event may not say which host is called");
    }
    if authority.contains('@') {
        return Some("credentials do not stand in a URL; use `auth`");
    }
    if text.contains('#') {
        return Some("a fragment is never sent");
    }
    if has_dots(text) {
        return Some("a segment `.` or `..` is resolved away before anything is sent");
    }
    match url::Url::parse(fixed) {
        Ok(url) if url.host_str().is_some_and(|host| !host.is_empty()) => None,
        Ok(_) | Err(_) => Some("this is no URL"),
    }
}

/// Whether the written part of a url template has a segment that is not sent as it is written.
pub(super) fn has_dots(text: &str) -> bool {
    // What stands inside braces is a value; it is looked at when it is inserted.
    let mut written = String::new();
    let mut rest = text;
    let opening = |rest: &str| {
        let marks = [("{{", "}}"), ("{%", "%}"), ("{#", "#}")];
        marks.into_iter().filter_map(|(open, end)| Some((rest.find(open)?, end))).min()
    };
    while let Some((at, end)) = opening(rest) {
        let (before, inside) = rest.split_at(at);
        written.push_str(before);
        written.push_str("{}");
        rest = inside.split_once(end).map_or("", |(_, rest)| rest);
    }
    written.push_str(rest);
    path_segments(&written).any(is_dots)
}
