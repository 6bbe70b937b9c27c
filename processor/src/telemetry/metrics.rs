//! The metrics of one process.
//!
//! Gives: handles, and the text that Prometheus scrapes. Labels are closed sets, so that the number
//! of series is fixed once the connectors are loaded.

use std::sync::Arc;

use prometheus::{Registry, TextEncoder};

use oncely_core::effect::status::Status;

use super::connector::{ConnectorMetrics, ConnectorShape};
use super::family::{Count, Counters, Gauges, Histograms, Level, TelemetryError};
use super::metric::Metric;

/// What `/metrics` shows. Cheap to clone; every clone is the same.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    pub(super) families: Arc<Families>,
}

/// Every family, under the name of its [`Metric`].
#[derive(Debug)]
pub(super) struct Families {
    pub(super) events_consumed: Counters<2>,
    pub(super) events_released: Counters<1>,
    pub(super) events: Counters<3>,
    pub(super) event_duration: Histograms<2>,
    pub(super) event_end_to_end: Histograms<1>,
    pub(super) dedupe_decisions: Counters<3>,
    pub(super) dedupe_redelivery_age: Histograms<1>,
    pub(super) state_transitions: Counters<3>,
    pub(super) state_version_gaps: Counters<1>,
    pub(super) deferred_open: Gauges<2>,
    pub(super) deferred_oldest: Gauges<1>,
    pub(super) deferred_limit: Gauges<1>,
    pub(super) deferred_released: Counters<2>,
    pub(super) deferred_escalated: Counters<2>,
    pub(super) effect_attempts: Counters<4>,
    pub(super) effect_lookups: Counters<3>,
    pub(super) llm_tokens: Counters<3>,
    pub(super) effect_duration: Histograms<2>,
    pub(super) effects_finished: Counters<3>,
    pub(super) effects_held: Counters<2>,
    pub(super) effects_open: Gauges<3>,
    pub(super) effect_oldest_open: Gauges<2>,
    pub(super) effects_orphaned: Gauges<2>,
    pub(super) effect_duplicates_prevented: Counters<1>,
    pub(super) effect_circuit_open: Gauges<2>,
    pub(super) effects_taken_over: Counters<2>,
    pub(super) claims_adopted: Counters<1>,
    pub(super) records_let_go: Counters<1>,
    pub(super) batch_records: Histograms<1>,
    pub(super) batch_bytes: Histograms<1>,
    pub(super) batch_redos: Counters<2>,
    pub(super) consumer_lag_records: Gauges<3>,
    pub(super) consumer_lag_seconds: Gauges<2>,
    pub(super) partitions_assigned: Gauges<1>,
    pub(super) partitions_stopped: Gauges<1>,
    pub(super) intake_paused: Gauges<1>,
    pub(super) rebalances: Counters<2>,
    pub(super) offset_commits: Counters<2>,
    pub(super) uncommitted_records: Gauges<1>,
    pub(super) kafka_fatal_errors: Counters<1>,
    pub(super) dead_letters: Counters<2>,
    pub(super) dead_letters_open: Gauges<1>,
    pub(super) quarantine_open: Gauges<1>,
    pub(super) outbox_records: Counters<3>,
    pub(super) redriven: Counters<2>,
    pub(super) outbox_open: Gauges<2>,
    pub(super) outbox_oldest: Gauges<1>,
    pub(super) workers_declared_dead: Counters<0>,
    pub(super) leases_lost: Counters<0>,
    pub(super) database_failovers: Counters<1>,
    pub(super) task_panics: Counters<1>,
    pub(super) database_up: Gauges<0>,
    pub(super) kafka_up: Gauges<1>,
    pub(super) connector_info: Gauges<3>,
    pub(super) build_info: Gauges<1>,
}

impl Metrics {
    /// # Errors
    /// A mistake in this crate; a test makes sure that there is none.
    pub fn new() -> Result<Self, TelemetryError> {
        let registry = Registry::new();
        let families = Arc::new(Families::register(&registry)?);
        families.build_info.with([env!("CARGO_PKG_VERSION")]).set(1);
        families.workers_declared_dead.with([]);
        families.leases_lost.with([]);
        families.database_up.with([]);
        families.database_failovers.with(["possible"]);
        families.database_failovers.with(["none"]);
        Ok(Self { registry, families })
    }

    /// Handles for one connector; to be asked for once, when it is loaded.
    pub fn connector(&self, shape: &ConnectorShape<'_>) -> ConnectorMetrics {
        ConnectorMetrics::new(&self.families, shape)
    }

    /// The text format of Prometheus, version 0.0.4.
    ///
    /// # Errors
    /// When a family is inconsistent, which only a mistake in this crate can cause.
    pub fn text(&self) -> Result<String, TelemetryError> {
        TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .map_err(|source| TelemetryError::Register { name: "(all)", source })
    }

