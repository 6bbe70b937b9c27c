//! What follows when versions are missing between two events, as it is written.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};

use super::super::read::Field;
use super::super::words::Millis;

const HOW: &str = "write `apply`, or `{ wait: 30s, then: apply }`";

/// `apply`, or a map.
#[derive(Debug)]
pub(crate) enum RawGap {
    Apply,
    Wait(RawGapWait),
}

#[derive(Debug)]
pub(crate) struct RawGapWait {
    /// How long an event waits for the versions that are missing before it.
    pub(crate) wait: Field<Millis>,
    /// What becomes of it then; `apply` unless set.
    pub(crate) then: Option<Field<RawAfterWait>>,
    /// The version that an entity begins with; any unless set.
    pub(crate) first: Option<Field<u64>>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum RawAfterWait {
    Apply,
    Quarantine,
}

impl<'de> Deserialize<'de> for RawGap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = RawGap;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`apply`, or `{ wait: 30s, then: apply }`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawGap, E> {
                match text {
                    "apply" => Ok(RawGap::Apply),
                    "wait" => Err(E::custom(
                        "`wait` needs a bound | write `{ wait: 30s, then: apply }`: how long an \
                         event waits for the versions before it, and what becomes of it then",
                    )),
                    other => Err(E::custom(format_args!("unknown value `{other}` | {HOW}"))),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawGap, A::Error> {
                let (mut wait, mut then, mut first) = (None, None, None);
                while let Some(name) = map.next_key::<String>()? {
                    match name.as_str() {
                        "wait" => wait = Some(map.next_value()?),
                        "then" => then = Some(map.next_value()?),
                        "first" => first = Some(map.next_value()?),
                        other => {
                            let text = format!(
                                "unknown field `{other}` | write `{{ wait: 30s, then: apply, first: 1 }}`"
                            );
                            return Err(de::Error::custom(text));
                        }
                    }
                }
                let text = "`wait` is missing | write `{ wait: 30s, then: apply }`";
                let wait = wait.ok_or_else(|| de::Error::custom(text))?;
                Ok(RawGap::Wait(RawGapWait { wait, then, first }))
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

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let wait = generator.subschema_for::<Millis>();
        let then = generator.subschema_for::<RawAfterWait>();
        json_schema!({
            "anyOf": [
                { "const": "apply" },
                {
                    "type": "object",
                    "properties": {
                        "wait": wait,
                        "then": then,
                        "first": { "type": "integer", "minimum": 0 }
                    },
                    "required": ["wait"],
                    "additionalProperties": false
                }
            ]
        })
    }
}
