//! The relay of one connector in this process: reads what is in its slices, sends, and puts on record.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use super::letter::{self, Families};
use super::queue::Queue;
use super::record::Letter;
use super::sender::{How, Sender};
use super::settle::{self, Over};
use super::slices::Slices;
use super::turn;
use crate::clock::{self, Moment};
use crate::http::Health;
use crate::kafka::{Admin, ClientSettings, KafkaError, Producer, Refusal};
use crate::store::error::NextStep;
use crate::store::outbox::{self, Room, Waiting, What};
use crate::store::{Session, StoreError};
use crate::task::{self, Stopped};
use crate::telemetry::Published;
use crate::worker::lease::Lease;
use crate::worker::mailbox::Mailbox;
use crate::worker::{Message, Shared, chain, jittered};

/// How often the outbox is looked at without a sign of anything new.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often slices are shared out anew.
const SHARE_EVERY: Duration = Duration::from_secs(1);
/// Wait for more records whose end goes on record together.
const LINGER: Duration = Duration::from_millis(4);
/// Ends that go on record without waiting for more.
const SETTLED_MAX: usize = 500;
/// Records in flight.
const IN_FLIGHT_MAX: usize = 256;
/// Records in memory from which on no more are read.
const KNOWN_MAX: usize = 2_000;
/// Records read of each slice at a time, and bytes of all together.
const ROWS: i64 = 32;
const BYTES: i64 = 16 << 20;
/// Wait after a send that failed; doubled up to the second.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// Wait while the database is away.
const WAIT: Duration = Duration::from_millis(100);
/// The part of the log's stories about outages of Kafka.
const PART: &str = "relay";

/// What a relay is made from.
pub(in crate::worker) struct RelayParts {
    pub(in crate::worker) shared: Arc<Shared>,
    pub(in crate::worker) session: Session,
    pub(in crate::worker) lease: Lease,
    pub(in crate::worker) client: ClientSettings,
    pub(in crate::worker) admin: Admin,
    pub(in crate::worker) pipeline: Mailbox,
    pub(in crate::worker) health: Health,
    pub(in crate::worker) stop: watch::Receiver<bool>,
}

/// One relay.
pub(in crate::worker) struct Relay {
    shared: Arc<Shared>,
    session: Session,
    lease: Lease,
    client: ClientSettings,
    sender: Sender,
    pipeline: Mailbox,
    health: Health,
    stop: watch::Receiver<bool>,
    ends: mpsc::UnboundedSender<Ended>,
    ended: mpsc::UnboundedReceiver<Ended>,
    /// Under which slices are held and records are sent.
    worker: Uuid,
    slices: Slices,
    families: Families,
    queue: Queue,
    over: Vec<Over>,
    /// Since when something is over and not on record.
    over_since: Option<Moment>,
    paused: Option<Moment>,
    backoff: Duration,
    shared_last: Option<Moment>,
}

/// A send that is over.
#[derive(Debug)]
struct Ended {
    row: Waiting,
    how: How,
    took: Duration,
}

impl Relay {
    /// # Errors
    /// The client refuses its settings.
    pub(in crate::worker) fn new(parts: RelayParts) -> Result<Self, KafkaError> {
        let RelayParts { shared, session, lease, client, admin, pipeline, health, stop } = parts;
        let producer = Producer::for_any_size(&client)?;
        let (ends, ended) = mpsc::unbounded_channel();
        let worker = lease.worker();
        let letters = shared.connector.failure.dead_letter.as_ref();
        let families = Families {
            connect: letters.is_some_and(|letters| letters.connect),
            spring: letters.is_some_and(|letters| letters.spring),
        };
        Ok(Self {
            shared,
            families,
            session,
            sender: Sender::new(producer, admin, lease.clone()),
            lease,
            client,
            pipeline,
            health,
            stop,
            ends,
            ended,
            worker,
            slices: Slices::default(),
            queue: Queue::default(),
            over: Vec::new(),
            over_since: None,
            paused: None,
            backoff: BACKOFF_FIRST,
            shared_last: None,
        })
    }

    /// Relays until it is told to stop and nothing is in flight.
    ///
    /// # Errors
    /// When a person must act: the schema is wrong.
    pub(in crate::worker) async fn run(mut self) -> Result<(), Stopped> {
        let tick =
            self.health.watch(format!("relay {}", self.shared.connector.name), WATCHED_WITHIN);
        let mut looks = clock::every(LOOK_EVERY);
        let mut stop = self.stop.clone();
        let shared = Arc::clone(&self.shared);
        loop {
            let stopping = *self.stop.borrow();
            let idle = self.queue.in_flight() == 0 && self.over.is_empty();
            if stopping && idle {
                break;
            }
            let mut look = false;
            tokio::select! {
                Some(ended) = self.ended.recv() => self.end(ended),
                () = tokio::time::sleep(LINGER), if !self.over.is_empty() => {}
                () = shared.outbox.notified(), if !stopping => look = true,
                _ = looks.tick() => look = true,
                _ = stop.wait_for(|stop| *stop), if !stopping => {}
            }
            tick.tick();
            while let Ok(ended) = self.ended.try_recv() {
                self.end(ended);
            }
            self.reborn();
            self.send(stopping);
            if let Err(error) = self.step(look && !stopping, stopping).await {
                self.failed(&error).await?;
            }
        }
        let leaving = async {
            let (id, worker) = (self.shared.connector_id, self.worker);
            self.slices.leave(self.session.connection().await?, id, worker).await
        };
        // Without it, the others wait until this worker's row has ended.
        drop(tokio::time::timeout(WAIT, leaving).await);
        Ok(())
    }

