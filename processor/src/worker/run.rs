//! Puts the parts of one connector's worker together and runs them to a clean end.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use oncely_connectors::effect::egress::Egress;
use oncely_connectors::effect::performer::{Performer, PerformerError};
use oncely_connectors::secret::SecretSource;
use oncely_core::connector::{Connector, EffectBody, GroupProtocol};
use oncely_core::key::Key;
use oncely_core::progress::Hold;
use oncely_core::wanted::Wanted;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

use super::backlog::Backlog;
use super::caught_up;
use super::claims::Claims;
use super::deferred::Releasing;
use super::keeper::Keeper;
use super::lane::Lane;
use super::lease::Lease;
use super::mailbox::Mailbox;
use super::memory::{self, Memory, TooShort};
use super::outbox::{self, Relay, RelayParts};
use super::outcomes::Outcomes;
use super::pipeline::{Closed, Ends, JOBS_MAX, Pipeline};
use super::recent::Recent;
use super::redrive::Redriver;
use super::settler::{SETTLERS, Settler};
use super::start::Starter;
use super::sweeper::Sweeper;
use super::writer::Writer;
use super::{Message, Shared, chain, hold_of, jittered};
use crate::clock::{self, Moment};
use crate::config::Settings;
use crate::http::Health;
use crate::kafka::{
    Admin, Assignor, ClientSettings, ConsumerHandle, ConsumerSettings, GroupProtocol as Protocol,
    KafkaError,
};
use crate::store::{self, DriverError, Session, StoreError, batch, register};
use crate::task::{Stopped, Vital};
use crate::telemetry::{ConnectorShape, Dependency, Metrics, Outage};

/// Wait while Kafka or the database is away at the start.
const WAIT: Duration = Duration::from_millis(500);

/// Between looks at the topics' ids.
const TOPICS_EVERY: Duration = Duration::from_secs(1);

/// What a connector's worker is made from; all but the connector is the process's.
#[derive(Clone)]
pub(super) struct Parts {
    pub(super) connector: Arc<Connector>,
    pub(super) settings: Settings,
    pub(super) database: store::Settings,
    pub(super) secrets: Arc<dyn SecretSource>,
    pub(super) egress: Egress,
    pub(super) metrics: Metrics,
    pub(super) health: Health,
    pub(super) lease: Lease,
    pub(super) claims: Claims,
    pub(super) vital: Vital,
    pub(super) outage: Outage,
    pub(super) stop: watch::Receiver<bool>,
}

