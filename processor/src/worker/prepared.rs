//! What follows from how a claim ended, ready to be recorded. The pure core decides; here it becomes
//! rows and counts.

use std::sync::Arc;
use std::time::Duration;

use oncely_connectors::effect::llm::{self, Tokens};
use oncely_core::effect::lookup::{Finding, FindingClass, LookedUp};
use oncely_core::effect::next::{HALT_MS, Next, Why, after_lookup, next_step};
use oncely_core::effect::outcome::{Attempt, Outcome, OutcomeClass};
use oncely_core::effect::status::Status;
use oncely_core::key::Key;
use oncely_core::render::json;
use oncely_core::value::Value;

use super::Shared;
use super::call::{Ended, How};
use super::claims::Held;
use super::lane::Lane;
use crate::store::settle::Settlement;
use crate::telemetry::{BusinessId, Finished};

/// An outcome with what follows from it.
pub(super) struct Prepared {
    pub(super) held: Held,
    took: Duration,
    seen: Seen,
    /// What a model says that its answer took.
    tokens: Option<Tokens>,
    /// `None`: never sent, the claim goes back.
    pub(super) settlement: Option<Settlement>,
}

/// What is counted.
#[derive(Clone, Copy)]
enum Seen {
    Nothing,
    Attempt(OutcomeClass),
    LookUp(FindingClass),
}

pub(super) fn prepare(shared: &Shared, ended: Ended) -> Prepared {
    let Ended { held, how, took } = ended;
    let lane = shared.lane(held.rule);
    let tokens = answer_of(lane, &how).and_then(llm::tokens);
    let (seen, settlement) = match (how, lane) {
        (How::Unsent, _) | (_, None) => (Seen::Nothing, None),
        (How::Held(why), Some(_)) => (Seen::Nothing, Some(held_back(&held, why))),
        (How::Moved(note), Some(_)) => {
            (Seen::Nothing, Some(Settlement { note, ..unchanged(&held, Status::Held) }))
        }
        (How::Refused(why), Some(lane)) => (Seen::Nothing, Some(refused(lane, &held, why))),
        (How::Attempted(attempt), Some(lane)) => {
            let class = attempt.outcome.class();
            (Seen::Attempt(class), Some(attempted(lane, &held, attempt, took)))
        }
        (How::LookedUp(looked_up), Some(lane)) => {
            let class = looked_up.finding.class();
            (Seen::LookUp(class), Some(answered(lane, &held, looked_up)))
        }
    };
    Prepared { held, took, seen, tokens, settlement }
}

/// What a model answered, where one was asked.
fn answer_of<'h>(lane: Option<&Arc<Lane>>, how: &'h How) -> Option<&'h Value> {
    lane.filter(|lane| lane.asks_model)?;
    let How::Attempted(attempt) = how else { return None };
    attempt.outcome.result()
}

/// Nothing was done; everything but the state stays as it is.
fn unchanged(held: &Held, status: Status) -> Settlement {
    Settlement {
        key: held.claim.key,
        fence: held.claim.fence,
        lane: held.claim.lane,
        status,
        due_in_ms: 0,
        status_code: None,
        note: String::new(),
        was_unknown: held.claim.history.was_unknown,
        asks: false,
        unknown_ms: None,
        result: None,
        seen: OutcomeClass::Unknown.as_str(),
        succeeded: false,
        on_record: false,
        tries: 0,
        failures: 0,
        lookups: 0,
    }
}

fn held_back(held: &Held, why: Why) -> Settlement {
    Settlement { note: why.as_str().to_owned(), ..unchanged(held, Status::Held) }
}

/// Nothing was sent: what may be on the way from earlier is as unknown as it was.
fn refused(lane: &Lane, held: &Held, why: String) -> Settlement {
    let history = held.claim.history.when_claimed();
    let next = next_step(&lane.policy, &history, &Outcome::Rejected, super::draw());
    let follows = Follows::from(next, why, held.claim.history.asks);
    Settlement {
        due_in_ms: follows.due_in_ms,
        note: follows.note,
        asks: follows.asks,
        seen: OutcomeClass::Rejected.as_str(),
        ..unchanged(held, follows.status)
    }
}

fn attempted(lane: &Lane, held: &Held, attempt: Attempt, took: Duration) -> Settlement {
    let since_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let class = attempt.outcome.class();
    let recorded = &held.claim.history;
    let history = recorded.after_attempt(since_ms, class.is_failure());
    let next = next_step(&lane.policy, &history, &attempt.outcome, super::draw());
    let is_unknown = attempt.outcome == Outcome::Unknown;
    // What was paid for stays on record with its attempt, whatever becomes of the effect.
    let paid = if lane.asks_model { attempt.outcome.result() } else { None };
    let text = paid.map_or(attempt.text, llm::note);
    let was_unknown = recorded.was_unknown || is_unknown;
    let follows = Follows::from(next, text, recorded.asks);
    let first_success = follows.status == Status::Done && recorded.attempts == 0 && !was_unknown;
    Settlement {
        due_in_ms: follows.due_in_ms,
        status_code: attempt.status,
        note: follows.note,
        was_unknown,
        asks: follows.asks,
        unknown_ms: is_unknown.then(|| since_ms.min(lane.timeout_ms)),
        result: follows.result,
        seen: class.as_str(),
        succeeded: class == OutcomeClass::Done,
        on_record: !first_success,
        tries: 1,
        failures: i32::from(class.is_failure()),
        ..unchanged(held, follows.status)
    }
}

