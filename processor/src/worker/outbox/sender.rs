//! One send: the topic is there, the lease holds, the brokers answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use super::record::Letter;
use crate::clock::{self, Moment};
use crate::crash::{self, Step};
use crate::kafka::{Admin, Delivered, KafkaError, Producer, Refusal};
use crate::store::outbox::Waiting;
use crate::worker::chain;
use crate::worker::lease::Lease;

/// How long it is believed that a topic is there.
const TOPIC_KNOWN: Duration = Duration::from_secs(60);

/// How a send ended.
#[derive(Debug)]
pub(super) enum How {
    Sent(Delivered),
    /// Nobody has it, or nobody knows: it is sent again.
    Failed {
        cause: String,
        fatal: bool,
    },
    /// Not one byte left.
    Unsent,
    Refused {
        what: Refusal,
        why: String,
    },
}

/// What the sends of one relay share.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    pub(super) producer: Producer,
    admin: Admin,
    lease: Lease,
    topics: Arc<Mutex<BTreeMap<String, Moment>>>,
}

impl Sender {
    pub(super) fn new(producer: Producer, admin: Admin, lease: Lease) -> Self {
        Self { producer, admin, lease, topics: Arc::default() }
    }

    /// Sends one record under `worker`. Brokers that make topics by themselves are not let: a slip in a
    /// name would be a topic that nobody reads.
    pub(super) async fn send(&self, worker: Uuid, row: &Waiting, letter: &Letter) -> How {
        if let Err(error) = self.find(&row.topic).await {
            return Self::ended(&error);
        }
        if !self.lease.may_send(worker) {
            return How::Unsent;
        }
        let headers = letter.headers();
        let effect = || row.what.effect().map(|effect| &*effect.name);
        crash::before_of(Step::Publish, effect);
        match self.producer.produce_now(letter.as_new(&row.topic, &headers)).await {
            Ok(delivered) => {
                crash::after_of(Step::Publish, effect);
                How::Sent(delivered)
            }
            Err(error) => {
                self.forget(&row.topic);
                Self::ended(&error)
            }
        }
    }

    fn ended(error: &KafkaError) -> How {
        let cause = chain(error);
        match error.refusal() {
            Some(what) => How::Refused { what, why: cause },
            None => How::Failed { cause, fatal: matches!(error, KafkaError::Fatal { .. }) },
        }
    }

    async fn find(&self, topic: &str) -> Result<(), KafkaError> {
        let known = self.topics().get(topic).copied();
        if known.is_some_and(|known| clock::since(known) < TOPIC_KNOWN) {
            return Ok(());
        }
        self.admin.topics(&[topic.to_owned()]).await?;
        let mut topics = self.topics();
        topics.retain(|_, known| clock::since(*known) < TOPIC_KNOWN);
        topics.insert(topic.to_owned(), clock::now());
        Ok(())
    }

    fn forget(&self, topic: &str) {
        self.topics().remove(topic);
    }

    fn topics(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Moment>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
