//! Lanes: one per effect of a connector, with its free slots, its rate, and whether it is halted.
//!
//! A claim is made only into a free slot, so what is claimed is about to be sent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncely_connectors::effect::performer::Performer;
use oncely_core::connector::{CallRule, Limits, Rate};
use oncely_core::effect::lookup::Finding;
use oncely_core::effect::next::{HALT_MS, Policy};
use oncely_core::effect::outcome::OutcomeClass;
use oncely_core::key::Key;

use super::call::How;
use super::endpoints::Endpoints;
use crate::clock::{self, Moment};

/// Of nine slots that come free, one at least goes to what has waited longest.
const NEXT_IN_A_ROW: u32 = 8;

/// One effect of one connector, as this process performs it.
#[derive(Debug)]
pub(super) struct Lane {
    /// Index of the rule in the connector.
    pub(super) rule: usize,
    pub(super) name: Box<str>,
    pub(super) policy: Policy,
    pub(super) performer: Performer,
    /// For webhooks: endpoints that are gone.
    pub(super) endpoints: Option<Endpoints>,
    /// What one call may take.
    pub(super) timeout_ms: u64,
    /// Every answer is paid for, and says what it took.
    pub(super) asks_model: bool,
    limits: Limits,
    state: Mutex<State>,
    /// Effects of this lane may be due in the database, beyond those claimed.
    backlog: AtomicBool,
}

#[derive(Debug)]
struct State {
    in_use: u32,
    /// Calls that are over and not on record yet.
    settling: u32,
    /// Claims of what came next in its order, since one was passed over.
    next: u32,
    tokens: Tokens,
    halted_until: Option<Moment>,
    closed: bool,
}

impl State {
    /// Whether this is the turn of what has waited, instead of what comes next in its order.
    const fn passes_over(&mut self) -> bool {
        let over = self.next >= NEXT_IN_A_ROW;
        self.next = if over { 0 } else { self.next.saturating_add(1) };
        over
    }
}

impl Lane {
    pub(super) fn new(rule: usize, name: &str, call: &CallRule, performer: Performer) -> Self {
        Self {
            rule,
            name: name.into(),
            policy: Policy::of(call),
            performer,
            endpoints: Endpoints::of(call),
            timeout_ms: call.timeout.total_ms,
            asks_model: call.model.is_some(),
            limits: call.limits,
            state: Mutex::new(State {
                in_use: 0,
                settling: 0,
                next: 0,
                tokens: Tokens::full(call.limits.rate),
                halted_until: None,
                closed: false,
            }),
            backlog: AtomicBool::new(true),
        }
    }

    /// Takes up to `want` free slots, as far as the rate allows; gives how many. After a halt one
    /// call at a time is tried, until one is answered as it should be.
    pub(super) fn reserve(&self, want: usize) -> usize {
        self.reserve_beside(want, 0)
    }

    /// The same for what has waited in the database, by a settler that records `mine` calls: the slots of
    /// calls that others are recording are left. What comes next after those is claimed as it is woken;
    /// with the slot gone it would be woken now and claimed later, which is one more write.
    pub(super) fn reserve_due(&self, want: usize, mine: usize) -> usize {
        let others = self.state().settling.saturating_sub(u32::try_from(mine).unwrap_or(u32::MAX));
        self.reserve_beside(want, others)
    }

    /// Takes a slot for what comes next after a call that ended, if one is free. While others wait, now
    /// and then none is given: entities that always have a next effect must not keep back the rest.
    pub(super) fn reserve_next(&self) -> bool {
        if self.has_backlog() && self.state().passes_over() {
            return false;
        }
        self.reserve(1) == 1
    }

    fn reserve_beside(&self, want: usize, left: u32) -> usize {
        if self.endpoints.as_ref().is_some_and(|endpoints| !endpoints.are_known()) {
            return 0;
        }
        let mut state = self.state();
        if state.closed {
            return 0;
        }
        let mut free = self.limits.concurrency.saturating_sub(state.in_use).saturating_sub(left);
        if let Some(until) = state.halted_until {
            if clock::now() < until {
                return 0;
            }
            free = free.min(1_u32.saturating_sub(state.in_use));
        }
        let want = u32::try_from(want).unwrap_or(u32::MAX).min(free);
        let taken = state.tokens.take(want);
        state.in_use = state.in_use.saturating_add(taken);
        usize::try_from(taken).unwrap_or(0)
    }

    /// Takes slots for claims that exist already, whatever the limits say.
    pub(super) fn adopt(&self, slots: usize) {
        let mut state = self.state();
        state.in_use = state.in_use.saturating_add(u32::try_from(slots).unwrap_or(u32::MAX));
    }

