//! What became of each effect, by the provider's log and the table of effects.

use std::collections::{BTreeMap, BTreeSet};

use oncely_core::connector::{Connector, EffectBody};
use oncely_core::effect::status::Status;
use oncely_core::key::Key;
use oncely_rig::provider::Log;

use super::Owed;
use crate::crash::Point;
use crate::store::admin::effects::EffectRow;

/// A crash point, and what became of every effect that comes to it or was hit by it.
#[derive(Clone, Debug)]
pub struct Window {
    pub point: Point,
    /// Whether any process died there. A connector does not come to every point.
    pub reached: bool,
    /// How many processes died there.
    pub crashes: usize,
    pub verdicts: Vec<Verdict>,
}

/// The worst that became of the effects of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The effect's id in the connector file.
    pub effect: Box<str>,
    /// A process died there with this effect in its hands, not only with others.
    pub crashed: bool,
    pub fate: Fate,
}

/// One crash: the rules that it hit, and what became of all.
pub(super) struct Crash {
    pub(super) hit: BTreeSet<usize>,
    pub(super) fates: BTreeMap<usize, Fate>,
}

/// What all crashes at a point come to. An effect that comes there and was not hit is never safe: where
/// nothing worse became of it, it was not crashed there.
pub(super) fn of_window(
    connector: &Connector,
    point: Point,
    comes: &BTreeSet<usize>,
    crashes: &[Crash],
) -> Window {
    let mut verdicts = Vec::new();
    for (number, rule) in connector.effects.iter().enumerate() {
        let crashed = crashes.iter().any(|crash| crash.hit.contains(&number));
        let of_crash = |crash: &Crash| {
            let fate = crash.fates.get(&number)?;
            // That the crash of another one did it no harm says nothing of its own.
            (crash.hit.contains(&number) || *fate != Fate::Safe).then(|| fate.clone())
        };
        let missing = (comes.contains(&number) && !crashed).then_some(Fate::NotCrashed);
        if let Some(fate) = crashes.iter().filter_map(of_crash).chain(missing).max() {
            verdicts.push(Verdict { effect: rule.id.clone(), crashed, fate });
        }
    }
    Window { point, reached: !crashes.is_empty(), crashes: crashes.len(), verdicts }
}

/// What became of an effect, from well to badly.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It took place once, and that is on record.
    Safe,
    /// It comes there, and no process died there with it: nothing is known.
    NotCrashed,
    /// It waits behind one that is held, or its predecessor was given up.
    Behind,
    /// At most once, and a person is asked.
    Held,
    /// Given up without having taken place, and on record as a dead letter.
    GivenUp,
    /// What must not be, in words.
    Risk(String),
}

/// Where it is looked for.
pub(super) struct Found {
    pub(super) rows: Vec<EffectRow>,
    /// Lines of the usage ledger.
    pub(super) lines: BTreeSet<Key>,
    pub(super) log: Log,
    /// Nothing is left to do that anybody but a person will do.
    pub(super) finished: bool,
}

/// The worst that became of each rule that was owed anything.
pub(super) fn fates(connector: &Connector, owed: &[Owed], found: &Found) -> BTreeMap<usize, Fate> {
    let mut worst = BTreeMap::new();
    for (number, rule) in connector.effects.iter().enumerate() {
        let of_rule = owed.iter().filter(|owed| owed.rule == number);
        let fates = of_rule.map(|Owed { key, .. }| {
            let row = found.rows.iter().find(|row| row.key == *key);
            let status = row.map(|row| row.status);
            match &rule.body {
                EffectBody::Call(_) => fate(status, applied(&found.log, *key), found.finished),
                // Its key is unique there; one that does not wait for others has no other row.
                EffectBody::Ledger(_) if found.lines.contains(key) => Fate::Safe,
                EffectBody::Ledger(_) => fate(status, 0, found.finished),
                // What the brokers have is on record; readers know repeats by their id.
                EffectBody::Publish(_) => {
                    fate(status, u64::from(status == Some(Status::Done)), found.finished)
                }
            }
        });
        if let Some(fate) = fates.max() {
            worst.insert(number, fate);
        }
    }
    worst
}

/// How often a key took effect; a mail's is a part of its Message-ID.
fn applied(log: &Log, key: Key) -> u64 {
    let wire = key.wire();
    let counts = log.effects_per_key();
    counts.iter().filter(|(known, _)| known.contains(&wire)).map(|(_, count)| count).sum()
}

