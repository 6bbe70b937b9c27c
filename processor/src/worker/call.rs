//! One call of a provider, outside any transaction.

use std::sync::Arc;
use std::time::Duration;

use oncely_connectors::effect::performer::Performed;
use oncely_core::effect::next::in_window;
use oncely_core::effect::outcome::{Attempt, Outcome};
use oncely_core::effect::request::Request;

use super::claims::Held;
use super::lane::Lane;
use super::lease::Lease;
use crate::clock;

/// How a claim ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) held: Held,
    pub(super) how: How,
    /// Since the claim was taken up.
    pub(super) took: Duration,
}

#[derive(Debug)]
pub(super) enum How {
    Attempted(Attempt),
    /// Not one byte left: the lease had ended. The claim goes back.
    Unsent,
    /// The provider has forgotten the key by now, so the request was not repeated.
    WindowPassed,
}

impl How {
    /// The call's task was lost: nobody knows how far it had come.
    pub(super) fn panicked() -> Self {
        let text = "the call panicked; the log names the place".to_owned();
        Self::Attempted(Attempt { outcome: Outcome::Unknown, status: None, text })
    }
}

/// Sends a claimed effect once.
pub(super) async fn call(lane: &Arc<Lane>, held: Held, lease: &Lease) -> Ended {
    let begun = clock::now();
    let how = perform(lane, &held, lease).await;
    Ended { held, how, took: clock::since(begun) }
}

async fn perform(lane: &Arc<Lane>, held: &Held, lease: &Lease) -> How {
    let claim = &held.claim;
    if claim.history.was_unknown
        && !in_window(&lane.policy, &claim.history.after_attempt(0, false), 0)
    {
        return How::WindowPassed;
    }
    let refused =
        |text: String| How::Attempted(Attempt { outcome: Outcome::Rejected, status: None, text });
    if let Some(why) = &held.unrenderable {
        return refused(why.clone());
    }
    let Some(bytes) = &claim.request else {
        return refused("the request was removed by retention before it could be sent".to_owned());
    };
    let request = match Request::from_bytes(bytes) {
        Ok(request) => request,
        Err(error) => return refused(format!("the stored request cannot be read: {error}")),
    };
    if let Some(why) = lane.endpoints.as_ref().and_then(|endpoints| endpoints.refusal(&request)) {
        return refused(why);
    }
    let (lease, worker) = (lease.clone(), held.worker);
    match lane.performer.perform(&claim.key, &request, move || lease.may_send(worker)).await {
        Performed::Attempted(attempt) => {
            if let Some(endpoints) = &lane.endpoints {
                endpoints.answered(&request, &attempt);
            }
            How::Attempted(attempt)
        }
        Performed::NotSent => How::Unsent,
    }
}
