//! Lanes: one per effect of a connector, with its free slots, its rate, and whether it is halted.
//!
//! A claim is made only into a free slot, so what is claimed is about to be sent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncely_connectors::effect::performer::Performer;
use oncely_core::connector::{CallRule, Limits, Rate};
use oncely_core::effect::next::{HALT_MS, Policy};

use crate::clock::{self, Moment};

/// One effect of one connector, as this process performs it.
#[derive(Debug)]
pub(super) struct Lane {
    /// Index of the rule in the connector.
    pub(super) rule: usize,
    pub(super) name: Box<str>,
    pub(super) policy: Policy,
    pub(super) performer: Performer,
    limits: Limits,
    state: Mutex<State>,
    /// Effects of this lane may be due in the database, beyond those claimed.
    backlog: AtomicBool,
}

#[derive(Debug)]
struct State {
    in_use: u32,
    tokens: Tokens,
    halted_until: Option<Moment>,
    closed: bool,
}

impl Lane {
    pub(super) fn new(rule: usize, name: &str, call: &CallRule, performer: Performer) -> Self {
        Self {
            rule,
            name: name.into(),
            policy: Policy::of(call),
            performer,
            limits: call.limits,
            state: Mutex::new(State {
                in_use: 0,
                tokens: Tokens::full(call.limits.rate),
                halted_until: None,
                closed: false,
            }),
            backlog: AtomicBool::new(true),
        }
    }

    /// Takes up to `want` free slots, as far as the rate allows; gives how many. One slot at a time
    /// while the lane is being tried again after a halt.
    pub(super) fn reserve(&self, want: usize) -> usize {
        let mut state = self.state();
        if state.closed {
            return 0;
        }
        let mut free = self.limits.concurrency.saturating_sub(state.in_use);
        if let Some(until) = state.halted_until {
            if clock::now() < until {
                return 0;
            }
            free = free.min(1);
            state.halted_until = clock::now().checked_add(Duration::from_millis(HALT_MS));
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

    pub(super) fn release(&self, slots: usize) {
        let mut state = self.state();
        state.in_use = state.in_use.saturating_sub(u32::try_from(slots).unwrap_or(u32::MAX));
    }

    /// Stops claiming until the configuration may have been mended.
    pub(super) fn halt(&self) {
        self.state().halted_until = clock::now().checked_add(Duration::from_millis(HALT_MS));
    }

    /// A call was answered in a way that shows the configuration to be right.
    pub(super) fn unhalt(&self) {
        self.state().halted_until = None;
    }

    /// Nothing is claimed any more: the process is ending.
    pub(super) fn close(&self) {
        self.state().closed = true;
    }

    pub(super) fn in_use(&self) -> u32 {
        self.state().in_use
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
            let earned = u32::try_from(earned).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(earned).min(rate.calls);
            self.filled = clock::now();
        }
        let taken = want.min(self.left);
        self.left = self.left.saturating_sub(taken);
        taken
    }
}
