//! What an effect undoes, as it is written.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};

use super::super::read::Field;
use super::super::words::OneOrMany;

/// The effect that is undone: its id alone, or with the key that it has.
#[derive(Debug)]
pub(crate) struct RawCompensate {
    /// `None` where the field itself is the id.
    pub(crate) effect: Option<Field<String>>,
    pub(crate) id: Option<String>,
    /// Expressions; the undone effect's own unless set.
    pub(crate) key: Option<Field<OneOrMany>>,
}

impl<'de> Deserialize<'de> for RawCompensate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = RawCompensate;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the id of an effect, or `{ effect: id, key: expression }`")
            }

            fn visit_str<E: de::Error>(self, id: &str) -> Result<RawCompensate, E> {
                Ok(RawCompensate { effect: None, id: Some(id.to_owned()), key: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawCompensate, A::Error> {
                let (mut effect, mut key) = (None, None);
                while let Some(name) = map.next_key::<String>()? {
                    match name.as_str() {
                        "effect" => effect = Some(map.next_value()?),
                        "key" => key = Some(map.next_value()?),
                        other => {
                            let text = format!(
                                "unknown field `{other}` | write `{{ effect: id, key: expression }}`"
                            );
                            return Err(de::Error::custom(text));
                        }
                    }
                }
                let text = "`effect` is missing | write `{ effect: id, key: expression }`";
                let effect = effect.ok_or_else(|| de::Error::custom(text))?;
                Ok(RawCompensate { effect: Some(effect), id: None, key })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for RawCompensate {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Compensate".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let key = generator.subschema_for::<OneOrMany>();
        json_schema!({
            "anyOf": [
                { "type": "string" },
                {
                    "type": "object",
                    "properties": { "effect": { "type": "string" }, "key": key },
                    "required": ["effect"],
                    "additionalProperties": false
                }
            ]
        })
    }
}
