//! Positions for people, and taking a topic that is another one than before.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, query_file, query_file_as};
use uuid::Uuid;

use super::audit::{Change, record};
use crate::store::error::Result;

/// Which rows are asked for; `None` takes everything.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub group: Option<String>,
    pub topic: Option<String>,
    pub partition: Option<i32>,
    pub stopped_only: bool,
}

/// How far a group is in one partition of one topic of one cluster.
#[derive(Clone, Debug)]
pub struct ProgressRow {
    pub group_name: String,
    pub cluster_id: String,
    pub topic: String,
    pub topic_id: String,
    pub partition: i32,
    pub epoch: i64,
    pub position: i64,
    pub updated_at: DateTime<Utc>,
    /// Records below it may be done although nothing is on record of them: a failover may have lost it.
    pub suspect: Option<i64>,
    /// Why nothing is fetched until a person accepts.
    pub stopped: Option<String>,
    /// The living worker that took it up last, and where that runs.
    pub holder: Option<Uuid>,
    pub host: Option<String>,
}

pub async fn list(connection: &mut PgConnection, filter: &Filter) -> Result<Vec<ProgressRow>> {
    let rows = query_file_as!(
        ProgressRow,
        "src/store/sql/admin_progress.sql",
        filter.group,
        filter.topic,
        filter.partition,
        filter.stopped_only,
    );
    Ok(rows.fetch_all(connection).await?)
}

/// What is to be accepted.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub group: String,
    pub topic: String,
    /// `None`: every stopped partition.
    pub partition: Option<i32>,
    pub at: At,
}

/// Where to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// At the position that stands in the row.
    Kept,
    Offset(i64),
    /// By partition; others are left as they are.
    Each(BTreeMap<i32, i64>),
}

/// One accepted partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    pub topic_id: String,
    pub partition: i32,
    pub stopped: String,
    pub was_at: i64,
    pub goes_on_at: i64,
}

/// Takes stopped partitions as they are now: a new epoch, a position, no witness, and an audit row
/// each. Gives nothing when none of them is stopped.
///
/// # Errors
/// As every query; then nothing was changed.
pub async fn accept(
    tx: &mut PgConnection,
    wanted: &Wanted,
    change: &Change,
) -> Result<Vec<Accepted>> {
    let rows = query_file!(
        "src/store/sql/admin_progress_lock.sql",
        wanted.group,
        wanted.topic,
        wanted.partition,
    );
    let mut accepted = Vec::new();
    for row in rows.fetch_all(&mut *tx).await? {
        let goes_on_at = match &wanted.at {
            At::Kept => row.position,
            At::Offset(offset) => *offset,
            At::Each(offsets) => match offsets.get(&row.partition) {
                Some(offset) => *offset,
                None => continue,
            },
        };
        if !change.dry_run {
            query_file!(
                "src/store/sql/admin_progress_accept.sql",
                wanted.group,
                wanted.topic,
                row.cluster_id,
                row.topic_id,
                row.partition,
                goes_on_at,
            )
            .execute(&mut *tx)
            .await?;
            let detail = serde_json::json!({
                "group": wanted.group,
                "topic": wanted.topic,
                "topic_id": row.topic_id,
                "cluster_id": row.cluster_id,
                "partition": row.partition,
                "epoch": row.epoch,
                "position": row.position,
                "goes_on_at": goes_on_at,
                "stopped": row.stopped,
            });
            record(tx, None, "progress accept", change, &detail.to_string()).await?;
        }
        accepted.push(Accepted {
            topic_id: row.topic_id,
            partition: row.partition,
            stopped: row.stopped,
            was_at: row.position,
            goes_on_at,
        });
    }
    Ok(accepted)
}
