//! What comes after what: effects of one event, and versions of one entity.

use std::time::Duration;

use oncely_rig::provider::{Fault, Rule};
use oncely_tests::ledger::{Ending, Fate};
use oncely_tests::wiring::{charge, hook, note, receipt};
use oncely_tests::world::BOUND;
use oncely_tests::{Event, Wiring, World};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_predecessors_that_settle_at_once_wake_their_successor() {
    let wiring = Wiring::invoices("both").effects([
        charge(),
        hook(),
        receipt().with("after: [charge, hook]"),
    ]);
    let mut world = World::plan(wiring).start().await;
    world.run().await;
    world.run().await;
    let mut next = 1;
    for _ in 0..4 {
        // Both are answered in the same moment, for ten invoices at once.
        let done = world.provider.counts().applied;
        world.provider.hold_answers();
        world.pay_many(next, 10, 2).await;
        next += 10;
        world.provider.wait_held(20, BOUND).await.unwrap();
        world.provider.release();
        world.provider.wait_applied(done + 30, BOUND).await.unwrap();
    }
    world.settled().await;
    let log = world.provider.read_log().unwrap();
    for number in 1..next {
        let name = World::invoice(number);
        let key = world.key_of("receipt", &name).await;
        let first = log.calls().find(|call| call.key == Some(&key)).unwrap().place;
        for effect in ["charge", "hook"] {
            let before = world.key_of(effect, &name).await;
            let applied = log.calls().find(|call| call.key == Some(&before)).unwrap().place;
            assert!(applied < first, "the receipt of {name} waits for its {effect}");
        }
    }
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn effects_of_one_entity_keep_the_order_of_its_versions() {
    let wiring = Wiring::invoices("order").effects([hook()]);
    let mut world = World::plan(wiring).partitions(1).start().await;
    // The first version of every invoice is refused for a while; the second must not overtake it.
    world.provider.fail(Rule::times(12, Fault::status(503)).to("/keyed/hooks"));
    world.run().await;
    for number in 1..=6 {
        let name = World::invoice(number);
        for event in [Event::past_due(&name, 1), Event::paid(&name, 2)] {
            world.owe("hook", &event.id, Ending::Done);
            world.event(&event, 0, Fate::Applied).await;
        }
    }
    world.settled().await;
    let order: Vec<String> = {
        let log = world.provider.read_log().unwrap();
        log.keys_in_order("/keyed/hooks").into_iter().map(str::to_owned).collect()
    };
    for number in 1..=6 {
        let name = World::invoice(number);
        let first = world.key_of("hook", &Event::past_due(&name, 1).id).await;
        let second = world.key_of("hook", &Event::paid(&name, 2).id).await;
        let at = |key: &String| order.iter().position(|other| other == key);
        assert!(at(&first) < at(&second), "versions of {name} are in order");
    }
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_effect_holds_back_what_follows_it_and_nothing_else() {
    let wiring =
        Wiring::invoices("held").effects([note(), receipt().with("after: [note]"), charge()]);
    let mut world = World::plan(wiring).start().await;
    world.run().await;
    // Applied, and the answer is lost: nobody may repeat it.
    world.provider.fail(Rule::times(3, Fault::CloseAfter).to("/plain/notes"));
    let names = world.pay_many(1, 3, 1).await;
    world.until("three held", async || world.effects_in("held").await == 3).await;
    let others = world.pay_many(4, 5, 1).await;
    // A held effect lets its offset go: all of it settles.
    world.settled().await;
    world.looked().await;
    for name in &names {
        assert_eq!(world.status_of("receipt", name).await.as_deref(), Some("waiting"));
        assert_eq!(world.status_of("charge", name).await.as_deref(), Some("done"));
    }
    for name in &others {
        assert_eq!(world.status_of("receipt", name).await.as_deref(), Some("done"));
    }
    for (name, word, note, receipt) in [
        (&names[0], "done", Ending::Assumed, Ending::Done),
        (&names[1], "skipped", Ending::Unwanted, Ending::Skipped),
    ] {
        let key = world.key_of("note", name).await;
        world.overrides(&["effects", "resolve", &key, "--as", word]).await;
        world.owe("note", name, note);
        world.owe("receipt", name, receipt);
    }
    world.owe("note", &names[2], Ending::Held);
    world.owe("receipt", &names[2], Ending::Blocked);
    world
        .until("what followed to go on", async || {
            world.status_of("receipt", &names[0]).await.as_deref() == Some("done")
                && world.status_of("receipt", &names[1]).await.as_deref() == Some("skipped")
        })
        .await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_to_p10_a_provider_that_misbehaves_is_paid_once() {
    let wiring = Wiring::invoices("faults").effects([charge(), receipt().with("after: [charge]")]);
    let mut world = World::plan(wiring).start().await;
    world.run().await;
    let faults = [
        Fault::CloseBefore,
        Fault::CloseAfter,
        Fault::ResetBefore,
        Fault::ResetAfter,
        Fault::HalfBody,
        Fault::GarbledBody,
        Fault::StatusAfter { status: 502 },
        // Without a time to come back it would be a used-up quota, which halts.
        Fault::StatusBefore { status: 429, retry_after_s: Some(0) },
        Fault::status(503),
        Fault::DelayMs(300),
    ];
    for fault in faults {
        world.provider.fail(Rule::times(2, fault.clone()).to("/v1/charges"));
        world.provider.fail(Rule::times(1, fault).to("/emails"));
    }
    world.pay_many(1, 25, 2).await;
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p5_what_the_provider_rejects_becomes_a_dead_letter() {
    let wiring =
        Wiring::invoices("rejected").effects([charge(), receipt().with("after: [charge]")]);
    let mut world = World::plan(wiring).start().await;
    world.run().await;
    world.provider.fail(Rule::times(2, Fault::status(422)).to("/v1/charges"));
    let names = world.pay_many(1, 2, 1).await;
    for name in &names {
        world.owe("charge", name, Ending::Rejected);
        world.owe("receipt", name, Ending::Skipped);
    }
    world.until("two rejected", async || world.effects_in("rejected").await == 2).await;
    world.pay_many(3, 5, 2).await;
    world.settled().await;
    let said = world.oncely(&["dlq", "list"]).await;
    assert!(said.ok, "{said:?}");
    assert_eq!(world.count("SELECT count(*) FROM oncely.parked WHERE effect IS NOT NULL").await, 2);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p15_a_provider_that_is_off_loses_nothing() {
    let wiring = Wiring::invoices("off").effects([charge(), note()]);
    let mut world = World::plan(wiring).start().await;
    world.run().await;
    world.provider.listener_off().await;
    world.provider_proxy.listener_off().await;
    world.pay_many(1, 10, 2).await;
    world
        .until("attempts at a provider that is off", async || {
            world.count("SELECT count(*) FROM oncely.effect WHERE attempts >= 2").await == 20
        })
        .await;
    // A refused connection is certain: not even a note is held.
    assert_eq!(world.effects_in("held").await, 0);
    assert_eq!(world.committed(0).await.unwrap_or(0), 0, "offsets wait for their effects");
    world.provider.listener_on().await.unwrap();
    world.provider_proxy.listener_on().await.unwrap();
    world.settled().await;
    world.check_invariants().await;
}

/// Whether a person is told why an effect waits whose time has come.
async fn says_why(world: &World, why: &str) -> bool {
    let listed = world.oncely(&["effects", "list", "--status", "waiting"]).await.json;
    let effects = listed["effects"].as_array().unwrap();
    effects
        .iter()
        .any(|one| one["waits_because"].as_str().is_some_and(|said| said.starts_with(why)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p15_r31_an_outage_is_no_failure_of_each_effect_and_comes_back_gently() {
    // Three attempts would be over in less than a second.
    let effects = [charge(), note()].map(|mut effect| {
        effect.replace("attempts: 20", "attempts: 3");
        // The first that is held must not be over before the other one comes.
        effect.replace("total: 5s", "total: 60s");
        // All fail at once, so that a slow machine tries none a third time before so many have failed.
        effect.with("limits: { concurrency: 60 }")
    });
    let wiring = Wiring::invoices("outage").effects(effects);
    let mut world = World::plan(wiring).start().await;
    let worker = world.run().await;
    world.provider_proxy.listener_off().await;
    world.pay_many(1, 60, 2).await;
    let open = "oncely_effect_circuit_open";
    world
        .until("both circuits open", async || world.workers[worker].metric(open, "").await == 2.0)
        .await;
    world.until("a reason", async || says_why(&world, "its circuit is open").await).await;
    let tries = "SELECT sum(attempts)::bigint FROM oncely.effect";
    let before = world.count(tries).await;
    world.until("tries", async || world.count(tries).await >= before + 4).await;
    world.provider.hold_answers();
    world.provider_proxy.listener_on().await.unwrap();
    // Of all that waits, one call of each effect meets the provider first.
    world.provider.wait_held(2, BOUND).await.unwrap();
    assert_eq!(world.effects_in("claimed").await, 2);
    world.provider.release();
    world.settled().await;
    assert_eq!(world.effects_in("done").await, 120, "nobody used up his attempts");
    world.until("both closed", async || world.workers[worker].metric(open, "").await == 0.0).await;
    world.until_count("nothing of it", "SELECT count(*) FROM oncely.circuit", 0).await;
    let log = world.workers[worker].log();
    assert_eq!(log.matches("circuit opened").count(), 2, "said once for each effect");
    assert_eq!(log.matches("circuit closed").count(), 2);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r31_refused_credentials_stop_the_lane_and_reject_nothing() {
    let wiring = Wiring::invoices("halted").effects([charge(), hook()]);
    let mut world = World::plan(wiring).start().await;
    let first = world.run().await;
    world.provider.fail(Rule::always(Fault::status(401)).to("/v1/charges"));
    world.pay_many(1, 10, 2).await;
    world
        .until("the other lane to be through", async || {
            world.count("SELECT count(*) FROM oncely.effect WHERE status = 'done'").await == 10
        })
        .await;
    let refused = world.provider.read_log().unwrap().calls_at("/v1/charges");
    assert!(refused <= 20, "a halted lane sends nothing more, not {refused}");
    assert_eq!(world.count("SELECT count(*) FROM oncely.parked").await, 0);
    world.provider.heal();
    // Mended settings come with a restart.
    world.workers[first].sigterm();
    assert_eq!(world.workers[first].wait_exit(BOUND).await, Some(0));
    world.run().await;
    let (due, bound) = (
        "UPDATE oncely.effect SET due_at = now() WHERE status = 'waiting'",
        Duration::from_secs(5),
    );
    world.sql(due).await;
    world
        .until_within("the lane to be through", bound, async || {
            world.effects_in("done").await == 20
        })
        .await;
    world.settled().await;
    world.check_invariants().await;
}
