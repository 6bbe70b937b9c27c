//! By what a provider knows again what it was sent.
//!
//! A connector file may change while an attempt is under way that may have been applied. A repeat under a key is safe
//! only if that attempt carried the key, and "not found" proves something only if it carried what is asked by. So a
//! stored request says how it was sent, and the file as it is now is held against that.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::connector::{BodyRule, CallRule};

/// Where the marks stand in a stored request, which is an object.
const MEMBER: &[u8] = b",\"marks\":";

/// Digests, so that they can be compared and tell nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// Of the name of the header that carries the effect key. `None`: none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<u64>,
    /// Of how the provider is asked. `None`: it cannot be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lookup: Option<u64>,
}

impl Marks {
    pub fn of(rule: &CallRule) -> Self {
        let digest = |part: &str| {
            let mut hasher = Xxh3::new();
            hasher.update(part.as_bytes());
            hasher.digest()
        };
        let key = rule.profile.key_header.as_deref();
        let lookup = rule.lookup.as_ref().map(|lookup| {
            let mut by = format!("{} {}", lookup.request.method, lookup.request.url.text());
            lookup.request.for_each_read(&mut |path| by.push_str(&format!(" {path}")));
            // How the values are made, and what stands beside them, is as much a part of what is asked by.
            for (name, value) in &lookup.request.headers {
                by.push_str(&format!(" {name}: {}", value.text()));
            }
            match &lookup.request.body {
                BodyRule::None => {}
                BodyRule::Json(tree) => {
                    tree.for_each_text(&mut |text| by.push_str(&format!(" {text}")))
                }
                BodyRule::Form(pairs) => {
                    for (name, value) in pairs {
                        by.push_str(&format!(" {name}={}", value.text()));
                    }
                }
            }
            by
        });
        Self {
            key: key.map(|name| digest(&name.to_ascii_lowercase())),
            lookup: lookup.as_deref().map(digest),
        }
    }

    /// Adds them to the bytes of a request that is to be stored.
    #[must_use]
    pub fn put(self, mut request: Vec<u8>) -> Vec<u8> {
        if request.pop_if(|last| *last == b'}').is_some() {
            request.extend_from_slice(MEMBER);
            request.extend(serde_json::to_vec(&self).unwrap_or_default());
            request.push(b'}');
        }
        request
    }

    /// Those of a stored request. `None`: it has none, or is none.
    pub fn found(stored: &[u8]) -> Option<Self> {
        // Inside of a text the quotes would be escaped.
        let at = stored.windows(MEMBER.len()).rposition(|window| window == MEMBER)?;
        let marks = stored.get(at.saturating_add(MEMBER.len())..)?.strip_suffix(b"}")?;
        serde_json::from_slice(marks).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::request::{HttpRequest, Request};

    #[test]
    fn a_stored_request_says_how_it_was_sent_and_is_the_same_request() {
        let body = Some(r#"{"a":"x,\"marks\":{}"},"marks":{"key":7}"#.into());
        let request = Request::Http(HttpRequest {
            method: "POST".into(),
            url: "http://a".into(),
            headers: Vec::new(),
            body,
        });
        for marks in [
            Marks::default(),
            Marks { key: Some(u64::MAX), lookup: None },
            Marks { key: Some(1), lookup: Some(2) },
        ] {
            let stored = marks.put(request.to_bytes());
            assert_eq!(Marks::found(&stored), Some(marks));
            assert_eq!(Request::from_bytes(&stored).unwrap(), request);
        }
        assert_eq!(Marks::found(&request.to_bytes()), None, "what a body says counts for nothing");
        for nothing in [&b""[..], b"}", b"[]", b",\"marks\":"] {
            assert_eq!(Marks::found(nothing), None);
        }
    }
}
