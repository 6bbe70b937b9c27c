//! The batch transaction: load, decide, write, and only then let anything happen.
//!
//! A writer owns one connection and takes batches in order. It never gives a batch up: an outage is
//! waited for, a lost race is decided again, and a row whose data the database refuses is found by
//! halving and parked, while the rest goes through.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use oncely_core::connector::Connector;
use oncely_core::decide::{self, Ending, Input, ParkReason, Plan};
use oncely_core::expr::Header;
use oncely_core::key::Key;

use super::Shared;
use super::claims::{Claims, Held};
use super::deferred::{self, Releasing};
use super::grants::Grants;
use super::item::{Item, What, headers, scope};
use super::lease::Lease;
use super::parked;
use super::recent::Recent;
use super::records::{Kept, Numbers};
use super::redrive::Redriving;
use super::report::{Report, count, done, duplicates};
use super::tables::{self, Asked, Loaded, Of};
use crate::clock;
use crate::crash::{self, Step};
use crate::store::batch;
use crate::store::error::NextStep;
use crate::store::failover::{self, ScopeDoubt};
use crate::store::{self, PgConnection, Session, StoreError};
use crate::task::Stopped;
use crate::telemetry::{RedoCause, Stage};

/// Wait before a batch is tried again while the database is away; doubled up to [`WAIT_MAX`].
const WAIT_FIRST: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Races that one batch may lose in a row before it waits a moment.
const RACES_IN_A_ROW: u32 = 3;

/// One writer.
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) session: Session,
    pub(super) lease: Lease,
    pub(super) claims: Claims,
    /// What the transaction now at its COMMIT writes; left here when no answer comes.
    pub(super) committing: Option<Plan>,
    pub(super) recent: Recent,
    /// Parked records that are decided again; `None` for records from Kafka.
    pub(super) redriving: Option<Redriving>,
    /// Deferred events that are let go.
    pub(super) releasing: Releasing,
    /// The last batch had events that wait: the next one counts at once how many may.
    pub(super) counting: bool,
    /// The last failover, by its number, of which nothing is in doubt any more.
    pub(super) sure_of: Option<i32>,
}

/// How a part of a batch is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// With the deferred events that may go with it.
    Whole,
    /// Without them: it may have been a value of theirs that the database refused.
    Alone,
    /// All of it is parked, for this reason.
    Parked(&'static str),
}

/// Why an attempt at a batch did not end in a commit.
pub(super) enum Undone {
    LostRace,
    /// Effects or ledger lines exist already, owed by other events.
    Collided(BTreeSet<Key>),
    /// Copies of contents that a person has released are in the batch.
    Released(BTreeSet<Key>),
    /// Somebody else has decided these parked records meanwhile.
    Gone,
    /// Events would wait, and nobody has counted how many do.
    Uncounted,
    /// The database is elsewhere than the batch was decided for.
    Moved,
    /// Declared dead meanwhile: the claims would be another's.
    Dead,
    Failed(StoreError),
}

impl From<StoreError> for Undone {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl Writer {
    /// Writes a batch, however often it has to begin again.
    ///
    /// # Errors
    /// Only when a person must act: the schema is wrong, or a parked record itself is refused.
    pub(super) async fn write(&mut self, items: Vec<Item>) -> Result<Report, Stopped> {
        let mut report = Report::default();
        let mut parts = vec![(items, Part::Whole)];
        while let Some((mut items, how)) = parts.pop() {
            self.releasing = Releasing::with(how == Part::Whole);
            let parked = if let Part::Parked(why) = how { Some(why) } else { None };
            match self.write_part(&items, parked).await? {
                Some(part) => {
                    report.done.extend(part.done);
                    report.claimed.extend(part.claimed);
                }
                None if items.len() > 1 => {
                    self.shared.metrics.batch_redone(RedoCause::Data);
                    let second = items.split_off(items.len() / 2);
                    parts.push((second, Part::Whole));
                    parts.push((items, Part::Whole));
                }
                None if how == Part::Whole
                    && (self.shared.connector.defers() || self.shared.left.may_be()) =>
                {
                    parts.push((items, Part::Alone));
                }
                None if parked.is_none() => {
                    let why = "the database refuses a value of this record";
                    parts.push((items, Part::Parked(why)));
                }
                None => {
                    return Err(Stopped("the database refuses even a parked record".to_owned()));
                }
            }
        }
        Ok(report)
    }

