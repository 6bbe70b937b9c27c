//! Records that come again, that come too late, and that contradict one another.

use oncely_tests::ledger::{Ending, Fate};
use oncely_tests::wiring::{charge, receipt, usage};
use oncely_tests::{Event, Wiring, World};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k11_republished_records_have_no_second_effect() {
    let wiring = Wiring::invoices("republished").effects([charge(), receipt(), usage()]);
    let mut world = World::plan(wiring).start().await;
    let paid = world.pay_many(1, 20, 2).await;
    // Copies at new offsets before anybody has read the first ones.
    for (number, name) in (1..).zip(&paid[..10]) {
        world.event(&Event::paid(name, 1), number % 2, Fate::Applied).await;
    }
    let worker = world.run().await;
    world.settled().await;
    // Copies afterwards: half in the same partition, half in the other.
    for (number, name) in (1..).zip(&paid) {
        world.event(&Event::paid(name, 1), number % 2, Fate::Applied).await;
        world.event(&Event::paid(name, 1), (number + 1) % 2, Fate::Applied).await;
    }
    world.settled().await;
    assert_eq!(world.count("SELECT sum(times)::bigint FROM oncely.repeat").await, 50);
    let worker = &world.workers[worker];
    assert_eq!(worker.metric("oncely_events_total", "outcome=\"applied\"").await, 20.0);
    assert_eq!(worker.metric("oncely_events_total", "outcome=\"duplicate\"").await, 50.0);
    assert_eq!(worker.metric("oncely_events_total", "").await, 70.0);
    assert_eq!(worker.metric("oncely_events_consumed_total", "").await, 70.0);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k11_everything_read_again_from_the_beginning() {
    let wiring = Wiring::invoices("reread").effects([charge(), usage()]);
    let mut world = World::plan(wiring).start().await;
    let worker = world.run().await;
    world.pay_many(1, 30, 2).await;
    world.settled().await;
    world.workers[worker].sigterm();
    assert_eq!(world.workers[worker].wait_exit(oncely_tests::world::BOUND).await, Some(0));
    let calls = world.provider.counts().received;
    world.kafka().delete_group(world.group()).await.unwrap();
    // A look of the watch that began before would hold the old offsets against the new positions.
    world.looked().await;
    world
        .sql(
            "UPDATE oncely.progress SET position = 0, epoch = epoch + 1, witness_offset = NULL,
                    witness_timestamp = NULL, witness_hash = NULL",
        )
        .await;
    let worker = world.run().await;
    world.settled().await;
    assert_eq!(world.provider.counts().received, calls, "a record read again calls nobody");
    let worker = &world.workers[worker];
    assert_eq!(worker.metric("oncely_events_total", "outcome=\"duplicate\"").await, 30.0);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b22_copies_read_by_two_processes_at_once() {
    let wiring = Wiring::invoices("copies").effects([charge(), receipt(), usage()]);
    let mut world = World::plan(wiring).start().await;
    world.provider.set_latency(std::time::Duration::from_millis(30));
    for number in 1..=40 {
        let name = World::invoice(number);
        world.owe_all(&name);
        world.event(&Event::paid(&name, 1), 0, Fate::Applied).await;
        world.event(&Event::paid(&name, 1), 1, Fate::Applied).await;
    }
    world.spawn(&[]);
    world.spawn(&[]);
    world.settled().await;
    assert_eq!(world.provider.counts().received, 80, "one call for each effect");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b45_t6_an_older_event_changes_nothing() {
    let wiring = Wiring::invoices("stale").effects([charge(), usage()]);
    let mut world = World::plan(wiring).start().await;
    world.run().await;
    for number in 1..=10 {
        let name = World::invoice(number);
        let (paid, past_due) = (Event::paid(&name, 7), Event::past_due(&name, 3));
        world.owe("charge", &name, Ending::Done);
        world.owe("usage", &paid.id, Ending::Done);
        world.owe("usage", &past_due.id, Ending::Done);
        world.event(&paid, 0, Fate::Applied).await;
        world.event(&past_due, 0, Fate::Stale).await;
    }
    // Newer and older race over two partitions: whoever comes first, the newer one wins.
    for number in 11..=30 {
        let name = World::invoice(number);
        let (paid, past_due) = (Event::paid(&name, 7), Event::past_due(&name, 3));
        world.owe("charge", &name, Ending::Done);
        world.owe("usage", &paid.id, Ending::Done);
        world.owe("usage", &past_due.id, Ending::Done);
        world.event(&past_due, 0, Fate::AppliedOrStale).await;
        world.event(&paid, 1, Fate::Applied).await;
    }
    world.settled().await;
    let paid = world.count("SELECT count(*) FROM oncely.entity WHERE state = 'paid'").await;
    assert_eq!(paid, 30, "every invoice stays paid");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k17_r25_a_known_id_with_other_content_is_set_aside() {
    let wiring = Wiring::invoices("conflict").effects([charge(), usage()]);
    let mut world = World::plan(wiring).start().await;
    world.run().await;
    let names = world.pay_many(1, 5, 1).await;
    for name in &names {
        let other = Event::paid(name, 1).amount(99_999);
        world.event(&other, 0, Fate::Parked("conflict")).await;
        // The same version from another event, and a transition that the table does not have.
        let mut same_version = Event::past_due(name, 1);
        same_version.id += "-b";
        world.event(&same_version, 0, Fate::Parked("version_conflict")).await;
        let late = Event::past_due(name, 5);
        world.event(&late, 0, Fate::Parked("invalid_transition")).await;
        // Other tenants may use the same id.
        let foreign = Event::paid(name, 1).account("acct_8");
        assert_eq!(foreign.id, Event::paid(name, 1).id);
    }
    // Not wanted at all.
    let created = Event::new("invoice.created", &World::invoice(77), 1);
    world.event(&created, 0, Fate::Ignored).await;
    world.settled().await;
    let said = world.oncely(&["quarantine", "list"]).await;
    assert!(said.ok, "{said:?}");
    assert_eq!(
        world.count("SELECT count(*) FROM oncely.parked WHERE kind = 'quarantine'").await,
        15
    );
    world.check_invariants().await;
}
