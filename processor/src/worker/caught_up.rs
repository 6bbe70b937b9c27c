//! Up to which moment everything that lay in a connector's topics has been read.
//!
//! An event waits for the versions before it, and for a time. That time is not over while what it waits for
//! may lie unread in a topic: when no worker ran, while they lag, while the intake is paused. So a time that
//! has come counts from the moment on when the positions on record, whoever raised them, have reached the
//! ends that the partitions had by then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use oncely_core::connector::{Connector, OnGap};
use tokio::sync::watch;

use super::{Shared, chain};
use crate::clock;
use crate::kafka::{Admin, KafkaError, TopicPartition};
use crate::store::progress::{self, Row, Topic};
use crate::store::{Session, StoreError, deferred};
use crate::task::Stopped;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The moment, by the database's clock; none before the first look that was reached.
#[derive(Debug, Default)]
pub(super) struct ReadUntil(Mutex<Option<DateTime<Utc>>>);

impl ReadUntil {
    pub(super) fn get(&self) -> Option<DateTime<Utc>> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, moment: DateTime<Utc>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(moment);
    }
}

/// Whether events of this connector wait for a time.
pub(super) fn matters(connector: &Connector) -> bool {
    connector.state.as_ref().is_some_and(|state| matches!(state.on_gap, OnGap::Wait(_)))
}

/// What lay in the topics at one moment.
struct Goal {
    at: DateTime<Utc>,
    /// By topic, its id, and partition: the offset behind the last record.
    behind: BTreeMap<(String, String, i32), i64>,
}

/// Looks whenever a time has come, until told to stop.
///
/// # Errors
/// When a person must act: the schema is wrong.
pub(super) async fn watch(
    shared: Arc<Shared>,
    admin: Admin,
    mut session: Session,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Stopped> {
    let mut ticks = clock::every(LOOK_EVERY);
    let mut goal: Option<Goal> = None;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        }
        let looked = session.patience().bounded(look(&shared, &admin, &mut session, &mut goal));
        match looked.await {
            Ok(()) => {}
            Err(Blind::Database(error @ StoreError::Refused { .. })) => {
                return Err(Stopped(chain(&error)));
            }
            Err(Blind::Database(error)) => session.failed(&error).await,
            Err(Blind::Kafka(error)) => {
                tracing::debug!(cause = %chain(&error), "the ends of topics are not known");
            }
        }
    }
}

/// Why nothing was seen: the next look sees more.
#[derive(Debug, thiserror::Error)]
enum Blind {
    #[error(transparent)]
    Database(#[from] StoreError),
    #[error(transparent)]
    Kafka(#[from] KafkaError),
}

async fn look(
    shared: &Shared,
    admin: &Admin,
    session: &mut Session,
    goal: &mut Option<Goal>,
) -> Result<(), Blind> {
    if let Some(known) = goal.as_ref()
        && !is_of(known, &ids(shared, admin).await?)
    {
        // A topic was made anew, or is gone: what lay in it nobody reaches any more.
        *goal = None;
    }
    let connection = session.connection().await?;
    if goal.is_none() {
        let until = shared.read_until.get();
        let (at, any) = deferred::timed(connection, shared.connector_id, until).await?;
        if !any {
            return Ok(());
        }
        *goal = Some(Goal { at, behind: behind(shared, admin).await? });
    }
    let Some(Goal { at, behind }) = goal.as_ref() else { return Ok(()) };
    let mut topics: BTreeMap<&str, Vec<Row>> = BTreeMap::new();
    for ((name, id, partition), behind) in behind {
        if !topics.contains_key(&**name) {
            let topic = Topic {
                group: shared.connector.source.group.to_string(),
                cluster_id: shared.cluster_id.clone(),
                topic: name.clone(),
                topic_id: id.clone(),
            };
            topics.insert(name, progress::load(connection, &topic).await?);
        }
        let rows = topics.get(&**name).into_iter().flatten();
        let mut of_partition = rows
            .filter(|row| row.partition == *partition && (id.is_empty() || row.topic_id == *id));
        if !of_partition.any(|row| row.position >= *behind) {
            return Ok(());
        }
    }
    shared.read_until.set(*at);
    *goal = None;
    shared.redrive.notify_one();
    Ok(())
}

/// The topics' ids as the cluster has them; without one where it gives none.
async fn ids(shared: &Shared, admin: &Admin) -> Result<BTreeMap<String, String>, KafkaError> {
    let ids = admin.topic_ids(&names(shared)).await?;
    Ok(ids.into_iter().map(|(name, id)| (name, id.to_string())).collect())
}

/// Whether the goal's topics are still those that it was taken of.
fn is_of(goal: &Goal, ids: &BTreeMap<String, String>) -> bool {
    let mut taken = goal.behind.keys().filter(|(_, id, _)| !id.is_empty());
    taken.all(|(name, id, _)| ids.get(name) == Some(id))
}

fn names(shared: &Shared) -> Vec<String> {
    shared.connector.source.topics.iter().map(|topic| topic.to_string()).collect()
}

/// The offset behind the last record of each partition: markers of transactions lie beyond it.
async fn behind(
    shared: &Shared,
    admin: &Admin,
) -> Result<BTreeMap<(String, String, i32), i64>, KafkaError> {
    let (mut ends, mut ids) = (Vec::new(), BTreeMap::new());
    for topic in admin.topics(&names(shared)).await? {
        ids.insert(topic.name.clone(), topic.id.map(|id| id.to_string()).unwrap_or_default());
        for number in topic.partitions {
            let partition = TopicPartition::new(&*topic.name, number);
            let (low, high) = admin.watermarks(&partition).await?;
            if high > low {
                ends.push((partition, high));
            }
        }
    }
    let last = admin.last_records(&ends).await?;
    let behind = |(partition, _): &(TopicPartition, i64)| {
        // None: nothing but markers and aborted records lies there.
        let last = last.get(partition)?;
        let id = ids.get(&*partition.topic).cloned().unwrap_or_default();
        let place = (partition.topic.to_string(), id, partition.partition);
        Some((place, last.offset.saturating_add(1)))
    };
    Ok(ends.iter().filter_map(behind).collect())
}
