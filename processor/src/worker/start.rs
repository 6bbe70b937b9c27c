//! Where a partition begins: resolved once, to a number, before the first fetch.
//!
//! From then on Postgres decides. A topic that was recreated or cut off stops with a clear state,
//! and `oncely progress accept` takes it as it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use oncely_core::connector::Start;
use oncely_core::failover::Doubt;
use oncely_core::progress::Witness;
use tokio::sync::mpsc;

use super::lease::Lease;
use super::memory::Memory;
use super::{Message, Shared};
use crate::crash::{self, Step};
use crate::kafka::{Admin, Assigned, KafkaError, TopicInfo, TopicPartition, WitnessCheck};
use crate::store::progress::{self, Row, Topic};
use crate::store::{Session, StoreError, register};

/// Wait before asking again while Kafka or the database is away.
const WAIT: Duration = Duration::from_millis(500);

/// What was found out about an assignment.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) assigned: Assigned,
    pub(super) from: From,
}

#[derive(Debug)]
pub(super) enum From {
    Position {
        position: i64,
        epoch: i64,
        witness: Option<Witness>,
        source: i32,
        topic_id: String,
        doubt: Doubt,
    },
    /// Nothing is fetched until a person has looked.
    Stopped { why: String },
}

/// Resolves starts.
#[derive(Debug)]
pub(super) struct Starter {
    pub(super) shared: Arc<Shared>,
    pub(super) session: Session,
    pub(super) lease: Lease,
    pub(super) admin: Admin,
    pub(super) memory: Memory,
    pub(super) assigned: mpsc::UnboundedReceiver<Vec<Assigned>>,
    pub(super) pipeline: mpsc::UnboundedSender<Message>,
}

