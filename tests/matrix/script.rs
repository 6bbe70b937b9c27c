//! How one cell is played: load, the crash, what comes after it, and the invariants.

use std::time::Duration;

use oncely::crash::{Action, Step};
use oncely_rig::provider::{Fault, Rule};
use oncely_tests::ledger::{Ending, Fate};
use oncely_tests::wiring::{announce, usage};
use oncely_tests::world::BOUND;
use oncely_tests::{Event, Wiring, World};

use crate::cell::{Cell, Class};

const PARTITIONS: u32 = 4;
/// A lease and a session after which a death is found soon.
const LEASE_MS: u64 = 1_000;
const SESSION_MS: u64 = 2_000;
/// Invoices before the crash, and after it.
const BEFORE: usize = 12;
const AFTER: usize = 4;
/// What a call takes where the crash has to fall into the middle of one.
const SLOW: Duration = Duration::from_millis(200);

/// What a cell came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Played {
    pub(crate) effects: u64,
    pub(crate) held: i64,
}

/// Plays the cell to its end.
///
/// # Panics
/// When the point was not come to, or an invariant is broken.
pub(crate) async fn play(cell: Cell) -> Played {
    let effect = cell.class.effect();
    let endpoint = effect.endpoint;
    let effect = match cell.point.step {
        // What finds no free slot is claimed when it is due.
        Step::ClaimCommit => effect.with("limits: { concurrency: 3 }"),
        _ => effect,
    };
    let name = format!("cell-{}", cell.to_string().replace('/', "-").to_lowercase());
    let publishes = matches!(cell.point.step, Step::Publish | Step::PublishCommit);
    let announced = publishes.then(announce);
    let effects = [effect, usage()].into_iter().chain(announced);
    let wiring = Wiring::invoices(&name).effects(effects);
    let plan = World::plan(wiring).partitions(PARTITIONS).lease_ms(LEASE_MS);
    let mut world = plan.session_ms(SESSION_MS).start().await;
    if publishes {
        world.make_out(PARTITIONS).await;
    }
    crash(&mut world, cell, endpoint).await;
    let victim = world.crashed(cell.order()).await;
    match cell.action {
        Action::Kill => {
            world.run().await;
        }
        Action::Stop => {
            // Where a predecessor died, it is on record as dead as well.
            let predecessors = matches!(cell.point.step, Step::Death | Step::TakeOver);
            let wanted = 1 + i64::from(predecessors);
            let dead = "SELECT count(*) FROM oncely.worker
                WHERE dead_at IS NOT NULL OR ended_at IS NOT NULL";
            world.until("its death", async || world.count(dead).await >= wanted).await;
            // Beyond the session as well, save where a provider that can only be asked would be written to
            // after "not found" was believed: that is not promised.
            if cell.class != Class::B || cell.point.step != Step::Request {
                tokio::time::sleep(Duration::from_millis(SESSION_MS)).await;
            }
            world.workers[victim].thaw();
        }
    }
    load(&world, 1 + BEFORE, AFTER, Ending::Done).await;
    world.settled().await;
    let held = world.effects_in("held").await;
    assert!(held == 0 || cell.class == Class::C, "{held} are held, and need not be");
    world.check_invariants().await;
    if publishes {
        let versions = (1..=BEFORE + AFTER).map(|number| (World::invoice(number), vec![1]));
        world.check_announced(&world.out(), &versions.collect()).await;
    }
    Played { effects: world.provider.counts().applied, held }
}

/// Brings armed workers to the point.
async fn crash(world: &mut World, cell: Cell, endpoint: &str) {
    // What is in flight when its worker dies can only be held where nobody can be asked.
    let ending = if cell.class == Class::C { Ending::DoneOrHeld } else { Ending::Done };
    match cell.point.step {
        Step::Start => {
            load(world, 1, BEFORE, ending).await;
            world.permit_crash();
            arm(world, cell);
        }
        Step::Death | Step::TakeOver => {
            let first = world.run().await;
            world.provider.hold_answers();
            load(world, 1, BEFORE / 2, ending).await;
            world.provider.wait_held(u64::try_from(BEFORE / 2).unwrap(), BOUND).await.unwrap();
            world.workers[first].kill9().await;
            world.provider.release();
            world.permit_crash();
            arm(world, cell);
            load(world, 1 + BEFORE / 2, BEFORE / 2, ending).await;
        }
        Step::GiveBack | Step::End => {
            world.provider.set_latency(SLOW);
            armed_and_ready(world, cell).await;
            load(world, 1, BEFORE, ending).await;
            world.provider.wait_applied(2, BOUND).await.unwrap();
            world.workers[0].sigterm();
        }
        Step::Revoke => {
            world.provider.set_latency(SLOW);
            armed_and_ready(world, cell).await;
            load(world, 1, BEFORE, ending).await;
            world.spawn(&[]);
        }
        step => {
            match step {
                Step::ClaimCommit => {
                    let busy = Fault::StatusBefore { status: 429, retry_after_s: None };
                    // For so long that sweepers have their turn beside the settlers.
                    world.provider.fail(Rule::times(60, busy).to(endpoint));
                }
                Step::LookUp => {
                    world.provider.fail(Rule::times(6, Fault::CloseAfter).to(endpoint));
                }
                Step::Request => world.provider.set_latency(SLOW),
                _ => {}
            }
            armed_and_ready(world, cell).await;
            load(world, 1, BEFORE, ending).await;
        }
    }
}

fn arm(world: &mut World, cell: Cell) {
    for _ in 0..cell.processes {
        world.spawn_armed(cell.order());
    }
}

async fn armed_and_ready(world: &mut World, cell: Cell) {
    arm(world, cell);
    for number in 0..cell.processes {
        world.wait_ready(number).await;
    }
    world.permit_crash();
}

/// Invoices over all partitions; every third one twice, and the second time elsewhere.
async fn load(world: &World, first: usize, count: usize, ending: Ending) {
    let partitions = i32::try_from(PARTITIONS).unwrap();
    for number in first..first + count {
        let (name, partition) =
            (World::invoice(number), i32::try_from(number).unwrap() % partitions);
        world.pay(&name, partition).await;
        if ending != Ending::Done {
            world.owe("note", &name, ending);
        }
        if number % 3 == 0 {
            let again = (partition + 1) % partitions;
            world.event(&Event::paid(&name, 1), again, Fate::Applied).await;
        }
    }
}
