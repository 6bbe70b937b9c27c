//! JSON, token by token.
//!
//! Numbers keep the text they were written with. What other readers let pass in silence is refused
//! here: member names that repeat, nesting without end, lone surrogates, a byte-order mark, bytes
//! behind the value.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;

use jiter::{Jiter, JiterError, JiterErrorType, JsonErrorType, Peek};
use oncely_core::value::{Decimal, Member, Object, Value};
use oncely_core::wanted::Wanted;

use super::{DecodeError, DecodeReason};

/// Levels of lists and objects.
pub const DEPTH_MAX: usize = 128;
/// Characters of a member name that an error shows.
const NAME_CHARS_MAX: usize = 64;

/// Reads one JSON value that fills `bytes`.
///
/// # Errors
/// [`DecodeError`] with the byte at which it fails.
pub fn parse(bytes: &[u8]) -> Result<Value, DecodeError> {
    parse_wanted(bytes, &Wanted::Everything)
}

/// The same, keeping only what is wanted: members that nobody looks at are missing. They are checked
/// all the same, so exactly the same bytes are refused.
///
/// # Errors
/// As [`parse`].
pub fn parse_wanted(bytes: &[u8], wanted: &Wanted) -> Result<Value, DecodeError> {
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(error(DecodeReason::Syntax, "begins with a byte-order mark", 0));
    }
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(error(DecodeReason::Syntax, "the value is empty", 0));
    }
    let mut tokens = Jiter::new(bytes);
    let peek = tokens.peek().map_err(|cause| syntax(&cause))?;
    let value = value(&mut tokens, peek, 0, (Some(wanted), &mut Names::new()))?;
    tokens.finish().map_err(|cause| syntax(&cause))?;
    Ok(value)
}

/// Reads a value; without `wanted` it is only checked, and comes back as null.
fn value(
    tokens: &mut Jiter<'_>,
    peek: Peek,
    depth: usize,
    (wanted, names): (Option<&Wanted>, &mut Names),
) -> Result<Value, DecodeError> {
    match peek {
        Peek::Null => tokens.known_null().map(|()| Value::Null).map_err(|cause| syntax(&cause)),
        Peek::True | Peek::False => {
            tokens.known_bool(peek).map(Value::Bool).map_err(|cause| syntax(&cause))
        }
        Peek::String => {
            let text = tokens.known_str().map_err(|cause| syntax(&cause))?;
            Ok(if wanted.is_some() { Value::text(text) } else { Value::Null })
        }
        Peek::Array => list(tokens, depth, wanted, names),
        Peek::Object => object(tokens, depth, wanted, names),
        number => self::number(tokens, number),
    }
}

fn list(
    tokens: &mut Jiter<'_>,
    depth: usize,
    wanted: Option<&Wanted>,
    names: &mut Names,
) -> Result<Value, DecodeError> {
    let depth = deeper(tokens, depth)?;
    // Whoever reads a list by its members' names gets it whole.
    let wanted = wanted.map(|_| &Wanted::Everything);
    let mut items = Vec::new();
    let mut next = tokens.known_array().map_err(|cause| syntax(&cause))?;
    while let Some(peek) = next {
        let item = value(tokens, peek, depth, (wanted, &mut *names))?;
        if wanted.is_some() {
            items.push(item);
        }
        next = tokens.array_step().map_err(|cause| syntax(&cause))?;
    }
    Ok(if wanted.is_some() { Value::list(items) } else { Value::Null })
}

