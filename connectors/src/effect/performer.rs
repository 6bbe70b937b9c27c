//! The one door to providers.
//!
//! Reads: an effect's rule and its secrets, once; then rendered requests. Gives: one classified
//! attempt per request. Never: repeats a request by itself, stores a credential, or sends after the
//! caller's right to send has ended.

use std::sync::Arc;

use oncely_core::connector::{CallRule, RequestRule, WebhookRule};
use oncely_core::effect::lookup::{Finding, LookedUp};
use oncely_core::effect::outcome::{Attempt, Outcome};
use oncely_core::effect::request::{HttpRequest, Request};
use oncely_core::expr::ExprError;
use oncely_core::key::Key;

use super::egress::{Egress, EgressError};
use super::email::EmailPerformer;
use super::http::lookup::Asker;
use super::http::{Dispatch, HttpPerformer};
use super::webhook::{Keyring, KeyringError};
use crate::secret::{SecretError, SecretSource};

/// Performs the calls of one effect. One per effect and process; shared by all of its calls.
#[derive(Debug)]
pub struct Performer {
    kind: Kind,
    asker: Option<Asker>,
}

#[derive(Debug)]
enum Kind {
    Http(HttpPerformer),
    Email(EmailPerformer),
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Performed {
    Attempted(Attempt),
    /// The right to send had ended; not one byte of the effect has left.
    NotSent,
}

/// A stored request that goes to another scheme, host or port than the connector file now names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Scheme, host and port, as in the request and as in the file.
    pub from: String,
    pub to: String,
    /// The same request to there; `None`: its path does not begin as the file's url does,
    /// so nobody has said where it belongs.
    pub request: Option<Request>,
}

/// What became of a look-up.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    Answered(LookedUp),
    /// The right to send had ended; nothing was asked.
    NotAsked,
}

