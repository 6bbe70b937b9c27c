//! The connector's own rules, with a provider of this program in place of the real ones.
//!
//! Reads: a compiled connector, and where the provider listens. Gives: the same connector with other
//! urls, without credentials, with made-up values for what is recorded of answers, and with times short
//! enough to wait for. What follows from an unknown outcome, keys, order and state stay as they are.

use std::fmt;
use std::str::FromStr;

use oncely_core::connector::{
    BodyRule, CallRule, Connector, EffectBody, GroupProtocol, HttpRule, LookupRule, OnUnknown,
    RequestRule, SecretText, SigningSecret, Start, Timeout,
};
use oncely_core::effect::retry::{Retry, RetryError};
use oncely_core::expr::{Expr, ExprError};
use oncely_core::template::{Target, Template, TemplateError};

/// A call's time, of which a proof has to wait for several.
const TIMEOUT: Timeout = Timeout { connect_ms: 500, total_ms: 1_000 };
/// After so long "not found" is believed: the time-out, and a little.
const SETTLE_MS: u64 = 1_400;
const ATTEMPTS_MAX: u32 = 50;
const BACKOFF_MS: (u64, u64) = (50, 300);
const ELAPSED_MS_MAX: u64 = 60_000;
/// The type of effects that ask a model.
const MODEL: &str = "llm";
/// What a model is said to have used, where its provider keeps keys or can be asked.
const USED: &str = r#"{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}"#;
/// Signs webhooks to nobody.
const SIGNING: &str = "whsec_b25jZS1vbmNlLW9uY2Utb25jZS1vbmNlLW9uY2U=";

/// What a provider can do when an answer is lost, as the connector file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It keeps our key: the same bytes are sent again.
    Keyed,
    /// It is asked.
    Asked,
    /// Neither: a person decides.
    Neither,
    /// Neither, and the file says to count it as done.
    Assumed,
}

impl Class {
    /// By what the file says of an unknown outcome.
    pub const fn of(call: &CallRule) -> Self {
        match call.on_unknown {
            OnUnknown::RetrySameKey => Self::Keyed,
            OnUnknown::Reconcile => Self::Asked,
            OnUnknown::Hold => Self::Neither,
            OnUnknown::AssumeDone => Self::Assumed,
        }
    }

    /// Where the provider plays it. One of models answers as models do.
    fn endpoint(self, call: &CallRule) -> &'static str {
        match self {
            Self::Keyed => "keyed",
            Self::Asked => "lookup",
            Self::Neither | Self::Assumed if call.kind == MODEL => "model",
            Self::Neither | Self::Assumed => "plain",
        }
    }
}

/// Where the provider listens, on this machine: `HTTP-PORT:SMTP-PORT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StandIn {
    pub http: u16,
    pub smtp: u16,
}

impl fmt::Display for StandIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.http, self.smtp)
    }
}

/// Why a connector cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum StandInError {
    #[error("two ports of this machine, HTTP-PORT:SMTP-PORT, not `{0}`")]
    Ports(String),
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error(transparent)]
    Expr(#[from] ExprError),
    #[error(transparent)]
    Retry(#[from] RetryError),
}

impl FromStr for StandIn {
    type Err = StandInError;

    fn from_str(text: &str) -> Result<Self, StandInError> {
        let ports = text.split_once(':').and_then(|(http, smtp)| {
            Some(Self { http: http.parse().ok()?, smtp: smtp.parse().ok()? })
        });
        ports.ok_or_else(|| StandInError::Ports(text.to_owned()))
    }
}

impl StandIn {
    /// Puts the provider in the place of every real one.
    ///
    /// # Errors
    /// Texts of this program's own that cannot be compiled.
    pub fn replace(self, connector: &mut Connector) -> Result<(), StandInError> {
        // The broker inside knows no other.
        connector.source.protocol = GroupProtocol::Classic;
        connector.source.start = Start::Earliest;
        for rule in &mut connector.effects {
            if let EffectBody::Call(call) = &mut rule.body {
                self.replace_call(&rule.id, call)?;
            }
        }
        Ok(())
    }

    fn replace_call(self, id: &str, call: &mut CallRule) -> Result<(), StandInError> {
        let class = Class::of(call);
        let (port, endpoint) = (self.http, class.endpoint(call));
        let url = || {
            // The key stands in the url as well, so that the provider's log has it for every class.
            let text = format!("http://127.0.0.1:{port}/{endpoint}/{id}?key={{{{ effect.key }}}}");
            Template::compile(&text, Target::Url)
        };
        let names: Vec<Box<str>> = call.record.iter().map(|(name, _)| name.clone()).collect();
        if endpoint != "model" {
            call.record = made_up(call, &names)?;
        }
        match &mut call.request {
            RequestRule::Http(http) => replace_http(http, url()?),
            RequestRule::Webhook(webhook) => {
                replace_http(&mut webhook.http, url()?);
                webhook.secrets = vec![SigningSecret::Shared(SecretText(SIGNING.into()))];
                webhook.allow.push("127.0.0.1".into());
            }
            RequestRule::Smtp(smtp) => {
                let port = self.smtp;
                smtp.server = SecretText(format!("smtp://127.0.0.1:{port}").into());
                smtp.auth = None;
            }
            // No call is made of a record.
            RequestRule::Record(_) => {}
        }
        let made_up_of_lookup = made_up(call, &names)?;
        if let Some(lookup) = &mut call.lookup {
            *lookup = LookupRule {
                request: HttpRule {
                    method: "GET".into(),
                    url: url()?,
                    headers: Vec::new(),
                    auth: None,
                    body: BodyRule::None,
                },
                done: Expr::compile("response.json.total > 0")?,
                not_found: None,
                record: made_up_of_lookup,
                answer: None,
                settle_ms: SETTLE_MS,
                on_not_found: lookup.on_not_found,
            };
        }
        let (base, cap) = BACKOFF_MS;
        call.retry = Retry::new(ATTEMPTS_MAX, base, cap, ELAPSED_MS_MAX)?;
        call.timeout = TIMEOUT;
        call.limits.rate = None;
        Ok(())
    }
}

/// Values for what is recorded of answers: no provider of ours knows what the real one says.
fn made_up(call: &CallRule, names: &[Box<str>]) -> Result<Vec<(Box<str>, Expr)>, ExprError> {
    let value = |name: &str| match name {
        "usage" if call.kind == MODEL => USED.to_owned(),
        name => format!("\"{name}\""),
    };
    names.iter().map(|name| Ok((name.clone(), Expr::compile(&value(name))?))).collect()
}

fn replace_http(http: &mut HttpRule, url: Template) {
    http.url = url;
    http.auth = None;
    // Whatever has an effect is a POST there; a GET asks.
    http.method = "POST".into();
}
