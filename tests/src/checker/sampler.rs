//! Watches committed offsets and versions while a story runs: I3 and I4 at every look.
//!
//! The group's offsets are read first and the tables after them. What was durable when an offset was
//! committed is durable later, so every violation seen is a true one. Where the database fails over and forgets, an
//! offset may be ahead of what is left until whoever committed it has noticed: for a while what is wrong counts only
//! if it lasts. A version that fell then is what was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use oncely_rig::postgres::{Row, Wire};
use tokio::task::JoinHandle;

use super::{is_remembered, topic};
use crate::ledger::{Fate, Ledger};
use crate::wiring::Wiring;

/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(150);
/// How long the number of partitions is taken for what it was.
const PARTITIONS: Duration = Duration::from_secs(1);
/// So long after a failover what is wrong counts only if it lasts, for so long.
const FORGETFUL: Duration = Duration::from_secs(20);
const LASTS: Duration = Duration::from_secs(10);
/// Violations after which looking on tells nothing new.
const WRONG_MAX: usize = 10;

/// A running watch.
#[derive(Debug)]
pub struct Sampler {
    stop: Arc<AtomicBool>,
    looks: Arc<AtomicU64>,
    task: JoinHandle<Vec<String>>,
}

struct Watch {
    brokers: String,
    group: String,
    topic: String,
    /// Partitions of the topic, and when they were asked for.
    partitions: Option<(Instant, Vec<i32>)>,
    /// Seconds that an open effect may hold an offset back.
    offset_wait_s: f64,
    database: (String, String),
    /// Kept from look to look: a connection costs PostgreSQL a process.
    wire: Option<Wire>,
    ledger: Arc<Mutex<Ledger>>,
    versions: BTreeMap<String, i64>,
    /// Where records lie of which nothing was open, so that their offsets may go: a person may open their effects again.
    gone: BTreeSet<(i32, i64)>,
    /// The last failover that was seen, and when.
    failover: i64,
    lost_at: Option<Instant>,
    /// Since when something is wrong at a place.
    wrong_since: BTreeMap<Place, Instant>,
}

/// A partition, and an offset of it where it is about one record.
type Place = (i32, Option<i64>);

/// What the tables say at one look.
struct Tables {
    failover: i64,
    positions: BTreeMap<i32, i64>,
    remembered: BTreeSet<(i32, i64)>,
    parked: BTreeSet<(i32, i64)>,
    /// Where records lie of which an effect is open, young, and not behind a held one. An event that waited
    /// let its offset go then.
    open: BTreeSet<(i32, i64)>,
    versions: BTreeMap<String, i64>,
}

impl Sampler {
    pub(crate) fn start(
        brokers: &str,
        wiring: &Wiring,
        database: (String, String),
        ledger: Arc<Mutex<Ledger>>,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut watch = Watch {
            brokers: brokers.to_owned(),
            group: wiring.group.clone(),
            topic: wiring.topic.clone(),
            partitions: None,
            offset_wait_s: seconds(wiring.offset_wait),
            database,
            wire: None,
            ledger,
            versions: BTreeMap::new(),
            gone: BTreeSet::new(),
            failover: 0,
            lost_at: None,
            wrong_since: BTreeMap::new(),
        };
        let stopped = Arc::clone(&stop);
        let looks = Arc::new(AtomicU64::new(0));
        let looked = Arc::clone(&looks);
        let task = tokio::spawn(async move {
            let mut wrong = Vec::new();
            while !stopped.load(Ordering::Relaxed) && wrong.len() < WRONG_MAX {
                if let Some(found) = watch.look().await {
                    wrong.extend(found);
                    looked.fetch_add(1, Ordering::Relaxed);
                }
                tokio::time::sleep(LOOK).await;
            }
            wrong
        });
        Self { stop, looks, task }
    }