    /// Lets deferred events of these entities go, as far as they may now.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub(super) async fn release(&mut self, due: Vec<Key>) -> Result<Report, Stopped> {
        // Behind a pooler the server may be another one by now, and what was read by then forgotten.
        let patience = self.session.patience();
        if let Err(error) = patience.bounded(self.session.confirm()).await {
            self.session.failed(&error).await;
        }
        let mut report = Report::default();
        let mut parts = vec![Releasing { due, ..Releasing::with(true) }];
        while let Some(mut part) = parts.pop() {
            self.redriving = Some(Redriving::default());
            self.releasing = part.clone();
            match self.write_part(&[], None).await? {
                Some(written) => {
                    report.claimed.extend(written.claimed);
                    report.released = report.released.saturating_add(written.released);
                }
                None => {
                    self.shared.metrics.batch_redone(RedoCause::Data);
                    let refused =
                        || Stopped("the database refuses even a parked record".to_owned());
                    let second = part.narrowed().ok_or_else(refused)?;
                    parts.extend(second);
                    parts.push(part);
                }
            }
        }
        Ok(report)
    }

    /// `None`: a row's data was refused. `parked`: the whole part is parked for that reason.
    async fn write_part(
        &mut self,
        items: &[Item],
        parked: Option<&'static str>,
    ) -> Result<Option<Report>, Stopped> {
        let mut wait = WAIT_FIRST;
        let mut races: u32 = 0;
        let mut shared_keys = BTreeSet::new();
        let mut released = BTreeSet::new();
        // What may have been committed before, though no answer said so.
        let mut before: Option<Plan> = None;
        let mut trusting = true;
        loop {
            // Held until the claims are listed, so that nobody mistakes them for lost ones.
            let making = self.claims.making().await;
            let asked = (&shared_keys, &released, trusting);
            let undone = match self.attempt(items, parked, asked, before.as_ref()).await {
                Ok(report) => {
                    report.claimed.iter().for_each(|held| self.claims.add(held));
                    drop(making);
                    self.shared.database.back(self.session.task());
                    return Ok(Some(report));
                }
                Err(undone) => undone,
            };
            drop(making);
            if let Some(plan) = self.committing.take()
                && !before.as_ref().is_some_and(|before| was_committed(before, &plan))
            {
                // It may have been committed: what it took for new may be known by now.
                trusting = false;
                before = Some(plan);
            }
            match undone {
                Undone::LostRace => {
                    self.shared.metrics.batch_redone(RedoCause::Race);
                    if std::mem::take(&mut trusting) {
                        self.recent.doubt();
                    }
                    races = races.saturating_add(1);
                }
                Undone::Collided(keys) => {
                    self.shared.metrics.batch_redone(RedoCause::Race);
                    shared_keys.extend(keys);
                    continue;
                }
                Undone::Released(keys) => {
                    released.extend(keys);
                    continue;
                }
                Undone::Uncounted => {
                    self.counting = true;
                    continue;
                }
                Undone::Gone => return Ok(Some(Report::default())),
                Undone::Dead => {
                    self.lease.valid().await;
                    continue;
                }
                Undone::Moved => continue,
                Undone::Failed(error) => {
                    self.session.failed(&error).await;
                    match error.next_step() {
                        NextStep::Bisect => return Ok(None),
                        NextStep::Halt => return Err(Stopped(super::chain(&error))),
                        NextStep::Again => {
                            self.shared.metrics.batch_redone(RedoCause::Contention);
                            races = races.saturating_add(1);
                        }
                        NextStep::Wait => {
                            self.shared.metrics.batch_redone(RedoCause::Unavailable);
                            // The commit may have gone through: its claims would be ours unseen.
                            self.shared.adopt.notify_one();
                            self.shared.database.away(self.session.task(), &super::chain(&error));
                            tokio::time::sleep(super::jittered(wait)).await;
                            wait = wait.saturating_mul(2).min(WAIT_MAX);
                        }
                    }
                }
            }
            if races > RACES_IN_A_ROW {
                tokio::time::sleep(super::jittered(WAIT_FIRST)).await;
            }
        }
    }

