//! Families of the prometheus crate, with the number of labels in the type.
//!
//! A handle that was looked up once costs an atomic add afterwards; look-ups belong to start-up and
//! to rare facts.

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

use super::metric::{Buckets, Description, Kind, Metric};

/// Why metrics cannot be registered. Only a mistake in this crate can cause it.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("metric {name} is described otherwise than it is used; this is a defect, report it")]
    Mismatch { name: &'static str },
    #[error("metric {name} cannot be registered; this is a defect, report it")]
    Register { name: &'static str, source: prometheus::Error },
    #[error("the log filter {filter:?} cannot be read; write it as level or target=level,…")]
    Filter { filter: String, source: tracing_subscriber::filter::ParseError },
    #[error("logging was set up twice in one process")]
    LoggingTwice { source: tracing_subscriber::util::TryInitError },
}

/// A counter that only rises.
#[derive(Clone, Debug)]
pub struct Count(IntCounter);

impl Count {
    /// Adds `n`; one call for a whole batch is what the hot path makes.
    pub fn add(&self, n: u64) {
        self.0.inc_by(n);
    }

    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

/// A level that moves both ways.
#[derive(Clone, Debug)]
pub struct Level(IntGauge);

impl Level {
    pub fn set(&self, value: u64) {
        self.0.set(i64::try_from(value).unwrap_or(i64::MAX));
    }

    pub(super) fn raise_by(&self, value: u64) {
        self.0.add(i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// Sets it where it is unset (zero) or higher.
    pub(super) fn lower_to(&self, value: u64) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        let known = self.0.get();
        if known == 0 || known > value {
            self.0.set(value);
        }
    }
}

/// Durations, observed in seconds.
#[derive(Clone, Debug)]
pub struct Seconds(prometheus::Histogram);

impl Seconds {
    pub fn observe(&self, duration: Duration) {
        self.0.observe(duration.as_secs_f64());
    }
}

/// Sizes, in records or bytes.
#[derive(Clone, Debug)]
pub struct Sizes(prometheus::Histogram);

impl Sizes {
    pub fn observe(&self, size: usize) {
        // Exact up to 2^32, which no batch reaches.
        self.0.observe(f64::from(u32::try_from(size).unwrap_or(u32::MAX)));
    }
}

// --------------------------------------------------------------------------------------------- //

#[derive(Clone, Debug)]
pub(super) struct Counters<const N: usize>(IntCounterVec);

impl<const N: usize> Counters<N> {
    pub(super) fn register(registry: &Registry, metric: Metric) -> Result<Self, TelemetryError> {
        let described = check::<N>(metric)?;
        if described.kind != Kind::Counter {
            return Err(TelemetryError::Mismatch { name: described.name });
        }
        let opts = Opts::new(described.name, described.help);
        let family = IntCounterVec::new(opts, described.labels);
        registered(registry, described.name, family).map(Self)
    }

    pub(super) fn with(&self, labels: [&str; N]) -> Count {
        Count(self.0.with_label_values(&labels))
    }
}

#[derive(Clone, Debug)]
pub(super) struct Gauges<const N: usize>(IntGaugeVec);

impl<const N: usize> Gauges<N> {
    pub(super) fn register(registry: &Registry, metric: Metric) -> Result<Self, TelemetryError> {
        let described = check::<N>(metric)?;
        if described.kind != Kind::Gauge {
            return Err(TelemetryError::Mismatch { name: described.name });
        }
        let opts = Opts::new(described.name, described.help);
        let family = IntGaugeVec::new(opts, described.labels);
        registered(registry, described.name, family).map(Self)
    }

    pub(super) fn with(&self, labels: [&str; N]) -> Level {
        Level(self.0.with_label_values(&labels))
    }

    /// Takes one series away; absent ones are fine.
    pub(super) fn remove(&self, labels: [&str; N]) {
        drop(self.0.remove_label_values(&labels));
    }

    pub(super) fn clear(&self) {
        self.0.reset();
    }
}

#[derive(Clone, Debug)]
pub(super) struct Histograms<const N: usize>(HistogramVec);

impl<const N: usize> Histograms<N> {
    pub(super) fn register(registry: &Registry, metric: Metric) -> Result<Self, TelemetryError> {
        let described = check::<N>(metric)?;
        let Kind::Histogram(buckets) = described.kind else {
            return Err(TelemetryError::Mismatch { name: described.name });
        };
        let opts = HistogramOpts::new(described.name, described.help);
        let opts = opts.buckets(Buckets::bounds(buckets).to_vec());
        let family = HistogramVec::new(opts, described.labels);
        registered(registry, described.name, family).map(Self)
    }

    pub(super) fn seconds(&self, labels: [&str; N]) -> Seconds {
        Seconds(self.0.with_label_values(&labels))
    }

    pub(super) fn sizes(&self, labels: [&str; N]) -> Sizes {
        Sizes(self.0.with_label_values(&labels))
    }
}

fn check<const N: usize>(metric: Metric) -> Result<Description, TelemetryError> {
    let described = metric.describe();
    if described.labels.len() == N {
        Ok(described)
    } else {
        Err(TelemetryError::Mismatch { name: described.name })
    }
}

fn registered<F: Collector + Clone + 'static>(
    registry: &Registry,
    name: &'static str,
    family: Result<F, prometheus::Error>,
) -> Result<F, TelemetryError> {
    let family = family.map_err(|source| TelemetryError::Register { name, source })?;
    registry
        .register(Box::new(family.clone()))
        .map_err(|source| TelemetryError::Register { name, source })?;
    Ok(family)
}
