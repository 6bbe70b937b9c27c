//! The steps: each is one transaction, one message, or one fault.

use oncely_core::effect::lookup::Finding;
use oncely_core::effect::next::{Act, History, Next, act, after_death, after_lookup, next_step};
use oncely_core::effect::outcome::Outcome;
use oncely_core::value::Value;

use crate::effect::{
    Call, Flight, Known, LEASE, Landed, Phase, Process, Protocol, Registered, Row, SETTLE, Seen,
    Status, TICK_MS, WINDOW, World,
};
use crate::normal::normal;

/// A step of process `0` or `1`, of the wire, or of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Tick,
    /// The batch transaction, with the claim in it.
    Write(usize),
    /// The same, and the answer to COMMIT is lost.
    WriteUnheard(usize),
    ClaimDue(usize),
    /// Takes up a claim of its own that it has lost sight of.
    Adopt(usize),
    /// Takes a claim up: looks at its lease, and at what may be done.
    Check(usize),
    Send(usize),
    /// Asks the provider, and is answered.
    Ask(usize),
    Hear(usize),
    /// No answer in time.
    TimeOut(usize),
    Settle(usize),
    Beat(usize),
    /// Declares the other's worker dead, or any that is nobody's.
    Declare(usize),
    TakeOver,
    /// The position moves past the record.
    Pass(usize),
    Land(usize),
    Refuse(usize),
    Lose(usize),
    LoseAnswer(usize),
    Crash(usize),
    Panic(usize),
}

impl Step {
    /// Whether it happens without a fault.
    pub(crate) const fn is_healthy(self) -> bool {
        !matches!(
            self,
            Self::WriteUnheard(_)
                | Self::Refuse(_)
                | Self::Lose(_)
                | Self::LoseAnswer(_)
                | Self::Crash(_)
                | Self::Panic(_)
        )
    }
}

/// All steps that a state may allow.
pub(crate) fn candidates(world: &World) -> Vec<Step> {
    let mut steps = vec![Step::Tick, Step::TakeOver];
    for p in 0..world.processes.len() {
        steps.extend([
            Step::Write(p),
            Step::WriteUnheard(p),
            Step::ClaimDue(p),
            Step::Adopt(p),
            Step::Check(p),
            Step::Send(p),
            Step::Ask(p),
            Step::Hear(p),
            Step::TimeOut(p),
            Step::Settle(p),
            Step::Beat(p),
            Step::Pass(p),
            Step::LoseAnswer(p),
            Step::Crash(p),
            Step::Panic(p),
        ]);
    }
    steps.extend((0..world.workers.len()).map(Step::Declare));
    let flights = 0..world.wire.len();
    steps.extend(flights.flat_map(|f| [Step::Land(f), Step::Refuse(f), Step::Lose(f)]));
    steps
}

impl Protocol {
    /// The state after `step`; `None`: it cannot happen now.
    pub(crate) fn step(&self, before: &World, step: Step) -> Option<World> {
        let mut world = before.clone();
        match step {
            Step::Tick => self.tick(&mut world)?,
            Step::Write(p) => self.write(&mut world, p, true)?,
            Step::WriteUnheard(p) => {
                world.left.lost = world.left.lost.checked_sub(1)?;
                self.write(&mut world, p, false)?;
            }
            Step::ClaimDue(p) => claim_due(&mut world, p)?,
            Step::Adopt(p) => adopt(&mut world, p)?,
            Step::Check(p) => self.check(&mut world, p)?,
            Step::Send(p) => send(&mut world, p)?,
            Step::Ask(p) => ask(&mut world, p)?,
            Step::Hear(p) => hear(&mut world, p)?,
            Step::TimeOut(p) => time_out(&mut world, p)?,
            Step::Settle(p) => self.settle(&mut world, p)?,
            Step::Beat(p) => self.beat(&mut world, p)?,
            Step::Declare(id) => declare(&mut world, id)?,
            Step::TakeOver => self.take_over(&mut world)?,
            Step::Pass(p) => self.pass(&mut world, p)?,
            Step::Land(f) => self.land(&mut world, f)?,
            Step::Refuse(f) => refuse(&mut world, f)?,
            Step::Lose(f) => {
                world.left.lost = world.left.lost.checked_sub(1)?;
                world.wire.get(f).filter(|flight| flight.landed.is_none())?;
                world.wire.remove(f);
            }
            Step::LoseAnswer(p) => {
                world.left.lost = world.left.lost.checked_sub(1)?;
                let (call, flight) = answered(&world, p)?;
                world.wire.remove(flight);
                world.processes[p].call = Some(Call { phase: Phase::Seen(Seen::Unknown), ..call });
            }
            Step::Crash(p) => {
                world.left.crashes = world.left.crashes.checked_sub(1)?;
                world.processes[p] =
                    Process { call: None, tracks: false, ..world.processes[p].clone() };
                enter(&mut world, p);
            }
            Step::Panic(p) => {
                world.left.panics = world.left.panics.checked_sub(1)?;
                let call = world.processes[p].call.filter(|call| {
                    matches!(call.phase, Phase::Checked { .. } | Phase::Sent { .. } | Phase::Asking)
                })?;
                let seen = Call { phase: Phase::Seen(Seen::Unknown), ..call };
                world.processes[p].call = self.rules.started_is_remembered.then_some(seen);
            }
        }
        sweep_wire(&mut world);
        Some(normal(self, world))
    }

