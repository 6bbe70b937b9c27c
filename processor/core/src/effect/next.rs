//! What follows from an attempt.
//!
//! Reads: an effect's rule, what was recorded of it, and the outcome now seen. Gives: the state that
//! follows. **Unknown is sticky**: once any attempt may have been applied, only a success or a
//! person ends it; a later refusal, throttle, rejection or exhausted plan leaves it unknown.

use super::outcome::Outcome;
use super::retry::Retry;
use crate::connector::{CallRule, OnUnknown};
use crate::value::Value;

/// Times that dead workers' claims of one effect are taken over before a person must look.
pub const TAKEOVERS_MAX: u16 = 3;

/// Longest wait that a provider may ask for with Retry-After.
pub const RETRY_AFTER_MS_MAX: u64 = 3_600_000;

/// Wait of a lane whose credentials or configuration were refused, until it is tried once more.
pub const HALT_MS: u64 = 30_000;

/// The part of an effect's rule that decides.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    pub on_unknown: OnUnknown,
    pub retry: Retry,
    /// How long a repeat with the same key is safe, counted from the first send; `None`: for ever.
    pub key_window_ms: Option<u64>,
}

impl Policy {
    pub fn of(rule: &CallRule) -> Self {
        Self {
            on_unknown: rule.on_unknown,
            retry: rule.retry,
            key_window_ms: rule.profile.key_window_ms,
        }
    }
}

/// What is on record of an effect when an outcome comes in.
#[derive(Clone, Copy, Debug)]
pub struct History {
    /// Attempts made, the one now seen included.
    pub attempts: u32,
    /// Those that the retry plan counts, the one now seen included if it is one.
    pub failures: u32,
    /// Since the first send (database time).
    pub elapsed_ms: u64,
    /// Since the first failure that no other answer has followed; zero if there is none yet.
    pub failing_ms: u64,
    /// An attempt before this one may have been applied.
    pub was_unknown: bool,
    pub takeovers: u16,
}

/// The state that follows.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    Done {
        result: Value,
    },
    /// Try again then; surely not applied so far.
    Waiting {
        due_in_ms: u64,
    },
    /// Send the same bytes with the same key again then.
    Unknown {
        due_in_ms: u64,
    },
    Held {
        why: Why,
    },
    Rejected,
    /// Back to waiting, and the lane stops until the configuration is mended.
    Halted {
        was_unknown: bool,
    },
}

/// Why an effect is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    UnknownOutcome,
    KeyWindowPassed,
    PlanExhausted,
    TakenOverTooOften,
}

impl Why {
    /// One sentence for the person who must decide.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownOutcome => "the provider may have applied it, and it cannot be asked",
            Self::KeyWindowPassed => {
                "the outcome is unknown and the provider's key window has passed"
            }
            Self::PlanExhausted => "the retry plan is exhausted",
            Self::TakenOverTooOften => "three workers died while they held it",
        }
    }
}

/// What follows from `outcome`. `draw` is uniform and gives the jitter.
pub fn next_step(policy: &Policy, history: &History, outcome: &Outcome, draw: u32) -> Next {
    match outcome {
        Outcome::Done(result) => Next::Done { result: result.clone() },
        Outcome::Unknown => unknown(policy, history, draw),
        Outcome::NotApplied | Outcome::Throttled { .. } | Outcome::Rejected | Outcome::Halted
            if history.was_unknown =>
        {
            still_unknown(policy, history, outcome, draw)
        }
        Outcome::NotApplied => refused(policy, history, draw),
        Outcome::Throttled { retry_after_ms } => Next::Waiting {
            due_in_ms: retry_after_ms
                .map_or_else(|| policy.retry.backoff_ms(history.attempts, draw), |ms| ms.max(1))
                .min(RETRY_AFTER_MS_MAX),
        },
        Outcome::Rejected => Next::Rejected,
        Outcome::Halted => Next::Halted { was_unknown: false },
    }
}

/// What follows when the worker that held the claim is dead: it may have sent it.
pub fn after_death(policy: &Policy, history: &History, draw: u32) -> Next {
    if history.takeovers >= TAKEOVERS_MAX {
        return Next::Held { why: Why::TakenOverTooOften };
    }
    match policy.on_unknown {
        // Nothing was seen, so there is nothing to wait for: the same key is safe at once.
        OnUnknown::RetrySameKey if in_window(policy, history, 0) => Next::Unknown { due_in_ms: 0 },
        OnUnknown::RetrySameKey | OnUnknown::Hold | OnUnknown::AssumeDone => {
            unknown(policy, history, draw)
        }
    }
}

