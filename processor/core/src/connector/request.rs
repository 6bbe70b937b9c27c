//! How the request of an effect is made.

use std::fmt;

use crate::expr::Path;
use crate::template::{Template, TextTree};

/// How the request of a call is made.
#[derive(Debug)]
pub enum RequestRule {
    Http(HttpRule),
    Webhook(WebhookRule),
    Smtp(SmtpRule),
    Record(RecordRule),
}

impl RequestRule {
    /// Calls `visit` with everything that a request looks at.
    pub fn for_each_read(&self, visit: &mut dyn FnMut(&Path)) {
        match self {
            Self::Http(http) | Self::Webhook(WebhookRule { http, .. }) => http.for_each_read(visit),
            Self::Smtp(mail) => {
                let parts = [Some(&mail.from), Some(&mail.to), Some(&mail.subject)];
                let bodies = [mail.text.as_ref(), mail.html.as_ref()];
                for template in parts.into_iter().chain(bodies).flatten() {
                    template.reads().iter().for_each(&mut *visit);
                }
            }
            Self::Record(record) => {
                let headers = record.headers.iter().map(|(_, value)| value);
                for template in [&record.topic].into_iter().chain(&record.key).chain(headers) {
                    template.reads().iter().for_each(&mut *visit);
                }
                match &record.value {
                    ValueRule::Null => {}
                    ValueRule::Text(text) => text.reads().iter().for_each(&mut *visit),
                    ValueRule::Json(tree) => tree.for_each_read(visit),
                }
            }
        }
    }
}

/// A record of a Kafka topic.
#[derive(Debug)]
pub struct RecordRule {
    /// May come out of the event.
    pub topic: Template,
    /// Decides partition and order; `None`: neither is of interest.
    pub key: Option<Template>,
    /// Beside the message id.
    pub headers: Vec<(Box<str>, Template)>,
    pub value: ValueRule,
}

/// The value of a record.
#[derive(Debug)]
pub enum ValueRule {
    /// A tombstone.
    Null,
    Text(Template),
    Json(TextTree),
}

#[derive(Debug)]
pub struct HttpRule {
    pub method: Box<str>,
    pub url: Template,
    /// Names and values that may be stored; what is secret goes into `auth`.
    pub headers: Vec<(Box<str>, Template)>,
    pub auth: Option<Auth>,
    pub body: BodyRule,
}

impl HttpRule {
    /// Calls `visit` with everything that the request looks at.
    pub fn for_each_read(&self, visit: &mut dyn FnMut(&Path)) {
        self.url.reads().iter().for_each(&mut *visit);
        for (_, value) in &self.headers {
            value.reads().iter().for_each(&mut *visit);
        }
        match &self.body {
            BodyRule::None => {}
            BodyRule::Json(tree) => tree.for_each_read(visit),
            BodyRule::Form(pairs) => {
                for (_, value) in pairs {
                    value.reads().iter().for_each(&mut *visit);
                }
            }
        }
    }
}

/// A signed call of somebody else's endpoint, by the rules of Standard Webhooks.
#[derive(Debug)]
pub struct WebhookRule {
    /// A POST with a body; the url may come out of the event.
    pub http: HttpRule,
    /// At least one. Each gives a signature, so that receivers can go over to another in their own time.
    pub secrets: Vec<SigningSecret>,
    /// `host` or `host:port` that may be called although it is not public.
    pub allow: Vec<Box<str>>,
}

/// A secret that signs webhooks.
#[derive(Debug)]
pub enum SigningSecret {
    /// The same for every tenant.
    Shared(SecretText),
    /// Each tenant's own: the template gives the name of a `${secret:name}`, and reads the tenant alone.
    OfTenant(Template),
}

#[derive(Debug)]
pub enum BodyRule {
    None,
    /// Texts of the tree are templates; one that is a single `{{ expression }}` keeps its type.
    Json(TextTree),
    /// `application/x-www-form-urlencoded`, pairs in the order of the file.
    Form(Vec<(Box<str>, Template)>),
}

/// Credentials, resolved when a call is made and never stored.
#[derive(Clone, Debug)]
pub enum Auth {
    Bearer(SecretText),
    Basic { user: SecretText, password: SecretText },
    Header { name: Box<str>, value: SecretText },
}

/// A text with references to secrets (`Token ${secret:billing}`), as it stands in the file.
/// The references are checked; the values are looked up by the shell.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(pub Box<str>);

/// As it is written, without the defaults of variables, which may be secret themselves.
impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut pieces = self.0.split("${");
        f.write_str(pieces.next().unwrap_or_default())?;
        pieces.try_for_each(|piece| match piece.split_once('}') {
            Some((inside, after)) => {
                let name = inside.split_once(":-").map_or(inside, |(name, _)| name);
                write!(f, "${{{name}}}{after}")
            }
            None => f.write_str("${"),
        })
    }
}

#[derive(Debug)]
pub struct SmtpRule {
    /// `smtp://host:port`, `smtps://…`, or `smtp+starttls://…`.
    pub server: SecretText,
    pub auth: Option<Auth>,
    pub from: Template,
    pub to: Template,
    pub subject: Template,
    pub text: Option<Template>,
    pub html: Option<Template>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s13_a_secret_text_shows_its_references_only() {
        let text = SecretText("a ${secret:x} ${env:P:-CANARY}! ${env:Q:-CANARY".into());
        assert_eq!(format!("{text:?}"), "a ${secret:x} ${env:P}! ${");
    }
}
