//! A serde deserializer over nodes that keeps going.
//!
//! Gives what a raw struct asks for; puts what does not fit into the findings. The wrappers of the
//! module above speak to it by the names of newtypes.

use std::cell::RefCell;
use std::fmt;

use oncely_core::expr::spelling::nearest;
use serde::de::value::U64Deserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::super::advice::{available_fields, available_words, instead_of};
use super::super::diagnostic::{Code, Fault, Finding, Findings, PLANNED};
use super::super::node::{Name, Node, NodeKind};
use super::super::source::Span;
use super::super::words::{Millis, unit_in, unit_of, with_unit};
use super::{ENTRIES, FIELD, LATER, TREE, listed};

/// Why a node is no such value.
#[derive(Clone, Debug)]
pub(crate) struct ReadError {
    code: Code,
    message: String,
    help: String,
    span: Option<Span>,
}

impl ReadError {
    pub(crate) fn new(code: Code, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { code, message: message.into(), help: help.into(), span: None }
    }

    pub(super) fn finding(self, span: Span) -> Finding {
        let fault = Fault::new(self.code, self.span.unwrap_or(span), self.message);
        fault.help(self.help)
    }

    fn at(mut self, span: Span) -> Self {
        self.span.get_or_insert(span);
        self
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ReadError {}

impl de::Error for ReadError {
    /// Words (durations, sizes) say with the part before `|` how they are written.
    fn custom<T: fmt::Display>(message: T) -> Self {
        let message = message.to_string();
        match message.split_once(" | ") {
            Some((message, help)) => Self::new(Code::Malformed, message, help),
            // All of ours say it; what is left is serde's own.
            None => {
                Self::new(Code::Malformed, message, "the editor shows how this field is written")
            }
        }
    }

    /// Never shows the value, which may be a secret in the wrong place.
    fn invalid_type(_: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let needed = in_words(expected);
        Self::new(Code::WrongType, format!("{needed} is needed here"), written(&needed))
    }

    fn invalid_value(_: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let needed = in_words(expected);
        Self::new(Code::OutOfRange, format!("{needed} is needed here"), written(&needed))
    }
}

const BELOW_ZERO: &str = "a negative number never means \"no limit\": write one from 0 on, or leave the field out \
                          for what holds without it";
const A_LIST: &str = "a list";
const A_NUMBER: &str = "a whole number, not below zero";

/// The unit that is missing where a number alone stands for a duration, a rate or a size.
fn unit_needed(expected: &dyn de::Expected) -> Option<&'static str> {
    unit_of(expected.to_string().strip_prefix("a ")?)
}

/// Rust's names of integer types say nothing to people who write YAML.
fn in_words(expected: &dyn de::Expected) -> String {
    let text = expected.to_string();
    let integer = text.len() <= 4 && text.starts_with(['u', 'i']);
    match text.as_str() {
        _ if integer => A_NUMBER.to_owned(),
        "a sequence" => A_LIST.to_owned(),
        _ => text,
    }
}

/// How a value of this kind is written.
fn written(needed: &str) -> String {
    match needed {
        A_LIST => "write it in brackets: `[…]`",
        "a text" => "write one text, in quotes if it has `: `, ` #` or brackets in it",
        "a map" => {
            "write its members below it, each as `name: value`, or in braces: `{ name: value }`"
        }
        A_NUMBER => "write it in digits and without quotes: `5`",
        "a boolean" => "write `true` or `false`",
        "a duration" => "write it as `30s`, `5m`, `24h` or `90d`",
        "a size" => "write it as `256KiB` or `1MiB`",
        "a rate" => "write it as `50/s` or `1000/m`",
        other => return format!("write {other}"),
    }
    .to_owned()
}

// --------------------------------------------------------------------------------------------- //

pub(super) struct NodeReader<'de, 's> {
    pub(super) node: &'de Node,
    /// The field's name, where it has one.
    pub(super) name: Option<&'de Name>,
    pub(super) sink: &'s RefCell<Findings>,
}

impl<'de> NodeReader<'de, '_> {
    fn wrong(&self, expected: &dyn de::Expected) -> ReadError {
        let kind = self.node.kind.describe();
        let needed = in_words(expected);
        let text = format!("is {kind}, {needed} is needed here");
        let help = self.short_form().unwrap_or_else(|| written(&needed));
        ReadError::new(Code::WrongType, text, help).at(self.node.span)
    }
}

impl NodeReader<'_, '_> {
    /// The whole form of what is often written in short.
    fn short_form(&self) -> Option<String> {
        match (self.name?.text.as_str(), &self.node.kind) {
            ("timeout", NodeKind::Text(text)) if Millis::parse(text).is_some() => {
                Some(format!("write `{{ total: {text} }}`"))
            }
            ("timeout", NodeKind::Int(_)) => Some("write `{ total: 5s }`".to_owned()),
            ("topics", NodeKind::Text(text)) if text.contains(['*', '^', '?']) => Some(
                "topics are named one by one, and patterns are not read: `[bakery.orders.v1]`"
                    .to_owned(),
            ),
            ("topics" | "fingerprint", NodeKind::Text(text)) => Some(format!("write `[{text}]`")),
            _ => None,
        }
    }
}

