//! Parked records that a person wants decided again, and deferred events that may go.
//!
//! They go through the same transaction as records from Kafka, with their own bytes, place and business id, and
//! by the connector file as it is now. What is remembered of such an event (that it was parked) is forgotten in
//! that transaction, and the parked row is closed, or says why it stays, in the same. An entity that has moved on
//! meanwhile makes them stale, as any late event. Their offsets have gone long ago and are not touched.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use oncely_core::connector::OnParked;
use oncely_core::decide::{Ending, EntityRow, Input, Known, Place, Plan};
use oncely_core::event::Event;
use oncely_core::failover::Doubt;
use oncely_core::fingerprint::Fingerprint;
use oncely_core::key::Key;
use tokio::sync::watch;

use super::headers;
use super::item::{Item, Prepared, What, prepare};
use super::mailbox::Mailbox;
use super::parked::{BAD_HEADER, REFUSED_BY_DATABASE};
use super::writer::Writer;
use super::{Message, Shared};
use crate::clock::{self, Moment};
use crate::kafka::{AssignmentId, Header, Permit, Record, StartId};
use crate::store::deferred::{self, Look, MayWait};
use crate::store::error::NextStep;
use crate::store::parked::{self, Decided, Wanted};
use crate::store::{PgConnection, Session, StoreError};
use crate::task::Stopped;

/// Records decided in one transaction.
const SLICE: i64 = 200;
/// Entities with something due that one look takes: it passes all that wait, so it takes many.
const DUE_MAX: i64 = 5_000;
/// Of them in one transaction.
const DUE_SLICE: usize = 200;
/// How often all deferred events are looked at, whether their turn has come unseen.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Takes up what people want decided again.
pub(super) struct Redriver {
    pub(super) writer: Writer,
    pub(super) session: Session,
    pub(super) pipeline: Mailbox,
    pub(super) stop: watch::Receiver<bool>,
    /// When all deferred events were looked at last.
    pub(super) looked_last: Option<Moment>,
}

/// The rows that a writer decides again, by where their records lie.
#[derive(Clone, Debug, Default)]
pub(super) struct Redriving {
    pub(super) rows: BTreeMap<Place, Row>,
}

/// One of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Row {
    pub(super) number: i64,
    /// The event that it is, where it is the one that its id names. A second content is not.
    pub(super) event: Option<Key>,
    /// The key that a second content runs under, which a person has released.
    pub(super) released: Option<Key>,
    /// Under which it may be on record as parked, which is to be forgotten.
    pub(super) parked_as: Option<Key>,
    /// A person has said that it is to be run.
    pub(super) release: bool,
    /// The failover, by its number, that may have lost that it was decided again.
    pub(super) failover: Option<i32>,
}

impl Redriver {
    /// # Errors
    /// When a person must act: the schema is wrong.
    pub(super) async fn run(mut self) -> Result<(), Stopped> {
        let mut stop = self.stop.clone();
        let shared = Arc::clone(&self.writer.shared);
        loop {
            tokio::select! {
                () = shared.redrive.notified() => {}
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
            }
            let id = self.writer.shared.connector_id;
            let wanted = self.session.patience().bounded(async {
                parked::wanted(self.session.connection().await?, id, SLICE).await
            });
            match wanted.await {
                Ok(wanted) if wanted.is_empty() => {}
                Ok(wanted) => self.decide(wanted).await?,
                Err(error) => self.failed(&error).await?,
            }
            self.release().await?;
        }
    }

    /// Lets deferred events go whose time has come, or what they waited for.
    async fn release(&mut self) -> Result<(), Stopped> {
        let shared = Arc::clone(&self.writer.shared);
        let rules = shared.connector.state.as_ref();
        let may_wait = MayWait {
            for_versions: super::caught_up::matters(&shared.connector),
            for_parked: rules.is_some_and(|rules| rules.on_parked == OnParked::Wait),
        };
        let id = shared.connector_id;
        let is_time = self.looked_last.is_none_or(|last| clock::since(last) >= LOOK_EVERY);
        let look = if is_time { Look::All } else { Look::Young };
        let due = self.session.patience().bounded(async {
            self.session.connection().await?;
            let when = (look, shared.read_until.get(self.session.generation()));
            deferred::due(self.session.connection().await?, id, may_wait, when, DUE_MAX).await
        });
        let due = match due.await {
            Ok(due) => due,
            Err(error) => return self.failed(&error).await,
        };
        if due.is_empty() {
            if look == Look::All {
                self.looked_last = Some(clock::now());
            }
            return Ok(());
        }
        for slice in due.chunks(DUE_SLICE) {
            if *self.stop.borrow() {
                break;
            }
            let report = self.writer.release(slice.to_vec()).await?;
            if report.released > 0 {
                // There may be more than one look takes.
                shared.redrive.notify_one();
            }
            self.pipeline.send(Message::Claimed(report.claimed));
        }
        Ok(())
    }

