//! Small notations: durations, sizes, rates, and what may stand alone or in a list.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};

use super::read::Field;

/// Milliseconds, written `250ms`, `15s`, `10m`, `24h`, `400d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Millis(pub(crate) u64);

/// Bytes, written `512B`, `256KiB`, `4MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

/// Calls and milliseconds, written `5/s`, `100/m`, `1000/h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PerTime {
    pub(crate) calls: u32,
    pub(crate) per_ms: u64,
}

/// Shortest and longest wait, written `1s..10m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    pub(crate) base: Millis,
    pub(crate) cap: Millis,
}

/// A duration or `forever`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    For(Millis),
    Forever,
}

/// How long a provider remembers a key: a duration, `forever`, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    For(Millis),
    /// It never forgets one.
    Forever,
    /// None is promised: the receiver decides, and nobody here knows.
    None,
}

/// One status or a range, written `409` or `"500..599"`; both ends belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Statuses {
    pub(crate) first: u16,
    pub(crate) last: u16,
}

/// `x` or `[x, y]`.
#[derive(Clone, Debug)]
pub(crate) struct OneOrMany(pub(crate) Vec<Field<String>>);

// --------------------------------------------------------------------------------------------- //

const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const SIZES: [(&str, u64); 3] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("B", 1)];

/// A whole number and one of the units.
fn measured(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let (_, size) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*size)
}

impl Millis {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        measured(text, &UNITS).map(Self)
    }
}

impl fmt::Display for Millis {
    /// In the largest unit that divides it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |size: u64| self.0 > 0 && self.0.checked_rem(size) == Some(0);
        // Days read worse than hours below a few of them.
        let days = self.0 >= 3 * 86_400_000;
        let unit = UNITS.iter().rev().find(|(name, size)| (*name != "d" || days) && fits(*size));
        match unit {
            Some((name, size)) => write!(f, "{}{name}", self.0.checked_div(*size).unwrap_or(0)),
            None => f.write_str("0s"),
        }
    }
}

impl Millis {
    /// For reading, in as many units as it takes: `20h 15s`.
    pub(crate) fn in_full(self) -> String {
        let mut rest = self.0;
        let mut said = Vec::new();
        for (name, size) in UNITS.iter().rev() {
            // Days read worse than hours below a few of them.
            let count = rest.checked_div(*size).unwrap_or(0);
            if count > 0 && (*name != "d" || count >= 3) {
                said.push(format!("{count}{name}"));
                rest = rest.saturating_sub(count.saturating_mul(*size));
            }
        }
        if said.is_empty() { "0s".to_owned() } else { said.join(" ") }
    }

    /// The next longer one that is whole in the largest unit of this one.
    pub(crate) fn next_whole(self) -> Self {
        let is_unit =
            |size: u64| self.0 >= size && (size < 86_400_000 || self.0 >= size.saturating_mul(3));
        let size = UNITS.iter().rev().map(|(_, size)| *size).find(|size| is_unit(*size));
        let size = size.unwrap_or(1_000).max(1_000);
        let whole = self.0.checked_div(size).unwrap_or(0).saturating_add(1);
        Self(whole.saturating_mul(size))
    }
}

/// The unit that a number alone most likely means, by the name of the notation.
pub(super) fn unit_of(notation: &str) -> Option<&'static str> {
    match notation {
        "duration" | "key window" => Some("s"),
        "rate" => Some("/s"),
        "size" => Some("B"),
        _ => None,
    }
}

/// The unit that is meant where a duration of this name stands without one; the others are seconds.
pub(super) fn unit_in(field: &str, unit: &'static str) -> Option<&'static str> {
    match (field, unit) {
        ("dedupe" | "replay" | "results" | "parked", "s") => Some("d"),
        ("window" | "max_elapsed", "s") => Some("h"),
        _ => None,
    }
}

/// How a number alone is written as what is meant.
pub(super) fn with_unit(number: &str, unit: &str) -> String {
    // Nobody waits for thousands of hours or days: those are seconds.
    let unit = if matches!(unit, "h" | "d") && number.len() > 3 { "s" } else { unit };
    let all = match unit {
        "s" | "h" | "d" => "`ms`, `s`, `m`, `h` and `d`",
        "/s" => "`/s`, `/m` and `/h`",
        _ => "`B`, `KiB` and `MiB`",
    };
    format!("write it with its unit: `{number}{unit}`; there are {all}")
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Implements reading from text and the editor schema. `$help` says how it is written.
macro_rules! word {
    ($type:ty, $name:literal, $pattern:literal, $help:literal, $parse:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Word;
                impl Visitor<'_> for Word {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str(concat!("a ", $name))
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$type, E> {
                        let parse: fn(&str) -> Option<$type> = $parse;
                        parse(text).ok_or_else(|| {
                            let bare = unit_of($name).filter(|_| is_number(text));
                            let with_unit = bare.map(|unit| with_unit(text, unit));
                            let help = with_unit.as_deref().unwrap_or($help);
                            E::custom(format_args!("`{text}` is no {} | {help}", $name))
                        })
                    }
                }
                deserializer.deserialize_str(Word)
            }
        }

        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
    };
}

