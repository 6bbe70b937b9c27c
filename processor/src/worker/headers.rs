//! Record headers as bytes, for records that are parked or kept.
//!
//! Form: a JSON list of `[name, value]`, the value in base64 or null, in the producer's order.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::kafka::Header;

/// The stored form.
pub fn encode(headers: &[Header]) -> Vec<u8> {
    if headers.is_empty() {
        return b"[]".to_vec();
    }
    let pairs: Vec<(&str, Option<String>)> = headers
        .iter()
        .map(|header| (&*header.name, header.value.as_ref().map(|value| STANDARD.encode(value))))
        .collect();
    serde_json::to_vec(&pairs).unwrap_or_else(|_| b"[]".to_vec())
}

/// Names and values of [`encode`]; `None` when the bytes are not its form.
pub fn decode(bytes: &[u8]) -> Option<Vec<(String, Option<Vec<u8>>)>> {
    let pairs: Vec<(String, Option<String>)> = serde_json::from_slice(bytes).ok()?;
    pairs
        .into_iter()
        .map(|(name, value)| match value {
            None => Some((name, None)),
            Some(text) => STANDARD.decode(text).ok().map(|value| (name, Some(value))),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b19_repeats_nulls_and_bytes_survive() {
        let header = |name: &str, value: Option<&'static [u8]>| Header {
            name: name.into(),
            value: value.map(bytes::Bytes::from_static),
        };
        let headers = [header("a", Some(b"\xff\x00")), header("a", None), header("", Some(b""))];
        let back = decode(&encode(&headers)).unwrap();
        let want = [
            ("a".to_owned(), Some(vec![0xff, 0])),
            ("a".to_owned(), None),
            (String::new(), Some(vec![])),
        ];
        assert_eq!(back, want);
        assert_eq!(decode(&encode(&[])), Some(vec![]));
    }
}
