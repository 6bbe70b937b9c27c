//! Up to which moment everything that lay in a connector's topics has been read.
//!
//! An event waits for the versions before it, and for a time. That time is not over while what it waits for
//! may lie unread in a topic: when no worker ran, while they lag, while the intake is paused. So a time that
//! has come counts from the moment on when everything is decided, by whoever reads it, up to the ends that the
//! partitions had by then. Effects may be open below: that a call takes its time keeps no other entity waiting.
//! What was read counts for the database that has it: after a failover that may have lost commits it is asked anew.
//! A topic that is gone holds nothing that could come, so it is left out, and told.

mod ends;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use oncely_core::connector::{Connector, OnGap};
use tokio::sync::watch;

use self::ends::{Ends, ids, names};
use super::{Shared, chain};
use crate::clock;
use crate::kafka::{Admin, KafkaError};
use crate::store::progress::{self, Row, Topic};
use crate::store::{Session, StoreError, deferred};
use crate::task::Stopped;
use crate::telemetry::Lasting;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The moment, by the database's clock, and in which generation it was found; none before the first look that was
/// reached.
#[derive(Debug, Default)]
pub(super) struct ReadUntil(Mutex<Option<(DateTime<Utc>, u64)>>);

impl ReadUntil {
    /// Seen from a generation: what had been read in an earlier one may be forgotten.
    pub(super) fn get(&self, generation: u64) -> Option<DateTime<Utc>> {
        let found = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        found.filter(|(_, of)| *of == generation).map(|(moment, _)| moment)
    }

    fn set(&self, moment: DateTime<Utc>, generation: u64) {
        let found = Some((moment, generation));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }
}

/// Whether events of this connector wait for a time.
pub(super) fn matters(connector: &Connector) -> bool {
    connector.state.as_ref().is_some_and(|state| matches!(state.on_gap, OnGap::Wait(_)))
}

/// What lay in the topics at one moment.
struct Goal {
    at: DateTime<Utc>,
    generation: u64,
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
    let mut ends = Ends::of(&shared.connector);
    let blind = Lasting::default();
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        }
        let patience = session.patience();
        let looked = look(&shared, (&admin, &mut ends), &mut session, &mut goal);
        match patience.bounded(looked).await {
            Ok(()) => {
                blind.off();
            }
            Err(Blind::Database(error @ StoreError::Refused { .. })) => {
                return Err(Stopped(chain(&error)));
            }
            Err(Blind::Database(error)) => session.failed(&error).await,
            Err(Blind::Kafka(error)) => {
                let cause = chain(&error);
                tracing::debug!(%cause, "the ends of topics are not known");
                if let Some(blind) = blind.on() {
                    let blind_s = blind.as_secs();
                    tracing::warn!(
                        blind_s,
                        %cause,
                        "the ends of topics are not known, times of events that wait stand still"
                    );
                }
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
    (admin, ends): (&Admin, &mut Ends),
    session: &mut Session,
    goal: &mut Option<Goal>,
) -> Result<(), Blind> {
    session.connection().await?;
    // Behind a pooler it stays while the server changes.
    session.confirm().await?;
    session.connection().await?;
    let generation = session.generation();
    // What was reached counts no more.
    goal.take_if(|known| known.generation != generation);
    if let Some(known) = goal.as_ref()
        && !is_of(known, &ids(admin, &names(&shared.connector)).await?)
    {
        // A topic was made anew, or is gone: what lay in it nobody reaches any more.
        *goal = None;
    }
    let connection = session.connection().await?;
    if goal.is_none() {
        let until = shared.read_until.get(generation);
        let (at, any) = deferred::timed(connection, shared.connector_id, until).await?;
        if !any {
            return Ok(());
        }
        *goal = Some(Goal { at, generation, behind: ends.behind(admin).await? });
    }
    let Some(Goal { at, behind, .. }) = goal.as_ref() else { return Ok(()) };
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
        if !of_partition.any(|row| row.decided.max(Some(row.position)) >= Some(*behind)) {
            return Ok(());
        }
    }
    shared.read_until.set(*at, generation);
    *goal = None;
    shared.redrive.notify_one();
    Ok(())
}

/// Whether the goal's topics are still those that it was taken of.
fn is_of(goal: &Goal, ids: &BTreeMap<String, String>) -> bool {
    let mut taken = goal.behind.keys().filter(|(_, id, _)| !id.is_empty());
    taken.all(|(name, id, _)| ids.get(name) == Some(id))
}
