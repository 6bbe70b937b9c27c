//! Oncely: each business event has its effect once.
//!
//! - [`cli`]: the commands that people type
//! - [`config`], [`clock`], [`telemetry`], [`task`]: environment, time, metrics and logs, tasks
//! - [`crash`]: places at which tests make the process die
//! - [`demo`]: a world of its own in which everything goes wrong, and the count at the end
//! - [`http`]: metrics and health
//! - [`kafka`]: records in, offsets out
//! - [`prove`]: a connector's own rules, with a crash at every point
//! - [`store`]: everything in PostgreSQL

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

pub mod cli;
pub mod clock;
pub mod config;
pub mod crash;
pub mod demo;
pub mod http;
pub mod kafka;
pub mod prove;
pub mod store;
pub mod task;
pub mod telemetry;
pub mod worker;

/// The allocator of the program: what one thread allocates and another frees is its strength, and
/// that is what happens to every record.
pub use mimalloc::MiMalloc;
