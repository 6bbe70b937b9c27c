//! How long a worker may be silent, and how long it may take to let go.

use std::time::Duration;

use super::environment::Environment;
use super::error::{ConfigError, ConfigErrors};
use super::keep;
use super::text::{count_of, duration_of};

/// Heartbeats that must fit in a lease.
pub(super) const HEARTBEATS_PER_LEASE: u32 = 3;

/// Timing of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worker {
    /// A worker whose heartbeat is older is declared dead.
    pub lease: Duration,
    pub heartbeat: Duration,
    /// To settle what is in flight when a partition is revoked.
    pub drain: Duration,
    /// To settle what is in flight after SIGTERM; afterwards the process ends anyway.
    pub shutdown_grace: Duration,
    /// Batch transactions side by side.
    pub writers: u32,
}

impl Worker {
    /// `session`: the group's session time-out, where it is known.
    ///
    /// # Errors
    /// A value out of its bounds, or bounds that contradict each other.
    pub fn read(
        environment: &Environment,
        session: Option<Duration>,
    ) -> Result<Self, ConfigErrors> {
        let ms = Duration::from_millis;
        let mut errors = Vec::new();
        let mut duration = |name, default, least, most| {
            let read = duration_of(environment, name, ms(default), (ms(least), ms(most)));
            keep(read, &mut errors)
        };
        let lease = duration("ONCELY_LEASE", 5_000, 300, 600_000);
        let heartbeat = duration("ONCELY_HEARTBEAT", 1_000, 50, 200_000);
        let drain = duration("ONCELY_DRAIN", 20_000, 0, 600_000);
        let shutdown_grace = duration("ONCELY_SHUTDOWN_GRACE", 25_000, 0, 3_600_000);
        let writers = keep(count_of(environment, "ONCELY_WRITERS", 4, (1, 16)), &mut errors);
        // Only what could be read is compared.
        if let (Some(lease), Some(heartbeat)) = (lease, heartbeat) {
            errors.extend(heartbeats(lease, heartbeat));
        }
        if let (Some(drain), Some(grace)) = (drain, shutdown_grace) {
            errors.extend(drained(drain, grace, session));
        }
        match (lease, heartbeat, drain, shutdown_grace, writers) {
            (Some(lease), Some(heartbeat), Some(drain), Some(shutdown_grace), Some(writers))
                if errors.is_empty() =>
            {
                Ok(Self { lease, heartbeat, drain, shutdown_grace, writers })
            }
            _ => Err(ConfigErrors(errors)),
        }
    }
}

fn heartbeats(lease: Duration, heartbeat: Duration) -> Option<ConfigError> {
    let (heartbeat_ms, lease_ms) = (heartbeat.as_millis(), lease.as_millis());
    (heartbeat.saturating_mul(HEARTBEATS_PER_LEASE) > lease)
        .then_some(ConfigError::HeartbeatsPerLease { heartbeat_ms, lease_ms })
}

fn drained(drain: Duration, grace: Duration, session: Option<Duration>) -> Vec<ConfigError> {
    let drain_ms = drain.as_millis();
    let session = session.filter(|session| drain >= *session).map(|session| {
        let session_ms = session.as_millis();
        ConfigError::DrainOutlivesSession { drain_ms, session_ms }
    });
    let grace_ms = grace.as_millis();
    let outlives =
        (drain > grace).then_some(ConfigError::DrainOutlivesGrace { drain_ms, grace_ms });
    session.into_iter().chain(outlives).collect()
}
