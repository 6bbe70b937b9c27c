//! The Kafka room on a real broker: who has which partition, from which offset, and what becomes
//! of it when members come, go, stall and fail.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    clippy::disallowed_methods,
    reason = "a failed test should stop at once"
)]

mod admin;
mod anew;
mod back_pressure;
mod cluster;
mod encrypted;
mod faults;
mod member;
mod mock;
mod rebalance;
mod speed;