    async fn attempt(
        &mut self,
        items: &[Item],
        parked: Option<&'static str>,
        (shared_keys, released, trusting): (&BTreeSet<Key>, &BTreeSet<Key>, bool),
        before: Option<&Plan>,
    ) -> Result<Report, Undone> {
        let worker = self.lease.worker();
        let shared = Arc::clone(&self.shared);
        let lined: Vec<Vec<Header<'_>>> = items.iter().map(|item| headers(&item.record)).collect();
        let inputs = inputs(items, &lined, parked.is_some());
        let events: BTreeSet<Key> = inputs.iter().map(|(_, input)| input.event.key).collect();
        let trusting = trusting && self.redriving.is_none();
        let taken_for_new = |key: &Key| trusting && self.recent.is_news(key);
        let (news, events): (Vec<Key>, Vec<Key>) = events.into_iter().partition(taken_for_new);
        let counting = self.counting;
        let asked = Asked { news, events, shared: shared_keys, released, counting };
        // Bounded up to the commit and no further: what is claimed then is listed by the caller.
        let written = self
            .session
            .patience()
            .bounded(self.transaction(items, &inputs, parked, &asked, worker))
            .await;
        if matches!(written, Err(Undone::Moved)) {
            self.session.patience().bounded(self.session.confirm()).await?;
        }
        let (plan, claimed, numbers) = written?;
        self.recent.remember(plan.inbox.keys());
        if !plan.effects.is_empty() {
            shared.outbox.notify_one();
        }
        let statuses =
            match self.session.patience().bounded(duplicates(&mut self.session, &plan)).await {
                Ok(statuses) => statuses,
                Err(error) => {
                    self.session.failed(&error).await;
                    BTreeMap::new()
                }
            };
        // A redo that finds its own work was no duplicate: it counts for what was committed.
        let counted = before.filter(|before| was_committed(before, &plan)).unwrap_or(&plan);
        match &self.redriving {
            None => {
                count(&shared, counted, items, parked);
                parked::say(&shared, &plan, items, &inputs, parked, &numbers);
            }
            Some(redriving) => redriving.say(&shared, items, &inputs, counted, parked),
        }
        if !counted.released.is_empty() || counted.gaps > 0 {
            deferred::say(&shared, counted);
        }
        if !plan.hurried.is_empty() {
            shared.redrive.notify_one();
        }
        let released = plan.released.len();
        Ok(Report { done: done(items, &inputs, &plan, &statuses), claimed, released })
    }