    async fn decide(&mut self, mut wanted: Vec<Wanted>) -> Result<(), Stopped> {
        // Of records that lay at the same place, one after the other, each has a round of its own.
        let mut places = BTreeSet::new();
        wanted.retain(|wanted| places.insert(wanted.place));
        let mut redriving = Redriving::default();
        let mut items = Vec::new();
        let mut ignored = Vec::new();
        let shared = Arc::clone(&self.writer.shared);
        for wanted in wanted {
            let (number, release) = (wanted.number, wanted.release);
            let place = wanted.place;
            let record = record(&wanted);
            match prepare(&shared.connector, &shared.wanted, &record) {
                Prepared::Ignored => ignored.push(Decided::closed(number, Ending::Ignored)),
                Prepared::Wanted(mut what) => {
                    let failover = wanted.failover;
                    let mut row = Row { number, release, failover, ..Row::default() };
                    if let What::Event { event, .. } = &mut what {
                        row.meant(&wanted, event);
                    }
                    redriving.rows.insert(place, row);
                    let doubt = Doubt::of(wanted.failover.is_some(), self.session.generation());
                    items.push(Item { record, place, what, doubt, _permit: Permit::none() });
                }
            }
        }
        if !ignored.is_empty() {
            let numbers: Vec<i64> = ignored.iter().map(|one| one.number).collect();
            let decided = self.session.patience().bounded(async {
                let mut tx = self.session.begin().await?;
                parked::decided(&mut tx, &ignored).await?;
                deferred::give_up(&mut tx, &numbers).await?;
                Ok::<_, StoreError>(tx.commit().await?)
            });
            if let Err(error) = decided.await {
                self.failed(&error).await?;
            }
        }
        if items.is_empty() {
            return Ok(());
        }
        // Those of one entity go in the order of their versions, whoever was parked first.
        let version = |item: &Item| match &item.what {
            What::Event { event, .. } => event.entity.as_ref().map(|about| about.version),
            What::Unusable { .. } => None,
        };
        items.sort_by_key(version);
        self.writer.redriving = Some(redriving);
        let report = self.writer.write(items).await?;
        self.pipeline.send(Message::Claimed(report.claimed));
        Ok(())
    }

    async fn failed(&mut self, error: &StoreError) -> Result<(), Stopped> {
        self.session.failed(error).await;
        match error.next_step() {
            NextStep::Again | NextStep::Wait => Ok(()),
            NextStep::Bisect | NextStep::Halt => Err(Stopped(super::chain(error))),
        }
    }
}

/// The record as it was read.
fn record(wanted: &Wanted) -> Record {
    let stored = wanted.headers.as_deref().and_then(headers::decode);
    let bytes = |bytes: &Option<Vec<u8>>| bytes.clone().map(Bytes::from);
    Record {
        topic: wanted.topic.as_str().into(),
        partition: wanted.place.partition,
        offset: wanted.place.offset,
        timestamp_ms: wanted.timestamp_ms,
        key: bytes(&wanted.key),
        value: bytes(&wanted.value),
        headers_broken: stored.is_none() || wanted.reason == BAD_HEADER,
        headers: stored
            .unwrap_or_default()
            .into_iter()
            .map(|(name, value)| Header { name: name.into(), value: value.map(Bytes::from) })
            .collect(),
        assignment: AssignmentId::fresh(),
        start: StartId::fresh(),
    }
}

impl Row {
    /// Says as what the record is decided. A second content that a person has released, now or before, has a place of
    /// its own in the memory beside the first one: whatever became of it since, it is never taken for a copy of it. One
    /// that the file gives another id by now is the event of that id.
    fn meant(&mut self, wanted: &Wanted, event: &mut Event) {
        let is_same_id = wanted.event == Some(event.key);
        let is_second = is_same_id && (wanted.is_conflict || wanted.released.is_some());
        if !is_second {
            self.event = Some(event.key);
            self.parked_as = Some(event.key);
        } else if self.release || wanted.released.is_some() {
            event.key = Key::released(event.key, event.fingerprint);
            self.released = Some(event.key);
            self.parked_as = wanted.released;
            self.release = true;
        }
    }
}

