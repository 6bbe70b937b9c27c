//! A question to a model as it is written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::read::{Entries, Field};
use super::{RawAuth, RawTree};

/// A question to a model that answers chat completions as OpenAI does.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Chat")]
pub(crate) struct RawChat {
    /// Template: where the API is, as far as its version (`https://models.internal/v1`); OpenAI's own unless
    /// set. `/chat/completions` is added.
    pub(crate) url: Option<Field<String>>,
    pub(crate) headers: Option<Field<Entries<String>>>,
    pub(crate) auth: Option<Field<RawAuth>>,
    /// The model's name; no template, since it says what a call costs.
    pub(crate) model: Field<String>,
    /// The conversation so far.
    pub(crate) messages: Field<Vec<Field<RawChatMessage>>>,
    /// The longest answer that is paid for, sent as `max_tokens`.
    pub(crate) max_tokens: Option<Field<u32>>,
    /// The same, sent as `max_completion_tokens`, as OpenAI wants it now.
    pub(crate) max_completion_tokens: Option<Field<u32>>,
    /// 0 to 2.
    #[schemars(with = "Option<f64>")]
    pub(crate) temperature: Option<Field<RawTree>>,
    /// Further members of the request (`top_p`, `seed`, `response_format`, …), as they stand: no templates.
    pub(crate) options: Option<Field<RawTree>>,
}

/// One message.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "ChatMessage")]
pub(crate) struct RawChatMessage {
    pub(crate) role: Field<RawRole>,
    /// Template, always sent as one text. `system` and `developer` messages are instructions, so nothing of
    /// an event may stand in them.
    pub(crate) content: Field<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum RawRole {
    System,
    Developer,
    User,
    Assistant,
}
