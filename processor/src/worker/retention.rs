//! Removes what is older than the connector file wants it kept.
//!
//! Reads: the file's `retention`. Gives: whether something is left. Never: takes what is open, or what a compensation
//! may still need.

use std::time::Duration;

use super::{Shared, outbox};
use crate::clock::{self, Moment};
use crate::store::sweep::{self, Expired, Looked, Walk};
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
    payloads: Begun,
}

#[derive(Debug)]
struct Begun {
    walk: Walk,
    at: Moment,
    /// Whether it has come to the events that are too young.
    is_over: bool,
}

impl Begun {
    fn new() -> Self {
        Self { walk: Walk::default(), at: clock::now(), is_over: false }
    }

    /// The walk as it stands, or, after its end, one that begins anew: what could not go yet may go by now.
    fn on(&mut self, kept_ms: u64) -> &mut Walk {
        let anew = Duration::from_millis(kept_ms / 10).clamp(ANEW_MIN, ANEW_MAX);
        if self.is_over && clock::since(self.at) >= anew {
            *self = Self::new();
        }
        &mut self.walk
    }

    /// Whether what it found there was the last.
    fn found(&mut self, looked: Looked) -> bool {
        self.is_over = looked.events < SLICE;
        self.is_over
    }
}

impl Walks {
    pub(super) fn new() -> Self {
        Self { closed: Begun::new(), results: Begun::new(), payloads: Begun::new() }
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
    let mut all = walks.closed.found(looked);
    let walk = walks.results.on(kept.payloads_ms);
    let looked =
        sweep::clear_results(connection, id, kept.payloads_ms, SLICE, walk, &undoable).await?;
    all &= walks.results.found(looked);
    let walk = walks.payloads.on(kept.payloads_ms);
    let looked = sweep::remove_payloads(connection, id, kept.payloads_ms, SLICE, walk).await?;
    all &= walks.payloads.found(looked);

    let mut kinds =
        vec![(Expired::Parked, kept.payloads_ms), (Expired::Deferred, kept.payloads_ms)];
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

#[cfg(test)]
mod tests {
    use super::*;

    /// B25: with more events than one turn can look at, a walk that began anew in between would never come to its end.
    #[test]
    fn b25_a_walk_begins_anew_only_after_it_came_to_its_end() {
        let kept_ms = 1_000;
        let long_ago = clock::now().checked_sub(ANEW_MAX).unwrap();
        let mut begun = Begun { at: long_ago, ..Begun::new() };
        assert!(!begun.found(Looked { events: SLICE, removed: 0 }));
        begun.on(kept_ms);
        assert_eq!(begun.at, long_ago, "it goes on, however long it takes");
        assert!(begun.found(Looked { events: SLICE - 1, removed: 0 }));
        begun.on(kept_ms);
        assert!(begun.at > long_ago && !begun.is_over);
        assert!(begun.found(Looked::default()));
        let at = begun.at;
        begun.on(kept_ms);
        assert_eq!(begun.at, at, "and not at once");
    }
}