    pub fn workers_declared_dead(&self) -> Count {
        self.families.workers_declared_dead.with([])
    }

    pub fn database_up(&self) -> Level {
        self.families.database_up.with([])
    }

    pub fn kafka_up(&self, connector: &str) -> Level {
        self.families.kafka_up.with([connector])
    }

    pub fn leases_lost(&self) -> Count {
        self.families.leases_lost.with([])
    }

    /// `lost`: acknowledged commits may be.
    pub fn database_failovers(&self, lost: bool) -> Count {
        self.families.database_failovers.with([if lost { "possible" } else { "none" }])
    }

    pub fn task_panics(&self, task: &'static str) -> Count {
        self.families.task_panics.with([task])
    }

    /// What the tables say about open things, by the one replica that asks them. The others call
    /// this with `None` and show nothing, so that a sum over replicas is true.
    pub fn set_open(&self, open: Option<&OpenThings>) {
        let families = &self.families;
        families.effects_open.clear();
        families.effect_oldest_open.clear();
        families.effects_orphaned.clear();
        families.dead_letters_open.clear();
        families.quarantine_open.clear();
        families.outbox_open.clear();
        families.outbox_oldest.clear();
        families.deferred_open.clear();
        families.deferred_oldest.clear();
        let Some(open) = open else { return };
        for effects in &open.effects {
            let EffectsOpen { connector, effect, status, count, oldest_at, orphaned } = effects;
            families.effects_open.with([connector, effect, status.as_str()]).set(*count);
            let oldest = families.effect_oldest_open.with([connector, effect]);
            oldest.lower_to(*oldest_at);
            if *orphaned {
                families.effects_orphaned.with([connector, effect]).raise_by(*count);
            }
        }
        for parked in &open.parked {
            families.dead_letters_open.with([&parked.connector]).set(parked.dead_letters);
            families.quarantine_open.with([&parked.connector]).set(parked.quarantined);
        }
        for OutboxOpen { connector, waiting, held, oldest_at } in &open.outbox {
            families.outbox_open.with([connector, "waiting"]).set(*waiting);
            families.outbox_open.with([connector, "held"]).set(*held);
            families.outbox_oldest.with([connector]).set(*oldest_at);
        }
        for DeferredOpen { connector, cause, count, oldest_at } in &open.deferred {
            families.deferred_open.with([connector, cause]).set(*count);
            families.deferred_oldest.with([connector]).lower_to(*oldest_at);
        }
    }
}

/// What is open, counted from the tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenThings {
    pub effects: Vec<EffectsOpen>,
    pub parked: Vec<ParkedOpen>,
    pub outbox: Vec<OutboxOpen>,
    pub deferred: Vec<DeferredOpen>,
}

/// Events of one connector that wait for one cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeferredOpen {
    pub connector: String,
    /// `gap` or `parked`.
    pub cause: String,
    pub count: u64,
    /// Since when the first waits, seconds since 1970.
    pub oldest_at: u64,
}

/// Records of one connector that the brokers do not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxOpen {
    pub connector: String,
    pub waiting: u64,
    pub held: u64,
    /// When the oldest came in, seconds since 1970.
    pub oldest_at: u64,
}

/// Open effects of one kind in one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectsOpen {
    pub connector: String,
    pub effect: String,
    pub status: Status,
    pub count: u64,
    /// When the oldest was owed first, seconds since 1970.
    pub oldest_at: u64,
    /// No connector file that runs has it: nobody will perform it.
    pub orphaned: bool,
}

/// Parked rows of one connector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedOpen {
    pub connector: String,
    pub dead_letters: u64,
    pub quarantined: u64,
}

// --------------------------------------------------------------------------------------------- //