impl<'de> Deserializer<'de> for NodeReader<'de, '_> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let span = self.node.span;
        let read = match &self.node.kind {
            NodeKind::Null => visitor.visit_unit(),
            NodeKind::Bool(value) => visitor.visit_bool(*value),
            NodeKind::Int(number) => match u64::try_from(*number) {
                Ok(number) => visitor.visit_u64(number),
                Err(_) => visitor.visit_i64(*number),
            },
            NodeKind::Decimal(_) => Err(self.wrong(&visitor)),
            NodeKind::Text(text) => visitor.visit_borrowed_str(text),
            NodeKind::List(items) => {
                visitor.visit_seq(Items { items: items.iter(), sink: self.sink })
            }
            NodeKind::Map(members) => {
                let members = members.iter().collect();
                visitor.visit_map(Members { members, value: None, sink: self.sink })
            }
        };
        read.map_err(|mut error| {
            if matches!(&self.node.kind, NodeKind::Int(number) if *number < 0)
                && error.span.is_none()
            {
                error.help = BELOW_ZERO.to_owned();
            }
            let is_list = error.code == Code::WrongType && error.span.is_none();
            if let Some(help) = self.short_form().filter(|_| is_list) {
                error.help = help;
            }
            error.at(span)
        })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        if matches!(self.node.kind, NodeKind::Null) {
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let NodeKind::Map(all) = &self.node.kind else {
            let mut error = self.wrong(&visitor);
            // A version is mostly a path alone.
            if let (Some("version"), NodeKind::Text(text)) =
                (self.name.map(|name| name.text.as_str()), &self.node.kind)
            {
                error.help = format!("write `{{ from: {text} }}`");
            }
            return Err(error);
        };
        let mut members = std::collections::VecDeque::with_capacity(all.len());
        for member in all {
            if fields.contains(&member.0.text.as_str()) {
                members.push_back(member);
            } else {
                let near = nearest(&member.0.text, fields.iter().copied());
                let mut sink = self.sink.borrow_mut();
                sink.meant.extend(near.map(|near| (self.node.span, near.to_owned())));
                sink.add(unknown_field(&member.0, near, fields));
            }
        }
        let span = self.node.span;
        let read = visitor.visit_map(Members { members, value: None, sink: self.sink });
        read.map_err(|error| error.at(span))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        choices: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let NodeKind::Text(text) = &self.node.kind else {
            return Err(self.wrong(&OneOf(choices)));
        };
        if choices.contains(&text.as_str()) {
            return visitor.visit_enum(text.as_str().into_deserializer());
        }
        let mut message = format!("unknown value `{text}`");
        if let Some(near) = nearest(text, choices.iter().copied()) {
            message.push_str(&format!(", did you mean `{near}`?"));
        }
        let help = format!("one of {}", listed(&available_words(choices)));
        Err(ReadError::new(Code::UnknownChoice, message, help).at(self.node.span))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match name {
            FIELD => visitor.visit_seq(Wrapped {
                node: Some(self.node),
                name: self.name,
                sink: self.sink,
                step: 0,
            }),
            ENTRIES => {
                let NodeKind::Map(members) = &self.node.kind else {
                    return Err(self.wrong(&visitor));
                };
                visitor.visit_seq(Pairs { members: members.iter(), sink: self.sink })
            }
            LATER => {
                let (span, what) = match self.name {
                    Some(name) => (name.span, format!("`{}`", name.text)),
                    None => (self.node.span, "this".to_owned()),
                };
                let text = format!("{what} is not available yet");
                let finding = Fault::new(Code::NotYet, span, text).note(PLANNED);
                let word = self.name.map_or("", |name| name.text.as_str());
                self.sink.borrow_mut().add(finding.help(instead_of(word)));
                visitor.visit_unit()
            }
            TREE => match &self.node.kind {
                NodeKind::Int(number) => visitor.visit_i64(*number),
                NodeKind::Decimal(number) => visitor.visit_string(number.as_str().to_owned()),
                NodeKind::Map(_) => visitor.visit_newtype_struct(self),
                NodeKind::Null | NodeKind::Bool(_) | NodeKind::Text(_) | NodeKind::List(_) => {
                    self.deserialize_any(visitor)
                }
            },
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.node.kind {
            NodeKind::Text(text) => {
                let span = self.node.span;
                visitor.visit_borrowed_str(text).map_err(|error: ReadError| error.at(span))
            }
            NodeKind::Int(_) | NodeKind::Decimal(_) | NodeKind::Bool(_) => {
                if let NodeKind::Int(number) = &self.node.kind
                    && let Some(unit) = unit_needed(&visitor)
                {
                    let mut error = self.wrong(&visitor);
                    let unit = self.name.and_then(|name| unit_in(&name.text, unit)).unwrap_or(unit);
                    error.help = if *number < 0 {
                        BELOW_ZERO.to_owned()
                    } else {
                        with_unit(&number.to_string(), unit)
                    };
                    return Err(error);
                }
                let mut error = self.wrong(&"a text");
                error.help = "put it in quotes if it is meant as text".to_owned();
                Err(error)
            }
            NodeKind::Null | NodeKind::List(_) | NodeKind::Map(_) => Err(self.wrong(&"a text")),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.deserialize_str(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct
        seq tuple tuple_struct map identifier ignored_any
    }
}

fn unknown_field(name: &Name, near: Option<&str>, fields: &[&'static str]) -> Finding {
    let text = &name.text;
    let fault = |said: String| Fault::new(Code::UnknownField, name.span, said);
    match near {
        Some(near) => fault(format!("unknown field `{text}`, did you mean `{near}`?"))
            .help(format!("write `{near}`")),
        None => fault(format!("unknown field `{text}`"))
            .help(format!("the fields here are {}", listed(&available_fields(fields)))),
    }
}

struct OneOf(&'static [&'static str]);

impl de::Expected for OneOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one of {}", listed(self.0))
    }
}

