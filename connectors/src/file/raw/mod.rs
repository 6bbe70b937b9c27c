//! The connector file as it is written: every field of the language, nothing checked yet.
//!
//! The comments here are what editors show; the editor schema is made from these types. Fields of
//! type [`Later`] belong to the language and are refused by name.

#![allow(dead_code, reason = "what is refused while reading is never read afterwards")]

mod chat;
mod compensate;
mod effect;
mod gap;
mod lookup;
mod profile;
mod publish;
mod shapes;

use schemars::JsonSchema;
use serde::Deserialize;

pub(crate) use self::chat::*;
pub(crate) use self::compensate::RawCompensate;
pub(crate) use self::effect::*;
pub(crate) use self::gap::{RawAfterWait, RawGap, RawGapWait};
pub(crate) use self::lookup::*;
pub(crate) use self::profile::*;
pub(crate) use self::publish::*;
pub(crate) use self::shapes::{RawFingerprint, RawTree};
use super::read::{Entries, Field, Later};
use super::words::{Bytes, Millis, OneOrMany, Wait};

/// One connector: one consumer group, and what follows from its events.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a connector", deny_unknown_fields)]
#[schemars(rename = "Connector")]
pub(crate) struct RawConnector {
    /// Version of this language.
    #[schemars(extend("const" = 1))]
    pub(crate) version: Field<u64>,
    /// Name of the connector: lower-case letters, digits, `_` and `-`.
    #[schemars(regex(pattern = r"^[a-z][a-z0-9_-]{0,62}$"))]
    pub(crate) connector: Field<String>,
    /// First part of every key. Set it to the old name when you rename a connector.
    pub(crate) scope: Option<Field<String>>,
    /// Who is asked when something is held; shown in alerts.
    pub(crate) owner: Option<Field<String>>,
    pub(crate) source: Field<RawSource>,
    pub(crate) decode: Option<Field<RawDecode>>,
    /// Expression; records for which it is not true are ignored.
    #[serde(rename = "match")]
    pub(crate) matches: Option<Field<String>>,
    pub(crate) identity: Field<RawIdentity>,
    pub(crate) state: Option<Field<RawState>>,
    /// What providers do with our requests, for those that do not come with the program.
    pub(crate) profiles: Option<Field<Entries<RawProfile>>>,
    /// What happens outside, once per effect key.
    pub(crate) effects: Option<Field<Vec<Field<RawEffect>>>>,
    pub(crate) failure: Option<Field<RawFailure>>,
    pub(crate) retention: Option<Field<RawRetention>>,
    /// Sample events and what must become of them; run by `oncely test`.
    pub(crate) tests: Option<Field<Vec<Field<RawTest>>>>,
    #[schemars(skip)]
    pub(crate) alerts: Option<Later>,
}

