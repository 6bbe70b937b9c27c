//! Metrics of one connector, with every handle of the hot path looked up beforehand.

use std::sync::Arc;
use std::time::Duration;

use oncely_connectors::format::DecodeReason;
use oncely_core::connector::{AfterWait, Connector, EffectBody};
use oncely_core::decide::{Ending, ParkReason};
use oncely_core::event::RejectReason;

use super::effect::{EffectMetrics, at};
use super::family::{Count, Level, Seconds, Sizes};
use super::label::{
    CommitResult, DedupeDecision, DedupeLayer, Published, RebalanceKind, RedoCause, Stage,
};
use super::metrics::Families;

/// What a connector's labels are made of. All of it comes from its file.
#[derive(Clone, Debug, Default)]
pub struct ConnectorShape<'a> {
    pub name: &'a str,
    pub owner: &'a str,
    pub group: &'a str,
    pub topics: Vec<&'a str>,
    /// Id and type (`http`, `email`, `ledger`), in the order of the file.
    pub effects: Vec<(&'a str, &'a str)>,
    /// The model that an effect asks, in the same order.
    pub models: Vec<Option<&'a str>>,
    /// From and to.
    pub transitions: Vec<(&'a str, &'a str)>,
    /// How many events may wait; none where no event does.
    pub deferred_max: Option<u32>,
}

impl<'a> ConnectorShape<'a> {
    pub fn of(connector: &'a Connector) -> Self {
        let transitions = connector.state.iter().flat_map(|state| &state.transitions);
        Self {
            name: &connector.name,
            owner: connector.owner.as_deref().unwrap_or(""),
            group: &connector.source.group,
            topics: connector.source.topics.iter().map(AsRef::as_ref).collect(),
            effects: connector.effects.iter().map(|rule| (&*rule.id, kind(&rule.body))).collect(),
            models: connector.effects.iter().map(|rule| model(&rule.body)).collect(),
            transitions: transitions
                .flat_map(|rule| rule.from.iter().map(|from| (&**from, &*rule.to)))
                .collect(),
            deferred_max: (connector.state.as_ref())
                .filter(|state| state.defers())
                .map(|state| state.deferred_max),
        }
    }
}

/// The `type` label of an effect.
fn kind(body: &EffectBody) -> &'static str {
    match body {
        EffectBody::Ledger(_) => "ledger",
        EffectBody::Call(call) => call.kind,
        EffectBody::Publish(_) => "publish",
    }
}

fn model(body: &EffectBody) -> Option<&str> {
    match body {
        EffectBody::Ledger(_) | EffectBody::Publish(_) => None,
        EffectBody::Call(call) => call.model.as_deref(),
    }
}

// --------------------------------------------------------------------------------------------- //

/// Handles of one connector. Cheap to share behind an `Arc`.
#[derive(Debug)]
pub struct ConnectorMetrics {
    name: Box<str>,
    families: Arc<Families>,
    consumed: Vec<(Box<str>, Count)>,
    released: Count,
    outcomes: Vec<Count>,
    stages: Vec<Seconds>,
    end_to_end: Seconds,
    dedupe: Vec<Count>,
    redelivery_age: Seconds,
    transitions: Vec<(Box<str>, Box<str>, Count)>,
    version_gaps: Count,
    duplicates_prevented: Count,
    effects: Vec<EffectMetrics>,
    claims_adopted: Count,
    records_let_go: Count,
    batch_records: Sizes,
    batch_bytes: Sizes,
    partitions_assigned: Level,
    partitions_stopped: Level,
    intake_paused: Level,
    uncommitted: Level,
    /// Of effects, then of dead letters.
    outbox: Vec<Count>,
}

/// Counters by cause begin at 0 with the connector: what rises from nothing has no increase that an alert could see.
fn begin_reasons(families: &Families, connector: &str) {
    let parked = ParkReason::ALL.map(ParkReason::as_str);
    let rejected = RejectReason::ALL.map(RejectReason::as_str);
    let unreadable = DecodeReason::ALL.map(DecodeReason::as_str);
    for reason in parked {
        families.events.with([connector, Ending::Quarantined.as_str(), reason]);
    }
    for reason in parked.into_iter().chain(rejected).chain(unreadable) {
        families.events.with([connector, Ending::DeadLettered.as_str(), reason]);
        families.dead_letters.with([connector, reason]);
    }
}

