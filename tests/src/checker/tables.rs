//! I2, I3 and I7 in the tables at rest.

use std::collections::{BTreeMap, BTreeSet};

use oncely_rig::postgres::Row;
use oncely_rig::provider::Log;

use super::is_remembered;
use super::provider;
use super::sampler::number;
use crate::ledger::{Ending, Fate, Ledger, Owed};
use crate::wiring::Wiring;
use crate::world::World;

/// Outcome of a first copy, its entity and its version.
type Remembered = (String, Option<String>, Option<i64>);

/// The tables when nothing runs any more.
pub(super) struct Tables {
    /// By the place of the first copy.
    inbox: BTreeMap<(i32, i64), Remembered>,
    /// Reason, by place.
    parked: BTreeMap<(i32, i64), String>,
    /// Name, business id, status, and the key as the provider gets it.
    effects: Vec<(String, String, String, String)>,
    /// Version of each entity.
    entities: BTreeMap<String, i64>,
    /// Name and event of each line, by its place.
    lines: Vec<(String, (i32, i64))>,
    audits: u64,
    /// Claims that nobody holds any more.
    claims: i64,
    /// Where records of events lie that wait, and whether a person's word is waited for.
    deferred: BTreeMap<(i32, i64), bool>,
}

impl Tables {
    pub(super) async fn read(world: &World) -> Self {
        let topic = world.topic();
        let place = |row: &Row| (number(row, 0), number(row, 1));
        // Of the topic as it is now: one of its name that was deleted had other records at the same places.
        let since = world.ledger().since.clone();
        let inbox = world
            .sql(&format!(
                "SELECT i.first_partition, i.first_offset, i.outcome, i.entity, i.version
                 FROM oncely.inbox i JOIN oncely.source s ON s.id = i.source
                 WHERE s.topic = '{topic}' AND i.first_seen_at >= '{since}'"
            ))
            .await;
        let parked = world
            .sql(
                "SELECT record_partition, record_offset, reason FROM oncely.parked
                 WHERE effect IS NULL AND closed_at IS NULL",
            )
            .await;
        let effects = world
            .sql(
                "SELECT name, business_id, status, 'ef_' || replace(key::text, '-', '')
                 FROM oncely.effect",
            )
            .await;
        let deferred = world
            .sql(
                "SELECT record_partition, record_offset, due_at = 'infinity' FROM oncely.deferred
                 WHERE closed_at IS NULL",
            )
            .await;
        let entities = world.sql("SELECT key, version FROM oncely.entity").await;
        let lines = world
            .sql(
                "SELECT i.first_partition, i.first_offset, l.name
                 FROM oncely.ledger l JOIN oncely.inbox i ON i.key = l.event",
            )
            .await;
        let text = |row: &Row, column: usize| row[column].clone().unwrap();
        let version = |row: &Row| row[4].as_ref().map(|version| version.parse().unwrap());
        Self {
            inbox: inbox
                .iter()
                .map(|row| (place(row), (text(row, 2), row[3].clone(), version(row))))
                .collect(),
            parked: parked.iter().map(|row| (place(row), text(row, 2))).collect(),
            effects: effects
                .iter()
                .map(|row| (text(row, 0), text(row, 1), text(row, 2), text(row, 3)))
                .collect(),
            entities: entities.iter().map(|row| (text(row, 0), number(row, 1))).collect(),
            lines: lines.iter().map(|row| (text(row, 2), place(row))).collect(),
            audits: u64::try_from(world.count("SELECT count(*) FROM oncely.audit").await).unwrap(),
            deferred: deferred
                .iter()
                .map(|row| (place(row), row[2].as_deref() == Some("t")))
                .collect(),
            claims: world
                .count("SELECT count(*) FROM oncely.effect WHERE status = 'claimed'")
                .await,
        }
    }