/// Which records are read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Source")]
pub(crate) struct RawSource {
    pub(crate) topics: Field<Vec<Field<String>>>,
    /// Consumer group; `oncely.<connector>` unless set.
    pub(crate) group: Option<Field<String>>,
    /// Where to begin when the group has no position yet; `earliest` unless set.
    pub(crate) start: Option<Field<RawStart>>,
    /// Group protocol; `classic` (cooperative-sticky) unless set, `consumer` is KIP-848.
    pub(crate) protocol: Option<Field<RawProtocol>>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum RawStart {
    Earliest,
    Latest,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum RawProtocol {
    Classic,
    Consumer,
}

/// How record bytes are read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Decode")]
pub(crate) struct RawDecode {
    pub(crate) format: Option<Field<RawFormat>>,
    /// `cloudevents` reads structured and binary mode; attributes become members, data is `data`.
    pub(crate) envelope: Option<Field<RawEnvelope>>,
    /// A larger value is set aside; `1MiB` unless set.
    pub(crate) max_bytes: Option<Field<Bytes>>,
    #[schemars(skip)]
    pub(crate) schema: Option<Later>,
    #[schemars(skip)]
    pub(crate) registry: Option<Later>,
    #[schemars(skip)]
    pub(crate) on_unknown_schema: Option<Later>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum RawFormat {
    Json,
    #[schemars(skip)]
    Avro,
    #[schemars(skip)]
    Protobuf,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum RawEnvelope {
    None,
    CloudEvents,
}

/// What makes two records the same event.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Identity")]
pub(crate) struct RawIdentity {
    /// Expression; ids of different tenants never meet.
    pub(crate) tenant: Option<Field<String>>,
    /// Expression; a business id, never an offset.
    pub(crate) id: Field<String>,
    /// What must be equal when an id comes again: a list of expressions, or `{ except: [paths] }`.
    pub(crate) fingerprint: Field<RawFingerprint>,
    /// Where the same id with other content goes; `quarantine` unless set.
    pub(crate) on_conflict: Option<Field<RawConflict>>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum RawConflict {
    Quarantine,
    DeadLetter,
}

/// The entity that events are about, and the states it may have.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "State")]
pub(crate) struct RawState {
    /// The kind of entity, such as `invoice`; a part of its key.
    pub(crate) entity: Field<String>,
    /// Expression; which entity the event is about.
    pub(crate) key: Field<String>,
    pub(crate) version: Field<RawVersion>,
    pub(crate) initial: Field<String>,
    pub(crate) transitions: Field<Vec<Field<RawTransition>>>,
    /// What becomes of a newer event without a transition; `quarantine` unless set.
    pub(crate) on_invalid: Option<Field<RawInvalid>>,
    /// What becomes of later events of an entity while a record of it is parked: they `apply` unless set;
    /// with `wait` they keep their order behind it until a person has released or discarded it.
    pub(crate) on_parked: Option<Field<RawParked>>,
    /// How many events may wait at a time; one more is quarantined. 10000 unless set.
    pub(crate) max_deferred: Option<Field<u32>>,
}

/// The number that says which of two events is newer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Version")]
pub(crate) struct RawVersion {
    /// Expression; an integer that rises.
    pub(crate) from: Field<String>,
    pub(crate) compare: Option<Field<RawCompare>>,
    pub(crate) on_stale: Option<Field<RawStaleVersion>>,
    /// What becomes of an event whose version is more than one above the last one: it applies unless set;
    /// `{ wait: 30s, then: apply }` gives the missing ones so much time.
    pub(crate) on_gap: Option<Field<RawGap>>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum RawCompare {
    Integer,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum RawStaleVersion {
    Ignore,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Transition")]
pub(crate) struct RawTransition {
    pub(crate) from: Field<OneOrMany>,
    pub(crate) to: Field<String>,
    /// Expression over the event.
    #[serde(rename = "if")]
    pub(crate) condition: Option<Field<String>>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum RawInvalid {
    Quarantine,
    DeadLetter,
    Ignore,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum RawParked {
    Apply,
    Wait,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Failure")]
pub(crate) struct RawFailure {
    /// How long an open effect may hold its record's offset back; `60s` unless set.
    pub(crate) offset_wait: Option<Field<Wait>>,
    /// A topic that gets each dead letter as well: key, value, headers and time as they were read.
    pub(crate) dead_letter: Option<Field<String>>,
    /// Which headers say what was wrong, beside our own; `[connect, spring]` unless set.
    pub(crate) headers: Option<Field<Vec<Field<RawLetterHeaders>>>>,
    /// How often a dead letter is redriven before a person has to insist; 5 unless set.
    pub(crate) max_redrives: Option<Field<u32>>,
    /// How many effects may be open (those that are held not counted) before no new events are taken
    /// until calls have caught up; 1000000 unless set.
    pub(crate) max_open_effects: Option<Field<u64>>,
}

/// Names of headers that readers of dead letters know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum RawLetterHeaders {
    /// `__connect.errors.*`
    Connect,
    /// `kafka_dlt-*`
    Spring,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Retention")]
pub(crate) struct RawRetention {
    /// How long ids and effects are remembered; longer than records can come again. `90d` unless
    /// set.
    pub(crate) dedupe: Option<Field<Millis>>,
    /// So long after an event was first seen it may be replayed, or redriven out of the dead letters; ids
    /// are remembered for longer than the topic keeps its records and this together. `0s` unless set.
    pub(crate) replay: Option<Field<Millis>>,
    /// How long payloads and results are kept after an event is settled; `30d` unless set.
    pub(crate) payloads: Option<Field<Millis>>,
    #[schemars(skip)]
    pub(crate) redact: Option<Later>,
}

/// Events in order, and what must become of them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Test")]
pub(crate) struct RawTest {
    pub(crate) name: Field<String>,
    /// Files beside this one.
    pub(crate) events: Field<Vec<Field<String>>>,
    pub(crate) expect: Field<RawExpect>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Expect")]
pub(crate) struct RawExpect {
    /// One for each event.
    pub(crate) outcomes: Option<Field<Vec<Field<RawOutcome>>>>,
    /// The entity's state at the end.
    pub(crate) state: Option<Field<String>>,
    /// How often each effect is owed.
    pub(crate) effects: Option<Field<Entries<u32>>>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum RawOutcome {
    Applied,
    Duplicate,
    Stale,
    Ignored,
    Quarantined,
    DeadLettered,
    Deferred,
}
