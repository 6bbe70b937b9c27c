//! Settles outcomes in batches, and claims the next effects in the same transaction.
//!
//! Keeps every answer until it is on record, however long the database is away. A stale owner changes
//! no claim, but what it saw is evidence, and a success settles the effect whoever holds it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncely_core::effect::status::Status;
use oncely_core::key::Key;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::call::Ended;
use super::claims::{Claims, Held};
use super::endpoints::Writing;
use super::lane::Lane;
use super::lease::Lease;
use super::lines::{self, Written};
use super::mailbox::unsent;
use super::prepared::{Prepared, count, prepare};
use super::{Message, Shared};
use crate::clock;
use crate::crash::{self, Step};
use crate::store::claim::{self, Claim};
use crate::store::error::NextStep;
use crate::store::settle::{self, Settlement};
use crate::store::{PgConnection, Session, StoreError};
use crate::task::Stopped;
use crate::telemetry::Stage;

/// Settlers side by side, so that one works while the other waits for a lock or a commit. Each has lanes of
/// its own.
pub(super) const SETTLERS: usize = 2;
/// Outcomes that one transaction records at most.
const SETTLED_MAX: usize = 500;
/// Effects behind held ones that one settlement lets go.
const BEHIND_MAX: usize = 5_000;
/// Outcomes in one transaction from which on calls end faster than transactions.
const BUSY: usize = 32;
/// What a busy settler waits for more outcomes: a transaction costs the same for a few more.
const LINGER: Duration = Duration::from_millis(3);
/// Wait while the database is away.
const WAIT: Duration = Duration::from_millis(100);

/// One settler.
pub(super) struct Settler {
    pub(super) shared: Arc<Shared>,
    pub(super) session: Session,
    pub(super) lease: Lease,
    pub(super) claims: Claims,
    pub(super) ended: mpsc::UnboundedReceiver<Ended>,
    pub(super) pipeline: mpsc::UnboundedSender<Message>,
}

/// What one transaction did.
#[derive(Default)]
struct Report {
    /// Final effects, and held ones: they let offsets go.
    let_go: Vec<Key>,
    claimed: Vec<Held>,
    lines: Written,
}

impl Settler {
    /// Settles until every sender of outcomes is gone.
    ///
    /// # Errors
    /// When a person must act: the schema is wrong.
    pub(super) async fn run(mut self) -> Result<(), Stopped> {
        let mut ended = Vec::new();
        let mut busy = false;
        while !ended.is_empty() || self.ended.recv_many(&mut ended, SETTLED_MAX).await > 0 {
            if busy && ended.len() < SETTLED_MAX {
                tokio::time::sleep(LINGER).await;
                let room = SETTLED_MAX.saturating_sub(ended.len());
                ended.extend(std::iter::from_fn(|| self.ended.try_recv().ok()).take(room));
            }
            busy = ended.len() >= BUSY;
            let batch: Vec<Prepared> =
                ended.drain(..).map(|ended| prepare(&self.shared, ended)).collect();
            ended = self.settle(&batch).await?;
        }
        Ok(())
    }

    /// Gives the claims that it made and that nobody took up: the pipeline had ended.
    async fn settle(&mut self, batch: &[Prepared]) -> Result<Vec<Ended>, Stopped> {
        let begun = clock::now();
        loop {
            let making = self.claims.making().await;
            let error = match self.session.patience().bounded(self.attempt(batch)).await {
                Ok(report) => {
                    for Prepared { held, .. } in batch {
                        self.claims.remove(held.claim.key, held.claim.fence);
                        if let Some(lane) = self.shared.lane(held.rule) {
                            lane.settled();
                        }
                    }
                    report.claimed.iter().for_each(|held| self.claims.add(held));
                    drop(making);
                    self.shared.database.back(self.session.task());
                    self.shared.metrics.stage(Stage::Settle, clock::since(begun));
                    batch.iter().for_each(|prepared| count(&self.shared, prepared));
                    report.lines.count(&self.shared);
                    // When the pipeline has ended, it forgot its records.
                    drop(self.pipeline.send(Message::LetGo(report.let_go)));
                    let claimed = self.pipeline.send(Message::Claimed(report.claimed));
                    return Ok(claimed.map_or_else(|late| unsent(late.0), |()| Vec::new()));
                }
                Err(error) => error,
            };
            drop(making);
            self.session.failed(&error).await;
            match error.next_step() {
                NextStep::Again => {}
                NextStep::Wait => {
                    self.shared.adopt.notify_one();
                    self.shared.database.away(self.session.task(), &super::chain(&error));
                    tokio::time::sleep(super::jittered(WAIT)).await;
                }
                NextStep::Bisect | NextStep::Halt => return Err(Stopped(super::chain(&error))),
            }
        }
    }

