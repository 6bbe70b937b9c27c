//! A connector as the processor uses it: checked, compiled, nothing left to refuse.
//!
//! Only the connector file's compiler makes these values; whoever holds one may rely on every rule
//! that the file's checks name. Secrets are references here, never values.

mod profile;
mod request;

use std::collections::BTreeSet;

pub use self::profile::{Profile, StatusClass, StatusRange, StatusRule};
pub use self::request::{
    Auth, BodyRule, HttpRule, RecordRule, RequestRule, SecretText, SigningSecret, SmtpRule,
    ValueRule, WebhookRule,
};
use crate::effect::retry::Retry;
use crate::expr::{Expr, Path, Root, Scope};
use crate::template::Template;

/// One connector file: one consumer group.
#[derive(Debug)]
pub struct Connector {
    pub name: Box<str>,
    /// First part of every key; the name unless declared, so that a rename can keep its memory.
    pub scope: Box<str>,
    pub owner: Option<Box<str>>,
    pub source: Source,
    pub decode: Decode,
    /// Records for which this is not true are ignored.
    pub matches: Option<Expr>,
    pub identity: Identity,
    pub state: Option<StateRules>,
    /// In the order of the file; `after` refers to earlier or later ones by index, without cycles.
    pub effects: Vec<EffectRule>,
    pub failure: Failure,
    pub retention: Retention,
}

impl Connector {
    pub fn effect(&self, id: &str) -> Option<&EffectRule> {
        self.effects.iter().find(|rule| &*rule.id == id)
    }

    /// Whether events may have to wait for others of their entity.
    pub fn defers(&self) -> bool {
        self.state.as_ref().is_some_and(StateRules::defers)
    }

    /// Topics that it writes to, as far as its file alone names them; sorted, without repeats.
    pub fn topics_written(&self) -> BTreeSet<String> {
        let fixed = |rule: &EffectRule| match rule.body.request()? {
            RequestRule::Record(record) if record.topic.reads().is_empty() => {
                record.topic.render(&Scope::default()).ok()
            }
            RequestRule::Record(_)
            | RequestRule::Http(_)
            | RequestRule::Webhook(_)
            | RequestRule::Smtp(_) => None,
        };
        let dead_letters = self.failure.dead_letter.iter().map(|letters| letters.topic.to_string());
        self.effects.iter().filter_map(fixed).chain(dead_letters).collect()
    }

    /// Calls `visit` with everything that decisions and requests look at.
    pub fn for_each_read(&self, visit: &mut dyn FnMut(&Path)) {
        let mut exprs: Vec<&Expr> = vec![&self.identity.id];
        exprs.extend(self.matches.iter().chain(&self.identity.tenant));
        if let FingerprintRule::Fields(fields) = &self.identity.fingerprint {
            exprs.extend(fields);
        }
        if let Some(state) = &self.state {
            exprs.extend([&state.key, &state.version]);
            exprs.extend(state.transitions.iter().filter_map(|one| one.condition.as_ref()));
        }
        for rule in &self.effects {
            exprs.extend(rule.when.iter().chain(&rule.key));
            exprs.extend(rule.compensates.iter().flat_map(|undone| &undone.key));
            match &rule.body {
                EffectBody::Call(call) => {
                    call.request.for_each_read(visit);
                    call.lookup.iter().for_each(|lookup| lookup.request.for_each_read(visit));
                }
                EffectBody::Publish(publish) => publish.request.for_each_read(visit),
                EffectBody::Ledger(line) => line.for_each_read(visit),
            }
        }
        exprs.iter().flat_map(|expr| expr.reads()).for_each(visit);
    }
}

#[derive(Debug)]
pub struct Source {
    /// At least one, without repeats.
    pub topics: Vec<Box<str>>,
    pub group: Box<str>,
    pub start: Start,
    pub protocol: GroupProtocol,
}