    /// Under a new id nothing is its own any more. What is in flight was sent under the old one.
    fn reborn(&mut self) {
        let worker = self.lease.worker();
        if worker != self.worker {
            self.worker = worker;
            self.slices.lose();
            self.queue.clear();
            self.shared_last = None;
        }
    }

    /// Starts what may go.
    fn send(&mut self, stopping: bool) {
        let waits = self.paused.is_some_and(|until| clock::now() < until);
        if stopping || waits || !self.lease.may_send(self.worker) {
            return;
        }
        while self.queue.in_flight() < IN_FLIGHT_MAX {
            let Some(row) = self.queue.next() else { return };
            let letter = match &row.what {
                What::Effect(effect) => Letter::of_effect(row.message, effect),
                What::DeadLetter(dead) => {
                    Ok(letter::letter(row.message, dead, self.families, row.is_pointer))
                }
                What::Gone(_) => Err("the dead letter was removed by retention".to_owned()),
            };
            match letter {
                Ok(letter) => self.start(row, letter),
                Err(why) => {
                    self.queue.refused(&row);
                    self.over.push(Over { row, how: Err(why), took: Duration::ZERO });
                }
            }
        }
    }

    fn start(&self, row: Waiting, letter: Letter) {
        let (sender, worker, ends) = (self.sender.clone(), self.worker, self.ends.clone());
        let lost = row.clone();
        let sending = async move {
            let begun = clock::now();
            let how = sender.send(worker, &row, &letter).await;
            Ended { row, how, took: clock::since(begun) }
        };
        task::spawn_then("send", &self.shared.process_metrics, sending, move |end| {
            let panicked = |_| {
                let cause = "the send panicked; the log names the place".to_owned();
                let how = How::Failed { cause, fatal: false };
                Ended { row: lost, how, took: Duration::ZERO }
            };
            // Nobody listens any more when the relay has ended.
            drop(ends.send(end.unwrap_or_else(panicked)));
        });
    }

    /// Takes in how a send ended.
    fn end(&mut self, ended: Ended) {
        let Ended { row, how, took } = ended;
        match how {
            How::Sent(at) => {
                self.backoff = BACKOFF_FIRST;
                self.paused = None;
                self.shared.kafka.back(PART);
                self.queue.sent(&row);
                self.over.push(Over { row, how: Ok(at), took });
            }
            How::Unsent => self.again(row),
            How::Refused { what: Refusal::TooLarge, .. } if self.queue.suspect(&row) => {}
            How::Refused { what: Refusal::TooLarge, .. }
                if !row.is_pointer && matches!(row.what, What::DeadLetter(_)) =>
            {
                self.again(Waiting { is_pointer: true, ..row });
            }
            How::Refused { why, .. } => {
                self.shared.kafka.back(PART);
                self.queue.refused(&row);
                self.over.push(Over { row, how: Err(why), took });
            }
            How::Failed { cause, fatal } => {
                let is_letter = !matches!(row.what, What::Effect(_));
                self.shared.metrics.outbox_record(is_letter, Published::Failed);
                self.again(row);
                self.pause(&cause);
                if fatal {
                    self.renew(&cause);
                }
            }
        }
    }

    /// Sends a record again, unless it is another relay's by now.
    fn again(&mut self, row: Waiting) {
        if self.slices.has(row.slice) {
            self.queue.failed(row);
        } else {
            self.queue.lost(&row);
        }
    }

    fn pause(&mut self, cause: &str) {
        // The records that were in flight together fail together.
        if self.paused.is_some_and(|until| clock::now() < until) {
            return;
        }
        self.shared.kafka.away(PART, cause);
        self.paused = clock::now().checked_add(jittered(self.backoff));
        self.backoff = self.backoff.saturating_mul(2).min(BACKOFF_MAX);
    }

    /// An idempotent producer that has lost count can send nothing any more; the next one begins anew.
    fn renew(&mut self, cause: &str) {
        match Producer::for_any_size(&self.client) {
            Ok(producer) => {
                tracing::warn!(cause, "the producer gave up; another one goes on");
                self.sender.producer = producer;
            }
            Err(error) => tracing::warn!(cause = %chain(&error), "no producer could be made"),
        }
    }

