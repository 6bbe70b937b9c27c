//! Rewinding: a position is lowered, its epoch raised, and everything after it is read once more.

use sqlx::{PgConnection, query_file, query_file_as};

use super::audit::{Change, record};
use crate::store::error::Result;

/// A position as it stands, locked until the transaction ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stand {
    pub group_name: String,
    pub cluster_id: String,
    pub topic: String,
    pub topic_id: String,
    pub partition: i32,
    pub epoch: i64,
    pub position: i64,
    pub stopped: Option<String>,
}

/// Locks the positions of a connector, of one topic or partition or of all.
pub async fn lock(
    tx: &mut PgConnection,
    connector: &str,
    topic: Option<&str>,
    partition: Option<i32>,
) -> Result<Vec<Stand>> {
    let rows =
        query_file_as!(Stand, "src/store/sql/admin_rewind_rows.sql", connector, topic, partition);
    Ok(rows.fetch_all(tx).await?)
}

/// Lowers positions to these offsets, with an audit row each. `as_new`: a person knows that events of before may be new
/// ones by the file of now.
pub async fn rewind(
    tx: &mut PgConnection,
    targets: &[(Stand, i64)],
    as_new: bool,
    change: &Change,
) -> Result<()> {
    for (stand, to) in targets {
        query_file!(
            "src/store/sql/admin_rewind.sql",
            stand.group_name,
            stand.cluster_id,
            stand.topic,
            stand.topic_id,
            stand.partition,
            to,
            stand.epoch,
        )
        .execute(&mut *tx)
        .await?;
        let detail = serde_json::json!({
            "group": stand.group_name,
            "topic": stand.topic,
            "topic_id": stand.topic_id,
            "cluster_id": stand.cluster_id,
            "partition": stand.partition,
            "epoch": stand.epoch,
            "position": stand.position,
            "goes_on_at": to,
            "as_new": as_new,
        });
        record(tx, None, "rewind", change, &detail.to_string()).await?;
    }
    Ok(())
}
