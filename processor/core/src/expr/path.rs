//! Member paths: `event.data.lines[0].id`.
//!
//! Most of what a connector file says about events is such a path; it is looked up directly.

use std::fmt;

use crate::value::Value;

/// What an expression may begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Root {
    /// The decoded record value.
    Event,
    /// Record headers by name, as text; the last of equal names counts.
    Headers,
    /// `topic`, `partition`, `offset`, `timestamp` (ms since 1970), `key`.
    Meta,
    /// `current`, `previous`, `version` of the entity after this event.
    State,
    Tenant,
    /// Recorded results of earlier effects of the event, by effect id.
    Effects,
    /// This effect: `key`, as it goes to the provider.
    Effect,
    /// A provider's answer: `status`, `headers`, `json`, `text`.
    Response,
}

impl Root {
    pub const ALL: [Self; 8] = [
        Self::Event,
        Self::Headers,
        Self::Meta,
        Self::State,
        Self::Tenant,
        Self::Effects,
        Self::Effect,
        Self::Response,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Headers => "headers",
            Self::Meta => "meta",
            Self::State => "state",
            Self::Tenant => "tenant",
            Self::Effects => "effects",
            Self::Effect => "effect",
            Self::Response => "response",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|root| root.name() == name)
    }

    /// The members of the roots that have a fixed set of them.
    pub const fn members(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Meta => Some(&["topic", "partition", "offset", "timestamp", "key"]),
            Self::State => Some(&["current", "previous", "version"]),
            Self::Effect => Some(&["key"]),
            Self::Response => Some(&["status", "headers", "json", "text"]),
            Self::Tenant => Some(&[]),
            Self::Event | Self::Headers | Self::Effects => None,
        }
    }
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Member(Box<str>),
    Index(usize),
}

/// A root and the steps from it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path {
    pub root: Root,
    pub steps: Vec<Step>,
}

impl Path {
    /// The first member's name, if the path has one.
    pub fn first_member(&self) -> Option<&str> {
        match self.steps.first() {
            Some(Step::Member(name)) => Some(name),
            Some(Step::Index(_)) | None => None,
        }
    }

    /// The member of a root with a fixed set that does not exist, if there is one.
    pub fn unknown_member(&self) -> Option<&str> {
        let member = self.first_member()?;
        let known = self.root.members()?;
        (!known.contains(&member)).then_some(member)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.root.name())?;
        self.steps.iter().try_for_each(|step| match step {
            Step::Member(name) if is_word(name) => write!(f, ".{name}"),
            Step::Member(name) => write!(f, "[{name:?}]"),
            Step::Index(index) => write!(f, "[{index}]"),
        })
    }
}

/// Follows `steps` from `value`; `None` where a member is missing or the shape is another one.
pub(super) fn walk<'v>(value: &'v Value, steps: &[Step]) -> Option<&'v Value> {
    steps.iter().try_fold(value, |value, step| match (step, value) {
        (Step::Member(name), Value::Object(members)) => members.get(name),
        (Step::Index(index), Value::List(items)) => items.get(*index),
        (Step::Member(_) | Step::Index(_), _) => None,
    })
}

/// A root name and its steps, when `text` is a plain path and nothing else.
pub(super) fn split(text: &str) -> Option<(&str, Vec<Step>)> {
    let end = text.find(['.', '[']).unwrap_or(text.len());
    let (root, mut rest) = text.split_at_checked(end)?;
    if !is_word(root) {
        return None;
    }
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (name, tail) = after.split_at_checked(end)?;
            if !is_word(name) {
                return None;
            }
            steps.push(Step::Member(name.into()));
            rest = tail;
        } else {
            let (inside, tail) = rest.strip_prefix('[')?.split_once(']')?;
            steps.push(bracket(inside)?);
            rest = tail;
        }
    }
    Some((root, steps))
}

/// `0`, `"name"` or `'name'`, without escapes.
fn bracket(inside: &str) -> Option<Step> {
    let quoted = |quote: char| inside.strip_prefix(quote)?.strip_suffix(quote);
    if let Some(name) = quoted('"').or_else(|| quoted('\'')) {
        let plain = !name.contains(['"', '\'', '\\', '[', ']']);
        return plain.then(|| Step::Member(name.into()));
    }
    let digits = !inside.is_empty() && inside.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| inside.parse().ok().map(Step::Index)).flatten()
}

fn is_word(text: &str) -> bool {
    let mut letters = text.bytes();
    let first = letters.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && letters.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_told_from_an_expression() {
        for path in ["event", "event.a.b", "event.a[0].b", "headers[\"ce-type\"]", "a['x y'].b"] {
            assert!(split(path).is_some(), "{path}");
        }
        for other in ["", "a.", ".a", "a b", "a+b", "a[", "a[]", "a[-1]", "1a", "a(b)", "a.b()"] {
            assert!(split(other).is_none(), "{other}");
        }
    }

    #[test]
    fn a_path_prints_as_it_is_written() {
        for text in ["event", "event.a.b[2].c", "headers[\"x-tenant\"]"] {
            let (root, steps) = split(text).unwrap();
            let path = Path { root: Root::parse(root).unwrap(), steps };
            assert_eq!(path.to_string(), text);
        }
    }
}