impl ConnectorMetrics {
    pub(super) fn new(families: &Arc<Families>, shape: &ConnectorShape<'_>) -> Self {
        let name = shape.name;
        families.connector_info.with([name, shape.owner, shape.group]).set(1);
        families.kafka_fatal_errors.with([name]);
        begin_reasons(families, name);
        if let Some(max) = shape.deferred_max {
            families.deferred_limit.with([name]).set(u64::from(max));
        }
        let dedupe = |layer: &DedupeLayer| {
            let decisions = DedupeDecision::ALL.iter();
            let layer = layer.as_str();
            decisions
                .map(|decision| families.dedupe_decisions.with([name, layer, decision.as_str()]))
                .collect::<Vec<_>>()
        };
        Self {
            name: name.into(),
            consumed: (shape.topics.iter())
                .map(|topic| ((*topic).into(), families.events_consumed.with([name, topic])))
                .collect(),
            released: families.events_released.with([name]),
            outcomes: Ending::ALL
                .iter()
                .map(|outcome| families.events.with([name, outcome.as_str(), ""]))
                .collect(),
            stages: Stage::ALL
                .iter()
                .map(|stage| families.event_duration.seconds([name, stage.as_str()]))
                .collect(),
            end_to_end: families.event_end_to_end.seconds([name]),
            dedupe: DedupeLayer::ALL.iter().flat_map(dedupe).collect(),
            redelivery_age: families.dedupe_redelivery_age.seconds([name]),
            transitions: (shape.transitions.iter())
                .map(|(from, to)| {
                    let count = families.state_transitions.with([name, from, to]);
                    ((*from).into(), (*to).into(), count)
                })
                .collect(),
            version_gaps: families.state_version_gaps.with([name]),
            duplicates_prevented: families.effect_duplicates_prevented.with([name]),
            effects: (shape.effects.iter().enumerate())
                .map(|(index, (effect, kind))| {
                    let model = shape.models.get(index).copied().flatten();
                    EffectMetrics::new(families, name, (effect, kind), model)
                })
                .collect(),
            claims_adopted: families.claims_adopted.with([name]),
            records_let_go: families.records_let_go.with([name]),
            batch_records: families.batch_records.sizes([name]),
            batch_bytes: families.batch_bytes.sizes([name]),
            partitions_assigned: families.partitions_assigned.with([name]),
            partitions_stopped: families.partitions_stopped.with([name]),
            intake_paused: families.intake_paused.with([name]),
            uncommitted: families.uncommitted_records.with([name]),
            outbox: ["effect", "dead_letter"]
                .iter()
                .flat_map(|kind| Published::ALL.iter().map(move |how| (kind, how)))
                .map(|(kind, how)| families.outbox_records.with([name, kind, how.as_str()]))
                .collect(),
            families: Arc::clone(families),
        }
    }

    /// Records read from `topic`, which must be one of the connector's.
    pub fn consumed(&self, topic: &str, records: u64) {
        if let Some((_, count)) = self.consumed.iter().find(|(known, _)| &**known == topic) {
            count.add(records);
        }
    }

    /// Records that were read and given up before any outcome.
    pub fn released(&self, records: usize) {
        self.released.add(u64::try_from(records).unwrap_or(u64::MAX));
    }

    /// Records whose one outcome is durable. `reason` is empty unless the outcome has several causes; it
    /// comes from the closed list of causes in the code, hence `'static`. What the inbox decided and
    /// dead letters are counted along.
    pub fn events(&self, ending: Ending, reason: &'static str, records: u64) {
        match ending {
            Ending::Applied | Ending::Stale | Ending::Deferred => {
                self.dedupe(DedupeLayer::Event, DedupeDecision::First, records);
            }
            Ending::Duplicate => {
                self.dedupe(DedupeLayer::Event, DedupeDecision::Duplicate, records);
            }
            Ending::DeadLettered => {
                self.families.dead_letters.with([&self.name, reason]).add(records);
            }
            Ending::Ignored | Ending::Quarantined => {}
        }
        if reason == ParkReason::Conflict.as_str() {
            self.dedupe(DedupeLayer::Event, DedupeDecision::Conflict, records);
        }
        if reason == ParkReason::EffectConflict.as_str() {
            self.dedupe(DedupeLayer::Effect, DedupeDecision::Conflict, records);
        }
        if !reason.is_empty() {
            self.families.events.with([&self.name, ending.as_str(), reason]).add(records);
        } else if let Some(count) = at(&Ending::ALL, &self.outcomes, ending) {
            count.add(records);
        }
    }

