//! Lanes: one per effect of a connector, with its free slots, its rate, and its circuit.
//!
//! A claim is made only into a free slot, so what is claimed is about to be sent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncely_connectors::effect::performer::{Moved, Performer};
use oncely_core::connector::{CallRule, Limits, Rate};
use oncely_core::effect::circuit::{Cause, Circuit, OUTAGE_AFTER, Sign, Turned};
use oncely_core::effect::lookup::Finding;
use oncely_core::effect::next::{HALT_MS, Policy};
use oncely_core::effect::outcome::OutcomeClass;
use oncely_core::key::Key;

use super::call::How;
use super::endpoints::Endpoints;
use crate::clock::{self, Moment};
use crate::telemetry::Lasting;

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
    made: Moment,
    state: Mutex<State>,
    /// Effects of this lane may be due in the database, beyond those claimed.
    backlog: AtomicBool,
    /// With the circuit open, anything is left that can try whether that is over.
    owed: AtomicBool,
    /// It was told that stored requests go to another host than when they were made.
    told_moved: AtomicBool,
    /// What the log says while calls do not go through.
    off: Lasting,
}

#[derive(Debug)]
struct State {
    in_use: u32,
    /// Calls that are over and not on record yet.
    settling: u32,
    /// Claims of what came next in its order, since one was passed over.
    next: u32,
    tokens: Tokens,
    circuit: Circuit,
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
            made: clock::now(),
            state: Mutex::new(State {
                in_use: 0,
                settling: 0,
                next: 0,
                tokens: Tokens::full(call.limits.rate),
                // The endpoints of webhooks are of many owners: one that is gone stops no other.
                circuit: Circuit::new(Endpoints::of(call).is_none(), HALT_MS),
                closed: false,
            }),
            backlog: AtomicBool::new(true),
            owed: AtomicBool::new(true),
            told_moved: AtomicBool::new(false),
            off: Lasting::default(),
        }
    }

    /// Takes up to `want` free slots, as far as rate and circuit allow; gives how many.
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
        let calls = state.circuit.calls(self.limits.concurrency, self.now_ms());
        let free = calls.saturating_sub(state.in_use).saturating_sub(left);
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
        if let Some(sign) = sign(how) {
            let (now_ms, draw) = (self.now_ms(), super::draw());
            let limit = self.limits.concurrency;
            let turned = self.state().circuit.ended(sign, limit, now_ms, draw);
            if let Some(turned) = turned {
                self.tell(turned, key, how);
            }
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

    /// Said once, however many calls find it so; [`Lane::tell_lasting`] says that it goes on.
    fn tell(&self, turned: Turned, key: Key, how: &How) {
        let (effect, look) = (&*self.name, super::prepared::look(key));
        let status_code = how.status();
        let lasted_s = match turned {
            Turned::Off(_) => self.off.on().map(clock::seconds),
            Turned::On(_) => self.off.off().map(clock::seconds),
        };
        match turned {
            Turned::Off(Cause::Refusal) => tracing::error!(
                effect,
                status_code,
                look,
                "effect halted: the provider refuses credentials or configuration; one call at a \
                 time tries whether they were mended"
            ),
            Turned::On(Cause::Refusal) => {
                tracing::info!(
                    effect,
                    lasted_s,
                    "effect goes on: credentials and configuration are right"
                );
            }
            Turned::Off(Cause::Outage) => tracing::warn!(
                effect,
                status_code,
                look,
                failures_in_a_row = OUTAGE_AFTER,
                "circuit opened: the provider does not answer; one call at a time tries whether it \
                 is back, and what waits keeps its attempts"
            ),
            Turned::On(Cause::Outage) => {
                tracing::info!(
                    effect,
                    lasted_s,
                    "circuit closed: the provider answers; calls grow from one"
                );
            }
        }
    }

    /// While calls do not go through and something waits for that, says so now and then. Whoever comes by often
    /// calls it.
    pub(super) fn tell_lasting(&self) {
        let Some(cause) = self.keeps_waiting() else { return };
        let Some(lasted) = self.off.on() else { return };
        let (effect, lasted_s) = (&*self.name, lasted.as_secs());
        let look = format!("oncely effects list --effect {effect} --status waiting");
        match cause {
            Cause::Refusal => tracing::error!(
                effect,
                lasted_s,
                look,
                "effect still halted: the provider refuses credentials or configuration"
            ),
            Cause::Outage => tracing::warn!(
                effect,
                lasted_s,
                look,
                "circuit still open: the provider does not answer"
            ),
        }
    }

    /// Said once, however many requests are turned.
    pub(super) fn tell_moved(&self, moved: &Moved) {
        if !self.told_moved.swap(true, Ordering::Relaxed) {
            let (effect, from, to) = (&*self.name, &moved.from, &moved.to);
            tracing::info!(
                effect,
                from,
                to,
                "requests that were made for another host go where the connector file says now"
            );
        }
    }

    /// Why calls do not go through, if they do not.
    pub(super) fn open(&self) -> Option<Cause> {
        self.state().circuit.open()
    }

    /// The same where anything waits for it: once all of it is held or final, no call finds out that it is over.
    pub(super) fn keeps_waiting(&self) -> Option<Cause> {
        self.open().filter(|_| self.owed.load(Ordering::Acquire))
    }

    pub(super) fn set_owed(&self, owed: bool) {
        self.owed.store(owed, Ordering::Release);
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(clock::since(self.made).as_millis()).unwrap_or(u64::MAX)
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

/// What the end of a call says of its provider; `None`: nothing was sent to it.
fn sign(how: &How) -> Option<Sign> {
    match how {
        How::Attempted(attempt) => Some(match attempt.outcome.class() {
            OutcomeClass::Done | OutcomeClass::Rejected => Sign::Answered,
            OutcomeClass::Throttled => Sign::Throttled,
            OutcomeClass::NotApplied | OutcomeClass::Unknown => Sign::Failed,
            OutcomeClass::Halted => Sign::Refused,
        }),
        How::LookedUp(looked_up) => match looked_up.finding {
            Finding::Found(_) | Finding::NotFound | Finding::Undecided => Some(Sign::Answered),
            Finding::Unanswered { .. } => Some(Sign::Failed),
            Finding::Halted => Some(Sign::Refused),
            Finding::Unaskable => None,
        },
        How::Unsent | How::Refused(_) | How::Held(_) | How::Moved(_) => None,
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
        let circuit = Circuit::new(true, HALT_MS);
        let mut state = State { in_use: 0, settling: 0, next: 0, tokens, circuit, closed: false };
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
