//! Fingerprints: whether two events with one id say the same.
//!
//! The hash is type-tagged (`1` and `"1"` differ, as do 2^53 and 2^53+1) and does not depend on key
//! order, white space or the way in which an equal number is written.

use crate::key::{Hasher, Key};
use crate::value::Value;

/// Hash of the declared fields of an event, in the order of their declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(pub Key);

impl Fingerprint {
    /// Over `fields`; an absent field counts as null.
    pub fn of<'a>(fields: impl IntoIterator<Item = &'a Value>) -> Self {
        let hasher = Hasher::new("fingerprint");
        Self(fields.into_iter().fold(hasher, feed).finish())
    }
}

fn feed(hasher: Hasher, value: &Value) -> Hasher {
    match value {
        Value::Null => hasher.bytes(b"n"),
        Value::Bool(true) => hasher.bytes(b"t"),
        Value::Bool(false) => hasher.bytes(b"f"),
        Value::Int(number) => hasher.bytes(b"#").part(&number.to_string()),
        Value::Decimal(number) => hasher.bytes(b"#").part(&number.normalized()),
        Value::Text(text) => hasher.bytes(b"s").part(text),
        Value::List(items) => {
            let hasher = hasher.bytes(b"[").part(&items.len().to_string());
            items.iter().fold(hasher, feed)
        }
        Value::Object(members) => {
            let hasher = hasher.bytes(b"{").part(&members.len().to_string());
            members.iter().fold(hasher, |hasher, (name, value)| feed(hasher.part(name), value))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Decimal;

    fn of(value: Value) -> Fingerprint {
        Fingerprint::of([&value])
    }

    #[test]
    fn d4_neighbours_beyond_two_to_the_53_differ() {
        assert_ne!(of(Value::Int(1 << 53)), of(Value::Int((1 << 53) + 1)));
    }

    #[test]
    fn types_are_tagged_and_shapes_do_not_run_together() {
        assert_ne!(of(Value::Int(1)), of(Value::text("1")));
        assert_ne!(of(Value::Null), of(Value::text("")));
        let nested = Value::list([Value::list([Value::Int(1)]), Value::list([])]);
        let other = Value::list([Value::list([]), Value::list([Value::Int(1)])]);
        assert_ne!(of(nested), of(other));
    }

    #[test]
    fn d5_one_number_written_in_three_ways_is_one() {
        let written = |text| of(Value::Decimal(Decimal::parse(text).unwrap()));
        assert_eq!(of(Value::Int(1)), written("1.0"));
        assert_eq!(of(Value::Int(1)), written("1e0"));
    }
}
