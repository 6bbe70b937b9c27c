//! By which words keys were made, and by which name a connector ran: what a changed file would not find again.

use chrono::{DateTime, Utc};
use oncely_core::connector::Connector;
use oncely_core::key::Key;
use sqlx::{PgConnection, query_file};

use super::rewind::Stand;
use crate::store::columns::{key, millis, uuid};
use crate::store::error::Result;

/// A connector that another one may be by a new name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Former {
    pub name: String,
    pub scope: String,
    pub group: String,
    pub effects: Vec<String>,
    pub seen_at: DateTime<Utc>,
    pub runs: bool,
}

/// The connector that this one may have been, given with files of these names.
pub async fn former(
    connection: &mut PgConnection,
    connector: &Connector,
    given: &[String],
) -> Result<Option<Former>> {
    let topics: Vec<String> =
        connector.source.topics.iter().map(|topic| topic.to_string()).collect();
    let effects: Vec<String> = connector.effects.iter().map(|rule| rule.id.to_string()).collect();
    let row = query_file!(
        "src/store/sql/admin_former.sql",
        millis(connector.retention.dedupe_ms),
        &*connector.scope,
        given,
        &topics,
        &*connector.source.group,
        &effects,
    );
    Ok(row.fetch_optional(connection).await?.map(|row| Former {
        name: row.name,
        scope: row.scope,
        group: row.group_name,
        effects: row.effects,
        seen_at: row.seen_at,
        runs: row.runs,
    }))
}

/// How the ids of events were made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRule {
    pub digest: Key,
    pub words: String,
    /// When a worker that made them so was seen last.
    pub seen_at: DateTime<Utc>,
}

/// All that a connector ever had, the last seen first.
pub async fn of_events(connection: &mut PgConnection, connector: &str) -> Result<Vec<EventRule>> {
    let rows = query_file!("src/store/sql/admin_event_rules.sql", connector);
    let rows = rows.fetch_all(connection).await?.into_iter();
    let rule = rows.map(|row| EventRule {
        digest: key(row.digest),
        words: row.words,
        seen_at: row.seen_at,
    });
    Ok(rule.collect())
}

/// By which other words, and until when, ids were made of events that a connector would read once more from these
/// places on. `now`: those of the file that ran last.
pub async fn others_from(
    connection: &mut PgConnection,
    connector: &str,
    now: &EventRule,
    targets: &[(Stand, i64)],
) -> Result<Option<(String, DateTime<Utc>)>> {
    let text = |of: fn(&Stand) -> &String| -> Vec<String> {
        targets.iter().map(|(stand, _)| of(stand).clone()).collect()
    };
    let partitions: Vec<i32> = targets.iter().map(|(stand, _)| stand.partition).collect();
    let places: Vec<i64> = targets.iter().map(|(_, to)| *to).collect();
    let query = query_file!(
        "src/store/sql/admin_rewind_older.sql",
        connector,
        uuid(now.digest),
        &text(|stand| &stand.cluster_id),
        &text(|stand| &stand.topic),
        &text(|stand| &stand.topic_id),
        &partitions,
        &places,
    );
    Ok(query.fetch_optional(connection).await?.map(|row| (row.words, row.seen_at)))
}