    pub(super) fn check(&self, ledger: &Ledger, wiring: &Wiring, log: &Log) -> Vec<String> {
        let mut wrong = self.records(ledger);
        for (place, by_hand) in &self.deferred {
            if !by_hand {
                wrong.push(format!("I5: the event at {place:?} still waits for a version"));
            }
        }
        for (place, row) in &self.inbox {
            if (row.0 == "deferred") != self.deferred.contains_key(place) {
                wrong.push(format!("I2: {place:?} is {} and does not wait, or waits twice", row.0));
            }
        }
        wrong.extend(self.owed(ledger, wiring, log));
        wrong.extend(self.versions(ledger));
        if self.audits != ledger.overrides {
            wrong.push(format!("I7: {} overrides, {} audit rows", ledger.overrides, self.audits));
        }
        if self.claims > 0 {
            wrong.push(format!("I5: {} claims are left by workers that ended well", self.claims));
        }
        wrong
    }

    /// I2: one outcome for every record.
    fn records(&self, ledger: &Ledger) -> Vec<String> {
        let mut wrong = Vec::new();
        for (id, copies) in ledger.copies() {
            let places = copies.iter().map(|sent| (sent.partition, sent.offset));
            let first: Vec<_> = places.filter(|place| self.inbox.contains_key(place)).collect();
            let [first] = first[..] else {
                wrong.push(format!("I2: {id} is remembered {} times", first.len()));
                continue;
            };
            let outcome = self.inbox[&first].0.as_str();
            let fits = match copies[0].fate {
                Fate::Applied => outcome == "applied",
                Fate::Deferred => outcome == "deferred",
                Fate::Stale => outcome == "stale",
                Fate::AppliedOrStale | Fate::Ignored | Fate::Parked(_) => {
                    matches!(outcome, "applied" | "stale")
                }
            };
            if !fits {
                wrong.push(format!("I2: {id} is {outcome}, not {:?}", copies[0].fate));
            }
            for copy in copies {
                if let Some(reason) = self.parked.get(&(copy.partition, copy.offset)) {
                    wrong.push(format!("I2: {id} is {outcome} and parked ({reason})"));
                }
            }
        }
        for sent in &ledger.sent {
            let place = (sent.partition, sent.offset);
            let parked = self.parked.get(&place).map(String::as_str);
            match sent.fate {
                Fate::Parked(reason) if parked != Some(reason) => {
                    wrong.push(format!("I2: {place:?} is parked for {parked:?}, not {reason}"));
                }
                Fate::Ignored if parked.is_some() => {
                    wrong.push(format!("I2: {place:?} is parked for {parked:?}, not ignored"));
                }
                Fate::Applied
                | Fate::Stale
                | Fate::AppliedOrStale
                | Fate::Deferred
                | Fate::Ignored
                | Fate::Parked(_) => {}
            }
            if !is_remembered(sent.fate)
                && self.inbox.get(&place).is_some_and(|row| row.0 == "applied")
            {
                wrong.push(format!("I2: {place:?} is applied, not {:?}", sent.fate));
            }
        }
        let booked: BTreeSet<_> =
            ledger.sent.iter().map(|sent| (sent.partition, sent.offset)).collect();
        for place in self.inbox.keys().chain(self.parked.keys()) {
            if !booked.contains(place) {
                wrong.push(format!("I2: the tables know a record at {place:?}, the books do not"));
            }
        }
        wrong
    }

    /// I2: every owed effect ended as it had to, and nothing else was called.
    fn owed(&self, ledger: &Ledger, wiring: &Wiring, log: &Log) -> Vec<String> {
        let (seen, _) = provider::seen(ledger, wiring, log);
        let mut wrong = Vec::new();
        for (owed, ending) in &ledger.owed {
            let effect = wiring.effects.iter().find(|effect| effect.id == owed.effect);
            if effect.is_some_and(|effect| effect.endpoint.is_empty()) {
                wrong.extend(self.line(ledger, owed, *ending));
                continue;
            }
            let rows: Vec<_> = self
                .effects
                .iter()
                .filter(|(name, id, ..)| *name == owed.effect && id.contains(&owed.mark))
                .collect();
            if *ending == Ending::Twice {
                let applied = seen.get(owed).map_or(0, |seen| seen.applied);
                if rows.len() != 2 || rows.iter().any(|row| row.2 != "done") || applied != 2 {
                    wrong.push(format!("I2: {owed:?} is not done twice: {rows:?}, {applied}"));
                }
                continue;
            }
            let [(_, _, status, key)] = rows[..] else {
                wrong.push(format!("I2: {owed:?} is in the tables {} times", rows.len()));
                continue;
            };
            let is_record = effect.is_some_and(|effect| effect.endpoint == "kafka");
            let applied = match seen.get(owed) {
                // Stories read records back themselves.
                _ if is_record => u64::from(status == "done"),
                seen => seen.map_or(0, |seen| seen.applied),
            };
            wrong.extend(ended(owed, *ending, status, applied));
            let others = seen.get(owed).into_iter().flat_map(|seen| &seen.keys);
            for other in others.filter(|other| other.starts_with("ef_")) {
                if other.split('@').next() != Some(key) {
                    wrong.push(format!("I1: {owed:?} is {key}, and was sent under {other}"));
                }
            }
        }
        let known = |name: &str, id: &str| {
            let mut of_name = ledger.owed.keys().filter(|owed| owed.effect == name);
            of_name.any(|owed| id.contains(&owed.mark))
        };
        for (name, id, status, _) in &self.effects {
            if !known(name, id) {
                wrong.push(format!("I2: {name} of {id} is {status}, and nobody owed it"));
            }
        }
        wrong
    }

