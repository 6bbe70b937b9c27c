//! Whether what is remembered outlives what can come again.
//!
//! A record that Kafka keeps longer than its event is remembered would run again when it is read again.

use std::collections::HashMap;
use std::time::Duration;

use oncely_core::connector::Connector;

use crate::clock::{self, Moment};
use crate::kafka::{Admin, KafkaError, TopicRetention};

const DAY_MS: u64 = 86_400_000;
/// How long an answer about a topic holds; its retention may be changed at any time.
const HOLDS: Duration = Duration::from_secs(600);

/// A topic keeps its records longer than their events are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it keeps its records for {}{}, longer than `retention.dedupe` ({}): a record that is read again \
     after that would run again; raise retention.dedupe to at least {}d",
    days(*.topic_ms), replay(*.replay_ms), days(*.dedupe_ms),
    .topic_ms.saturating_add(*.replay_ms).div_ceil(DAY_MS)
)]
pub struct TooShort {
    pub topic_ms: u64,
    pub replay_ms: u64,
    pub dedupe_ms: u64,
}

/// In days, where it is as much as one; else in hours, up.
pub(crate) fn days(ms: u64) -> String {
    match ms / DAY_MS {
        0 => format!("{} hours", ms.div_ceil(3_600_000)),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    }
}

fn replay(ms: u64) -> String {
    if ms == 0 { String::new() } else { format!(" and may be replayed for {}", days(ms)) }
}

/// Whether events are remembered for longer than their records are kept and replayed. What is kept for
/// ever cannot be outlived.
///
/// # Errors
/// By how much not.
pub(crate) fn judge(connector: &Connector, kept: &TopicRetention) -> Result<(), TooShort> {
    let Some(topic_ms) = kept.retention_ms.filter(|_| !kept.compacted) else { return Ok(()) };
    let (dedupe_ms, replay_ms) = (connector.retention.dedupe_ms, connector.retention.replay_ms);
    if topic_ms.saturating_add(replay_ms) <= dedupe_ms {
        return Ok(());
    }
    Err(TooShort { topic_ms, replay_ms, dedupe_ms })
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
    if kept.retention_ms.filter(|_| !kept.compacted).is_none() {
        tracing::warn!(
            %topic,
            "topic keeps records for ever, so dedupe retention bounds the promise"
        );
    }
    Ok(judge(connector, &kept).err())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t3_ids_outlive_what_the_topic_keeps_and_what_is_replayed() {
        let (topic_ms, replay_ms, dedupe_ms) = (7 * DAY_MS, 14 * DAY_MS, 20 * DAY_MS + 1);
        let short = TooShort { topic_ms, replay_ms, dedupe_ms };
        assert_eq!(
            short.to_string(),
            "it keeps its records for 7 days and may be replayed for 14 days, longer than \
             `retention.dedupe` (20 days): a record that is read again after that would run again; \
             raise retention.dedupe to at least 21d"
        );
        assert_eq!(days(3_600_001), "2 hours");
    }
}
