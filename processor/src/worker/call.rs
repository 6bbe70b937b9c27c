//! One call of a provider, outside any transaction: a send, or a look-up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oncely_connectors::effect::performer::{Asked, Performed};
use oncely_core::effect::lookup::{Finding, LookedUp};
use oncely_core::effect::next::{Act, Why, act};
use oncely_core::effect::outcome::{Attempt, Outcome};

use super::claims::Held;
use super::lane::Lane;
use super::lease::Lease;
use super::moved;
use crate::clock;
use crate::crash::{self, Step};
use crate::task::Panicked;

/// How a claim ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) held: Held,
    pub(super) how: How,
    /// Since the claim was taken up.
    pub(super) took: Duration,
}

impl Ended {
    /// How a call's task ended: after a panic in there, nobody knows what became of the claim that it held.
    pub(super) fn of_task(end: Result<Self, Panicked>, lost: Held) -> Self {
        let panicked = |_| Self { held: lost, how: How::panicked(), took: Duration::ZERO };
        end.unwrap_or_else(panicked)
    }
}

#[derive(Debug)]
pub(super) enum How {
    Attempted(Attempt),
    /// The provider was asked whether an earlier attempt was applied.
    LookedUp(LookedUp),
    /// Not one byte left: the lease had ended. The claim goes back.
    Unsent,
    /// There is no request that could be sent, for this reason: that is no attempt.
    Refused(String),
    /// Nothing may be sent again, and nobody can be asked.
    Held(Why),
    /// It may not go to the host that the file now names, for this reason.
    Moved(String),
}

impl How {
    /// The call's task was lost: nobody knows how far it had come.
    fn panicked() -> Self {
        let text = "the call panicked; the log names the place".to_owned();
        Self::Attempted(Attempt { outcome: Outcome::Unknown, status: None, text })
    }

    /// The status code of the answer, if there was one that has it.
    pub(super) const fn status(&self) -> Option<u16> {
        match self {
            Self::Attempted(attempt) => attempt.status,
            Self::LookedUp(looked_up) => looked_up.status,
            Self::Unsent | Self::Refused(_) | Self::Held(_) | Self::Moved(_) => None,
        }
    }
}

/// Sends a claimed effect once, or asks for it once.
pub(super) async fn call(lane: &Arc<Lane>, held: Held, lease: &Lease) -> Ended {
    let begun = clock::now();
    // A claim that lay about is as old as it is: the key's window goes on meanwhile.
    let history = held.claim.history.aged(clock::since(held.since));
    let how = match act(&lane.policy, &history) {
        Act::Send => send(lane, &held, lease).await,
        Act::LookUp => look_up(lane, &held, lease).await,
        Act::Hold(why) => How::Held(why),
    };
    Ended { held, how, took: clock::since(begun) }
}

async fn send(lane: &Arc<Lane>, held: &Held, lease: &Lease) -> How {
    let claim = &held.claim;
    if let Some(why) = &held.unrenderable {
        return How::Refused(why.clone());
    }
    let request = match &claim.request {
        Some(Ok(request)) => request,
        Some(Err(why)) => return How::Refused(format!("the stored request cannot be read: {why}")),
        None => {
            return How::Refused(
                "the request was removed by retention before it could be sent".to_owned(),
            );
        }
    };
    if let Some(moved) = lane.performer.moved(request) {
        // What may go there was turned when it was claimed: this one goes back, to be claimed anew.
        return moved::note(&moved, &claim.history).map_or(How::Unsent, How::Moved);
    }
    if let Some(why) = lane.endpoints.as_ref().and_then(|endpoints| endpoints.refusal(request)) {
        return How::Refused(why);
    }
    let (lease, worker, is_connected) = (lease.clone(), held.worker, AtomicBool::new(false));
    let this = Arc::clone(lane);
    // Asked at the start, and once more when the first byte is the next thing to happen.
    let may_send = move || {
        if !is_connected.swap(true, Ordering::Relaxed) {
            crash::before_of(Step::Connect, || [&*this.name]);
            return lease.may_send(worker);
        }
        crash::after_of(Step::Connect, || [&*this.name]);
        let may_send = lease.may_send(worker);
        crash::before_of(Step::Request, || [&*this.name]);
        crash::soon_after_of(Step::Request, &this.name);
        may_send
    };
    match lane.performer.perform(&claim.key, &claim.tenant, request, may_send).await {
        Performed::Attempted(attempt) => {
            if let Some(endpoints) = &lane.endpoints {
                endpoints.answered(request, &attempt);
            }
            How::Attempted(attempt)
        }
        Performed::NotSent => How::Unsent,
    }
}

