//! Between the core's values and column types.

use oncely_core::key::Key;
use uuid::Uuid;

pub fn uuid(key: Key) -> Uuid {
    Uuid::from_bytes(*key.as_bytes())
}

pub fn key(uuid: Uuid) -> Key {
    Key::from_bytes(*uuid.as_bytes())
}

pub fn uuids<'a>(keys: impl IntoIterator<Item = &'a Key>) -> Vec<Uuid> {
    keys.into_iter().copied().map(uuid).collect()
}

pub fn keys(uuids: Option<Vec<Uuid>>) -> Vec<Key> {
    uuids.unwrap_or_default().into_iter().map(key).collect()
}

/// Arrays of arrays cannot be unnested side by side, so a list of keys travels as one text.
pub fn joined(keys: &[Key]) -> String {
    keys.iter().map(Key::to_string).collect::<Vec<_>>().join(",")
}

/// Milliseconds that a signed column holds; what does not fit is as good as for ever.
pub fn millis(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

pub fn elapsed(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0)
}

/// Text that a column takes: NUL removed, cut at `chars`.
pub fn clean(text: &str, chars: usize) -> String {
    text.chars().filter(|c| *c != '\0').take(chars).collect()
}
