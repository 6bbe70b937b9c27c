//! Decides a batch: what each event means, and all that is to be written for it.
//!
//! Reads: a connector, events in the order of their records, and what the database knows of them.
//! Gives: a [`Plan`]. Performs nothing. Several events of one entity are folded in order, so that the
//! second sees what the first made of it.
//! Invariant: equal inputs give equal plans, so redelivery and a redo after a lost race are safe.

mod again;
mod fold;
mod forgotten;
pub mod known;
mod line;
mod owed;
pub mod plan;
mod release;
mod state;
mod verdict;
mod waits;

pub use again::{Decided, OwedAgain};
pub use fold::{decide, decide_with};
pub use known::{DeferredRow, EffectRow, EntityRow, InboxRow, Known, Place, Releases, Waits};
pub use line::ledger_line;
pub use owed::{Refusal, undone_keys};
pub use plan::{
    Decision, DeferredNew, EffectNew, Ending, EntityWrite, InboxNew, LedgerNew, Moved, ParkReason,
    ParkedNew, PayloadNew, Plan, Released, WaitCause,
};
pub use verdict::{Verdict, verdict};
pub use waits::releasable;

use crate::event::Event;
use crate::expr::Scope;

/// One event to decide, with the record that it stands in.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub event: &'a Event,
    /// Event value, headers and coordinates.
    pub scope: Scope<'a>,
    pub place: Place,
    /// How old its record says that it is, by the database's clock; `None` where nobody asked.
    pub age_ms: Option<u64>,
}
