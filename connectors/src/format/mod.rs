//! Record bytes become the value that expressions read.
//!
//! Reads: a record's value and headers. Gives: one [`Value`], or a [`DecodeError`] with a reason of
//! a closed list, upon which the record is parked with its bytes. Never panics on any bytes, never
//! rounds a number, never guesses.

pub mod cloudevents;
pub mod json;

use oncely_core::connector::{Decode, Envelope};
use oncely_core::expr::Header;
use oncely_core::value::Value;
use oncely_core::wanted::Wanted;

/// Why bytes are no event. Texts name places and members, never values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DecodeError {
    pub reason: DecodeReason,
    pub message: Box<str>,
    /// Byte of the value at which it fails, if there is one.
    pub at: Option<usize>,
}

/// The closed list of reasons, for metrics and tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DecodeReason {
    /// A tombstone: Kafka's way to say that a key is gone. It names no business event.
    NullValue,
    TooLarge,
    Syntax,
    /// A member name that stands twice in one object: which of the two counts is not ours to say.
    DuplicateKey,
    TooDeep,
    /// A number whose exponent would fill the memory.
    NumberTooLong,
    /// Bytes or escapes that are no Unicode text.
    BadText,
    /// No CloudEvent, or one without a required attribute.
    BadEnvelope,
    /// Data of a content type that is not read.
    ContentType,
}

impl DecodeReason {
    pub const ALL: [Self; 9] = [
        Self::NullValue,
        Self::TooLarge,
        Self::Syntax,
        Self::DuplicateKey,
        Self::TooDeep,
        Self::NumberTooLong,
        Self::BadText,
        Self::BadEnvelope,
        Self::ContentType,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NullValue => "null_value",
            Self::TooLarge => "too_large",
            Self::Syntax => "syntax",
            Self::DuplicateKey => "duplicate_key",
            Self::TooDeep => "too_deep",
            Self::NumberTooLong => "number_too_long",
            Self::BadText => "bad_text",
            Self::BadEnvelope => "bad_envelope",
            Self::ContentType => "content_type",
        }
    }
}

impl DecodeError {
    pub(crate) fn new(reason: DecodeReason, message: impl Into<Box<str>>) -> Self {
        Self { reason, message: message.into(), at: None }
    }
}

/// Turns a record into the value that the connector's expressions read.
///
/// # Errors
/// [`DecodeError`]: the record is to be parked, with its bytes as they are.
pub fn decode(
    rule: &Decode,
    value: Option<&[u8]>,
    headers: &[Header<'_>],
) -> Result<Value, DecodeError> {
    decode_wanted(rule, value, headers, &Wanted::Everything)
}

/// The same, keeping of plain JSON only what is wanted. Exactly the same records are refused.
///
/// # Errors
/// As [`decode`].
pub fn decode_wanted(
    rule: &Decode,
    value: Option<&[u8]>,
    headers: &[Header<'_>],
    wanted: &Wanted,
) -> Result<Value, DecodeError> {
    let Some(bytes) = value else {
        let text = "the record has no value (a tombstone)";
        return Err(DecodeError::new(DecodeReason::NullValue, text));
    };
    if bytes.len() > rule.bytes_max {
        let text = format!("the value has {} bytes, more than {}", bytes.len(), rule.bytes_max);
        return Err(DecodeError::new(DecodeReason::TooLarge, text));
    }
    match rule.envelope {
        Envelope::None => json::parse_wanted(bytes, wanted),
        Envelope::CloudEvents => cloudevents::parse(bytes, headers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d8_d9_a_missing_and_a_large_value_have_reasons_of_their_own() {
        let rule = Decode { envelope: Envelope::None, bytes_max: 4 };
        let reason = |value| decode(&rule, value, &[]).map_err(|error| error.reason);
        assert_eq!(reason(None), Err(DecodeReason::NullValue));
        assert_eq!(reason(Some(b"12345")), Err(DecodeReason::TooLarge));
        assert_eq!(reason(Some(b"1234")), Ok(Value::Int(1234)));
    }
}
