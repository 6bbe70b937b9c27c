//! A record as it is sent.

use oncely_core::effect::request::{RecordRequest, Request};
use oncely_core::key::Key;

use crate::kafka::NewRecord;
use crate::store::outbox::Published;

/// The header by which readers recognise a record that was sent twice.
pub(super) const MESSAGE_ID: &str = "oncely-message-id";

/// All of a record but its topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Letter {
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
    /// With repeats, in order.
    pub(super) headers: Vec<(String, Option<Vec<u8>>)>,
    /// Milliseconds since 1970; `None` is now.
    pub(super) timestamp_ms: Option<i64>,
}

impl Letter {
    /// The record of an effect, or why there is none.
    pub(super) fn of_effect(message: Key, effect: &Published) -> Result<Self, String> {
        let bytes = effect.request.as_deref();
        let bytes = bytes.ok_or("the record was removed by retention before it could be sent")?;
        let request = Request::from_bytes(bytes);
        let request = request.map_err(|error| format!("the record cannot be read: {error}"))?;
        let Request::Record(RecordRequest { key, headers, value, .. }) = request else {
            return Err("the effect publishes no record any more".to_owned());
        };
        let text = |text: Box<str>| String::from(text).into_bytes();
        let mut headers: Vec<(String, Option<Vec<u8>>)> =
            headers.into_iter().map(|(name, value)| (name.into(), Some(text(value)))).collect();
        headers.push((MESSAGE_ID.to_owned(), Some(message.wire().into_bytes())));
        Ok(Self { key: key.map(text), value: value.map(text), headers, timestamp_ms: None })
    }

    /// Gives it to `send` in the client's form.
    pub(super) fn as_new<'a>(
        &'a self,
        topic: &'a str,
        headers: &'a [(&'a str, Option<&'a [u8]>)],
    ) -> NewRecord<'a> {
        NewRecord {
            topic,
            partition: None,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers,
            timestamp_ms: self.timestamp_ms,
        }
    }

    pub(super) fn headers(&self) -> Vec<(&str, Option<&[u8]>)> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect()
    }
}
