//! The sweeper, in every replica: finds what no event and no answer will bring back.
//!
//! Effects whose due time came, claims of dead workers, this worker's own lost claims, blocked
//! effects whose predecessors became final out of sight, and what retention may remove. Each step is
//! a transaction of its own, on one connection; a step that fails is tried at the next turn.

use std::sync::Arc;
use std::time::Duration;

use oncely_core::effect::circuit::Cause;
use oncely_core::effect::next::{Act, Next, act, after_death};
use oncely_core::effect::status::Status;
use oncely_core::key::Key;
use tokio::sync::watch;
use uuid::Uuid;

use super::backlog::Turn;
use super::claims::{Claims, Held};
use super::lane::Lane;
use super::lease::Lease;
use super::lines::{self, Written};
use super::mailbox::Mailbox;
use super::prepared::tell;
use super::retention::{self, Walks};
use super::{Message, Shared};
use crate::clock::{self, Moment};
use crate::crash::{self, Step};
use crate::http::Health;
use crate::store::circuit;
use crate::store::claim;
use crate::store::deferred;
use crate::store::parked;
use crate::store::settle;
use crate::store::sweep::{self, Orphan, Takeover};
use crate::store::{self, Session, StoreError, register};
use crate::store::{lease, progress};
use crate::task::Stopped;
use crate::telemetry::Finished;

/// How often due effects are looked for.
const DUE_EVERY: Duration = Duration::from_millis(200);
/// How often the dead are looked for.
const SLOW_EVERY: Duration = Duration::from_secs(1);
/// How often blocked effects are looked for whose turn has come unseen; less often where there are so many that the
/// look itself takes long.
const BLOCKED_EVERY: Duration = Duration::from_secs(2);
/// The look takes a tenth of the time at most, and is not left out for longer than this.
const BLOCKED_TIMES_IDLE: u32 = 10;
const BLOCKED_MOST: Duration = Duration::from_secs(60);
/// How often own claims are compared without any sign of loss.
const ADOPT_EVERY: Duration = Duration::from_secs(10);
/// How often retention looks for what is too old, when the last look left none of it.
const RETENTION_EVERY: Duration = Duration::from_secs(5);
/// How often it is put on record that somebody runs the connector.
const SEEN_EVERY: Duration = Duration::from_secs(30);
/// Rows that one step takes at most.
const SLICE: i64 = 500;

/// One sweeper.
pub(super) struct Sweeper {
    pub(super) shared: Arc<Shared>,
    pub(super) session: Session,
    pub(super) lease: Lease,
    pub(super) claims: Claims,
    pub(super) pipeline: Mailbox,
    pub(super) health: Health,
    pub(super) stop: watch::Receiver<bool>,
    /// Names of ledger lines that wait for other effects.
    pub(super) lines: Vec<String>,
    /// The open circuits that are on record, and under which worker.
    pub(super) circuits: Option<(Uuid, Vec<(String, Cause)>)>,
}

