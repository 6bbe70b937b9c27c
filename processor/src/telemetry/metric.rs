//! Every metric that exists: name, kind, labels, help.
//!
//! Names are an interface: dashboards and alerts of other people use them, so a rename is a breaking
//! change, and a golden list guards them. Labels come from closed sets (connector files and enums of
//! this module), never from events.

/// What a metric measures with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    /// Upper bounds of the buckets.
    Histogram(Buckets),
}

/// Buckets, by what they measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buckets {
    /// 1 ms to 10 s: stages.
    Stage,
    /// 10 ms to 120 s: calls of providers.
    Effect,
    /// 50 ms to 1 h: from a record's timestamp to its commit.
    EndToEnd,
    /// 1 s to 30 d: how late a repeat comes.
    Age,
    /// 1 to 2,000 records.
    Records,
    /// 1 KiB to 4 MiB.
    Bytes,
}

impl Buckets {
    pub const fn bounds(self) -> &'static [f64] {
        match self {
            Self::Stage => {
                &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]
            }
            Self::Effect => {
                &[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0]
            }
            Self::EndToEnd => {
                &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0]
            }
            Self::Age => &[
                1.0,
                10.0,
                60.0,
                600.0,
                3_600.0,
                21_600.0,
                86_400.0,
                259_200.0,
                604_800.0,
                1_209_600.0,
                2_592_000.0,
            ],
            Self::Records => {
                &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0]
            }
            Self::Bytes => &[
                1_024.0,
                4_096.0,
                16_384.0,
                65_536.0,
                262_144.0,
                1_048_576.0,
                2_097_152.0,
                4_194_304.0,
            ],
        }
    }
}

// --------------------------------------------------------------------------------------------- //

/// One metric, described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Description {
    Description { name, kind: Kind::Counter, labels, help }
}

const fn gauge(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Description {
    Description { name, kind: Kind::Gauge, labels, help }
}

const fn histogram(
    name: &'static str,
    buckets: Buckets,
    labels: &'static [&'static str],
    help: &'static str,
) -> Description {
    Description { name, kind: Kind::Histogram(buckets), labels, help }
}

macro_rules! metrics {
    ($($metric:ident => $description:expr,)+) => {
        /// The metrics of the processor, and no others.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Metric {
            $($metric,)+
        }

        impl Metric {
            pub const ALL: &'static [Self] = &[$(Self::$metric,)+];

            pub const fn describe(self) -> Description {
                match self {
                    $(Self::$metric => $description,)+
                }
            }
        }
    };
}

