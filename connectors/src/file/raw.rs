//! The connector file as it is written: every field of the language, nothing checked yet.
//!
//! The comments here are what editors show; the editor schema is made from these types. Fields of
//! type [`Later`] belong to the language and are refused by name.

#![allow(dead_code, reason = "what is refused while reading is never read afterwards")]

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};

use oncely_core::value::Decimal;

use super::read::{Entries, Field, Later};
use super::words::{Backoff, Bytes, Millis, OneOrMany, PerTime, Wait, Window};

/// One connector: one consumer group, and what follows from its events.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a connector", deny_unknown_fields)]
#[schemars(rename = "Connector")]
pub(crate) struct RawConnector {
    /// Version of this language.
    #[schemars(extend("const" = 1))]
    pub(crate) version: Field<u64>,
    /// Name of the connector: lower-case letters, digits and dashes.
    #[schemars(regex(pattern = r"^[a-z][a-z0-9-]{0,62}$"))]
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

#[derive(Debug)]
pub(crate) enum RawFingerprint {
    Fields(Vec<Field<String>>),
    Except(Vec<Field<String>>),
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

#[derive(Clone, Copy, Debug)]
pub(crate) enum RawGap {
    Apply,
    /// `wait`, or a map of it.
    Later,
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

/// One outside action.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Effect")]
pub(crate) struct RawEffect {
    /// Name of the effect: lower-case letters, digits and underscores.
    #[schemars(regex(pattern = r"^[a-z][a-z0-9_]{0,62}$"))]
    pub(crate) id: Field<String>,
    #[serde(rename = "type")]
    pub(crate) kind: Field<RawEffectType>,
    /// Expression; the effect is owed when it is true, and always when it is not set.
    pub(crate) when: Option<Field<String>>,
    /// Expressions; with scope, tenant and effect id they make the effect key.
    pub(crate) key: Field<OneOrMany>,
    /// Effects of the same event that must be done first.
    pub(crate) after: Option<Field<Vec<Field<String>>>>,
    /// Whether events older than the entity run it, too; `skip` unless set.
    pub(crate) on_stale: Option<Field<RawStale>>,
    /// For `http` and `billing`.
    pub(crate) request: Option<Field<RawRequest>>,
    /// For `email`: the recipient.
    pub(crate) to: Option<Field<String>>,
    /// For `email`: the sender, when `provider` does not have it.
    pub(crate) from: Option<Field<String>>,
    /// For `email`.
    pub(crate) subject: Option<Field<String>>,
    /// For `email`: a template of plain text.
    pub(crate) text: Option<Field<String>>,
    /// For `email`: a template of HTML.
    pub(crate) html: Option<Field<String>>,
    /// For `email`: a file with the template, `*.html.j2` or `*.txt.j2`.
    pub(crate) template: Option<Field<String>>,
    /// For `email`: who sends it.
    pub(crate) provider: Option<Field<RawProvider>>,
    /// For `ledger`: the row.
    pub(crate) entry: Option<Field<RawEntry>>,
    /// What the provider does with our key.
    pub(crate) idempotency: Option<Field<RawIdempotency>>,
    pub(crate) timeout: Option<Field<RawTimeout>>,
    pub(crate) retry: Option<Field<RawRetry>>,
    /// What follows when it cannot be known whether the provider acted; `hold` unless set.
    pub(crate) on_unknown: Option<Field<RawUnknown>>,
    /// What is kept of the answer: names and expressions over `response`.
    pub(crate) record: Option<Field<Entries<String>>>,
    pub(crate) limits: Option<Field<RawLimits>>,
    #[schemars(skip)]
    pub(crate) lookup: Option<Later>,
    #[schemars(skip)]
    pub(crate) compensate: Option<Later>,
    #[schemars(skip)]
    pub(crate) on_status: Option<Later>,
    #[schemars(skip)]
    pub(crate) event_type: Option<Later>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum RawEffectType {
    Http,
    Email,
    Billing,
    Ledger,
    #[schemars(skip)]
    Webhook,
    #[schemars(skip)]
    Llm,
    #[schemars(skip)]
    Publish,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum RawStale {
    Skip,
    Run,
}

/// The call.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Request")]
pub(crate) struct RawRequest {
    /// `POST` unless set.
    pub(crate) method: Option<Field<RawMethod>>,
    /// Template; scheme and host stand in the file, inserted values are percent-encoded.
    pub(crate) url: Field<String>,
    pub(crate) headers: Option<Field<Entries<String>>>,
    pub(crate) auth: Option<Field<RawAuth>>,
    /// JSON body; a text that is one `{{ expression }}` keeps its type.
    pub(crate) json: Option<Field<RawTree>>,
    /// Form body; maps become `a[b]=c`, lists `a[0]=b`.
    pub(crate) form: Option<Field<RawTree>>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[schemars(inline)]
pub(crate) enum RawMethod {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

/// Credentials: one of the three, by reference.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Auth")]
pub(crate) struct RawAuth {
    /// `"${secret:name}"`.
    pub(crate) bearer: Option<Field<String>>,
    pub(crate) basic: Option<Field<RawBasic>>,
    pub(crate) header: Option<Field<RawAuthHeader>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct RawBasic {
    pub(crate) user: Field<String>,
    pub(crate) password: Option<Field<String>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct RawAuthHeader {
    pub(crate) name: Field<String>,
    pub(crate) value: Field<String>,
}

/// Who sends mail.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Provider")]
pub(crate) struct RawProvider {
    pub(crate) kind: Field<RawProviderKind>,
    /// The sender.
    pub(crate) from: Option<Field<String>>,
    /// For `smtp`: `smtp://host:25`, `smtps://host:465` or `smtp+starttls://host:587`.
    pub(crate) server: Option<Field<String>>,
    /// For `smtp`.
    pub(crate) auth: Option<Field<RawAuth>>,
    /// For `resend`: where its API is; its own address unless set.
    pub(crate) url: Option<Field<String>>,
    /// For `resend`.
    pub(crate) token: Option<Field<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum RawProviderKind {
    Smtp,
    Resend,
}

/// A row of the usage ledger.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Entry")]
pub(crate) struct RawEntry {
    /// Expression.
    pub(crate) account: Field<String>,
    /// Template.
    pub(crate) metric: Field<String>,
    /// Expression; a number, kept exact.
    pub(crate) quantity: Field<String>,
    /// Expression; when it happened.
    pub(crate) at: Option<Field<String>>,
}

/// What the provider does with our key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Idempotency")]
pub(crate) struct RawIdempotency {
    /// The header that carries the effect key.
    pub(crate) header: Option<Field<String>>,
    /// How long the provider remembers a key; `none`: for ever.
    pub(crate) window: Option<Field<Window>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Timeout")]
pub(crate) struct RawTimeout {
    /// `2s` unless set.
    pub(crate) connect: Option<Field<Millis>>,
    /// From the start to the end of the answer; `15s` unless set.
    pub(crate) total: Option<Field<Millis>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Retry")]
pub(crate) struct RawRetry {
    /// The first one counts; 8 unless set.
    pub(crate) attempts: Option<Field<u32>>,
    /// Shortest and longest wait, doubling; `1s..10m` unless set.
    pub(crate) backoff: Option<Field<Backoff>>,
    /// No attempt starts later than this after the first; `20h` unless set.
    pub(crate) max_elapsed: Option<Field<Millis>>,
    #[schemars(skip)]
    pub(crate) schedule: Option<Later>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum RawUnknown {
    Hold,
    RetrySameKey,
    AssumeDone,
    #[schemars(skip)]
    Reconcile,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Limits")]
pub(crate) struct RawLimits {
    /// Calls in flight in one process; 16 unless set.
    pub(crate) concurrency: Option<Field<u32>>,
    /// Calls that may start in one process.
    pub(crate) rate: Option<Field<PerTime>>,
    #[schemars(skip)]
    pub(crate) per_tenant: Option<Later>,
    #[schemars(skip)]
    pub(crate) per_endpoint: Option<Later>,
    #[schemars(skip)]
    pub(crate) in_flight_per_tenant: Option<Later>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Failure")]
pub(crate) struct RawFailure {
    /// How long an open effect may hold its record's offset back; `60s` unless set.
    pub(crate) offset_wait: Option<Field<Wait>>,
    #[schemars(skip)]
    pub(crate) dead_letter: Option<Later>,
    #[schemars(skip)]
    pub(crate) headers: Option<Later>,
    #[schemars(skip)]
    pub(crate) max_redrives: Option<Later>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Retention")]
pub(crate) struct RawRetention {
    /// How long ids and effects are remembered; longer than records can come again. `90d` unless
    /// set.
    pub(crate) dedupe: Option<Field<Millis>>,
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
}

// --------------------------------------------------------------------------------------------- //

/// A body: any YAML, texts are templates.
#[derive(Clone, Debug)]
pub(crate) enum RawTree {
    Null,
    Bool(bool),
    Int(i64),
    Decimal(Decimal),
    Text(String),
    List(Vec<Field<RawTree>>),
    Map(Vec<(Field<String>, Field<RawTree>)>),
}

impl<'de> Deserialize<'de> for RawTree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(super::read::TREE, Tree)
    }
}

struct Tree;

impl<'de> Visitor<'de> for Tree {
    type Value = RawTree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<RawTree, E> {
        Ok(RawTree::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<RawTree, E> {
        Ok(RawTree::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<RawTree, E> {
        Ok(RawTree::Int(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<RawTree, E> {
        Ok(RawTree::Text(text.to_owned()))
    }

    /// How a decimal number comes, with its text untouched.
    fn visit_string<E: de::Error>(self, text: String) -> Result<RawTree, E> {
        Decimal::parse(&text).map(RawTree::Decimal).ok_or_else(|| E::custom("is no number"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RawTree, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        Ok(RawTree::List(all))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, members: D) -> Result<RawTree, D::Error> {
        Entries::deserialize(members).map(|entries| RawTree::Map(entries.0))
    }
}

impl JsonSchema for RawTree {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Body".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!(true)
    }
}

impl<'de> Deserialize<'de> for RawFingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = RawFingerprint;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of expressions, or `{ except: [paths] }`")
            }

            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut items: A,
            ) -> Result<RawFingerprint, A::Error> {
                let mut all = Vec::new();
                while let Some(item) = items.next_element()? {
                    all.push(item);
                }
                Ok(RawFingerprint::Fields(all))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawFingerprint, A::Error> {
                let mut except = None;
                while let Some(name) = map.next_key::<String>()? {
                    if name != "except" {
                        let text =
                            format!("unknown field `{name}` | write `{{ except: [paths] }}`");
                        return Err(de::Error::custom(text));
                    }
                    except = Some(map.next_value()?);
                }
                let text = "`except` is missing | write `{ except: [paths] }`";
                except.map(RawFingerprint::Except).ok_or_else(|| de::Error::custom(text))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for RawFingerprint {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Fingerprint".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let texts = serde_json::json!({ "type": "array", "items": { "type": "string" } });
        json_schema!({
            "anyOf": [
                { "type": "array", "items": { "type": "string" }, "minItems": 1 },
                {
                    "type": "object",
                    "properties": { "except": texts },
                    "required": ["except"],
                    "additionalProperties": false
                }
            ]
        })
    }
}

impl<'de> Deserialize<'de> for RawGap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = RawGap;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`apply`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawGap, E> {
                match text {
                    "apply" => Ok(RawGap::Apply),
                    "wait" => Ok(RawGap::Later),
                    other => {
                        Err(E::custom(format_args!("unknown value `{other}` | write `apply`")))
                    }
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawGap, A::Error> {
                while map.next_entry::<String, de::IgnoredAny>()?.is_some() {}
                Ok(RawGap::Later)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for RawGap {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Gap".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "const": "apply" })
    }
}
