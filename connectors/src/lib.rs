//! The world outside.
//!
//! - [`file`](mod@file): connector files
//! - [`format`](mod@format): record bytes become values
//! - [`secret`]: secrets and the references to them
//! - [`effect`]: how effects are performed, and what an answer means

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        reason = "a failed test should stop at once"
    )
)]

pub mod effect;
pub mod file;
pub mod format;
pub mod secret;
