//! One process: a lease, a heartbeat, and a worker for each connector.

use std::sync::Arc;
use std::time::Duration;

use oncely_connectors::effect::egress::Egress;
use oncely_connectors::secret::SecretSource;
use oncely_core::connector::Connector;
use oncely_core::key::Key;
use tokio::sync::watch;
use uuid::Uuid;

use super::claims::Claims;
use super::failover;
use super::gauges;
use super::lease::{self, Lease};
use super::run::{Parts, RunError, run};
use crate::clock::{self, Moment};
use crate::config::Settings;
use crate::crash::{self, Step};
use crate::http::Health;
use crate::store::{self, PgConnection, Session, StoreError, claim};
use crate::task::{self, Vital};
use crate::telemetry::{Metrics, Outage};

/// Time for ending the worker's row where the drain has used the whole grace up.
const END_LEAST: Duration = Duration::from_secs(2);
/// Effects that a log line names.
const LEFT_NAMED_MAX: usize = 10;

/// What a process is made from.
pub struct Process {
    /// Checked together: no two with one group.
    pub connectors: Vec<Arc<Connector>>,
    pub settings: Settings,
    pub secrets: Arc<dyn SecretSource>,
    pub egress: Egress,
    pub metrics: Metrics,
    pub health: Health,
    /// What is told of the database.
    pub outage: Outage,
    /// Becomes true when the process is to end: what is in flight is settled first, within the
    /// drain and grace of the settings.
    pub stop: watch::Receiver<bool>,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.connectors.iter().map(|connector| &connector.name).collect();
        f.debug_struct("Process").field("connectors", &names).finish_non_exhaustive()
    }
}

impl Process {
    /// Runs all connectors until told to stop, or until one of them cannot go on: then the process
    /// is to end with a failure, and the others are stopped cleanly.
    ///
    /// # Errors
    /// The first [`RunError`], which names what is to be put right.
    pub async fn run(self) -> Result<(), RunError> {
        let vital = Vital::new(&self.metrics);
        let (lease, claims) = (Lease::new(), Claims::default());
        let database =
            store::Settings::parse(self.settings.database.url()).map_err(RunError::Database)?;
        let lease_ms = i32::try_from(self.settings.worker.lease.as_millis()).unwrap_or(i32::MAX);
        let lossless = self.settings.database.lossless_failover;
        let database = database.watched(failover::watch(lossless, lease_ms, &self.metrics));
        let (heart_stop, heart_stopped) = watch::channel(false);
        let outage = self.outage.clone();
        let gauges = gauges::count(
            lease.clone(),
            Session::new(database.clone(), "gauges"),
            self.metrics.clone(),
            outage.clone(),
            heart_stopped.clone(),
        );
        let gauges = vital.spawn("gauges", gauges);
        let heart = lease::beat(
            lease.clone(),
            self.settings.worker,
            Session::new(database.clone(), "heartbeat"),
            self.metrics.clone(),
            self.health.clone(),
            outage.clone(),
            heart_stopped,
        );
        let heart = vital.spawn("heartbeat", heart);
        let (stop, stopped) = watch::channel(false);
        let mut running = tokio::task::JoinSet::new();
        for connector in &self.connectors {
            let parts = Parts {
                connector: Arc::clone(connector),
                settings: self.settings.clone(),
                database: database.clone(),
                secrets: Arc::clone(&self.secrets),
                egress: self.egress.clone(),
                metrics: self.metrics.clone(),
                health: self.health.clone(),
                lease: lease.clone(),
                claims: claims.clone(),
                vital: vital.clone(),
                outage: outage.clone(),
                stop: stopped.clone(),
            };
            // Every line that its parts write has its name.
            let span = tracing::error_span!("connector", connector = &*connector.name);
            let work = span.in_scope(|| task::spawn("connector", &self.metrics, run(parts)));
            running.spawn(work);
        }
        let mut asked = self.stop.clone();
        let (mut failure, mut draining) = (None, None);
        loop {
            tokio::select! {
                ended = running.join_next() => match ended {
                    None => break,
                    Some(Ok(Ok(Ok(Ok(()))))) => {}
                    Some(Ok(Ok(Ok(Err(error))))) => { failure.get_or_insert(error); }
                    Some(_) => { failure.get_or_insert(RunError::Lost { part: "connector" }); }
                },
                part = vital.failed(), if failure.is_none() => {
                    failure.get_or_insert(RunError::Lost { part });
                }
                _ = asked.wait_for(|stop| *stop), if !*stop.borrow() => self.health.stopping(),
            }
            if (failure.is_some() || *asked.borrow()) && !stop.send_replace(true) {
                draining = Some(clock::now());
                tracing::info!(
                    in_flight = claims.count(),
                    grace_s = self.settings.worker.shutdown_grace.as_secs_f64(),
                    "draining: calls in flight are settled, positions written, groups left"
                );
            }
            if matches!(failure, Some(RunError::Lost { .. })) {
                // A part that others wait for is gone: what is in flight is found by its lease.
                break;
            }
        }
        heart_stop.send_replace(true);
        drop(heart.await);
        gauges.abort();
        let mut end_max = END_LEAST;
        if let Some(began) = draining {
            say_drained(began, &claims);
            let grace = self.settings.worker.shutdown_grace;
            end_max = grace.saturating_sub(clock::since(began)).max(END_LEAST);
        }
        if !matches!(failure, Some(RunError::Lost { .. })) {
            end(&lease, &claims, Session::new(database, "end"), end_max).await;
        }
        failure.map_or(Ok(()), Err)
    }
}

