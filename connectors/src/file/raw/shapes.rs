//! Fields that may be written in more than one shape.

use std::borrow::Cow;
use std::fmt;

use oncely_core::value::Decimal;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};

use super::super::read::{Entries, Field, TREE};

/// What makes up a fingerprint: these, or all but these.
#[derive(Debug)]
pub(crate) enum RawFingerprint {
    Fields(Vec<Field<String>>),
    Except(Vec<Field<String>>),
}

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
        deserializer.deserialize_newtype_struct(TREE, Tree)
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
        Decimal::parse(&text)
            .map(RawTree::Decimal)
            .ok_or_else(|| E::custom("is no number | write it in quotes if it is meant as text"))
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
