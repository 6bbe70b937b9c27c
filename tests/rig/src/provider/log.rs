//! Reads the provider's log, and counts in it.
//!
//! Reads: the file, from any process, also while it is written. Gives: entries and the answers to
//! the questions that a checker asks. Knows only what the provider saw.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::request::End;
use super::webhook::Signed;
use crate::RigError;

/// One line of the log. Times are microseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Entry {
    /// A request was read whole; nothing has been done about it.
    Received {
        /// Number of the request, from 1.
        request: u64,
        /// When.
        at: u64,
        /// `POST`, `GET`, …; `DATA` for a mail.
        method: String,
        /// The path without its query; `smtp` for a mail.
        endpoint: String,
        /// Its key, reference or Message-ID.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// Hash of the body, in hex.
        body_sha256: String,
        /// The body as text, where the provider was asked to keep it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<String>,
        /// Time and signatures of a webhook.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signed: Option<Signed>,
    },
    /// A request took effect: the card is charged, the mail is on its way.
    Applied {
        /// Number of the request.
        request: u64,
        /// When.
        at: u64,
        /// As in `Received`.
        endpoint: String,
        /// As in `Received`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// As in `Received`.
        body_sha256: String,
        /// Number of the effect, from 1.
        effect_no: u64,
    },
    /// An answer is about to be sent; whether it arrived, only the client knows.
    Answered {
        /// Number of the request.
        request: u64,
        /// When.
        at: u64,
        /// The status in the answer; 0 where there is none.
        status: u16,
        /// How the answer leaves.
        end: End,
        /// Whether it is the kept answer of an earlier request.
        #[serde(default)]
        replayed: bool,
    },
}

/// The entries of a log, in their order.
#[derive(Debug, Clone, Default)]
pub struct Log {
    entries: Vec<Entry>,
}

impl Log {
    /// Reads the whole file. A last line that is still being written is left out.
    ///
    /// # Errors
    /// `Io` when it cannot be read, `LogLine` when it is no log.
    pub fn read(path: &Path) -> Result<Self, RigError> {
        let text = fs::read_to_string(path).map_err(RigError::at("read the log", path))?;
        let whole = text.rfind('\n').map_or("", |end| text.get(..end).unwrap_or_default());
        let mut entries = Vec::new();
        for (place, line) in whole.lines().enumerate() {
            entries.push(serde_json::from_str(line).map_err(|source| RigError::LogLine {
                path: path.to_path_buf(),
                line: place.saturating_add(1),
                source,
            })?);
        }
        Ok(Self { entries })
    }

    /// Every entry.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// A mark for `new_keys_since`: the number of entries.
    #[must_use]
    pub fn mark(&self) -> usize {
        self.entries.len()
    }

    /// How many effects each key had. Effects without a key are counted by `effects_without_key`.
    #[must_use]
    pub fn effects_per_key(&self) -> BTreeMap<&str, u64> {
        let mut counts = BTreeMap::new();
        for (_, key, _) in self.applied() {
            if let Some(key) = key {
                let count = counts.entry(key).or_insert(0_u64);
                *count = count.saturating_add(1);
            }
        }
        counts
    }

    /// The keys with more than one effect: what must never be.
    #[must_use]
    pub fn repeated(&self) -> BTreeMap<&str, u64> {
        let mut counts = self.effects_per_key();
        counts.retain(|_, count| *count > 1);
        counts
    }

    /// How many effects one key had.
    #[must_use]
    pub fn effects_for(&self, key: &str) -> usize {
        self.applied().filter(|(_, of, _)| *of == Some(key)).count()
    }

    /// How many effects there were at endpoints that start so; `""` for all.
    #[must_use]
    pub fn effects_at(&self, endpoint: &str) -> usize {
        self.applied().filter(|(at, ..)| at.starts_with(endpoint)).count()
    }

    /// How many effects came without a key.
    #[must_use]
    pub fn effects_without_key(&self) -> usize {
        self.applied().filter(|(_, key, _)| key.is_none()).count()
    }

    /// The keys of the effects at endpoints that start so, in the order of the effects.
    #[must_use]
    pub fn keys_in_order(&self, endpoint: &str) -> Vec<&str> {
        self.applied()
            .filter(|(at, ..)| at.starts_with(endpoint))
            .filter_map(|(_, key, _)| key)
            .collect()
    }

