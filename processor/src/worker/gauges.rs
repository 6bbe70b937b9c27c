//! Gauges that are counted in the tables, by one process for all.
//!
//! Every process asks whether it is the eldest; the others show nothing, so that a sum over replicas
//! is true. While the database is away nothing is shown: an old number would be taken for a new one.

use std::time::Duration;

use tokio::sync::watch;

use super::chain;
use super::lease::Lease;
use crate::clock;
use crate::store::admin::open;
use crate::store::{Session, StoreError};
use crate::task::Stopped;
use crate::telemetry::{Metrics, OpenThings, Outage};

/// Between two counts.
const INTERVAL: Duration = Duration::from_secs(15);

/// Counts until told to stop.
///
/// # Errors
/// None: a failure is shown as no number.
pub(super) async fn count(
    lease: Lease,
    mut session: Session,
    metrics: Metrics,
    outage: Outage,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Stopped> {
    let mut ticks = clock::every(INTERVAL);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stop.wait_for(|stop| *stop) => break,
        }
        match session.patience().bounded(counted(&mut session, &lease)).await {
            Ok(open) => metrics.set_open(open.as_ref()),
            Err(error) => {
                metrics.set_open(None);
                // An outage is told by those who cannot go on without the database.
                if !outage.is_on() {
                    tracing::warn!(cause = %chain(&error), "what is open could not be counted");
                }
                session.failed(&error).await;
            }
        }
    }
    metrics.set_open(None);
    Ok(())
}

async fn counted(session: &mut Session, lease: &Lease) -> Result<Option<OpenThings>, StoreError> {
    open::count(session.connection().await?, lease.worker()).await
}
