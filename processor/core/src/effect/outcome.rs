//! What an attempt showed: the six outcome classes, and no others.

use crate::value::Value;

/// Characters of an answer's text that are kept with an attempt.
pub const TEXT_CHARS_MAX: usize = 500;

/// One attempt as it is recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    pub outcome: Outcome,
    /// HTTP status or SMTP reply code.
    pub status: Option<u16>,
    /// Cause or start of the answer; at most [`TEXT_CHARS_MAX`] characters, no secrets.
    pub text: String,
}

/// The class of what was seen, decided by one function per effect kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The provider applied it, now or earlier; the recorded members of its answer.
    Done(Value),
    /// Surely not applied: nothing of the request left, or the provider says so.
    NotApplied,
    /// Refused for now, before anything was done.
    Throttled { retry_after_ms: Option<u64> },
    /// Refused for good.
    Rejected,
    /// Our credentials or configuration are wrong: the whole lane stops.
    Halted,
    /// It may have been applied.
    Unknown,
}

/// [`Outcome`] without its values: what tables and metrics say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OutcomeClass {
    Done,
    NotApplied,
    Throttled,
    Rejected,
    Halted,
    Unknown,
}

impl Outcome {
    /// What was recorded of a success.
    pub fn result(&self) -> Option<&Value> {
        let Self::Done(result) = self else { return None };
        Some(result)
    }

    pub fn class(&self) -> OutcomeClass {
        match self {
            Self::Done(_) => OutcomeClass::Done,
            Self::NotApplied => OutcomeClass::NotApplied,
            Self::Throttled { .. } => OutcomeClass::Throttled,
            Self::Rejected => OutcomeClass::Rejected,
            Self::Halted => OutcomeClass::Halted,
            Self::Unknown => OutcomeClass::Unknown,
        }
    }
}

impl OutcomeClass {
    pub const ALL: [Self; 6] = [
        Self::Done,
        Self::NotApplied,
        Self::Throttled,
        Self::Rejected,
        Self::Halted,
        Self::Unknown,
    ];

    /// Whether the retry plan counts it. A throttle is the provider's wish, and a refused credential
    /// ours to mend: neither says that trying leads nowhere.
    pub const fn is_failure(self) -> bool {
        match self {
            Self::NotApplied | Self::Unknown => true,
            Self::Done | Self::Throttled | Self::Rejected | Self::Halted => false,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::NotApplied => "not_applied",
            Self::Throttled => "throttled",
            Self::Rejected => "rejected",
            Self::Halted => "halted",
            Self::Unknown => "unknown",
        }
    }
}