impl Families {
    fn register(registry: &Registry) -> Result<Self, TelemetryError> {
        Ok(Self {
            events_consumed: Counters::register(registry, Metric::EventsConsumed)?,
            events_released: Counters::register(registry, Metric::EventsReleased)?,
            events: Counters::register(registry, Metric::Events)?,
            event_duration: Histograms::register(registry, Metric::EventDuration)?,
            event_end_to_end: Histograms::register(registry, Metric::EventEndToEnd)?,
            dedupe_decisions: Counters::register(registry, Metric::DedupeDecisions)?,
            dedupe_redelivery_age: Histograms::register(registry, Metric::DedupeRedeliveryAge)?,
            state_transitions: Counters::register(registry, Metric::StateTransitions)?,
            state_version_gaps: Counters::register(registry, Metric::StateVersionGaps)?,
            deferred_open: Gauges::register(registry, Metric::DeferredOpen)?,
            deferred_oldest: Gauges::register(registry, Metric::DeferredOldest)?,
            deferred_limit: Gauges::register(registry, Metric::DeferredLimit)?,
            deferred_released: Counters::register(registry, Metric::DeferredReleased)?,
            deferred_escalated: Counters::register(registry, Metric::DeferredEscalated)?,
            effect_attempts: Counters::register(registry, Metric::EffectAttempts)?,
            effect_lookups: Counters::register(registry, Metric::EffectLookups)?,
            llm_tokens: Counters::register(registry, Metric::LlmTokens)?,
            effect_duration: Histograms::register(registry, Metric::EffectDuration)?,
            effects_finished: Counters::register(registry, Metric::EffectsFinished)?,
            effects_held: Counters::register(registry, Metric::EffectsHeld)?,
            effects_open: Gauges::register(registry, Metric::EffectsOpen)?,
            effect_oldest_open: Gauges::register(registry, Metric::EffectOldestOpen)?,
            effects_orphaned: Gauges::register(registry, Metric::EffectsOrphaned)?,
            effect_duplicates_prevented: Counters::register(
                registry,
                Metric::EffectDuplicatesPrevented,
            )?,
            effect_circuit_open: Gauges::register(registry, Metric::EffectCircuitOpen)?,
            effects_taken_over: Counters::register(registry, Metric::EffectsTakenOver)?,
            claims_adopted: Counters::register(registry, Metric::ClaimsAdopted)?,
            records_let_go: Counters::register(registry, Metric::RecordsLetGo)?,
            batch_records: Histograms::register(registry, Metric::BatchRecords)?,
            batch_bytes: Histograms::register(registry, Metric::BatchBytes)?,
            batch_redos: Counters::register(registry, Metric::BatchRedos)?,
            consumer_lag_records: Gauges::register(registry, Metric::ConsumerLagRecords)?,
            consumer_lag_seconds: Gauges::register(registry, Metric::ConsumerLagSeconds)?,
            partitions_assigned: Gauges::register(registry, Metric::PartitionsAssigned)?,
            partitions_stopped: Gauges::register(registry, Metric::PartitionsStopped)?,
            intake_paused: Gauges::register(registry, Metric::IntakePaused)?,
            rebalances: Counters::register(registry, Metric::Rebalances)?,
            offset_commits: Counters::register(registry, Metric::OffsetCommits)?,
            uncommitted_records: Gauges::register(registry, Metric::UncommittedRecords)?,
            kafka_fatal_errors: Counters::register(registry, Metric::KafkaFatalErrors)?,
            dead_letters: Counters::register(registry, Metric::DeadLetters)?,
            dead_letters_open: Gauges::register(registry, Metric::DeadLettersOpen)?,
            quarantine_open: Gauges::register(registry, Metric::QuarantineOpen)?,
            outbox_records: Counters::register(registry, Metric::OutboxRecords)?,
            redriven: Counters::register(registry, Metric::Redriven)?,
            outbox_open: Gauges::register(registry, Metric::OutboxOpen)?,
            outbox_oldest: Gauges::register(registry, Metric::OutboxOldest)?,
            workers_declared_dead: Counters::register(registry, Metric::WorkersDeclaredDead)?,
            leases_lost: Counters::register(registry, Metric::LeasesLost)?,
            database_failovers: Counters::register(registry, Metric::DatabaseFailovers)?,
            task_panics: Counters::register(registry, Metric::TaskPanics)?,
            database_up: Gauges::register(registry, Metric::DatabaseUp)?,
            kafka_up: Gauges::register(registry, Metric::KafkaUp)?,
            connector_info: Gauges::register(registry, Metric::ConnectorInfo)?,
            build_info: Gauges::register(registry, Metric::BuildInfo)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_registered_as_described() {
        let metrics = Metrics::new().unwrap();
        assert!(metrics.text().unwrap().contains("oncely_build_info{version="));
    }

    #[test]
    fn what_is_open_is_replaced_as_a_whole() {
        let metrics = Metrics::new().unwrap();
        let held = EffectsOpen {
            connector: "c".to_owned(),
            effect: "e".to_owned(),
            status: Status::Held,
            count: 3,
            oldest_at: 20,
            orphaned: true,
        };
        let older =
            EffectsOpen { status: Status::Waiting, count: 1, oldest_at: 10, ..held.clone() };
        let open = OpenThings { effects: vec![held, older], ..OpenThings::default() };
        metrics.set_open(Some(&open));
        let text = metrics.text().unwrap();
        assert!(text.contains(r#"oncely_effects_open{connector="c",effect="e",status="held"} 3"#));
        let oldest = r#"oncely_effect_oldest_open_timestamp_seconds{connector="c",effect="e"} 10"#;
        assert!(text.contains(oldest), "{text}");
        assert!(text.contains(r#"oncely_effects_orphaned{connector="c",effect="e"} 4"#), "{text}");
        metrics.set_open(None);
        assert!(!metrics.text().unwrap().contains("oncely_effects_open{"));
    }
}
