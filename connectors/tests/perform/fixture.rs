//! Rules, requests and secrets for the tests.

use std::sync::Arc;

use oncely_connectors::effect::egress::Egress;
use oncely_connectors::effect::performer::{Performed, Performer, PerformerError};
use oncely_connectors::secret::{Reference, Secret, SecretSource};
use oncely_core::connector::{
    Auth, BodyRule, CallRule, HttpRule, Limits, OnUnknown, Profile, RequestRule, SecretText,
    SigningSecret, SmtpRule, StatusClass, StatusRange, StatusRule, Timeout, WebhookRule,
};
use oncely_core::effect::outcome::Attempt;
use oncely_core::effect::request::{HttpRequest, Request};
use oncely_core::effect::retry::Retry;
use oncely_core::expr::Expr;
use oncely_core::key::Key;
use oncely_core::template::{Target, Template};

/// The value of every secret that has one.
pub(crate) const CANARY: &str = "canary-s3cret";

/// What the clock says when calls are signed.
pub(crate) const NOW_MS: i64 = 1_649_367_553_999;

/// Secrets of webhooks: the one of the specification's vector, and another.
pub(crate) const WEBHOOK: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
pub(crate) const WEBHOOK_NEW: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// Total timeout of calls that are meant to run into it.
pub(crate) const SHORT_MS: u64 = 400;

struct Canaries;

impl SecretSource for Canaries {
    fn lookup(&self, reference: &Reference) -> Option<Secret> {
        match reference {
            Reference::Secret { name } if &**name == "token" => Some(Secret::new(CANARY)),
            Reference::Secret { name } if &**name == "webhook" => Some(Secret::new(WEBHOOK)),
            Reference::Secret { name } if &**name == "webhook_new" => {
                Some(Secret::new(WEBHOOK_NEW))
            }
            Reference::Secret { .. } | Reference::Env { .. } => None,
        }
    }
}

pub(crate) fn canaries() -> Arc<dyn SecretSource> {
    Arc::new(Canaries)
}

pub(crate) fn rule(request: RequestRule) -> CallRule {
    CallRule {
        kind: "http",
        model: None,
        request,
        reads_results: false,
        record: Vec::new(),
        profile: Profile {
            name: "test".into(),
            key_header: Some("Idempotency-Key".into()),
            key_window_ms: None,
            applies_within_ms: None,
            statuses: Vec::new(),
        },
        on_unknown: OnUnknown::Hold,
        lookup: None,
        retry: Retry::new(1, 1, 1, 1).unwrap(),
        timeout: Timeout { connect_ms: 300, total_ms: 5_000 },
        limits: Limits { concurrency: 8, rate: None },
    }
}

pub(crate) fn http(url: &str) -> CallRule {
    rule(RequestRule::Http(HttpRule {
        method: "POST".into(),
        url: Template::compile(url, Target::Url).unwrap(),
        headers: Vec::new(),
        auth: None,
        body: BodyRule::None,
    }))
}

pub(crate) fn webhook(url: &str, secrets: &[&str], allow: &[&str]) -> CallRule {
    let RequestRule::Http(http) = http(url).request else { panic!("http") };
    let secret = |name: &&str| SecretText(format!("${{secret:{name}}}").into());
    let secrets = secrets.iter().map(secret).map(SigningSecret::Shared);
    let allow = allow.iter().map(|host| (*host).into());
    let mut rule = rule(RequestRule::Webhook(WebhookRule {
        http,
        secrets: secrets.collect(),
        allow: allow.collect(),
    }));
    rule.profile.key_header = Some("webhook-id".into());
    rule
}

pub(crate) fn with_auth(mut rule: CallRule, auth: Auth) -> CallRule {
    match &mut rule.request {
        RequestRule::Http(http) => http.auth = Some(auth),
        RequestRule::Webhook(webhook) => webhook.http.auth = Some(auth),
        RequestRule::Smtp(smtp) => smtp.auth = Some(auth),
        RequestRule::Record(_) => panic!("a record is no call"),
    }
    rule
}

pub(crate) fn recording(mut rule: CallRule, name: &str, text: &str) -> CallRule {
    rule.record.push((name.into(), Expr::compile(text).unwrap()));
    rule
}

pub(crate) fn status(mut rule: CallRule, status: u16, class: StatusClass) -> CallRule {
    let range = StatusRange { first: status, last: status };
    rule.profile.statuses.push(StatusRule { range, when: None, class });
    rule
}

pub(crate) fn short(mut rule: CallRule) -> CallRule {
    rule.timeout.total_ms = SHORT_MS;
    rule
}

pub(crate) fn smtp(server: &str) -> CallRule {
    let template = |text| Template::compile(text, Target::Text).unwrap();
    rule(RequestRule::Smtp(SmtpRule {
        server: SecretText(server.into()),
        auth: None,
        from: template("a@example.org"),
        to: template("b@example.net"),
        subject: template("x"),
        text: Some(template("x")),
        html: None,
    }))
}

pub(crate) fn token() -> SecretText {
    SecretText("${secret:token}".into())
}

pub(crate) fn performer(rule: &CallRule) -> Performer {
    Performer::new(rule, &canaries(), &Egress::default(), || NOW_MS).unwrap()
}

pub(crate) fn refused(rule: &CallRule) -> PerformerError {
    Performer::new(rule, &canaries(), &Egress::default(), || NOW_MS).unwrap_err()
}

pub(crate) fn key(id: &str) -> Key {
    Key::effect("s", "t", "charge", &[id.to_owned()])
}

pub(crate) fn post(url: &str, body: &str) -> Request {
    Request::Http(HttpRequest {
        method: "POST".into(),
        url: url.into(),
        headers: vec![("content-type".into(), "application/json".into())],
        body: Some(body.into()),
    })
}

pub(crate) async fn attempt(performer: &Performer, request: &Request) -> Attempt {
    attempted(performer.perform(&key("1"), "t", request, || true).await)
}

pub(crate) fn attempted(performed: Performed) -> Attempt {
    match performed {
        Performed::Attempted(attempt) => attempt,
        Performed::NotSent => panic!("not sent"),
    }
}
