//! A record that is published, as it is written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::read::{Entries, Field};
use super::RawTree;

/// A record for a Kafka topic of the processor's own cluster.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Message")]
pub(crate) struct RawMessage {
    /// Template; the topic, which must be there.
    pub(crate) topic: Field<String>,
    /// Template; decides the partition, and the order among records of equal keys.
    pub(crate) key: Option<Field<String>>,
    /// Templates; the message id is set by itself, as `oncely-message-id`.
    pub(crate) headers: Option<Field<Entries<String>>>,
    /// The value as JSON; a text that is one `{{ expression }}` keeps its type.
    pub(crate) json: Option<Field<RawTree>>,
    /// Template; the value as text. With neither of the two the record is a tombstone.
    pub(crate) text: Option<Field<String>>,
}