async fn look_up(lane: &Arc<Lane>, held: &Held, lease: &Lease) -> How {
    let request = match &held.lookup {
        Some(Ok(request)) => request,
        Some(Err(why)) => {
            let (finding, text) = (Finding::Unaskable, why.clone());
            return How::LookedUp(LookedUp { finding, status: None, text });
        }
        // An adopted claim goes back, and is rendered when it is claimed anew.
        None => return How::Unsent,
    };
    let (lease, worker) = (lease.clone(), held.worker);
    let key = &held.claim.key;
    crash::before_of(Step::LookUp, || [&*lane.name]);
    match lane.performer.look_up(key, request, move || lease.may_send(worker)).await {
        Asked::Answered(looked_up) => {
            crash::after_of(Step::LookUp, || [&*lane.name]);
            let is_missing = looked_up.finding == Finding::NotFound;
            // That one host does not know it says nothing of another.
            let moved = if is_missing { moved::moved(lane, held) } else { None };
            let why = moved.and_then(|moved| moved::note(&moved, &held.claim.history));
            why.map_or(How::LookedUp(looked_up), How::Moved)
        }
        Asked::NotAsked => How::Unsent,
    }
}

#[cfg(test)]
mod tests {
    use oncely_core::connector::{OnNotFound, OnUnknown};
    use oncely_core::effect::marks::Marks;
    use oncely_core::effect::next::{Asking, Next, Policy, next_step};
    use oncely_core::effect::retry::Retry;
    use oncely_core::key::Key;
    use oncely_core::value::Value;
    use tokio::sync::oneshot;

    use super::*;
    use crate::store::claim::{Claim, Recorded};
    use crate::task;
    use crate::telemetry::Metrics;

    fn held() -> Held {
        let key = Key::from_bytes([7; 16]);
        let claim = Claim {
            key,
            fence: 3,
            event: key,
            lane: key,
            version: 0,
            tenant: "t".into(),
            business_id: "b".into(),
            request: Some(Err("no request".to_owned())),
            marks: None,
            after: Vec::new(),
            history: Recorded::default(),
        };
        Held::new(uuid::Uuid::nil(), 0, claim)
    }

    #[tokio::test]
    async fn w19_a_call_that_panics_leaves_its_claim_unknown_by_the_rule_of_its_class() {
        let (lost, (told, ended)) = (held().without_request(), oneshot::channel());
        let call = async move { panic!("canary with {:?}", held().claim.key) };
        task::spawn_then("call", &Metrics::new().unwrap(), call, move |end| {
            drop(told.send(Ended::of_task(end, lost)));
        });
        let Ended { held, how, .. } = ended.await.unwrap();
        assert_eq!((held.claim.fence, held.claim.request.is_some()), (3, false), "the same claim");
        let How::Attempted(attempt) = how else { panic!("{how:?}") };
        assert_eq!((&attempt.outcome, attempt.status), (&Outcome::Unknown, None));
        let asking = Some(Asking { settle_ms: 500, on_not_found: OnNotFound::Resend });
        let next = |on_unknown, asking| {
            let retry = Retry::new(5, 10, 1_000, 100_000).unwrap();
            let marks = Marks::default();
            let policy = Policy { on_unknown, retry, key_window_ms: None, asking, marks };
            let is_failure = attempt.outcome.class().is_failure();
            let history = held.claim.history.after_attempt(0, is_failure);
            next_step(&policy, &history, &attempt.outcome, 0)
        };
        assert!(matches!(next(OnUnknown::RetrySameKey, None), Next::Unknown { .. }), "A: again");
        assert!(matches!(next(OnUnknown::Reconcile, asking), Next::Asking { .. }), "B: asked for");
        assert_eq!(next(OnUnknown::Hold, None), Next::Held { why: Why::UnknownOutcome }, "C: held");
        let done = Next::Done { result: Value::Null };
        assert_eq!(next(OnUnknown::AssumeDone, None), done, "as the file declares");
    }
}