    /// One round with the database.
    async fn step(&mut self, look: bool, stopping: bool) -> Result<(), StoreError> {
        if self.over.is_empty() {
            self.over_since = None;
        } else {
            self.over_since.get_or_insert_with(clock::now);
        }
        let lingered = self.over_since.is_some_and(|since| clock::since(since) >= LINGER);
        let nothing_more = self.queue.in_flight() == 0 || self.over.len() >= SETTLED_MAX;
        let settles = !self.over.is_empty() && (lingered || stopping || nothing_more);
        if settles {
            self.settle().await?;
        }
        if stopping || !self.lease.may_send(self.worker) {
            return Ok(());
        }
        if self.shared_last.is_none_or(|last| clock::since(last) >= SHARE_EVERY) {
            let (id, worker) = (self.shared.connector_id, self.worker);
            let (slices, session) = (&mut self.slices, &mut self.session);
            let busy = self.queue.busy_slices();
            let first = self.shared_last.is_none();
            let patience = session.patience();
            let goes = patience.bounded(async {
                let connection = session.connection().await?;
                if first {
                    outbox::make_slices(connection, id).await?;
                }
                slices.share(connection, id, worker, &busy).await
            });
            let goes = goes.await?;
            self.queue.forget_slices(&goes);
            self.shared_last = Some(clock::now());
        }
        let mut more = look || settles;
        while more {
            more = false;
            let patience = self.session.patience();
            let turned = patience.bounded(turn::look(&self.shared, &mut self.session, self.worker));
            let turned = turned.await?;
            self.told(turned, &mut more);
        }
        // One relay does it, in the order in which they were parked.
        if (look || settles) && self.slices.has(0) {
            let patience = self.session.patience();
            patience.bounded(turn::letters(&self.shared, &mut self.session)).await?;
        }
        if look || settles {
            self.load().await?;
            self.send(stopping);
        }
        self.shared.database.back(self.session.task());
        if self.queue.len() == 0 {
            // What could not be sent is another relay's by now.
            self.shared.kafka.back(PART);
        }
        Ok(())
    }

    fn told(&self, turned: turn::Turned, more: &mut bool) {
        *more = turned.more;
        for (held, why) in turned.rejected {
            let rule = held.rule;
            if let Some(metrics) = self.shared.metrics.effect(rule) {
                metrics.finished(crate::telemetry::Finished::Rejected, 1);
            }
            let effect = self.shared.connector.effects.get(rule).map_or("", |rule| &*rule.id);
            let id = self.shared.shown(&held.claim.tenant, &held.claim.business_id);
            let status = oncely_core::effect::status::Status::Rejected;
            crate::worker::prepared::tell(held.claim.key, effect, &id, status, (None, &why));
        }
        if !turned.let_go.is_empty() {
            self.pipeline.send(Message::LetGo(turned.let_go));
        }
    }

    async fn settle(&mut self) -> Result<(), StoreError> {
        let begun = clock::now();
        let patience = self.session.patience();
        let (shared, session) = (&self.shared, &mut self.session);
        let recorded = settle::record(shared, session, self.worker, &self.over);
        let let_go = patience.bounded(recorded).await?;
        self.shared.metrics.stage(crate::telemetry::Stage::Settle, clock::since(begun));
        settle::count(&self.shared, &self.over);
        for over in std::mem::take(&mut self.over) {
            self.queue.settled(&over.row);
        }
        if !let_go.is_empty() {
            self.pipeline.send(Message::LetGo(let_go));
        }
        Ok(())
    }

    async fn load(&mut self) -> Result<(), StoreError> {
        let slices = self.slices.list();
        if slices.is_empty() || self.queue.len() >= KNOWN_MAX {
            return Ok(());
        }
        let (known, full) = (self.queue.known(), self.queue.full());
        let room = Room { slices: &slices, known: &known, full: &full, rows: ROWS, bytes: BYTES };
        let (id, session) = (self.shared.connector_id, &mut self.session);
        let rows = session
            .patience()
            .bounded(async { outbox::load(session.connection().await?, id, room).await });
        let rows = rows.await?;
        self.queue.add(rows);
        Ok(())
    }

    async fn failed(&mut self, error: &StoreError) -> Result<(), Stopped> {
        self.session.failed(error).await;
        match error.next_step() {
            NextStep::Again => {}
            NextStep::Wait => {
                self.shared.database.away(self.session.task(), &chain(error));
                tokio::time::sleep(jittered(WAIT)).await;
            }
            NextStep::Bisect | NextStep::Halt => return Err(Stopped(chain(error))),
        }
        Ok(())
    }
}

/// Longest time between two rounds.
const WATCHED_WITHIN: Duration = Duration::from_secs(120);