    async fn attempt(&mut self, batch: &[Prepared]) -> Result<Report, StoreError> {
        let shared = Arc::clone(&self.shared);
        let worker = self.lease.worker();
        let mut report = Report::default();
        let slots = Slots::of(&shared);
        let mut tx = self.session.begin().await?;
        let lanes = settle_lanes(batch);
        let lock = shared.lane_lock();
        if !lanes.is_empty() {
            settle::lock_lanes(&mut tx, lock, &lanes).await?;
        }
        let mut by_worker: BTreeMap<Uuid, Vec<&Prepared>> = BTreeMap::new();
        for prepared in batch {
            by_worker.entry(prepared.held.worker).or_default().push(prepared);
        }
        for (owner, prepared) in by_worker {
            settle_owned(&mut tx, owner, &prepared, &mut report).await?;
        }
        if !lanes.is_empty() {
            let take_slot = |name: &str| slots.take_for(name);
            let is_line = |name: &str| lines::is_line(&shared, name);
            let claiming = settle::Claiming {
                worker,
                connector_id: shared.connector_id,
                take_slot: &take_slot,
                is_line: &is_line,
            };
            let mut woken = settle::wake(&mut tx, &lanes, Some(claiming)).await?;
            let let_go = &mut report.let_go;
            report.lines =
                lines::write_woken(&mut tx, &shared, &mut woken, claiming, let_go).await?;
            slots.keep_claimed(&woken.claimed);
            report.let_go.extend(woken.skipped);
            let rule = |name: &str| shared.lanes.iter().flatten().find(|lane| *lane.name == *name);
            let held = |(name, claim): (String, _)| {
                let rule = rule(&name)?.rule;
                Some(Held::new(worker, rule, claim))
            };
            report.claimed.extend(woken.claimed.into_iter().filter_map(held));
            if woken.due {
                shared.lanes.iter().flatten().for_each(|lane| lane.set_backlog(true));
            }
        }
        for (index, lane) in shared.lanes.iter().enumerate() {
            let Some(lane) = lane.as_ref().filter(|lane| lane.has_backlog()) else { continue };
            let mine = batch.iter().filter(|prepared| prepared.held.rule == index).count();
            let free = slots.take_due(lane, mine);
            if free == 0 {
                continue;
            }
            let claimed =
                claim::claim_due(&mut tx, worker, shared.connector_id, &lane.name, free).await?;
            lane.set_backlog(claimed.len() == free);
            slots.refund(lane, free.saturating_sub(claimed.len()));
            let held = |claim| Held::new(worker, index, claim);
            report.claimed.extend(claimed.into_iter().map(held));
        }
        super::late::render_missing(&mut tx, &shared.connector, &mut report.claimed).await?;
        super::moved::readdress(&mut tx, &shared, &mut report.claimed).await?;
        let endpoints = Writing::all(&mut tx, &shared).await?;
        let settled = || {
            let rules = batch.iter().map(|prepared| prepared.held.rule).chain(report.lines.rules());
            ids(&shared, rules.collect())
        };
        crash::before_of(Step::SettleCommit, settled);
        tx.commit().await?;
        crash::after_of(Step::SettleCommit, settled);
        endpoints.done(&shared);
        slots.keep();
        Ok(report)
    }
}

/// The ids of rules.
fn ids(shared: &Shared, rules: BTreeSet<usize>) -> Vec<String> {
    let id = |rule: usize| shared.connector.effects.get(rule).map(|rule| rule.id.to_string());
    rules.into_iter().filter_map(id).collect()
}

/// Lanes in which something becomes final: what waits behind it may go.
fn settle_lanes(batch: &[Prepared]) -> Vec<Key> {
    let mut lanes: Vec<Key> = batch
        .iter()
        .filter(|prepared| prepared.settlement.as_ref().is_some_and(|s| s.status.is_final()))
        .map(|prepared| prepared.held.claim.lane)
        .collect();
    lanes.sort_unstable();
    lanes.dedup();
    lanes
}

