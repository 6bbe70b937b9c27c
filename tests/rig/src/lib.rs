//! What demo, stories and benchmark stand on: real servers of their own, and faults on purpose.
//!
//! - [`postgres`]: a private, throwaway PostgreSQL cluster, which can be killed, frozen and started again.
//! - [`kafka`]: a private Kafka of one or three brokers, and what an administrator does to it.
//! - [`provider`]: the fake provider, with faults and a log that a checker can count in.
//! - [`proxy`]: a network that stalls, cuts, and loses the answer to a `COMMIT`.
//! - [`child`]: a program that dies with the program that started it, even when that one is killed.
//! - [`disk`]: a disk of a few megabytes, to be filled up.
//! - [`pooler`]: a private PgBouncer in front of a cluster.
//! - [`places`]: where fetched binaries are kept and looked for, and free ports.
//! - [`wait`]: waiting for a state, with a bound and an error that says what was waited for.
//!
//! Knows nothing of the rest of Oncely: what it counts and breaks, it counts and breaks from outside.
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

pub mod child;
mod clock;
pub mod disk;
pub mod error;
pub mod kafka;
mod net;
pub mod places;
pub mod pooler;
pub mod postgres;
pub mod provider;
pub mod proxy;
pub mod wait;

pub use error::RigError;
