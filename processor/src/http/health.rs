//! Whether the process lives, and whether it is of use.
//!
//! Live: every loop ticks and no client has failed for good; a restart would mend it otherwise.
//! Ready: the groups are joined, the database answers, the schema is current, positions move; a
//! restart would not mend these.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::{self, Moment};
use crate::telemetry::Outage;

/// Fed by the worker, read by the probes. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<State>>);

/// What a probe is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub ok: bool,
    /// What is wrong, one sentence each; empty when nothing is.
    pub why: Vec<String>,
}

#[derive(Debug, Default)]
struct State {
    loops: BTreeMap<String, Ticking>,
    fatal: Option<String>,
    database: Database,
    outage: Option<Outage>,
    schema_current: bool,
    groups: BTreeMap<String, bool>,
    brokers: BTreeMap<String, bool>,
    stuck: BTreeMap<String, String>,
    stopping: bool,
}

#[derive(Debug)]
struct Ticking {
    last: Moment,
    bound: Duration,
}

#[derive(Debug, Default)]
enum Database {
    #[default]
    NotReached,
    Up,
    Down(String),
}

impl Health {
    pub fn new() -> Self {
        Self::default()
    }

    /// A loop begins; it must tick within every `bound` until the handle is dropped.
    pub fn watch(&self, name: impl Into<String>, bound: Duration) -> LoopTick {
        let name = name.into();
        self.state().loops.insert(name.clone(), Ticking { last: clock::now(), bound });
        LoopTick { health: self.clone(), name }
    }

    /// A client failed for good: the process is to be restarted.
    pub fn fatal(&self, cause: impl Into<String>) {
        self.state().fatal.get_or_insert(cause.into());
    }

    /// What all parts of the process find of the database, whose heartbeat alone [`Health::database_up`] is.
    pub fn database(&self, outage: Outage) {
        self.state().outage = Some(outage);
    }

    pub fn database_up(&self) {
        self.state().database = Database::Up;
    }

    pub fn database_down(&self, cause: impl Into<String>) {
        self.state().database = Database::Down(cause.into());
    }

    /// Whether every migration that this version needs has been applied.
    pub fn schema_current(&self, current: bool) {
        self.state().schema_current = current;
    }

    /// Whether a connector's group is joined; with no partition at all is fine.
    pub fn group(&self, connector: &str, joined: bool) {
        self.state().groups.insert(connector.to_owned(), joined);
    }

    /// Whether any broker is connected to a connector's consumer.
    pub fn brokers(&self, connector: &str, up: bool) {
        self.state().brokers.insert(connector.to_owned(), up);
    }

    /// What holds a connector's positions back for too long; `None` once they move again.
    pub fn stuck(&self, connector: &str, why: Option<String>) {
        let mut state = self.state();
        match why {
            Some(why) => drop(state.stuck.insert(connector.to_owned(), why)),
            None => drop(state.stuck.remove(connector)),
        }
    }

    /// The process is about to end: not ready any more.
    pub fn stopping(&self) {
        self.state().stopping = true;
    }

    pub fn live(&self) -> Report {
        let state = self.state();
        let late = state.loops.iter().filter_map(|(name, ticking)| {
            let silent = clock::since(ticking.last);
            (silent > ticking.bound)
                .then(|| format!("{name} has not ticked for {} ms", silent.as_millis()))
        });
        Report::of(state.fatal.iter().cloned().chain(late).collect())
    }

    pub fn ready(&self) -> Report {
        let mut why = self.live().why;
        let state = self.state();
        match &state.database {
            Database::Up => {
                let told = state.outage.as_ref().and_then(Outage::told);
                why.extend(told.map(|told| format!("the database is away for {told}")));
            }
            Database::NotReached => why.push("the database has not been reached yet".to_owned()),
            Database::Down(cause) => why.push(format!("the database is down: {cause}")),
        }
        if !state.schema_current {
            why.push("migrations are missing: run `oncely migrate up`".to_owned());
        }
        let outside = state.groups.iter().filter(|(_, joined)| !**joined);
        why.extend(outside.map(|(connector, _)| format!("{connector} has not joined its group")));
        let away = state.brokers.iter().filter(|(_, up)| !**up);
        why.extend(away.map(|(connector, _)| format!("{connector} reaches no Kafka broker")));
        let stuck = state.stuck.iter();
        why.extend(stuck.map(|(connector, cause)| format!("{connector} does not move: {cause}")));
        if state.stopping {
            why.push("the process is stopping".to_owned());
        }
        Report::of(why)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is one assignment, so a panicked holder leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Report {
    fn of(why: Vec<String>) -> Self {
        Self { ok: why.is_empty(), why }
    }
}

/// Says that one loop goes round. Dropping it ends the watch.
#[derive(Debug)]
pub struct LoopTick {
    health: Health,
    name: String,
}

impl LoopTick {
    pub fn tick(&self) {
        if let Some(ticking) = self.health.state().loops.get_mut(&self.name) {
            ticking.last = clock::now();
        }
    }
}

impl Drop for LoopTick {
    fn drop(&mut self) {
        self.health.state().loops.remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Dependency;

    fn ready() -> Health {
        let health = Health::new();
        health.database_up();
        health.schema_current(true);
        health.group("a", true);
        health
    }

    #[test]
    fn a_silent_loop_or_a_fatal_error_ends_life() {
        let health = Health::new();
        let tick = health.watch("poll a", Duration::ZERO);
        while clock::since(health.state().loops["poll a"].last).is_zero() {}
        assert!(!health.live().ok);
        drop(tick);
        assert!(health.live().ok);
        health.fatal("the Kafka client of a failed for good");
        assert_eq!(health.live().why, ["the Kafka client of a failed for good"]);
    }

    /// A heartbeat has its connection long since; who asks for one now gets none.
    #[test]
    fn a_database_that_lets_no_more_sessions_in_is_away_for_those_that_need_one() {
        let health = ready();
        let metrics = crate::telemetry::Metrics::new().unwrap();
        let outage = Outage::of(Dependency::Database, "db:5432/oncely", metrics.database_up());
        health.database(outage.clone());
        outage.back("heartbeat");
        assert!(health.ready().ok);
        for _ in 0..2 {
            outage.away("shop writer 0", "the database is not available (53300)");
        }
        assert_eq!(
            health.ready().why,
            ["the database is away for shop writer 0: the database is not available (53300)"]
        );
        outage.back("shop writer 0");
        assert!(health.ready().ok);
    }

    #[test]
    fn each_missing_thing_is_said() {
        let health = ready();
        assert!(health.ready().ok);
        health.database_down("connection refused");
        health.group("b", false);
        health.brokers("c", false);
        health.stuck("a", Some("billing[0] is stopped".to_owned()));
        health.schema_current(false);
        health.stopping();
        insta::assert_snapshot!(health.ready().why.join("\n"), @"
        the database is down: connection refused
        migrations are missing: run `oncely migrate up`
        b has not joined its group
        c reaches no Kafka broker
        a does not move: billing[0] is stopped
        the process is stopping
        ");
        assert!(health.live().ok);
        health.stuck("a", None);
        assert!(!health.ready().why.iter().any(|why| why.contains("does not move")));
    }
}