impl Sweeper {
    /// Sweeps until it is told to stop.
    ///
    /// # Errors
    /// When a person must act: the schema is wrong.
    pub(super) async fn run(mut self) -> Result<(), Stopped> {
        let name = format!("sweeper {}", self.shared.connector.name);
        let tick = self.health.watch(name, Duration::from_secs(120));
        let mut due = clock::every(DUE_EVERY);
        let mut slow_last: Option<Moment> = None;
        let mut blocked_last: Option<Moment> = None;
        let mut blocked_every = BLOCKED_EVERY;
        let mut adopt_last: Option<Moment> = None;
        let mut retention_last: Option<Moment> = None;
        let mut walks = Walks::new();
        let mut seen_last: Option<Moment> = None;
        let mut backlog_at = self.owes().then(clock::now);
        let mut stop = self.stop.clone();
        let mut adopt = false;
        let mut generation = self.session.generation();
        loop {
            let shared = Arc::clone(&self.shared);
            tokio::select! {
                _ = due.tick() => {}
                () = shared.adopt.notified() => adopt = true,
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
            }
            tick.tick();
            if !self.lease.may_send(self.lease.worker()) {
                continue;
            }
            // Own lost claims come first: nobody else may send them while this worker lives.
            let mut swept = Ok(());
            if adopt || passed(&mut adopt_last, ADOPT_EVERY) {
                swept = self.session.patience().bounded(self.adopt()).await;
                adopt = swept.is_err();
            }
            if swept.is_ok() {
                swept = self.claim_due().await;
            }
            if swept.is_ok() && !self.lines.is_empty() {
                swept = self.session.patience().bounded(self.write_lines()).await;
            }
            if swept.is_ok() && passed(&mut slow_last, SLOW_EVERY) {
                swept = self.session.patience().bounded(self.slow()).await;
            }
            if swept.is_ok() && passed(&mut blocked_last, blocked_every) {
                let looked = self.session.patience().bounded(self.wake_blocked()).await;
                swept = looked.map(|next| blocked_every = next);
            }
            if swept.is_ok() && backlog_at.is_some_and(|at| clock::now() >= at) {
                let counted = self.session.patience().bounded(self.count_backlog()).await;
                swept = counted.map(|next| backlog_at = clock::now().checked_add(next));
            }
            if swept.is_ok() && passed(&mut retention_last, RETENTION_EVERY) {
                let removed = self.session.patience().bounded(self.remove_old(&mut walks)).await;
                swept = removed.map(|all| {
                    if !all {
                        retention_last = None
                    }
                });
            }
            // Where something was lost, it may be the connector's own row.
            if std::mem::replace(&mut generation, self.session.generation()) != generation {
                seen_last = None;
            }
            if swept.is_ok() && passed(&mut seen_last, SEEN_EVERY) {
                swept = self.session.patience().bounded(self.seen()).await;
            }
            if let Err(error) = swept {
                if matches!(error, StoreError::Refused { .. }) {
                    return Err(Stopped(super::chain(&error)));
                }
                if matches!(error, StoreError::Unavailable { .. }) {
                    shared.database.away(self.session.task(), &super::chain(&error));
                } else {
                    tracing::warn!(cause = %super::chain(&error), "sweep failed");
                }
                self.session.failed(&error).await;
                tokio::time::sleep(super::jittered(DUE_EVERY)).await;
            } else {
                shared.database.back(self.session.task());
            }
        }
    }

