//! Each part of the rig against the real thing.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a failed test should stop at once"
)]

mod child;
mod kafka;
mod postgres;
mod provider;
mod proxy;