    /// A call is over: its slot is free, before the outcome is on record, so that settling takes no part
    /// of the limit. What it says of the lane is taken in first.
    pub(super) fn ended(&self, key: Key, how: &How) {
        match how {
            How::Attempted(attempt) => match attempt.outcome.class() {
                OutcomeClass::Halted => self.halt(key, attempt.status),
                OutcomeClass::Done | OutcomeClass::Rejected => self.unhalt(),
                OutcomeClass::NotApplied | OutcomeClass::Throttled | OutcomeClass::Unknown => {}
            },
            How::LookedUp(looked_up) => match looked_up.finding {
                Finding::Halted => self.halt(key, looked_up.status),
                Finding::Found(_) | Finding::NotFound | Finding::Undecided => self.unhalt(),
                Finding::Unanswered { .. } | Finding::Unaskable => {}
            },
            How::Unsent | How::Refused(_) | How::Held(_) => {}
        }
        let mut state = self.state();
        state.in_use = state.in_use.saturating_sub(1);
        state.settling = state.settling.saturating_add(1);
    }

    /// One of the calls that ended is on record.
    pub(super) fn settled(&self) {
        let mut state = self.state();
        state.settling = state.settling.saturating_sub(1);
    }

    /// Slots were reserved and no call was made: the rate has them back as well.
    pub(super) fn refund(&self, slots: usize) {
        let slots = u32::try_from(slots).unwrap_or(u32::MAX);
        let mut state = self.state();
        state.in_use = state.in_use.saturating_sub(slots);
        state.tokens.give_back(slots);
    }

    /// Stops claiming until the configuration may have been mended. Said once, however many calls
    /// find it so.
    fn halt(&self, key: Key, status_code: Option<u16>) {
        let until = clock::now().checked_add(Duration::from_millis(HALT_MS));
        if std::mem::replace(&mut self.state().halted_until, until).is_none() {
            tracing::error!(
                effect = &*self.name,
                status_code,
                look = super::prepared::look(key),
                "effect halted: the provider refuses credentials or configuration; one call at a \
                 time tries whether they were mended"
            );
        }
    }

    /// A call was answered in a way that shows the configuration to be right.
    fn unhalt(&self) {
        if self.state().halted_until.take().is_some() {
            tracing::info!(
                effect = &*self.name,
                "effect goes on: credentials and configuration are right"
            );
        }
    }

    /// Nothing is claimed any more: the process is ending.
    pub(super) fn close(&self) {
        self.state().closed = true;
    }

    pub(super) fn set_backlog(&self, backlog: bool) {
        self.backlog.store(backlog, Ordering::Release);
    }

    pub(super) fn has_backlog(&self) -> bool {
        self.backlog.load(Ordering::Acquire)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// --------------------------------------------------------------------------------------------- //

/// A token bucket that holds one period's calls at most.
#[derive(Debug)]
struct Tokens {
    rate: Option<Rate>,
    left: u32,
    filled: Moment,
}

impl Tokens {
    fn full(rate: Option<Rate>) -> Self {
        Self { rate, left: rate.map_or(0, |rate| rate.calls), filled: clock::now() }
    }

    fn take(&mut self, want: u32) -> u32 {
        let Some(rate) = self.rate else { return want };
        let elapsed = u64::try_from(clock::since(self.filled).as_millis()).unwrap_or(u64::MAX);
        let earned =
            elapsed.saturating_mul(rate.calls.into()).checked_div(rate.per_ms).unwrap_or(0);
        if earned > 0 {
            // Only the time that earned something is spent: the rest of it counts next time.
            let spent = earned.saturating_mul(rate.per_ms).checked_div(rate.calls.into());
            let spent = Duration::from_millis(spent.unwrap_or(0));
            self.filled = self.filled.checked_add(spent).unwrap_or_else(clock::now);
            let earned = u32::try_from(earned).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(earned).min(rate.calls);
        }
        let taken = want.min(self.left);
        self.left = self.left.saturating_sub(taken);
        taken
    }

    fn give_back(&mut self, tokens: u32) {
        let Some(rate) = self.rate else { return };
        self.left = self.left.saturating_add(tokens).min(rate.calls);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_nine_slots_one_goes_to_what_has_waited() {
        let tokens = Tokens::full(None);
        let mut state =
            State { in_use: 0, settling: 0, next: 0, tokens, halted_until: None, closed: false };
        let over: Vec<bool> = (0..27).map(|_| state.passes_over()).collect();
        assert_eq!(over.iter().filter(|over| **over).count(), 3);
        assert_eq!(over.iter().position(|over| *over), Some(8));
    }

    #[test]
    fn a_rate_is_spent_by_calls_and_not_by_looking() {
        let mut tokens = Tokens::full(Some(Rate { calls: 3, per_ms: 3_600_000 }));
        assert_eq!(tokens.take(2), 2);
        tokens.give_back(2);
        assert_eq!(tokens.take(5), 3);
        assert_eq!(tokens.take(1), 0);
        tokens.give_back(50);
        assert_eq!(tokens.take(50), 3, "never more than one period's calls");
    }

    #[test]
    fn without_a_rate_nothing_is_counted() {
        assert_eq!(Tokens::full(None).take(1_000_000), 1_000_000);
    }
}