    /// Claims effects whose time has come, as far as slots are free.
    async fn claim_due(&mut self) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        for (index, lane) in shared.lanes.iter().enumerate() {
            let Some(lane) = lane else { continue };
            let free = lane.reserve(usize::try_from(SLICE).unwrap_or(0));
            if free == 0 {
                continue;
            }
            let making = self.claims.making().await;
            let claimed =
                self.session.patience().bounded(self.claim_lane(index, &lane.name, free)).await;
            let used = claimed.as_ref().map_or(0, Vec::len);
            lane.refund(free.saturating_sub(used));
            match claimed {
                Ok(held) => {
                    lane.set_backlog(used == free);
                    held.iter().for_each(|held| self.claims.add(held));
                    drop(making);
                    self.pipeline.send(Message::Claimed(held));
                }
                Err(error) => {
                    self.shared.adopt.notify_one();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    async fn claim_lane(
        &mut self,
        rule: usize,
        name: &str,
        free: usize,
    ) -> Result<Vec<Held>, StoreError> {
        let worker = self.lease.worker();
        let shared = Arc::clone(&self.shared);
        let mut tx = self.session.begin().await?;
        let claims = claim::claim_due(&mut tx, worker, shared.connector_id, name, free).await?;
        if claims.is_empty() {
            return Ok(Vec::new());
        }
        let held = |claim| Held::new(worker, rule, claim);
        let mut held: Vec<Held> = claims.into_iter().map(held).collect();
        super::late::render_missing(&mut tx, &shared.connector, &mut held).await?;
        super::moved::readdress(&mut tx, &shared, &mut held).await?;
        crash::before_of(Step::ClaimCommit, || [name]);
        tx.commit().await?;
        crash::after_of(Step::ClaimCommit, || [name]);
        Ok(held)
    }

    /// Takes up claims of this worker that it has lost sight of. They were never started here: a
    /// started one stays listed until it is settled.
    async fn adopt(&mut self) -> Result<(), StoreError> {
        let worker = self.lease.worker();
        let shared = Arc::clone(&self.shared);
        let still = self.claims.settled().await;
        let connection = self.session.connection().await?;
        let claimed = claim::claimed_by(connection, worker).await?;
        let mut held = Vec::new();
        for (connector_id, name, claim) in claimed {
            if connector_id != shared.connector_id || self.claims.has(claim.key, claim.fence) {
                continue;
            }
            let lane = shared.lanes.iter().flatten().find(|lane| *lane.name == *name);
            let Some(lane) = lane else { continue };
            lane.adopt(1);
            held.push(Held::new(worker, lane.rule, claim));
        }
        held.iter().for_each(|held| self.claims.add(held));
        drop(still);
        if !held.is_empty() {
            let claims = held.len();
            tracing::warn!(claims, "own claims adopted that had been lost sight of");
            shared.metrics.claims_adopted(u64::try_from(claims).unwrap_or(u64::MAX));
            self.pipeline.send(Message::Claimed(held));
        }
        Ok(())
    }

    /// Writes ledger lines that became due where nobody settled: by a person's word, or from the beginning.
    async fn write_lines(&mut self) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        let connection = self.session.connection().await?;
        let id = shared.connector_id;
        let mut lanes = store::lines::due_lanes(connection, id, &self.lines, SLICE).await?;
        if lanes.is_empty() {
            return Ok(());
        }
        lanes.sort_unstable();
        let names = self.lines.clone();
        let mut tx = self.session.begin().await?;
        settle::lock_lanes(&mut tx, shared.lane_lock(), &lanes).await?;
        let due = store::lines::lock_due(&mut tx, id, &names, &lanes).await?;
        let (mut written, mut let_go) = (Written::default(), Vec::new());
        lines::write(&mut tx, &shared, due, &mut written, &mut let_go).await?;
        let woken = settle::wake(&mut tx, &lanes, None).await?;
        tx.commit().await?;
        written.count(&shared);
        shared.lanes.iter().flatten().for_each(|lane| lane.set_backlog(true));
        let_go.extend(woken.skipped);
        self.pipeline.send(Message::LetGo(let_go));
        Ok(())
    }

    async fn slow(&mut self) -> Result<(), StoreError> {
        super::endpoints::refresh(self.session.connection().await?, &self.shared).await?;
        let id = self.shared.connector_id;
        if parked::is_any_wanted(self.session.connection().await?, id).await? {
            self.shared.redrive.notify_one();
        }
        if self.shared.connector.state.is_some() && !self.shared.connector.defers() {
            let (connection, worker) = (self.session.connection().await?, self.lease.worker());
            self.shared.left.seen(deferred::may_be_left(connection, id, worker).await?);
        }
        let (group, cluster_id) = (&self.shared.connector.source.group, &self.shared.cluster_id);
        let connection = self.session.connection().await?;
        let epochs = progress::epochs(connection, group, cluster_id).await?;
        self.pipeline.send(Message::Epochs(epochs, self.session.generation()));
        self.show_circuits().await?;
        if self.lease.may_judge(self.shared.timing.lease) {
            let judge = self.lease.worker();
            let connection = self.session.connection().await?;
            crash::before(Step::Death);
            for dead in lease::declare_dead(connection, judge).await? {
                crash::after(Step::Death);
                self.shared.process_metrics.workers_declared_dead().add(1);
                tracing::warn!(worker = %dead, "declared a worker dead");
            }
        }
        self.take_over().await
    }

    /// Puts on record which circuits this worker has found open, for those who ask why an effect waits.
    async fn show_circuits(&mut self) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        let lanes = shared.lanes.iter().flatten();
        let open = lanes.filter_map(|lane| Some((lane.name.to_string(), lane.open()?)));
        let open: Vec<_> = open.collect();
        if !open.is_empty() {
            let names: Vec<String> = open.iter().map(|(name, _)| name.clone()).collect();
            let connection = self.session.connection().await?;
            let owed = circuit::owed(connection, shared.connector_id, &names).await?;
            let is_owed =
                |lane: &Lane| lane.open().is_none() || owed.iter().any(|name| **name == *lane.name);
            shared.lanes.iter().flatten().for_each(|lane| lane.set_owed(is_owed(lane)));
        }
        let shown = (self.lease.worker(), open);
        if self.circuits.as_ref() == Some(&shown) {
            return Ok(());
        }
        let connection = self.session.connection().await?;
        circuit::show(connection, shared.connector_id, shown.0, &shown.1).await?;
        self.circuits = Some(shown);
        Ok(())
    }

    /// Claims of the dead become what their rules say of an unknown outcome.
    async fn take_over(&mut self) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        // Those whose effect is gone from the file are orphaned: `oncely effects resolve` ends them.
        let names: Vec<String> =
            shared.lanes.iter().flatten().map(|lane| lane.name.to_string()).collect();
        let mut tx = self.session.begin().await?;
        let orphans = sweep::orphans(&mut tx, shared.connector_id, &names, SLICE).await?;
        if orphans.is_empty() {
            return Ok(tx.rollback().await?);
        }
        let mut takeovers = Vec::new();
        for orphan in &orphans {
            let lane = shared.lanes.iter().flatten().find(|lane| *lane.name == *orphan.name);
            let Some(lane) = lane else { continue };
            let history = orphan.recorded.after_attempt(0, false);
            let sent = act(&lane.policy, &orphan.recorded.when_claimed()) == Act::Send;
            let next = after_death(&lane.policy, &history, super::draw());
            let asks = matches!(next, Next::Asking { .. });
            let (status, due_in_ms, note) = match next {
                Next::Unknown { due_in_ms } | Next::Asking { due_in_ms } => {
                    lane.set_backlog(true);
                    (Status::Unknown, due_in_ms, String::new())
                }
                Next::Done { .. } => (Status::Done, 0, "counted as done".to_owned()),
                Next::Held { why } => (Status::Held, 0, why.as_str().to_owned()),
                Next::Waiting { .. } | Next::Rejected | Next::Halted { .. } => {
                    (Status::Held, 0, "its worker died".to_owned())
                }
            };
            takeovers.push(Takeover {
                key: orphan.key,
                fence: orphan.fence,
                status: status.as_str(),
                due_in_ms,
                note,
                asks,
                sent,
            });
        }
        let taken = sweep::take_over(&mut tx, &takeovers).await?;
        let dead = orphans.iter().filter(|orphan| taken.contains(&orphan.key));
        let dead: Vec<_> = dead.map(|orphan| (orphan.key, orphan.fence, orphan.worker)).collect();
        sweep::record_deaths(&mut tx, &dead).await?;
        let names = || orphans.iter().map(|orphan| orphan.name.clone());
        crash::before_of(Step::TakeOver, names);
        tx.commit().await?;
        crash::after_of(Step::TakeOver, names);
        tracing::warn!(claims = taken.len(), "claims of dead workers taken over");
        for takeover in takeovers.iter().filter(|one| taken.contains(&one.key)) {
            if let Some(orphan) = orphans.iter().find(|orphan| orphan.key == takeover.key) {
                taken_over(&shared, orphan, takeover);
            }
        }
        let let_go = |takeover: &&Takeover| takeover.status != Status::Unknown.as_str();
        let let_go: Vec<Key> = takeovers.iter().filter(let_go).map(|t| t.key).collect();
        self.pipeline.send(Message::LetGo(let_go));
        Ok(())
    }