word!(
    Millis,
    "duration",
    "^[0-9]+(ms|s|m|h|d)$",
    "write `250ms`, `15s`, `10m`, `24h` or `400d`",
    |text| { Millis::parse(text) }
);
word!(Bytes, "size", "^[0-9]+(B|KiB|MiB)$", "write `512B`, `256KiB` or `4MiB`", |text| {
    measured(text, &SIZES).map(Bytes)
});
word!(PerTime, "rate", "^[0-9]+/(s|m|h)$", "write `5/s`, `100/m` or `1000/h`", |text| {
    let (calls, unit) = text.split_once('/')?;
    let per_ms = UNITS.iter().find(|(name, _)| *name == unit && ["s", "m", "h"].contains(name))?.1;
    let calls = calls.parse().ok().filter(|calls| *calls > 0)?;
    Some(PerTime { calls, per_ms })
});
word!(
    Backoff,
    "back-off",
    "^[0-9]+(ms|s|m|h|d)\\.\\.[0-9]+(ms|s|m|h|d)$",
    "write the shortest and the longest wait: `1s..10m`",
    |text| {
        let (base, cap) = text.split_once("..")?;
        Some(Backoff { base: Millis::parse(base)?, cap: Millis::parse(cap)? })
    }
);
word!(
    Wait,
    "duration",
    "^([0-9]+(ms|s|m|h|d)|forever)$",
    "write `60s`, `0s` or `forever`",
    |text| {
        match text {
            "forever" => Some(Wait::Forever),
            text => Millis::parse(text).map(Wait::For),
        }
    }
);
word!(
    Window,
    "key window",
    "^([0-9]+(ms|s|m|h|d)|forever|none)$",
    "write `24h`, `forever` where keys are never forgotten, or `none` where none is promised",
    |text| {
        match text {
            "none" => Some(Window::None),
            "forever" => Some(Window::Forever),
            text => Millis::parse(text).map(Window::For),
        }
    }
);

impl Statuses {
    fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (100 <= first && first <= last && last <= 999).then_some(Self { first, last })
    }
}

impl<'de> Deserialize<'de> for Statuses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Statuses;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a status or a range of them")
            }

            fn visit_u64<E: de::Error>(self, code: u64) -> Result<Statuses, E> {
                self.visit_str(&code.to_string())
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Statuses, E> {
                Statuses::parse(text).ok_or_else(|| {
                    E::custom(format_args!(
                        "`{text}` is no status | write `409`, or a range: `\"500..599\"`"
                    ))
                })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for Statuses {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Statuses".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "integer", "minimum": 100, "maximum": 999 },
                { "type": "string", "pattern": "^[1-9][0-9]{2}(\\.\\.[1-9][0-9]{2})?$" }
            ]
        })
    }
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either(PhantomData<()>);
        impl<'de> Visitor<'de> for Either {
            type Value = OneOrMany;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }

            // The place of a single text is that of the field around it.
            fn visit_str<E: de::Error>(self, text: &str) -> Result<OneOrMany, E> {
                let place = super::source::Span::default();
                Ok(OneOrMany(vec![Field::Valid(place, text.to_owned())]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<OneOrMany, A::Error> {
                let mut all = Vec::new();
                while let Some(item) = items.next_element()? {
                    all.push(item);
                }
                Ok(OneOrMany(all))
            }
        }
        deserializer.deserialize_any(Either(PhantomData))
    }
}

impl OneOrMany {
    /// The texts with their places; `around` is the place of the field.
    pub(crate) fn placed(&self, around: super::source::Span) -> Vec<(super::source::Span, &str)> {
        let place = |span: super::source::Span| if span.end == 0 { around } else { span };
        let texts = self.0.iter().filter_map(Field::valid);
        texts.map(|(span, text)| (place(span), text.as_str())).collect()
    }
}

impl JsonSchema for OneOrMany {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "OneOrMany".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "string" },
                { "type": "array", "items": { "type": "string" }, "minItems": 1 }
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_read_in_full_and_the_next_whole_one_is_longer() {
        for (ms, full, next) in [
            (72_015_000, "20h 15s", "21h"),
            (7_260_000, "2h 1m", "3h"),
            (172_800_000, "48h", "49h"),
            (7_776_000_000, "90d", "91d"),
            (60_000, "1m", "2m"),
            (250, "250ms", "1s"),
            (0, "0s", "1s"),
        ] {
            let (length, least) = (Millis(ms).in_full(), Millis(ms).next_whole().to_string());
            assert_eq!((&*length, &*least), (full, next));
        }
    }

    #[test]
    fn durations_are_read_and_shown_alike() {
        for text in ["250ms", "15s", "10m", "24h", "400d", "0s", "48h"] {
            assert_eq!(Millis::parse(text).unwrap().to_string(), text);
        }
        for bad in ["", "15", "s", "1.5s", "-1s", "1 s", "1h30m", "99999999999999999999d", "1w"] {
            assert_eq!(Millis::parse(bad), None, "{bad}");
        }
    }
}
