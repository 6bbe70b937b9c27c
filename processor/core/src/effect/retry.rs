//! Retry plans and back-off with full jitter.

/// When and how often a call is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    attempts: u32,
    base_ms: u64,
    cap_ms: u64,
    elapsed_ms_max: u64,
}

/// Why a retry plan is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RetryError {
    #[error("attempts must be at least 1")]
    NoAttempt,
    #[error("the first back-off must be at least 1ms")]
    NoBackoff,
    #[error("the longest back-off ({cap_ms} ms) is below the first ({base_ms} ms)")]
    CapBelowBase { base_ms: u64, cap_ms: u64 },
}

impl Retry {
    /// `attempts` counts the first one, but none that was throttled or refused for our credentials.
    /// Back-offs double from `base_ms` to `cap_ms`. Once failures have gone on for `elapsed_ms_max`
    /// without such an answer between them, no further attempt starts.
    ///
    /// # Errors
    /// [`RetryError`] names the field that makes no sense.
    pub fn new(
        attempts: u32,
        base_ms: u64,
        cap_ms: u64,
        elapsed_ms_max: u64,
    ) -> Result<Self, RetryError> {
        if attempts == 0 {
            return Err(RetryError::NoAttempt);
        }
        if base_ms == 0 {
            return Err(RetryError::NoBackoff);
        }
        if cap_ms < base_ms {
            return Err(RetryError::CapBelowBase { base_ms, cap_ms });
        }
        Ok(Self { attempts, base_ms, cap_ms, elapsed_ms_max })
    }

    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    pub const fn elapsed_ms_max(&self) -> u64 {
        self.elapsed_ms_max
    }

    /// The longest time from the first send to the start of the last attempt, without jitter's help,
    /// where the provider never throttles.
    pub fn elapsed_ms_worst(&self) -> u64 {
        let backoffs = (1..self.attempts).map(|after| self.ceiling_ms(after));
        backoffs.fold(0_u64, u64::saturating_add).min(self.elapsed_ms_max)
    }

    /// The longest wait after the attempt numbered `attempt` (1 is the first).
    pub fn ceiling_ms(&self, attempt: u32) -> u64 {
        Self::ceiling(self.base_ms, self.cap_ms, attempt)
    }

    /// `base_ms`, doubled after each attempt but the first, up to `cap_ms`.
    pub(super) fn ceiling(base_ms: u64, cap_ms: u64, attempt: u32) -> u64 {
        let doublings = attempt.saturating_sub(1).min(63);
        base_ms.saturating_mul(1_u64 << doublings).min(cap_ms)
    }

    /// The wait after attempt number `attempt`: full jitter, from 1 ms up to the ceiling
    /// ("Exponential Backoff And Jitter", AWS Architecture Blog, 2015). `draw` is uniform.
    pub fn backoff_ms(&self, attempt: u32, draw: u32) -> u64 {
        let ceiling = u128::from(self.ceiling_ms(attempt));
        let scaled = ceiling.saturating_mul(u128::from(draw)) >> 32;
        u64::try_from(scaled).unwrap_or(u64::MAX).max(1)
    }

    /// Whether another attempt may start after `failures`, `failing_ms` since the first of those that
    /// go on.
    pub const fn allows(&self, failures: u32, failing_ms: u64) -> bool {
        failures < self.attempts && failing_ms <= self.elapsed_ms_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_plan_that_makes_no_sense_is_refused() {
        assert_eq!(Retry::new(0, 1, 1, 1), Err(RetryError::NoAttempt));
        assert_eq!(Retry::new(1, 0, 1, 1), Err(RetryError::NoBackoff));
        let below = RetryError::CapBelowBase { base_ms: 2, cap_ms: 1 };
        assert_eq!(Retry::new(1, 2, 1, 1), Err(below));
    }

    proptest! {
        #[test]
        fn every_wait_is_above_zero_and_within_its_ceiling(
            attempts in 1_u32..100, base in 1_u64..100_000, more in 0_u64..10_000_000,
            attempt in 1_u32..1_000, draw: u32,
        ) {
            let plan = Retry::new(attempts, base, base + more, u64::MAX).unwrap();
            let wait = plan.backoff_ms(attempt, draw);
            prop_assert!(wait >= 1);
            prop_assert!(wait <= plan.ceiling_ms(attempt));
            prop_assert!(plan.ceiling_ms(attempt) <= base + more);
            prop_assert!(plan.ceiling_ms(attempt) <= plan.ceiling_ms(attempt + 1));
        }
    }
}
