//! Removes what is older than the connector file wants it kept.
//!
//! Reads: the file's `retention`. Gives: whether something is left. Never: takes what is open, or what a compensation
//! may still need.

use super::{Shared, outbox};
use crate::store::sweep::{self, Expired};
use crate::store::{PgConnection, StoreError};

/// Rows of each kind that one look removes at most.
const SLICE: i64 = 2_000;

/// Removes a slice of each kind; `false`: of one of them more is left.
///
/// # Errors
/// When the database fails; what was removed before stays removed.
pub(super) async fn remove_old(
    connection: &mut PgConnection,
    shared: &Shared,
) -> Result<bool, StoreError> {
    let connector = &shared.connector;
    let kept = connector.retention;
    let undone = connector.effects.iter().filter_map(|rule| rule.compensates.as_ref());
    let undone = undone.filter_map(|undone| connector.effects.get(undone.effect));
    let undoable: Vec<String> = undone.map(|rule| rule.id.to_string()).collect();
    let mut kinds = vec![
        (Expired::Closed, kept.dedupe_ms),
        (Expired::Payloads, kept.payloads_ms),
        (Expired::Results, kept.payloads_ms),
        (Expired::Parked, kept.payloads_ms),
        (Expired::Deferred, kept.payloads_ms),
    ];
    if connector.state.is_some() {
        kinds.push((Expired::Passed, kept.dedupe_ms));
    }
    if outbox::is_used(connector) {
        kinds.push((Expired::Outbox, kept.payloads_ms));
    }
    let mut all = true;
    for (expired, kept_ms) in kinds {
        let id = shared.connector_id;
        let removed = sweep::remove(connection, expired, id, kept_ms, SLICE, &undoable).await?;
        all &= i64::try_from(removed).is_ok_and(|removed| removed < SLICE);
    }
    Ok(all)
}