fn object(
    tokens: &mut Jiter<'_>,
    depth: usize,
    wanted: Option<&Wanted>,
    names: &mut Names,
) -> Result<Value, DecodeError> {
    let depth = deeper(tokens, depth)?;
    let mut members: Vec<Member> = match wanted {
        Some(Wanted::Members(some)) => Vec::with_capacity(some.len()),
        Some(Wanted::Everything) | None => Vec::new(),
    };
    let mut own = names.begin();
    let mut next = tokens.known_object().map_err(|cause| syntax(&cause))?;
    while let Some(name) = next {
        let kept = wanted.and_then(|wanted| match wanted {
            Wanted::Everything => Some((shared_name(name), wanted)),
            Wanted::Members(_) => wanted.member(name),
        });
        let repeated = names.add(&mut own, name);
        let peek = tokens.peek().map_err(|cause| syntax(&cause))?;
        let at = tokens.current_index();
        if let Some(name) = repeated {
            return Err(twice(&name, at));
        }
        match kept {
            None => drop(value(tokens, peek, depth, (None, &mut *names))?),
            Some((name, inner)) => {
                members.push((name, value(tokens, peek, depth, (Some(inner), &mut *names))?));
            }
        }
        next = tokens.next_key().map_err(|cause| syntax(&cause))?;
    }
    names.end(&own);
    if wanted.is_none() {
        return Ok(Value::Null);
    }
    let at = tokens.current_index();
    Object::new(members).map(Value::Object).map_err(|name| twice(&name, at))
}

fn twice(name: &str, at: usize) -> DecodeError {
    let shown: String = name.chars().take(NAME_CHARS_MAX).collect();
    error(
        DecodeReason::DuplicateKey,
        &format!("the member {shown:?} stands twice in one object"),
        at,
    )
}

/// Names of the members of all objects that are open, one behind the other: those of an inner object lie on those of
/// the outer one until it ends, so that a record takes one piece of memory for them, however many objects it has.
struct Names {
    bytes: String,
    /// Where each ends, with its beginning as a number, which tells most of them apart.
    ends: Vec<(u64, usize)>,
}

/// Where the names of one object begin. Few as a rule, and then compared one by one; of many, a hash says which.
struct Own {
    bytes: usize,
    ends: usize,
    many: HashSet<Box<str>>,
}

/// Names that are compared one by one.
const FEW_NAMES: usize = 32;

impl Names {
    fn new() -> Self {
        Self { bytes: String::with_capacity(512), ends: Vec::with_capacity(64) }
    }

    fn begin(&self) -> Own {
        Own { bytes: self.bytes.len(), ends: self.ends.len(), many: HashSet::new() }
    }

    fn end(&mut self, own: &Own) {
        self.bytes.truncate(own.bytes);
        self.ends.truncate(own.ends);
    }

    /// Gives a name back that was there already.
    fn add(&mut self, own: &mut Own, name: &str) -> Option<Box<str>> {
        let tag = tag(name);
        let mut start = own.bytes;
        let few = self.ends.get(own.ends..).unwrap_or_default();
        for &(known, end) in few {
            if known == tag && self.bytes.get(start..end) == Some(name) {
                return Some(name.into());
            }
            start = end;
        }
        if few.len() < FEW_NAMES {
            self.bytes.push_str(name);
            self.ends.push((tag, self.bytes.len()));
            return None;
        }
        if own.many.insert(name.into()) { None } else { Some(name.into()) }
    }
}

/// The first seven bytes and the length of a name.
fn tag(name: &str) -> u64 {
    let mut tag = [0; 8];
    tag.iter_mut().zip(name.bytes().take(7)).for_each(|(to, from)| *to = from);
    if let Some(last) = tag.last_mut() {
        *last = u8::try_from(name.len()).unwrap_or(u8::MAX);
    }
    u64::from_be_bytes(tag)
}

/// Names that one thread remembers, and how long one may be.
const NAMES_MAX: usize = 256;
const NAME_BYTES_SHARED_MAX: usize = 64;

thread_local! {
    static NAMES: RefCell<[Option<Arc<str>>; NAMES_MAX]> = const { RefCell::new([const { None }; NAMES_MAX]) };
}

/// A member's name. The same few stand in record after record, so each is kept once, in a place that
/// its own bytes name; another name of that place takes it over.
fn shared_name(name: &str) -> Arc<str> {
    if name.len() > NAME_BYTES_SHARED_MAX {
        return Arc::from(name);
    }
    // FNV-1a; who forges names wins nothing but an allocation.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let place = usize::try_from(hash >> 32).unwrap_or(0) % NAMES_MAX;
    NAMES.with_borrow_mut(|names| match names.get_mut(place) {
        Some(Some(known)) if **known == *name => Arc::clone(known),
        Some(place) => Arc::clone(place.insert(Arc::from(name))),
        None => Arc::from(name),
    })
}

