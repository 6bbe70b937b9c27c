//! Positions: how far a group is, in Postgres, which decides.

use std::collections::BTreeMap;

use oncely_core::progress::Witness;
use sqlx::{PgConnection, query_file};
use uuid::Uuid;

use super::columns::{key, uuid};
use super::error::Result;

/// A topic's end that is not known yet.
pub const END_UNKNOWN: i64 = i64::MAX;

/// Names one partition of one topic of one cluster, as a group reads it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Topic {
    pub group: String,
    pub cluster_id: String,
    pub topic: String,
    pub topic_id: String,
}

/// A progress row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub topic_id: String,
    pub partition: i32,
    pub epoch: i64,
    pub position: i64,
    pub witness: Option<Witness>,
    /// Records below it may be done although nothing is on record of them, since a failover may have lost it;
    /// [`END_UNKNOWN`] until the topic's end was looked up.
    pub suspect: Option<i64>,
    /// Below it everything is decided, finished or not; the position may be further.
    pub decided: Option<i64>,
    /// Why nothing is fetched until a person accepts.
    pub stopped: Option<String>,
}

/// By topic, topic id and partition.
pub type Epochs = BTreeMap<(String, String, i32), i64>;

/// A position to be raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raise {
    pub topic: String,
    pub topic_id: String,
    pub partition: i32,
    pub epoch: i64,
    pub position: i64,
    pub witness: Option<Witness>,
}

/// All that is on record of a group's topic, under this and other topic ids.
pub async fn load(connection: &mut PgConnection, topic: &Topic) -> Result<Vec<Row>> {
    let rows =
        query_file!("src/store/sql/progress_load.sql", topic.group, topic.cluster_id, topic.topic)
            .fetch_all(connection)
            .await?;
    Ok(rows
        .into_iter()
        .map(|row| Row {
            topic_id: row.topic_id,
            partition: row.partition,
            epoch: row.epoch,
            position: row.position,
            witness: row.witness_offset.zip(row.witness_hash).map(|(offset, hash)| Witness {
                offset,
                timestamp_ms: row.witness_timestamp,
                hash: key(hash),
            }),
            suspect: row.suspect,
            decided: row.decided,
            stopped: row.stopped,
        })
        .collect())
}

/// The epochs of a group's partitions, by topic, topic id and partition.
pub async fn epochs(
    connection: &mut PgConnection,
    group: &str,
    cluster_id: &str,
) -> Result<Epochs> {
    let rows = query_file!("src/store/sql/progress_epochs.sql", group, cluster_id)
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(|row| ((row.topic, row.topic_id, row.partition), row.epoch)).collect())
}

