//! Which server a database is on, and what is in doubt when it is another one than before.
//!
//! Reads: the system and the timeline that a server shows, what the database has on record of where it is,
//! and which histories this process has seen. Gives: what has to be done before anything else is done there.
//! A standby that takes over writes another timeline. It may lack commits that were acknowledged, so what
//! happened since may be forgotten: what was finished counts no more, and what is unknown may have been done.
//! Invariant: a history that was left is never taken up again.

use crate::key::Key;

/// Added to epochs in a failover: more than the rewinds that may be lost with it, so that no epoch is given
/// out twice.
pub const EPOCHS_SKIPPED: i64 = 1_000_000;

/// A server as it shows itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Of the cluster: a standby has its primary's.
    pub system: i64,
    /// Which it writes: a standby that takes over begins another one.
    pub timeline: i64,
}

/// Where a database has on record that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stand {
    pub number: i32,
    /// Names what was written there from then on; drawn when it was put on record.
    pub history: Key,
    pub server: Server,
}

/// What a connection turned out to lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// Where it was.
    Same,
    /// Elsewhere than is on record: that is to be recorded, by whoever is first, and then met again.
    Moved,
    /// Another history, which has all that was known: the first one that this process sees, or one that lost
    /// nothing.
    Goes,
    /// Another history, which may lack what this process knows.
    Lost,
    /// A history that was left: a server that does not know that it was replaced. Nothing may be done there.
    Left,
}

/// The histories that a process has seen.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    current: Option<Key>,
    left: Vec<Key>,
    generation: u64,
}

impl Memory {
    /// The history that this process is in.
    pub const fn current(&self) -> Option<Key> {
        self.current
    }

    /// Rises whenever something may have been lost.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// What a connection to `server` means. `unbroken`: on record there, nothing was lost since the history
    /// that this process is in.
    pub fn meet(&self, server: Server, stand: Option<&Stand>, unbroken: bool) -> Meeting {
        let Some(stand) = stand.filter(|stand| stand.server == server) else {
            return Meeting::Moved;
        };
        match self.current {
            Some(current) if current == stand.history => Meeting::Same,
            _ if self.left.contains(&stand.history) => Meeting::Left,
            None => Meeting::Goes,
            Some(_) if unbroken => Meeting::Goes,
            Some(_) => Meeting::Lost,
        }
    }

    /// Takes a history up, after [`Memory::meet`] has said that it goes on or that something is lost.
    pub fn follow(&mut self, history: Key, met: Meeting) {
        match met {
            Meeting::Goes | Meeting::Lost => {
                self.left.extend(self.current.replace(history));
                if met == Meeting::Lost {
                    self.generation = self.generation.saturating_add(1);
                }
            }
            Meeting::Same | Meeting::Moved | Meeting::Left => {}
        }
    }
}

/// How far records may be done although nothing is on record of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// Records before this offset.
    pub below: i64,
    /// The generation in which they were read.
    pub generation: u64,
}

impl Doubt {
    /// Of one record that is stored, and not read from its topic.
    pub const fn of(suspect: bool, generation: u64) -> Self {
        Self { below: if suspect { i64::MAX } else { i64::MIN }, generation }
    }

    /// Whether the record may be done, seen from generation `now`: what was read before something was lost
    /// may have been done by then, too.
    pub const fn covers(&self, offset: i64, now: u64) -> bool {
        offset < self.below || self.generation != now
    }
}

/// How far the records in doubt of one assignment are decided again, finished or not: what is decided is on record,
/// and its copies are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    below: i64,
    read: i64,
    undecided: usize,
}

impl Again {
    /// `None`: no record from `position` on is in doubt.
    pub fn of(position: i64, doubt: &Doubt) -> Option<Self> {
        (position < doubt.below).then_some(Self {
            below: doubt.below,
            read: position,
            undecided: 0,
        })
    }

    /// A record was read, in rising order; `decides`: it is yet to be decided.
    pub const fn read(&mut self, offset: i64, decides: bool) {
        self.read = offset.saturating_add(1);
        if decides && offset < self.below {
            self.undecided = self.undecided.saturating_add(1);
        }
    }

    /// What was decided of a record is durable.
    pub const fn decided(&mut self, offset: i64) {
        if offset < self.below {
            self.undecided = self.undecided.saturating_sub(1);
        }
    }

