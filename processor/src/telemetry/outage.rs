//! Outages in the log: once when one begins, now and then while it lasts, once when it is over.
//!
//! Many parts of a process notice the same outage, each over and over. Every part tells what it
//! sees; what is written is one story. It begins when a part has failed twice in a row: a connection
//! that broke while nobody used it is made anew, and that is no news. It is over when no part misses
//! the thing any more.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::family::Level;
use crate::clock::{self, Moment};

/// Between two lines about something that lasts.
pub const STILL_EVERY: Duration = Duration::from_secs(30);

/// Parts that miss the same thing, as far as they are named.
const PARTS_NAMED_MAX: usize = 3;

/// What can be away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependency {
    Database,
    Kafka,
}

/// One thing that can be away. Clones tell one story.
#[derive(Clone, Debug)]
pub struct Outage(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dependency: Dependency,
    /// Where it is looked for.
    at: Box<str>,
    /// For the many calls that find everything well. Begins as true: nobody has reached it yet.
    is_on: AtomicBool,
    /// What the metrics show of it.
    up: Level,
    story: Mutex<Story>,
}

impl Outage {
    /// `at`: where it is looked for, without credentials. `up`: 1 as long as no part misses it.
    pub fn of(dependency: Dependency, at: &str, up: Level) -> Self {
        let (is_on, story) = (AtomicBool::new(true), Mutex::default());
        Self(Arc::new(Inner { dependency, at: at.into(), is_on, up, story }))
    }

    /// `part` cannot reach it, for this cause.
    pub fn away(&self, part: &str, cause: &str) {
        self.missed(part, cause, false);
    }

    /// The same of a part that has never reached it: that is no connection that broke while idle.
    pub fn not_reached(&self, part: &str, cause: &str) {
        self.missed(part, cause, true);
    }

    fn missed(&self, part: &str, cause: &str, at_once: bool) {
        let mut story = self.0.story.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.is_on.store(true, Ordering::Release);
        self.0.up.set(0);
        let at = &*self.0.at;
        let said = story.away(part, clock::now(), at_once);
        story.cause = cause.into();
        match (said, self.0.dependency) {
            (Said::Nothing, _) => {}
            // The database is everybody's, whichever connector noticed.
            (Said::Began, Dependency::Database) => {
                tracing::warn!(parent: None, at, cause, "the database is away");
            }
            (Said::Lasts(away), Dependency::Database) => {
                let away_s = away.as_secs();
                tracing::warn!(parent: None, at, away_s, cause, "the database is still away");
            }
            (Said::Began, Dependency::Kafka) => tracing::warn!(at, cause, "kafka is away"),
            (Said::Lasts(away), Dependency::Kafka) => {
                tracing::warn!(at, away_s = away.as_secs(), cause, "kafka is still away");
            }
        }
    }

    /// Who misses it and why, once it has been told.
    pub fn told(&self) -> Option<String> {
        if !self.is_on() {
            return None;
        }
        let story = self.0.story.lock().unwrap_or_else(PoisonError::into_inner);
        story.said?;
        let parts = story.missing.iter().take(PARTS_NAMED_MAX).map(|part| &**part);
        let parts = parts.collect::<Vec<_>>().join(", ");
        let more = match story.missing.len().saturating_sub(PARTS_NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!("{parts}{more}: {}", story.cause))
    }

    /// Whether somebody misses it, or nobody has reached it yet.
    pub fn is_on(&self) -> bool {
        self.0.is_on.load(Ordering::Acquire)
    }

    /// `part` reaches it.
    pub fn back(&self, part: &str) {
        if !self.is_on() {
            return;
        }
        let mut story = self.0.story.lock().unwrap_or_else(PoisonError::into_inner);
        let told = story.back(part, clock::now());
        let is_on = !story.missing.is_empty();
        self.0.is_on.store(is_on, Ordering::Release);
        self.0.up.set(u64::from(!is_on));
        let Some(away) = told else { return };
        let (at, away_s) = (&*self.0.at, clock::seconds(away));
        match self.0.dependency {
            Dependency::Database => {
                tracing::info!(parent: None, at, away_s, "the database is back")
            }
            Dependency::Kafka => tracing::info!(at, away_s, "kafka is back"),
        }
    }
}

/// One state that should not last, as this process sees it. Whoever finds it says how it began; this says
/// when it is time to say that it goes on, and how long it has lasted.
#[derive(Debug, Default)]
pub struct Lasting(Mutex<Story>);

impl Lasting {
    /// It is so now. How long it has lasted, where that is to be said again.
    pub fn on(&self) -> Option<Duration> {
        let mut story = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match story.away("", clock::now(), true) {
            Said::Lasts(lasted) => Some(lasted),
            Said::Nothing | Said::Began => None,
        }
    }

