//! The steps: each is one transaction, one message, or one fault.

use oncely_core::effect::next::{Act, act};

use crate::effect::{
    Call, Flight, Landed, Phase, Process, Protocol, SETTLE, Seen, Standby, Status, WINDOW, World,
};
use crate::normal::normal;
use crate::table::{adopt, claim_due, declare, enter, give_back, history, owned};

/// A step of process `0` or `1`, of the wire, or of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Tick,
    /// The batch transaction, with the claim in it.
    Write(usize),
    /// The same, and the answer to COMMIT is lost.
    WriteUnheard(usize),
    /// The same with another copy of the record, after a failover.
    WriteCopy(usize),
    /// The same by a batch that has not met a failover.
    WriteLate(usize),
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
    /// A standby receives nothing from now on.
    FallBehind,
    FailOver,
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
                | Self::FallBehind
                | Self::FailOver
        )
    }
}

/// All steps that a state may allow.
pub(crate) fn candidates(world: &World) -> Vec<Step> {
    let mut steps = vec![Step::Tick, Step::TakeOver, Step::FallBehind, Step::FailOver];
    for p in 0..world.processes.len() {
        steps.extend([
            Step::Write(p),
            Step::WriteUnheard(p),
            Step::WriteCopy(p),
            Step::WriteLate(p),
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
            Step::WriteCopy(p) => self.write_copy(&mut world, p)?,
            Step::WriteLate(p) => self.write_late(&mut world, p)?,
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
            Step::FallBehind => {
                (world.left.failovers > 0 && world.standby.is_none()).then_some(())?;
                let (row, passed, at) = (world.row, world.passed, world.clock);
                world.standby = Some(Standby { row, passed, at });
            }
            Step::FailOver => self.fail_over(&mut world)?,
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
