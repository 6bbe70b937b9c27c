//! Webhooks: whose endpoint is called, with which secrets it is signed, and what it says.

use oncely_core::connector::{
    BodyRule, EffectBody, HttpRule, OnUnknown, RequestRule, SigningSecret, WebhookRule,
};
use oncely_core::expr::Root;
use oncely_core::template::{Target, Template, TextNode, TextTree};
use url::Url;

use super::super::Check;
use super::super::diagnostic::{Code, Fault};
use super::super::profiles::Known;
use super::super::raw::{RawEffect, RawEndpoint};
use super::super::read::Field;
use super::super::source::Span;
use super::Compiler;
use super::call::has_dots;
use crate::effect::egress::Egress;
use crate::effect::webhook::Signer;
use crate::secret::resolve;

/// Secrets of one endpoint: a new one, an old one, and room for a mistake.
const SECRETS_MAX: usize = 5;

impl Compiler<'_> {
    pub(super) fn webhook(&mut self, raw: &RawEffect, at: Span) -> Option<EffectBody> {
        let made = self.call(raw, at, "standard-webhooks", |this, known| {
            this.signed(raw, at, known).map(RequestRule::Webhook)
        });
        match made? {
            EffectBody::Call(mut call) => {
                // Receivers tell repeats by the id, and endpoints answer 500 every day.
                if raw.on_unknown.is_none() {
                    call.on_unknown = OnUnknown::RetrySameKey;
                }
                Some(EffectBody::Call(call))
            }
            other @ (EffectBody::Ledger(_) | EffectBody::Publish(_)) => Some(other),
        }
    }

    fn signed(&mut self, raw: &RawEffect, at: Span, known: &Known) -> Option<WebhookRule> {
        let body = self.payload(raw, at);
        let Some(endpoint) = &raw.endpoint else {
            self.missing("webhook.endpoint", at);
            return None;
        };
        let (span, endpoint) = endpoint.valid()?;
        self.need(&endpoint.url, "endpoint.url", span);
        self.need(&endpoint.secrets, "endpoint.secrets", span);
        let allow = self.allowed(endpoint);
        let url = self.endpoint_url(&endpoint.url, &allow);
        let headers = self.headers(endpoint.headers.as_ref(), known);
        let secrets = self.secrets(endpoint);
        let http = HttpRule {
            method: "POST".into(),
            url: url?,
            headers,
            auth: None,
            body: BodyRule::Json(body?),
        };
        Some(WebhookRule { http, secrets: secrets?, allow })
    }

    /// `type`, `timestamp` and `data`, as receivers expect it; the data alone where no type is given.
    fn payload(&mut self, raw: &RawEffect, at: Span) -> Option<TextTree> {
        let Some(data) = &raw.json else {
            self.missing("webhook.json", at);
            return None;
        };
        let data = self.tree(data);
        let kind = raw.event_type.as_ref().map(|kind| self.template(kind, Target::Text));
        let moment = raw.at.as_ref().and_then(Field::valid);
        let moment = moment.map(|(span, text)| (span, self.node(span, text)));
        match (kind, moment) {
            (None, None) => data,
            (None, Some((span, _))) => {
                let finding =
                    Fault::new(Code::Request, span, "`at` has a place only beside `event_type`");
                self.add(finding.help("name the type of the event: `event_type: invoice.paid`"));
                None
            }
            (Some(kind), moment) => {
                let kind = TextTree::Text(TextNode::from_template(kind?));
                let mut members = vec![("type".into(), kind)];
                if let Some((_, moment)) = moment {
                    members.push(("timestamp".into(), TextTree::Text(moment?)));
                }
                members.push(("data".into(), data?));
                Some(TextTree::Object(members))
            }
        }
    }

    fn allowed(&mut self, endpoint: &RawEndpoint) -> Vec<Box<str>> {
        let mut hosts = Vec::new();
        for host in endpoint.allow.as_ref().and_then(Field::get).into_iter().flatten() {
            let Some((span, text)) = host.valid() else { continue };
            let Some(text) = self.plain(span, text) else { continue };
            if text.is_empty() || text.contains(['/', '*', '@', ' ', ',']) {
                let finding = Fault::new(Code::BadName, span, "this is no host");
                self.add(finding.help(host_of(&text)));
                continue;
            }
            hosts.push(text.to_ascii_lowercase().into());
        }
        hosts
    }

    /// Written out, or out of the event: whole, or from some place behind the scheme on.
    fn endpoint_url(&mut self, field: &Field<String>, allow: &[Box<str>]) -> Option<Template> {
        let (span, text) = field.valid()?;
        let is_whole = text.trim_start().starts_with("{{");
        // A url that is inserted whole is not to be encoded once more.
        let target = if is_whole { Target::Text } else { Target::Url };
        let template = self.template(field, target)?;
        let wrong = if is_whole { None } else { self.wrong_endpoint(text, template.text(), allow) };
        if let Some((what, help)) = wrong {
            if template.text().contains('@') {
                self.findings.hide(span);
            }
            self.add(Fault::new(Code::Request, span, what).help(help));
            return None;
        }
        Some(template)
    }

    /// What is wrong with the written part of an endpoint's url, and the remedy.
    fn wrong_endpoint(
        &self,
        written: &str,
        text: &str,
        allow: &[Box<str>],
    ) -> Option<(String, String)> {
        let because = |what: &str, help: &str| Some((what.to_owned(), help.to_owned()));
        let form = "write `https://host/path`, or take all of it from the event: \
                    `\"{{ event.endpoint }}\"`";
        let literal = text.find("{{").into_iter().chain(text.find("{%")).min();
        let fixed = text.get(..literal.unwrap_or(text.len())).unwrap_or_default();
        let Some((scheme, rest)) = fixed.split_once("://") else {
            return because("this is no URL", form);
        };
        if !["http", "https"].contains(&scheme) {
            return because("only `http` and `https` are called", form);
        }
        if text.contains('#') {
            return because("a fragment is never sent", "remove it");
        }
        if has_dots(text) {
            let what = "a segment `.` or `..` is resolved away before anything is sent";
            return because(what, "write the path that is meant");
        }
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        if authority.contains('@') {
            return because(
                "credentials do not stand in a URL",
                "a webhook is known by its signature",
            );
        }
        let host_is_written = literal.is_none() || authority.len() < rest.len();
        // Without the settings of where it runs the host may be another one.
        if !host_is_written || (self.check == Check::Offline && written.contains("${")) {
            return None;
        }
        let Ok(url) = Url::parse(&format!("{scheme}://{authority}/")) else {
            return because("this is no URL", form);
        };
        let refused = Egress::default().and(allow).check(&url).err()?;
        let host = allowed_as(&url);
        let help = format!("if it is one of your own, write `allow: [\"{host}\"]` beside it");
        Some((format!("this endpoint is not called: {refused}"), help))
    }

    fn secrets(&mut self, endpoint: &RawEndpoint) -> Option<Vec<SigningSecret>> {
        let (span, secrets) = endpoint.secrets.valid()?;
        if secrets.is_empty() || secrets.len() > SECRETS_MAX {
            let text = format!("an endpoint has 1 to {SECRETS_MAX} secrets");
            let finding = Fault::new(Code::OutOfRange, span, text);
            self.add(finding.help("one to sign with, and beside it the one that it replaces"));
            return None;
        }
        let secret = |field: &Field<String>| {
            if field.get().is_some_and(|text| text.contains("{{")) {
                return self.of_tenant(field).map(SigningSecret::OfTenant);
            }
            let found = self.secret(field)?;
            if let (Check::Live, Ok(value)) = (self.check, resolve(&found, self.settings))
                && let Err(cause) = Signer::new(&[value])
            {
                let span = field.span().unwrap_or(span);
                let finding = Fault::new(Code::Request, span, cause.to_string());
                self.add(finding.help("make one with `echo whsec_$(openssl rand -base64 32)`"));
                return None;
            }
            Some(SigningSecret::Shared(found))
        };
        let secrets: Vec<_> = secrets.iter().map(secret).collect();
        secrets.into_iter().collect()
    }

    /// `${secret:name-{{ tenant }}}`: the name of a secret that each tenant has for itself. It begins with
    /// letters of the file, so that an event can name no other secret.
    fn of_tenant(&mut self, field: &Field<String>) -> Option<Template> {
        let (span, text) = field.valid()?;
        let name = text.strip_prefix("${secret:").and_then(|rest| rest.strip_suffix('}'));
        let own = |name: &&str| name.starts_with(|letter: char| letter.is_ascii_alphanumeric());
        let name = name.filter(own).filter(|name| !name.contains("${"));
        let template = name.and_then(|name| Template::compile(name, Target::Text).ok());
        let template = template.filter(|name| {
            let of_tenant = |path: &oncely_core::expr::Path| path.root == Root::Tenant;
            !name.reads().is_empty() && name.reads().iter().all(of_tenant)
        });
        if template.is_none() {
            if !text.starts_with("${") {
                self.findings.hide(span);
            }
            let text = "this names no secret of a tenant";
            let finding = Fault::new(Code::Reference, span, text);
            self.add(finding.help("write `\"${secret:webhook-{{ tenant }}}\"`"));
        }
        template
    }
}

/// What is allowed by a text that is no host.
fn host_of(text: &str) -> String {
    if text.contains('*') {
        return "hosts are named one by one, without `*`: `[\"a.internal\", \"b.internal:8080\"]`"
            .to_owned();
    }
    if text.contains([',', ' ']) {
        return "each is an item of its own: `[\"a.internal\", \"b.internal:8080\"]`".to_owned();
    }
    match Url::parse(text) {
        Ok(url) if url.has_host() => {
            format!("a host has neither scheme nor path: `{}`", allowed_as(&url))
        }
        Ok(_) | Err(_) => {
            "write `hooks.internal` for any of its ports, or `hooks.internal:8080`".to_owned()
        }
    }
}

/// How a host is written to be allowed.
fn allowed_as(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}