    /// Wakes what no settling could see: a predecessor in another lane, a person's word. Says when to look again.
    async fn wake_blocked(&mut self) -> Result<Duration, StoreError> {
        let shared = Arc::clone(&self.shared);
        let connection = self.session.connection().await?;
        let begun = clock::now();
        let mut lanes = sweep::blocked_lanes(connection, shared.connector_id, SLICE).await?;
        let took = clock::since(begun).saturating_mul(BLOCKED_TIMES_IDLE);
        let next = took.clamp(BLOCKED_EVERY, BLOCKED_MOST);
        if lanes.is_empty() {
            return Ok(next);
        }
        lanes.sort_unstable();
        let mut tx = self.session.begin().await?;
        settle::lock_lanes(&mut tx, shared.lane_lock(), &lanes).await?;
        let woken = settle::wake(&mut tx, &lanes, None).await?;
        tx.commit().await?;
        shared.lanes.iter().flatten().for_each(|lane| lane.set_backlog(true));
        self.pipeline.send(Message::LetGo(woken.skipped));
        Ok(next)
    }

    /// Whether events of this connector can leave effects open.
    fn owes(&self) -> bool {
        !self.shared.connector.effects.is_empty()
    }

    /// Counts what is open, and says when to do so again.
    async fn count_backlog(&mut self) -> Result<Duration, StoreError> {
        let shared = Arc::clone(&self.shared);
        let begun = clock::now();
        let (id, max_open_effects) = (shared.connector_id, shared.backlog.max());
        let connection = self.session.connection().await?;
        let open = sweep::backlog(connection, id, max_open_effects).await?;
        // With nothing due, no call could find out that the provider is back.
        let mut lanes = shared.lanes.iter().flatten();
        let off = lanes.any(|lane| lane.open().is_some() && lane.has_backlog());
        let remedy = "look at what the effects wait for: oncely effects list --status waiting";
        match shared.backlog.counted(open, off) {
            Some(Turn::Full) => tracing::error!(
                max_open_effects,
                remedy,
                "too many effects are open: no new events are taken until calls have caught up"
            ),
            Some(Turn::StillFull(lasted)) => tracing::error!(
                max_open_effects,
                open,
                lasted_s = lasted.as_secs(),
                remedy,
                "too many effects are still open: no new events are taken"
            ),
            Some(Turn::Free) => {
                tracing::info!(open, "calls have caught up: events are taken again")
            }
            None => {}
        }
        shared.metrics.intake_paused(shared.backlog.is_full());
        Ok(shared.backlog.next_look(open, clock::since(begun)))
    }