fn unknown(policy: &Policy, history: &History, draw: u32) -> Next {
    match policy.on_unknown {
        OnUnknown::RetrySameKey => {
            repeat(policy, history, policy.retry.backoff_ms(history.failures, draw))
        }
        OnUnknown::Hold => Next::Held { why: Why::UnknownOutcome },
        OnUnknown::AssumeDone => Next::Done { result: Value::Null },
    }
}

fn still_unknown(policy: &Policy, history: &History, outcome: &Outcome, draw: u32) -> Next {
    match (policy.on_unknown, outcome) {
        (OnUnknown::RetrySameKey, Outcome::Halted) => Next::Halted { was_unknown: true },
        (OnUnknown::RetrySameKey, Outcome::Throttled { retry_after_ms }) => {
            let asked = retry_after_ms.unwrap_or(0).min(RETRY_AFTER_MS_MAX);
            let due_in_ms = asked.max(policy.retry.backoff_ms(history.attempts, draw));
            if in_window(policy, history, due_in_ms) {
                Next::Unknown { due_in_ms }
            } else {
                Next::Held { why: Why::KeyWindowPassed }
            }
        }
        // A refusal says what this attempt did, not what an earlier one did.
        (OnUnknown::RetrySameKey, Outcome::Rejected) => Next::Held { why: Why::UnknownOutcome },
        (OnUnknown::RetrySameKey | OnUnknown::Hold | OnUnknown::AssumeDone, _) => {
            unknown(policy, history, draw)
        }
    }
}

/// The same bytes again, if both the plan and the provider's key window still allow it then.
fn repeat(policy: &Policy, history: &History, due_in_ms: u64) -> Next {
    if !in_window(policy, history, due_in_ms) {
        return Next::Held { why: Why::KeyWindowPassed };
    }
    if !policy.retry.allows(history.failures, history.failing_ms) {
        return Next::Held { why: Why::PlanExhausted };
    }
    Next::Unknown { due_in_ms }
}

/// Whether a send in `due_in_ms` falls inside the provider's key window.
pub fn in_window(policy: &Policy, history: &History, due_in_ms: u64) -> bool {
    policy.key_window_ms.is_none_or(|window| history.elapsed_ms.saturating_add(due_in_ms) < window)
}

