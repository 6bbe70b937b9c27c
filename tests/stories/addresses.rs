//! A provider that has another address than when requests were stored.

use oncely_rig::proxy::{Direction, Mode, Proxy};
use oncely_tests::ledger::Ending;
use oncely_tests::wiring::{charge, hook, settlement};
use oncely_tests::world::BOUND;
use oncely_tests::{Wiring, World};

/// The provider has another address from now on, and the file names it; gives the old and the new one.
async fn moves(world: &mut World) -> (String, String) {
    let new = Proxy::start(world.provider.http_addr().to_string()).await.unwrap();
    let old = std::mem::replace(&mut world.provider_proxy, new);
    world.write_wiring();
    let name = |proxy: &Proxy| format!("http://{}", proxy.addr());
    (name(&old), name(&world.provider_proxy))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_corrected_address_lets_go_what_waited_for_the_wrong_one() {
    let wiring = Wiring::invoices("corrected").effects([charge(), hook()]);
    let mut world = World::plan(wiring).start().await;
    world.provider_proxy.listener_off().await;
    let first = world.run().await;
    world.pay_many(1, 20, 2).await;
    let tried = "SELECT count(*) FROM oncely.effect WHERE attempts > 0 AND NOT was_unknown";
    world.until("tries", async || world.count(tried).await > 4).await;
    world.workers[first].sigterm();
    assert_eq!(world.workers[first].wait_exit(BOUND).await, Some(0));
    assert_eq!(world.provider.counts().received, 0);
    let (old, new) = moves(&mut world).await;
    let second = world.run().await;
    world.pay_many(21, 10, 2).await;
    world.settled().await;
    assert_eq!(world.effects_in("done").await, 60);
    let log = world.workers[second].log();
    assert!(log.contains("requests that were made for another host"), "{log}");
    assert!(!log.contains("effect halted") && !log.contains("circuit opened"), "{log}");
    let at = |url: &str| {
        format!(
            "SELECT count(*) FROM oncely.effect WHERE encode(request, 'escape') LIKE '%{url}/%'"
        )
    };
    assert_eq!(world.count(&at(&old)).await, 0);
    assert_eq!(world.count(&at(&new)).await, 60, "what is on record is what was sent");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_have_been_applied_at_an_old_address_is_found_or_held_and_stops_nobody() {
    let wiring = Wiring::invoices("moved").effects([settlement(), charge()]);
    let mut world = World::plan(wiring).lease_ms(900).start().await;
    let first = world.run().await;
    world.provider.hold_answers();
    let names = world.pay_many(1, 4, 2).await;
    world.provider.wait_held(8, BOUND).await.unwrap();
    world.workers[first].kill9().await;
    world.provider.release();
    let (old, new) = moves(&mut world).await;
    let second = world.run().await;
    for name in &names {
        world.owe("charge", name, Ending::DoneOrHeld);
    }
    world.until("a word on each", async || world.effects_in("held").await == 4).await;
    let notes = format!(
        "SELECT count(*) FROM oncely.effect WHERE status = 'held' AND name = 'charge'
         AND note LIKE '%{old}%' AND note LIKE '%{new}%'"
    );
    assert_eq!(world.count(&notes).await, 4, "both addresses are named");
    world.pay_many(5, 6, 2).await;
    world.settled().await;
    assert_eq!(world.effects_in("done").await, 4 + 12, "asked for and found, or of later events");
    let log = world.workers[second].log();
    assert!(!log.contains("effect halted") && !log.contains("circuit opened"), "{log}");
    // A person says that it has not happened: it goes to the new address, under its old key.
    let key = world.key_of("charge", &names[0]).await;
    world.overrides(&["effects", "resolve", &key, "--as", "retry"]).await;
    world.settled().await;
    assert_eq!(world.status_of("charge", &names[0]).await.as_deref(), Some("done"));
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_found_at_a_new_address_says_nothing_of_the_old_one() {
    let wiring = Wiring::invoices("elsewhere").effects([settlement()]);
    let mut world = World::plan(wiring).lease_ms(900).start().await;
    let first = world.run().await;
    world.provider_proxy.set(Mode::Stall(Direction::ToServer));
    let names = world.pay_many(1, 3, 2).await;
    world.until("claims", async || world.effects_in("claimed").await == 3).await;
    world.workers[first].kill9().await;
    moves(&mut world).await;
    world.run().await;
    for name in &names {
        world.owe("settle", name, Ending::DoneOrHeld);
    }
    world.until("a word on each", async || world.effects_in("held").await == 3).await;
    assert_eq!(world.provider.counts().received, 0, "sent to no other");
    world.settled().await;
    world.check_invariants().await;
}