/// Says what the drain came to.
fn say_drained(began: Moment, claims: &Claims) {
    let took_s = clock::seconds(clock::since(began));
    let left = claims.keys();
    if left.is_empty() {
        tracing::info!(took_s, "drained: nothing is left in flight");
        return;
    }
    let named = left.iter().take(LEFT_NAMED_MAX).map(Key::wire).collect::<Vec<_>>();
    tracing::warn!(
        took_s,
        left = left.len(),
        effects = named.join(","),
        "the grace is over and calls are still in flight: their outcome is unknown, and another \
         process takes them over when the lease of this one has ended"
    );
}

/// Gives back what was never sent and ends the worker's row, so that nobody has to wait for its
/// lease. A failure only costs that wait. Every pipeline has ended, so nothing more is sent.
async fn end(lease: &Lease, claims: &Claims, mut session: Session, within: Duration) {
    let ending = async {
        // Nobody makes claims meanwhile, so those that are not listed were lost sight of.
        let _still = claims.settled().await;
        let connection = session.connection().await?;
        give_back_lost(connection, lease.worker(), claims).await?;
        if claims.count() == 0 {
            crash::before(Step::End);
            store::lease::end(connection, lease.worker()).await?;
            crash::after(Step::End);
        }
        Ok::<_, StoreError>(())
    };
    match tokio::time::timeout(within, ending).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(cause = %super::chain(&error), "the worker's row could not be ended");
        }
        Err(_elapsed) => tracing::warn!("the worker's row could not be ended in time"),
    }
}

/// Gives back this worker's claims that it does not know of: the answer to their COMMIT was lost, so
/// that they were never started.
async fn give_back_lost(
    connection: &mut PgConnection,
    worker: Uuid,
    claims: &Claims,
) -> Result<(), StoreError> {
    let claimed = claim::claimed_by(connection, worker).await?;
    let lost: Vec<(Key, i64)> = claimed
        .into_iter()
        .map(|(_, _, claim)| (claim.key, claim.fence))
        .filter(|(key, fence)| !claims.has(*key, *fence))
        .collect();
    if lost.is_empty() {
        return Ok(());
    }
    tracing::warn!(claims = lost.len(), "claims given back that had been lost sight of");
    claim::give_back(connection, worker, &lost).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::database_tests::World;
    use crate::worker::claims::Held;

    #[tokio::test]
    async fn a_claim_whose_commit_was_not_answered_is_given_back_at_the_end() {
        let world = World::new().await;
        let me = Uuid::from_u128(7);
        for (key, worker) in [(1_u8, 7_u128), (2, 7), (3, 8)] {
            let (key, worker) = (Key::from_bytes([key; 16]), Uuid::from_u128(worker));
            world
                .sql(&format!(
                    "INSERT INTO oncely.effect (key, event, lane, request_hash, connector, ordinal,
                        status, worker, first_sent_at, fence, name, tenant, business_id)
                     VALUES ('{key}', '{key}', '{key}', '{key}', 1, 0, 'claimed', '{worker}', now(),
                        nextval('oncely.fence'), 'e', 't', 'b')"
                ))
                .await;
        }
        let mut connection = world.connect().await;
        let claims = Claims::default();
        let mine = claim::claimed_by(&mut connection, me).await.unwrap();
        let (_, _, known) = mine.into_iter().find(|(_, _, claim)| claim.fence == 1).unwrap();
        claims.add(&Held::new(me, 0, known));
        give_back_lost(&mut connection, me, &claims).await.unwrap();
        let statuses = "SELECT status FROM oncely.effect ORDER BY key";
        // The first may have been sent, and the third is another's.
        assert_eq!(world.text(statuses).await, "claimed waiting claimed");
    }
}