fn number(tokens: &mut Jiter<'_>, peek: Peek) -> Result<Value, DecodeError> {
    let at = tokens.current_index();
    let text = tokens.known_number_bytes(peek).map_err(|cause| syntax(&cause))?;
    let text = std::str::from_utf8(text).unwrap_or_default();
    if let Ok(number) = text.parse() {
        return Ok(Value::Int(number));
    }
    let number = Decimal::parse(text).map(Value::Decimal);
    let long = || error(DecodeReason::NumberTooLong, "a number's exponent is too large", at);
    number.ok_or_else(long)
}

fn deeper(tokens: &Jiter<'_>, depth: usize) -> Result<usize, DecodeError> {
    if depth >= DEPTH_MAX {
        let text = format!("nested deeper than {DEPTH_MAX} levels");
        return Err(error(DecodeReason::TooDeep, &text, tokens.current_index()));
    }
    Ok(depth.saturating_add(1))
}

#[allow(clippy::wildcard_enum_match_arm, reason = "all others are plain syntax errors")]
fn syntax(cause: &JiterError) -> DecodeError {
    let JiterErrorType::JsonError(kind) = &cause.error_type else {
        return error(DecodeReason::Syntax, "a value was expected", cause.index);
    };
    let (reason, text) = match kind {
        JsonErrorType::InvalidUnicodeCodePoint => (DecodeReason::BadText, "is no UTF-8 text"),
        JsonErrorType::LoneLeadingSurrogateInHexEscape
        | JsonErrorType::UnexpectedEndOfHexEscape => {
            (DecodeReason::BadText, "an escape is half a character (a lone surrogate)")
        }
        JsonErrorType::NumberOutOfRange => {
            (DecodeReason::NumberTooLong, "a number has thousands of digits")
        }
        other => return error(DecodeReason::Syntax, &other.to_string(), cause.index),
    };
    error(reason, text, cause.index)
}

