//! Tells of a database that is another one than before: log and metric.

use crate::store::failover::{Recorded, Told, Whereabouts};
use crate::telemetry::Metrics;

/// The command that shows what was found.
const LOOK: &str = "oncely failover list";

/// What a process knows of where its database is, and whom it tells. `lossless`: a failover keeps all that was
/// committed, by the settings.
pub(super) fn watch(lossless: bool, lease_ms: i32, metrics: &Metrics) -> Whereabouts {
    let metrics = metrics.clone();
    Whereabouts::new(lossless, lease_ms, move |told| tell(told, &metrics))
}

fn tell(told: &Told, metrics: &Metrics) {
    match *told {
        Told::Begun { before, now } => tracing::warn!(
            timeline_before = before.timeline,
            timeline = now.timeline,
            "the database has failed over: what may be lost is being put on record, which takes \
             minutes where very many effects are open; nothing is sent meanwhile"
        ),
        Told::Recorded(Recorded { number, before, now, lossless, positions, effects }) => {
            let (timeline_before, timeline) = (before.timeline, now.timeline);
            let system_changed = before.system != now.system;
            if lossless {
                tracing::warn!(
                    number,
                    timeline_before,
                    timeline,
                    system_changed,
                    "the database has failed over; by the settings nothing is lost"
                );
            } else {
                tracing::error!(
                    number,
                    timeline_before,
                    timeline,
                    system_changed,
                    positions,
                    suspect_effects = effects,
                    look = LOOK,
                    "the database has failed over and may have lost commits: positions are as it has \
                     them, what may have been sent is repeated by key, asked for, or held"
                );
            }
        }
        Told::Noticed { number, lost } => {
            metrics.database_failovers(lost).add(1);
            tracing::warn!(
                number,
                lost,
                look = LOOK,
                "the database is on another server than before"
            );
        }
    }
}
