//! Oncely.