    /// Load, decide, write, from begin to commit.
    async fn transaction(
        &mut self,
        items: &[Item],
        inputs: &[(usize, Input<'_>)],
        parked: Option<&'static str>,
        asked: &Asked<'_>,
        worker: uuid::Uuid,
    ) -> Result<(Plan, Vec<Held>, Numbers), Undone> {
        let shared = Arc::clone(&self.shared);
        let begun = clock::now();
        self.session.connection().await?;
        let (generation, number) = (self.session.generation(), self.session.number());
        let mut tx = self.session.begin().await?;
        let unsure = number.filter(|number| self.sure_of != Some(*number));
        let mut in_doubt = false;
        if let Some(number) = unsure.filter(|_| self.redriving.is_none()) {
            let doubt = doubt(&mut tx, &shared).await?;
            self.sure_of = doubt.over.then_some(number);
            in_doubt = doubt.any;
        }
        let (redriving, releasing) = (self.redriving.as_ref(), &self.releasing);
        let asked_of = Of { items, inputs, redriving, releasing, generation };
        let loaded = tables::gather(&mut tx, &shared, &asked_of, asked).await?;
        let Loaded { mut known, mut events, waiting, entities, was } = loaded;
        let (rules, fresh) = (&shared.connector, events.len());
        let lined: Vec<Vec<Header<'_>>> =
            waiting.iter().map(|item| headers(&item.record)).collect();
        events.extend(waiting.iter().zip(&lined).filter_map(|(item, lined)| input(item, lined)));
        tables::load_undone(&mut tx, (rules, shared.connector_id), &events, &entities, &mut known)
            .await?;
        known.suspect = suspects(items.iter().chain(&waiting), generation);
        if in_doubt {
            known.suspect.extend(inputs.iter().map(|(_, input)| input.event.key));
        }
        if !known.suspect.is_empty() {
            known.redriven = redriving.is_some();
            tables::load_stood(&mut tx, inputs, redriving, &mut known).await?;
        }
        shared.metrics.stage(Stage::Load, clock::since(begun));
        let begun = clock::now();
        let mut plan = decide::decide_with(rules, &events, fresh, known);
        if !plan.deferred.is_empty() && !asked.counting {
            return Err(Undone::Uncounted);
        }
        self.counting = !plan.deferred.is_empty();
        for (entity, version) in was {
            if let Some(write) = plan.entities.get_mut(&entity) {
                write.was = Some(version);
            }
        }
        shared.metrics.stage(Stage::Decide, clock::since(begun));
        if !asked.news.iter().all(|key| plan.inbox.contains_key(key)) {
            return Err(Undone::LostRace);
        }
        let conflicts = conflicts(&plan, &events);
        if asked.released.is_empty() && !conflicts.is_empty() {
            let found = batch::load_inbox(&mut tx, &conflicts).await?;
            if !found.is_empty() {
                return Err(Undone::Released(found.into_keys().collect()));
            }
        }
        let begun = clock::now();
        let grants = Grants::take(&shared.lanes, &plan);
        let kept = Kept { items, inputs, waiting: &waiting, parked, generation, in_doubt };
        let decided_for = (worker, number);
        let (fences, numbers) =
            tables::write(&mut tx, &shared, &plan, &grants, decided_for, &kept).await?;
        if let Some(redriving) = self.redriving.as_ref().filter(|_| !items.is_empty()) {
            let decided = redriving.decided(items, inputs, &plan, parked);
            store::parked::decided(&mut tx, &decided).await?;
        }
        let plan = self.committing.insert(plan);
        crash::before_of(Step::BatchCommit, || owed(rules, plan));
        tx.commit().await.map_err(StoreError::from)?;
        crash::after_of(Step::BatchCommit, || owed(rules, plan));
        let claimed = grants.keep(plan, &fences, worker);
        let plan = self.committing.take().unwrap_or_default();
        shared.metrics.stage(Stage::Write, clock::since(begun));
        Ok((plan, claimed, numbers))
    }
}

/// The ids of what a plan owes that is new.
fn owed(rules: &Connector, plan: &Plan) -> Vec<String> {
    let effects = plan.effects.values().map(|effect| effect.rule);
    let rules_of =
        effects.chain(plan.ledger.values().map(|line| line.rule)).collect::<BTreeSet<_>>();
    let id = |rule: usize| rules.effects.get(rule).map(|rule| rule.id.to_string());
    rules_of.into_iter().filter_map(id).collect()
}

/// Whether new events of the connector's scope may be done and forgotten.
async fn doubt(tx: &mut PgConnection, shared: &Shared) -> Result<ScopeDoubt, StoreError> {
    let (connector, id) = (&shared.connector, shared.connector_id);
    let topics: Vec<String> =
        connector.source.topics.iter().map(|topic| topic.to_string()).collect();
    let scope = (&*connector.scope, id);
    let doubt = failover::doubt(tx, scope, &shared.cluster_id, &topics).await?;
    shared.in_doubt(doubt.any);
    Ok(doubt)
}

/// Whether the transaction of `before`, of the same records, turns out to have been committed: then
/// what was new in it is known now.
fn was_committed(before: &Plan, now: &Plan) -> bool {
    let pairs = before.decisions.iter().zip(&now.decisions);
    pairs.into_iter().any(|(before, now)| before.ending != Ending::Duplicate && now.is_first)
}

/// Where events whose ids are known with another content would stand if a person had released them.
fn conflicts(plan: &Plan, events: &[Input<'_>]) -> Vec<Key> {
    let of_conflict = plan.parked.iter().filter(|one| one.reason == ParkReason::Conflict);
    let mut keys: Vec<Key> = of_conflict
        .filter_map(|one| events.get(one.input))
        .map(|input| Key::released(input.event.key, input.event.fingerprint))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Events that may be done although nothing is on record of them, seen from this generation.
fn suspects<'i>(items: impl Iterator<Item = &'i Item>, generation: u64) -> BTreeSet<Key> {
    let key = |item: &Item| match &item.what {
        What::Event { event, .. } => Some(event.key),
        What::Unusable { .. } => None,
    };
    let suspect = items.filter(|item| item.doubt.covers(item.place.offset, generation));
    suspect.filter_map(key).collect()
}

/// The items that are events, by their index.
fn inputs<'a>(
    items: &'a [Item],
    lined: &'a [Vec<Header<'a>>],
    all_parked: bool,
) -> Vec<(usize, Input<'a>)> {
    if all_parked {
        return Vec::new();
    }
    let items = items.iter().zip(lined).enumerate();
    items
        .filter_map(|(index, (item, headers))| match &item.what {
            What::Event { .. } => Some((index, input(item, headers)?)),
            What::Unusable { .. } => None,
        })
        .collect()
}

fn input<'a>(item: &'a Item, headers: &'a [Header<'a>]) -> Option<Input<'a>> {
    let What::Event { event, value } = &item.what else { return None };
    let scope = scope(value, headers, &item.record);
    Some(Input { event, scope, place: item.place, age_ms: None })
}