    /// The keys that requests for an effect came with, for each endpoint.
    #[must_use]
    pub fn keys_per_endpoint(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut keys: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for call in self.calls() {
            keys.entry(call.endpoint).or_default().extend(call.key);
        }
        keys
    }

    /// How many requests for an effect came with this key.
    #[must_use]
    pub fn calls_for(&self, key: &str) -> usize {
        self.calls().filter(|call| call.key == Some(key)).count()
    }

    /// How many requests for an effect came to endpoints that start so; `""` for all.
    #[must_use]
    pub fn calls_at(&self, endpoint: &str) -> usize {
        self.calls().filter(|call| call.endpoint.starts_with(endpoint)).count()
    }

    /// The keys that were called for the first time after a mark: a replay must give none.
    #[must_use]
    pub fn new_keys_since(&self, mark: usize) -> BTreeSet<&str> {
        let before: BTreeSet<&str> =
            self.calls().take_while(|call| call.place < mark).filter_map(|call| call.key).collect();
        let after = self.calls().filter(|call| call.place >= mark).filter_map(|call| call.key);
        after.filter(|key| !before.contains(key)).collect()
    }

    /// The keys that came with more than one body: a repeat must be the same bytes.
    #[must_use]
    pub fn keys_with_other_bodies(&self) -> BTreeSet<&str> {
        let mut first: BTreeMap<&str, &str> = BTreeMap::new();
        let mut other = BTreeSet::new();
        for call in self.calls() {
            if let Some(key) = call.key
                && *first.entry(key).or_insert(call.body_sha256) != call.body_sha256
            {
                other.insert(key);
            }
        }
        other
    }

    /// The bodies of the requests for an effect with this key, where they were kept.
    #[must_use]
    pub fn bodies_for(&self, key: &str) -> Vec<&str> {
        self.calls().filter(|call| call.key == Some(key)).filter_map(|call| call.body).collect()
    }

    /// How many answers left with this status.
    #[must_use]
    pub fn answers_with(&self, wanted: u16) -> usize {
        let statuses = self.entries.iter().filter_map(|entry| match entry {
            Entry::Answered { status, .. } => Some(*status),
            Entry::Received { .. } | Entry::Applied { .. } => None,
        });
        statuses.filter(|status| *status == wanted).count()
    }

    /// How many answers were kept answers of earlier requests.
    #[must_use]
    pub fn replays(&self) -> usize {
        let replayed = |entry: &&Entry| matches!(entry, Entry::Answered { replayed: true, .. });
        self.entries.iter().filter(replayed).count()
    }

    /// Endpoint, key and number of each effect, in order.
    pub fn applied(&self) -> impl Iterator<Item = (&str, Option<&str>, u64)> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Applied { endpoint, key, effect_no, .. } => {
                Some((endpoint.as_str(), key.as_deref(), *effect_no))
            }
            Entry::Received { .. } | Entry::Answered { .. } => None,
        })
    }

    /// Every request for an effect; look-ups are none.
    pub fn calls(&self) -> impl Iterator<Item = Call<'_>> {
        self.entries.iter().enumerate().filter_map(|(place, entry)| match entry {
            Entry::Received { method, endpoint, key, body_sha256, body, at, signed, .. }
                if method != "GET" && method != "HEAD" =>
            {
                let (key, body) = (key.as_deref(), body.as_deref());
                let signed = signed.as_ref();
                Some(Call { place, at: *at, endpoint, key, body_sha256, body, signed })
            }
            Entry::Received { .. } | Entry::Applied { .. } | Entry::Answered { .. } => None,
        })
    }
}

/// A request for an effect.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Number of its entry, from 0.
    pub place: usize,
    /// When, in microseconds since 1970.
    pub at: u64,
    /// The path without its query; `smtp` for a mail.
    pub endpoint: &'a str,
    /// Its key, reference or Message-ID.
    pub key: Option<&'a str>,
    /// Hash of the body, in hex.
    pub body_sha256: &'a str,
    /// The body, where it was kept.
    pub body: Option<&'a str>,
    /// Time and signatures of a webhook.
    pub signed: Option<&'a Signed>,
}
