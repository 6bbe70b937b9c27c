//! One form for all states that differ in nothing that matters: in the time of day, in how long ago something
//! is that is long enough ago, in the numbers that workers and fences happen to have, and in which of the two
//! processes is called the first.

use crate::effect::{
    Call, Class, LEASE, NOW, Phase, Process, Protocol, Row, SETTLE, Status, WINDOW, World,
};

pub(crate) fn normal(protocol: &Protocol, mut world: World) -> World {
    from_now(protocol.class, &mut world);
    let mut swapped = world.clone();
    swapped.processes.swap(0, 1);
    renumber(&mut world);
    renumber(&mut swapped);
    world.min(swapped)
}

/// Times from now; what is older than any rule asks about is just as old as that.
fn from_now(class: Class, world: &mut World) {
    let clock = world.clock;
    let at = |time: u8, kept: u8| time.max(clock - kept) + NOW - clock;
    world.clock = NOW;
    for registered in &mut world.workers {
        registered.heartbeat = at(registered.heartbeat, LEASE + 1);
    }
    let keys = class.has_keys();
    let rows =
        world.row.iter_mut().chain(world.standby.iter_mut().filter_map(|one| one.row.as_mut()));
    for row in rows {
        let Row { due, first_sent, unknown_at, attempts, .. } = row;
        *due = at(*due, 0);
        *first_sent = first_sent.filter(|_| keys).map(|time| at(time, WINDOW));
        *unknown_at = unknown_at.filter(|_| class.is_asked()).map(|time| at(time, SETTLE));
        *attempts = (*attempts).min(1);
    }
    if let Some(standby) = &mut world.standby {
        standby.at = at(standby.at, WINDOW);
    }
    // Once the row is there, it says itself what is in doubt.
    world.doubt = world.doubt.filter(|_| world.row.is_none());
    if let Some(doubt) = &mut world.doubt {
        doubt.since = at(doubt.since, WINDOW);
        doubt.quiet = at(doubt.quiet, SETTLE);
    }
    let known = world.known_since.filter(|since| keys && clock < since + WINDOW);
    world.known_since = known.map(|since| at(since, WINDOW));
    world.applied = world.applied.min(2);
    for flight in &mut world.wire {
        flight.checked_at = at(flight.checked_at, SETTLE);
    }
    for process in &mut world.processes {
        let Process { lease_until, call, .. } = process;
        *lease_until = at(*lease_until, 1);
        let Some(Call { claimed_at, begun_at, known, phase, .. }) = call else { continue };
        *claimed_at = at(*claimed_at, if keys { WINDOW } else { SETTLE });
        *begun_at = at(*begun_at, SETTLE);
        known.elapsed = if keys { known.elapsed.min(WINDOW) } else { 0 };
        known.quiet = known.quiet.min(SETTLE);
        known.attempts = known.attempts.min(1);
        match phase {
            Phase::Checked { at: then } => *then = at(*then, SETTLE),
            Phase::Sent { at: then } => *then = at(*then, 1),
            Phase::Claimed | Phase::Asking | Phase::Seen(_) => {}
        }
    }
}

/// Workers and fences by the order in which they are met; rows of workers that nothing names are gone.
fn renumber(world: &mut World) {
    let mut workers: Vec<u8> = world.processes.iter().map(|process| process.worker).collect();
    let mut fences: Vec<u8> = Vec::new();
    let mut meet = |worker: u8, fence: u8| {
        if !workers.contains(&worker) {
            workers.push(worker);
        }
        if !fences.contains(&fence) {
            fences.push(fence);
        }
    };
    if let Some(Row { status: Status::Claimed { worker, fence }, .. }) = world.row {
        meet(worker, fence);
    }
    let standby = world.standby.and_then(|standby| standby.row);
    if let Some(Row { status: Status::Claimed { worker, fence }, .. }) = standby {
        meet(worker, fence);
    }
    let calls = world.processes.iter().filter_map(|process| process.call);
    calls.for_each(|call| meet(call.worker, call.fence));
    world.wire.iter().for_each(|flight| meet(flight.worker, flight.fence));

    world.workers = workers.iter().map(|old| world.workers[usize::from(*old)]).collect();
    fences.sort_unstable();
    world.fence = u8::try_from(fences.len()).unwrap();
    let worker = |old: u8| place(&workers, old);
    let fence = |old: u8| place(&fences, old);
    if let Some(Row { status: Status::Claimed { worker: of, fence: by }, .. }) = &mut world.row {
        (*of, *by) = (worker(*of), fence(*by));
    }
    let standby = world.standby.as_mut().and_then(|standby| standby.row.as_mut());
    if let Some(Row { status: Status::Claimed { worker: of, fence: by }, .. }) = standby {
        (*of, *by) = (worker(*of), fence(*by));
    }
    for process in &mut world.processes {
        process.worker = worker(process.worker);
        if let Some(call) = &mut process.call {
            (call.worker, call.fence) = (worker(call.worker), fence(call.fence));
        }
    }
    for flight in &mut world.wire {
        (flight.worker, flight.fence) = (worker(flight.worker), fence(flight.fence));
    }
    world.wire.sort_unstable();
}

/// The new number of an old one that was met.
fn place(met: &[u8], old: u8) -> u8 {
    let place = met.iter().position(|one| *one == old).expect("all were met");
    u8::try_from(place).unwrap()
}
