//! What follows from an attempt, from a look-up, and from the death of a claim's worker.
//!
//! Reads: an effect's rule, what was recorded of it, and what is now seen. Gives: the state that
//! follows. **Unknown is sticky**: once any attempt may have been applied, only a success, a look-up
//! that is believed, or a person ends it; a later refusal, throttle, rejection or exhausted plan leaves
//! it unknown.

use super::lookup::Finding;
use super::marks::Marks;
use super::outcome::Outcome;
use super::retry::Retry;
use crate::connector::{CallRule, OnNotFound, OnUnknown};
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
    /// `None`: the provider cannot be asked.
    pub asking: Option<Asking>,
    /// How requests are sent and asked for now.
    pub marks: Marks,
}

/// How a provider is believed.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    /// How long after a send, or after its worker was declared dead, "not found" is not believed yet.
    pub settle_ms: u64,
    pub on_not_found: OnNotFound,
}

impl Policy {
    pub fn of(rule: &CallRule) -> Self {
        let asking = rule.lookup.as_ref().map(|lookup| Asking {
            settle_ms: lookup.settle_ms,
            on_not_found: lookup.on_not_found,
        });
        // What begins inside the window must also arrive inside it.
        let under_way =
            rule.timeout.total_ms.saturating_add(rule.profile.applies_within_ms.unwrap_or(0));
        Self {
            on_unknown: rule.on_unknown,
            retry: rule.retry,
            key_window_ms: rule.profile.key_window_ms.map(|ms| ms.saturating_sub(under_way)),
            asking,
            marks: Marks::of(rule),
        }
    }
}

/// What is on record of an effect when something comes in.
#[derive(Clone, Copy, Debug, Default)]
pub struct History {
    /// Attempts made, the one now seen included.
    pub attempts: u32,
    /// Those that the retry plan counts, the one now seen included if it is one.
    pub failures: u32,
    /// Look-ups since the last send, the one now seen included.
    pub lookups: u32,
    /// Since the first send (database time).
    pub elapsed_ms: u64,
    /// Since the first failure that no other answer has followed; zero if there is none yet.
    pub failing_ms: u64,
    /// When it was claimed: since the last attempt that may have been applied, or since the worker of
    /// one was declared dead (database time).
    pub quiet_ms: u64,
    /// An attempt before this one may have been applied.
    pub was_unknown: bool,
    /// It was decided to ask before anything is sent again.
    pub asks: bool,
    pub takeovers: u16,
    /// A failover of the database may have lost what became of it.
    pub suspect: bool,
    /// How it was sent, where an attempt may have been applied. `None`: as it would be now.
    pub sent: Option<Marks>,
}

impl History {
    fn was_sent_by(&self, mark: fn(Marks) -> Option<u64>, policy: &Policy) -> bool {
        self.sent.is_none_or(|sent| mark(sent) == mark(policy.marks))
    }

    /// What was sent carried the key as it is sent now.
    fn has_key(&self, policy: &Policy) -> bool {
        self.was_sent_by(|marks| marks.key, policy)
    }

    /// What was sent carried what is asked by now.
    fn can_be_found(&self, policy: &Policy) -> bool {
        self.was_sent_by(|marks| marks.lookup, policy)
    }
}