fn answered(lane: &Lane, held: &Held, looked_up: LookedUp) -> Settlement {
    let LookedUp { finding, status, text } = looked_up;
    let history = held.claim.history.after_lookup();
    let next = after_lookup(&lane.policy, &history, &finding, super::draw());
    // Only a look-up that is believed says that nothing was applied.
    let was_unknown = !matches!(next, Next::Waiting { .. } | Next::Rejected);
    let class = finding.class();
    let text = match (&finding, text) {
        (Finding::NotFound, text) if text.is_empty() => "the provider does not know it".to_owned(),
        (_, text) => text,
    };
    let follows = Follows::from(next, text, true);
    Settlement {
        due_in_ms: follows.due_in_ms,
        status_code: status,
        note: follows.note,
        was_unknown,
        asks: follows.asks,
        result: follows.result,
        seen: class.as_str(),
        succeeded: class == FindingClass::Found,
        on_record: true,
        lookups: 1,
        ..unchanged(held, follows.status)
    }
}

/// [`Next`] as columns.
struct Follows {
    status: Status,
    due_in_ms: u64,
    asks: bool,
    note: String,
    result: Option<Vec<u8>>,
}

impl Follows {
    /// `asking`: a halt leaves it to be asked for.
    fn from(next: Next, text: String, asking: bool) -> Self {
        let of =
            |status, due_in_ms, asks, note| Self { status, due_in_ms, asks, note, result: None };
        match next {
            Next::Done { result } => {
                Self { result: stored(&result), ..of(Status::Done, 0, false, text) }
            }
            Next::Waiting { due_in_ms } => of(Status::Waiting, due_in_ms, false, text),
            Next::Unknown { due_in_ms } => of(Status::Unknown, due_in_ms, false, text),
            Next::Asking { due_in_ms } => of(Status::Unknown, due_in_ms, true, text),
            Next::Held { why } if text.is_empty() => {
                of(Status::Held, 0, false, why.as_str().to_owned())
            }
            Next::Held { why } => of(Status::Held, 0, false, format!("{}; {text}", why.as_str())),
            Next::Rejected => of(Status::Rejected, 0, false, text),
            Next::Halted { was_unknown: true } => of(Status::Unknown, HALT_MS, asking, text),
            Next::Halted { was_unknown: false } => of(Status::Waiting, HALT_MS, false, text),
        }
    }
}

fn stored(result: &Value) -> Option<Vec<u8>> {
    (*result != Value::Null).then(|| json::to_text(result).into_bytes())
}

/// Counts an outcome that is on record, and tells of what a person has to look at.
pub(super) fn count(shared: &Shared, prepared: &Prepared) {
    let Some(metrics) = shared.metrics.effect(prepared.held.rule) else { return };
    match prepared.seen {
        Seen::Nothing => {}
        Seen::Attempt(class) => metrics.attempt(class, prepared.took),
        Seen::LookUp(class) => metrics.looked_up(class),
    }
    if let Some(used) = prepared.tokens {
        metrics.tokens(used.input, used.output);
    }
    let Some(settlement) = &prepared.settlement else { return };
    match (settlement.status, prepared.seen) {
        (Status::Done, Seen::LookUp(_)) => metrics.finished(Finished::Reconciled, 1),
        (Status::Done, _) if settlement.succeeded => metrics.finished(Finished::Done, 1),
        (Status::Done, _) => metrics.finished(Finished::Assumed, 1),
        (Status::Rejected, _) => metrics.finished(Finished::Rejected, 1),
        (Status::Skipped, _) => metrics.finished(Finished::Skipped, 1),
        (Status::Held, _) => metrics.held(1),
        (Status::Waiting | Status::Claimed | Status::Unknown, _) => {}
    }
    if matches!(settlement.status, Status::Held | Status::Rejected) {
        let claim = &prepared.held.claim;
        let effect = shared.lane(prepared.held.rule).map_or("", |lane| &lane.name);
        tell(
            claim.key,
            effect,
            &shared.shown(&claim.tenant, &claim.business_id),
            settlement.status,
            (settlement.status_code, &settlement.note),
        );
    }
}

/// Tells that an effect waits for a person, or will not happen.
pub(super) fn tell(
    key: Key,
    effect: &str,
    business_id: &BusinessId<'_>,
    status: Status,
    (status_code, cause): (Option<u16>, &str),
) {
    let (status, look) = (status.as_str(), look(key));
    tracing::warn!(%business_id, effect, status, status_code, cause, look, "effect needs a look");
}

/// The command that shows an effect.
pub(super) fn look(key: Key) -> String {
    format!("oncely effects show {}", key.wire())
}
