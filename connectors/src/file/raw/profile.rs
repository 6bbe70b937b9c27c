//! A profile as it is written: what a provider does with our requests.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::read::{Entries, Field};
use super::super::words::{Millis, Statuses};
use super::{RawIdempotency, RawLookup};

/// What a provider does with our requests.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Profile")]
pub(crate) struct RawProfile {
    /// A profile that comes with the program; what is said here goes before it.
    pub(crate) extends: Option<Field<String>>,
    /// What the provider does with our key.
    pub(crate) idempotency: Option<Field<RawIdempotency>>,
    /// How long after a request its effect may still appear to whoever asks.
    pub(crate) applies_within: Option<Field<Millis>>,
    /// Headers of its requests, unless an effect sets them.
    pub(crate) headers: Option<Field<Entries<String>>>,
    /// The kind of body that it takes.
    pub(crate) body: Option<Field<RawBodyKind>>,
    /// How it is asked whether an effect took place.
    pub(crate) lookup: Option<Field<RawLookup>>,
    /// Answers that mean something else than the common table says; the first that fits counts.
    pub(crate) statuses: Option<Field<Vec<Field<RawStatusRule>>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum RawBodyKind {
    Json,
    Form,
}

/// What some answers mean.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Status")]
pub(crate) struct RawStatusRule {
    /// `409`, or a range: `"500..599"`.
    pub(crate) status: Field<Statuses>,
    /// Expression over `response`, where the status alone does not tell.
    pub(crate) when: Option<Field<String>>,
    pub(crate) means: Field<RawMeaning>,
}

/// The classes of outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum RawMeaning {
    /// It was applied, now or earlier.
    Done,
    /// Surely not applied: safe to repeat.
    NotApplied,
    /// Refused for now, before anything was done.
    Throttled,
    /// Refused for good.
    Rejected,
    /// Our credentials or configuration are wrong.
    Halted,
    /// It may have been applied.
    Unknown,
}
