//! Effects that several events owe.
//!
//! Two events may owe one effect (one receipt for each invoice). It then belongs to all of them, and
//! is remembered as long as any of them is.

use std::collections::BTreeMap;

use oncely_core::decide::Plan;
use oncely_core::key::Key;
use sqlx::{PgConnection, query_file};

use super::batch::Written;
use super::columns::uuids;
use super::error::Result;

/// Counts the events of a batch among the owners of effects that they share, with earlier events or
/// with each other; after the batch's own effects are written. An effect that retention has removed
/// meanwhile is a lost race.
pub async fn share_effects(tx: &mut PgConnection, plan: &Plan) -> Result<Written> {
    let more = more_owners(plan);
    if more.is_empty() {
        return Ok(Written::All);
    }
    let key = uuids(more.keys());
    let owners: Vec<i32> = more.values().copied().collect();
    let done = query_file!("src/store/sql/effect_share.sql", &key, &owners).execute(tx).await?;
    let all = usize::try_from(done.rows_affected()).is_ok_and(|rows| rows == more.len());
    Ok(if all { Written::All } else { Written::LostRace })
}

/// How many owners each effect gains beyond the one that its own row was written for.
fn more_owners(plan: &Plan) -> BTreeMap<Key, i32> {
    let mut owners: BTreeMap<Key, i32> = BTreeMap::new();
    for key in plan.inbox.values().flat_map(|new| &new.effects) {
        let count = owners
            .entry(*key)
            .or_insert_with(|| if plan.effects.contains_key(key) { -1 } else { 0 });
        *count = count.saturating_add(1);
    }
    owners.retain(|_, more| *more > 0);
    owners
}
