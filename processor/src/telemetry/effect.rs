//! Metrics of one effect of a connector.

use std::time::Duration;

use oncely_core::effect::lookup::FindingClass;
use oncely_core::effect::outcome::OutcomeClass;

use super::family::{Count, Level, Seconds};
use super::label::Finished;
use super::metrics::Families;

/// Handles of one effect of a connector.
#[derive(Debug)]
pub struct EffectMetrics {
    attempts: Vec<Count>,
    lookups: Vec<Count>,
    duration: Seconds,
    finished: Vec<Count>,
    held: Count,
    dead_letters: Count,
    taken_over: Count,
    circuit_open: Level,
    /// Tokens in and out, of an effect that asks a model.
    tokens: Option<[Count; 2]>,
}

impl EffectMetrics {
    pub(super) fn new(
        families: &Families,
        connector: &str,
        (effect, kind): (&str, &str),
        model: Option<&str>,
    ) -> Self {
        let tokens = |model: &str| {
            ["input", "output"]
                .map(|direction| families.llm_tokens.with([connector, model, direction]))
        };
        Self {
            tokens: model.map(tokens),
            attempts: (OutcomeClass::ALL.iter())
                .map(|class| {
                    families.effect_attempts.with([connector, effect, kind, class.as_str()])
                })
                .collect(),
            lookups: (FindingClass::ALL.iter())
                .map(|class| families.effect_lookups.with([connector, effect, class.as_str()]))
                .collect(),
            duration: families.effect_duration.seconds([connector, effect]),
            finished: (Finished::ALL.iter())
                .map(|how| families.effects_finished.with([connector, effect, how.as_str()]))
                .collect(),
            held: families.effects_held.with([connector, effect]),
            dead_letters: families.dead_letters.with([connector, "effect_rejected"]),
            taken_over: families.effects_taken_over.with([connector, effect]),
            circuit_open: families.effect_circuit_open.with([connector, effect]),
        }
    }

    /// One attempt, and how long it took.
    pub fn attempt(&self, class: OutcomeClass, took: Duration) {
        self.duration.observe(took);
        if let Some(count) = at(&OutcomeClass::ALL, &self.attempts, class) {
            count.add(1);
        }
    }

    pub fn looked_up(&self, class: FindingClass) {
        if let Some(count) = at(&FindingClass::ALL, &self.lookups, class) {
            count.add(1);
        }
    }

    /// A rejected one is a dead letter as well.
    pub fn finished(&self, how: Finished, times: u64) {
        if how == Finished::Rejected {
            self.dead_letters.add(times);
        }
        if let Some(count) = at(Finished::ALL, &self.finished, how) {
            count.add(times);
        }
    }

    pub fn held(&self, times: u64) {
        self.held.add(times);
    }

    /// What a paid answer says that was used.
    pub fn tokens(&self, input: u64, output: u64) {
        if let Some([of_input, of_output]) = &self.tokens {
            of_input.add(input);
            of_output.add(output);
        }
    }

    /// Whether one call at a time tries whether the provider is back.
    pub fn circuit_open(&self, open: bool) {
        self.circuit_open.set(u64::from(open));
    }

    pub fn taken_over(&self, times: u64) {
        self.taken_over.add(times);
    }
}

/// The handle at the place that `label` has among all labels.
pub(super) fn at<'handles, L: PartialEq, H>(
    labels: &[L],
    handles: &'handles [H],
    label: L,
) -> Option<&'handles H> {
    labels.iter().position(|known| *known == label).and_then(|index| handles.get(index))
}
