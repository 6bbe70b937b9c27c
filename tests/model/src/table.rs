//! What the product's statements do to its tables, a function for each transaction.

use oncely_core::effect::lookup::Finding;
use oncely_core::effect::next::{History, Next, after_death, after_lookup, next_step};
use oncely_core::effect::outcome::Outcome;
use oncely_core::value::Value;

use crate::effect::{
    Call, Doubt, Known, LEASE, Phase, Protocol, Registered, Row, Seen, Standby, Status, TICK_MS,
    World,
};

impl Protocol {
    pub(crate) fn write(&self, world: &mut World, p: usize, heard: bool) -> Option<()> {
        let process = &world.processes[p];
        if world.passed || process.tracks {
            return None;
        }
        if world.row.is_some() && self.rules.repeats_are_known {
            // A duplicate: it waits for the first copy.
            heard.then_some(())?;
            world.processes[p].tracks = true;
            return Some(());
        }
        let doubt = world.doubt.filter(|_| self.rules.loss_is_unknown);
        self.write_new(world, p, heard, doubt)
    }

    /// Another copy of the record, from a partition in which nothing was lost.
    pub(crate) fn write_copy(&self, world: &mut World, p: usize) -> Option<()> {
        let doubt = world.doubt.filter(|_| world.row.is_none())?;
        let doubt = self.rules.copies_are_in_doubt.then_some(doubt);
        self.write_new(world, p, true, doubt.filter(|_| self.rules.loss_is_unknown))
    }

    /// A batch that was decided before the loss was put on record; nothing is claimed in it any more.
    pub(crate) fn write_late(&self, world: &mut World, p: usize) -> Option<()> {
        let late = world.workers[usize::from(world.processes[p].worker)].dead
            && world.doubt.is_some()
            && world.row.is_none();
        (late && !self.rules.batches_meet_the_loss).then_some(())?;
        world.row = Some(new_row(world.clock));
        world.processes[p].tracks = true;
        Some(())
    }

    fn write_new(
        &self,
        world: &mut World,
        p: usize,
        heard: bool,
        doubt: Option<Doubt>,
    ) -> Option<()> {
        let process = &world.processes[p];
        let dead = world.workers[usize::from(process.worker)].dead;
        if dead || (process.call.is_some() && doubt.is_none()) {
            return None;
        }
        let worker = process.worker;
        let row = new_row(world.clock);
        world.row = Some(doubt.map_or(row, |doubt| self.suspect(row, doubt)));
        if doubt.is_some() {
            // Never claimed in the batch.
            world.processes[p].tracks = heard;
            return Some(());
        }
        let call = claim(world, worker)?;
        world.processes[p].call = heard.then_some(call);
        world.processes[p].tracks = heard;
        Some(())
    }

    pub(crate) fn settle(&self, world: &mut World, p: usize) -> Option<()> {
        let call = world.processes[p].call?;
        let Phase::Seen(seen) = call.phase else { return None };
        let clock = world.clock;
        world.processes[p].call = None;
        let fenced = self.rules.settling_is_fenced;
        let mine = owned(world, &call).is_some();
        // A row that is lost has nothing to settle.
        let Some(row) = world.row.as_mut() else { return Some(()) };
        if !mine && matches!(seen, Seen::Done | Seen::Found) {
            // Evidence: a success settles the effect, whoever holds it.
            if !matches!(row.status, Status::Done | Status::Rejected) {
                row.status = Status::Done;
            }
            return Some(());
        }
        if !mine && (fenced || matches!(row.status, Status::Done | Status::Rejected)) {
            return Some(());
        }
        let (policy, mut history) = (self.policy(), history(&call.known));
        let sticky = history.was_unknown && self.rules.unknown_sticks;
        history.was_unknown = sticky;
        let next = match seen {
            Seen::Found => after_lookup(&policy, &asked(history), &Finding::Found(Value::Null), 0),
            Seen::NotFound => after_lookup(&policy, &asked(history), &Finding::NotFound, 0),
            Seen::Done => next_step(&policy, &tried(history), &Outcome::Done(Value::Null), 0),
            Seen::NotApplied => next_step(&policy, &tried(history), &Outcome::NotApplied, 0),
            Seen::Unknown if self.rules.unknown_sticks => {
                next_step(&policy, &tried(history), &Outcome::Unknown, 0)
            }
            // Taken for a refusal.
            Seen::Unknown => next_step(&policy, &tried(history), &Outcome::NotApplied, 0),
        };
        let believed = matches!(seen, Seen::Found | Seen::NotFound)
            && matches!(next, Next::Waiting { .. } | Next::Rejected);
        if seen == Seen::Unknown {
            row.unknown_at = Some(call.begun_at);
        }
        row.was_unknown =
            (sticky || (seen == Seen::Unknown && self.rules.unknown_sticks)) && !believed;
        if !matches!(seen, Seen::Found | Seen::NotFound) {
            row.attempts += 1;
        }
        follow(row, &next, clock);
        Some(())
    }

