//! What an HTTP call showed, and the class that follows.
//!
//! Reads: what was seen, and the effect's profile and `record:`. Gives: one of the six outcomes.
//! Pure: no clock (a Retry-After date is counted from the answer's own Date), no network.
//! Never: calls something "not applied" when a byte of the request may have left.

use std::borrow::Cow;
use std::time::Duration;

use oncely_core::connector::StatusClass;
use oncely_core::effect::next::RETRY_AFTER_MS_MAX;
use oncely_core::effect::outcome::Outcome;
use reqwest::header::{DATE, HeaderMap, LOCATION, RETRY_AFTER};

use super::status::Statuses;
use crate::effect::record::{Answer, Record};

/// Milliseconds, as some model providers send them beside Retry-After.
const RETRY_AFTER_MS: &str = "retry-after-ms";

/// What was seen of one HTTP call.
#[derive(Debug)]
pub enum Seen {
    /// The stored request does not fit the configuration. Nothing left.
    Misconfigured {
        cause: String,
    },
    /// The event gives no request that may be sent. Nothing left.
    Unsendable {
        cause: String,
    },
    /// What this one call needs is not there yet: the secret of its tenant. Nothing left.
    NotReady {
        cause: String,
    },
    /// No connection: refused, no such name, TLS failed, not in time. Nothing left.
    ConnectFailed {
        cause: String,
    },
    /// The connection went away before the request was given to it. Nothing left.
    BrokenBeforeFirstByte {
        cause: String,
    },
    /// A reset, a timeout or a closed connection after the first byte may have left.
    BrokenAfterSend {
        cause: String,
    },
    Answered(Reply),
}

/// An answer's head, and as much of its body as was wanted.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    /// Empty where nobody wanted it.
    pub body: Vec<u8>,
    /// Whether [`Reply::body`] is the whole body.
    pub complete: bool,
}

/// The class, and what a person should know beside the answer's own text.
#[derive(Debug, PartialEq)]
pub struct Classified {
    pub outcome: Outcome,
    /// Empty where the answer speaks for itself.
    pub cause: Cow<'static, str>,
}

/// The one place where an HTTP call gets its class.
pub fn outcome(seen: &Seen, record: &Record, statuses: &Statuses) -> Classified {
    let because = |outcome, cause: &String| Classified { outcome, cause: cause.clone().into() };
    match seen {
        Seen::Misconfigured { cause } => because(Outcome::Halted, cause),
        Seen::Unsendable { cause } => because(Outcome::Rejected, cause),
        Seen::NotReady { cause }
        | Seen::ConnectFailed { cause }
        | Seen::BrokenBeforeFirstByte { cause } => because(Outcome::NotApplied, cause),
        Seen::BrokenAfterSend { cause } => because(Outcome::Unknown, cause),
        Seen::Answered(reply) => answered(reply, record, statuses),
    }
}

fn answered(reply: &Reply, record: &Record, statuses: &Statuses) -> Classified {
    let plain = |outcome| Classified { outcome, cause: Cow::Borrowed("") };
    match statuses.class(reply) {
        StatusClass::Done => done(reply, record),
        StatusClass::Throttled => {
            plain(Outcome::Throttled { retry_after_ms: retry_after_ms(&reply.headers) })
        }
        StatusClass::Rejected => plain(Outcome::Rejected),
        StatusClass::Halted if (300..400).contains(&reply.status) => {
            redirected(reply, Outcome::Halted)
        }
        StatusClass::NotApplied if (300..400).contains(&reply.status) => {
            redirected(reply, Outcome::NotApplied)
        }
        StatusClass::Halted => plain(Outcome::Halted),
        StatusClass::Unknown if (300..400).contains(&reply.status) => sent_elsewhere(reply),
        StatusClass::Unknown => plain(Outcome::Unknown),
        StatusClass::NotApplied => plain(Outcome::NotApplied),
    }
}

fn done(reply: &Reply, record: &Record) -> Classified {
    if !reply.complete && record.reads_body() {
        let cause = "success, but the answer to be recorded broke off or is too large";
        return Classified { outcome: Outcome::Unknown, cause: cause.into() };
    }
    let headers = reply.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let answer = Answer { status: reply.status, body: &reply.body };
    match record.of(&answer, headers) {
        Ok(recorded) => Classified { outcome: Outcome::Done(recorded), cause: Cow::Borrowed("") },
        Err(error) => Classified {
            outcome: Outcome::Unknown,
            cause: format!("success, but the answer cannot be recorded: {error}").into(),
        },
    }
}

fn location(reply: &Reply) -> Option<Cow<'_, str>> {
    reply.headers.get(LOCATION).map(|value| String::from_utf8_lossy(value.as_bytes()))
}

/// An answer that names another place without saying that nothing was done.
fn sent_elsewhere(reply: &Reply) -> Classified {
    let to = location(reply).unwrap_or(Cow::Borrowed("nowhere"));
    let cause =
        format!("redirects are not followed, and this one may come after the effect: look at {to}");
    Classified { outcome: Outcome::Unknown, cause: cause.into() }
}

fn redirected(reply: &Reply, outcome: Outcome) -> Classified {
    let cause = match location(reply) {
        Some(to) => format!("redirects are not followed; put the right url in place: {to}").into(),
        None => Cow::Borrowed("redirects are not followed"),
    };
    Classified { outcome, cause }
}

/// What the answer asks to wait, at most [`RETRY_AFTER_MS_MAX`]. A date counts from the answer's own
/// Date, so that no clock of ours matters; without one it says nothing.
pub fn retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    let text =
        |value: &reqwest::header::HeaderValue| value.to_str().ok().map(|t| t.trim().to_owned());
    let millis = headers.get(RETRY_AFTER_MS).and_then(text).and_then(|text| text.parse().ok());
    let asked = millis.or_else(|| {
        let asked = headers.get(RETRY_AFTER).and_then(text)?;
        if let Ok(seconds) = asked.parse::<u64>() {
            return Some(seconds.saturating_mul(1_000));
        }
        let then = httpdate::parse_http_date(&asked).ok()?;
        let now = headers.get(DATE).and_then(text)?;
        let now = httpdate::parse_http_date(&now).ok()?;
        let wait = then.duration_since(now).unwrap_or(Duration::ZERO);
        u64::try_from(wait.as_millis()).ok()
    });
    asked.map(|ms: u64| ms.min(RETRY_AFTER_MS_MAX))
}

#[cfg(test)]
mod tests;
