//! Look-ups: what a provider says when it is asked whether an effect took place.

use crate::value::Value;

/// One look-up as it is recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct LookedUp {
    pub finding: Finding,
    /// HTTP status.
    pub status: Option<u16>,
    /// Cause or start of the answer; short, no secrets.
    pub text: String,
}

/// What a look-up showed.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// The provider has it; the recorded members of its answer.
    Found(Value),
    /// The provider knows nothing of it.
    NotFound,
    /// The provider knows of it, and neither as done nor as missing.
    Undecided,
    /// No answer that says anything: away, broken off, refused for now, not readable.
    Unanswered { retry_after_ms: Option<u64> },
    /// Our credentials were refused: the whole lane stops.
    Halted,
    /// The look-up cannot be made of what is left of the event.
    Unaskable,
}

/// [`Finding`] without its values: what tables and metrics say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingClass {
    Found,
    NotFound,
    Undecided,
    Unanswered,
}

impl Finding {
    pub const fn class(&self) -> FindingClass {
        match self {
            Self::Found(_) => FindingClass::Found,
            Self::NotFound => FindingClass::NotFound,
            Self::Undecided => FindingClass::Undecided,
            Self::Unanswered { .. } | Self::Halted | Self::Unaskable => FindingClass::Unanswered,
        }
    }
}

impl FindingClass {
    pub const ALL: [Self; 4] = [Self::Found, Self::NotFound, Self::Undecided, Self::Unanswered];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::NotFound => "not_found",
            Self::Undecided => "undecided",
            Self::Unanswered => "unanswered",
        }
    }
}
