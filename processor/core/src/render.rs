//! Requests: a rule and an event make the exact bytes that every attempt sends.
//!
//! Reads: the rule and a scope. Gives: a [`Request`] to be stored, or the reason why this event
//! makes none. Depends on nothing else, so that any process renders the same bytes.

pub mod json;

use crate::connector::{
    BodyRule, HttpRule, RecordRule, RequestRule, SmtpRule, ValueRule, WebhookRule,
};
use crate::effect::request::{EmailRequest, HttpRequest, RecordRequest, Request};
use crate::expr::Scope;
use crate::template::{RenderError, Template, url_encoded};

/// Bytes of a URL.
pub const URL_BYTES_MAX: usize = 8192;
/// Characters of a topic's name, as Kafka allows.
pub const TOPIC_CHARS_MAX: usize = 249;

/// Why an event makes no request. Texts name places, never values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("{place} cannot be rendered")]
    Render {
        place: Box<str>,
        #[source]
        cause: RenderError,
    },
    /// A line break or NUL in a header would let the event add headers of its own.
    #[error("{place} would contain a line break or a control character")]
    ControlCharacter { place: Box<str> },
    #[error("{place} is empty")]
    Empty { place: Box<str> },
    #[error("the URL has {bytes} bytes, more than {URL_BYTES_MAX}")]
    UrlTooLong { bytes: usize },
    #[error("the topic is no name that Kafka allows")]
    TopicName,
}

/// Renders the request of a call.
///
/// # Errors
/// [`RequestError`] names the place that does not fit the event.
pub fn request(rule: &RequestRule, scope: &Scope<'_>) -> Result<Request, RequestError> {
    match rule {
        RequestRule::Http(rule) | RequestRule::Webhook(WebhookRule { http: rule, .. }) => {
            http(rule, scope).map(Request::Http)
        }
        RequestRule::Smtp(rule) => email(rule, scope).map(Request::Email),
        RequestRule::Record(rule) => record(rule, scope).map(Request::Record),
    }
}

// --------------------------------------------------------------------------------------------- //

/// Renders one HTTP request.
///
/// # Errors
/// As [`request`].
pub fn http(rule: &HttpRule, scope: &Scope<'_>) -> Result<HttpRequest, RequestError> {
    let url = line("url", &rule.url, scope)?;
    if url.len() > URL_BYTES_MAX {
        return Err(RequestError::UrlTooLong { bytes: url.len() });
    }
    let mut headers = Vec::with_capacity(rule.headers.len().saturating_add(1));
    for (name, value) in &rule.headers {
        let value = field(&format!("header {name}"), value, scope)?;
        headers.push((name.to_ascii_lowercase().into(), value.into()));
    }
    let (kind, body) = match &rule.body {
        BodyRule::None => (None, None),
        BodyRule::Json(tree) => (Some("application/json"), Some(json::render(tree, scope)?)),
        BodyRule::Form(pairs) => {
            (Some("application/x-www-form-urlencoded"), Some(form(pairs, scope)?))
        }
    };
    let declared = headers.iter().any(|(name, _): &(Box<str>, Box<str>)| &**name == "content-type");
    if let Some(kind) = kind.filter(|_| !declared) {
        headers.push(("content-type".into(), kind.into()));
    }
    let body = body.map(String::into_boxed_str);
    Ok(HttpRequest { method: rule.method.clone(), url: url.into(), headers, body })
}

fn form(pairs: &[(Box<str>, Template)], scope: &Scope<'_>) -> Result<String, RequestError> {
    let mut out = String::new();
    for (name, value) in pairs {
        let value = render(&format!("form.{name}"), value, scope)?;
        if !out.is_empty() {
            out.push('&');
        }
        out.push_str(&url_encoded(name));
        out.push('=');
        out.push_str(&url_encoded(&value));
    }
    Ok(out)
}

fn email(rule: &SmtpRule, scope: &Scope<'_>) -> Result<EmailRequest, RequestError> {
    let body = |place: &str, template: &Option<Template>| {
        let text = template.as_ref().map(|template| render(place, template, scope)).transpose()?;
        match text {
            Some(text) if text.contains('\0') => {
                Err(RequestError::ControlCharacter { place: place.into() })
            }
            text => Ok(text.map(String::into_boxed_str)),
        }
    };
    Ok(EmailRequest {
        from: line("from", &rule.from, scope)?.into(),
        to: line("to", &rule.to, scope)?.into(),
        subject: field("subject", &rule.subject, scope)?.into(),
        text: body("text", &rule.text)?,
        html: body("html", &rule.html)?,
    })
}

/// Whether Kafka allows a topic of this name.
pub fn is_topic_name(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=TOPIC_CHARS_MAX).contains(&name.len())
        && name.chars().all(letter)
        && !matches!(name, "." | "..")
}

fn record(rule: &RecordRule, scope: &Scope<'_>) -> Result<RecordRequest, RequestError> {
    let topic = render("topic", &rule.topic, scope)?;
    if !is_topic_name(&topic) {
        return Err(RequestError::TopicName);
    }
    let key = rule.key.as_ref().map(|key| render("key", key, scope)).transpose()?;
    let mut headers = Vec::with_capacity(rule.headers.len());
    for (name, value) in &rule.headers {
        let value = render(&format!("header {name}"), value, scope)?;
        headers.push((name.clone(), value.into()));
    }
    let value = match &rule.value {
        ValueRule::Null => None,
        ValueRule::Text(text) => Some(render("text", text, scope)?),
        ValueRule::Json(tree) => Some(json::render(tree, scope)?),
    };
    Ok(RecordRequest {
        topic: topic.into(),
        key: key.map(Into::into),
        headers,
        value: value.map(Into::into),
    })
}

fn render(place: &str, template: &Template, scope: &Scope<'_>) -> Result<String, RequestError> {
    let render = |cause| RequestError::Render { place: place.into(), cause };
    template.render(scope).map_err(render)
}

/// A text of one line: a tab is the only control character it may have.
fn field(place: &str, template: &Template, scope: &Scope<'_>) -> Result<String, RequestError> {
    let text = render(place, template, scope)?;
    let control = |letter: char| letter.is_control() && letter != '\t';
    // Mail programs of the past also break lines at these two.
    let separator = |letter: char| matches!(letter, '\u{2028}' | '\u{2029}');
    if text.chars().any(|letter| control(letter) || separator(letter)) {
        return Err(RequestError::ControlCharacter { place: place.into() });
    }
    Ok(text)
}

/// A [`field`] that must say something.
fn line(place: &str, template: &Template, scope: &Scope<'_>) -> Result<String, RequestError> {
    let text = field(place, template, scope)?;
    if text.trim().is_empty() {
        return Err(RequestError::Empty { place: place.into() });
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
