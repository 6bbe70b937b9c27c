//! The inbox's word on an event.

use super::known::InboxRow;
use crate::fingerprint::Fingerprint;

/// Whether an event is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Fresh,
    /// Same id, same content.
    Duplicate,
    /// Same id, other content: never run, never overwritten.
    Conflict,
}

pub fn verdict(seen: Option<&InboxRow>, fingerprint: Fingerprint) -> Verdict {
    match seen {
        None => Verdict::Fresh,
        Some(row) if row.fingerprint == fingerprint => Verdict::Duplicate,
        Some(_) => Verdict::Conflict,
    }
}