/// Why an effect cannot be performed as it is configured.
#[derive(Debug, thiserror::Error)]
pub enum PerformerError {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("an expression over the answer cannot be compiled: {0}")]
    Record(#[from] ExprError),
    #[error("a record is no call: it goes through the outbox")]
    NoCall,
    #[error("the HTTP client cannot be made")]
    Client(#[source] reqwest::Error),
    #[error("TLS cannot be set up with the certificates of this system")]
    Tls(#[source] native_tls::Error),
    #[error("the url before its first template is none")]
    Url { cause: url::ParseError },
    #[error("`{scheme}` is no scheme of this effect")]
    Scheme { scheme: String },
    #[error("credentials belong into `auth`, not into the url")]
    UrlCredentials,
    #[error("header `{name}` belongs to the connection and cannot be set")]
    Framing { name: String },
    #[error("`{method}` is no HTTP method")]
    Method { method: String },
    #[error("`{name}` is no header name")]
    HeaderName { name: String },
    #[error("the credential for `{header}` has bytes that no header may have (a line break?)")]
    CredentialBytes { header: String },
    #[error(
        "the event names the host, so `auth` would hand the secret to whoever writes events: write \
         scheme and host in the connector file"
    )]
    SecretToEventHost,
    #[error(transparent)]
    Signing(#[from] KeyringError),
    #[error("{cause}; if it is one of your own, write it into the endpoint's `allow`")]
    Endpoint { cause: EgressError },
    #[error("the mail server's url must be `smtp://`, `smtps://` or `smtp+starttls://` and a host")]
    MailServer,
    #[error("mail servers take `auth: {{ basic: … }}` only")]
    MailAuth,
    #[error("credentials would go to the mail server unencrypted: use `smtps` or `smtp+starttls`")]
    PlainCredentials,
    #[error("TLS towards the mail server cannot be set up")]
    MailTls(#[source] lettre::transport::smtp::Error),
}

impl Performer {
    /// Looks up the secrets and makes the client. Opens no connection. `wall_ms` gives the time since
    /// 1970, for signatures.
    ///
    /// # Errors
    /// [`PerformerError`] says what of the configuration is to be put right.
    pub fn new(
        rule: &CallRule,
        secrets: &Arc<dyn SecretSource>,
        egress: &Egress,
        wall_ms: fn() -> i64,
    ) -> Result<Self, PerformerError> {
        let kind = match &rule.request {
            RequestRule::Http(http) => {
                let dispatch = Dispatch::plain(http, &**secrets, egress)?;
                Kind::Http(HttpPerformer::new(rule, http, dispatch)?)
            }
            RequestRule::Webhook(webhook) => {
                let dispatch = dispatch(webhook, secrets, egress, wall_ms)?;
                Kind::Http(HttpPerformer::new(rule, &webhook.http, dispatch)?)
            }
            RequestRule::Smtp(smtp) => Kind::Email(EmailPerformer::new(rule, smtp, &**secrets)?),
            RequestRule::Record(_) => return Err(PerformerError::NoCall),
        };
        let asker = rule.lookup.as_ref();
        let asker = asker.map(|lookup| Asker::new(rule, lookup, &**secrets, egress)).transpose()?;
        Ok(Self { kind, asker })
    }

    /// Sends `request` once, and answers within the effect's total timeout (plus at most a second in
    /// which the connection is put away).
    ///
    /// `tenant` may have secrets of its own, with which its webhooks are signed.
    ///
    /// `may_send` says whether the caller may still send; it must be quick, and is asked more than
    /// once: at the start, and again after connecting, when the request lies ready and its first
    /// byte is the next thing to happen. For an HTTP request without a body there is no such late
    /// moment: there it is asked before connecting, so the caller's margin must exceed the connect
    /// timeout. For a mail the effect begins with the message itself, after the envelope.
    ///
    /// Dropping the future holds back what has not begun; what has begun is unknown to all.
    pub async fn perform<F>(
        &self,
        key: &Key,
        tenant: &str,
        request: &Request,
        may_send: F,
    ) -> Performed
    where
        F: Fn() -> bool + Send + Sync + 'static,
    {
        match (&self.kind, request) {
            (Kind::Http(http), Request::Http(request)) => {
                http.perform(key, tenant, request, may_send).await
            }
            (Kind::Email(email), Request::Email(request)) => {
                email.perform(key, request, may_send).await
            }
            (Kind::Http(_), Request::Email(_) | Request::Record(_))
            | (Kind::Email(_), Request::Http(_) | Request::Record(_)) => {
                Performed::Attempted(other_kind())
            }
        }
    }
}

impl Performer {
    /// Whether the file has another scheme, host or port by now than when `request` was made. Only where
    /// the file alone names them: what an event named stays where it was, behind the guard.
    pub fn moved(&self, request: &Request) -> Option<Moved> {
        match (&self.kind, request) {
            (Kind::Http(http), Request::Http(request)) => http.moved(request),
            (Kind::Http(_) | Kind::Email(_), _) => None,
        }
    }

    /// Asks the provider once whether the effect took place, by the effect's look-up. Bounded as
    /// [`Performer::perform`] is; `may_send` is asked before connecting.
    pub async fn look_up<F>(&self, key: &Key, request: &HttpRequest, may_send: F) -> Asked
    where
        F: Fn() -> bool + Send + Sync + 'static,
    {
        let Some(asker) = &self.asker else {
            let text = "the effect has no look-up any more".to_owned();
            return Asked::Answered(LookedUp { finding: Finding::Unaskable, status: None, text });
        };
        asker.ask(key, request, may_send).await.map_or(Asked::NotAsked, Asked::Answered)
    }
}

/// An endpoint is somebody else's, whoever names it: the guard stands before every one.
fn dispatch(
    webhook: &WebhookRule,
    secrets: &Arc<dyn SecretSource>,
    egress: &Egress,
    wall_ms: fn() -> i64,
) -> Result<Dispatch, PerformerError> {
    let egress = egress.and(&webhook.allow);
    let keyring = Keyring::new(&webhook.secrets, secrets)?;
    Dispatch::signed(&webhook.http, egress, keyring, wall_ms)
}

/// The effect's type was changed while requests of the old type were waiting.
fn other_kind() -> Attempt {
    Attempt {
        outcome: Outcome::Halted,
        status: None,
        text: "the stored request is of another type than the effect now has".to_owned(),
    }
}
