//! Figures: one JSON object a line on standard output, and what is going on on standard error.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use oncely::clock::{self, Moment};
use serde::Serialize;

/// What is measured: one value for each repetition.
#[derive(Debug, Default)]
pub(crate) struct Series(BTreeMap<&'static str, Vec<f64>>);

impl Series {
    pub(crate) fn add(&mut self, name: &'static str, value: f64) {
        self.0.entry(name).or_default().push(value);
    }

    /// Forgets the values so far: those of the first repetition.
    pub(crate) fn drop_first(&mut self) {
        for values in self.0.values_mut() {
            values.remove(0);
        }
    }

    pub(crate) fn of(&self, name: &str) -> &[f64] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }
}

/// Against what a figure is held.
#[derive(Clone, Debug)]
pub(crate) enum Limit {
    /// It is context.
    None,
    /// A number that was agreed upon.
    Fixed(f64),
    /// Measured in the same repetitions.
    Measured(Vec<f64>),
}

/// Prints one figure: the median of its values, with its range where there are several. Its ratio is the
/// median of the repetitions' own ratios, since the machine may change its speed between one and the next.
pub(crate) fn print(name: &str, unit: &str, values: &[f64], limit: &Limit) {
    let Some(value) = median(values) else { return };
    let (limit_value, ratios) = match limit {
        Limit::None => (None, Vec::new()),
        Limit::Fixed(limit) => (Some(*limit), vec![value / limit]),
        Limit::Measured(limits) => {
            let ratios = values.iter().zip(limits).map(|(value, limit)| value / limit).collect();
            (median(limits), ratios)
        }
    };
    let several = values.len() > 1;
    let line = Line {
        figure: name,
        value: rounded(value),
        unit,
        limit: limit_value.map(rounded),
        ratio: median(&ratios).map(rounded),
        min: several.then(|| rounded(least(values))),
        max: several.then(|| rounded(most(values))),
        repetitions: several.then_some(values.len()),
        ratio_min: (ratios.len() > 1).then(|| rounded(least(&ratios))),
        ratio_max: (ratios.len() > 1).then(|| rounded(most(&ratios))),
    };
    // Names and finite numbers have no way to fail.
    out(&serde_json::to_string(&line).unwrap_or_default());
}

#[derive(Serialize)]
struct Line<'a> {
    figure: &'a str,
    value: f64,
    unit: &'a str,
    limit: Option<f64>,
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repetitions: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_min: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_max: Option<f64>,
}

#[allow(clippy::print_stdout, reason = "the figures are what this program gives")]
pub(crate) fn out(line: &str) {
    println!("{line}");
}

#[allow(clippy::print_stderr, reason = "somebody waits in front of it")]
pub(crate) fn say(line: impl std::fmt::Display) {
    static BEGUN: OnceLock<Moment> = OnceLock::new();
    let seconds = clock::since(*BEGUN.get_or_init(clock::now)).as_secs_f64();
    eprintln!("{seconds:6.1}  {line}");
}

/// Four digits that count: more would promise a precision that nobody has.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let digits = 3.0 - value.abs().log10().floor();
    let scale = 10_f64.powi(if digits > 0.0 { digits as i32 } else { 0 });
    (value * scale).round() / scale
}

pub(crate) fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The value at `share` of the sorted values.
pub(crate) fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (share * (sorted.len().saturating_sub(1)) as f64).round() as usize;
    sorted.get(at).copied()
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}