/// What a claimed effect is claimed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Send,
    /// Ask the provider whether an earlier attempt was applied.
    LookUp,
    /// Nothing may be done without a person.
    Hold(Why),
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
    /// Ask the provider then.
    Asking {
        due_in_ms: u64,
    },
    Held {
        why: Why,
    },
    Rejected,
    /// Back to where it was, and the lane stops until the configuration is mended.
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
    NobodySaid,
    Unaskable,
    SentOtherwise,
    LostInFailover,
    /// Of a new effect, as are the next ones: it may have been owed and done before.
    OwedBefore,
    /// Of a compensation, as is the next one.
    UndoneForgotten,
    UndoneRekeyed,
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
            Self::NobodySaid => {
                "the provider may have applied it, and no look-up told for as long as retries may last"
            }
            Self::Unaskable => {
                "the provider may have applied it, and the look-up cannot be made any more"
            }
            Self::SentOtherwise => {
                "the provider may have applied it, and it was sent before the connector file had the key \
                 or the look-up that it has now, by which the provider cannot know it"
            }
            Self::LostInFailover => {
                "a failover of the database may have lost that it was sent, and the provider cannot be asked"
            }
            Self::OwedBefore => {
                "a failover of the database may have lost that the event owed it before, and that it was done"
            }
            Self::UndoneForgotten => {
                "what it undoes is not on record and may be forgotten: its entity is older than ids are remembered, \
                 or a failover may have lost it; where that was done, undo it and resolve this as done, else as skipped"
            }
            Self::UndoneRekeyed => {
                "what it undoes is not on record under the key that the connector file makes now, and until a change of \
                 the file its `key` or its id was another one: find it under that (oncely explain, of the event that \
                 owed it); where it was done, undo it and resolve this as done, else as skipped"
            }
        }
    }
}

