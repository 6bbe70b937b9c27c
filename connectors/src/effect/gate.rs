//! The gate between a request and the wire.
//!
//! A connection asks for a request's body only once it has the request in hand: connected, the head
//! in its buffer, nothing written yet. That is the last moment at which a request can be held back,
//! and the gate is asked there. It answers once, so afterwards it is known whether anything left.
//! Never: opens after it was shut, whichever thread comes first.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

const WAITING: u8 = 0;
const OPENED: u8 = 1;
const REFUSED: u8 = 2;
const SHUT: u8 = 3;

/// What became of a request at its gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    /// It never came to the gate, and cannot pass any more.
    NeverCame,
    /// The sender's right to send had ended.
    Refused,
    /// It passed: bytes may be on the wire.
    Passed,
}

/// One request's gate, shared by the sender and the connection.
#[derive(Debug)]
pub(super) struct Gate<F> {
    state: AtomicU8,
    may_send: F,
}

impl<F: Fn() -> bool> Gate<F> {
    pub(super) fn new(may_send: F) -> Arc<Self> {
        Arc::new(Self { state: AtomicU8::new(WAITING), may_send })
    }

    /// Whether the sender still has the right to send, without passing.
    pub(super) fn may_send(&self) -> bool {
        (self.may_send)()
    }

    /// Passes, if it is not shut and the sender still may send.
    pub(super) fn pass(&self) -> bool {
        let next = if self.may_send() { OPENED } else { REFUSED };
        let won =
            self.state.compare_exchange(WAITING, next, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        won && next == OPENED
    }

    /// Shuts the gate for whoever has not passed, and says what happened at it.
    pub(super) fn shut(&self) -> Passage {
        match self.state.compare_exchange(WAITING, SHUT, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) | Err(SHUT) => Passage::NeverCame,
            Err(REFUSED) => Passage::Refused,
            Err(_) => Passage::Passed,
        }
    }
}

/// Shuts a gate when its sender is dropped: a call that nobody waits for any more must not begin.
#[derive(Debug)]
pub(super) struct ShutOnDrop<'gate, F: Fn() -> bool>(pub(super) &'gate Gate<F>);

impl<F: Fn() -> bool> Drop for ShutOnDrop<'_, F> {
    fn drop(&mut self) {
        self.0.shut();
    }
}

// --------------------------------------------------------------------------------------------- //

/// A body that passes the gate before it gives its bytes. Must not be empty: an empty body is never
/// asked for.
pub(super) struct GatedBody<F> {
    gate: Arc<Gate<F>>,
    bytes: Option<Bytes>,
}

/// The connection came to a gate that is shut.
#[derive(Debug, thiserror::Error)]
#[error("the request was held back before its first byte")]
pub(super) struct HeldBack;

impl<F> GatedBody<F> {
    pub(super) fn new(gate: Arc<Gate<F>>, bytes: Bytes) -> Self {
        Self { gate, bytes: Some(bytes) }
    }
}

impl<F: Fn() -> bool> Body for GatedBody<F> {
    type Data = Bytes;
    type Error = HeldBack;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HeldBack>>> {
        let Some(bytes) = self.bytes.take() else {
            return Poll::Ready(None);
        };
        let passed = self.gate.pass();
        Poll::Ready(Some(if passed { Ok(Frame::data(bytes)) } else { Err(HeldBack) }))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.bytes.as_ref().map_or(0, Bytes::len);
        SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_shuts_first_decides() {
        let gate = Gate::new(|| true);
        assert!(gate.pass());
        assert_eq!(gate.shut(), Passage::Passed);

        let gate = Gate::new(|| true);
        assert_eq!(gate.shut(), Passage::NeverCame);
        assert!(!gate.pass());
        assert_eq!(gate.shut(), Passage::NeverCame);

        let gate = Gate::new(|| false);
        assert!(!gate.pass());
        assert_eq!(gate.shut(), Passage::Refused);
    }

    #[test]
    fn a_dropped_sender_shuts_its_gate() {
        let gate = Gate::new(|| true);
        drop(ShutOnDrop(&*gate));
        assert!(!gate.pass());
    }

    #[test]
    fn a_request_passes_or_is_shut_out_and_never_both() {
        for _ in 0..2_000 {
            let gate = Gate::new(|| true);
            let connection = Arc::clone(&gate);
            let passed = std::thread::scope(|scope| {
                let passed = scope.spawn(move || connection.pass());
                let seen = gate.shut();
                (passed.join().unwrap(), seen)
            });
            assert!(matches!(passed, (true, Passage::Passed) | (false, Passage::NeverCame)));
        }
    }
}
