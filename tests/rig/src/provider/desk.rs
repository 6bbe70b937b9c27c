//! The way of one request through the provider, the same for HTTP and SMTP.
//!
//! `received` is logged → a fault in front of the API → the books (repeat? conflict?) → the hold before
//! effects → latency → the effect, logged `applied` in the same step → the hold before answers →
//! `answered` is logged → the log is on disk → the answer leaves.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::ProviderOptions;
use super::answers;
use super::books::{self, Books};
use super::faults::{Fault, Faults, Seen};
use super::journal::{Journal, LineNo};
use super::log::Entry;
use super::request::{End, Kind, Reply, Request};
use super::webhook;
use crate::{RigError, clock};

/// What the provider has seen and done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests for an effect, read whole.
    pub received: u64,
    /// Look-ups, read whole.
    pub lookups: u64,
    /// Effects that took place.
    pub applied: u64,
    /// Answers that left, or were left out on purpose.
    pub answered: u64,
    /// Requests that are held back at this moment, by a hold or a hang.
    pub held: u64,
}

/// Where requests are held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Read, and its key in flight, but without effect yet.
    BeforeApply,
    /// With its effect, but not answered.
    BeforeAnswer,
}

/// An answer, and how it leaves.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) reply: Reply,
    pub(super) end: End,
}

/// What stands in the way of requests.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Holds {
    pub(super) before_apply: bool,
    pub(super) before_answer: bool,
    /// Hanging requests go on when this has moved.
    pub(super) hangs_released: u64,
}

/// Books, faults and log of one provider.
#[derive(Debug)]
pub(super) struct Desk {
    books: Mutex<Books>,
    pub(super) faults: Mutex<Faults>,
    journal: Journal,
    counts: watch::Sender<Counts>,
    pub(super) holds: watch::Sender<Holds>,
    latency: watch::Sender<Duration>,
    apply_delay: Duration,
    /// With these webhooks are signed.
    webhook_secrets: Mutex<Vec<String>>,
    keep_bodies: bool,
    /// Effects that follow a connection that is closed already.
    late: Mutex<JoinSet<()>>,
}

impl Desk {
    pub(super) fn open(options: &ProviderOptions) -> Result<Self, RigError> {
        Ok(Self {
            books: Mutex::new(Books::new(Duration::from_secs(options.key_window_s))),
            faults: Mutex::new(Faults::new(options.rates.clone())),
            journal: Journal::open(Path::new(&options.log), options.flush)?,
            counts: watch::Sender::default(),
            holds: watch::Sender::default(),
            latency: watch::Sender::new(Duration::from_millis(options.latency_ms)),
            apply_delay: Duration::from_millis(options.apply_delay_ms),
            webhook_secrets: Mutex::new(options.webhook_secrets.clone()),
            keep_bodies: options.keep_bodies,
            late: Mutex::default(),
        })
    }

    /// Serves one request; `None` when its lines could not be written: then nothing may be answered.
    pub(super) async fn serve(self: &Arc<Self>, request: Request) -> Option<Ending> {
        let request = Arc::new(request);
        let number = self.receive(&request);
        let ending = self.decide(&request, number).await;
        let line = self.journal.add(&Entry::Answered {
            request: number,
            at: clock::wall_us(),
            status: if matches!(ending.end, End::Closed | End::Reset) {
                0
            } else {
                ending.reply.status
            },
            end: ending.end,
            replayed: ending.reply.is_replay(),
        });
        let safe = self.journal.safe(line).await;
        self.count(|counts| counts.answered = counts.answered.saturating_add(1));
        safe.then_some(ending)
    }

    pub(super) fn counts(&self) -> watch::Receiver<Counts> {
        self.counts.subscribe()
    }

    pub(super) fn set_latency(&self, latency: Duration) {
        self.latency.send_replace(latency);
    }

    pub(super) fn set_webhook_secrets(&self, secrets: Vec<String>) {
        *lock(&self.webhook_secrets) = secrets;
    }

    pub(super) fn forget_decided(&self) {
        lock(&self.books).forget_decided();
    }

