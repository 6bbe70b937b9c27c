//! Nodes into raw settings, reporting everything that does not fit, not only the first thing.
//!
//! Raw structs derive `Deserialize` and declare their fields as [`Field`] or `Option<Field>`. A
//! field that cannot be read is reported where it stands and left invalid, and reading goes on. A
//! name that a struct does not have is reported with the name that was probably meant.

mod reader;

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};

use self::reader::NodeReader;
use super::diagnostic::Findings;
use super::node::Node;
use super::source::Span;

/// Newtype names by which wrappers ask for more than a value.
const FIELD: &str = "$field";
const LATER: &str = "$later";
const ENTRIES: &str = "$entries";
pub(super) const TREE: &str = "$tree";

/// A value with its place. Missing when the file does not have it, invalid when it was reported.
#[derive(Clone, Debug)]
pub(crate) enum Field<T> {
    Missing,
    Invalid(Span),
    Valid(Span, T),
}

impl<T> Field<T> {
    pub(crate) fn get(&self) -> Option<&T> {
        match self {
            Self::Missing | Self::Invalid(_) => None,
            Self::Valid(_, value) => Some(value),
        }
    }

    pub(crate) fn span(&self) -> Option<Span> {
        match self {
            Self::Missing => None,
            Self::Invalid(span) | Self::Valid(span, _) => Some(*span),
        }
    }

    pub(crate) fn valid(&self) -> Option<(Span, &T)> {
        match self {
            Self::Missing | Self::Invalid(_) => None,
            Self::Valid(span, value) => Some((*span, value)),
        }
    }
}

/// A field of the full language that this version refuses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Later;

/// A map with names of the user's choice, in the order of the file.
#[derive(Clone, Debug)]
pub(crate) struct Entries<T>(pub(crate) Vec<(Field<String>, Field<T>)>);

/// Reads `T` from a node; `None` when the node as a whole is none.
pub(crate) fn read<'de, T: Deserialize<'de>>(
    node: &'de Node,
    findings: &mut Findings,
) -> Option<T> {
    let sink = RefCell::new(std::mem::take(findings));
    let read = T::deserialize(NodeReader { node, name: None, sink: &sink });
    *findings = sink.into_inner();
    read.map_err(|error| findings.add(error.finding(node.span))).ok()
}
pub(crate) fn listed(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

// --------------------------------------------------------------------------------------------- //

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Field<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // An option is what serde gives to a field that is not there.
        deserializer.deserialize_option(FieldVisitor(PhantomData))
    }
}

struct FieldVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for FieldVisitor<T> {
    type Value = Field<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_none<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(Field::Missing)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(Field::Missing)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_newtype_struct(FIELD, self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        let span = span(&mut parts)?;
        Ok(match parts.next_element()? {
            Some(value) => Field::Valid(span, value),
            None => Field::Invalid(span),
        })
    }
}

fn span<'de, A: SeqAccess<'de>>(parts: &mut A) -> Result<Span, A::Error> {
    let mut next = || -> Result<usize, A::Error> {
        let at: Option<u64> = parts.next_element()?;
        Ok(at.and_then(|at| usize::try_from(at).ok()).unwrap_or_default())
    };
    Ok(Span::new(next()?, next()?))
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for All<T> {
            type Value = Entries<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of names and values")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Entries<T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(Pair(name, value)) = all.next_element()? {
                    entries.push((name, value));
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_newtype_struct(ENTRIES, All(PhantomData))
    }
}

struct Pair<T>(Field<String>, Field<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Pair<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct One<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for One<T> {
            type Value = Pair<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name and a value")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Pair<T>, A::Error> {
                let span = span(&mut parts)?;
                let name: Option<String> = parts.next_element()?;
                let value = parts.next_element()?.unwrap_or(Field::Missing);
                Ok(Pair(Field::Valid(span, name.unwrap_or_default()), value))
            }
        }
        deserializer.deserialize_any(One(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Later {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Ignored;
        impl Visitor<'_> for Ignored {
            type Value = Later;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("nothing")
            }

            fn visit_unit<E: de::Error>(self) -> Result<Later, E> {
                Ok(Later)
            }
        }
        deserializer.deserialize_newtype_struct(LATER, Ignored)
    }
}

// --------------------------------------------------------------------------------------------- //

impl<T: JsonSchema> JsonSchema for Field<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

impl<T: JsonSchema> JsonSchema for Entries<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Map_of_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<T>();
        schemars::json_schema!({ "type": "object", "additionalProperties": value })
    }
}