    pub fn stage(&self, stage: Stage, took: Duration) {
        if let Some(seconds) = at(Stage::ALL, &self.stages, stage) {
            seconds.observe(took);
        }
    }

    /// From a record's timestamp until its outcome is durable.
    pub fn end_to_end(&self, took: Duration) {
        self.end_to_end.observe(took);
    }

    /// Effects that events owe: for the first time, or known already and not sent again.
    pub fn effects_owed(&self, first: u64, again: u64) {
        self.dedupe(DedupeLayer::Effect, DedupeDecision::First, first);
        self.dedupe(DedupeLayer::Effect, DedupeDecision::Duplicate, again);
        self.duplicates_prevented.add(again);
    }

    fn dedupe(&self, layer: DedupeLayer, decision: DedupeDecision, times: u64) {
        let decisions = DedupeDecision::ALL.len();
        let mut layers = DedupeLayer::ALL.iter().zip(self.dedupe.chunks(decisions));
        let counts = layers.find(|(known, _)| **known == layer).map(|(_, counts)| counts);
        if let Some(count) = counts.and_then(|counts| at(DedupeDecision::ALL, counts, decision)) {
            count.add(times);
        }
    }

    /// How long after the first copy a repeat came.
    pub fn redelivery_age(&self, age: Duration) {
        self.redelivery_age.observe(age);
    }

    /// A transition of the connector's table; others are not counted.
    pub fn transition(&self, from: &str, to: &str, times: u64) {
        let mut known = self.transitions.iter();
        if let Some((.., count)) = known.find(|(f, t, _)| &**f == from && &**t == to) {
            count.add(times);
        }
    }

    /// Events that came while a version before theirs was missing.
    pub fn version_gaps(&self, times: u64) {
        self.version_gaps.add(times);
    }

    /// An event that waited, by what it came to.
    pub fn deferred_released(&self, ending: Ending) {
        self.families.deferred_released.with([&self.name, ending.as_str()]).add(1);
    }

    /// What it waited for did not come in time.
    pub fn deferred_escalated(&self, then: AfterWait) {
        self.families.deferred_escalated.with([&self.name, then.as_str()]).add(1);
    }

    /// The effect at `index` of the connector file; `None` for one that left the file.
    pub fn effect(&self, index: usize) -> Option<&EffectMetrics> {
        self.effects.get(index)
    }

    pub fn claims_adopted(&self, claims: u64) {
        self.claims_adopted.add(claims);
    }

    /// A parked record that was decided again; `outcome` is one of [`Ending`].
    pub fn redriven(&self, outcome: &'static str) {
        self.families.redriven.with([&self.name, outcome]).add(1);
    }

    /// A record of the outbox, that of an effect or a dead letter.
    pub fn outbox_record(&self, is_dead_letter: bool, how: Published) {
        let kinds = Published::ALL.len();
        let mut kinds = self.outbox.chunks(kinds);
        let counts = if is_dead_letter { kinds.nth(1) } else { kinds.next() };
        if let Some(count) = counts.and_then(|counts| at(Published::ALL, counts, how)) {
            count.add(1);
        }
    }

    /// Records whose offset went while an effect was still open.
    pub fn records_let_go(&self, records: u64) {
        self.records_let_go.add(records);
    }

    pub fn batch(&self, records: usize, bytes: usize) {
        self.batch_records.observe(records);
        self.batch_bytes.observe(bytes);
    }

    pub fn batch_redone(&self, cause: RedoCause) {
        self.families.batch_redos.with([&self.name, cause.as_str()]).add(1);
    }

    pub fn lag_records(&self, topic: &str, partition: i32, records: u64) {
        let partition = partition.to_string();
        self.families.consumer_lag_records.with([&self.name, topic, &partition]).set(records);
    }

    pub fn lag(&self, topic: &str, lag: Duration) {
        self.families.consumer_lag_seconds.with([&self.name, topic]).set(lag.as_secs());
    }

    /// Takes the series of a partition away that is no longer assigned here.
    pub fn forget_partition(&self, topic: &str, partition: i32) {
        let partition = partition.to_string();
        self.families.consumer_lag_records.remove([&self.name, topic, &partition]);
    }

    /// Takes the age of a topic away of which no partition is assigned here.
    pub fn forget_topic(&self, topic: &str) {
        self.families.consumer_lag_seconds.remove([&self.name, topic]);
    }

