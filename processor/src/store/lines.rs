//! Ledger lines that wait for other effects: rows of the effect ledger until they are written.
//!
//! They are never claimed. Whoever finds one due writes it in that same transaction, with its lane locked.

use oncely_core::effect::status::Status;
use oncely_core::key::Key;
use sqlx::{PgConnection, query_file, query_file_as};

use super::claim::{Claim, ClaimRow};
use super::columns::{clean, key, uuids};
use super::error::Result;

/// Characters of a note, as the column allows.
const NOTE_CHARS_MAX: usize = 500;

/// Lanes in which lines of these names are due.
pub async fn due_lanes(
    connection: &mut PgConnection,
    connector_id: i32,
    names: &[String],
    limit: i64,
) -> Result<Vec<Key>> {
    let rows = query_file!("src/store/sql/effect_lines_due.sql", connector_id, names, limit)
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(|row| key(row.lane)).collect())
}

/// The lines of locked lanes that are due, with their names.
pub async fn lock_due(
    tx: &mut PgConnection,
    connector_id: i32,
    names: &[String],
    lanes: &[Key],
) -> Result<Vec<(String, Claim)>> {
    let lanes = uuids(lanes);
    let rows = query_file_as!(
        ClaimRow,
        "src/store/sql/effect_lines_lock.sql",
        connector_id,
        names,
        &lanes
    );
    let rows = rows.fetch_all(tx).await?.into_iter();
    Ok(rows.map(|row| (row.name.clone(), Claim::from(row))).collect())
}

/// Settles lines: done, or rejected for a reason.
pub async fn settle(tx: &mut PgConnection, lines: &[(Key, Status, String)]) -> Result<()> {
    let key_ = uuids(lines.iter().map(|(key, ..)| key));
    let status: Vec<_> = lines.iter().map(|(_, status, _)| status.as_str().to_owned()).collect();
    let note: Vec<_> = lines.iter().map(|(.., note)| clean(note, NOTE_CHARS_MAX)).collect();
    query_file!("src/store/sql/effect_line_settle.sql", &key_, &status, &note).execute(tx).await?;
    Ok(())
}