/// Where a group begins that has no position yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    Earliest,
    Latest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupProtocol {
    /// Cooperative-sticky.
    Classic,
    /// KIP-848.
    Consumer,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decode {
    pub envelope: Envelope,
    /// Bytes a record's value may have; a larger one is parked.
    pub bytes_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Envelope {
    /// The value is the event.
    None,
    /// CloudEvents, structured or binary mode by the record's content type; the event has the
    /// attributes as members and the data as `data`.
    CloudEvents,
}

#[derive(Debug)]
pub struct Identity {
    pub tenant: Option<Expr>,
    pub id: Expr,
    pub fingerprint: FingerprintRule,
    pub on_conflict: OnConflict,
}

#[derive(Debug)]
pub enum FingerprintRule {
    Fields(Vec<Expr>),
    /// The whole event without these member paths.
    WholeWithout(Vec<Vec<Box<str>>>),
}

/// Where a second event with a known id but other content goes. It is never run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    Quarantine,
    DeadLetter,
}

#[derive(Debug)]
pub struct StateRules {
    /// The kind of entity, a part of its key.
    pub entity: Box<str>,
    pub key: Expr,
    pub version: Expr,
    pub initial: Box<str>,
    /// States without a transition out of them are terminal.
    pub transitions: Vec<Transition>,
    pub on_invalid: OnInvalid,
    pub on_gap: OnGap,
    pub on_parked: OnParked,
    /// Events of the connector that may be deferred at a time, give or take a batch of each writer.
    pub deferred_max: u32,
}

impl StateRules {
    /// Whether events may have to wait for others of their entity.
    pub fn defers(&self) -> bool {
        matches!(self.on_gap, OnGap::Wait(_)) || self.on_parked == OnParked::Wait
    }
}

/// What becomes of an event whose version is more than one above the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnGap {
    /// It applies; what is missing is stale when it comes.
    Apply,
    Wait(GapWait),
}

/// How long an event waits for the missing ones, and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapWait {
    pub wait_ms: u64,
    pub then: AfterWait,
    /// The version that an entity begins with; without it any version does.
    pub first: Option<i64>,
}

/// What becomes of the event that has waited longest for a version that did not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterWait {
    /// It applies over the gap, and what follows without another one.
    Apply,
    /// It is set aside; those behind it wait for their own time.
    Quarantine,
}

impl AfterWait {
    /// The word of the connector file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Quarantine => "quarantine",
        }
    }
}

/// What becomes of later events of an entity while one of its records is parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnParked {
    Apply,
    /// They wait, in their order, until a person has decided about it.
    Wait,
}

#[derive(Debug)]
pub struct Transition {
    pub from: Vec<Box<str>>,
    pub to: Box<str>,
    pub condition: Option<Expr>,
}

/// What becomes of a newer event for which the table has no transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnInvalid {
    Quarantine,
    DeadLetter,
    Ignore,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub offset_wait: OffsetWait,
    /// Where each dead letter is sent as well.
    pub dead_letter: Option<DeadLetters>,
    /// How often a dead letter is redriven before a person has to insist.
    pub redrives_max: u32,
    /// Open effects, held ones not counted, at which no new events are taken; at least 1.
    pub open_effects_max: u64,
}

/// A topic for dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetters {
    pub topic: Box<str>,
    /// With the headers that Kafka Connect's readers know.
    pub connect: bool,
    /// With those that Spring's know.
    pub spring: bool,
}

/// How long an open effect may hold its record's offset back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetWait {
    /// Since the event was first seen; zero lets go as soon as the effect is durable.
    Millis(u64),
    Forever,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// How long inbox rows and final effects live.
    pub dedupe_ms: u64,
    /// So long after it was first seen an event may be replayed, or redriven out of the dead letters.
    pub replay_ms: u64,
    /// How long event bytes and results live after everything of the event is final.
    pub payloads_ms: u64,
}

// --------------------------------------------------------------------------------------------- //

#[derive(Debug)]
pub struct EffectRule {
    pub id: Box<str>,
    pub when: Option<Expr>,
    /// The effect's own key parts, after scope, tenant and effect id.
    pub key: Vec<Expr>,
    /// Indexes in [`Connector::effects`] of those that must be done first.
    pub after: Vec<usize>,
    /// What it undoes.
    pub compensates: Option<Compensation>,
    pub on_stale: OnStale,
    pub body: EffectBody,
}

impl EffectRule {
    /// Whether it is a row of the effect ledger, and not written at once with the event.
    pub fn is_tracked(&self) -> bool {
        match &self.body {
            EffectBody::Call(_) | EffectBody::Publish(_) => true,
            EffectBody::Ledger(line) => line.waits,
        }
    }
}

/// An effect of an earlier event of the same entity that another one undoes.
#[derive(Debug)]
pub struct Compensation {
    /// Index in [`Connector::effects`] of the effect that is undone.
    pub effect: usize,
    /// That effect's own key parts, as the event that asks for it to be undone has them.
    pub key: Vec<Expr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStale {
    Skip,
    Run,
}

#[derive(Debug)]
pub enum EffectBody {
    /// A call of a provider.
    Call(Box<CallRule>),
    /// A row of the usage ledger, in the batch transaction or when what it comes after is done.
    Ledger(Box<LedgerRule>),
    /// A record for a Kafka topic: a row of the outbox in the transaction in which its turn comes.
    Publish(Box<PublishRule>),
}

impl EffectBody {
    /// The request of an effect that is done outside the transaction.
    pub fn request(&self) -> Option<&RequestRule> {
        match self {
            Self::Call(call) => Some(&call.request),
            Self::Publish(publish) => Some(&publish.request),
            Self::Ledger(_) => None,
        }
    }

