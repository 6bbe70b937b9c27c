//! Records that come again, and records that come too late.

use oncely_tests::ledger::Fate;
use oncely_tests::wiring::{charge, receipt, usage};
use oncely_tests::{Event, Wiring, World};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k11_republished_records_have_no_second_effect() {
    let wiring = Wiring::invoices("republished").effects([charge(), receipt(), usage()]);
    let mut world = World::plan(wiring).start().await;
    let paid = world.pay_many(1, 20, 2).await;
    // Copies at new offsets before anybody has read the first ones.
    for name in &paid[..10] {
        world.event(&Event::paid(name, 1), 0, Fate::Applied).await;
    }
    world.run().await;
    world.settled().await;
    // Copies afterwards, some of them in the other partition.
    for (number, name) in (0..).zip(&paid) {
        world.event(&Event::paid(name, 1), number % 2, Fate::Applied).await;
        world.event(&Event::paid(name, 1), (number + 1) % 2, Fate::Applied).await;
    }
    world.settled().await;
    let repeats = world.count("SELECT sum(times)::bigint FROM oncely.repeat").await;
    assert_eq!(repeats, 50);
    world.check_invariants().await;
}