struct Items<'de, 's> {
    items: std::slice::Iter<'de, Node>,
    sink: &'s RefCell<Findings>,
}

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ReadError> {
        let Some(node) = self.items.next() else { return Ok(None) };
        seed.deserialize(NodeReader { node, name: None, sink: self.sink }).map(Some)
    }
}

struct Members<'de, 's> {
    members: std::collections::VecDeque<&'de (Name, Node)>,
    value: Option<&'de (Name, Node)>,
    sink: &'s RefCell<Findings>,
}

impl<'de> MapAccess<'de> for Members<'de, '_> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, ReadError> {
        self.value = self.members.pop_front();
        let Some((name, _)) = self.value else { return Ok(None) };
        seed.deserialize(name.text.as_str().into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ReadError> {
        let missing = || {
            ReadError::new(Code::Malformed, "a value is missing", "write it, or remove the name")
        };
        let (name, node) = self.value.take().ok_or_else(missing)?;
        seed.deserialize(NodeReader { node, name: Some(name), sink: self.sink })
    }
}

/// Where a node begins and ends, and its value if that can be read.
struct Wrapped<'de, 's> {
    node: Option<&'de Node>,
    name: Option<&'de Name>,
    sink: &'s RefCell<Findings>,
    step: u8,
}

impl<'de> SeqAccess<'de> for Wrapped<'de, '_> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ReadError> {
        let Some(node) = self.node else { return Ok(None) };
        self.step = self.step.saturating_add(1);
        let number = |at: usize| -> U64Deserializer<ReadError> {
            u64::try_from(at).unwrap_or(u64::MAX).into_deserializer()
        };
        match self.step {
            1 => seed.deserialize(number(node.span.start)).map(Some),
            2 => seed.deserialize(number(node.span.end)).map(Some),
            _ => {
                let reader = NodeReader { node, name: self.name, sink: self.sink };
                let read = seed.deserialize(reader);
                self.node = None;
                match read {
                    Ok(value) => Ok(Some(value)),
                    Err(error) => {
                        self.sink.borrow_mut().add(error.finding(node.span));
                        Ok(None)
                    }
                }
            }
        }
    }
}

/// Name, value, name, value.
struct Pairs<'de, 's> {
    members: std::slice::Iter<'de, (Name, Node)>,
    sink: &'s RefCell<Findings>,
}

impl<'de> SeqAccess<'de> for Pairs<'de, '_> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ReadError> {
        let Some((name, node)) = self.members.next() else { return Ok(None) };
        seed.deserialize(PairReader { name, node, sink: self.sink }).map(Some)
    }
}

/// A name and a value, as a sequence of start, end, text, value.
struct PairReader<'de, 's> {
    name: &'de Name,
    node: &'de Node,
    sink: &'s RefCell<Findings>,
}

impl<'de> Deserializer<'de> for PairReader<'de, '_> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_seq(PairParts { pair: self, step: 0 })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct PairParts<'de, 's> {
    pair: PairReader<'de, 's>,
    step: u8,
}

impl<'de> SeqAccess<'de> for PairParts<'de, '_> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ReadError> {
        self.step = self.step.saturating_add(1);
        let PairReader { name, node, sink } = &self.pair;
        let number = |at: usize| -> U64Deserializer<ReadError> {
            u64::try_from(at).unwrap_or(u64::MAX).into_deserializer()
        };
        match self.step {
            1 => seed.deserialize(number(name.span.start)).map(Some),
            2 => seed.deserialize(number(name.span.end)).map(Some),
            3 => seed.deserialize(name.text.as_str().into_deserializer()).map(Some),
            4 => seed.deserialize(NodeReader { node, name: Some(name), sink }).map(Some),
            _ => Ok(None),
        }
    }
}
