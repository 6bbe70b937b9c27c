//! Performing effects against peers that misbehave, each in its own way.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a failed test should stop at once, and the measurement prints its result"
)]

mod fixture;
mod http;
mod http_broken;
mod mail;
mod mail_peer;
mod peer;
mod webhook;
