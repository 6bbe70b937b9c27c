//! Oncely.

pub mod kafka;