    /// Time goes on, but not past what the provider and the world are held to.
    fn tick(&self, world: &mut World) -> Option<()> {
        let due = |at: u8| world.clock + 1 >= at + SETTLE;
        let flying =
            world.wire.iter().any(|flight| flight.landed.is_none() && due(flight.checked_at));
        let frozen = world.processes.iter().filter_map(|process| process.call).any(|call| {
            matches!(call.phase, Phase::Checked { at } if due(at)) && self.rules.freezes_end
        });
        if flying || frozen {
            return None;
        }
        world.clock += 1;
        Some(())
    }

    fn write(&self, world: &mut World, p: usize, heard: bool) -> Option<()> {
        let process = &world.processes[p];
        if world.passed || process.tracks {
            return None;
        }
        let dead = world.workers[usize::from(process.worker)].dead;
        if world.row.is_some() && self.rules.repeats_are_known {
            // A duplicate: it waits for the first copy.
            heard.then_some(())?;
            world.processes[p].tracks = true;
            return Some(());
        }
        if dead || process.call.is_some() {
            return None;
        }
        let worker = process.worker;
        let row = Row {
            status: Status::Waiting,
            due: world.clock,
            first_sent: None,
            unknown_at: None,
            attempts: 0,
            takeovers: 0,
            was_unknown: false,
            asks: false,
        };
        world.row = Some(row);
        let call = claim(world, worker)?;
        world.processes[p].call = heard.then_some(call);
        world.processes[p].tracks = heard;
        Some(())
    }

    /// The call begins: what it is for, and whether the lease still allows it.
    fn check(&self, world: &mut World, p: usize) -> Option<()> {
        let process = &world.processes[p];
        let call = process.call.filter(|call| call.phase == Phase::Claimed)?;
        let good = process.worker == call.worker && world.clock <= process.lease_until;
        if !good && self.rules.lease_is_checked {
            give_back(world, &call);
            world.processes[p].call = None;
            return Some(());
        }
        let mut now = call.known;
        if self.rules.age_is_of_now {
            now.elapsed += world.clock - call.claimed_at;
        }
        let phase = match act(&self.policy(), &history(&now)) {
            Act::Send => Phase::Checked { at: world.clock },
            Act::LookUp => Phase::Asking,
            Act::Hold(_) => {
                if let Some(row) = owned(world, &call) {
                    row.status = Status::Held;
                }
                world.processes[p].call = None;
                return Some(());
            }
        };
        world.processes[p].call = Some(Call { phase, begun_at: world.clock, ..call });
        Some(())
    }

