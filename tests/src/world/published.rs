//! What a story finds in the topics that the program writes to.

use std::collections::{BTreeMap, BTreeSet};

use super::World;
use crate::checker::{self, Found};

/// Set by the program on each record that it writes.
const MESSAGE_ID: &str = "oncely-message-id";

/// A record that the program wrote.
#[derive(Clone, Debug)]
pub struct Message {
    /// The message id.
    pub id: String,
    pub found: Found,
}

impl Message {
    /// A header's last value, as text.
    pub fn header(&self, name: &str) -> Option<String> {
        let mut values = self.found.headers.iter().rev().filter(|(known, _)| known == name);
        values.next().map(|(_, value)| {
            String::from_utf8_lossy(value.as_deref().unwrap_or_default()).into_owned()
        })
    }

    /// The value, as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(self.found.value.as_deref().unwrap()).unwrap()
    }

    pub fn key(&self) -> String {
        String::from_utf8(self.found.key.clone().unwrap()).unwrap()
    }
}

impl World {
    /// The story's second topic, with so many partitions.
    pub async fn make_out(&self, partitions: u32) -> String {
        let name = self.out();
        self.kafka().create_topic(&name, partitions, &[]).await.unwrap();
        name
    }

    pub fn out(&self) -> String {
        format!("{}.out", self.topic())
    }

    /// Where the story's dead letters go.
    pub fn dlq(&self) -> String {
        format!("{}.dlq", self.topic())
    }

    /// Every record of a topic that the program writes to, repeats included, in the order of each
    /// partition.
    pub async fn messages(&self, topic: &str) -> Vec<Message> {
        let found = checker::read_back(self.kafka(), topic).await;
        let message = |found: Found| {
            let mut ids = found.headers.iter().filter(|(name, _)| name == MESSAGE_ID);
            let id = ids.next().expect("each record has a message id").1.clone().unwrap();
            assert!(ids.next().is_none(), "one id each");
            Message { id: String::from_utf8(id).unwrap(), found }
        };
        found.into_iter().map(message).collect()
    }

    /// The same as a reader sees them that knows ids: first copies. Gives how many were repeats as well.
    pub async fn deduplicated(&self, topic: &str) -> (Vec<Message>, usize) {
        let all = self.messages(topic).await;
        let mut seen: BTreeSet<String> = BTreeSet::new();
        let mut bodies: BTreeMap<String, Option<Vec<u8>>> = BTreeMap::new();
        let count = all.len();
        let firsts: Vec<Message> = all
            .into_iter()
            .filter(|message| {
                let body = message.found.value.clone();
                let known = bodies.entry(message.id.clone()).or_insert_with(|| body.clone());
                assert_eq!(*known, body, "{} is the same each time", message.id);
                seen.insert(message.id.clone())
            })
            .collect();
        let repeats = count - firsts.len();
        (firsts, repeats)
    }

    /// Each invoice's versions are there once, in order, for readers that know ids. Gives how many
    /// records were repeats.
    pub async fn check_announced(
        &self,
        topic: &str,
        versions: &BTreeMap<String, Vec<i64>>,
    ) -> usize {
        let (firsts, repeats) = self.deduplicated(topic).await;
        let mut found: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for message in &firsts {
            let version = message.json()["version"].as_i64().unwrap();
            found.entry(message.key()).or_default().push(version);
        }
        assert_eq!(found, *versions, "every version once and in order");
        repeats
    }
}
