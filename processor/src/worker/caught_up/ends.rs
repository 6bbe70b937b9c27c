//! Where the records of a connector's topics end.
//!
//! Reads: the cluster. Gives: the offset behind the last record of each partition, and tells of topics that are gone.

use std::collections::BTreeMap;
use std::time::Duration;

use oncely_core::connector::Connector;

use crate::clock::{self, Moment};
use crate::kafka::{Admin, KafkaError, TopicPartition};
use crate::telemetry::Lasting;

/// So long a topic is missing before it is gone: a broker that has just started may not know it yet.
const GONE_AFTER: Duration = Duration::from_secs(10);

/// The topics of a connector.
pub(super) struct Ends {
    names: Vec<String>,
    missing: BTreeMap<String, Missing>,
}

/// A topic that is not there.
struct Missing {
    since: Moment,
    is_told: bool,
    lasting: Lasting,
}

impl Ends {
    pub(super) fn of(connector: &Connector) -> Self {
        Self { names: names(connector), missing: BTreeMap::new() }
    }

    /// The offset behind the last record of each partition, by topic, its id, and partition: markers of transactions
    /// lie beyond it. Topics that are gone are left out.
    pub(super) async fn behind(
        &mut self,
        admin: &Admin,
    ) -> Result<BTreeMap<(String, String, i32), i64>, KafkaError> {
        let mut names = self.names.clone();
        let topics = loop {
            match admin.topics(&names).await {
                Err(KafkaError::TopicMissing { topic }) if self.is_gone(admin, &topic).await? => {
                    names.retain(|name| *name != topic);
                }
                answer => break answer?,
            }
        };
        self.missing.retain(|topic, _| !names.contains(topic));
        let (mut ends, mut ids) = (Vec::new(), BTreeMap::new());
        for topic in topics {
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

    /// Whether the topic is not there and has not been for a while. One that may not be seen may well be there.
    async fn is_gone(&mut self, admin: &Admin, topic: &str) -> Result<bool, KafkaError> {
        if admin.topic_ids(&[topic.to_owned()]).await?.contains_key(topic) {
            return Ok(false);
        }
        let new = || Missing { since: clock::now(), is_told: false, lasting: Lasting::default() };
        let missing = self.missing.entry(topic.to_owned()).or_insert_with(new);
        let missing_for = clock::since(missing.since);
        if missing_for < GONE_AFTER {
            return Ok(false);
        }
        if missing.lasting.on().is_some() || !missing.is_told {
            missing.is_told = true;
            let missing_s = missing_for.as_secs();
            tracing::warn!(
                topic,
                missing_s,
                remedy = "create it, or take it out of the connector file",
                "a topic is missing that this connector reads, times of events that wait go on without it"
            );
        }
        Ok(true)
    }
}

/// The topics' ids as the cluster has them; without one where it gives none.
pub(super) async fn ids(
    admin: &Admin,
    names: &[String],
) -> Result<BTreeMap<String, String>, KafkaError> {
    let ids = admin.topic_ids(names).await?;
    Ok(ids.into_iter().map(|(name, id)| (name, id.to_string())).collect())
}

pub(super) fn names(connector: &Connector) -> Vec<String> {
    connector.source.topics.iter().map(|topic| topic.to_string()).collect()
}
