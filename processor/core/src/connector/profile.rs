//! What providers do with our requests, as data.

use std::sync::Arc;

use crate::expr::Expr;

/// What a provider does with our requests, as data.
#[derive(Clone, Debug)]
pub struct Profile {
    pub name: Box<str>,
    /// Header that carries the effect key; `None`: the provider does not deduplicate.
    pub key_header: Option<Box<str>>,
    /// How long the provider remembers a key, counted from the first send. `None` with a header:
    /// for ever.
    pub key_window_ms: Option<u64>,
    /// How long after the last byte of a request its effect may still appear to whoever asks.
    /// `None`: nobody says.
    pub applies_within_ms: Option<u64>,
    /// Answers classified otherwise than by the common table; the first that fits counts.
    pub statuses: Vec<StatusRule>,
}

/// What some answers of a provider mean.
#[derive(Clone, Debug)]
pub struct StatusRule {
    pub range: StatusRange,
    /// Condition over `response`, where the status alone does not tell. An answer for which it has
    /// no value does not fit.
    pub when: Option<Arc<Expr>>,
    pub class: StatusClass,
}

/// Inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRange {
    pub first: u16,
    pub last: u16,
}

/// The outcome class of an HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusClass {
    Done,
    Throttled,
    Rejected,
    Halted,
    Unknown,
    /// Answered before anything was done: safe to repeat.
    NotApplied,
}
