//! What may be done although nothing is on record of it under the key that the file makes now.

use oncely_core::connector::Connector;
use oncely_core::decide::Known;
use oncely_core::key::Key;
use oncely_core::key_rule::KeyRule;
use sqlx::{PgConnection, query_file};
use uuid::Uuid;

use super::super::columns::{key, millis, uuid, uuids};
use super::super::error::Result;

/// Says of these entities whether what a compensation undoes may be on record under another key, or forgotten.
pub async fn doubt_undone(
    tx: &mut PgConnection,
    (connector, id): (&Connector, i32),
    entities: &[Key],
    known: &mut Known,
) -> Result<()> {
    let rules = KeyRule::of_effects(connector);
    let undone =
        connector.effects.iter().filter_map(|rule| Some(rule.compensates.as_ref()?.effect));
    let undone: Vec<(i32, &str, Uuid)> = undone
        .filter_map(|at| {
            let name = &*connector.effects.get(at)?.id;
            Some((i32::try_from(at).ok()?, name, uuid(rules.get(at)?.digest)))
        })
        .collect();
    let places: Vec<i32> = undone.iter().map(|(place, ..)| *place).collect();
    let effects: Vec<String> = undone.iter().map(|(_, name, _)| (*name).to_owned()).collect();
    let digests: Vec<Uuid> = undone.iter().map(|(.., digest)| *digest).collect();
    let names: Vec<String> = connector.effects.iter().map(|rule| rule.id.to_string()).collect();
    let rows = query_file!(
        "src/store/sql/entity_doubtful.sql",
        &uuids(entities),
        millis(connector.retention.dedupe_ms),
        &*connector.scope,
        id,
        &places,
        &effects,
        &digests,
        &names,
    );
    for row in rows.fetch_all(tx).await? {
        match row.effect.and_then(|place| usize::try_from(place).ok()) {
            Some(effect) => known.rekeyed.insert((key(row.key), effect)),
            None => known.forgetful.insert(key(row.key)),
        };
    }
    Ok(())
}