    fn receive(&self, request: &Request) -> LineNo {
        let lookup = request.is_lookup();
        let mut number = 0;
        self.counts.send_modify(|counts| {
            let count = if lookup { &mut counts.lookups } else { &mut counts.received };
            *count = count.saturating_add(1);
            number = counts.received.saturating_add(counts.lookups);
        });
        self.journal.add(&Entry::Received {
            request: number,
            at: clock::wall_us(),
            method: request.method.clone(),
            endpoint: request.path.clone(),
            key: request.key.clone(),
            body_sha256: request.body_sha256.clone(),
            signed: request.signed.clone(),
            body: self.keep_bodies.then(|| String::from_utf8_lossy(&request.body).into_owned()),
        });
        number
    }

    async fn decide(self: &Arc<Self>, request: &Arc<Request>, number: u64) -> Ending {
        let fault = lock(&self.faults).pick(&Seen {
            endpoint: &request.path,
            key: request.key.as_deref(),
            body_sha256: &request.body_sha256,
            lookup: request.is_lookup(),
        });
        if let Some(ending) = self.in_front(request, fault.as_ref()).await {
            return ending;
        }
        if request.is_lookup() {
            return self.leave(self.look_up(request), fault).await;
        }
        if request.kind == Kind::Webhook
            && let Err(why) = webhook::verify(request, &lock(&self.webhook_secrets))
        {
            return Ending { reply: answers::unsigned(why), end: End::Whole };
        }
        let entered = lock(&self.books).enter(request);
        let reply = match entered {
            books::Entry::Answer(reply) => reply,
            books::Entry::New => {
                let in_flight = InFlight { desk: self, request, given_up: true };
                self.pass(|holds| !holds.before_apply).await;
                let delay = *self.latency.borrow();
                let more = if let Some(Fault::DelayMs(ms)) = fault { ms } else { 0 };
                pause(delay.saturating_add(Duration::from_millis(more))).await;
                let closes = matches!(fault, Some(Fault::CloseAfter | Fault::ResetAfter));
                if request.kind == Kind::Lookup && closes && !self.apply_delay.is_zero() {
                    in_flight.done();
                    self.apply_late(request, number);
                    return without_answer(fault.as_ref());
                }
                if request.kind == Kind::Lookup {
                    pause(self.apply_delay).await;
                }
                let reply = self.apply(request, number, fault.as_ref());
                in_flight.done();
                reply
            }
        };
        self.pass(|holds| !holds.before_answer).await;
        self.leave(reply, fault).await
    }

    /// Faults that keep a request from the API.
    async fn in_front(&self, request: &Request, fault: Option<&Fault>) -> Option<Ending> {
        match fault? {
            Fault::StatusBefore { status, retry_after_s } => {
                let reply = answers::status(request.kind, *status, *retry_after_s);
                // What the API itself answered is kept for a Stripe-like key, what a gate in front of it
                // answered is not.
                if request.kind == Kind::Billing && matches!(status, 402 | 500) {
                    lock(&self.books).refused(request, &reply);
                }
                Some(Ending { reply, end: End::Whole })
            }
            fault @ (Fault::CloseBefore | Fault::ResetBefore) => Some(without_answer(Some(fault))),
            fault @ Fault::HangBefore => {
                self.hang().await;
                Some(without_answer(Some(fault)))
            }
            Fault::StatusAfter { .. }
            | Fault::CloseAfter
            | Fault::ResetAfter
            | Fault::HalfBody
            | Fault::GarbledBody
            | Fault::HangAfter
            | Fault::DelayMs(_)
            | Fault::DripMs(_)
            | Fault::OversizedBytes(_) => None,
        }
    }

    /// The effect: counted, logged and remembered in one step.
    fn apply(&self, request: &Request, number: u64, fault: Option<&Fault>) -> Reply {
        let mut books = lock(&self.books);
        let (effect, success) = books.take_effect(request);
        let kept = match fault {
            Some(Fault::StatusAfter { status: 500 }) if request.kind == Kind::Billing => {
                answers::status(request.kind, 500, None)
            }
            _ => success,
        };
        books.decided(request, &kept);
        self.journal.add(&Entry::Applied {
            request: number,
            at: clock::wall_us(),
            endpoint: effect.endpoint,
            key: effect.key,
            body_sha256: request.body_sha256.clone(),
            effect_no: effect.effect_no,
        });
        drop(books);
        self.count(|counts| counts.applied = counts.applied.saturating_add(1));
        kept
    }

