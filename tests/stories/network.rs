//! A network that cuts, holds back and delivers late, and keys that a provider forgets.

use oncely_rig::provider::{Fault, Rule};
use oncely_rig::proxy::{Direction, Mode, Traffic};
use oncely_tests::ledger::Ending;
use oncely_tests::wiring::{charge, hook, note, receipt};
use oncely_tests::world::BOUND;
use oncely_tests::{Wiring, World};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w4_requests_cut_after_some_bytes() {
    let wiring = Wiring::invoices("cuts").effects([charge(), receipt(), note()]);
    let mut world = World::plan(wiring).start().await;
    world.run().await;
    let mut next = 1;
    for (direction, bytes) in [
        (Direction::ToServer, 0),
        (Direction::ToServer, 40),
        (Direction::ToServer, 200),
        (Direction::ToClient, 0),
        (Direction::ToClient, 20),
        (Direction::ToClient, 90),
    ] {
        world.provider_proxy.cut_all();
        let cut = world.provider_proxy.traffic().cut;
        world.provider_proxy.set(Mode::CutAfter { direction, bytes });
        for name in world.pay_many(next, 4, 2).await {
            world.owe("note", &name, Ending::DoneOrHeld);
        }
        next += 4;
        world.provider_proxy.wait_cut(cut + 4, BOUND).await.unwrap();
        world.provider_proxy.set(Mode::Pass);
    }
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w3_r14_a_dead_workers_request_arrives_after_its_takeover() {
    let wiring = Wiring::invoices("late").effects([charge(), note()]);
    let mut world = World::plan(wiring).lease_ms(900).start().await;
    let first = world.run().await;
    world.provider_proxy.set(Mode::Stall(Direction::ToServer));
    for name in world.pay_many(1, 5, 1).await {
        world.owe("note", &name, Ending::Held);
    }
    world.until("claims", async || world.effects_in("claimed").await == 10).await;
    // A claim is no request yet.
    let begun = |traffic: &Traffic| traffic.begun >= 10;
    world.provider_proxy.wait_for("ten requests on their way", BOUND, begun).await.unwrap();
    world.workers[first].kill9().await;
    world.run().await;
    let again = "SELECT count(*) FROM oncely.effect WHERE status = 'claimed' AND takeovers = 1";
    world.until_count("charges claimed again", again, 5).await;
    world.until("notes held", async || world.effects_in("held").await == 5).await;
    world.provider_proxy.set(Mode::Pass);
    // What the dead one wrote lay in the network: notes arrive late, once each; charges arrive twice
    // in the same moment, under the same key.
    world.provider.wait_received(15, BOUND).await.unwrap();
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p11_a_key_that_the_provider_has_forgotten_is_not_used_again() {
    let wiring = Wiring::invoices("window").effects([hook()]);
    let mut world = World::plan(wiring).lease_ms(900).start().await;
    let first = world.run().await;
    world.provider.fail(Rule::times(4, Fault::HangAfter).to("/keyed/hooks"));
    for name in world.pay_many(1, 4, 2).await {
        world.owe("hook", &name, Ending::Held);
    }
    world.provider.wait_held(4, BOUND).await.unwrap();
    world.workers[first].kill9().await;
    world.provider.heal();
    // A day later, the provider does not remember.
    world.sql("UPDATE oncely.effect SET first_sent_at = first_sent_at - interval '25 hours'").await;
    world.provider.forget_keys();
    world.run().await;
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r4_thrown_out_of_the_group_while_its_lease_holds() {
    let wiring = Wiring::invoices("zombie").effects([charge(), note()]);
    let mut world = World::plan(wiring).lease_ms(20_000).session_ms(2_000).start().await;
    world.run().await;
    world.provider.hold_answers();
    world.pay_many(1, 6, 2).await;
    world.provider.wait_held(12, BOUND).await.unwrap();
    // Silent for longer than a session, and not as long as a lease.
    world.workers[0].freeze();
    world.run().await;
    // The other one has all partitions, and reads what it must not do.
    world.pay_many(7, 6, 2).await;
    world.provider.wait_held(24, BOUND).await.unwrap();
    world.workers[0].thaw();
    world.provider.release();
    world.settled().await;
    assert_eq!(world.provider.counts().received, 24, "nobody was called twice");
    assert_eq!(
        world.count("SELECT count(*) FROM oncely.worker WHERE dead_at IS NOT NULL").await,
        0
    );
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k1_k20_frozen_for_longer_than_the_broker_waits_for_a_member() {
    let mut wiring = Wiring::invoices("silent-848").effects([charge(), note()]);
    wiring.protocol = "consumer";
    let mut world = World::plan(wiring).lease_ms(20_000).start().await;
    world.run().await;
    world.pay_many(1, 6, 2).await;
    world.settled().await;
    world.workers[0].freeze();
    world.pay_many(7, 6, 2).await;
    world.run().await;
    world.until("the other one to have all", async || world.effects_in("done").await == 24).await;
    world.workers[0].thaw();
    world.pay_many(13, 6, 2).await;
    world.until("all", async || world.effects_in("done").await == 36).await;
    // It goes on, or it ends and says so; what it never does is to stay without a word.
    if !world.workers[0].runs() {
        let code = world.workers[0].wait_exit(BOUND).await;
        assert!(code.is_some_and(|code| code != 0), "{code:?}");
        assert!(world.workers[0].log().contains("kafka client failed for good"));
    }
    world.settled().await;
    assert_eq!(world.provider.counts().received, 36, "nobody was called twice");
    world.check_invariants().await;
}
