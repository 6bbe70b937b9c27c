//! CloudEvents 1.0, both modes of its Kafka binding.
//!
//! Structured: `content-type` begins with `application/cloudevents`, the value is the whole event
//! as JSON. Binary: attributes are `ce_*` headers and the value is the data, of the type that
//! `content-type` names. A record without a content type and without `ce_*` headers is read as
//! structured when its value says `specversion`, since many producers set no headers.
//!
//! Either way the event has its attributes as members and the data as `data`.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use oncely_core::expr::Header;
use oncely_core::time::millis;
use oncely_core::value::{Kind, Member, Object, Value};

use super::{DecodeError, DecodeReason, json};

const PREFIX: &str = "ce_";
/// Members that are no attributes.
const DATA: [&str; 2] = ["data", "data_base64"];
/// Of a name that is refused.
const NAME_CHARS_SHOWN: usize = 60;
const REQUIRED: [&str; 4] = ["specversion", "id", "source", "type"];

/// Reads one CloudEvent.
///
/// # Errors
/// [`DecodeReason::BadEnvelope`] names the attribute; others are about the data.
pub fn parse(bytes: &[u8], headers: &[Header<'_>]) -> Result<Value, DecodeError> {
    let content_type = content_type(headers)?;
    match content_type.as_deref() {
        Some(kind) if kind.starts_with("application/cloudevents-batch") => {
            Err(envelope("a batch of CloudEvents in one record is not read"))
        }
        Some("application/cloudevents" | "application/cloudevents+json") => structured(bytes),
        Some(kind) if kind.starts_with("application/cloudevents") => {
            let text = "a structured CloudEvent in another format than JSON is not read";
            Err(DecodeError::new(DecodeReason::ContentType, text))
        }
        None if !headers.iter().any(|header| header.name.starts_with(PREFIX)) => structured(bytes),
        kind => binary(bytes, headers, kind),
    }
}

/// Without parameters and in lower case.
fn content_type(headers: &[Header<'_>]) -> Result<Option<String>, DecodeError> {
    let mut named =
        headers.iter().filter(|header| header.name.eq_ignore_ascii_case("content-type"));
    let Some(header) = named.next() else { return Ok(None) };
    if named.next().is_some() {
        return Err(envelope("the header content-type stands twice"));
    }
    let text = header.value.and_then(|value| std::str::from_utf8(value).ok());
    let text = text.ok_or_else(|| envelope("the header content-type is no text"))?;
    let essence = text.split(';').next().unwrap_or_default();
    Ok(Some(essence.trim().to_ascii_lowercase()))
}

fn binary(
    bytes: &[u8],
    headers: &[Header<'_>],
    content_type: Option<&str>,
) -> Result<Value, DecodeError> {
    let mut members: Vec<Member> = Vec::new();
    for header in headers {
        let Some(name) = header.name.strip_prefix(PREFIX) else { continue };
        if name == "data" {
            return Err(envelope("the header ce_data is no attribute"));
        }
        let text = header.value.and_then(|value| std::str::from_utf8(value).ok());
        let text = text.ok_or_else(|| envelope(&format!("the attribute {name} is no text")))?;
        members.push((Arc::from(name), Value::text(text)));
    }
    let twice = |name: Arc<str>| envelope(&format!("the attribute {name} stands twice"));
    let mut members = Object::new(members).map_err(twice)?;
    attributes(&members)?;
    members = members.with("data", Some(data(bytes, content_type)?));
    if let Some(kind) = content_type {
        members = members.with("datacontenttype", Some(Value::text(kind)));
    }
    Ok(Value::Object(members))
}

fn data(bytes: &[u8], content_type: Option<&str>) -> Result<Value, DecodeError> {
    match content_type {
        None | Some("application/json" | "text/json") => json::parse(bytes),
        Some(kind) if kind.ends_with("+json") => json::parse(bytes),
        Some(kind) if kind.starts_with("text/") => {
            let text = std::str::from_utf8(bytes);
            text.map(Value::text)
                .map_err(|_| DecodeError::new(DecodeReason::BadText, "the data is no UTF-8 text"))
        }
        Some(_) => {
            let text = "data of this content type is not read; JSON and text are";
            Err(DecodeError::new(DecodeReason::ContentType, text))
        }
    }
}

fn structured(bytes: &[u8]) -> Result<Value, DecodeError> {
    let Value::Object(members) = json::parse(bytes)? else {
        return Err(envelope("the value is no JSON object"));
    };
    attributes(&members)?;
    let Some(encoded) = members.get("data_base64") else {
        return Ok(Value::Object(members));
    };
    let Value::Text(encoded) = encoded else {
        return Err(envelope("data_base64 is no text"));
    };
    if members.get("data").is_some() {
        return Err(envelope("has both data and data_base64"));
    }
    let decoded = STANDARD.decode(encoded.as_bytes());
    let decoded = decoded.map_err(|_| envelope("data_base64 is no base64"))?;
    let kind = members.get("datacontenttype").and_then(|kind| match kind {
        Value::Text(kind) => Some(kind.split(';').next()?.trim().to_ascii_lowercase()),
        Value::Null
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Decimal(_)
        | Value::List(_)
        | Value::Object(_) => None,
    });
    let data = data(&decoded, kind.as_deref())?;
    Ok(Value::Object(members.with("data_base64", None).with("data", Some(data))))
}

/// Checks what the specification says of every event, section 3 of version 1.0.2.
fn attributes(members: &Object) -> Result<(), DecodeError> {
    required(members)?;
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    for (name, _) in members.iter() {
        if DATA.contains(&&**name) || (!name.is_empty() && name.bytes().all(is_plain)) {
            continue;
        }
        let shown: String = name.chars().take(NAME_CHARS_SHOWN).collect();
        let text = format!("the attribute {shown:?} is named with other than a to z and 0 to 9");
        return Err(envelope(&text));
    }
    match members.get("time") {
        None | Some(Value::Null) => Ok(()),
        Some(time @ Value::Text(_)) if millis(time).is_some() => Ok(()),
        Some(_) => Err(envelope("the attribute time is no RFC 3339 time")),
    }
}

fn required(members: &Object) -> Result<(), DecodeError> {
    for name in REQUIRED {
        match members.get(name) {
            Some(Value::Text(text)) if !text.is_empty() => {}
            None => return Err(envelope(&format!("the attribute {name} is missing"))),
            Some(value) => {
                let kind = if value.kind() == Kind::Text {
                    "empty".into()
                } else {
                    value.kind().to_string()
                };
                return Err(envelope(&format!("the attribute {name} is {kind}")));
            }
        }
    }
    if members.get("specversion") == Some(&Value::text("1.0")) {
        Ok(())
    } else {
        Err(envelope("specversion is not 1.0"))
    }
}

fn envelope(text: &str) -> DecodeError {
    DecodeError::new(DecodeReason::BadEnvelope, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTRIBUTES: [(&str, &str); 5] = [
        ("ce_specversion", "1.0"),
        ("ce_id", "e1"),
        ("ce_source", "/billing"),
        ("ce_type", "invoice.paid"),
        ("ce_tenant", "acct_7"),
    ];

    fn headers<'a>(pairs: &[(&'a str, &'a str)]) -> Vec<Header<'a>> {
        let header =
            |(name, value): &(&'a str, &'a str)| Header { name, value: Some(value.as_bytes()) };
        pairs.iter().map(header).collect()
    }

    fn with(pairs: &[(&'static str, &'static str)]) -> Vec<Header<'static>> {
        headers(&[&ATTRIBUTES[..], pairs].concat())
    }

    fn refused(bytes: &[u8], headers: &[Header<'_>]) -> String {
        let error = parse(bytes, headers).expect_err("was accepted");
        format!("{}: {error}", error.reason.as_str())
    }

    #[test]
    fn both_modes_give_the_same_event() {
        let binary = parse(br#"{"cents":5}"#, &with(&[("content-type", "application/json")]));
        let text = br#"{"specversion":"1.0","id":"e1","source":"/billing","type":"invoice.paid",
            "tenant":"acct_7","datacontenttype":"application/json","data":{"cents":5}}"#;
        let kind = [("Content-Type", "application/cloudevents+json; charset=UTF-8")];
        let structured = parse(text, &headers(&kind));
        assert!(binary.is_ok());
        assert_eq!(binary, structured);
        assert_eq!(structured, parse(text, &[]), "without headers it is known by specversion");
        let event = binary.unwrap();
        assert_eq!(event.get("data").and_then(|data| data.get("cents")), Some(&Value::Int(5)));
        assert_eq!(event.get("id"), Some(&Value::text("e1")));
    }

    #[test]
    fn data_is_json_text_or_refused() {
        let data = |bytes, kind| {
            parse(bytes, &with(&[("content-type", kind)])).map(|event| event.get("data").cloned())
        };
        assert_eq!(data(b"5", "application/vnd.x+json").unwrap(), Some(Value::Int(5)));
        assert_eq!(data(b"hi", "text/plain; charset=utf-8").unwrap(), Some(Value::text("hi")));
        assert_eq!(data(b"x", "application/avro").unwrap_err().reason, DecodeReason::ContentType);
        assert_eq!(data(b"\xff", "text/plain").unwrap_err().reason, DecodeReason::BadText);
        let no_type = parse(b"5", &with(&[])).unwrap();
        assert_eq!(no_type.get("data"), Some(&Value::Int(5)));
        let text = br#"{"specversion":"1.0","id":"e","source":"s","type":"t","data_base64":"eyJhIjoxfQ=="}"#;
        let event = parse(text, &[]).unwrap();
        assert_eq!(event.get("data").and_then(|data| data.get("a")), Some(&Value::Int(1)));
        assert_eq!(event.get("data_base64"), None);
    }

    #[test]
    fn a_time_and_extensions_are_attributes() {
        let times =
            ["2026-11-29T10:02:11Z", "2026-11-29T10:02:11.204+01:00", "1990-12-31T23:59:60Z"];
        for time in times {
            assert!(
                parse(b"{}", &with(&[("ce_time", time), ("ce_trace2", "x")])).is_ok(),
                "{time}"
            );
        }
        let text = br#"{"specversion":"1.0","id":"e","source":"s","type":"t","time":null,"data":{"a_b":1}}"#;
        assert!(parse(text, &[]).is_ok(), "null is not there, and the data is the producer's own");
    }

    #[test]
    fn d8_what_lacks_an_attribute_or_has_it_twice_is_refused() {
        for missing in ["ce_id", "ce_source", "ce_type", "ce_specversion"] {
            let kept: Vec<_> =
                ATTRIBUTES.into_iter().filter(|(name, _)| *name != missing).collect();
            let text = format!("bad_envelope: the attribute {} is missing", &missing[3..]);
            assert_eq!(refused(b"{}", &headers(&kept)), text);
        }
        for (bytes, headers, want) in [
            (&b"{}"[..], vec![], "the attribute specversion is missing"),
            (b"[]", vec![], "the value is no JSON object"),
            (b"{}", with(&[("ce_id", "e2")]), "the attribute id stands twice"),
            (b"{}", with(&[("ce_data", "x")]), "the header ce_data is no attribute"),
            (b"{}", with(&[("ce_time", "yesterday")]), "the attribute time is no RFC 3339 time"),
            (
                b"{}",
                with(&[("ce_Tenant", "x")]),
                "the attribute \"Tenant\" is named with other than a to z and 0 to 9",
            ),
            (
                br#"{"specversion":"1.0","id":"e","source":"s","type":"t","trace_id":"x"}"#,
                vec![],
                "the attribute \"trace_id\" is named with other than a to z and 0 to 9",
            ),
            (
                br#"{"specversion":"1.0","id":"e","source":"s","type":"t","time":7}"#,
                vec![],
                "the attribute time is no RFC 3339 time",
            ),
            (
                b"{}",
                headers(&[
                    ("ce_specversion", "0.3"),
                    ("ce_id", "e"),
                    ("ce_source", "s"),
                    ("ce_type", "t"),
                ]),
                "specversion is not 1.0",
            ),
            (
                br#"{"specversion":"1.0","id":7,"source":"s","type":"t"}"#,
                vec![],
                "the attribute id is an integer",
            ),
            (
                b"[]",
                headers(&[("content-type", "application/cloudevents-batch+json")]),
                "a batch of CloudEvents in one record is not read",
            ),
        ] {
            assert_eq!(refused(bytes, &headers), format!("bad_envelope: {want}"));
        }
        let null = [Header { name: "ce_id", value: None }];
        assert_eq!(refused(b"{}", &null), "bad_envelope: the attribute id is no text");
    }
}