/// Makes the row of a partition, unless there is one.
pub async fn create(
    connection: &mut PgConnection,
    topic: &Topic,
    partition: i32,
    position: i64,
    stopped: Option<&str>,
) -> Result<()> {
    query_file!(
        "src/store/sql/progress_create.sql",
        topic.group,
        topic.cluster_id,
        topic.topic,
        topic.topic_id,
        partition,
        position,
        stopped
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Notes who reads partitions from now on. How far all was decided is known anew from then on.
pub async fn take_up(
    connection: &mut PgConnection,
    topic: &Topic,
    partitions: &[i32],
    worker: Uuid,
) -> Result<()> {
    query_file!(
        "src/store/sql/progress_take_up.sql",
        topic.group,
        topic.cluster_id,
        topic.topic,
        topic.topic_id,
        partitions,
        worker,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Raises positions; a lower one, or one of an old epoch, changes nothing.
pub async fn raise(
    connection: &mut PgConnection,
    group: &str,
    cluster_id: &str,
    (worker, raises): (Uuid, &[Raise]),
) -> Result<()> {
    let topic: Vec<_> = raises.iter().map(|raise| raise.topic.clone()).collect();
    let topic_id: Vec<_> = raises.iter().map(|raise| raise.topic_id.clone()).collect();
    let partition: Vec<_> = raises.iter().map(|raise| raise.partition).collect();
    let epoch: Vec<_> = raises.iter().map(|raise| raise.epoch).collect();
    let position: Vec<_> = raises.iter().map(|raise| raise.position).collect();
    let witness_offset: Vec<_> =
        raises.iter().map(|raise| raise.witness.map(|witness| witness.offset)).collect();
    let witness_timestamp: Vec<_> =
        raises.iter().map(|raise| raise.witness.and_then(|witness| witness.timestamp_ms)).collect();
    let witness_hash: Vec<_> =
        raises.iter().map(|raise| raise.witness.map(|witness| uuid(witness.hash))).collect();
    query_file!(
        "src/store/sql/progress_raise.sql",
        group,
        cluster_id,
        &topic,
        &topic_id,
        &partition,
        &epoch,
        &position,
        &witness_offset as &[Option<i64>],
        &witness_timestamp as &[Option<i64>],
        &witness_hash as &[Option<Uuid>],
        worker,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Notes how far records may be done although nothing is on record of them: up to the topic's end.
pub async fn bound_suspect(
    connection: &mut PgConnection,
    topic: &Topic,
    (partition, epoch): (i32, i64),
    end: i64,
) -> Result<()> {
    query_file!(
        "src/store/sql/progress_suspect.sql",
        topic.group,
        topic.cluster_id,
        topic.topic,
        topic.topic_id,
        partition,
        epoch,
        end
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Notes that everything is decided again that lay in these partitions at a failover.
pub async fn decided(
    connection: &mut PgConnection,
    group: &str,
    cluster_id: &str,
    partitions: &[Raise],
) -> Result<()> {
    let topic: Vec<_> = partitions.iter().map(|one| one.topic.clone()).collect();
    let topic_id: Vec<_> = partitions.iter().map(|one| one.topic_id.clone()).collect();
    let partition: Vec<_> = partitions.iter().map(|one| one.partition).collect();
    let epoch: Vec<_> = partitions.iter().map(|one| one.epoch).collect();
    query_file!(
        "src/store/sql/progress_decided.sql",
        group,
        cluster_id,
        &topic,
        &topic_id,
        &partition,
        &epoch
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Notes how far everything is decided, finished or not.
pub async fn ahead(
    connection: &mut PgConnection,
    group: &str,
    cluster_id: &str,
    partitions: &[(Raise, i64)],
) -> Result<()> {
    let topic: Vec<_> = partitions.iter().map(|(one, _)| one.topic.clone()).collect();
    let topic_id: Vec<_> = partitions.iter().map(|(one, _)| one.topic_id.clone()).collect();
    let partition: Vec<_> = partitions.iter().map(|(one, _)| one.partition).collect();
    let epoch: Vec<_> = partitions.iter().map(|(one, _)| one.epoch).collect();
    let decided: Vec<_> = partitions.iter().map(|(_, decided)| *decided).collect();
    query_file!(
        "src/store/sql/progress_ahead.sql",
        group,
        cluster_id,
        &topic,
        &topic_id,
        &partition,
        &epoch,
        &decided
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Stops a partition visibly until a person accepts what was found.
pub async fn stop(
    connection: &mut PgConnection,
    topic: &Topic,
    partition: i32,
    why: &str,
) -> Result<()> {
    query_file!(
        "src/store/sql/progress_stop.sql",
        topic.group,
        topic.cluster_id,
        topic.topic,
        topic.topic_id,
        partition,
        why
    )
    .execute(connection)
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::database_tests::World;

    /// Who took it up before may have decided records that a log which was cut off has no more.
    #[tokio::test]
    async fn how_far_all_is_decided_begins_anew_with_who_takes_a_partition_up() {
        let world = World::new().await;
        let text = |text: &str| text.to_owned();
        let topic = Topic {
            group: text("g"),
            cluster_id: text("k"),
            topic: text("t"),
            topic_id: text("i"),
        };
        let mut connection = world.connect().await;
        let c = &mut connection;
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        create(c, &topic, 0, 5, None).await.unwrap();
        create(c, &topic, 1, 5, None).await.unwrap();
        take_up(c, &topic, &[0, 1], one).await.unwrap();
        world.sql("UPDATE oncely.progress SET decided = 9").await;
        let decided = async || {
            world.text("SELECT coalesce(decided, -1) FROM oncely.progress ORDER BY partition").await
        };
        take_up(c, &topic, &[1], two).await.unwrap();
        assert_eq!(decided().await, "9 -1");
        take_up(c, &topic, &[0], one).await.unwrap();
        assert_eq!(decided().await, "-1 -1", "by itself as well");
        let holders = world.text("SELECT holder FROM oncely.progress ORDER BY partition").await;
        assert_eq!(holders, format!("{one} {two}"));
    }
}