/// Why a connector cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("effect `{effect}` of connector `{connector}`")]
    Effect { connector: Box<str>, effect: Box<str>, source: PerformerError },
    #[error("the kafka client of connector `{connector}` refuses its settings")]
    Kafka { connector: Box<str>, source: KafkaError },
    #[error("the database url")]
    Database(#[source] DriverError),
    #[error("connector `{connector}`")]
    Store { connector: Box<str>, source: StoreError },
    #[error("connector `{connector}`: the kafka client failed for good: {cause}")]
    Fatal { connector: Box<str>, cause: String },
    #[error("a part of the process was lost ({part}); the log names the cause")]
    Lost { part: &'static str },
    #[error("connector `{connector}`, topic `{topic}`: {source}")]
    Retention { connector: Box<str>, topic: Box<str>, source: TooShort },
}

/// Runs a connector until it is told to stop.
///
/// # Errors
/// [`RunError`] names what is to be put right. Kafka or the database being away is no error.
pub(super) async fn run(parts: Parts) -> Result<(), RunError> {
    let name = parts.connector.name.clone();
    let database = parts.database.clone();
    let session = |task: &str| Session::new(database.clone(), format!("{name} {task}"));
    let lanes = lanes(&parts)?;
    let client = parts.settings.kafka.client.clone();
    let kafka_error = |source| RunError::Kafka { connector: name.clone(), source };
    let admin = Admin::new(&client, &parts.connector.source.group).map_err(kafka_error)?;
    let brokers = parts.settings.kafka.client.brokers();
    let kafka = Outage::of(Dependency::Kafka, brokers, parts.metrics.kafka_up(&name));
    let registered = register(&parts, &admin, &kafka, session("start")).await?;
    let Some((connector_id, cluster_id)) = registered else {
        return Ok(());
    };
    check_retention(&parts.connector, &admin).await?;
    check_written(&parts.connector, &admin).await;
    let shared = Arc::new(Shared {
        wanted: Wanted::by(&parts.connector),
        connector: Arc::clone(&parts.connector),
        connector_id,
        cluster_id,
        lanes,
        timing: parts.settings.worker,
        metrics: parts.metrics.connector(&ConnectorShape::of(&parts.connector)),
        process_metrics: parts.metrics.clone(),
        backlog: Backlog::new(parts.connector.failure.open_effects_max),
        read_until: caught_up::ReadUntil::default(),
        in_doubt: AtomicBool::new(false),
        left: super::deferred::Left::default(),
        adopt: Notify::new(),
        outbox: Notify::new(),
        redrive: Notify::new(),
        database: parts.outage.clone(),
        kafka: kafka.clone(),
    });
    let mut settings = consumer(&parts, client);
    if admin.is_mock_broker().await.unwrap_or(false) {
        settings = settings.for_mock_broker();
    }
    let consumer = ConsumerHandle::spawn(&settings).map_err(kafka_error)?;
    let relay_admin = admin.clone();
    let (ends, mailbox) = start_parts(&parts, &shared, admin, &session);
    let relay = start_relay(&parts, &shared, relay_admin, mailbox, session("relay"));
    let relay = relay.map_err(kafka_error)?;
    let (lease, health) = (parts.lease.clone(), parts.health.clone());
    let pipeline = Pipeline::new(Arc::clone(&shared), lease, health, consumer, ends);
    let (closed, ending) = pipeline.run(parts.stop.clone()).await;
    let grace = parts.settings.worker.shutdown_grace;
    drain_calls(&parts.claims, ending, grace).await;
    if let Some(relay) = relay {
        // What is in flight after that is sent once more by another, with the same id.
        let left = grace.saturating_sub(clock::since(ending));
        drop(tokio::time::timeout(left, relay).await);
    }
    match closed {
        Closed::Clean => Ok(()),
        Closed::Fatal(cause) => Err(RunError::Fatal { connector: name, cause }),
    }
}

/// One lane for each effect that is a call.
fn lanes(parts: &Parts) -> Result<Vec<Option<Arc<Lane>>>, RunError> {
    let lane = |(index, rule): (usize, &oncely_core::connector::EffectRule)| match &rule.body {
        EffectBody::Ledger(_) | EffectBody::Publish(_) => Ok(None),
        EffectBody::Call(call) => {
            let performer = Performer::new(call, &parts.secrets, &parts.egress, clock::wall_ms);
            let performer = performer.map_err(|source| RunError::Effect {
                connector: parts.connector.name.clone(),
                effect: rule.id.clone(),
                source,
            })?;
            Ok(Some(Arc::new(Lane::new(index, &rule.id, call, performer))))
        }
    };
    parts.connector.effects.iter().enumerate().map(lane).collect()
}

fn consumer(parts: &Parts, client: ClientSettings) -> ConsumerSettings {
    let source = &parts.connector.source;
    let topics = source.topics.iter().map(|topic| topic.to_string()).collect();
    let mut settings = ConsumerSettings::new(client, &source.group, topics);
    let kafka = &parts.settings.kafka;
    settings.protocol = match source.protocol {
        GroupProtocol::Consumer => Protocol::Consumer,
        GroupProtocol::Classic => Protocol::Classic {
            assignor: if kafka.range_assignor {
                Assignor::Range
            } else {
                Assignor::CooperativeSticky
            },
            session_timeout: kafka.session_timeout,
            heartbeat: kafka.heartbeat,
        },
    };
    settings.instance_id.clone_from(&kafka.instance_id);
    settings.drain_max = parts.settings.worker.drain;
    settings
}

/// Registers the connector and learns the cluster's id; `None` when told to stop meanwhile.
async fn register(
    parts: &Parts,
    admin: &Admin,
    kafka: &Outage,
    mut session: Session,
) -> Result<Option<(i32, String)>, RunError> {
    let mut stop = parts.stop.clone();
    let cluster_id = loop {
        let asked = tokio::select! {
            asked = admin.cluster_id() => asked,
            _ = stop.wait_for(|stop| *stop) => return Ok(None),
        };
        match asked {
            Ok(id) => break id,
            Err(error) => kafka.not_reached("start", &chain(&error)),
        }
        tokio::select! {
            () = tokio::time::sleep(jittered(WAIT)) => {}
            _ = stop.wait_for(|stop| *stop) => return Ok(None),
        }
    };
    kafka.back("start");
    loop {
        let registered = session.patience().bounded(async {
            register::connector(session.connection().await?, &parts.connector).await
        });
        let registered: Result<i32, StoreError> = registered.await;
        match registered {
            Ok(id) => {
                parts.outage.back(session.task());
                return Ok(Some((id, cluster_id)));
            }
            Err(source @ StoreError::Refused { .. }) => {
                let connector = parts.connector.name.clone();
                return Err(RunError::Store { connector, source });
            }
            Err(error) => {
                parts.outage.not_reached(session.task(), &chain(&error));
                session.failed(&error).await;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(jittered(WAIT)) => {}
            _ = stop.wait_for(|stop| *stop) => return Ok(None),
        }
    }
}

/// Refuses a memory that is shorter than what can come again. Topics that cannot be asked about yet
/// are compared when they are begun.
async fn check_retention(connector: &Connector, admin: &Admin) -> Result<(), RunError> {
    for topic in &connector.source.topics {
        match memory::compare(connector, admin, topic).await {
            Ok(None) => {}
            Ok(Some(source)) => {
                let (connector, topic) = (connector.name.clone(), topic.clone());
                return Err(RunError::Retention { connector, topic, source });
            }
            Err(error) => {
                tracing::warn!(%topic, cause = %chain(&error), "topic retention is not known yet");
            }
        }
    }
    Ok(())
}

/// Says at the start which topics are missing that are written to, rather than with the first record.
async fn check_written(connector: &Connector, admin: &Admin) {
    for topic in connector.topics_written() {
        if let Err(KafkaError::TopicMissing { .. }) =
            admin.topics(std::slice::from_ref(&topic)).await
        {
            let remedy = written_remedy(connector, &topic);
            tracing::error!(topic, remedy, "a topic is missing that this connector writes to");
        }
    }
}

/// What to do about a missing topic that a connector reads.
pub(crate) const READ_REMEDY: &str = "make the topic, grant this client Read and Describe on it, or put \
                                      `source.topics` right; a running processor goes on by itself then";

/// What to do about a missing topic that a connector writes to, and what becomes of its records until then.
pub(crate) fn written_remedy(connector: &Connector, topic: &str) -> String {
    let letters = connector.failure.dead_letter.as_ref();
    let field = match letters.filter(|letters| *letters.topic == *topic) {
        Some(_) => "`failure.dead_letter`",
        None => "`message.topic`",
    };
    format!(
        "make the topic, grant access, or put {field} right; until then its records are held, and \
         `oncely outbox retry --topic {topic} --reason …` sends them"
    )
}

/// Starts the relay, where anything goes through the outbox.
fn start_relay(
    parts: &Parts,
    shared: &Arc<Shared>,
    admin: Admin,
    pipeline: Mailbox,
    session: Session,
) -> Result<Option<JoinHandle<()>>, KafkaError> {
    if !outbox::is_used(&parts.connector) {
        return Ok(None);
    }
    let relay = Relay::new(RelayParts {
        shared: Arc::clone(shared),
        session,
        lease: parts.lease.clone(),
        client: parts.settings.kafka.client.clone(),
        admin,
        pipeline,
        health: parts.health.clone(),
        stop: parts.stop.clone(),
    })?;
    Ok(Some(parts.vital.spawn("relay", relay.run())))
}

/// Starts everything that the pipeline talks to.
fn start_parts(
    parts: &Parts,
    shared: &Arc<Shared>,
    admin: Admin,
    session: &dyn Fn(&str) -> Session,
) -> (Ends, Mailbox) {
    let (pipeline, messages) = mpsc::unbounded_channel();
    let (starter, assigned) = mpsc::unbounded_channel();
    let (keeper, kept) = mpsc::unbounded_channel();
    let (ended, settlers) = Outcomes::to(SETTLERS);
    let (asker, questions) = mpsc::unbounded_channel();
    let (lease, claims) = (parts.lease.clone(), parts.claims.clone());
    let mailbox = Mailbox { pipeline: pipeline.clone(), ended: ended.clone() };
    let vital = &parts.vital;
    let planned_once = parts.database.planned_once();
    let name = &parts.connector.name;
    let steady = |task: &str| Session::new(planned_once.clone(), format!("{name} {task}"));
    let mut writers = Vec::new();
    for index in 0..usize::try_from(parts.settings.worker.writers).unwrap_or(1).max(1) {
        let (jobs, work) = mpsc::channel(JOBS_MAX);
        writers.push(jobs);
        let writer = Writer {
            shared: Arc::clone(shared),
            session: steady(&format!("writer {index}")),
            lease: lease.clone(),
            claims: claims.clone(),
            committing: None,
            recent: Recent::default(),
            redriving: None,
            releasing: Releasing::default(),
            counting: false,
            sure_of: None,
        };
        vital.spawn("writer", write(writer, index, work, mailbox.clone()));
    }
    let shared = || Arc::clone(shared);
    let redriver = Redriver {
        writer: Writer {
            shared: shared(),
            session: session("redriver writer"),
            lease: lease.clone(),
            claims: claims.clone(),
            committing: None,
            recent: Recent::default(),
            redriving: None,
            releasing: Releasing::default(),
            counting: false,
            sure_of: None,
        },
        session: session("redriver"),
        pipeline: mailbox.clone(),
        stop: parts.stop.clone(),
        looked_last: None,
    };
    vital.spawn("redriver", redriver.run());
    for (index, outcomes) in settlers.into_iter().enumerate() {
        let settler = Settler {
            shared: shared(),
            session: steady(&format!("settler {index}")),
            lease: lease.clone(),
            claims: claims.clone(),
            ended: outcomes,
            pipeline: pipeline.clone(),
        };
        vital.spawn("settler", settler.run());
    }
    let keeper_part = Keeper {
        shared: shared(),
        session: session("keeper"),
        lease: parts.lease.clone(),
        kept,
        pipeline: pipeline.clone(),
    };
    vital.spawn("keeper", keeper_part.run());
    let starter_part = Starter {
        shared: shared(),
        session: session("starter"),
        lease: parts.lease.clone(),
        admin: admin.clone(),
        memory: Memory::default(),
        assigned,
        pipeline: pipeline.clone(),
    };
    vital.spawn("starter", starter_part.run());
    if caught_up::matters(&parts.connector) {
        let stop = parts.stop.clone();
        let watch = caught_up::watch(shared(), admin.clone(), session("caught up"), stop);
        vital.spawn("caught up", watch);
    }
    vital.spawn("topics", watch_topics(shared(), admin, pipeline.clone()));
    let sweeper = Sweeper {
        shared: shared(),
        session: session("sweeper"),
        lease,
        claims,
        pipeline: mailbox.clone(),
        health: parts.health.clone(),
        stop: parts.stop.clone(),
        lines: super::lines::names(&shared()),
        circuits: None,
    };
    vital.spawn("sweeper", sweeper.run());
    vital.spawn("asker", ask(session("asker"), questions, pipeline));
    let claims = parts.claims.clone();
    (Ends { messages, starter, keeper, ended, asker, writers, claims }, mailbox)
}

async fn write(
    mut writer: Writer,
    index: usize,
    mut work: mpsc::Receiver<Vec<super::item::Item>>,
    pipeline: Mailbox,
) -> Result<(), Stopped> {
    while let Some(items) = work.recv().await {
        let report = writer.write(items).await?;
        pipeline.send(Message::Written { writer: index, report });
    }
    Ok(())
}

/// Tells the pipeline what the topics are now, until it is gone: one that was deleted and made anew
/// under a running consumer is read on as if nothing had happened.
async fn watch_topics(
    shared: Arc<Shared>,
    admin: Admin,
    pipeline: mpsc::UnboundedSender<Message>,
) -> Result<(), Stopped> {
    let names: Vec<String> =
        shared.connector.source.topics.iter().map(|topic| topic.to_string()).collect();
    let mut interval = clock::every(TOPICS_EVERY);
    while !pipeline.is_closed() {
        interval.tick().await;
        match admin.topic_ids(&names).await {
            Ok(ids) => drop(pipeline.send(Message::Topics(ids))),
            Err(error) => tracing::debug!(cause = %chain(&error), "no look at the topics"),
        }
    }
    Ok(())
}

/// Notices effects that others settle: another process, a person, retention.
async fn ask(
    mut session: Session,
    mut questions: mpsc::UnboundedReceiver<Vec<Key>>,
    pipeline: mpsc::UnboundedSender<Message>,
) -> Result<(), Stopped> {
    while let Some(keys) = questions.recv().await {
        let statuses = session
            .patience()
            .bounded(async { batch::effect_statuses(session.connection().await?, &keys).await });
        let statuses: Result<_, StoreError> = statuses.await;
        match statuses {
            Ok(statuses) => {
                let lets_go = |key: &Key| {
                    statuses
                        .get(key)
                        .is_none_or(|(status, held)| hold_of(*status, *held) == Hold::LetsGo)
                };
                let gone = keys.into_iter().filter(lets_go).collect();
                drop(pipeline.send(Message::LetGo(gone)));
            }
            // The question comes again in a second.
            Err(error) => session.failed(&error).await,
        }
    }
    Ok(())
}

/// Waits for batches at work, for calls in flight, and for their outcomes to be on record, within the
/// grace counted from the moment when the end was asked for. What is still open then is found by its
/// lease.
async fn drain_calls(claims: &Claims, ending: Moment, grace: Duration) {
    while !claims.is_idle() && clock::since(ending) < grace {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
