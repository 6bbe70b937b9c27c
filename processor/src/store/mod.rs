//! The database: every query of Oncely, one file each in `sql/`, one function each here.
//!
//! Reads and writes plain values of the core. Knows nothing of Kafka, of providers or of workers;
//! whoever calls decides what a transaction holds. Losing a race is a value, not an error.
//!
//! - [`connection`] – dedicated connections; sessions whose BEGIN and COMMIT are never cut short
//! - [`batch`] – what the batch transaction loads and writes
//! - [`share`] – effects that several events owe
//! - [`circuit`] – circuits that are open
//! - [`claim`], [`settle`] – the effect ledger
//! - [`lines`] – ledger lines that come after other effects
//! - [`deferred`] – events that wait for others of their entity
//! - [`lease`] – worker rows
//! - [`failover`] – whether the database is another one than before
//! - [`endpoint`] – endpoints that are gone
//! - [`origin`] – where a record lies
//! - [`outbox`] – records that are to be published, and who sends which
//! - [`parked`] – parked records that are decided again, dead letters for a topic
//! - [`progress`] – positions
//! - [`register`] – numbers of connectors and topics
//! - [`rights`] – what the role of a processor lacks
//! - [`sweep`] – claims of the dead, blocked effects, retention
//! - [`admin`] – what people ask and change

#![allow(clippy::as_conversions, reason = "sqlx reads `as` in a query macro as the name of a type")]

pub mod admin;
pub mod batch;
pub mod circuit;
pub mod claim;
pub mod columns;
pub mod connection;
pub mod deferred;
pub mod endpoint;
pub mod error;
pub mod failover;
pub mod lease;
pub mod lines;
mod locked;
pub mod migrate;
pub mod origin;
pub mod outbox;
pub mod parked;
pub mod progress;
pub mod register;
pub mod rights;
pub mod settle;
pub mod share;
pub mod sweep;

pub use connection::{Session, Settings, begin};
pub use error::StoreError;
pub use migrate::SchemaError;
/// The driver's own types, for those who hold a connection without asking anything themselves.
pub use sqlx::{Connection, Error as DriverError, PgConnection};

#[cfg(test)]
pub(crate) mod database_tests;
#[cfg(test)]
mod failover_tests;
#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod retention_tests;
