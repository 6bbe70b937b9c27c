//! What an expression or a template may look at.
//!
//! A scope borrows everything; making one costs nothing, and nothing of an event is copied or
//! converted until an expression reads it.

use std::borrow::Cow;

use super::path::{Path, Root, Step, walk};
use crate::value::Value;

/// The values behind the roots. A root that is `None` does not exist where the expression stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope<'a> {
    pub event: Option<&'a Value>,
    pub headers: &'a [Header<'a>],
    pub meta: Option<Meta<'a>>,
    pub state: Option<StateView<'a>>,
    pub tenant: Option<&'a str>,
    /// An object of recorded results, by effect id.
    pub effects: Option<&'a Value>,
    /// This effect's key in the form that travels.
    pub effect_key: Option<&'a str>,
    /// An object with `status`, `headers`, `json` and `text`.
    pub response: Option<&'a Value>,
}

/// One record header. Bytes that are no UTF-8 text cannot be read by expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    pub name: &'a str,
    pub value: Option<&'a [u8]>,
}

/// Where a record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub offset: i64,
    pub timestamp_ms: Option<i64>,
    pub key: Option<&'a [u8]>,
}

/// The entity as it is after this event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateView<'a> {
    pub current: &'a str,
    /// Where it was before this event; the initial state for the first event.
    pub previous: &'a str,
    pub version: i64,
    /// Whether this event is the one that moved it. False for a stale event.
    pub moved: bool,
}

impl StateView<'_> {
    /// Whether this event moved the entity into another state, and that is `name`.
    pub fn entered(&self, name: &str) -> bool {
        self.moved && self.current != self.previous && self.current == name
    }
}

// --------------------------------------------------------------------------------------------- //

impl<'a> Scope<'a> {
    /// What `path` leads to; `None` where nothing is there.
    pub fn find(&self, path: &Path) -> Option<Cow<'a, Value>> {
        match path.root {
            Root::Event => walk(self.event?, &path.steps).map(Cow::Borrowed),
            Root::Effects => walk(self.effects?, &path.steps).map(Cow::Borrowed),
            Root::Response => walk(self.response?, &path.steps).map(Cow::Borrowed),
            Root::Headers | Root::Meta | Root::State | Root::Tenant | Root::Effect => {
                self.find_made(path.root, &path.steps).map(Cow::Owned)
            }
        }
    }

    /// Roots whose values are made when they are asked for.
    fn find_made(&self, root: Root, steps: &[Step]) -> Option<Value> {
        let (first, rest) = match steps.split_first() {
            None => return self.root(root).map(Cow::into_owned),
            Some((Step::Member(first), rest)) => (&**first, rest),
            Some((Step::Index(_), _)) => return None,
        };
        let value = match root {
            Root::Headers => self.header(first),
            Root::Meta => self.meta?.member(first),
            Root::State => self.state?.member(first),
            Root::Effect if first == "key" => self.effect_key.map(Value::text),
            Root::Effect | Root::Event | Root::Tenant | Root::Effects | Root::Response => None,
        };
        walk(&value?, rest).cloned()
    }

    /// The whole of a root.
    pub(crate) fn root(&self, root: Root) -> Option<Cow<'a, Value>> {
        let members = |of: &dyn Fn(&str) -> Option<Value>| {
            let names = root.members().unwrap_or_default().iter();
            Value::object(names.map(|name| (*name, of(name).unwrap_or_default())))
        };
        match root {
            Root::Event => self.event.map(Cow::Borrowed),
            Root::Effects => self.effects.map(Cow::Borrowed),
            Root::Response => self.response.map(Cow::Borrowed),
            Root::Tenant => self.tenant.map(|tenant| Cow::Owned(Value::text(tenant))),
            Root::Meta => self.meta.map(|meta| Cow::Owned(members(&|name| meta.member(name)))),
            Root::State => self.state.map(|state| Cow::Owned(members(&|name| state.member(name)))),
            Root::Effect => {
                let key = self.effect_key?;
                Some(Cow::Owned(Value::object([("key", Value::text(key))])))
            }
            Root::Headers => {
                let names = self.headers.iter().map(|header| header.name);
                let all = names.filter_map(|name| Some((name, self.header(name)?)));
                Some(Cow::Owned(Value::object(all)))
            }
        }
    }

    /// The last header of that name; null where the header has no value.
    fn header(&self, name: &str) -> Option<Value> {
        let header = self.headers.iter().rev().find(|header| header.name == name)?;
        match header.value {
            None => Some(Value::Null),
            Some(bytes) => std::str::from_utf8(bytes).ok().map(Value::text),
        }
    }
}

impl Meta<'_> {
    fn member(&self, name: &str) -> Option<Value> {
        match name {
            "topic" => Some(Value::text(self.topic)),
            "partition" => Some(Value::Int(self.partition.into())),
            "offset" => Some(Value::Int(self.offset)),
            "timestamp" => Some(self.timestamp_ms.map_or(Value::Null, Value::Int)),
            "key" => {
                let text = self.key.and_then(|key| std::str::from_utf8(key).ok());
                Some(text.map_or(Value::Null, Value::text))
            }
            _ => None,
        }
    }
}

impl StateView<'_> {
    fn member(&self, name: &str) -> Option<Value> {
        match name {
            "current" => Some(Value::text(self.current)),
            "previous" => Some(Value::text(self.previous)),
            "version" => Some(Value::Int(self.version)),
            _ => None,
        }
    }
}
