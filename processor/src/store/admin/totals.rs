//! How much became what, of one connector. Reads whole tables.

use oncely_core::effect::status::Status;
use sqlx::{PgConnection, query_file};

use crate::store::error::Result;

/// Events by outcome and effects by status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub applied: u64,
    pub stale: u64,
    pub ignored: u64,
    pub quarantined: u64,
    /// Those that wait.
    pub deferred: u64,
    pub dead_lettered: u64,
    /// Times that a known event came again, at another place than first.
    pub repeats: u64,
    pub waiting: u64,
    pub claimed: u64,
    pub unknown: u64,
    pub held: u64,
    pub done: u64,
    pub rejected: u64,
    pub skipped: u64,
    /// Times that a claim was taken over from a dead worker.
    pub takeovers: u64,
}

impl Totals {
    /// Effects that may still take place without a person.
    #[must_use]
    pub const fn open_effects(&self) -> u64 {
        self.waiting.saturating_add(self.claimed).saturating_add(self.unknown)
    }
}

/// Counts what is on record of the connector; all zero for one that never ran here.
///
/// # Errors
/// As every query.
pub async fn of_connector(connection: &mut PgConnection, connector: &str) -> Result<Totals> {
    let mut totals = Totals::default();
    let events = query_file!("src/store/sql/admin_totals_events.sql", connector);
    for row in events.fetch_all(&mut *connection).await? {
        let counter = match row.outcome.as_str() {
            "applied" => &mut totals.applied,
            "stale" => &mut totals.stale,
            "ignored" => &mut totals.ignored,
            "quarantined" => &mut totals.quarantined,
            "deferred" => &mut totals.deferred,
            _ => &mut totals.dead_lettered,
        };
        *counter = counter.saturating_add(unsigned(row.events));
        totals.repeats = totals.repeats.saturating_add(unsigned(row.repeats));
    }
    let effects = query_file!("src/store/sql/admin_totals_effects.sql", connector);
    for row in effects.fetch_all(connection).await? {
        let counter = match Status::parse(&row.status) {
            Some(Status::Waiting) => &mut totals.waiting,
            Some(Status::Claimed) => &mut totals.claimed,
            Some(Status::Held) => &mut totals.held,
            Some(Status::Done) => &mut totals.done,
            Some(Status::Rejected) => &mut totals.rejected,
            Some(Status::Skipped) => &mut totals.skipped,
            Some(Status::Unknown) | None => &mut totals.unknown,
        };
        *counter = counter.saturating_add(unsigned(row.effects));
        totals.takeovers = totals.takeovers.saturating_add(unsigned(row.takeovers));
    }
    Ok(totals)
}

pub(super) fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