    /// Looks so far.
    pub(crate) fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    /// Ends the watch; gives the violations that it saw.
    pub(crate) async fn finish(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

impl Watch {
    /// One look; `None` while the database or the broker cannot be asked.
    async fn look(&mut self) -> Option<Vec<String>> {
        let (brokers, group, name) = (self.brokers.clone(), self.group.clone(), self.topic.clone());
        let known = self.partitions.take().filter(|(asked, _)| asked.elapsed() < PARTITIONS);
        let asked = tokio::task::spawn_blocking(move || {
            let client = topic::client(&brokers, &group);
            let (at, partitions) = match known {
                Some(known) => known,
                None => (Instant::now(), topic::partitions_now(&client, &name)?),
            };
            let committed = topic::committed_at(&client, &name, &partitions)?;
            Some((committed, (at, partitions)))
        });
        let (committed, partitions) = asked.await.ok()??;
        self.partitions = Some(partitions);
        let wire = self.wire.take();
        let asked = tokio::time::timeout(Duration::from_secs(5), self.tables(wire)).await;
        let (wire, tables) = asked.ok()??;
        self.wire = Some(wire);
        let known = std::mem::replace(&mut self.failover, tables.failover);
        if known != 0 && known != tables.failover {
            self.lost_at = Some(Instant::now());
            self.versions.clear();
            self.gone.clear();
        }
        let mut wrong = Vec::new();
        for (entity, version) in &tables.versions {
            if self.versions.get(entity).is_some_and(|known| known > version) {
                wrong.push(format!("I3: entity {entity} fell to version {version}"));
            }
        }
        let mut offsets = Vec::new();
        for (partition, offset) in &committed {
            let position = tables.positions.get(partition).copied().unwrap_or(0);
            if position < *offset {
                let text = format!(
                    "I4: partition {partition} is committed at {offset}, its position is {position}"
                );
                offsets.push(((*partition, None), text));
            }
        }
        offsets.extend(self.unfinished(&committed, &tables));
        self.versions = tables.versions;
        wrong.extend(self.lasting(offsets));
        Some(wrong)
    }

    fn is_forgetful(&self) -> bool {
        self.lost_at.is_some_and(|at| at.elapsed() < FORGETFUL)
    }

    /// What of it counts.
    fn lasting(&mut self, wrong: Vec<(Place, String)>) -> Vec<String> {
        if !self.is_forgetful() {
            self.wrong_since.clear();
            return wrong.into_iter().map(|(_, text)| text).collect();
        }
        let still: BTreeSet<Place> = wrong.iter().map(|(place, _)| *place).collect();
        self.wrong_since.retain(|place, _| still.contains(place));
        let mut lasts = |place| {
            let since = self.wrong_since.entry(place).or_insert_with(Instant::now);
            since.elapsed() >= LASTS
        };
        wrong.into_iter().filter(|(place, _)| lasts(*place)).map(|(_, text)| text).collect()
    }

    /// Records below a committed offset that have no outcome or an open effect.
    fn unfinished(
        &mut self,
        committed: &BTreeMap<i32, i64>,
        tables: &Tables,
    ) -> Vec<(Place, String)> {
        let forgetful = self.is_forgetful();
        let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let copies = ledger.copies();
        let mut wrong = Vec::new();
        for sent in ledger.sent.iter().filter(|sent| sent.topic == self.topic) {
            let place = (sent.partition, sent.offset);
            let at = (sent.partition, Some(sent.offset));
            let is_committed =
                committed.get(&sent.partition).is_some_and(|committed| *committed > sent.offset);
            if is_committed
                && matches!(sent.fate, Fate::Parked(_))
                && !tables.parked.contains(&place)
            {
                wrong.push((at, format!("I4: {place:?} is committed and not parked")));
            }
            if !is_remembered(sent.fate) {
                continue;
            }
            let of_id = sent.id.as_deref().and_then(|id| copies.get(id)).into_iter().flatten();
            let mut places = of_id.map(|copy| (copy.partition, copy.offset));
            let Some(first) = places.find(|place| tables.remembered.contains(place)) else {
                if is_committed {
                    let text =
                        format!("I4: {place:?} ({:?}) is committed and not durable", sent.id);
                    wrong.push((at, text));
                }
                continue;
            };
            let open = tables.open.contains(&first);
            if is_committed && open && !self.gone.contains(&place) {
                let text = format!("I4: {place:?} ({:?}) is committed, its effect open", sent.id);
                wrong.push((at, text));
            }
            // Its offset may go from the moment on that nothing of it is open, and is on its way.
            if !open || (is_committed && !forgetful) {
                self.gone.insert(place);
            }
        }
        wrong
    }

    /// The tables as they are, and the connection for the next look; `None` when one of them broke.
    async fn tables(&self, wire: Option<Wire>) -> Option<(Wire, Tables)> {
        let (address, name) = &self.database;
        let mut wire = match wire {
            Some(wire) => wire,
            None => Wire::connect(address, "postgres", name).await.ok()?,
        };
        // A margin for the clock ticks between the program's own deadline and this look.
        let wait_s = (self.offset_wait_s - 1.0).max(0.0);
        // One statement, so one snapshot for all of it, planned once.
        let asked = format!(
            "SELECT 'failover', coalesce(max(number), 0), NULL::bigint, NULL::uuid FROM oncely.failover
             HAVING oncely.is_here()
             UNION ALL
             SELECT 'position', partition, max(position), NULL FROM oncely.progress
             WHERE group_name = '{group}' AND topic = '{topic}' GROUP BY partition
             UNION ALL
             SELECT 'remembered', first_partition, first_offset, NULL FROM oncely.inbox
             UNION ALL
             SELECT 'parked', record_partition, record_offset, NULL FROM oncely.parked
             WHERE effect IS NULL
             UNION ALL
             SELECT 'open', i.first_partition, i.first_offset, NULL FROM oncely.inbox i
             JOIN oncely.effect e ON e.key = ANY(i.effects)
             WHERE e.status IN ('waiting', 'claimed', 'unknown')
               AND i.first_seen_at > now() - interval '{wait_s} seconds'
               AND NOT EXISTS (SELECT FROM oncely.effect h
                               WHERE h.lane = e.lane AND h.status = 'held')
               AND NOT EXISTS (SELECT FROM oncely.deferred d WHERE d.event = i.key)
             UNION ALL
             SELECT 'version', NULL, version, key FROM oncely.entity",
            group = self.group,
            topic = self.topic,
        );
        let rows = wire.run_prepared(&asked).await.ok()?;
        let of = |what: &str| -> Vec<&Row> {
            rows.iter().filter(|row| row[0].as_deref() == Some(what)).collect()
        };
        let places =
            |what| of(what).into_iter().map(|row| (number(row, 1), number(row, 2))).collect();
        let tables = Tables {
            // A server that nobody has found yet is nobody's.
            failover: number(of("failover").first()?, 1),
            positions: of("position")
                .into_iter()
                .map(|row| (number(row, 1), number(row, 2)))
                .collect(),
            remembered: places("remembered"),
            parked: places("parked"),
            open: places("open"),
            versions: of("version")
                .into_iter()
                .map(|row| (row[3].clone().unwrap(), number(row, 2)))
                .collect(),
        };
        Some((wire, tables))
    }
}

/// A column that holds a number.
pub(super) fn number<T: std::str::FromStr>(row: &Row, column: usize) -> T
where
    T::Err: std::fmt::Debug,
{
    row[column].as_deref().unwrap().parse().unwrap()
}

/// A duration of a connector file, in seconds.
fn seconds(text: &str) -> f64 {
    let (digits, unit) = text.split_at(text.find(|c: char| c.is_alphabetic()).unwrap_or(0));
    let number: f64 = digits.parse().unwrap_or(f64::MAX / 1e6);
    match unit {
        "ms" => number / 1000.0,
        "s" => number,
        "m" => number * 60.0,
        // `forever`
        _ => 1e6,
    }
}