    fn settle(&self, world: &mut World, p: usize) -> Option<()> {
        let call = world.processes[p].call?;
        let Phase::Seen(seen) = call.phase else { return None };
        let clock = world.clock;
        world.processes[p].call = None;
        let fenced = self.rules.settling_is_fenced;
        let mine = owned(world, &call).is_some();
        let row = world.row.as_mut()?;
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

    fn beat(&self, world: &mut World, p: usize) -> Option<()> {
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

    fn take_over(&self, world: &mut World) -> Option<()> {
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

    fn pass(&self, world: &mut World, p: usize) -> Option<()> {
        let free = world.is_closed() || !self.rules.position_waits;
        (world.processes[p].tracks && !world.passed && free).then_some(())?;
        world.passed = true;
        world.processes.iter_mut().for_each(|process| process.tracks = false);
        Some(())
    }

    fn land(&self, world: &mut World, f: usize) -> Option<()> {
        let clock = world.clock;
        let flight = world.wire.get_mut(f).filter(|flight| flight.landed.is_none())?;
        flight.landed = Some(Landed::Applied);
        let known = world.known_since.is_some_and(|since| clock < since + WINDOW);
        if !(self.class.has_keys() && known) {
            world.applied += 1;
            world.known_since = Some(clock);
        }
        world.wire.sort_unstable();
        Some(())
    }
}

/// A new worker id for a process that has begun, or that was declared dead.
fn enter(world: &mut World, p: usize) {
    world.processes[p].worker = u8::try_from(world.workers.len()).unwrap();
    world.processes[p].lease_until = world.clock + LEASE;
    world.workers.push(Registered { heartbeat: world.clock, dead: false });
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

fn claim_due(world: &mut World, p: usize) -> Option<()> {
    let row = world.row.filter(|row| matches!(row.status, Status::Waiting | Status::Unknown))?;
    (row.due <= world.clock && world.processes[p].call.is_none()).then_some(())?;
    let call = claim(world, world.processes[p].worker)?;
    world.processes[p].call = Some(call);
    Some(())
}

fn adopt(world: &mut World, p: usize) -> Option<()> {
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
fn give_back(world: &mut World, call: &Call) {
    let clock = world.clock;
    if let Some(row) = owned(world, call) {
        row.status = if row.was_unknown { Status::Unknown } else { Status::Waiting };
        row.due = clock;
        if row.attempts == 0 && row.takeovers == 0 {
            row.first_sent = None;
        }
    }
}

/// The row, if it is still claimed by this worker with this fence.
fn owned<'a>(world: &'a mut World, call: &Call) -> Option<&'a mut Row> {
    let claimed = Status::Claimed { worker: call.worker, fence: call.fence };
    world.row.as_mut().filter(|row| row.status == claimed)
}

/// The call of `p` and the flight that answers it.
fn answered(world: &World, p: usize) -> Option<(Call, usize)> {
    let call = world.processes[p].call?;
    matches!(call.phase, Phase::Sent { .. }).then_some(())?;
    let mine = |flight: &Flight| {
        (flight.worker, flight.fence) == (call.worker, call.fence) && flight.landed.is_some()
    };
    Some((call, world.wire.iter().position(mine)?))
}

fn send(world: &mut World, p: usize) -> Option<()> {
    let call = world.processes[p].call?;
    let Phase::Checked { at } = call.phase else { return None };
    let flight = Flight { worker: call.worker, fence: call.fence, checked_at: at, landed: None };
    world.wire.push(flight);
    world.wire.sort_unstable();
    world.processes[p].call = Some(Call { phase: Phase::Sent { at: world.clock }, ..call });
    Some(())
}

fn ask(world: &mut World, p: usize) -> Option<()> {
    let call = world.processes[p].call.filter(|call| call.phase == Phase::Asking)?;
    let seen = if world.applied > 0 { Seen::Found } else { Seen::NotFound };
    world.processes[p].call = Some(Call { phase: Phase::Seen(seen), ..call });
    Some(())
}

fn hear(world: &mut World, p: usize) -> Option<()> {
    let (call, flight) = answered(world, p)?;
    let seen = match world.wire.remove(flight).landed? {
        Landed::Applied => Seen::Done,
        Landed::Refused => Seen::NotApplied,
    };
    world.processes[p].call = Some(Call { phase: Phase::Seen(seen), ..call });
    Some(())
}

fn time_out(world: &mut World, p: usize) -> Option<()> {
    let call = world.processes[p].call?;
    let Phase::Sent { at } = call.phase else { return None };
    (world.clock > at).then_some(())?;
    world.processes[p].call = Some(Call { phase: Phase::Seen(Seen::Unknown), ..call });
    Some(())
}

fn declare(world: &mut World, id: usize) -> Option<()> {
    let clock = world.clock;
    let registered = world.workers.get_mut(id)?;
    (!registered.dead && registered.heartbeat + LEASE < clock).then_some(())?;
    registered.dead = true;
    world.left.deaths = world.left.deaths.checked_sub(1)?;
    Some(())
}

fn refuse(world: &mut World, f: usize) -> Option<()> {
    world.left.refused = world.left.refused.checked_sub(1)?;
    let flight = world.wire.get_mut(f).filter(|flight| flight.landed.is_none())?;
    flight.landed = Some(Landed::Refused);
    world.wire.sort_unstable();
    Some(())
}

/// An answer that nobody waits for is nothing.
fn sweep_wire(world: &mut World) {
    let calls: Vec<Call> = world.processes.iter().filter_map(|process| process.call).collect();
    let awaited = |flight: &Flight| {
        calls.iter().any(|call| {
            matches!(call.phase, Phase::Sent { .. })
                && (call.worker, call.fence) == (flight.worker, flight.fence)
        })
    };
    world.wire.retain(|flight| flight.landed.is_none() || awaited(flight));
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
    let since = |then: Option<u8>| then.map_or(0, |then| now - then);
    Known {
        elapsed: since(row.first_sent),
        quiet: since(row.unknown_at),
        attempts: row.attempts,
        takeovers: row.takeovers,
        was_unknown: row.was_unknown,
        asks: row.asks,
    }
}

fn history(known: &Known) -> History {
    History {
        attempts: known.attempts.into(),
        failures: 0,
        lookups: 0,
        elapsed_ms: u64::from(known.elapsed) * TICK_MS,
        failing_ms: 0,
        quiet_ms: u64::from(known.quiet) * TICK_MS,
        was_unknown: known.was_unknown,
        asks: known.asks,
        takeovers: known.takeovers.into(),
    }
}

fn tried(history: History) -> History {
    History { attempts: history.attempts + 1, ..history }
}

fn asked(history: History) -> History {
    History { lookups: history.lookups + 1, ..history }
}
