//! What sending a mail showed, and the class that follows.
//!
//! A server takes responsibility for a message by its answer to the message's text (RFC 5321, 6.1),
//! and not before. So whatever breaks before the text begins to leave was not applied, whatever
//! breaks afterwards may have been.

use std::borrow::Cow;

use oncely_core::effect::outcome::Outcome;

use crate::effect::record::{Answer, Record};

/// How far a mail has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// TCP, TLS, greeting, EHLO.
    Connect,
    Auth,
    /// MAIL, RCPT, DATA.
    Envelope,
    /// The text has begun to leave; the answer to it is open.
    Content,
}

impl Phase {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connecting",
            Self::Auth => "logging in",
            Self::Envelope => "giving the addresses",
            Self::Content => "sending the text",
        }
    }
}

/// What was seen of one mail.
#[derive(Debug)]
pub enum Seen {
    /// Our configuration or the server's abilities allow no mail at all.
    Misconfigured { cause: Cow<'static, str> },
    /// The event gives no mail that may be sent.
    Unsendable { cause: String },
    /// Refused, reset, closed, not in time, or no SMTP.
    Broken { phase: Phase, cause: String },
    /// The server's answer that ended it, in whichever phase; a success only in
    /// [`Phase::Content`].
    Answered { phase: Phase, code: u16, text: String },
}

/// The class, and a line for people.
#[derive(Debug, PartialEq)]
pub struct Classified {
    pub outcome: Outcome,
    pub code: Option<u16>,
    pub text: String,
}

/// The one place where a mail gets its class.
pub fn outcome(seen: &Seen, record: &Record) -> Classified {
    let none = |outcome, text: &str| Classified { outcome, code: None, text: text.to_owned() };
    match seen {
        Seen::Misconfigured { cause } => none(Outcome::Halted, cause),
        Seen::Unsendable { cause } => none(Outcome::Rejected, cause),
        Seen::Broken { phase, cause } => {
            let outcome = match phase {
                Phase::Connect | Phase::Auth | Phase::Envelope => Outcome::NotApplied,
                Phase::Content => Outcome::Unknown,
            };
            none(outcome, &format!("{}: {cause}", phase.as_str()))
        }
        Seen::Answered { phase, code, text } => {
            let outcome = answered(*phase, *code, text, record);
            let text = match &outcome {
                Outcome::Done(_) => String::new(),
                Outcome::NotApplied
                | Outcome::Throttled { .. }
                | Outcome::Rejected
                | Outcome::Halted
                | Outcome::Unknown => format!("{}: {text}", phase.as_str()),
            };
            Classified { outcome, code: Some(*code), text }
        }
    }
}

fn answered(phase: Phase, code: u16, text: &str, record: &Record) -> Outcome {
    match (phase, code) {
        (Phase::Content, 200..=299) => {
            let answer = Answer { status: code, body: text.as_bytes() };
            record.of(&answer, std::iter::empty()).map_or(Outcome::Unknown, Outcome::Done)
        }
        // The server closes its door for now, whatever it was told.
        (_, 421) => Outcome::Throttled { retry_after_ms: None },
        (_, 400..=499) => Outcome::NotApplied,
        (Phase::Connect | Phase::Auth, 500..=599) => Outcome::Halted,
        // Log in first, use TLS first, credentials wrong.
        (Phase::Envelope, 530 | 534 | 535 | 538) => Outcome::Halted,
        (Phase::Envelope | Phase::Content, 500..=599) => Outcome::Rejected,
        // No answer that the protocol knows.
        (Phase::Content, _) => Outcome::Unknown,
        (Phase::Connect | Phase::Auth | Phase::Envelope, _) => Outcome::NotApplied,
    }
}

#[cfg(test)]
mod tests {
    use oncely_core::effect::outcome::OutcomeClass;

    use super::*;

    #[test]
    fn the_table_of_replies() {
        use OutcomeClass::{Done, Halted, NotApplied, Rejected, Throttled, Unknown};
        for (phase, code, want) in [
            (Phase::Connect, 554, Halted),
            (Phase::Connect, 421, Throttled),
            (Phase::Connect, 450, NotApplied),
            (Phase::Auth, 535, Halted),
            (Phase::Auth, 454, NotApplied),
            (Phase::Envelope, 451, NotApplied),
            (Phase::Envelope, 452, NotApplied),
            (Phase::Envelope, 530, Halted),
            (Phase::Envelope, 550, Rejected),
            (Phase::Envelope, 250, NotApplied),
            (Phase::Content, 250, Done),
            (Phase::Content, 354, Unknown),
            (Phase::Content, 451, NotApplied),
            (Phase::Content, 421, Throttled),
            (Phase::Content, 552, Rejected),
            (Phase::Content, 554, Rejected),
        ] {
            let seen = Seen::Answered { phase, code, text: "x".to_owned() };
            let classified = outcome(&seen, &Record::default());
            assert_eq!(classified.outcome.class(), want, "{phase:?} {code}");
            assert_eq!(classified.code, Some(code));
        }
    }

    #[test]
    fn p2_a_break_is_unknown_once_the_text_began_to_leave() {
        for (phase, want) in [
            (Phase::Connect, Outcome::NotApplied),
            (Phase::Auth, Outcome::NotApplied),
            (Phase::Envelope, Outcome::NotApplied),
            (Phase::Content, Outcome::Unknown),
        ] {
            let seen = Seen::Broken { phase, cause: "closed".to_owned() };
            assert_eq!(outcome(&seen, &Record::default()).outcome, want, "{phase:?}");
        }
    }
}
