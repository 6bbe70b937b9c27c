//! A look-up as it is written: how the provider is asked whether an effect took place.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::read::{Entries, Field};
use super::super::words::Millis;
use super::{RawAuth, RawTree};

/// How the provider is asked whether an effect took place.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Lookup")]
pub(crate) struct RawLookup {
    /// `GET` unless set.
    pub(crate) method: Option<Field<RawAskMethod>>,
    /// Template; `/path` is on the host of the request, `./path` below its url, `?query` that url with
    /// another query.
    pub(crate) url: Field<String>,
    pub(crate) headers: Option<Field<Entries<String>>>,
    /// The request's own unless set, where both go to the same host.
    pub(crate) auth: Option<Field<RawAuth>>,
    /// For `POST`: JSON body.
    pub(crate) json: Option<Field<RawTree>>,
    /// For `POST`: form body.
    pub(crate) form: Option<Field<RawTree>>,
    /// Expression over `response`, true when the provider has it; only asked of a 2xx.
    pub(crate) done: Field<String>,
    /// Expression over `response`, true when the provider does not know it (`response.status == 404`).
    /// A 2xx that is not `done` says so unless this is set; with it, such an answer is asked for again.
    pub(crate) not_found: Option<Field<String>>,
    /// Expression over `response`: the part of the answer that the effect's own `record` reads as
    /// `response.json`.
    pub(crate) answer: Option<Field<String>>,
    /// What is kept of the answer otherwise: names of the effect's `record`, over `response`.
    pub(crate) record: Option<Field<Entries<String>>>,
    /// What follows when it is surely not there; `resend` unless set.
    pub(crate) on_not_found: Option<Field<RawNotFound>>,
    /// How long after a request its effect may still appear to whoever asks.
    pub(crate) applies_within: Option<Field<Millis>>,
    /// How long after a send "not found" is not believed; the effect's total time-out and
    /// `applies_within` together unless set, and never less.
    pub(crate) settle_delay: Option<Field<Millis>>,
    /// In a profile: how a request carries the effect key, so that it can be asked for by it.
    pub(crate) carried_as: Option<Field<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[schemars(inline)]
pub(crate) enum RawAskMethod {
    Get,
    Post,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum RawNotFound {
    Resend,
    Fail,
}
