//! The events that one writer has seen lately: a hint, never an answer.
//!
//! An event that is not among them is taken for new, and its inbox row is not asked for. Its own
//! insert proves that it is new; where it is not, the batch is decided again with everything loaded.
//! A wrong hint costs that redo and nothing else, so nothing has to be forgotten in time.

use std::collections::HashSet;

use oncely_core::key::Key;

/// Events of one generation; two are kept, about 5 MB for each writer.
const GENERATION_MAX: usize = 229_376;
/// Batches that are loaded in full after a hint was wrong: after a restart or a rewind whole stretches
/// are known, and each of them would cost a redo.
const DOUBTED_BATCHES: u32 = 200;

/// Two generations of keys, by their first eight bytes.
#[derive(Debug, Default)]
pub(super) struct Recent {
    young: HashSet<u64>,
    old: HashSet<u64>,
    doubted: u32,
}

impl Recent {
    /// Whether the event may be taken for new.
    pub(super) fn is_news(&self, key: &Key) -> bool {
        let short = short(key);
        self.doubted == 0 && !self.young.contains(&short) && !self.old.contains(&short)
    }

    /// Events of a batch that is durable.
    pub(super) fn remember<'a>(&mut self, keys: impl IntoIterator<Item = &'a Key>) {
        self.doubted = self.doubted.saturating_sub(1);
        if self.young.len() >= GENERATION_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.extend(keys.into_iter().map(short));
    }

    /// An event that was taken for new was known.
    pub(super) const fn doubt(&mut self) {
        self.doubted = DOUBTED_BATCHES;
    }
}

fn short(key: &Key) -> u64 {
    let (first, _) = key.as_bytes().split_first_chunk().unwrap_or((&[0; 8], &[]));
    u64::from_be_bytes(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        Key::event("s", "", &number.to_string())
    }

    #[test]
    fn what_was_seen_is_no_news_for_a_generation_at_least() {
        let mut recent = Recent::default();
        assert!(recent.is_news(&key(1)));
        recent.remember([&key(1)]);
        assert!(!recent.is_news(&key(1)));
        for batch in 0..2 * GENERATION_MAX as u64 / 1_000 {
            let keys: Vec<Key> = (0..1_000).map(|one| key(10 + batch * 1_000 + one)).collect();
            recent.remember(&keys);
            let last = keys.last().unwrap();
            assert!(!recent.is_news(last));
        }
        assert!(recent.young.len() + recent.old.len() <= 2 * (GENERATION_MAX + 1_000));
    }

    #[test]
    fn after_a_wrong_hint_nothing_is_news_for_a_while() {
        let mut recent = Recent::default();
        recent.doubt();
        for _ in 0..DOUBTED_BATCHES {
            assert!(!recent.is_news(&key(1)));
            recent.remember([]);
        }
        assert!(recent.is_news(&key(1)));
    }
}