    pub fn partitions_assigned(&self, partitions: u64) {
        self.partitions_assigned.set(partitions);
    }

    pub fn partitions_stopped(&self, partitions: u64) {
        self.partitions_stopped.set(partitions);
    }

    /// Whether no new events are taken, since too many effects are open.
    pub fn intake_paused(&self, paused: bool) {
        self.intake_paused.set(u64::from(paused));
    }

    /// Records read that do not lie below a stored position yet.
    pub fn uncommitted(&self, records: u64) {
        self.uncommitted.set(records);
    }

    pub fn rebalanced(&self, kind: RebalanceKind) {
        self.families.rebalances.with([&self.name, kind.as_str()]).add(1);
    }

    pub fn committed(&self, result: CommitResult, times: u64) {
        self.families.offset_commits.with([&self.name, result.as_str()]).add(times);
    }

    pub fn kafka_fatal_error(&self) {
        self.families.kafka_fatal_errors.with([&self.name]).add(1);
    }
}

#[cfg(test)]
mod tests {
    use oncely_core::effect::outcome::OutcomeClass;

    use super::super::{Finished, Metrics};
    use super::*;

    fn shape() -> ConnectorShape<'static> {
        ConnectorShape {
            name: "invoices",
            owner: "billing",
            group: "oncely.invoices",
            topics: vec!["t"],
            effects: vec![("settle", "http")],
            models: vec![Some("small-1")],
            transitions: vec![("open", "paid")],
            deferred_max: None,
        }
    }

    #[test]
    fn counts_land_on_their_labels() {
        let metrics = Metrics::new().unwrap();
        let connector = metrics.connector(&shape());
        connector.consumed("t", 7);
        connector.released(3);
        connector.events(Ending::Stale, "", 2);
        connector.events(Ending::Quarantined, "conflict", 1);
        connector.events(Ending::DeadLettered, "syntax", 1);
        connector.effects_owed(1, 3);
        connector.transition("open", "paid", 4);
        let effect = connector.effect(0).unwrap();
        effect.attempt(OutcomeClass::Throttled, Duration::from_millis(20));
        effect.finished(Finished::Skipped, 5);
        effect.tokens(12, 34);
        let text = metrics.text().unwrap();
        for line in [
            r#"oncely_events_consumed_total{connector="invoices",topic="t"} 7"#,
            r#"oncely_events_released_total{connector="invoices"} 3"#,
            r#"oncely_events_total{connector="invoices",outcome="stale",reason=""} 2"#,
            r#"oncely_events_total{connector="invoices",outcome="quarantined",reason="conflict"} 1"#,
            r#"oncely_dedupe_decisions_total{connector="invoices",decision="duplicate",layer="effect"} 3"#,
            r#"oncely_dedupe_decisions_total{connector="invoices",decision="conflict",layer="event"} 1"#,
            r#"oncely_effect_duplicates_prevented_total{connector="invoices"} 3"#,
            r#"oncely_dead_letters_total{connector="invoices",reason="syntax"} 1"#,
            r#"oncely_state_transitions_total{connector="invoices",from="open",to="paid"} 4"#,
            r#"oncely_effect_attempts_total{connector="invoices",effect="settle",result="throttled",type="http"} 1"#,
            r#"oncely_effects_finished_total{connector="invoices",effect="settle",result="skipped"} 5"#,
            r#"oncely_llm_tokens_total{connector="invoices",direction="output",model="small-1"} 34"#,
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn counters_by_cause_begin_at_nothing() {
        let metrics = Metrics::new().unwrap();
        drop(metrics.connector(&shape()));
        let text = metrics.text().unwrap();
        for line in [
            r#"oncely_events_total{connector="invoices",outcome="quarantined",reason="conflict"} 0"#,
            r#"oncely_events_total{connector="invoices",outcome="dead_lettered",reason="missing_id"} 0"#,
            r#"oncely_dead_letters_total{connector="invoices",reason="syntax"} 0"#,
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn b56_events_never_add_series() {
        let metrics = Metrics::new().unwrap();
        let connector = metrics.connector(&shape());
        let series = |text: String| text.lines().filter(|line| !line.starts_with('#')).count();
        let before = series(metrics.text().unwrap());
        for n in 0..10_000 {
            connector.consumed(&format!("topic-{n}"), 1);
            connector.transition(&format!("state-{n}"), "paid", 1);
            connector.events(Ending::Applied, "", 1);
        }
        assert_eq!(series(metrics.text().unwrap()), before);
    }
}
