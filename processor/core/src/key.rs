//! Keys: what "the same" means, for ever.
//!
//! A key is the first 16 bytes of SHA-256 over a domain tag and length-prefixed parts, so that
//! `ab` + `c` and `a` + `bc` differ. The recipe is versioned; its golden file is
//! `processor/core/src/key_golden.txt`. Changing what a recipe gives would run every effect again,
//! so a new recipe gets a new number and the old one stays.
//!
//! A hash of a guessable id (an e-mail address, a phone number) can be found by guessing: such keys
//! are personal data and are to be treated as such.

use crate::fingerprint::Fingerprint;
use std::cmp::Ordering;
use std::fmt;

use sha2::{Digest, Sha256};

/// The recipe in force. Part of every key.
pub const RECIPE: u8 = 1;

/// Bytes that a tenant, a business id or one part of a key may have.
pub const PART_BYTES_MAX: usize = 512;

/// Sixteen bytes that name one thing; stored as `uuid`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key([u8; 16]);

// As the bytes are, and as PostgreSQL orders a `uuid`; compared as one number, in two instructions instead of a call.
impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        u128::from_be_bytes(self.0).cmp(&u128::from_be_bytes(other.0))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Key {
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The key of a business event.
    pub fn event(scope: &str, tenant: &str, id: &str) -> Self {
        Hasher::new("event").part(scope).part(tenant).part(id).finish()
    }

    /// The key of an entity; `kind` is the connector's word for it (`invoice`).
    pub fn entity(scope: &str, tenant: &str, kind: &str, id: &str) -> Self {
        Hasher::new("entity").part(scope).part(tenant).part(kind).part(id).finish()
    }

    /// The key of an effect, sent to the provider as its idempotency key.
    pub fn effect(scope: &str, tenant: &str, effect: &str, parts: &[String]) -> Self {
        let hasher = Hasher::new("effect").part(scope).part(tenant).part(effect);
        parts.iter().fold(hasher, |hasher, part| hasher.part(part)).finish()
    }

    /// The key of an event whose id was known with another content, and which a person has released: it has a
    /// place of its own in the memory.
    pub fn released(event: Self, fingerprint: Fingerprint) -> Self {
        let hasher = Hasher::new("released event").bytes(event.as_bytes());
        hasher.bytes(fingerprint.0.as_bytes()).finish()
    }

    /// The form that travels to providers: `ef_` and 32 hexadecimal digits; at most 64 characters
    /// of `[A-Za-z0-9_-]`, which every provider that we know of accepts.
    pub fn wire(&self) -> String {
        format!("ef_{self}")
    }

    /// Reads [`Key::wire`], or bare 32 hexadecimal digits, with or without the dashes of a uuid.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix("ef_").unwrap_or(text).replace('-', "");
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        u128::from_str_radix(&text, 16).ok().map(|number| Self(number.to_be_bytes()))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

// --------------------------------------------------------------------------------------------- //

/// Hashes a domain tag and length-prefixed parts.
#[derive(Clone, Debug)]
pub struct Hasher(Sha256);

impl Hasher {
    /// `domain` separates kinds of keys: equal parts of two kinds give different keys.
    pub fn new(domain: &str) -> Self {
        Self(Sha256::new()).part("oncely").bytes(&[RECIPE]).part(domain)
    }

    #[must_use]
    pub fn part(self, part: &str) -> Self {
        self.bytes(part.as_bytes())
    }

    #[must_use]
    pub fn bytes(mut self, part: &[u8]) -> Self {
        let length = u64::try_from(part.len()).unwrap_or(u64::MAX);
        self.0.update(length.to_be_bytes());
        self.0.update(part);
        self
    }

    pub fn finish(self) -> Key {
        let mut first = [0; 16];
        first.iter_mut().zip(self.0.finalize()).for_each(|(to, from)| *to = from);
        Key(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w16_the_recipe_gives_what_the_golden_file_says() {
        let golden = include_str!("key_golden.txt");
        let parts = |text: &str| text.split('/').map(str::to_owned).collect::<Vec<_>>();
        let mut lines = 0;
        for line in golden.lines().filter(|line| !line.starts_with('#')) {
            let [domain, fields, want] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("bad golden line: {line}");
            };
            let fields = parts(fields);
            let key = match domain {
                "event" => Key::event(&fields[0], &fields[1], &fields[2]),
                "entity" => Key::entity(&fields[0], &fields[1], &fields[2], &fields[3]),
                "effect" => Key::effect(&fields[0], &fields[1], &fields[2], &fields[3..]),
                other => panic!("unknown domain {other}"),
            };
            assert_eq!(key.to_string(), want, "{line}");
            lines += 1;
        }
        assert!(lines >= 5);
    }

    #[test]
    fn d10_b28_parts_never_run_together() {
        assert_ne!(Key::event("s", "a:b", "c"), Key::event("s", "a", "b:c"));
        assert_ne!(Key::event("s", "ab", "c"), Key::event("s", "a", "bc"));
        assert_ne!(Key::event("s", "", "x"), Key::effect("s", "", "x", &[]));
        let two = ["a".to_owned(), String::new()];
        assert_ne!(Key::effect("s", "t", "e", &two), Key::effect("s", "t", "e", &two[..1]));
    }

    #[test]
    fn d11_no_hidden_normalisation() {
        assert_ne!(Key::event("s", "t", "ID1"), Key::event("s", "t", "id1"));
        assert_ne!(Key::event("s", "t", "id1"), Key::event("s", "t", "id1 "));
        assert_ne!(Key::event("s", "t", "\u{e9}"), Key::event("s", "t", "e\u{301}"));
    }

    #[test]
    fn keys_are_in_the_order_of_their_bytes() {
        let keys: Vec<Key> = (0..200_u32).map(|n| Key::event("s", "t", &n.to_string())).collect();
        for (a, b) in keys.iter().zip(keys.iter().skip(1)).chain([(&keys[0], &keys[0])]) {
            assert_eq!(a.cmp(b), a.as_bytes().cmp(b.as_bytes()));
        }
    }

    #[test]
    fn the_wire_form_reads_back() {
        let key = Key::event("s", "t", "i");
        assert_eq!(Key::parse(&key.wire()), Some(key));
        assert!(key.wire().len() <= 64);
        assert_eq!(Key::parse("ef_xyz"), None);
    }
}
