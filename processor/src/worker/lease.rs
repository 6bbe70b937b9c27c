//! The lease: this process's time-bound right to send.
//!
//! A heartbeat on a connection of its own renews it. From the moment when the last good heartbeat was
//! *sent*, plus the lease less a margin, nothing is sent until a renewal has succeeded. Whoever finds
//! itself declared dead goes on under a new id; what it held under the old one is given back if it
//! was never sent, and is evidence otherwise.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use uuid::Uuid;

use crate::clock::{self, Moment};
use crate::config::Worker as Timing;
use crate::http::Health;
use crate::store::lease::{self, Pulse};
use crate::store::{Session, StoreError};
use crate::task::Stopped;
use crate::telemetry::{Metrics, Outage};

/// The lease of this process; clones share it.
#[derive(Clone, Debug)]
pub(super) struct Lease(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The id in force; changes when the old one was declared dead.
    id: watch::Sender<Uuid>,
}

#[derive(Debug)]
struct State {
    /// Until when something may be sent.
    valid_until: Option<Moment>,
    /// Since when every heartbeat went through.
    unbroken_since: Option<Moment>,
}

impl Lease {
    pub(super) fn new() -> Self {
        Self(Arc::new(Shared {
            state: Mutex::new(State { valid_until: None, unbroken_since: None }),
            id: watch::Sender::new(Uuid::new_v4()),
        }))
    }

    /// The id under which new claims are made.
    pub(super) fn worker(&self) -> Uuid {
        *self.0.id.borrow()
    }

    /// Whether a claim made under `worker` may be sent now.
    pub(super) fn may_send(&self, worker: Uuid) -> bool {
        self.worker() == worker
            && self.state().valid_until.is_some_and(|until| clock::now() < until)
    }

    /// Whether this worker may declare others dead: only after its own heartbeats went through
    /// without a gap for a whole lease, since an outage of the database silences everybody.
    pub(super) fn may_judge(&self, lease: Duration) -> bool {
        self.state().unbroken_since.is_some_and(|since| clock::since(since) >= lease)
    }

    /// Waits until the lease is valid.
    pub(super) async fn valid(&self) {
        while !self.may_send(self.worker()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn renewed(&self, sent: Moment, good_for: Duration) {
        let mut state = self.state();
        state.valid_until = sent.checked_add(good_for);
        state.unbroken_since.get_or_insert(sent);
    }

    fn missed(&self) {
        self.state().unbroken_since = None;
    }

    fn reborn(&self) {
        {
            let mut state = self.state();
            state.valid_until = None;
            state.unbroken_since = None;
        }
        self.0.id.send_replace(Uuid::new_v4());
    }
}

impl Default for Lease {
    fn default() -> Self {
        Self::new()
    }
}

/// Renews the lease until `stop` says so. Never ends because the database is away.
///
/// # Errors
/// When a person must act: the role, a right or the schema is not what it was.
pub(super) async fn beat(
    lease: Lease,
    timing: Timing,
    mut session: Session,
    metrics: Metrics,
    health: Health,
    outage: Outage,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Stopped> {
    let host = crate::config::host_name();
    let attempt = timing.lease.checked_div(3).unwrap_or(timing.lease);
    // The margin covers what may pass between the check and the first byte.
    let good_for = timing.lease.saturating_sub(timing.heartbeat);
    let lease_ms = i32::try_from(timing.lease.as_millis()).unwrap_or(i32::MAX);
    let mut started: Option<Uuid> = None;
    let mut unanswered = false;
    let tick = health.watch("heartbeat", timing.lease.saturating_mul(6));
    let mut interval = clock::every(timing.heartbeat);
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            _ = stop.wait_for(|stop| *stop) => break,
        }
        tick.tick();
        let sent = clock::now();
        let worker = lease.worker();
        // Neither statement is in a transaction of ours, so cutting one short leaves nothing
        // behind; its connection is closed.
        let renewal = tokio::time::timeout(attempt, async {
            session.confirm().await?;
            let connection = session.connection().await?;
            if started == Some(worker) {
                lease::beat(connection, worker).await
            } else {
                lease::start(connection, worker, lease_ms, &host).await?;
                Ok(Pulse::Alive)
            }
        });
        match renewal.await {
            Ok(Ok(Pulse::Alive)) => {
                if std::mem::take(&mut unanswered) {
                    session.database_moved();
                }
                started = Some(worker);
                lease.renewed(sent, good_for);
                health.database_up();
                outage.back(session.task());
            }
            Ok(Ok(Pulse::Dead)) => {
                metrics.leases_lost().add(1);
                tracing::warn!(%worker, "declared dead by another worker, going on under a new id");
                lease.reborn();
                interval.reset_immediately();
            }
            Ok(Err(StoreError::Refused { code, source })) if code == "23505" => {
                // Our own INSERT went through and its answer was lost.
                tracing::debug!(%source, "worker row is there already");
                started = Some(worker);
                interval.reset_immediately();
            }
            Ok(Err(error @ StoreError::Refused { .. })) => {
                return Err(Stopped(super::chain(&error)));
            }
            Ok(Err(error)) => {
                lease.missed();
                health.database_down(error.to_string());
                outage.away(session.task(), &super::chain(&error));
                session.failed(&error).await;
                interval
                    .reset_after(timing.heartbeat.min(attempt).checked_div(4).unwrap_or_default());
            }
            Err(_elapsed) => {
                lease.missed();
                health.database_down("the heartbeat got no answer");
                outage.away(session.task(), "the heartbeat got no answer");
                unanswered = true;
                session = session.renewed();
                interval.reset_immediately();
            }
        }
    }
    Ok(())
}