async fn settle_owned(
    tx: &mut PgConnection,
    owner: Uuid,
    prepared: &[&Prepared],
    report: &mut Report,
) -> Result<(), StoreError> {
    let unsent: Vec<(Key, i64)> = prepared
        .iter()
        .filter(|prepared| prepared.settlement.is_none())
        .map(|prepared| (prepared.held.claim.key, prepared.held.claim.fence))
        .collect();
    if !unsent.is_empty() {
        claim::give_back(tx, owner, &unsent).await?;
    }
    let outcomes: Vec<Settlement> =
        prepared.iter().filter_map(|prepared| prepared.settlement.clone()).collect();
    if outcomes.is_empty() {
        return Ok(());
    }
    let mine: BTreeSet<Key> = settle::settle(tx, owner, &outcomes).await?.into_iter().collect();
    let (own, foreign): (Vec<_>, Vec<_>) =
        outcomes.iter().partition(|outcome| mine.contains(&outcome.key));
    // A redo after a lost answer to COMMIT finds its own work.
    let redone =
        if foreign.is_empty() { Vec::new() } else { settle::done_by(tx, &foreign).await? };
    let stale: Vec<&Settlement> =
        foreign.into_iter().filter(|outcome| !redone.contains(&outcome.key)).collect();
    let mut attempts: Vec<(&Settlement, bool)> =
        own.iter().filter(|outcome| outcome.on_record).map(|outcome| (*outcome, false)).collect();
    let evidence = |outcome: &&&Settlement| outcome.tries > 0 || outcome.succeeded;
    attempts.extend(stale.iter().filter(evidence).map(|outcome| (*outcome, true)));
    if !attempts.is_empty() {
        settle::record_attempts(tx, owner, &attempts).await?;
    }
    let successes: Vec<&Settlement> =
        stale.into_iter().filter(|outcome| outcome.succeeded).collect();
    if !successes.is_empty() {
        report.let_go.extend(settle::settle_by_evidence(tx, &successes).await?);
    }
    let rejected: Vec<Key> =
        own.iter().filter(|s| s.status == Status::Rejected).map(|s| s.key).collect();
    if !rejected.is_empty() {
        settle::park_rejected(tx, &rejected).await?;
    }
    // What waits behind them holds no offset back any more; the rest of it is asked for in turn.
    let held = prepared.iter().filter(|prepared| {
        let held = prepared.settlement.as_ref().filter(|s| s.status == Status::Held);
        held.is_some_and(|held| mine.contains(&held.key))
    });
    let held: Vec<(Key, i64)> =
        held.map(|prepared| (prepared.held.claim.lane, prepared.held.claim.version)).collect();
    if !held.is_empty() {
        report.let_go.extend(settle::behind(tx, &held, BEHIND_MAX).await?);
    }
    let lets_go = |status: Status| status.is_final() || status == Status::Held;
    report.let_go.extend(own.iter().filter(|s| lets_go(s.status)).map(|s| s.key));
    let again = outcomes.iter().filter(|s| redone.contains(&s.key) && lets_go(s.status));
    report.let_go.extend(again.map(|s| s.key));
    Ok(())
}

// --------------------------------------------------------------------------------------------- //

/// Slots taken for the claims of one transaction; without [`Slots::keep`] they go back.
struct Slots<'a> {
    shared: &'a Shared,
    /// By rule.
    taken: Mutex<BTreeMap<usize, usize>>,
}

impl<'a> Slots<'a> {
    const fn of(shared: &'a Shared) -> Self {
        Self { shared, taken: Mutex::new(BTreeMap::new()) }
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn took(&self, lane: &Lane, slots: usize) -> usize {
        let mut taken = self.taken();
        let count = taken.entry(lane.rule).or_insert(0);
        *count = count.saturating_add(slots);
        slots
    }

    /// For what has waited; this transaction records `mine` calls of the lane.
    fn take_due(&self, lane: &Lane, mine: usize) -> usize {
        self.took(lane, lane.reserve_due(SETTLED_MAX, mine))
    }

    fn take_for(&self, name: &str) -> bool {
        let lane = self.shared.lanes.iter().flatten().find(|lane| *lane.name == *name);
        lane.is_some_and(|lane| lane.reserve_next() && self.took(lane, 1) == 1)
    }

    /// Gives back what was taken for effects that were not claimed: the database refuses the claims of a worker that
    /// is on record as dead, and who takes them up later needs the slots. To be called before any are taken for what
    /// has waited.
    fn keep_claimed(&self, claimed: &[(String, Claim)]) {
        for lane in self.shared.lanes.iter().flatten() {
            let taken = self.taken().get(&lane.rule).copied().unwrap_or(0);
            let kept = claimed.iter().filter(|(name, _)| **name == *lane.name).count();
            self.refund(lane, taken.saturating_sub(kept));
        }
    }

    fn refund(&self, lane: &Lane, slots: usize) {
        lane.refund(slots);
        if let Some(count) = self.taken().get_mut(&lane.rule) {
            *count = count.saturating_sub(slots);
        }
    }

    fn keep(self) {
        self.taken().clear();
    }
}

impl Drop for Slots<'_> {
    fn drop(&mut self) {
        for (rule, slots) in std::mem::take(&mut *self.taken()) {
            if let Some(lane) = self.shared.lane(rule) {
                lane.refund(slots);
            }
        }
    }
}
