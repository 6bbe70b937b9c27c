//! The states of an effect, and no others.

/// Where an effect stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// To be sent when its time has come; without a due time: blocked by an earlier effect.
    Waiting,
    /// About to be sent, or sent and not yet settled, by one worker.
    Claimed,
    /// The provider may have applied it; at its due time it is repeated with its key, or asked for.
    Unknown,
    /// A person decides.
    Held,
    Done,
    Rejected,
    Skipped,
}

impl Status {
    pub const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Claimed,
        Self::Unknown,
        Self::Held,
        Self::Done,
        Self::Rejected,
        Self::Skipped,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Claimed => "claimed",
            Self::Unknown => "unknown",
            Self::Held => "held",
            Self::Done => "done",
            Self::Rejected => "rejected",
            Self::Skipped => "skipped",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Nothing will change any more.
    pub const fn is_final(self) -> bool {
        match self {
            Self::Done | Self::Rejected | Self::Skipped => true,
            Self::Waiting | Self::Claimed | Self::Unknown | Self::Held => false,
        }
    }
}
