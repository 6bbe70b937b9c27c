//! Gauges that are counted in the tables, by one process for all.
//!
//! Every process asks whether it is the eldest; the others show nothing, so that a sum over replicas
//! is true. While the database is away nothing is shown: an old number would be taken for a new one.
//!
//! Effects that are owed and that no connector file has any more are told in the log as well: when
//! there are others than before, and again each hour.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;

use super::chain;
use super::lease::Lease;
use crate::clock::{self, Moment};
use crate::store::admin::open;
use crate::store::{Session, StoreError};
use crate::task::Stopped;
use crate::telemetry::{Metrics, OpenThings, Outage};

/// Between two counts.
const INTERVAL: Duration = Duration::from_secs(15);
/// Between two lines about the same orphaned effects.
const SAID_EVERY: Duration = Duration::from_secs(3_600);

/// Counts until told to stop.
///
/// # Errors
/// None: a failure is shown as no number.
pub(super) async fn count(
    lease: Lease,
    mut session: Session,
    metrics: Metrics,
    outage: Outage,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Stopped> {
    let mut ticks = clock::every(INTERVAL);
    let mut orphans = Orphans::default();
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stop.wait_for(|stop| *stop) => break,
        }
        match session.patience().bounded(counted(&mut session, &lease)).await {
            Ok(open) => {
                metrics.set_open(open.as_ref());
                for line in orphans.lines(open.as_ref(), clock::now()) {
                    let (connector, effects, look) = (line.connector, line.effects, line.look);
                    tracing::warn!(
                        connector,
                        orphaned = line.count,
                        effects,
                        look,
                        remedy = "bring the effects back into the connector file, or resolve them",
                        "effects are owed that no connector file has any more"
                    );
                }
            }
            Err(error) => {
                metrics.set_open(None);
                // An outage is told by those who cannot go on without the database.
                if !outage.is_on() {
                    tracing::warn!(cause = %chain(&error), "what is open could not be counted");
                }
                session.failed(&error).await;
            }
        }
    }
    metrics.set_open(None);
    Ok(())
}

async fn counted(session: &mut Session, lease: &Lease) -> Result<Option<OpenThings>, StoreError> {
    open::count(session.connection().await?, lease.worker()).await
}

/// Which orphaned effects the log has told of.
#[derive(Debug, Default)]
struct Orphans {
    told: BTreeMap<String, Vec<String>>,
    last: Option<Moment>,
}

/// What is to be told of one connector.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    connector: String,
    count: u64,
    /// `settle 3, receipt 1`.
    effects: String,
    look: String,
}

impl Orphans {
    /// One line for each connector whose orphaned effects have other names than those told of last,
    /// or for all of them when that is long ago.
    fn lines(&mut self, open: Option<&OpenThings>, now: Moment) -> Vec<Line> {
        let Some(open) = open else { return Vec::new() };
        let mut counts: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
        for one in open.effects.iter().filter(|one| one.orphaned) {
            let of = counts.entry(&one.connector).or_default().entry(&one.effect).or_default();
            *of = of.saturating_add(one.count);
        }
        let again = |last: Moment| now.saturating_duration_since(last) >= SAID_EVERY;
        let again = self.last.is_some_and(again);
        let mut lines = Vec::new();
        let mut told = BTreeMap::new();
        for (connector, effects) in counts {
            let names: Vec<String> = effects.keys().map(|name| (*name).to_owned()).collect();
            if again || self.told.get(connector) != Some(&names) {
                let named = effects.iter().map(|(name, count)| format!("{name} {count}"));
                lines.push(Line {
                    connector: connector.to_owned(),
                    count: effects.values().fold(0, |sum, count| sum.saturating_add(*count)),
                    effects: named.collect::<Vec<_>>().join(", "),
                    look: format!("oncely effects list --orphaned --connector {connector}"),
                });
            }
            told.insert(connector.to_owned(), names);
        }
        self.told = told;
        if again || !lines.is_empty() {
            self.last = Some(now);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use oncely_core::effect::status::Status;

    use super::*;
    use crate::telemetry::EffectsOpen;

    #[test]
    fn orphaned_effects_are_told_when_they_are_new_and_once_an_hour() {
        let effect = |effect: &str, orphaned| EffectsOpen {
            connector: "invoice-paid".to_owned(),
            effect: effect.to_owned(),
            status: Status::Waiting,
            count: 2,
            oldest_at: 0,
            orphaned,
        };
        let open = |effects| OpenThings { effects, ..OpenThings::default() };
        let mut orphans = Orphans::default();
        let start = clock::now();
        let one = open(vec![effect("settle", false), effect("receipt", true)]);
        assert_eq!(orphans.lines(None, start), Vec::new());
        let line = Line {
            connector: "invoice-paid".to_owned(),
            count: 2,
            effects: "receipt 2".to_owned(),
            look: "oncely effects list --orphaned --connector invoice-paid".to_owned(),
        };
        assert_eq!(orphans.lines(Some(&one), start), [line]);
        assert_eq!(orphans.lines(Some(&one), start), []);
        let more = open(vec![effect("settle", true), effect("receipt", true)]);
        let lines = orphans.lines(Some(&more), start);
        assert_eq!((lines.len(), &*lines[0].effects), (1, "receipt 2, settle 2"));
        let later = start.checked_add(SAID_EVERY).unwrap();
        assert_eq!(orphans.lines(Some(&more), later).len(), 1);
        assert_eq!(orphans.lines(Some(&more), later), []);
        // One that was resolved and is owed again is news.
        assert_eq!(orphans.lines(Some(&open(Vec::new())), later), []);
        assert_eq!(orphans.lines(Some(&one), later).len(), 1);
    }
}