/// What a claim is for. Once an attempt may have been applied, something is sent again only with a key
/// that the provider still knows.
pub fn act(policy: &Policy, history: &History) -> Act {
    if !history.was_unknown {
        return Act::Send;
    }
    let ask = |why| if policy.asking.is_some() { Act::LookUp } else { Act::Hold(why) };
    match policy.on_unknown {
        OnUnknown::RetrySameKey if history.asks => ask(Why::UnknownOutcome),
        OnUnknown::RetrySameKey if !history.has_key(policy) => ask(Why::SentOtherwise),
        OnUnknown::RetrySameKey if in_window(policy, history, 0) => Act::Send,
        OnUnknown::RetrySameKey => ask(Why::KeyWindowPassed),
        OnUnknown::Reconcile => ask(Why::UnknownOutcome),
        // Nothing of it may ever have been sent: to count that as done would lose it.
        OnUnknown::Hold | OnUnknown::AssumeDone if history.suspect => {
            Act::Hold(Why::LostInFailover)
        }
        // The file said otherwise when it became unknown.
        OnUnknown::Hold | OnUnknown::AssumeDone => Act::Hold(Why::UnknownOutcome),
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

/// What follows from a look-up. That nothing was found is believed only once nothing that was sent can
/// appear any more.
pub fn after_lookup(policy: &Policy, history: &History, finding: &Finding, draw: u32) -> Next {
    let Some(asking) = policy.asking else {
        return Next::Held { why: Why::UnknownOutcome };
    };
    let backoff_ms = policy.retry.backoff_ms(history.lookups, draw);
    match finding {
        Finding::Found(result) => Next::Done { result: result.clone() },
        Finding::NotFound if !history.can_be_found(policy) => {
            Next::Held { why: Why::SentOtherwise }
        }
        Finding::NotFound if history.quiet_ms < asking.settle_ms => {
            let left_ms = asking.settle_ms.saturating_sub(history.quiet_ms);
            Next::Asking { due_in_ms: backoff_ms.min(left_ms) }
        }
        Finding::NotFound => match asking.on_not_found {
            OnNotFound::Fail => Next::Rejected,
            OnNotFound::Resend if policy.retry.allows(history.failures, 0) => {
                Next::Waiting { due_in_ms: 0 }
            }
            OnNotFound::Resend => Next::Held { why: Why::PlanExhausted },
        },
        Finding::Halted => Next::Halted { was_unknown: true },
        Finding::Unaskable => Next::Held { why: Why::Unaskable },
        Finding::Undecided | Finding::Unanswered { .. } => {
            let overdue_ms = history.quiet_ms.saturating_sub(asking.settle_ms);
            if overdue_ms > policy.retry.elapsed_ms_max() {
                return Next::Held { why: Why::NobodySaid };
            }
            let asked_ms = match finding {
                Finding::Unanswered { retry_after_ms } => retry_after_ms.unwrap_or(0),
                Finding::Found(_)
                | Finding::NotFound
                | Finding::Undecided
                | Finding::Halted
                | Finding::Unaskable => 0,
            };
            Next::Asking { due_in_ms: backoff_ms.max(asked_ms.min(RETRY_AFTER_MS_MAX)) }
        }
    }
}

/// What follows when the worker that held the claim is dead: it may have sent it.
pub fn after_death(policy: &Policy, history: &History, draw: u32) -> Next {
    if history.takeovers >= TAKEOVERS_MAX {
        return Next::Held { why: Why::TakenOverTooOften };
    }
    match policy.on_unknown {
        // Nothing was seen, so there is nothing to wait for: the same key is safe at once.
        OnUnknown::RetrySameKey if !history.asks && in_window(policy, history, 0) => {
            Next::Unknown { due_in_ms: 0 }
        }
        OnUnknown::RetrySameKey => ask(policy, 0, Why::KeyWindowPassed),
        OnUnknown::Reconcile => ask(policy, 0, Why::UnknownOutcome),
        // It may have been claimed only to be held: nothing of it may ever have been sent.
        OnUnknown::Hold | OnUnknown::AssumeDone if history.suspect => {
            Next::Held { why: Why::LostInFailover }
        }
        OnUnknown::Hold | OnUnknown::AssumeDone => unknown(policy, history, draw),
    }
}

fn unknown(policy: &Policy, history: &History, draw: u32) -> Next {
    match policy.on_unknown {
        OnUnknown::RetrySameKey => {
            repeat(policy, history, policy.retry.backoff_ms(history.failures, draw))
        }
        OnUnknown::Reconcile => ask(policy, first_ask_ms(policy, draw), Why::UnknownOutcome),
        OnUnknown::Hold => Next::Held { why: Why::UnknownOutcome },
        OnUnknown::AssumeDone => Next::Done { result: Value::Null },
    }
}

fn still_unknown(policy: &Policy, history: &History, outcome: &Outcome, draw: u32) -> Next {
    match (policy.on_unknown, outcome) {
        (OnUnknown::RetrySameKey | OnUnknown::Reconcile, Outcome::Halted) => {
            Next::Halted { was_unknown: true }
        }
        (OnUnknown::RetrySameKey, Outcome::Throttled { retry_after_ms }) => {
            let asked = retry_after_ms.unwrap_or(0).min(RETRY_AFTER_MS_MAX);
            let due_in_ms = asked.max(policy.retry.backoff_ms(history.attempts, draw));
            if in_window(policy, history, due_in_ms) {
                Next::Unknown { due_in_ms }
            } else {
                ask(policy, first_ask_ms(policy, draw), Why::KeyWindowPassed)
            }
        }
        // A refusal says what this attempt did, not what an earlier one did.
        (OnUnknown::RetrySameKey, Outcome::Rejected) => {
            ask(policy, first_ask_ms(policy, draw), Why::UnknownOutcome)
        }
        (
            OnUnknown::RetrySameKey
            | OnUnknown::Reconcile
            | OnUnknown::Hold
            | OnUnknown::AssumeDone,
            _,
        ) => unknown(policy, history, draw),
    }
}

/// The same bytes again, if both the plan and the provider's key window still allow it then; else the
/// provider is asked.
fn repeat(policy: &Policy, history: &History, due_in_ms: u64) -> Next {
    if !in_window(policy, history, due_in_ms) {
        return ask(policy, due_in_ms, Why::KeyWindowPassed);
    }
    if !policy.retry.allows(history.failures, history.failing_ms) {
        return ask(policy, due_in_ms, Why::PlanExhausted);
    }
    Next::Unknown { due_in_ms }
}

/// Asks the provider, where it can be asked.
fn ask(policy: &Policy, due_in_ms: u64, why: Why) -> Next {
    if policy.asking.is_some() { Next::Asking { due_in_ms } } else { Next::Held { why } }
}

fn first_ask_ms(policy: &Policy, draw: u32) -> u64 {
    policy.retry.backoff_ms(1, draw)
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
mod tests;