fn error(reason: DecodeReason, text: &str, at: usize) -> DecodeError {
    DecodeError { reason, message: format!("{text} (byte {at})").into(), at: Some(at) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reason(bytes: &[u8]) -> DecodeReason {
        parse(bytes).expect_err("was accepted").reason
    }

    #[test]
    fn d1_what_is_no_json_is_refused() {
        for bytes in [
            &b""[..],
            b"  \n",
            b"\xef\xbb\xbf{}",
            b"{} x",
            b"{}{}",
            b"{",
            b"[1,]",
            b"{\"a\":1,}",
            b"{a:1}",
            b"nul",
            b"NaN",
            b"Infinity",
            b"-",
            b"01",
            b"1.",
            b"+1",
            b"'a'",
            b"\"a\nb\"",
            b"// x\n1",
        ] {
            let shown = String::from_utf8_lossy(bytes);
            assert_eq!(parse(bytes).map_err(|e| e.reason), Err(DecodeReason::Syntax), "{shown}");
        }
    }

    #[test]
    fn d2_a_repeated_member_is_refused_wherever_it_stands() {
        for text in [
            r#"{"id":"a","id":"b"}"#,
            r#"{"id":1,"x":2,"id":1}"#,
            r#"{"a":[{"b":{"c":1,"c":2}}]}"#,
            r#"{"id":1,"\u0069d":2}"#,
            r#"{"":1,"":2}"#,
            r#"{"a":{"b":1,"c":2},"d":3,"a":4}"#,
        ] {
            assert_eq!(reason(text.as_bytes()), DecodeReason::DuplicateKey, "{text}");
        }
        assert!(parse(br#"{"a":{"a":1},"A":2}"#).is_ok());
        assert!(parse(br#"{"a":{"b":1,"c":[{"b":2},{"b":3}]},"b":4,"c":5}"#).is_ok());
    }

    #[test]
    fn d3_nesting_has_an_end() {
        let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(nested(DEPTH_MAX).as_bytes()).is_ok());
        assert_eq!(reason(nested(DEPTH_MAX + 1).as_bytes()), DecodeReason::TooDeep);
        let objects = "{\"a\":".repeat(100_000);
        assert_eq!(reason(objects.as_bytes()), DecodeReason::TooDeep);
    }

    #[test]
    fn d4_numbers_keep_their_text() {
        for (text, want) in [
            ("0", "0"),
            ("-0", "0"),
            ("9223372036854775807", "9223372036854775807"),
            ("-9223372036854775808", "-9223372036854775808"),
        ] {
            assert_eq!(parse(text.as_bytes()), Ok(Value::Int(want.parse().unwrap())), "{text}");
        }
        for text in ["9223372036854775808", "18446744073709551616", "1.0", "1e0", "19.90", "1E400"]
        {
            let want = Value::Decimal(Decimal::parse(text).unwrap());
            assert_eq!(parse(text.as_bytes()), Ok(want), "{text}");
        }
        for text in ["1e999999999", "1e-999999999", "1e99999999999999999999"] {
            assert_eq!(reason(text.as_bytes()), DecodeReason::NumberTooLong, "{text}");
        }
        assert_eq!(reason("9".repeat(100_000).as_bytes()), DecodeReason::NumberTooLong);
    }

    #[test]
    fn d6_nul_is_a_character_like_others_here() {
        assert_eq!(parse(br#""a\u0000b""#), Ok(Value::text("a\0b")));
    }

    #[test]
    fn d7_what_is_no_unicode_is_refused() {
        for bytes in [
            &b"\"\xff\""[..],
            b"\"\\ud800\"",
            b"\"\\ud800x\"",
            b"{\"\xc3\":1}",
            b"\"\xed\xa0\x80\"",
        ] {
            let refused = reason(bytes);
            assert_eq!(refused, DecodeReason::BadText, "{}", String::from_utf8_lossy(bytes));
        }
        assert!(parse(b"\"\\udc00\"").is_err());
        assert_eq!(parse(b"\"\\ud83d\\ude00\""), Ok(Value::text("\u{1f600}")));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _outcome = parse(&bytes).is_ok();
        }

        /// Looking at less refuses the same bytes, and gives the same of what is looked at.
        #[test]
        fn what_nobody_looks_at_is_checked_all_the_same(
            bytes in prop_oneof![
                prop::collection::vec(
                    prop::sample::select(&br#"{}[]":,ab10.e-\u "#[..]), 0..40),
                "[{]\"a\":[{]\"(b|c)\":([0-9]|[{]\"a\":1,\"[ab]\":2[}]),\"[bc]\":1[}],\"[ab]\":[0-9][}]"
                    .prop_map(String::into_bytes),
            ],
        ) {
            let inner = Wanted::Members([("b".into(), Wanted::Everything)].into());
            let wanted = Wanted::Members([("a".into(), inner)].into());
            let whole = parse(&bytes);
            let part = parse_wanted(&bytes, &wanted);
            match (whole, part) {
                (Ok(whole), Ok(part)) => {
                    let at = |value: &Value| value.get("a").and_then(|a| a.get("b")).cloned();
                    prop_assert_eq!(at(&whole), at(&part));
                    if !matches!(whole, Value::Object(_)) {
                        prop_assert_eq!(whole, part);
                    }
                }
                (whole, part) => prop_assert_eq!(whole.err(), part.err()),
            }
        }

        #[test]
        fn what_serde_json_writes_reads_the_same(text in "\\PC*", number: i64) {
            let written = serde_json::json!({"text": text, "number": number, "list": [null, true]});
            let read = parse(written.to_string().as_bytes()).unwrap();
            prop_assert_eq!(read.get("text"), Some(&Value::text(text)));
            prop_assert_eq!(read.get("number"), Some(&Value::Int(number)));
        }
    }
}
