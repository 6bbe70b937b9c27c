//! What cannot be known, by class of provider: asked, repeated with its key, or held.

use std::time::Duration;

use oncely_rig::provider::{Fault, Hold, Rule};
use oncely_rig::proxy::{Direction, Mode};
use oncely_tests::ledger::Ending;
use oncely_tests::wiring::{charge, hook, note, settlement};
use oncely_tests::world::BOUND;
use oncely_tests::{Wiring, World};

/// A lease after which a death is found soon.
const LEASE_MS: u64 = 900;

/// How long "not found" is not believed: the time-out and `applies_within` of [`settlement`].
const SETTLE_MS: i64 = 1_700;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w5_p2_p4_p8_a_lost_answer_is_found_and_nothing_is_sent_twice() {
    // The later effect reads what the first one recorded, wherever that came from.
    let follows = "after: [settle]\nrecord: { mail: response.json.id }";
    let mut hook = hook().with(follows);
    hook.replace(
        "{{ event.id }}\", cents",
        "{{ event.id }}\", by: \"{{ effects.settle.settlement }}\", cents",
    );
    let wiring = Wiring::invoices("found").effects([settlement(), hook]);
    let mut world = World::plan(wiring).lease_ms(LEASE_MS).start().await;
    let faults = [
        Fault::CloseAfter,
        Fault::ResetAfter,
        Fault::HalfBody,
        Fault::GarbledBody,
        Fault::StatusAfter { status: 500 },
        Fault::StatusAfter { status: 408 },
        Fault::HangAfter,
    ];
    for fault in faults.clone() {
        world.provider.fail(Rule::once(fault).to("/lookup/settlements"));
    }
    let worker = world.run().await;
    world.pay_many(1, 10, 2).await;
    world.settled().await;
    assert_eq!(world.effects_in("done").await, 20);
    let lost = faults.len() as u64;
    assert!(world.provider.counts().lookups >= lost, "{:?}", world.provider.counts());
    assert_eq!(world.provider.counts().received, 20, "each was sent once");
    let found = "SELECT count(*) FROM oncely.attempt WHERE outcome = 'found'";
    assert_eq!(world.count(found).await, lost as i64);
    let worker = &world.workers[worker];
    let reconciled = worker.metric("oncely_effects_finished_total", "result=\"reconciled\"").await;
    assert_eq!(reconciled, lost as f64);
    let looked = worker.metric("oncely_effect_lookups_total", "result=\"found\"").await;
    assert_eq!(looked, lost as f64);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w3_killed_before_the_first_byte_and_sent_once_after_not_found_is_believed() {
    let wiring = Wiring::invoices("unsent").effects([settlement()]);
    let mut world = World::plan(wiring).lease_ms(LEASE_MS).start().await;
    let first = world.run().await;
    world.provider_proxy.set(Mode::Stall(Direction::ToServer));
    world.pay_many(1, 6, 2).await;
    world.until("claims", async || world.effects_in("claimed").await == 6).await;
    world.workers[first].kill9().await;
    world.provider_proxy.cut_all();
    assert_eq!(world.provider.counts().received, 0);
    world.provider_proxy.set(Mode::Pass);
    world.run().await;
    world.settled().await;
    assert_eq!(world.effects_in("done").await, 6);
    // What was on the way when the worker died may arrive after it, and is found then.
    assert_eq!(world.provider.counts().received, 6, "each arrived once");
    let early = format!(
        "SELECT count(*) FROM oncely.effect e, oncely.worker w WHERE w.dead_at IS NOT NULL
         AND e.attempts > 0 AND e.last_sent_at < w.dead_at + interval '{SETTLE_MS} milliseconds'"
    );
    assert_eq!(world.count(&early).await, 0, "believed before everything had settled");
    let unasked = "SELECT count(*) FROM oncely.effect e WHERE attempts > 0 AND NOT EXISTS (
        SELECT FROM oncely.attempt a WHERE a.effect = e.key AND a.outcome = 'not_found')";
    assert_eq!(world.count(unasked).await, 0, "sent again without having asked");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w5_b34_killed_after_the_effect_and_found_by_another_process() {
    let wiring = Wiring::invoices("taken").effects([settlement(), charge(), note()]);
    let mut world = World::plan(wiring).lease_ms(LEASE_MS).start().await;
    let first = world.run().await;
    world.run().await;
    world.provider.hold_answers();
    let names = world.pay_many(1, 8, 2).await;
    world.provider.wait_held(24, BOUND).await.unwrap();
    for name in &names {
        // Class A and B are carried on; class C stops.
        world.owe("note", name, Ending::DoneOrHeld);
    }
    world.workers[first].kill9().await;
    world.provider.release();
    world.settled().await;
    for name in &names {
        assert_eq!(world.status_of("settle", name).await.as_deref(), Some("done"));
        assert_eq!(world.status_of("charge", name).await.as_deref(), Some("done"));
    }
    // An alert counts what comes to be held, also when another one finds that it has to.
    let taken_over = "SELECT count(*) FROM oncely.effect WHERE status = 'held' AND takeovers > 0";
    let held = world.count(taken_over).await;
    assert!(held > 0);
    let counted = world.workers[1].metric("oncely_effects_held_total", "effect=\"note\"").await;
    assert_eq!(counted, held as f64);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w5_an_effect_that_appears_late_is_not_done_again() {
    let wiring = Wiring::invoices("late").effects([settlement()]);
    // Within what the file declares: a second.
    let mut world = World::plan(wiring).lease_ms(LEASE_MS).apply_delay_ms(800).start().await;
    world.provider.fail(Rule::times(4, Fault::CloseAfter).to("/lookup/settlements"));
    world.provider.fail(Rule::times(4, Fault::ResetAfter).to("/lookup/settlements"));
    world.run().await;
    world.pay_many(1, 8, 2).await;
    world.settled().await;
    assert_eq!(world.effects_in("done").await, 8);
    assert_eq!(world.provider.counts().received, 8);
    let early = "SELECT count(DISTINCT effect) FROM oncely.attempt WHERE outcome = 'not_found'";
    assert_eq!(world.count(early).await, 8, "each was asked for before it had appeared");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w4_a_request_that_never_arrived_is_sent_again_once() {
    let wiring = Wiring::invoices("never").effects([settlement()]);
    let mut world = World::plan(wiring).lease_ms(LEASE_MS).start().await;
    world.provider.fail(Rule::times(2, Fault::CloseBefore).to("/lookup/settlements"));
    world.provider.fail(Rule::times(2, Fault::ResetBefore).to("/lookup/settlements"));
    world.provider.fail(Rule::times(2, Fault::status(502)).to("/lookup/settlements"));
    world.run().await;
    world.pay_many(1, 6, 2).await;
    world.settled().await;
    assert_eq!(world.effects_in("done").await, 6);
    assert_eq!(world.provider.counts().received, 12, "each twice, and only one took effect");
    let early = format!(
        "SELECT count(*) FROM oncely.effect WHERE attempts <> 2
         OR last_sent_at < first_sent_at + interval '{SETTLE_MS} milliseconds'"
    );
    assert_eq!(world.count(&early).await, 0, "sent again before everything had settled");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_surely_not_there_is_given_up_where_the_file_says_so() {
    let mut fails = settlement();
    fails.replace("applies_within: 1s", "applies_within: 1s, on_not_found: fail");
    let wiring = Wiring::invoices("given-up").effects([fails]);
    let mut world = World::plan(wiring).lease_ms(LEASE_MS).start().await;
    world.provider.fail(Rule::times(3, Fault::CloseBefore).to("/lookup/settlements"));
    world.run().await;
    for name in world.pay_many(1, 3, 1).await {
        world.owe("settle", &name, Ending::Rejected);
    }
    world.settled().await;
    assert_eq!(world.effects_in("rejected").await, 3);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p11_past_its_key_window_a_repeat_becomes_a_question() {
    let mut asks = hook().with(
        "lookup: { url: \"{provider}/keyed/hooks?key={{ effect.key }}\", done: response.json.items.size() > 0, applies_within: 500ms }",
    );
    asks.replace("window: 24h", "window: 3s");
    asks.replace("connect: 1s, total: 5s", "connect: 200ms, total: 500ms");
    asks.replace("max_elapsed: 10m", "max_elapsed: 2s");
    let wiring = Wiring::invoices("window").effects([asks]);
    let mut world = World::plan(wiring).lease_ms(LEASE_MS).start().await;
    world.provider.fail(Rule::once_per_key(Fault::CloseAfter).to("/keyed/hooks"));
    // The gate in front of it fails until the plan is exhausted; by then the key is forgotten as well.
    world.provider.fail(Rule::times(60, Fault::status(500)).to("/keyed/hooks"));
    world.run().await;
    world.pay_many(1, 4, 2).await;
    world.provider.wait_applied(4, BOUND).await.unwrap();
    world.provider.forget_keys();
    world.settled().await;
    assert_eq!(world.effects_in("done").await, 4);
    let found = "SELECT count(*) FROM oncely.attempt WHERE outcome = 'found'";
    assert_eq!(world.count(found).await, 4);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k1_r15_a_frozen_worker_that_holds_the_answer_changes_nothing_when_it_thaws() {
    let wiring = Wiring::invoices("frozen").effects([settlement()]);
    let mut world = World::plan(wiring).lease_ms(LEASE_MS).start().await;
    let first = world.run().await;
    world.provider.hold_answers();
    world.pay_many(1, 6, 2).await;
    world.provider.wait_held(6, BOUND).await.unwrap();
    world.workers[first].freeze();
    world.run().await;
    world.provider.release();
    world.until("found by the other", async || world.effects_in("done").await == 6).await;
    world.workers[first].thaw();
    world
        .until("a new life", async || {
            world.workers[first].metric("oncely_leases_lost_total", "").await >= 1.0
        })
        .await;
    world.settled().await;
    assert_eq!(world.provider.counts().received, 6);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w1_to_w9_class_b_killed_at_any_moment_under_load() {
    let wiring = Wiring::invoices("asked").effects([settlement(), hook().with("after: [settle]")]);
    let mut world = World::plan(wiring).partitions(3).lease_ms(LEASE_MS).start().await;
    world.provider.set_latency(Duration::from_millis(15));
    for _ in 0..3 {
        world.spawn(&[]);
    }
    let mut next = 1;
    for round in 0..4 {
        world.pay_many(next, 30, 3).await;
        next += 30;
        // Somewhere in the middle of it, another place each time.
        let applied = world.provider.counts().applied + 5 + 9 * round;
        drop(world.provider.wait_applied(applied, Duration::from_secs(8)).await);
        let victim = world.workers.len() - 3;
        world.workers[victim].kill9().await;
        world.spawn(&[]);
    }
    world.settled().await;
    assert_eq!(
        world.effects_in("done").await,
        240,
        "nothing is held where a provider can be asked"
    );
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h8_what_no_look_up_told_is_held_and_asked_anew_on_a_persons_word() {
    let mut impatient = settlement();
    impatient.replace("max_elapsed: 10m", "max_elapsed: 300ms");
    let wiring = Wiring::invoices("silent").effects([impatient]);
    // A held effect lets its offset go; on a person's word it is open once more.
    let mut world = World::plan(wiring).lease_ms(LEASE_MS).unsampled().start().await;
    world.provider.fail(Rule::once(Fault::CloseAfter).to("/lookup/settlements"));
    world.provider.fail(Rule::always(Fault::status(503)).to("/lookup/settlements").lookups());
    world.run().await;
    let name = world.pay_many(1, 1, 1).await.remove(0);
    world.until("held", async || world.effects_in("held").await == 1).await;
    world.provider.heal();
    let key = world.key_of("settle", &name).await;
    world.overrides(&["effects", "resolve", &key, "--as", "lookup"]).await;
    world.until("found", async || world.effects_in("done").await == 1).await;
    assert_eq!(world.provider.counts().received, 1);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w6_killed_while_it_asks_and_asked_by_another_process() {
    let wiring = Wiring::invoices("asking").effects([settlement()]);
    let mut world = World::plan(wiring).lease_ms(LEASE_MS).start().await;
    world.provider.fail(Rule::times(6, Fault::CloseAfter).to("/lookup/settlements"));
    world.provider.fail(Rule::always(Fault::HangBefore).to("/lookup/settlements").lookups());
    let first = world.run().await;
    world.pay_many(1, 6, 2).await;
    world.provider.wait_held(6, BOUND).await.unwrap();
    world.workers[first].kill9().await;
    world.provider.heal();
    world.run().await;
    world.settled().await;
    assert_eq!(world.effects_in("done").await, 6);
    assert_eq!(world.provider.counts().received, 6, "a dead worker that asked has sent nothing");
    assert_eq!(world.count("SELECT count(*) FROM oncely.effect WHERE takeovers > 0").await, 6);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w5_r14_effects_that_come_after_the_time_out_by_class() {
    let hasty = |mut effect: oncely_tests::wiring::EffectLines| {
        effect.replace("connect: 1s, total: 5s", "connect: 300ms, total: 700ms");
        effect
    };
    let mut asked = settlement();
    // Longer than this story lets a request lie.
    asked.replace("applies_within: 1s", "applies_within: 6s");
    let wiring = Wiring::invoices("slow").effects([hasty(charge()), asked, hasty(note())]);
    let mut world = World::plan(wiring).lease_ms(LEASE_MS).start().await;
    world.provider.hold(Hold::BeforeApply);
    world.run().await;
    let names = world.pay_many(1, 4, 2).await;
    for name in &names {
        world.owe("note", name, Ending::Held);
    }
    // Nobody was answered in time; by then nothing had taken effect.
    world.until("class C held", async || world.effects_in("held").await == 4).await;
    assert_eq!(world.provider.counts().applied, 0);
    world.provider.release();
    world.settled().await;
    for name in &names {
        assert_eq!(world.status_of("charge", name).await.as_deref(), Some("done"), "repeated");
        assert_eq!(world.status_of("settle", name).await.as_deref(), Some("done"), "found");
        assert_eq!(world.status_of("note", name).await.as_deref(), Some("held"), "a person's");
    }
    assert_eq!(world.provider.counts().applied, 12, "each took effect once, late");
    world.check_invariants().await;
}