    /// It is over. How long it lasted, if it was.
    pub fn off(&self) -> Option<Duration> {
        let mut story = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        story.back("", clock::now())
    }
}

// --------------------------------------------------------------------------------------------- //

/// What is known of the present outage, if there is one.
#[derive(Debug, Default)]
struct Story {
    missing: BTreeSet<Box<str>>,
    /// What was seen last.
    cause: Box<str>,
    since: Option<Moment>,
    /// When it was last written about.
    said: Option<Moment>,
}

/// What is to be written now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Nothing,
    Began,
    Lasts(Duration),
}

impl Story {
    fn away(&mut self, part: &str, now: Moment, at_once: bool) -> Said {
        let since = *self.since.get_or_insert(now);
        let again = self.missing.contains(part);
        if !again {
            self.missing.insert(part.into());
        }
        let next = match self.said {
            None if again || at_once => Said::Began,
            None => return Said::Nothing,
            Some(said) if now.saturating_duration_since(said) < STILL_EVERY => {
                return Said::Nothing;
            }
            Some(_) => Said::Lasts(now.saturating_duration_since(since)),
        };
        self.said = Some(now);
        next
    }

    /// How long it lasted, when this was the last part that missed it and it was written about.
    fn back(&mut self, part: &str, now: Moment) -> Option<Duration> {
        self.missing.remove(part);
        if !self.missing.is_empty() {
            return None;
        }
        let since = self.since.take()?;
        self.said.take().map(|_| now.saturating_duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_of_minutes_is_a_handful_of_lines() {
        let (mut story, begin) = (Story::default(), clock::now());
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let mut said = Vec::new();
        // A hundred seconds in which two writers and the heartbeat fail ten times a second.
        for tenth in 0..1_000 {
            for part in ["heartbeat", "writer 0", "writer 1"] {
                said.push(story.away(part, at(tenth * 100), false));
            }
        }
        said.retain(|said| *said != Said::Nothing);
        let lasts = |tenth: u64| Said::Lasts(Duration::from_millis(tenth * 100));
        assert_eq!(said, [Said::Began, lasts(301), lasts(601), lasts(901)]);
        assert_eq!(Story::default().away("writer 0", begin, false), Said::Nothing);
        assert_eq!(Story::default().away("start", begin, true), Said::Began);
        // Over when everybody reaches it again.
        assert_eq!(story.back("heartbeat", at(100_000)), None);
        assert_eq!(story.back("heartbeat", at(100_100)), None);
        assert_eq!(story.back("writer 1", at(100_200)), None);
        let over = story.back("writer 0", at(100_300));
        assert_eq!(over, Some(Duration::from_millis(100_300)));
        assert_eq!(story.back("writer 0", at(100_400)), None);
        // A connection that broke while nobody used it.
        assert_eq!(story.away("keeper", at(200_000), false), Said::Nothing);
        assert_eq!(story.back("keeper", at(200_050)), None);
        assert_eq!(story.away("keeper", at(300_000), false), Said::Nothing);
        assert_eq!(story.away("keeper", at(300_050), false), Said::Began);
    }

    #[test]
    fn a_part_that_misses_it_is_named_and_shown_until_all_reach_it() {
        let metrics = crate::telemetry::Metrics::new().unwrap();
        let outage = Outage::of(Dependency::Database, "db:5432/oncely", metrics.database_up());
        let up = || metrics.text().unwrap().contains("\noncely_database_up 1");
        assert!(outage.is_on() && !up(), "nobody has reached it yet");
        outage.back("heartbeat");
        assert!(!outage.is_on() && up());
        outage.away("shop writer 0", "too many clients");
        assert_eq!(
            (outage.told(), up()),
            (None, false),
            "perhaps a connection that broke while idle"
        );
        for writer in 0..4 {
            outage.away(&format!("shop writer {writer}"), "too many clients");
        }
        outage.back("heartbeat");
        assert_eq!(
            outage.told().unwrap(),
            "shop writer 0, shop writer 1, shop writer 2 and 1 more: too many clients"
        );
        assert!(!up());
        (0..4).for_each(|writer| outage.back(&format!("shop writer {writer}")));
        assert_eq!((outage.told(), up()), (None, true));
    }

    #[test]
    fn r31_what_lasts_is_said_again_and_how_long_it_lasted() {
        let lasting = Lasting::default();
        assert_eq!(lasting.off(), None);
        assert_eq!(
            [lasting.on(), lasting.on()],
            [None, None],
            "whoever finds it says that it began"
        );
        assert!(lasting.off().is_some());
        assert_eq!(lasting.off(), None);
    }
}