fn fate(status: Option<Status>, applied: u64, finished: bool) -> Fate {
    let risk = |text: &str| Fate::Risk(text.to_owned());
    match (status, applied) {
        (_, 2..) => Fate::Risk(format!("took effect {applied} times")),
        (Some(Status::Done), 1) => Fate::Safe,
        (Some(Status::Done), 0) => risk("counted as done, and it never took place"),
        (Some(Status::Held), _) => Fate::Held,
        (Some(Status::Rejected), 0) => Fate::GivenUp,
        (Some(Status::Skipped), 0) | (Some(Status::Waiting), 0) if finished => Fate::Behind,
        (Some(Status::Rejected | Status::Skipped), _) => risk("given up, and it took place"),
        (None, _) => risk("it was forgotten"),
        (Some(Status::Waiting | Status::Claimed | Status::Unknown), _) => {
            risk("nobody finishes it")
        }
    }
}

#[cfg(test)]
mod tests {
    use oncely_connectors::file::{Check, NothingSet, compile};

    use super::*;
    use crate::crash::{Side, Step};

    /// Two calls, of which neither hangs on the other.
    const FILE: &str = "version: 1
connector: two
source: { topics: [events] }
identity: { id: event.id, fingerprint: [event.id] }
effects:
  - id: first
    type: http
    key: event.id
    request: { method: POST, url: \"https://a.example.com/\", json: { id: \"{{ event.id }}\" } }
    on_unknown: hold
  - id: second
    type: http
    key: event.id
    request: { method: POST, url: \"https://a.example.com/\", json: { id: \"{{ event.id }}\" } }
    on_unknown: hold
";

    #[test]
    fn an_effect_that_comes_to_a_point_and_was_not_hit_there_is_not_called_safe() {
        let connector = compile("two.yaml", FILE, &NothingSet, Check::Offline).unwrap().connector;
        let crash = |hit: usize, fates: [Fate; 2]| Crash {
            hit: BTreeSet::from([hit]),
            fates: (0..).zip(fates).collect(),
        };
        let point = Point { step: Step::Request, side: Side::Before };
        let fates = |crashes: &[Crash]| {
            let window = of_window(&connector, point, &BTreeSet::from([0, 1]), crashes);
            let fates = window.verdicts.into_iter().map(|verdict| (verdict.crashed, verdict.fate));
            fates.collect::<Vec<_>>()
        };
        let (safe, held) = (|| Fate::Safe, || Fate::Held);
        let hit_first = crash(0, [safe(), safe()]);
        assert_eq!(fates(&[hit_first]), [(true, Fate::Safe), (false, Fate::NotCrashed)]);
        // Harm that the crash of another does is told all the same.
        let harmed = crash(0, [safe(), held()]);
        assert_eq!(fates(&[harmed]), [(true, Fate::Safe), (false, Fate::Held)]);
        let both = [crash(0, [safe(), safe()]), crash(1, [safe(), held()])];
        assert_eq!(fates(&both), [(true, Fate::Safe), (true, Fate::Held)]);
        assert_eq!(fates(&[]), [(false, Fate::NotCrashed), (false, Fate::NotCrashed)]);
    }

    #[test]
    fn the_worst_counts_and_nothing_is_taken_for_well() {
        assert_eq!(fate(Some(Status::Done), 1, true), Fate::Safe);
        assert_eq!(fate(Some(Status::Held), 0, true), Fate::Held);
        assert_eq!(fate(Some(Status::Held), 1, true), Fate::Held);
        assert_eq!(fate(Some(Status::Waiting), 0, true), Fate::Behind);
        for (status, applied, finished) in [
            (Some(Status::Done), 2, true),
            (Some(Status::Held), 2, true),
            (Some(Status::Done), 0, true),
            (Some(Status::Rejected), 1, true),
            (Some(Status::Waiting), 0, false),
            (Some(Status::Unknown), 1, true),
            (None, 0, true),
            (None, 1, true),
        ] {
            let fate = fate(status, applied, finished);
            assert!(matches!(fate, Fate::Risk(_)), "{status:?} {applied} {finished}: {fate:?}");
        }
        assert!(Fate::GivenUp > Fate::Held, "what will not happen is not hidden behind what may");
        assert!(Fate::Risk(String::new()) > Fate::GivenUp && Fate::Held > Fate::Safe);
    }
}