    /// A line of the usage ledger, once for its event; none where what it comes after was not done.
    fn line(&self, ledger: &Ledger, owed: &Owed, ending: Ending) -> Option<String> {
        let of_mark: BTreeSet<_> = ledger
            .sent
            .iter()
            .filter(|sent| sent.id.as_ref().is_some_and(|id| id.contains(&owed.mark)))
            .map(|sent| (sent.partition, sent.offset))
            .collect();
        let lines =
            self.lines.iter().filter(|(name, at)| *name == owed.effect && of_mark.contains(at));
        let lines = lines.count();
        let mut rows = self
            .effects
            .iter()
            .filter(|(name, id, ..)| *name == owed.effect && id.contains(&owed.mark));
        let status = rows.next().map_or("done", |(_, _, status, _)| status);
        let fits = match ending {
            Ending::Blocked => lines == 0 && status == "waiting",
            Ending::Skipped => lines == 0 && status == "skipped",
            Ending::Rejected => lines == 0 && status == "rejected",
            Ending::DoneOrHeld => lines == usize::from(status == "done"),
            Ending::Done
            | Ending::Assumed
            | Ending::Again
            | Ending::Twice
            | Ending::Held
            | Ending::Unwanted => lines == 1 && status == "done",
        };
        let more = rows.next().is_some();
        (!fits || more).then(|| {
            format!(
                "I2: {owed:?} has {lines} lines in the usage ledger and is {status}, not {ending:?}"
            )
        })
    }

    /// I3: every entity is at the highest version that was accepted.
    fn versions(&self, ledger: &Ledger) -> Vec<String> {
        let mut wrong = Vec::new();
        for (entity, highest) in ledger.highest() {
            let of_entity = ledger
                .sent
                .iter()
                .filter(|sent| sent.entity.as_ref().is_some_and(|(name, _)| name == entity));
            let keys: BTreeSet<&String> = of_entity
                .filter_map(|sent| self.inbox.get(&(sent.partition, sent.offset)))
                .filter_map(|(_, key, _)| key.as_ref())
                .collect();
            let versions: Vec<_> = keys.iter().map(|key| self.entities.get(*key)).collect();
            if versions != [Some(&highest)] {
                wrong.push(format!("I3: {entity} is at {versions:?}, not at {highest}"));
            }
        }
        wrong
    }
}

fn ended(owed: &Owed, ending: Ending, status: &str, applied: u64) -> Option<String> {
    let fits = match ending {
        Ending::Done => status == "done" && applied == 1,
        Ending::Again | Ending::Twice => status == "done" && applied == 2,
        Ending::DoneOrHeld => match status {
            "done" => applied == 1,
            "held" => applied <= 1,
            _ => false,
        },
        Ending::Held => status == "held" && applied <= 1,
        Ending::Assumed => status == "done" && applied <= 1,
        Ending::Rejected => status == "rejected" && applied == 0,
        Ending::Skipped => status == "skipped" && applied == 0,
        Ending::Unwanted => status == "skipped" && applied <= 1,
        Ending::Blocked => status == "waiting" && applied == 0,
    };
    (!fits).then(|| format!("I2: {owed:?} is {status}, applied {applied}, not {ending:?}"))
}