    pub(crate) fn beat(&self, world: &mut World, p: usize) -> Option<()> {
        let process = world.processes[p].clone();
        let clock = world.clock;
        let registered = &mut world.workers[usize::from(process.worker)];
        if !registered.dead {
            if registered.heartbeat == clock && process.lease_until == clock + LEASE {
                return None;
            }
            registered.heartbeat = clock;
            world.processes[p].lease_until = clock + LEASE;
            return Some(());
        }
        // Dead: unsent claims go back under the old fence, answers stay as evidence.
        enter(world, p);
        if let Some(call) = process.call.filter(|call| call.phase == Phase::Claimed) {
            if self.rules.death_drops_claims {
                give_back(world, &call);
                world.processes[p].call = None;
            } else {
                let worker = world.processes[p].worker;
                world.processes[p].call = Some(Call { worker, ..call });
            }
        }
        Some(())
    }

    pub(crate) fn take_over(&self, world: &mut World) -> Option<()> {
        let clock = world.clock;
        let row = world.row.as_mut()?;
        let Status::Claimed { worker, .. } = row.status else { return None };
        let registered = world.workers[usize::from(worker)];
        let late = registered.heartbeat + LEASE < clock;
        let gone = registered.dead || (late && !self.rules.death_is_declared);
        gone.then_some(())?;
        let next = after_death(&self.policy(), &tried(history(&known(row, clock))), 0);
        row.takeovers += 1;
        row.was_unknown = self.rules.unknown_sticks;
        row.unknown_at = Some(clock);
        follow(row, &next, clock);
        Some(())
    }

    /// What is open may have been sent: unknown from the moment when nobody sends any more who does not know.
    fn suspect(&self, row: Row, doubt: Doubt) -> Row {
        let status = match row.status {
            Status::Claimed { .. } | Status::Waiting => Status::Unknown,
            status => status,
        };
        let since = if self.rules.loss_has_an_age { doubt.since } else { doubt.quiet };
        Row {
            status,
            due: row.due.max(doubt.quiet),
            first_sent: row.first_sent.or(Some(since)),
            unknown_at: row.unknown_at.max(Some(doubt.quiet)),
            was_unknown: true,
            suspect: true,
            ..row
        }
    }

    /// The standby takes over, and whoever finds it puts that on record.
    pub(crate) fn fail_over(&self, world: &mut World) -> Option<()> {
        let Standby { row, passed, at } = world.standby.take()?;
        world.left.failovers = world.left.failovers.checked_sub(1)?;
        let wait = if self.rules.loss_waits { LEASE } else { 0 };
        let doubt = Doubt { since: at, quiet: world.clock + wait };
        let open =
            |row: &Row| !matches!(row.status, Status::Done | Status::Held | Status::Rejected);
        world.row = match row {
            Some(row) if open(&row) && self.rules.loss_is_unknown => Some(self.suspect(row, doubt)),
            Some(row) if open(&row) => Some(Row { status: Status::Waiting, ..row }),
            row => row,
        };
        world.passed = passed;
        world.workers.iter_mut().for_each(|worker| worker.dead = true);
        world.doubt = (!passed).then_some(doubt);
        if !passed {
            world.processes.iter_mut().for_each(|process| process.tracks = false);
        }
        Some(())
    }

    pub(crate) fn pass(&self, world: &mut World, p: usize) -> Option<()> {
        let free = world.is_closed() || !self.rules.position_waits;
        (world.processes[p].tracks && !world.passed && free).then_some(())?;
        world.passed = true;
        world.processes.iter_mut().for_each(|process| process.tracks = false);
        Some(())
    }
}

/// A new worker id for a process that has begun, or that was declared dead.
pub(crate) fn enter(world: &mut World, p: usize) {
    world.processes[p].worker = u8::try_from(world.workers.len()).unwrap();
    world.processes[p].lease_until = world.clock + LEASE;
    world.workers.push(Registered { heartbeat: world.clock, dead: false });
}

fn new_row(clock: u8) -> Row {
    Row {
        status: Status::Waiting,
        due: clock,
        first_sent: None,
        unknown_at: None,
        attempts: 0,
        takeovers: 0,
        was_unknown: false,
        asks: false,
        suspect: false,
    }
}

