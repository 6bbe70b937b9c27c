//! Oncely's core: decides what an event means.
//!
//! Plain values in, plain values out. Nothing here opens a socket, reads a clock or draws a random
//! number; time and randomness come in as arguments.
//!
//! - [`value`], [`key`], [`fingerprint`]: what an event is made of and what "the same" means
//! - [`expr`], [`template`]: what connector files say about events
//! - [`connector`]: a connector, checked and compiled
//! - [`key_rule`]: by which words of a connector file keys are made
//! - [`event`]: a record with its identity; [`render`]: the request that an event makes
//! - [`effect`]: requests, outcomes, and what follows from them
//! - [`failover`]: a database that is another one than before
//! - [`cause`]: an error with its causes, for people

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

pub mod cause;
pub mod connector;
pub mod decide;
pub mod effect;
pub mod event;
pub mod expr;
pub mod failover;
pub mod fingerprint;
pub mod key;
pub mod key_rule;
pub mod progress;
pub mod render;
pub mod template;
pub mod time;
pub mod value;
pub mod wanted;
