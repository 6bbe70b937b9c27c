//! What must never happen, story by story, each on a topic and a database of its own.
//!
//! Names begin with the fault that a story is about. Stories end with the invariants; where one cannot, since it
//! has taken away or changed by hand what the books are compared with, a line at its end says so. Those of
//! `checking` are about the checker itself, and those of `profiles` about the rig's providers, without a worker.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a failed test should stop at once"
)]

mod addresses;
mod broken;
mod changed;
mod chaos;
mod checking;
mod compensation;
mod crashes;
mod deadletters;
mod doubt;
mod failover;
mod gaps;
mod leases;
mod logged;
mod main_job;
mod missing;
mod models;
mod network;
mod ordering;
mod outages;
mod poison;
mod profiles;
mod publishing;
mod rebalances;
mod repeats;
mod replays;
mod reports;
mod resolving;
mod running;
mod sharing;
mod timing;
mod topics;
mod unknown;
mod webhooks;
