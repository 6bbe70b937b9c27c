//! Order: which effects may go, and which wait for others.
//!
//! An effect waits for every effect it names with `after`, and for all effects of earlier versions
//! of its entity (same lane). A held or failing one makes its successors wait while other lanes go
//! on. Where a predecessor was rejected or skipped, what comes `after` it is skipped.

use std::collections::BTreeMap;

use super::next::Why;
use super::status::Status;
use crate::key::Key;

/// An effect that is not final, as far as order cares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenEffect {
    pub key: Key,
    pub lane: Key,
    pub event: Key,
    pub version: i64,
    /// Waiting without a due time.
    pub blocked: bool,
    pub status: Status,
    pub after: Vec<Key>,
}

/// Whether an effect may be sent as far as order is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Ready,
    Blocked,
    /// Something it comes after was not done and never will be.
    Skip,
    /// Nobody can say whether it may go, and a person has to. Only said of a new effect.
    Hold(Why),
}

/// The turn of an effect. `open`: the open effects of its lane; `predecessors`: the status of every
/// effect it names with `after` (an absent one was never owed and holds nothing back).
pub fn turn<'a>(
    event: Key,
    version: i64,
    after: &[Key],
    open: impl IntoIterator<Item = &'a OpenEffect>,
    predecessors: &BTreeMap<Key, Status>,
) -> Turn {
    let mut blocked = false;
    for key in after {
        match predecessors.get(key) {
            Some(Status::Rejected | Status::Skipped) => return Turn::Skip,
            Some(Status::Waiting | Status::Claimed | Status::Unknown | Status::Held) => {
                blocked = true;
            }
            Some(Status::Done) | None => {}
        }
    }
    let earlier = |other: &OpenEffect| other.event != event && other.version < version;
    if blocked || open.into_iter().any(earlier) { Turn::Blocked } else { Turn::Ready }
}

/// Of the open effects of some lanes: the blocked ones whose turn has changed, to a fixed point
/// (skipping one may skip or release the next). `settled` holds the status of predecessors that are
/// not among them.
pub fn awake(open: &[OpenEffect], settled: &BTreeMap<Key, Status>) -> BTreeMap<Key, Turn> {
    let mut statuses = settled.clone();
    statuses.extend(open.iter().map(|effect| (effect.key, effect.status)));
    let mut changed: BTreeMap<Key, Turn> = BTreeMap::new();
    loop {
        let mut moved = false;
        let skipped = |effect: &OpenEffect| changed.get(&effect.key) == Some(&Turn::Skip);
        // One of the lowest version holds back all that a whole lane could hold back.
        let mut lowest: BTreeMap<Key, &OpenEffect> = BTreeMap::new();
        for effect in open.iter().filter(|effect| !skipped(effect)) {
            let first = lowest.entry(effect.lane).or_insert(effect);
            if effect.version < first.version {
                *first = effect;
            }
        }
        for effect in open.iter().filter(|effect| effect.blocked) {
            if changed.contains_key(&effect.key) {
                continue;
            }
            let first = lowest.get(&effect.lane).copied();
            match turn(effect.event, effect.version, &effect.after, first, &statuses) {
                Turn::Blocked | Turn::Hold(_) => {}
                Turn::Ready => {
                    changed.insert(effect.key, Turn::Ready);
                }
                Turn::Skip => {
                    changed.insert(effect.key, Turn::Skip);
                    statuses.insert(effect.key, Status::Skipped);
                    moved = true;
                }
            }
        }
        if !moved {
            return changed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> Key {
        Key::from_bytes([n; 16])
    }

    fn open(n: u8, version: i64, blocked: bool, after: &[u8]) -> OpenEffect {
        OpenEffect {
            key: key(n),
            lane: key(200),
            event: key(100 + u8::try_from(version).unwrap()),
            version,
            blocked,
            status: if blocked { Status::Waiting } else { Status::Held },
            after: after.iter().copied().map(key).collect(),
        }
    }

    #[test]
    fn a_later_version_waits_for_an_earlier_one() {
        let lane = [open(1, 1, false, &[]), open(2, 2, true, &[])];
        assert!(awake(&lane, &BTreeMap::new()).is_empty());
        assert_eq!(awake(&lane[1..], &BTreeMap::new()), [(key(2), Turn::Ready)].into());
    }

    #[test]
    fn effects_of_one_event_run_side_by_side_unless_one_comes_after_the_other() {
        let lane = [open(1, 1, false, &[]), open(2, 1, true, &[]), open(3, 1, true, &[1])];
        assert_eq!(awake(&lane, &BTreeMap::new()), [(key(2), Turn::Ready)].into());
        let settled = [(key(1), Status::Done)].into();
        assert_eq!(awake(&lane[2..], &settled), [(key(3), Turn::Ready)].into());
    }

    #[test]
    fn what_comes_after_a_rejected_one_is_skipped_all_the_way_and_lets_the_lane_go() {
        let lane = [open(2, 1, true, &[1]), open(3, 1, true, &[2]), open(4, 2, true, &[])];
        let settled = [(key(1), Status::Rejected)].into();
        let want = [(key(2), Turn::Skip), (key(3), Turn::Skip), (key(4), Turn::Ready)];
        assert_eq!(awake(&lane, &settled), want.into());
    }
}
