//! Mail over SMTP: one connection per message, phase by phase.
//!
//! Reads: a rendered mail. Gives: what was seen, by the phase in which it was seen, and its class.
//! Never: reuses a connection (a dead one would be found out in the middle of a message), sends a
//! line break inside a header, or counts a message as refused after its text began to leave.
//!
//! SMTP has no idempotency key. The Message-ID is made of the effect key, so that equal mails can at
//! least be recognised.

mod client;
mod message;
mod outcome;

pub use self::client::EmailPerformer;
pub use self::message::MessageError;
pub use self::outcome::{Phase, Seen, outcome};
