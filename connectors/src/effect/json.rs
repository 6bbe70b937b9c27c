//! Reads the JSON of an answer into a [`Value`].
//!
//! Numbers keep what was written; an object with two equal keys is refused, since nobody can know
//! which of them was meant.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiter::{Jiter, JiterError, Peek};
use oncely_core::value::{Decimal, Value};

/// Levels that lists and objects may be nested.
const DEPTH_MAX: usize = 64;

/// Why a body is no JSON that can be read.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    #[error("{0}")]
    Syntax(#[from] JiterError),
    #[error("a key stands twice in one object")]
    RepeatedKey,
    #[error("a number is too large")]
    Number,
    #[error("nested deeper than {DEPTH_MAX} levels")]
    Depth,
}

pub(super) fn decode(bytes: &[u8]) -> Result<Value, JsonError> {
    let mut reader = Jiter::new(bytes);
    let first = reader.peek()?;
    let value = value(&mut reader, first, DEPTH_MAX)?;
    reader.finish()?;
    Ok(value)
}

fn value(reader: &mut Jiter<'_>, peek: Peek, depth: usize) -> Result<Value, JsonError> {
    Ok(match peek {
        Peek::Null => {
            reader.known_null()?;
            Value::Null
        }
        Peek::True | Peek::False => Value::Bool(reader.known_bool(peek)?),
        Peek::String => Value::text(reader.known_str()?),
        Peek::Array => list(reader, depth.checked_sub(1).ok_or(JsonError::Depth)?)?,
        Peek::Object => object(reader, depth.checked_sub(1).ok_or(JsonError::Depth)?)?,
        _ => number(reader.known_number_bytes(peek)?)?,
    })
}

fn list(reader: &mut Jiter<'_>, depth: usize) -> Result<Value, JsonError> {
    let mut items = Vec::new();
    let mut next = reader.known_array()?;
    while let Some(peek) = next {
        items.push(value(reader, peek, depth)?);
        next = reader.array_step()?;
    }
    Ok(Value::list(items))
}

fn object(reader: &mut Jiter<'_>, depth: usize) -> Result<Value, JsonError> {
    let mut members: BTreeMap<Arc<str>, Value> = BTreeMap::new();
    let mut next = reader.known_object()?.map(Arc::<str>::from);
    while let Some(key) = next {
        let peek = reader.peek()?;
        if members.insert(key, value(reader, peek, depth)?).is_some() {
            return Err(JsonError::RepeatedKey);
        }
        next = reader.next_key()?.map(Arc::<str>::from);
    }
    Ok(Value::Object(Arc::new(members)))
}

fn number(text: &[u8]) -> Result<Value, JsonError> {
    let text = std::str::from_utf8(text).map_err(|_| JsonError::Number)?;
    if let Ok(number) = text.parse() {
        return Ok(Value::Int(number));
    }
    Decimal::parse(text).map(Value::Decimal).ok_or(JsonError::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_exact_and_doubtful_bodies_are_refused() {
        let read = decode(br#"{"a":[9007199254740993,1.10,null,true,"x"],"b":{}}"#).unwrap();
        let list = read.get("a").unwrap();
        let want = [
            Value::Int(9_007_199_254_740_993),
            Value::Decimal(Decimal::parse("1.10").unwrap()),
            Value::Null,
            Value::Bool(true),
            Value::text("x"),
        ];
        assert_eq!(*list, Value::list(want));
        for bad in
            ["", "{", r#"{"a":1"#, r#"{"a":1,"a":1}"#, "<html>", "1 2", "1e999999", "\"\u{1}\""]
        {
            assert!(decode(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(decode("[".repeat(100).as_bytes()).is_err());
    }
}