fn refused(policy: &Policy, history: &History, draw: u32) -> Next {
    if policy.retry.allows(history.failures, history.failing_ms) {
        Next::Waiting { due_in_ms: policy.retry.backoff_ms(history.failures, draw) }
    } else {
        Next::Held { why: Why::PlanExhausted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn policy(on_unknown: OnUnknown) -> Policy {
        Policy {
            on_unknown,
            retry: Retry::new(5, 10, 1_000, 100_000).unwrap(),
            key_window_ms: Some(50_000),
        }
    }

    fn outcome() -> impl Strategy<Value = Outcome> {
        prop_oneof![
            Just(Outcome::NotApplied),
            prop::option::of(0_u64..10_000_000)
                .prop_map(|retry_after_ms| Outcome::Throttled { retry_after_ms }),
            Just(Outcome::Rejected),
            Just(Outcome::Halted),
            Just(Outcome::Unknown),
            Just(Outcome::Done(Value::Null)),
        ]
    }

    fn rule() -> impl Strategy<Value = OnUnknown> {
        prop_oneof![
            Just(OnUnknown::RetrySameKey),
            Just(OnUnknown::Hold),
            Just(OnUnknown::AssumeDone)
        ]
    }

    fn blank() -> History {
        History {
            attempts: 0,
            failures: 0,
            elapsed_ms: 0,
            failing_ms: 0,
            was_unknown: false,
            takeovers: 0,
        }
    }

    proptest! {
        /// A plan is exhausted by failures alone: by as many as it allows, or by an unbroken row of
        /// them that is longer than it allows. Nothing else ends the tries but the key's window.
        #[test]
        fn only_failures_exhaust_a_plan(
            seen in prop::collection::vec((outcome(), 1_u64..90_000), 1..40), draw: u32, window: bool,
        ) {
            let window = window.then_some(50_000);
            let policy = Policy { key_window_ms: window, ..policy(OnUnknown::RetrySameKey) };
            let mut history = blank();
            let mut failing = false;
            for (outcome, took) in seen {
                let failed = outcome.class().is_failure();
                history.attempts += 1;
                history.failures += u32::from(failed);
                history.elapsed_ms += took;
                history.failing_ms = if failing { history.failing_ms + took } else { 0 };
                let exhausted = failed && (history.failures >= 5 || history.failing_ms > 100_000);
                let next = next_step(&policy, &history, &outcome, draw);
                let held = matches!(next, Next::Held { why: Why::PlanExhausted });
                prop_assert!(!held || exhausted, "{:?} {:?}", history, outcome);
                let late = matches!(next, Next::Held { why: Why::KeyWindowPassed });
                prop_assert!(!exhausted || held || late, "{:?} {:?}", history, outcome);
                if matches!(next, Next::Done { .. } | Next::Held { .. } | Next::Rejected) {
                    break;
                }
                history.was_unknown |= outcome == Outcome::Unknown;
                failing = failed;
            }
        }

        /// Whatever follows an unknown attempt, no outcome but a success makes it look applied or
        /// refused for sure, and nothing is ever sent again outside `retry_same_key`.
        #[test]
        fn unknown_is_sticky(
            rule in rule(), seen in prop::collection::vec(outcome(), 1..30), draw: u32, step in 1_u64..20_000,
        ) {
            let policy = policy(rule);
            let mut history = blank();
            for outcome in seen {
                history.attempts += 1;
                history.failures += u32::from(outcome.class().is_failure());
                let next = next_step(&policy, &history, &outcome, draw);
                let unknown = history.was_unknown || outcome == Outcome::Unknown;
                let success = matches!(outcome, Outcome::Done(_));
                match &next {
                    Next::Waiting { .. } => prop_assert!(!unknown),
                    Next::Rejected => prop_assert!(!unknown && outcome == Outcome::Rejected),
                    Next::Halted { was_unknown } => prop_assert_eq!(*was_unknown, unknown),
                    Next::Done { .. } => prop_assert!(success || (unknown && rule == OnUnknown::AssumeDone)),
                    Next::Unknown { due_in_ms } => {
                        prop_assert!(unknown && rule == OnUnknown::RetrySameKey);
                        prop_assert!(history.elapsed_ms + due_in_ms < 50_000);
                    }
                    Next::Held { .. } => prop_assert!(!success),
                }
                if matches!(next, Next::Done { .. } | Next::Held { .. } | Next::Rejected) {
                    break;
                }
                history.was_unknown = unknown;
                history.elapsed_ms += step;
            }
        }

        #[test]
        fn a_dead_workers_claim_is_never_free(rule in rule(), elapsed in 0_u64..200_000, takeovers in 0_u16..6, draw: u32) {
            let history = History { attempts: 1, elapsed_ms: elapsed, takeovers, ..blank() };
            let next = after_death(&policy(rule), &history, draw);
            let allowed = match next {
                Next::Unknown { .. } => rule == OnUnknown::RetrySameKey && elapsed < 50_000,
                Next::Held { .. } => true,
                Next::Done { .. } => rule == OnUnknown::AssumeDone,
                Next::Waiting { .. } | Next::Rejected | Next::Halted { .. } => false,
            };
            prop_assert!(allowed);
            if takeovers >= TAKEOVERS_MAX {
                prop_assert_eq!(next, Next::Held { why: Why::TakenOverTooOften });
            }
        }
    }

    #[test]
    fn p11_past_the_key_window_nothing_is_sent_again() {
        let late =
            History { attempts: 1, failures: 1, elapsed_ms: 60_000, was_unknown: true, ..blank() };
        let next = next_step(&policy(OnUnknown::RetrySameKey), &late, &Outcome::Unknown, 0);
        assert_eq!(next, Next::Held { why: Why::KeyWindowPassed });
    }

    #[test]
    fn b2_a_refused_credential_stops_the_lane_and_rejects_nothing() {
        let first = History { attempts: 1, ..blank() };
        let next = next_step(&policy(OnUnknown::Hold), &first, &Outcome::Halted, 0);
        assert_eq!(next, Next::Halted { was_unknown: false });
    }

    #[test]
    fn a_refusal_after_hours_of_throttling_is_the_first_of_its_plan() {
        let hours = 2 * 3_600_000;
        let many = History { attempts: 500, elapsed_ms: hours, ..blank() };
        let throttled = Outcome::Throttled { retry_after_ms: Some(2_000) };
        let next = next_step(&policy(OnUnknown::Hold), &many, &throttled, 0);
        assert_eq!(next, Next::Waiting { due_in_ms: 2_000 });
        let refused = History { attempts: 501, failures: 1, ..many };
        let next = next_step(&policy(OnUnknown::Hold), &refused, &Outcome::NotApplied, u32::MAX);
        assert_eq!(next, Next::Waiting { due_in_ms: 9 }, "the back-off begins at its first step");
    }
}
