//! The record of overrides.

use chrono::{DateTime, Utc};
use oncely_core::key::Key;
use sqlx::{PgConnection, query_file, query_file_as};
use uuid::Uuid;

use crate::store::columns::{clean, uuid, uuids};
use crate::store::error::Result;

/// Characters that an actor and a reason may have, as the columns allow.
const ACTOR_CHARS_MAX: usize = 200;
const REASON_CHARS_MAX: usize = 1_000;

/// Who changes something, and why.
#[derive(Clone, Debug)]
pub struct Change {
    pub actor: String,
    pub reason: String,
    /// Find out what would happen, and change nothing.
    pub dry_run: bool,
}

/// One override on record.
#[derive(Clone, Debug)]
pub struct Entry {
    pub at: DateTime<Utc>,
    pub subject: Option<Uuid>,
    pub actor: String,
    pub action: String,
    pub reason: String,
    pub detail: String,
}

/// Writes the audit row of a change, in the change's own transaction.
pub(super) async fn record(
    tx: &mut PgConnection,
    subject: Option<Key>,
    action: &str,
    change: &Change,
    detail: &str,
) -> Result<()> {
    query_file!(
        "src/store/sql/admin_audit_insert.sql",
        subject.map(uuid),
        clean(&change.actor, ACTOR_CHARS_MAX),
        action,
        clean(&change.reason, REASON_CHARS_MAX),
        clean(detail, usize::MAX),
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// What people did to these events and effects, oldest first.
pub async fn of(connection: &mut PgConnection, subjects: &[Key]) -> Result<Vec<Entry>> {
    let rows = query_file_as!(Entry, "src/store/sql/admin_audit_of.sql", &uuids(subjects));
    Ok(rows.fetch_all(connection).await?)
}
