//! What people ask the database, and what they may change in it.
//!
//! Gives rows as they are read by a person. Every change is one transaction with an audit row, locks
//! as the workers do (lane before effect), and refuses what it could not undo.

pub mod audit;
pub mod compensations;
pub mod deferred;
pub mod effects;
pub mod endpoints;
pub mod events;
pub mod failovers;
pub mod key_rules;
pub mod open;
pub mod outbox;
pub mod parked;
pub mod progress;
pub mod redrive;
pub mod replay;
pub mod resolve;
pub mod rewind;
pub mod totals;
pub mod workers;

pub use audit::Change;

/// Rows that are counted beside a list that shows only some; what is more is "at least" so many.
pub const COUNTED_MAX: i64 = 100_000;