metrics! {
    EventsConsumed => counter(
        "oncely_events_consumed_total", &["connector", "topic"],
        "Records read from Kafka, each time that they are. Each ends in oncely_events_total or in oncely_events_released_total.",
    ),
    EventsReleased => counter(
        "oncely_events_released_total", &["connector"],
        "Records read and given up before any outcome, at a rebalance or a stop: their next owner reads them.",
    ),
    Events => counter(
        "oncely_events_total", &["connector", "outcome", "reason"],
        "Records by their one outcome, counted when it is durable.",
    ),
    EventDuration => histogram(
        "oncely_event_duration_seconds", Buckets::Stage, &["connector", "stage"],
        "Time that a batch spends in one stage.",
    ),
    EventEndToEnd => histogram(
        "oncely_event_end_to_end_seconds", Buckets::EndToEnd, &["connector"],
        "From a record's timestamp until its outcome is durable; effects may follow.",
    ),
    DedupeDecisions => counter(
        "oncely_dedupe_decisions_total", &["connector", "layer", "decision"],
        "Decisions about keys: of events in the inbox, of effects in the ledger.",
    ),
    DedupeRedeliveryAge => histogram(
        "oncely_dedupe_redelivery_age_seconds", Buckets::Age, &["connector"],
        "How long after the first copy a repeat came; must stay below the retention.",
    ),
    StateTransitions => counter(
        "oncely_state_transitions_total", &["connector", "from", "to"],
        "Transitions of entities.",
    ),
    StateVersionGaps => counter(
        "oncely_state_version_gaps_total", &["connector"],
        "Events that came while a version before theirs was missing.",
    ),
    DeferredOpen => gauge(
        "oncely_deferred_open", &["connector", "cause"],
        "Events that wait for another one of their entity. Set by one replica.",
    ),
    DeferredOldest => gauge(
        "oncely_deferred_oldest_timestamp_seconds", &["connector"],
        "Since when the event waits that has waited longest. Set by one replica.",
    ),
    DeferredLimit => gauge(
        "oncely_deferred_limit", &["connector"],
        "How many events may wait; one more is quarantined.",
    ),
    DeferredReleased => counter(
        "oncely_deferred_released_total", &["connector", "outcome"],
        "Events that waited, by what they came to in the end.",
    ),
    DeferredEscalated => counter(
        "oncely_deferred_escalated_total", &["connector", "then"],
        "Events that waited for a version that did not come in time, by what became of them.",
    ),
    EffectAttempts => counter(
        "oncely_effect_attempts_total", &["connector", "effect", "type", "result"],
        "Attempts by what was seen.",
    ),
    EffectLookups => counter(
        "oncely_effect_lookups_total", &["connector", "effect", "result"],
        "Look-ups of effects whose outcome was unknown, by what the provider said.",
    ),
    LlmTokens => counter(
        "oncely_llm_tokens_total", &["connector", "model", "direction"],
        "Tokens that answers of models say were used, by the model's name in the file.",
    ),
    EffectDuration => histogram(
        "oncely_effect_duration_seconds", Buckets::Effect, &["connector", "effect"],
        "Time of one attempt, from the connection to the last byte.",
    ),
    EffectsFinished => counter(
        "oncely_effects_finished_total", &["connector", "effect", "result"],
        "Effects that became final.",
    ),
    EffectsHeld => counter(
        "oncely_effects_held_total", &["connector", "effect"],
        "Effects that were set aside for a person to decide.",
    ),
    EffectsOpen => gauge(
        "oncely_effects_open", &["connector", "effect", "status"],
        "Effects that are not final. Set by one replica.",
    ),
    EffectOldestOpen => gauge(
        "oncely_effect_oldest_open_timestamp_seconds", &["connector", "effect"],
        "When the oldest open effect was owed first. Set by one replica.",
    ),
    EffectsOrphaned => gauge(
        "oncely_effects_orphaned", &["connector", "effect"],
        "Open effects that no connector file that runs has any more. Set by one replica.",
    ),
    EffectCircuitOpen => gauge(
        "oncely_effect_circuit_open", &["connector", "effect"],
        "1 while effects wait and this process tries one call at a time, since the provider does not answer or refuses us.",
    ),
    EffectDuplicatesPrevented => counter(
        "oncely_effect_duplicates_prevented_total", &["connector"],
        "Effects that a repeat or another event owed again and that were not sent again.",
    ),
    EffectsTakenOver => counter(
        "oncely_effects_taken_over_total", &["connector", "effect"],
        "Claims of dead workers that this process took over.",
    ),
    ClaimsAdopted => counter(
        "oncely_claims_adopted_total", &["connector"],
        "Own claims that had been lost sight of and were found again.",
    ),
    RecordsLetGo => counter(
        "oncely_records_let_go_total", &["connector"],
        "Records whose offset was let go while an effect was still open (offset_wait).",
    ),
    BatchRecords => histogram(
        "oncely_batch_records", Buckets::Records, &["connector"],
        "Records in one batch transaction.",
    ),
    BatchBytes => histogram(
        "oncely_batch_bytes", Buckets::Bytes, &["connector"],
        "Bytes of keys, values and headers in one batch transaction.",
    ),
    BatchRedos => counter(
        "oncely_batch_redos_total", &["connector", "cause"],
        "Batch transactions that were rolled back and done again.",
    ),
    ConsumerLagRecords => gauge(
        "oncely_consumer_lag_records", &["connector", "topic", "partition"],
        "Records between the position and the end of an assigned partition.",
    ),
    ConsumerLagSeconds => gauge(
        "oncely_consumer_lag_seconds", &["connector", "topic"],
        "Age of the oldest record that is not finished; 0 at the end of the partition.",
    ),
    PartitionsAssigned => gauge(
        "oncely_partitions_assigned", &["connector"],
        "Partitions assigned to this process.",
    ),
    PartitionsStopped => gauge(
        "oncely_partitions_stopped", &["connector"],
        "Assigned partitions that are stopped until a person accepts the topic.",
    ),
    IntakePaused => gauge(
        "oncely_intake_paused", &["connector"],
        "1 while this process takes no new events, since too many effects are open (max_open_effects).",
    ),
    Rebalances => counter(
        "oncely_rebalances_total", &["connector", "kind"],
        "Rebalances as this member saw them.",
    ),
    OffsetCommits => counter(
        "oncely_offset_commits_total", &["connector", "result"],
        "Commits of offsets to Kafka.",
    ),
    UncommittedRecords => gauge(
        "oncely_uncommitted_records", &["connector"],
        "Records that were read and do not lie below a stored position yet.",
    ),
    KafkaFatalErrors => counter(
        "oncely_kafka_fatal_errors_total", &["connector"],
        "Errors that ended the Kafka client.",
    ),
    DeadLetters => counter(
        "oncely_dead_letters_total", &["connector", "reason"],
        "Records and effects that became dead letters.",
    ),
    DeadLettersOpen => gauge(
        "oncely_dead_letters_open", &["connector"],
        "Dead letters that nobody has closed. Set by one replica.",
    ),
    QuarantineOpen => gauge(
        "oncely_quarantine_open", &["connector"],
        "Records in quarantine that nobody has closed. Set by one replica.",
    ),
    OutboxRecords => counter(
        "oncely_outbox_records_total", &["connector", "kind", "result"],
        "Records of the outbox by what came of sending them.",
    ),
    OutboxOpen => gauge(
        "oncely_outbox_open", &["connector", "status"],
        "Records in the outbox that the brokers do not have. Set by one replica.",
    ),
    OutboxOldest => gauge(
        "oncely_outbox_oldest_timestamp_seconds", &["connector"],
        "When the oldest record that the brokers do not have came into the outbox. Set by one replica.",
    ),
    Redriven => counter(
        "oncely_redriven_total", &["connector", "outcome"],
        "Parked records that were decided again because a person wished it, by outcome.",
    ),
    WorkersDeclaredDead => counter(
        "oncely_workers_declared_dead_total", &[],
        "Other workers that this process declared dead.",
    ),
    LeasesLost => counter(
        "oncely_leases_lost_total", &[],
        "Times that this process found itself declared dead and went on under a new id.",
    ),
    DatabaseFailovers => counter(
        "oncely_database_failovers_total", &["loss"],
        "Times that this process found the database on another timeline or system; whether acknowledged commits may be lost.",
    ),
    TaskPanics => counter(
        "oncely_task_panics_total", &["task"],
        "Panics that were caught.",
    ),
    DatabaseUp => gauge(
        "oncely_database_up", &[],
        "1 as long as every part of this process that asks the database reaches it.",
    ),
    KafkaUp => gauge(
        "oncely_kafka_up", &["connector"],
        "1 as long as every part of this process that asks the brokers for a connector reaches them.",
    ),
    ConnectorInfo => gauge(
        "oncely_connector_info", &["connector", "owner", "group"],
        "Connectors that this process runs; always 1.",
    ),
    BuildInfo => gauge(
        "oncely_build_info", &["version"],
        "The running version; always 1.",
    ),
}

#[cfg(test)]
mod deployed;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b56_metric_names_are_an_interface() {
        let mut lines: Vec<String> = Metric::ALL
            .iter()
            .map(|metric| {
                let Description { name, kind, labels, help } = metric.describe();
                let kind = match kind {
                    Kind::Counter => "counter".to_owned(),
                    Kind::Gauge => "gauge".to_owned(),
                    Kind::Histogram(buckets) => format!("histogram({buckets:?})").to_lowercase(),
                };
                format!("{name}{{{}}} {kind}: {help}", labels.join(","))
            })
            .collect();
        lines.sort();
        insta::assert_snapshot!("metric_names", lines.join("\n"));
    }

    #[test]
    fn names_follow_the_conventions() {
        for metric in Metric::ALL {
            let Description { name, kind, labels, .. } = metric.describe();
            assert!(name.starts_with("oncely_"), "{name}");
            assert_eq!(name.ends_with("_total"), kind == Kind::Counter, "{name}");
            for personal in ["tenant", "key", "business_id", "path", "error"] {
                assert!(!labels.contains(&personal), "{name}");
            }
        }
    }
}
