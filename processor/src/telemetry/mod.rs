//! What the processor says about itself: metrics and log lines.
//!
//! Gives: typed, closed-label metrics ([`Metrics`], [`ConnectorMetrics`]), the logger, and
//! [`BusinessId`], the only way in which a business id may stand in a log line.
//! Never: a payload, a secret, or an id as a label.

mod business_id;
mod connector;
mod effect;
mod family;
mod label;
mod line;
mod log;
mod metric;
mod metrics;
mod outage;

pub use business_id::{BusinessId, show_business_ids};
pub use connector::{ConnectorMetrics, ConnectorShape};
pub use effect::EffectMetrics;
pub use family::{Count, Level, Seconds, Sizes, TelemetryError};
pub use label::{
    CommitResult, DedupeDecision, DedupeLayer, Finished, Published, RebalanceKind, RedoCause, Stage,
};
pub use log::init as init_logging;
pub use metric::{Buckets, Description, Kind, Metric};
pub use metrics::{DeferredOpen, EffectsOpen, Metrics, OpenThings, OutboxOpen, ParkedOpen};
pub use outage::{Dependency, Lasting, Outage, STILL_EVERY};