    /// Whether all of them are decided.
    pub const fn is_over(&self) -> bool {
        self.read >= self.below && self.undecided == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn history(n: u8) -> Key {
        Key::from_bytes([n; 16])
    }

    /// A server of a small world: its histories, the last one being its present.
    #[derive(Clone, Debug)]
    struct Replica {
        timeline: i64,
        stands: Vec<(Stand, bool)>,
    }

    impl Replica {
        fn unbroken_since(&self, known: Option<Key>) -> bool {
            let at = self.stands.iter().position(|(stand, _)| Some(stand.history) == known);
            at.is_some_and(|at| self.stands[at + 1..].iter().all(|(_, lossless)| *lossless))
        }

        fn server(&self) -> Server {
            Server { system: 7, timeline: self.timeline }
        }
    }

    #[derive(Clone, Debug)]
    enum Do {
        /// A process connects to a replica.
        Connect(usize),
        /// A replica becomes a copy of another, and takes over from it.
        Promote(usize, usize, bool),
    }

    fn any_do() -> impl Strategy<Value = Do> {
        prop_oneof![
            (0..3_usize).prop_map(Do::Connect),
            (0..3_usize, 0..3_usize, any::<bool>()).prop_map(|(a, b, c)| Do::Promote(a, b, c)),
        ]
    }

    proptest! {
        /// However replicas take over from one another and whichever is met: a history that was left is
        /// never used again, and where something may be missing the generation rises.
        #[test]
        fn w10_e3_what_was_left_is_not_taken_up_and_what_was_lost_is_noticed(
            steps in proptest::collection::vec(any_do(), 1..40),
        ) {
            let first = Replica { timeline: 1, stands: Vec::new() };
            let mut replicas = [first.clone(), first.clone(), first];
            let mut memory = Memory::default();
            let mut drawn = 0_u8;
            let mut used: Vec<Key> = Vec::new();
            for step in steps {
                let at = match step {
                    Do::Promote(of, by, lossless) => {
                        let copy = replicas[of].clone();
                        replicas[by] = Replica { timeline: copy.timeline + 1, ..copy };
                        // Whoever else meets it first puts it on record.
                        let replica = &mut replicas[by];
                        drawn += 1;
                        let number = i32::try_from(replica.stands.len()).unwrap() + 1;
                        let stand =
                            Stand { number, history: history(drawn), server: replica.server() };
                        replica.stands.push((stand, lossless));
                        continue;
                    }
                    Do::Connect(at) => at,
                };
                let replica = &mut replicas[at];
                let server = replica.server();
                let mut met = memory.meet(
                    server,
                    replica.stands.last().map(|(stand, _)| stand),
                    replica.unbroken_since(memory.current()),
                );
                if met == Meeting::Moved {
                    drawn += 1;
                    let number = i32::try_from(replica.stands.len()).unwrap() + 1;
                    let stand = Stand { number, history: history(drawn), server };
                    replica.stands.push((stand, false));
                    met = memory.meet(
                        server,
                        Some(&stand),
                        replica.unbroken_since(memory.current()),
                    );
                }
                let now = replica.stands.last().unwrap().0.history;
                let (was, before) = (memory.current(), memory.generation());
                let lost = was.is_some() && !replica.unbroken_since(was);
                memory.follow(now, met);
                match met {
                    Meeting::Moved => prop_assert!(false, "it was put on record"),
                    Meeting::Left => {
                        prop_assert!(used.contains(&now) && Some(now) != was);
                        prop_assert_eq!(memory.current(), was);
                    }
                    Meeting::Same => prop_assert_eq!(Some(now), was),
                    Meeting::Goes | Meeting::Lost => {
                        prop_assert!(!used.contains(&now));
                        used.push(now);
                        prop_assert_eq!(memory.generation() > before, lost);
                    }
                }
            }
        }

        /// Whatever was read before a loss, or lies below the end that the topic had then, is in doubt;
        /// nothing else is.
        #[test]
        fn w10_what_may_be_done_is_in_doubt(below in 0..9_i64, offset in 0..9_i64, read in 0..3_u64, now in 0..3_u64) {
            let doubt = Doubt { below, generation: read };
            prop_assert_eq!(doubt.covers(offset, now), offset < below || read != now);
            prop_assert_eq!(Doubt::of(true, read).covers(offset, read), true);
            prop_assert_eq!(Doubt::of(false, read).covers(offset, now), read != now);
        }
    }

    proptest! {
        /// Against a set: it is over when every record below the bound was read and decided, in whatever order.
        #[test]
        fn w10_all_that_was_in_doubt_is_decided_again(
            below in 1..12_i64, start in 0..12_i64, ends in proptest::collection::vec(any::<bool>(), 12),
            order in Just((0..12_i64).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let Some(mut again) = Again::of(start, &Doubt { below, generation: 0 }) else {
                prop_assert!(start >= below);
                return Ok(());
            };
            let waits = |offset: i64| ends[usize::try_from(offset).unwrap()];
            for offset in start..12 {
                prop_assert!(!again.is_over() || offset >= below);
                again.read(offset, waits(offset));
            }
            let mut open: Vec<i64> = (start..below).filter(|offset| waits(*offset)).collect();
            for offset in order.into_iter().filter(|offset| *offset >= start && waits(*offset)) {
                prop_assert_eq!(again.is_over(), open.is_empty());
                again.decided(offset);
                open.retain(|one| *one != offset);
            }
            prop_assert!(again.is_over());
        }
    }

    #[test]
    fn e3_a_server_that_shows_another_timeline_or_system_has_moved() {
        let server = Server { system: 7, timeline: 1 };
        let stand = Stand { number: 1, history: history(1), server };
        let memory = Memory::default();
        assert_eq!(memory.meet(server, None, false), Meeting::Moved);
        assert_eq!(memory.meet(server, Some(&stand), false), Meeting::Goes);
        for other in [Server { timeline: 2, ..server }, Server { system: 8, ..server }] {
            assert_eq!(memory.meet(other, Some(&stand), false), Meeting::Moved);
        }
    }
}