impl Redriving {
    /// What a released record takes the place of: where the event that set its very version left the entity is
    /// replaced by where it found it. Gives the entities with the versions that they have.
    pub(super) async fn make_way(
        &self,
        tx: &mut PgConnection,
        items: &[Item],
        known: &mut Known,
    ) -> Result<BTreeMap<Key, i64>, StoreError> {
        let rivals = items.iter().filter_map(|item| {
            self.rows.get(&item.place).filter(|row| row.release)?;
            let What::Event { event, .. } = &item.what else { return None };
            let about = event.entity.as_ref()?;
            let stored = known.entities.get(&about.key)?;
            let is_rival = stored.version == about.version && stored.event != event.key;
            is_rival.then_some((about.key, stored.event, stored.version))
        });
        let rivals: Vec<(Key, Key, i64)> = rivals.collect();
        if rivals.is_empty() {
            return Ok(BTreeMap::new());
        }
        let setters: Vec<Key> = rivals.iter().map(|(_, setter, _)| *setter).collect();
        let before: BTreeMap<Key, String> =
            parked::states_before(tx, &setters).await?.into_iter().collect();
        let mut was = BTreeMap::new();
        for (entity, setter, version) in rivals {
            let Some(state) = before.get(&setter) else { continue };
            let row = EntityRow {
                event: setter,
                version: version.saturating_sub(1),
                state: state.as_str().into(),
            };
            known.entities.insert(entity, row);
            was.insert(entity, version);
        }
        Ok(was)
    }

    /// The numbers of these items' rows.
    pub(super) fn numbers(&self, items: &[Item]) -> Vec<i64> {
        items.iter().filter_map(|item| self.rows.get(&item.place)).map(|row| row.number).collect()
    }

    /// Events of which it is forgotten that they were parked.
    pub(super) fn events(&self, items: &[Item]) -> Vec<Key> {
        items.iter().filter_map(|item| self.rows.get(&item.place)?.parked_as).collect()
    }

    /// Events that are run although a version before them is missing.
    pub(super) fn insisted(&self, items: &[Item]) -> BTreeSet<Key> {
        let of = |item: &Item| {
            self.rows.get(&item.place).filter(|row| row.release)?;
            let What::Event { event, .. } = &item.what else { return None };
            Some(event.key)
        };
        items.iter().filter_map(of).collect()
    }

    /// The failover that may have lost that the record from there was decided again.
    pub(super) fn failover(&self, place: Place) -> Option<i32> {
        self.rows.get(&place).and_then(|row| row.failover)
    }

    /// Counts what became of them, and tells of those that stay.
    pub(super) fn say(
        &self,
        shared: &Shared,
        items: &[Item],
        inputs: &[(usize, Input<'_>)],
        plan: &Plan,
        all_parked: Option<&'static str>,
    ) {
        for decided in self.decided(items, inputs, plan, all_parked) {
            let (outcome, reason) = decided.told();
            shared.metrics.redriven(outcome);
            let (number, look) = (decided.number, decided.look());
            match reason {
                None => tracing::info!(number, outcome, "parked record decided again"),
                Some(reason) => {
                    tracing::warn!(number, outcome, reason, look, "parked record stays parked");
                }
            }
        }
    }

    /// What became of each row.
    pub(super) fn decided(
        &self,
        items: &[Item],
        inputs: &[(usize, Input<'_>)],
        plan: &Plan,
        all_parked: Option<&'static str>,
    ) -> Vec<Decided> {
        let of = |(index, item): (usize, &Item)| {
            let row = self.rows.get(&item.place)?;
            let at = inputs.iter().position(|(of, _)| *of == index);
            let decision = at.and_then(|at| plan.decisions.get(at));
            let parked = plan.parked.iter().find(|parked| Some(parked.input) == at);
            Some(match (&item.what, all_parked, decision, parked) {
                (_, Some(detail), ..) => {
                    Decided::parked(row.number, false, REFUSED_BY_DATABASE, detail)
                }
                (What::Unusable { reason, detail, named }, ..) => Decided {
                    tenant: named.as_ref().map(|named| named.tenant.to_string()),
                    business_id: named.as_ref().map(|named| named.id.to_string()),
                    ..Decided::parked(row.number, false, reason, detail)
                },
                (What::Event { event, .. }, None, _, Some(parked)) => Decided {
                    event: row.event,
                    released: row.released,
                    tenant: Some(event.tenant.to_string()),
                    business_id: Some(event.id.to_string()),
                    fingerprint: Some(event.fingerprint.0),
                    known_fingerprint: parked.known_fingerprint.map(|Fingerprint(known)| known),
                    holds: parked.holds,
                    ..Decided::parked(
                        row.number,
                        parked.quarantine,
                        parked.reason.as_str(),
                        &parked.detail,
                    )
                },
                // What could not be read at first has an id by now, under which people look for it.
                (What::Event { event, .. }, None, decision, None) => Decided {
                    event: row.event,
                    released: row.released,
                    tenant: Some(event.tenant.to_string()),
                    business_id: Some(event.id.to_string()),
                    fingerprint: Some(event.fingerprint.0),
                    ..Decided::closed(
                        row.number,
                        decision.map_or(Ending::Ignored, |decision| decision.ending),
                    )
                },
            })
        };
        items.iter().enumerate().filter_map(of).collect()
    }
}
