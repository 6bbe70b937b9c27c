//! The worker: where Kafka, the database and the providers meet.
//!
//! One [`Process`], with a worker for each connector. A worker's pipeline is one loop, fed by one closed enum; every other part owns
//! one connection and does one thing:
//!
//! - [`pipeline`] – takes records, spreads them over writers, tracks offsets, drains partitions
//! - [`item`] – decodes and identifies a record
//! - [`age`] – whether an event may have been run and forgotten
//! - [`writer`], [`tables`], [`records`], [`grants`], [`report`] – the batch transaction, what it loads and writes,
//!   the bytes that it keeps, what it claims, what it came to
//! - [`deferred`] – events that wait for others of their entity
//! - [`call`], [`lane`] – one call of a provider; slots, rates and halts of one effect
//! - [`settler`], [`prepared`] – outcomes on record and what follows from them, next effects claimed
//! - [`sweeper`] – due effects, claims of the dead, own lost claims
//! - [`retention`] – removes what is too old
//! - [`start`], [`keeper`], [`waiting`] – where partitions begin, how far they are, what they wait for
//! - [`memory`] – whether it outlives what can come again
//! - [`backlog`] – how much may be open before nothing new is taken
//! - [`caught_up`] – up to when everything in the topics has been read
//! - [`lease`], [`claims`] – the right to send
//! - [`failover`] – tells of a database that is another one than before
//! - [`mailbox`] – the way to a pipeline, which may have ended
//! - [`gauges`] – what is open, counted by one process for all
//! - [`parked`] – records that were set aside: reasons, log lines
//! - [`outbox`] – records that are published, dead letters for a topic
//! - [`redrive`] – parked records that a person wants decided again
//! - [`moved`] – requests of a provider whose host is another one by now
//! - [`late`], [`lines`], [`headers`] – requests and ledger lines made from results; headers as bytes

mod age;
mod backlog;
mod call;
mod caught_up;
mod claims;
mod deferred;
mod endpoints;
mod failover;
mod gauges;
mod grants;
mod headers;
mod item;
mod keeper;
mod lane;
mod late;
mod lease;
mod lines;
mod mailbox;
pub(crate) mod memory;
mod moved;
mod outbox;
mod outcomes;
mod parked;
mod pipeline;
mod prepared;
mod process;
mod recent;
mod records;
mod redrive;
mod report;
mod retention;
mod run;
mod settler;
mod start;
mod sweeper;
mod tables;
mod waiting;
mod writer;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) use oncely_core::cause::chain;
use oncely_core::connector::Connector;
use oncely_core::effect::status::Status;
use oncely_core::key::Key;
use oncely_core::progress::Hold;
use oncely_core::wanted::Wanted;
use rand::Rng as _;
use tokio::sync::Notify;
use uuid::Uuid;

use self::backlog::Backlog;
use self::caught_up::ReadUntil;
use self::claims::Held;
use self::deferred::Left;
pub use self::headers::{decode as read_headers, encode as write_headers};
use self::keeper::Positions;
use self::lane::Lane;
pub use self::parked::{is_unreadable, reasons};
pub use self::pipeline::BATCH_RECORDS_MAX;
pub use self::process::Process;
use self::report::Report;
pub use self::run::RunError;
pub(crate) use self::run::{READ_REMEDY, written_remedy};
use self::start::Started;
use crate::config;
use crate::store::progress::Epochs;
use crate::store::settle::LaneLock;
use crate::telemetry::{BusinessId, ConnectorMetrics, Metrics, Outage};

/// What all parts of one connector's worker know.
#[derive(Debug)]
struct Shared {
    connector: Arc<Connector>,
    /// What it looks at of an event.
    wanted: Wanted,
    connector_id: i32,
    cluster_id: String,
    /// By the index of the rule; `None` for effects that are no calls.
    lanes: Vec<Option<Arc<Lane>>>,
    timing: config::Worker,
    metrics: ConnectorMetrics,
    process_metrics: Metrics,
    backlog: Backlog,
    read_until: ReadUntil,
    /// New events may be done, since a failover may have lost it.
    in_doubt: AtomicBool,
    left: Left,
    /// Wakes the comparison of claims: one may have been lost sight of.
    adopt: Notify,
    /// Something may have come into the outbox.
    outbox: Notify,
    /// A person wants parked records decided again, or a deferred event may go.
    redrive: Notify,
    /// What the log says of outages: the database's is one story of the whole process.
    database: Outage,
    kafka: Outage,
}

impl Shared {
    fn lane(&self, rule: usize) -> Option<&Arc<Lane>> {
        self.lanes.get(rule).and_then(Option::as_ref)
    }

    fn lane_lock(&self) -> LaneLock {
        if self.connector.state.is_some() { LaneLock::Entity } else { LaneLock::Inbox }
    }

    /// Tells when new events begin to be in doubt, and when that is over.
    fn in_doubt(&self, any: bool) {
        if self.in_doubt.swap(any, Ordering::Relaxed) == any {
            return;
        }
        if any {
            let look = "oncely progress list";
            tracing::warn!(
                look,
                "events may be done and forgotten until every partition was read again"
            );
        } else {
            tracing::info!("what may be forgotten was read again, new events are new");
        }
    }

    /// A business id as logs may show it.
    fn shown<'a>(&self, tenant: &'a str, id: &'a str) -> BusinessId<'a> {
        BusinessId::new(tenant, id)
    }
}

/// What the parts tell the pipeline.
#[derive(Debug)]
enum Message {
    Started(Vec<Started>),
    Written {
        writer: usize,
        report: Report,
    },
    /// Claims to be sent.
    Claimed(Vec<Held>),
    /// Effects that hold no offset back any more.
    LetGo(Vec<Key>),
    /// The ids of the topics as the cluster has them now.
    Topics(HashMap<String, Uuid>),
    /// The epochs of the group's partitions as they are on record, and in which generation they were read.
    Epochs(Epochs, u64),
    /// Positions that are durable and may be committed.
    Kept(Positions),
}

/// Whether an effect holds its record's offset back.
const fn hold_of(status: Status, behind_held: bool) -> Hold {
    match status {
        Status::Done | Status::Rejected | Status::Skipped | Status::Held => Hold::LetsGo,
        Status::Waiting | Status::Claimed | Status::Unknown => {
            if behind_held {
                Hold::LetsGo
            } else {
                Hold::Open
            }
        }
    }
}

/// Uniform, for jitter.
fn draw() -> u32 {
    rand::rng().random()
}

/// Half to all of `wait`, so that replicas do not come back together.
fn jittered(wait: Duration) -> Duration {
    let half = wait.checked_div(2).unwrap_or_default();
    let millis = u64::try_from(half.as_millis()).unwrap_or(0);
    half.saturating_add(Duration::from_millis(rand::rng().random_range(0..=millis)))
}