fn claim(world: &mut World, worker: u8) -> Option<Call> {
    let (clock, fence) = (world.clock, world.fence);
    let row = world.row.as_mut()?;
    row.first_sent = row.first_sent.or(Some(clock));
    row.status = Status::Claimed { worker, fence };
    world.fence += 1;
    let known = known(row, clock);
    Some(Call { worker, fence, claimed_at: clock, begun_at: clock, known, phase: Phase::Claimed })
}

pub(crate) fn claim_due(world: &mut World, p: usize) -> Option<()> {
    let row = world.row.filter(|row| matches!(row.status, Status::Waiting | Status::Unknown))?;
    let dead = world.workers[usize::from(world.processes[p].worker)].dead;
    (row.due <= world.clock && world.processes[p].call.is_none() && !dead).then_some(())?;
    let call = claim(world, world.processes[p].worker)?;
    world.processes[p].call = Some(call);
    Some(())
}

pub(crate) fn adopt(world: &mut World, p: usize) -> Option<()> {
    let process = &world.processes[p];
    let row = world.row?;
    let Status::Claimed { worker, fence } = row.status else { return None };
    (worker == process.worker && process.call.is_none()).then_some(())?;
    let claimed_at = world.clock;
    let known = known(&row, claimed_at);
    world.processes[p].call = Some(Call {
        worker,
        fence,
        claimed_at,
        begun_at: claimed_at,
        known,
        phase: Phase::Claimed,
    });
    Some(())
}

/// A claim that was never sent goes back as it was.
pub(crate) fn give_back(world: &mut World, call: &Call) {
    let clock = world.clock;
    if let Some(row) = owned(world, call) {
        row.status = if row.was_unknown { Status::Unknown } else { Status::Waiting };
        row.due = clock;
        if row.attempts == 0 && row.takeovers == 0 && !row.suspect {
            row.first_sent = None;
        }
    }
}

/// The row, if it is still claimed by this worker with this fence.
pub(crate) fn owned<'a>(world: &'a mut World, call: &Call) -> Option<&'a mut Row> {
    let claimed = Status::Claimed { worker: call.worker, fence: call.fence };
    world.row.as_mut().filter(|row| row.status == claimed)
}

pub(crate) fn declare(world: &mut World, id: usize) -> Option<()> {
    let clock = world.clock;
    let registered = world.workers.get_mut(id)?;
    (!registered.dead && registered.heartbeat + LEASE < clock).then_some(())?;
    registered.dead = true;
    world.left.deaths = world.left.deaths.checked_sub(1)?;
    Some(())
}

fn follow(row: &mut Row, next: &Next, clock: u8) {
    let due = |ms: &u64| clock + u8::try_from(ms / TICK_MS).unwrap();
    row.asks = matches!(next, Next::Asking { .. });
    match next {
        Next::Done { .. } => row.status = Status::Done,
        Next::Rejected => row.status = Status::Rejected,
        Next::Held { .. } => row.status = Status::Held,
        Next::Waiting { due_in_ms } => {
            row.status = Status::Waiting;
            row.due = due(due_in_ms);
        }
        Next::Unknown { due_in_ms } | Next::Asking { due_in_ms } => {
            row.status = Status::Unknown;
            row.due = due(due_in_ms);
        }
        Next::Halted { .. } => unreachable!("no step shows our credentials refused"),
    }
}

/// What is on record, as the product reads it from the row at `now`.
fn known(row: &Row, now: u8) -> Known {
    let since = |then: Option<u8>| then.map_or(0, |then| now.saturating_sub(then));
    Known {
        elapsed: since(row.first_sent),
        quiet: since(row.unknown_at),
        attempts: row.attempts,
        takeovers: row.takeovers,
        was_unknown: row.was_unknown,
        asks: row.asks,
        suspect: row.suspect,
    }
}

pub(crate) fn history(known: &Known) -> History {
    History {
        sent: None,
        attempts: known.attempts.into(),
        failures: 0,
        lookups: 0,
        elapsed_ms: u64::from(known.elapsed) * TICK_MS,
        failing_ms: 0,
        quiet_ms: u64::from(known.quiet) * TICK_MS,
        was_unknown: known.was_unknown,
        asks: known.asks,
        takeovers: known.takeovers.into(),
        suspect: known.suspect,
    }
}

fn tried(history: History) -> History {
    History { attempts: history.attempts + 1, ..history }
}

fn asked(history: History) -> History {
    History { lookups: history.lookups + 1, ..history }
}