    /// Says that the connector and its effects are run.
    async fn seen(&mut self) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        let connection = self.session.connection().await?;
        let id = register::connector(connection, &shared.connector).await?;
        if id != shared.connector_id {
            return Err(StoreError::renumbered());
        }
        if shared.connector.defers() {
            let connection = self.session.connection().await?;
            let adopted = deferred::adopt(connection, id).await?;
            if adopted > 0 {
                tracing::warn!(
                    adopted,
                    "deferred events taken over from a connector of the same scope that is gone"
                );
            }
        }
        Ok(())
    }

    /// Gives whether nothing is left that is too old.
    async fn remove_old(&mut self, walks: &mut Walks) -> Result<bool, StoreError> {
        let shared = Arc::clone(&self.shared);
        let connection = self.session.connection().await?;
        lease::prune(connection).await?;
        retention::remove_old(connection, &shared, walks).await
    }
}

/// Counts and tells what a dead worker's claim became.
fn taken_over(shared: &Shared, orphan: &Orphan, takeover: &Takeover) {
    let lane = shared.lanes.iter().flatten().find(|lane| *lane.name == *orphan.name);
    let metrics = lane.and_then(|lane| shared.metrics.effect(lane.rule));
    let is_held = takeover.status == Status::Held.as_str();
    if let Some(metrics) = metrics {
        metrics.taken_over(1);
        if is_held {
            metrics.held(1);
        } else if takeover.status == Status::Done.as_str() {
            metrics.finished(Finished::Assumed, 1);
        }
    }
    if is_held {
        let business_id = shared.shown(&orphan.tenant, &orphan.business_id);
        let seen = (None, takeover.note.as_str());
        tell(orphan.key, &orphan.name, &business_id, Status::Held, seen);
    }
}

/// Whether `period` has passed since the last time this was true.
fn passed(last: &mut Option<Moment>, period: Duration) -> bool {
    let passed = last.is_none_or(|last| clock::since(last) >= period);
    if passed {
        *last = Some(clock::now());
    }
    passed
}
