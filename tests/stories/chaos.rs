//! Everything at once: kills, freezes, cuts and a provider that misbehaves, in an order that a seed
//! gives. Another seed can be given by `ONCELY_STORY_SEED`; the one in use is printed by a failure.

use std::time::Duration;

use oncely_rig::provider::{Fault, FaultRates};
use oncely_rig::proxy::Mode;
use oncely_tests::dice::Dice;
use oncely_tests::ledger::{Ending, Fate};
use oncely_tests::wiring::{charge, note, receipt, usage};
use oncely_tests::{Event, Wiring, World};

/// Rounds of trouble.
const ROUNDS: usize = 8;
/// Invoices of one round.
const INVOICES: usize = 25;

async fn trouble(world: &mut World, dice: &mut Dice) {
    let victim = world.workers.len() - 1 - usize::try_from(dice.roll(2)).unwrap();
    match dice.roll(7) {
        0 | 1 => {
            world.workers[victim].kill9().await;
            world.spawn(&[]);
        }
        6 => {
            world.workers[victim].sigterm();
            world.spawn(&[]);
        }
        2 => {
            world.workers[victim].freeze();
            tokio::time::sleep(Duration::from_millis(600 + dice.roll(1_500))).await;
            world.workers[victim].thaw();
        }
        3 => world.database_proxy.cut_all(),
        4 => world.database_proxy.set(Mode::lose_commit()),
        _ => {
            world.database_proxy.set(Mode::StallBoth);
            tokio::time::sleep(Duration::from_millis(300 + dice.roll(1_500))).await;
            world.database_proxy.set(Mode::Pass);
        }
    }
    if dice.roll(3) == 0 {
        world.provider_proxy.cut_all();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_at_once() {
    at_once("chaos", "classic").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k20_everything_at_once_as_the_broker_says() {
    at_once("chaos848", "consumer").await;
}

async fn at_once(name: &str, protocol: &'static str) {
    let seed = std::env::var("ONCELY_STORY_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(20_261_129);
    println!("seed {seed}");
    let mut dice = Dice::new(seed);
    let after = receipt().with("after: [charge]");
    let mut wiring = Wiring::invoices(name).effects([charge(), after, note(), usage()]);
    wiring.protocol = protocol;
    let mut world = World::plan(wiring).partitions(4).lease_ms(900).start().await;
    world.provider.set_latency(Duration::from_millis(15));
    world.provider.set_rates(FaultRates {
        seed,
        rates: vec![
            (0.04, Fault::CloseAfter),
            (0.03, Fault::StatusAfter { status: 502 }),
            (0.03, Fault::status(503)),
            (0.02, Fault::ResetBefore),
            (0.03, Fault::DelayMs(400)),
        ],
        attempts_max: 3,
    });
    world.spawn(&[]);
    world.spawn(&[]);
    for round in 0..ROUNDS {
        let first = 1 + round * INVOICES;
        for number in first..first + INVOICES {
            let name = World::invoice(number);
            world.owe("charge", &name, Ending::Done);
            world.owe("receipt", &name, Ending::Done);
            world.owe("note", &name, Ending::DoneOrHeld);
            let (paid, older) = (Event::paid(&name, 5), Event::past_due(&name, 2));
            world.owe("usage", &paid.id, Ending::Done);
            let partition = i32::try_from(number).unwrap() % 4;
            world.event(&paid, partition, Fate::Applied).await;
            if dice.roll(3) == 0 {
                let elsewhere = i32::try_from(dice.roll(4)).unwrap();
                world.event(&paid, elsewhere, Fate::Applied).await;
            }
            if dice.roll(10) == 0 {
                world.owe("usage", &older.id, Ending::Done);
                world.event(&older, partition, Fate::Stale).await;
            }
        }
        trouble(&mut world, &mut dice).await;
    }
    world.provider.heal();
    world.database_proxy.set(Mode::Pass);
    world.settled().await;
    world.check_invariants().await;
}
