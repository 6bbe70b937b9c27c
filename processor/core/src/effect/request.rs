//! A rendered request: the exact bytes that every attempt of an effect sends.
//!
//! It is stored with the effect when it is claimed, and repeated from there; credentials are not
//! part of it.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Request {
    Http(HttpRequest),
    Email(EmailRequest),
    Record(RecordRequest),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpRequest {
    pub method: Box<str>,
    pub url: Box<str>,
    /// Includes `content-type` where there is a body; neither the key nor credentials.
    pub headers: Vec<(Box<str>, Box<str>)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Box<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmailRequest {
    pub from: Box<str>,
    pub to: Box<str>,
    pub subject: Box<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<Box<str>>,
}

/// A record for a Kafka topic, without its message id, which is the effect key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordRequest {
    pub topic: Box<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Box<str>>,
    pub headers: Vec<(Box<str>, Box<str>)>,
    /// `None` is a tombstone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Box<str>>,
}

impl Request {
    /// The stored form. Equal requests have equal bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// # Errors
    /// When the bytes are not a stored request.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}
