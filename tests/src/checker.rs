//! What must be true after every story, judged from outside.
//!
//! Reads: the provider's own log, the tables by plain SQL, the topic and the group's offsets with a plain
//! client, and the story's books. Knows nothing of the program's code.
//!
//! | | |
//! |---|---|
//! | I1 | each effect key took effect at most once, with one body, and only where it was owed |
//! | I2 | every record ended in one outcome; every owed effect is done, or openly held or parked |
//! | I3 | the version of an entity never fell, and is the highest that was accepted |
//! | I4 | no offset was committed above a record without a durable outcome, or above an open effect |
//! | I5 | with faults stopped, nothing stays unfinished past its bound |
//! | I6 | a replay of everything gives no call and changes no effect |
//! | I7 | every override has an audit row |
//!
//! And the counts of each worker add up: outcomes and what was given up to what was read.

mod provider;
mod sampler;
mod tables;
mod topic;

pub use sampler::Sampler;
pub use topic::{Found, committed, ends, forget, read_back};

use crate::ledger::Fate;
use crate::record::Record;
use crate::world::World;

/// Effects as they are compared before and after a replay.
const EFFECTS: &str = "SELECT key, status, attempts, settled_at, encode(result, 'hex')
    FROM oncely.effect ORDER BY key";
/// First copies, and entities.
const MEMORY: &str =
    "SELECT (SELECT count(*) FROM oncely.inbox), (SELECT count(*) FROM oncely.ledger),
    (SELECT coalesce(sum(version), 0) FROM oncely.entity)";

impl World {
    /// Checks I1 to I7, with everything produced once more, and ends the story: all workers are stopped and
    /// must end well.
    pub async fn check_invariants(&mut self) {
        self.revive().await;
        self.settled().await;
        self.replay().await;
        self.check_at_rest().await;
    }

    /// As [`World::check_invariants`] without the replay, for topics whose history was ended.
    pub async fn check_at_rest(&mut self) {
        self.check_accounts().await;
        self.stop_all().await;
        let mut wrong = Vec::new();
        if let Some(sampler) = self.take_sampler() {
            wrong.extend(sampler.finish().await);
        }
        let log = self.provider.read_log().unwrap();
        let found = read_back(self.kafka(), self.topic()).await;
        let tables = tables::Tables::read(self).await;
        {
            let ledger = self.ledger();
            wrong.extend(topic::check(&ledger, self.topic(), &found));
            wrong.extend(provider::check(&ledger, &self.wiring, &log));
            wrong.extend(tables.check(&ledger, &self.wiring, &log));
        }
        assert!(wrong.is_empty(), "{} violations:\n{}", wrong.len(), wrong.join("\n"));
    }

    /// Waits until the counts of every running worker add up: what it has read ended in one outcome
    /// each, or was given up.
    async fn check_accounts(&mut self) {
        for number in 0..self.workers.len() {
            if !self.workers[number].runs() {
                continue;
            }
            let worker = &self.workers[number];
            let adds_up = async || {
                let read = worker.metric("oncely_events_consumed_total", "").await;
                let ended = worker.metric("oncely_events_total", "").await;
                read == ended + worker.metric("oncely_events_released_total", "").await
            };
            self.until("outcomes to add up to the records that were read", adds_up).await;
        }
    }

    /// Checks what the watch over committed offsets has seen so far, and ends it.
    pub async fn check_sampled(&mut self) {
        let sampler = self.take_sampler().expect("a watch");
        let wrong = sampler.finish().await;
        assert!(wrong.is_empty(), "{} violations:\n{}", wrong.len(), wrong.join("\n"));
    }

    /// Waits for a look of the watch that began after this.
    pub async fn looked(&self) {
        let looks = self.looks();
        self.until("two looks of the watch", async || self.looks() >= looks + 2).await;
    }

    /// Heals the network and the provider, and sees to it that somebody works.
    async fn revive(&mut self) {
        self.provider.heal();
        for proxy in [&self.provider_proxy, &self.smtp_proxy, &self.database_proxy] {
            proxy.set(oncely_rig::proxy::Mode::Pass);
        }
        let mut running = false;
        for worker in &mut self.workers {
            running |= worker.runs();
        }
        if !running {
            self.run().await;
        }
    }

    /// Every event once more, at new offsets: nothing may follow from it.
    async fn replay(&self) {
        let mark = self.provider.read_log().unwrap().mark();
        let (effects, memory) = (self.sql(EFFECTS).await, self.sql(MEMORY).await);
        let again: Vec<_> = {
            let ledger = self.ledger();
            ledger.copies().values().map(|copies| copies[0].clone()).collect()
        };
        if again.is_empty() {
            return;
        }
        let found = read_back(self.kafka(), self.topic()).await;
        for sent in again {
            let record = found
                .iter()
                .find(|found| (found.partition, found.offset) == (sent.partition, sent.offset))
                .expect("a record of the story's books is in its topic");
            let record = Record {
                key: record.key.clone(),
                value: record.value.clone(),
                headers: record.headers.clone(),
                timestamp_ms: None,
                partition: record.partition,
            };
            let id = sent.id.clone();
            self.produce(&record, id.as_deref(), sent.fate).await;
        }
        self.settled().await;
        let log = self.provider.read_log().unwrap();
        let calls = log.calls().filter(|call| call.place >= mark).count();
        assert_eq!(calls, 0, "I6: a replay called the provider");
        assert_eq!(self.sql(EFFECTS).await, effects, "I6: a replay changed an effect");
        assert_eq!(self.sql(MEMORY).await, memory, "I6: a replay changed what is remembered");
    }
}

/// Whether a record with this fate leaves a row in the inbox.
const fn is_remembered(fate: Fate) -> bool {
    matches!(fate, Fate::Applied | Fate::Stale | Fate::AppliedOrStale | Fate::Deferred)
}
