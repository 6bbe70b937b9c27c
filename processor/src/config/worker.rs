//! How long a worker may be silent, and how long it may take to let go.

use std::time::Duration;

use super::environment::Environment;
use super::error::ConfigError;
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
    pub fn read(environment: &Environment, session: Option<Duration>) -> Result<Self, ConfigError> {
        let ms = Duration::from_millis;
        let duration = |name, default, least, most| {
            duration_of(environment, name, ms(default), (ms(least), ms(most)))
        };
        let worker = Self {
            lease: duration("ONCELY_LEASE", 5_000, 300, 600_000)?,
            heartbeat: duration("ONCELY_HEARTBEAT", 1_000, 50, 200_000)?,
            drain: duration("ONCELY_DRAIN", 20_000, 0, 600_000)?,
            shutdown_grace: duration("ONCELY_SHUTDOWN_GRACE", 25_000, 0, 3_600_000)?,
            writers: count_of(environment, "ONCELY_WRITERS", 4, (1, 16))?,
        };
        worker.check(session)?;
        Ok(worker)
    }

    fn check(&self, session: Option<Duration>) -> Result<(), ConfigError> {
        if self.heartbeat.saturating_mul(HEARTBEATS_PER_LEASE) > self.lease {
            let (heartbeat_ms, lease_ms) = (self.heartbeat.as_millis(), self.lease.as_millis());
            return Err(ConfigError::HeartbeatsPerLease { heartbeat_ms, lease_ms });
        }
        let drain_ms = self.drain.as_millis();
        if let Some(session) = session.filter(|session| self.drain >= *session) {
            let session_ms = session.as_millis();
            return Err(ConfigError::DrainOutlivesSession { drain_ms, session_ms });
        }
        if self.drain > self.shutdown_grace {
            let grace_ms = self.shutdown_grace.as_millis();
            return Err(ConfigError::DrainOutlivesGrace { drain_ms, grace_ms });
        }
        Ok(())
    }
}
