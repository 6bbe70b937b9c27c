//! Whether what is remembered outlives what can come again.
//!
//! A record that Kafka keeps longer than its event is remembered would run again when it is read again.

use std::collections::HashMap;
use std::time::Duration;

use oncely_core::connector::Connector;

use crate::clock::{self, Moment};
use crate::kafka::{Admin, KafkaError};

const DAY_MS: u64 = 86_400_000;
/// How long an answer about a topic holds; its retention may be changed at any time.
const HOLDS: Duration = Duration::from_secs(600);

/// A topic keeps its records longer than their events are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it keeps its records for {topic_days} days, longer than `retention.dedupe` ({dedupe_days} \
     days): a record that is read again after that would run again; raise retention.dedupe to at \
     least {topic_days}d"
)]
pub struct TooShort {
    pub topic_days: u64,
    pub dedupe_days: u64,
}

/// Compares one topic with the connector's memory. Says in the log what cannot be compared.
///
/// # Errors
/// As [`Admin::retention`].
pub(super) async fn compare(
    connector: &Connector,
    admin: &Admin,
    topic: &str,
) -> Result<Option<TooShort>, KafkaError> {
    let Some(kept) = admin.retention(topic).await? else {
        tracing::warn!(%topic, "the brokers do not say how long the topic keeps its records");
        return Ok(None);
    };
    let Some(topic_ms) = kept.retention_ms.filter(|_| !kept.compacted) else {
        tracing::warn!(
            %topic,
            "topic keeps records for ever, so dedupe retention bounds the promise"
        );
        return Ok(None);
    };
    let dedupe_ms = connector.retention.dedupe_ms;
    Ok((topic_ms > dedupe_ms).then(|| TooShort {
        topic_days: topic_ms.div_ceil(DAY_MS),
        dedupe_days: dedupe_ms / DAY_MS,
    }))
}

/// Answers by topic, so that not every start asks again.
#[derive(Debug, Default)]
pub(super) struct Memory {
    long_enough: HashMap<String, Moment>,
}

impl Memory {
    /// As [`compare`]; that a topic is kept too long is asked anew each time.
    ///
    /// # Errors
    /// As [`Admin::retention`].
    pub(super) async fn check(
        &mut self,
        connector: &Connector,
        admin: &Admin,
        topic: &str,
    ) -> Result<Option<TooShort>, KafkaError> {
        if self.long_enough.get(topic).is_some_and(|asked| clock::since(*asked) < HOLDS) {
            return Ok(None);
        }
        let found = compare(connector, admin, topic).await?;
        if found.is_none() {
            self.long_enough.insert(topic.to_owned(), clock::now());
        }
        Ok(found)
    }
}
