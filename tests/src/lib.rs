//! Stories: what must never happen, on a real Kafka, a real PostgreSQL and the fake provider.
//!
//! - [`world`]: one story's topic, database, provider and worker processes, and what is done to them
//! - [`wiring`]: the connector file that a story writes
//! - [`record`]: records as producers write them
//! - [`ledger`]: what a story produced, and what must become of it
//! - [`checker`]: the invariants, from outside: the provider's log, the tables, the topic
//! - [`dice`]: chance that a seed repeats
//! - [`jobs`]: many stories at once, for the crash matrix and the randomized rounds
//! - [`servers`]: one Kafka and one PostgreSQL for all stories of a test program
//!
//! Knows the program as its users do: by its command line, connector files, tables and metrics, and by the
//! list of its crash points.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a failed test should stop at once, and is outside of the program's own rules"
)]

pub mod checker;
pub mod dice;
pub mod jobs;
pub mod ledger;
pub mod record;
pub mod servers;
pub mod wiring;
pub mod world;

pub use record::{Event, Record};
pub use wiring::Wiring;
pub use world::World;