    /// Whether its request reads results of earlier effects and can only be rendered then.
    pub fn reads_results(&self) -> bool {
        match self {
            Self::Call(call) => call.reads_results,
            Self::Publish(publish) => publish.reads_results,
            Self::Ledger(_) => false,
        }
    }

    /// Whether the event's bytes are needed after the batch transaction.
    pub fn needs_event_later(&self) -> bool {
        match self {
            Self::Call(call) => call.needs_event_later(),
            Self::Publish(publish) => publish.reads_results,
            Self::Ledger(_) => false,
        }
    }
}

/// A record that is published.
#[derive(Debug)]
pub struct PublishRule {
    /// Always [`RequestRule::Record`].
    pub request: RequestRule,
    /// Whether it reads results of earlier effects and so can only be rendered when these are done.
    pub reads_results: bool,
}

#[derive(Debug)]
pub struct LedgerRule {
    pub account: Expr,
    pub metric: Template,
    /// Must give a number; kept exact.
    pub quantity: Expr,
    /// The event's own time as RFC 3339 text or integer milliseconds since 1970.
    pub at: Option<Expr>,
    /// It comes after other effects and may read their results: it is written in the transaction that
    /// finds them done.
    pub waits: bool,
}

impl LedgerRule {
    /// Calls `visit` with everything that the line looks at.
    pub fn for_each_read(&self, visit: &mut dyn FnMut(&Path)) {
        let exprs = [&self.account, &self.quantity].into_iter().chain(&self.at);
        exprs.flat_map(|expr| expr.reads()).for_each(&mut *visit);
        self.metric.reads().iter().for_each(visit);
    }
}

#[derive(Debug)]
pub struct CallRule {
    /// The effect's type as the file has it: `http`, `billing`, `email`, `webhook` or `llm`.
    pub kind: &'static str,
    /// The model that an `llm` asks, by the name that the file has.
    pub model: Option<Box<str>>,
    pub request: RequestRule,
    /// Whether the request reads results of earlier effects (`effects.settle.…`) and so can only be
    /// rendered when these are done.
    pub reads_results: bool,
    /// What is kept of the answer: name and expression over `response`. Needs a readable body.
    pub record: Vec<(Box<str>, Expr)>,
    pub profile: Profile,
    pub on_unknown: OnUnknown,
    /// How the provider is asked; there is one where `on_unknown` is [`OnUnknown::Reconcile`].
    pub lookup: Option<LookupRule>,
    pub retry: Retry,
    pub timeout: Timeout,
    pub limits: Limits,
}

impl CallRule {
    /// Whether the event's bytes are needed after the batch transaction: a request is rendered when
    /// earlier results are there, a look-up when it is made.
    pub fn needs_event_later(&self) -> bool {
        self.reads_results || self.lookup.as_ref().is_some_and(LookupRule::reads_event)
    }
}

/// How a provider is asked whether an effect took place.
#[derive(Debug)]
pub struct LookupRule {
    pub request: HttpRule,
    /// Over `response`: the provider has it.
    pub done: Expr,
    /// Over `response`: the provider does not know it. Where there is none, a success that is not
    /// `done` says so.
    pub not_found: Option<Expr>,
    /// What is kept of the answer, under the names of the call's own `record`.
    pub record: Vec<(Box<str>, Expr)>,
    /// Over `response`: the part of this answer that stands for the call's. The call's own `record`
    /// reads it as `response.json`, for what [`LookupRule::record`] does not name.
    pub answer: Option<Expr>,
    /// How long after a send "not found" is not believed: at least the time-out and what the provider
    /// may take to show an effect.
    pub settle_ms: u64,
    pub on_not_found: OnNotFound,
}

impl LookupRule {
    /// Whether it looks at more than the effect's key and the tenant.
    pub fn reads_event(&self) -> bool {
        let mut reads = false;
        self.request.for_each_read(&mut |path| {
            reads |= !matches!(path.root, Root::Effect | Root::Tenant);
        });
        reads
    }
}

/// What follows when an effect is surely not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnNotFound {
    /// Send it again.
    Resend,
    /// Give it up: a dead letter.
    Fail,
}

/// What follows when it cannot be known whether the provider acted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnknown {
    /// Send the same bytes with the same key again, inside the provider's key window.
    RetrySameKey,
    /// Ask the provider, by [`CallRule::lookup`].
    Reconcile,
    /// Keep it for a person.
    Hold,
    /// Declared at most once: count it as done.
    AssumeDone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout {
    pub connect_ms: u64,
    pub total_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Calls of this effect in flight in one process.
    pub concurrency: u32,
    /// Calls that may start, in one process.
    pub rate: Option<Rate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub calls: u32,
    pub per_ms: u64,
}
