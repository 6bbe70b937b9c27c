//! One request to the provider and one answer, whatever the protocol.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::answers;
use super::webhook::Signed;

/// The rules that an endpoint plays by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `POST /v1/{resource}`: form bodies, keys keep their first answer, a 500 included (Stripe v1).
    Billing,
    /// `POST /v2/…`: JSON bodies; a repeat finishes what had failed and gives the present answer (Stripe
    /// v2).
    BillingV2,
    /// `POST /emails`: JSON bodies, keys for 24 hours (Resend).
    Mail,
    /// `POST /keyed/…`: a key is needed and kept with its answer.
    Keyed,
    /// `POST /webhooks/…`: signed by the Standard Webhooks rules; an id is kept with its answer.
    Webhook,
    /// `POST /lookup/…`: every request takes effect, and can be asked for by its key.
    Lookup,
    /// `POST /plain/…`: every request takes effect; nothing can be asked for.
    Plain,
    /// `POST /model/…`: every request takes effect, and no two answers are the same (chat completions as
    /// OpenAI serves them).
    Model,
    /// A message accepted by the SMTP sink; its key is its Message-ID.
    Smtp,
    /// No endpoint of the provider.
    Unknown,
}

impl Kind {
    pub(super) fn of(path: &str) -> Self {
        match path.split('/').nth(1) {
            Some("v1") => Self::Billing,
            Some("v2") => Self::BillingV2,
            Some("emails") => Self::Mail,
            Some("keyed") => Self::Keyed,
            Some("webhooks") => Self::Webhook,
            Some("lookup") => Self::Lookup,
            Some("plain") => Self::Plain,
            Some("model") => Self::Model,
            _ => Self::Unknown,
        }
    }

    pub(super) const fn deduplicates(self) -> bool {
        matches!(self, Self::Billing | Self::BillingV2 | Self::Mail | Self::Keyed | Self::Webhook)
    }

    pub(super) const fn can_be_asked(self) -> bool {
        matches!(self, Self::Billing | Self::Mail | Self::Keyed | Self::Lookup)
    }
}

/// A request, read whole.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) kind: Kind,
    /// `POST`, `GET`, …; `DATA` for the SMTP sink.
    pub(super) method: String,
    /// The path without its query; `smtp` for the SMTP sink.
    pub(super) path: String,
    pub(super) query: String,
    pub(super) key: Option<String>,
    pub(super) body: Vec<u8>,
    pub(super) body_sha256: String,
    /// What a webhook came with.
    pub(super) signed: Option<Signed>,
}

impl Request {
    /// `key` as found in the request's head; a kind without a header finds it in query or body.
    pub(super) fn new(method: String, target: &str, key: Option<String>, body: Vec<u8>) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let kind = if method == "DATA" { Kind::Smtp } else { Kind::of(path) };
        let key = key.or_else(|| parameter(query, "key"));
        let key = key.or_else(|| reference(kind, &body));
        let body_sha256 = hex(&Sha256::digest(&body));
        let (path, query) = (path.to_owned(), query.to_owned());
        Self { kind, method, path, query, key, body, body_sha256, signed: None }
    }

    /// The same, with the headers of a webhook.
    pub(super) fn with_signature(mut self, signed: Option<Signed>) -> Self {
        self.signed = signed;
        self
    }

    /// Whether it asks about effects instead of wanting one.
    pub(super) fn is_lookup(&self) -> bool {
        !matches!(self.method.as_str(), "POST" | "PUT" | "PATCH" | "DELETE" | "DATA")
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Arc<[u8]>,
}

impl Reply {
    pub(super) fn json(status: u16, body: &serde_json::Value) -> Self {
        Self { status, headers: Vec::new(), body: body.to_string().into_bytes().into() }
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(super) fn is_replay(&self) -> bool {
        self.headers.iter().any(|(name, _)| *name == answers::REPLAYED)
    }
}

/// How an answer leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Whole.
    Whole,
    /// Cut in the middle of its body.
    Half,
    /// Not at all: the connection was closed.
    Closed,
    /// Not at all: the connection was reset.
    Reset,
    /// Whole, byte by byte.
    Drip {
        /// Milliseconds between two bytes.
        ms: u64,
    },
}

// ----------------------------------------------------------------------------------------------------

/// A parameter of a query or a form.
pub(super) fn parameter(query: &str, name: &str) -> Option<String> {
    query.split('&').find_map(|pair| {
        let (found, value) = pair.split_once('=')?;
        (found == name).then(|| decoded(value))
    })
}

/// Undoes `%41` and `+`.
pub(super) fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let code = code.and_then(|two| u8::from_str_radix(two, 16).ok()).filter(|_| *first == b'%');
        rest = match code {
            Some(byte) => {
                bytes.push(byte);
                after.get(2..).unwrap_or_default()
            }
            None => {
                bytes.push(if *first == b'+' { b' ' } else { *first });
                after
            }
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The reference in a JSON body, where the kind has no header for it.
fn reference(kind: Kind, body: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Body {
        #[serde(alias = "key")]
        reference: String,
    }
    if !matches!(kind, Kind::Lookup | Kind::Plain) {
        return None;
    }
    serde_json::from_slice::<Body>(body).ok().map(|body| body.reference)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        for half in [byte >> 4, byte & 0x0f] {
            text.push(DIGITS.get(usize::from(half)).copied().map_or('?', char::from));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_in_head_query_and_body() {
        let new = |target: &str, key: Option<&str>, body: &str| {
            Request::new("POST".into(), target, key.map(Into::into), body.into()).key
        };
        assert_eq!(new("/v1/charges", Some("k"), "amount=1").as_deref(), Some("k"));
        assert_eq!(new("/lookup/x?a=b&key=k%2B1+2", None, "").as_deref(), Some("k+1 2"));
        assert_eq!(new("/lookup/x", None, r#"{"reference":"r","n":1}"#).as_deref(), Some("r"));
        assert_eq!(new("/v1/charges", None, r#"{"reference":"r"}"#), None);
        assert_eq!(new("/plain/x", None, "not json"), None);
    }

    #[test]
    fn a_form_is_decoded_and_a_hash_is_hex() {
        assert_eq!(decoded("a%20b+c%zz%4"), "a b c%zz%4");
        assert_eq!(hex(&[0, 0xaf, 9]), "00af09");
    }
}
