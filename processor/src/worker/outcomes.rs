//! The way to the settlers: what ends in one lane goes to one settler, in the order in which it ended.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::call::Ended;

/// Sends outcomes; clones share it. The settlers end when the last clone is gone.
#[derive(Clone, Debug)]
pub(super) struct Outcomes(Arc<[mpsc::UnboundedSender<Ended>]>);

impl Outcomes {
    /// The way, and its ends: one for each settler.
    pub(super) fn to(settlers: usize) -> (Self, Vec<mpsc::UnboundedReceiver<Ended>>) {
        let (senders, ends): (Vec<_>, Vec<_>) =
            (0..settlers.max(1)).map(|_| mpsc::unbounded_channel()).unzip();
        (Self(senders.into()), ends)
    }

    /// Without its settler, which outlives every call, a claim is found by its lease.
    pub(super) fn send(&self, ended: Ended) {
        let last = ended.held.claim.lane.as_bytes().last().copied().map_or(0, usize::from);
        if let Some(settler) = last.checked_rem(self.0.len()).and_then(|index| self.0.get(index)) {
            drop(settler.send(ended));
        }
    }
}
