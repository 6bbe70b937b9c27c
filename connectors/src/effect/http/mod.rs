//! HTTP calls: one client per effect, one request per attempt.
//!
//! Reads: a rendered request. Gives: what was seen of the call, and its class.
//! Never: repeats a request, follows a redirect, goes through a proxy of the environment, or keeps a
//! credential in anything that it returns.

mod caller;
mod client;
mod dispatch;
pub(in crate::effect) mod lookup;
mod outcome;
mod setup;
mod status;

pub use self::client::HttpPerformer;
pub(super) use self::dispatch::Dispatch;
pub use self::outcome::{Classified, Reply, Seen, outcome, retry_after_ms};
pub use self::status::Statuses;
