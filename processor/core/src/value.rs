//! The value an event is turned into once, and what expressions and templates read.
//!
//! Integers stay exact: a number that is written as an integer and fits 64 bits is an [`Value::Int`];
//! every other number keeps the text it was written with. Nothing here ever passes through `f64`.

mod object;

use std::fmt;
use std::sync::Arc;

pub use object::{Member, Object};

/// A decoded value. Object keys are unique and sorted, which makes every walk over one the same.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    Int(i64),
    Decimal(Decimal),
    Text(Arc<str>),
    List(Arc<[Value]>),
    Object(Object),
}

/// The name of a value's type, for messages to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Null,
    Bool,
    Integer,
    Decimal,
    Text,
    List,
    Object,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "null",
            Self::Bool => "a boolean",
            Self::Integer => "an integer",
            Self::Decimal => "a decimal number",
            Self::Text => "a text",
            Self::List => "a list",
            Self::Object => "an object",
        })
    }
}

// --------------------------------------------------------------------------------------------- //

impl Value {
    /// An object from pairs; the last of two equal keys wins (decoders refuse those before).
    pub fn object<K: Into<Arc<str>>>(pairs: impl IntoIterator<Item = (K, Self)>) -> Self {
        Self::Object(pairs.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }

    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(text.into())
    }

    pub fn list(items: impl IntoIterator<Item = Self>) -> Self {
        Self::List(items.into_iter().collect())
    }

    /// The member `name` of an object; `None` where there is none or this is no object.
    pub fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => members.get(name),
            Self::Null
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Decimal(_)
            | Self::Text(_)
            | Self::List(_) => None,
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Self::Null => Kind::Null,
            Self::Bool(_) => Kind::Bool,
            Self::Int(_) => Kind::Integer,
            Self::Decimal(_) => Kind::Decimal,
            Self::Text(_) => Kind::Text,
            Self::List(_) => Kind::List,
            Self::Object(_) => Kind::Object,
        }
    }

    /// The text that a business id or key part is made of: texts and integers only, since these
    /// are the same in every producer. `None` for all else.
    pub fn as_key_part(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.to_string()),
            Self::Int(number) => Some(number.to_string()),
            Self::Decimal(number) => number.is_integer().then(|| number.as_str().to_owned()),
            Self::Null | Self::Bool(_) | Self::List(_) | Self::Object(_) => None,
        }
    }
}

// --------------------------------------------------------------------------------------------- //

/// A number that is no 64-bit integer, by the text it was written with (JSON's number grammar).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decimal(Arc<str>);

/// Digits an exponent may move the point by. Beyond it a number is no business value but an attack
/// on memory (`1e999999999` has ten characters and a billion digits).
pub const EXPONENT_MAX: i32 = 400;

impl Decimal {
    /// Reads JSON's number grammar; `None` for anything else or an exponent beyond
    /// [`EXPONENT_MAX`].
    pub fn parse(text: &str) -> Option<Self> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        if exponent.checked_abs()? > EXPONENT_MAX {
            return None;
        }
        let digits = mantissa.strip_prefix('-').unwrap_or(mantissa);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let no_leading_zero = whole == "0" || !whole.starts_with('0');
        (is_number(whole) && is_number(fraction) && no_leading_zero).then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is written without a fraction and an exponent.
    pub fn is_integer(&self) -> bool {
        !self.0.contains(['.', 'e', 'E'])
    }

    /// One text for equal numbers: `1`, `1.0`, `10e-1` all give `1`; `-0.0` gives `0`.
    /// Form: optional `-`, digits without leading zeros, and a fraction without trailing zeros.
    pub fn normalized(&self) -> String {
        let (mantissa, exponent) = self.0.split_once(['e', 'E']).unwrap_or((&self.0, "0"));
        let exponent = exponent.parse::<i32>().unwrap_or(0);
        let negative = mantissa.starts_with('-');
        let digits = mantissa.trim_start_matches('-');
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let mut all: String = format!("{whole}{fraction}");
        let mut point = i64::try_from(whole.len()).unwrap_or(0).saturating_add(exponent.into());
        while point <= 0 {
            all.insert(0, '0');
            point = point.saturating_add(1);
        }
        let point = usize::try_from(point).unwrap_or(0);
        while all.len() < point {
            all.push('0');
        }
        let (whole, fraction) = all.split_at(point);
        let whole = whole.trim_start_matches('0');
        let fraction = fraction.trim_end_matches('0');
        let mut text = String::with_capacity(all.len().saturating_add(3));
        if negative && !(whole.is_empty() && fraction.is_empty()) {
            text.push('-');
        }
        text.push_str(if whole.is_empty() { "0" } else { whole });
        if !fraction.is_empty() {
            text.push('.');
            text.push_str(fraction);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalized(text: &str) -> String {
        Decimal::parse(text).unwrap().normalized()
    }

    #[test]
    fn d5_equal_numbers_have_one_normal_form() {
        for (text, want) in [
            ("1.0", "1"),
            ("10e-1", "1"),
            ("1e0", "1"),
            ("0.10", "0.1"),
            ("-0.0", "0"),
            ("-1.50e1", "-15"),
            ("12e2", "1200"),
            ("1e-3", "0.001"),
            ("18446744073709551616", "18446744073709551616"),
        ] {
            assert_eq!(normalized(text), want, "{text}");
        }
    }

    #[test]
    fn d4_a_number_that_would_fill_the_memory_is_refused() {
        assert_eq!(Decimal::parse("1e999999999"), None);
        assert_eq!(Decimal::parse("1e-999999999"), None);
        for bad in ["", "-", "01", "1.", ".5", "1e", "NaN", "0x1", "1_0"] {
            assert_eq!(Decimal::parse(bad), None, "{bad}");
        }
    }
}