    fn apply_late(self: &Arc<Self>, request: &Arc<Request>, number: u64) {
        let (desk, request) = (Arc::clone(self), Arc::clone(request));
        let mut late = lock(&self.late);
        while late.try_join_next().is_some() {}
        late.spawn(async move {
            pause(desk.apply_delay).await;
            desk.apply(&request, number, None);
        });
    }

    fn look_up(&self, request: &Request) -> Reply {
        if !request.kind.can_be_asked() {
            return answers::status(request.kind, 404, None);
        }
        let (endpoint, asked) = answers::asked_for(request);
        answers::found(&lock(&self.books).asked_for(endpoint, &asked))
    }

    /// Faults on the way back.
    async fn leave(&self, reply: Reply, fault: Option<Fault>) -> Ending {
        let (reply, end) = match fault {
            Some(Fault::CloseAfter | Fault::ResetAfter) => return without_answer(fault.as_ref()),
            Some(Fault::StatusAfter { status }) if reply.status < 400 => {
                (answers::status(Kind::Plain, status, None), End::Whole)
            }
            Some(Fault::HalfBody) => (reply, End::Half),
            Some(Fault::GarbledBody) => {
                (Reply { body: Arc::from(&b"<html>gateway</html>"[..]), ..reply }, End::Whole)
            }
            Some(Fault::OversizedBytes(bytes)) => {
                (Reply { body: oversized(&reply.body, bytes), ..reply }, End::Whole)
            }
            Some(Fault::DripMs(ms)) => (reply, End::Drip { ms }),
            Some(Fault::HangAfter) => {
                self.hang().await;
                (reply, End::Whole)
            }
            _ => (reply, End::Whole),
        };
        Ending { reply, end }
    }

    async fn hang(&self) {
        let now = self.holds.borrow().hangs_released;
        self.pass(|holds| holds.hangs_released != now).await;
    }

    /// Waits until nothing is in the way.
    async fn pass(&self, free: impl Fn(&Holds) -> bool) {
        if free(&self.holds.borrow()) {
            return;
        }
        let held = Held::new(self);
        let mut holds = self.holds.subscribe();
        // The sender lives as long as this desk, so waiting cannot fail.
        drop(holds.wait_for(|holds| free(holds)).await);
        drop(held);
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        self.counts.send_modify(change);
    }
}

// ----------------------------------------------------------------------------------------------------

/// A key in flight; forgotten when its connection is cut off before the effect.
struct InFlight<'a> {
    desk: &'a Desk,
    request: &'a Request,
    given_up: bool,
}

impl InFlight<'_> {
    fn done(mut self) {
        self.given_up = false;
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if self.given_up {
            lock(&self.desk.books).forget(self.request);
        }
    }
}

/// Counts a request as held back while it lives.
struct Held<'a>(&'a Desk);

impl<'a> Held<'a> {
    fn new(desk: &'a Desk) -> Self {
        desk.count(|counts| counts.held = counts.held.saturating_add(1));
        Self(desk)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.count(|counts| counts.held = counts.held.saturating_sub(1));
    }
}

fn without_answer(fault: Option<&Fault>) -> Ending {
    let resets = matches!(fault, Some(Fault::ResetBefore | Fault::ResetAfter));
    let end = if resets { End::Reset } else { End::Closed };
    Ending { reply: Reply { status: 0, headers: Vec::new(), body: Arc::from(&b""[..]) }, end }
}

/// The same JSON object with a long field, or just as many bytes where it is none.
fn oversized(body: &[u8], bytes: usize) -> Arc<[u8]> {
    let filler = "x".repeat(bytes);
    let mut value = serde_json::from_slice(body).unwrap_or_else(|_| serde_json::json!({}));
    if let Some(fields) = value.as_object_mut() {
        fields.insert("filler".to_owned(), filler.into());
    }
    value.to_string().into_bytes().into()
}

async fn pause(duration: Duration) {
    if !duration.is_zero() {
        tokio::time::sleep(duration).await;
    }
}

/// A poisoned lock is taken all the same: every change under it is one call.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
