//! Removes what is older than the connector file wants it kept.
//!
//! Reads: the file's `retention`. Gives: whether something is left. Never: takes what is open, or what a compensation
//! may still need.

use std::time::Duration;

use super::{Shared, outbox};
use crate::clock::{self, Moment};
use crate::store::sweep::{self, Expired, Walk};
use crate::store::{PgConnection, StoreError};

/// Rows of each kind that one look takes at most.
const SLICE: i64 = 2_000;
/// Old events are looked at once, and those that stay once more in each tenth of their life, within these bounds.
const ANEW_MIN: Duration = Duration::from_secs(5);
const ANEW_MAX: Duration = Duration::from_secs(86_400);

/// How far the looks at old events have come.
#[derive(Debug)]
pub(super) struct Walks {
    closed: Begun,
    results: Begun,
}

#[derive(Debug)]
struct Begun {
    walk: Walk,
    at: Moment,
}

impl Begun {
    fn new() -> Self {
        Self { walk: Walk::default(), at: clock::now() }
    }

    /// The walk as it stands, or one that begins anew: what could not go yet may go by now.
    fn on(&mut self, kept_ms: u64) -> &mut Walk {
        let anew = Duration::from_millis(kept_ms / 10).clamp(ANEW_MIN, ANEW_MAX);
        if clock::since(self.at) >= anew {
            *self = Self::new();
        }
        &mut self.walk
    }
}

impl Walks {
    pub(super) fn new() -> Self {
        Self { closed: Begun::new(), results: Begun::new() }
    }
}

/// Removes a slice of each kind; `false`: of one of them more is left.
///
/// # Errors
/// When the database fails; what was removed before stays removed.
pub(super) async fn remove_old(
    connection: &mut PgConnection,
    shared: &Shared,
    walks: &mut Walks,
) -> Result<bool, StoreError> {
    let (connector, id) = (&shared.connector, shared.connector_id);
    let kept = connector.retention;
    let undone = connector.effects.iter().filter_map(|rule| rule.compensates.as_ref());
    let undone = undone.filter_map(|undone| connector.effects.get(undone.effect));
    let undoable: Vec<String> = undone.map(|rule| rule.id.to_string()).collect();

    let walk = walks.closed.on(kept.dedupe_ms);
    let looked = sweep::remove_closed(connection, id, kept.dedupe_ms, SLICE, walk).await?;
    let mut all = looked.events < SLICE;
    let walk = walks.results.on(kept.payloads_ms);
    let looked =
        sweep::clear_results(connection, id, kept.payloads_ms, SLICE, walk, &undoable).await?;
    all &= looked.events < SLICE;

    let mut kinds = vec![
        (Expired::Payloads, kept.payloads_ms),
        (Expired::Parked, kept.payloads_ms),
        (Expired::Deferred, kept.payloads_ms),
    ];
    if connector.state.is_some() {
        kinds.push((Expired::Passed, kept.dedupe_ms));
    }
    if outbox::is_used(connector) {
        kinds.push((Expired::Outbox, kept.payloads_ms));
    }
    for (expired, kept_ms) in kinds {
        let removed = sweep::remove(connection, expired, id, kept_ms, SLICE).await?;
        all &= i64::try_from(removed).is_ok_and(|removed| removed < SLICE);
    }
    Ok(all)
}