#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("kafka did not answer")]
    Kafka(#[from] KafkaError),
    #[error("the database did not answer")]
    Store(#[from] StoreError),
}

impl Starter {
    /// Answers assignments until the pipeline is gone. While Kafka or the database is away, nothing
    /// is fetched: the question waits. One topic or partition that cannot be asked about holds up no
    /// other.
    ///
    /// # Errors
    /// When a person must act: the schema is wrong.
    pub(super) async fn run(mut self) -> Result<(), crate::task::Stopped> {
        let mut again: Vec<Assigned> = Vec::new();
        loop {
            let wait = async {
                if again.is_empty() {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(super::jittered(WAIT)).await;
            };
            let asked = tokio::select! {
                new = self.assigned.recv() => match new {
                    Some(new) => {
                        // Asked once more meanwhile: answered once.
                        again.retain(|old| new.iter().all(|new| new.assignment != old.assignment));
                        new
                    }
                    None => return Ok(()),
                },
                () = wait => std::mem::take(&mut again),
            };
            again.extend(self.answer(asked).await?);
        }
    }

    /// Answers what can be answered, topic by topic; gives what is to be asked again.
    async fn answer(
        &mut self,
        asked: Vec<Assigned>,
    ) -> Result<Vec<Assigned>, crate::task::Stopped> {
        let mut by_topic: BTreeMap<String, Vec<Assigned>> = BTreeMap::new();
        for assigned in asked {
            by_topic.entry(assigned.partition.topic.to_string()).or_default().push(assigned);
        }
        let mut again = Vec::new();
        for (name, wanted) in by_topic {
            let started = match self.resolve(&name, &wanted).await {
                Ok(started) => {
                    self.shared.database.back(self.session.task());
                    self.shared.kafka.back("starter");
                    started
                }
                Err(StartError::Store(error)) => {
                    if matches!(error, StoreError::Refused { .. }) {
                        return Err(crate::task::Stopped(super::chain(&error)));
                    }
                    self.shared.database.away(self.session.task(), &super::chain(&error));
                    self.session.failed(&error).await;
                    Vec::new()
                }
                // Asked for again as all that is stopped, for as long as it is assigned.
                Err(StartError::Kafka(error @ KafkaError::TopicMissing { .. })) => {
                    // The brokers have answered, and the database is not asked.
                    self.shared.kafka.back("starter");
                    self.shared.database.back(self.session.task());
                    stopped(&wanted, &format!("{error}: {}", super::READ_REMEDY))
                }
                Err(error @ StartError::Kafka(_)) => {
                    let cause = format!("topic {name}: {}", super::chain(&error));
                    self.shared.kafka.away("starter", &cause);
                    Vec::new()
                }
            };
            let is_open = |one: &Assigned| {
                started.iter().all(|started| started.assigned.assignment != one.assignment)
            };
            again.extend(wanted.into_iter().filter(is_open));
            if !started.is_empty() {
                drop(self.pipeline.send(Message::Started(started)));
            }
        }
        Ok(again)
    }

    /// Partitions that cannot be asked about at this moment are left out.
    async fn resolve(
        &mut self,
        name: &str,
        wanted: &[Assigned],
    ) -> Result<Vec<Started>, StartError> {
        let connector = Arc::clone(&self.shared.connector);
        if let Some(short) = self.memory.check(&connector, &self.admin, name).await? {
            return Ok(stopped(wanted, &short.to_string()));
        }
        let mut started = Vec::new();
        for info in self.admin.topics(&[name.to_owned()]).await? {
            let led = |one: &&Assigned| !info.leaderless.contains(&one.partition.partition);
            let wanted: Vec<Assigned> = wanted.iter().filter(led).cloned().collect();
            if !info.leaderless.is_empty() {
                tracing::warn!(topic = name, partitions = ?info.leaderless, "without a leader");
            }
            started.extend(self.topic(&info, &wanted).await?);
        }
        Ok(started)
    }

    async fn topic(
        &mut self,
        info: &TopicInfo,
        wanted: &[Assigned],
    ) -> Result<Vec<Started>, StartError> {
        let shared = Arc::clone(&self.shared);
        let topic = Topic {
            group: shared.connector.source.group.to_string(),
            cluster_id: shared.cluster_id.clone(),
            topic: info.name.clone(),
            topic_id: info.id.map_or_else(String::new, |id| id.to_string()),
        };
        let known = self.session.patience().bounded(async {
            let connection = self.session.connection().await?;
            let (id, cluster_id) = (shared.connector_id, &topic.cluster_id);
            let source =
                register::source(connection, id, cluster_id, &topic.topic_id, &topic.topic);
            let source = source.await?;
            Ok::<_, StoreError>((source, progress::load(connection, &topic).await?))
        });
        let (source, mut rows) = known.await?;
        let missing = |rows: &[Row], partition: i32| {
            !rows.iter().any(|row| row.topic_id == topic.topic_id && row.partition == partition)
        };
        if wanted.iter().any(|assigned| missing(&rows, assigned.partition.partition)) {
            self.create(&topic, info, &rows).await?;
            let patience = self.session.patience();
            let load = async { progress::load(self.session.connection().await?, &topic).await };
            rows = patience.bounded::<_, StoreError>(load).await?;
        }
        let partitions: Vec<i32> =
            wanted.iter().map(|assigned| assigned.partition.partition).collect();
        let worker = self.lease.worker();
        let patience = self.session.patience();
        let take_up = async {
            let connection = self.session.connection().await?;
            progress::take_up(connection, &topic, &partitions, worker).await
        };
        patience.bounded::<_, StoreError>(take_up).await?;
        // Of the connection that gave the rows.
        let generation = self.session.generation();
        let mut checked = Vec::new();
        for assigned in wanted {
            let number = assigned.partition.partition;
            let row =
                rows.iter().find(|row| row.topic_id == topic.topic_id && row.partition == number);
            let Some(row) = row else { continue };
            checked.push((assigned.clone(), row.clone()));
        }
        self.check(&topic, source, generation, checked).await
    }

    /// Makes the rows of all partitions that have none, in one transaction.
    async fn create(
        &mut self,
        topic: &Topic,
        info: &TopicInfo,
        rows: &[Row],
    ) -> Result<(), StartError> {
        let here = |row: &&Row| row.topic_id == topic.topic_id;
        let is_new = !rows.iter().any(|row| here(&row));
        let recreated = rows.iter().find(|row| !here(row)).filter(|_| is_new);
        let partitions: Vec<TopicPartition> = info
            .partitions
            .iter()
            .filter(|number| !rows.iter().any(|row| here(&row) && row.partition == **number))
            .map(|number| TopicPartition::new(info.name.clone(), *number))
            .collect();
        let committed = if is_new && recreated.is_none() {
            self.admin.committed(&partitions).await?
        } else {
            Default::default()
        };
        let mut starts = Vec::new();
        for partition in &partitions {
            let (low, high) = self.admin.watermarks(partition).await?;
            // A partition that appears later starts at its beginning: what came before we saw it
            // belongs to us.
            let start = match self.shared.connector.source.start {
                Start::Latest if is_new => high,
                Start::Latest | Start::Earliest => low,
            };
            let position = committed.get(partition).copied().unwrap_or(start);
            starts.push((partition.partition, position));
        }
        let why = recreated.map(|row| {
            format!(
                "the topic was deleted and made anew (its id was {}); run `oncely progress accept` \
                 to take it as it is",
                row.topic_id
            )
        });
        let patience = self.session.patience();
        let create = async {
            // A failover that is put on record meanwhile sees these rows.
            let mut tx = self.session.begin().await?;
            for (partition, position) in starts {
                progress::create(&mut tx, topic, partition, position, why.as_deref()).await?;
            }
            crash::before(Step::Start);
            tx.commit().await?;
            crash::after(Step::Start);
            Ok::<_, StoreError>(())
        };
        Ok(patience.bounded(create).await?)
    }

    /// What was done in a failover and forgotten lies before the end that the topic has now.
    async fn bound(&mut self, topic: &Topic, row: &Row, high: i64) -> Result<(), StoreError> {
        let of = (row.partition, row.epoch);
        let patience = self.session.patience();
        let bound = async {
            let connection = self.session.connection().await?;
            progress::bound_suspect(connection, topic, of, high).await
        };
        patience.bounded::<_, StoreError>(bound).await
    }

    /// Behind the last record from `position` on: markers of transactions and aborted records may lie between it
    /// and the partition's end, and they are never read.
    async fn end_of(
        &self,
        partition: &TopicPartition,
        position: i64,
        high: i64,
    ) -> Result<i64, KafkaError> {
        if high <= position {
            return Ok(position);
        }
        let found = self.admin.last_records(&[(partition.clone(), high)]).await?;
        Ok(found.get(partition).map_or(position, |last| last.offset.saturating_add(1)))
    }

    async fn check(
        &mut self,
        topic: &Topic,
        source: i32,
        generation: u64,
        rows: Vec<(Assigned, Row)>,
    ) -> Result<Vec<Started>, StartError> {
        let witnesses: Vec<(TopicPartition, Witness)> = rows
            .iter()
            .filter(|(_, row)| row.stopped.is_none())
            .filter_map(|(assigned, row)| Some((assigned.partition.clone(), row.witness?)))
            .collect();
        let found = if witnesses.is_empty() {
            Default::default()
        } else {
            self.admin.check_witnesses(&witnesses).await?
        };
        let mut started = Vec::new();
        for (assigned, row) in rows {
            let mut below = row.suspect;
            let wrong = match &row.stopped {
                Some(why) => Some(why.clone()),
                None => {
                    let (low, high) = self.admin.watermarks(&assigned.partition).await?;
                    if below == Some(progress::END_UNKNOWN) {
                        // What was deleted is read no more: a person has to look first.
                        let end = if low > row.position {
                            high
                        } else {
                            self.end_of(&assigned.partition, row.position, high).await?
                        };
                        self.bound(topic, &row, end).await?;
                        below = Some(end);
                    }
                    let wrong = wrong(&row, low, high, found.get(&assigned.partition));
                    if let Some(why) = &wrong {
                        let patience = self.session.patience();
                        let stop = async {
                            let connection = self.session.connection().await?;
                            progress::stop(connection, topic, row.partition, why).await
                        };
                        patience.bounded::<_, StoreError>(stop).await?;
                    }
                    wrong
                }
            };
            let from = match wrong {
                Some(why) => From::Stopped { why },
                None => From::Position {
                    position: row.position,
                    epoch: row.epoch,
                    witness: row.witness,
                    source,
                    topic_id: topic.topic_id.clone(),
                    doubt: Doubt { below: below.unwrap_or(i64::MIN), generation },
                },
            };
            started.push(Started { assigned, from });
        }
        Ok(started)
    }
}

fn stopped(wanted: &[Assigned], why: &str) -> Vec<Started> {
    let stopped = |assigned: &Assigned| Started {
        assigned: assigned.clone(),
        from: From::Stopped { why: why.to_owned() },
    };
    wanted.iter().map(stopped).collect()
}

/// Why a partition cannot be read from its position, for the person who must look.
fn wrong(row: &Row, low: i64, high: i64, witness: Option<&WitnessCheck>) -> Option<String> {
    let position = row.position;
    let remedy = "run `oncely progress accept` to take it as it is";
    match witness {
        Some(WitnessCheck::Different { .. }) => {
            return Some(format!(
                "another record stands before position {position} than was read there; {remedy}"
            ));
        }
        Some(WitnessCheck::Shorter { high }) => {
            return Some(format!(
                "the partition ends at {high}, before position {position}; {remedy}"
            ));
        }
        Some(WitnessCheck::Same | WitnessCheck::Gone) | None => {}
    }
    if high < position {
        return Some(format!("the partition ends at {high}, before position {position}; {remedy}"));
    }
    (low > position).then(|| {
        format!(
            "the records from {position} to {low} were deleted, and not all of them are known to be \
             finished; {remedy}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(position: i64) -> Row {
        let topic_id = String::new();
        let (witness, suspect, decided, stopped) = (None, None, None, None);
        Row { topic_id, partition: 0, epoch: 1, position, witness, suspect, decided, stopped }
    }

    #[test]
    fn k9_k10_k12_a_partition_that_does_not_fit_its_position_stops() {
        assert_eq!(wrong(&row(5), 0, 5, None), None);
        assert_eq!(wrong(&row(5), 5, 5, Some(&WitnessCheck::Gone)), None);
        assert!(wrong(&row(5), 0, 4, None).is_some());
        assert!(wrong(&row(5), 6, 9, None).is_some());
        assert!(wrong(&row(5), 0, 9, Some(&WitnessCheck::Shorter { high: 2 })).is_some());
    }
}
