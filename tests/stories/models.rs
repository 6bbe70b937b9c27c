//! Model calls: paid for once a run wherever a process dies, billed from the stored answer, told once.

use std::time::Duration;

use oncely_rig::provider::{Fault, Rule};
use oncely_rig::proxy::{Direction, Mode};
use oncely_tests::ledger::{Ending, Fate};
use oncely_tests::record::Record;
use oncely_tests::wiring::{EffectLines, WEBHOOK_SECRETS, answer, tokens, told};
use oncely_tests::world::BOUND;
use oncely_tests::{Wiring, World};
use serde_json::json;

/// A lease after which a death is found soon.
const LEASE_MS: u64 = 900;
const MODEL: &str = "/model/v1/chat/completions";
const WEBHOOK: &str = "/webhooks/told";

async fn world(name: &str, effects: [EffectLines; 3]) -> World {
    let wiring = Wiring::invoices(name).effects(effects);
    let world = World::plan(wiring).lease_ms(LEASE_MS).start().await;
    world.provider.set_webhook_secrets([WEBHOOK_SECRETS[0].1.to_owned()]);
    world
}

/// The run is held, and nothing follows from an answer that nobody has.
fn owe_held(world: &World, name: &str) {
    world.owe("answer", name, Ending::Held);
    world.owe("tokens", name, Ending::Blocked);
    world.owe("told", name, Ending::Blocked);
}

/// Done, or held with all that comes after it.
fn owe_done_or_held(world: &World, name: &str) {
    for effect in ["answer", "tokens", "told"] {
        world.owe(effect, name, Ending::DoneOrHeld);
    }
}

/// Each effect of a run in its state: done all of them, or held with the others behind it.
async fn done_or_held_together(world: &World, names: &[String]) -> usize {
    let mut done = 0;
    for name in names {
        let mut states = Vec::new();
        for effect in ["answer", "tokens", "told"] {
            states.push(world.status_of(effect, name).await.unwrap());
        }
        match states.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["done", "done", "done"] => {
                world.owe_all(name);
                done += 1;
            }
            ["held", "waiting", "waiting"] => owe_held(world, name),
            _ => panic!("{name}: {states:?}"),
        }
    }
    done
}

fn calls(world: &World, endpoint: &str) -> usize {
    world.provider.read_log().unwrap().effects_at(endpoint)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p14_a_model_is_asked_once_and_everything_follows_from_its_stored_answer() {
    let mut world = world("model", [answer(), tokens(), told()]).await;
    let first = world.run().await;
    let second = world.run().await;
    let names = world.pay_many(1, 12, 2).await;
    world.settled().await;
    assert_eq!((calls(&world, MODEL), calls(&world, WEBHOOK)), (12, 12));
    // What is billed is what the answers say, to the token.
    let unequal =
        "SELECT count(*) FROM oncely.effect e LEFT JOIN oncely.ledger l ON l.event = e.event
        WHERE e.name = 'answer' AND l.quantity IS DISTINCT FROM
            (convert_from(e.result, 'UTF8')::jsonb -> 'usage' ->> 'total_tokens')::numeric";
    assert_eq!(world.count(unequal).await, 0);
    let billed = world.count("SELECT sum(quantity)::bigint FROM oncely.ledger").await as f64;
    let mut counted = 0.0;
    for worker in [first, second] {
        let labels = "model=\"small-1\"";
        counted += world.workers[worker].metric("oncely_llm_tokens_total", labels).await;
    }
    assert_eq!(counted, billed);
    // The customer was sent the stored answer, and the call's number at the provider is on record.
    let log = world.provider.read_log().unwrap();
    let stored = world
        .sql(
            "SELECT business_id, convert_from(result, 'UTF8')::jsonb ->> 'text', note
              FROM oncely.effect WHERE name = 'answer'",
        )
        .await;
    for row in stored {
        let (id, text, note) =
            (row[0].as_ref().unwrap(), row[1].as_ref().unwrap(), row[2].as_ref());
        let name = names.iter().find(|name| id.contains(*name)).unwrap();
        let told = log.calls().any(|call| {
            let body = call.body.unwrap_or_default();
            call.endpoint == WEBHOOK && body.contains(name) && body.contains(&format!("{text:?}"))
        });
        assert!(told, "{id} was told {text}");
        assert!(note.unwrap().contains("request req_"), "{note:?}");
    }
    let said =
        world.oncely(&["explain", &format!("evt-{}-001", names[0]), "--tenant", "acct_7"]).await;
    assert!(said.json.to_string().contains("tokens for acct_7"), "{said:?}");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p14_an_answer_that_was_lost_after_it_was_paid_for_is_held() {
    let mut world = world("model-lost", [answer(), tokens(), told()]).await;
    let faults = [
        Fault::CloseAfter,
        Fault::ResetAfter,
        Fault::HalfBody,
        Fault::GarbledBody,
        Fault::StatusAfter { status: 500 },
        Fault::HangAfter,
        Fault::OversizedBytes(2 << 20),
    ];
    faults.iter().for_each(|fault| world.provider.fail(Rule::once(fault.clone()).to(MODEL)));
    world.run().await;
    let names = world.pay_many(1, 10, 2).await;
    let held = i64::try_from(faults.len()).unwrap();
    world.until("all lost ones to be held", async || world.effects_in("held").await == held).await;
    world.settled().await;
    assert_eq!(done_or_held_together(&world, &names).await, 3);
    assert_eq!(calls(&world, MODEL), 10, "asked once each, whatever came back");
    assert_eq!(world.count("SELECT count(*) FROM oncely.ledger").await, 3);
    let shown = world.oncely(&["effects", "list", "--status", "held"]).await;
    assert_eq!(shown.json["effects"].as_array().map(Vec::len), Some(faults.len()));
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p14_a_paid_retry_is_on_record_and_billed_once() {
    let mut world = world("model-again", [answer(), tokens(), told()]).await;
    world.provider.fail(Rule::times(2, Fault::CloseAfter).to(MODEL));
    world.run().await;
    let names = world.pay_many(1, 2, 1).await;
    world.until("both to be held", async || world.effects_in("held").await == 2).await;
    // One is asked again by a person's word; of the other the provider's own page shows the answer.
    let again = world.key_of("answer", &names[0]).await;
    world.overrides(&["effects", "resolve", &again, "--as", "retry"]).await;
    world.owe("answer", &names[0], Ending::Again);
    let known = world.key_of("answer", &names[1]).await;
    let result = r#"{"text":"as shown","finish_reason":"stop","usage":{"total_tokens":77}}"#;
    world.overrides(&["effects", "resolve", &known, "--as", "done", "--result", result]).await;
    world.owe("answer", &names[1], Ending::Assumed);
    world.settled().await;
    assert_eq!(calls(&world, MODEL), 3);
    let lines = "SELECT count(*) FROM oncely.ledger l JOIN oncely.effect e ON e.event = l.event
        WHERE e.name = 'answer' AND e.status = 'done'";
    assert_eq!(world.count(lines).await, 2, "one line a run");
    assert_eq!(world.count("SELECT count(*) FROM oncely.ledger WHERE quantity = 77").await, 1);
    // Both calls of the first are attempts of their own, and the second says what it took.
    let rows = world
        .sql("SELECT a.outcome, a.note FROM oncely.attempt a JOIN oncely.effect e ON e.key = a.effect
              WHERE e.business_id LIKE '%inv00001%' AND e.name = 'answer' ORDER BY a.at")
        .await;
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert_eq!(rows[0][0].as_deref(), Some("unknown"));
    assert_eq!(rows[1][0].as_deref(), Some("done"));
    assert!(rows[1][1].as_ref().unwrap().starts_with("paid: "), "{rows:?}");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p14_who_opts_into_repeats_pays_twice_and_bills_once() {
    // The file says that the gateway deduplicates, and it does not.
    let mut opted = answer()
        .with("idempotency: { header: Idempotency-Key, window: 24h }\non_unknown: retry_same_key");
    opted.replace("model: small-1", "model: small-2");
    let mut world = world("model-opted", [opted, tokens(), told()]).await;
    world.provider.fail(Rule::once(Fault::HalfBody).to(MODEL));
    world.run().await;
    let name = World::invoice(1);
    world.pay(&name, 0).await;
    world.owe("answer", &name, Ending::Again);
    world.settled().await;
    assert_eq!(calls(&world, MODEL), 2);
    assert_eq!(world.count("SELECT count(*) FROM oncely.ledger").await, 1);
    assert_eq!(calls(&world, WEBHOOK), 1);
    // I1 is the gateway's to keep, and this one has said so and does not.
    world.check_at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w3_killed_before_a_question_is_sent() {
    let mut world = world("model-unsent", [answer(), tokens(), told()]).await;
    let first = world.run().await;
    world.provider_proxy.set(Mode::Stall(Direction::ToServer));
    let names = world.pay_many(1, 6, 2).await;
    world.until("claims", async || world.effects_in("claimed").await == 6).await;
    names.iter().for_each(|name| owe_held(&world, name));
    world.workers[first].kill9().await;
    world.provider_proxy.cut_all();
    assert_eq!(calls(&world, MODEL), 0);
    world.provider_proxy.set(Mode::Pass);
    world.run().await;
    // It cannot be known from outside whether a byte has left.
    world.until("held", async || world.effects_in("held").await == 6).await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w5_killed_while_the_model_writes() {
    let mut world = world("model-writing", [answer(), tokens(), told()]).await;
    let first = world.run().await;
    world.provider.hold_answers();
    let names = world.pay_many(1, 6, 2).await;
    world.provider.wait_held(6, BOUND).await.unwrap();
    names.iter().for_each(|name| owe_held(&world, name));
    world.workers[first].kill9().await;
    world.provider.release();
    world.run().await;
    world.until("held", async || world.effects_in("held").await == 6).await;
    assert_eq!((calls(&world, MODEL), calls(&world, WEBHOOK)), (6, 0));
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w6_killed_with_the_answer_in_hand_before_it_is_stored() {
    let mut world = world("model-in-hand", [answer(), tokens(), told()]).await;
    let first = world.run().await;
    world.provider.hold_answers();
    let names = world.pay_many(1, 6, 2).await;
    world.provider.wait_held(6, BOUND).await.unwrap();
    // The answers arrive, and the database takes nothing.
    world.database_proxy.set(Mode::Stall(Direction::ToServer));
    world.provider.release();
    world.provider.wait_answered(6, BOUND).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    world.workers[first].kill9().await;
    world.database_proxy.cut_all();
    world.database_proxy.set(Mode::Pass);
    names.iter().for_each(|name| owe_held(&world, name));
    world.run().await;
    world.until("held", async || world.effects_in("held").await == 6).await;
    assert_eq!((calls(&world, MODEL), calls(&world, WEBHOOK)), (6, 0));
    assert_eq!(world.count("SELECT count(*) FROM oncely.ledger").await, 0);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w7_a_slow_store_of_the_answer_repeats_nothing() {
    let mut world = world("model-slow-store", [answer(), tokens(), told()]).await;
    world.run().await;
    world.run().await;
    world.provider.hold_answers();
    let names = world.pay_many(1, 6, 2).await;
    world.provider.wait_held(6, BOUND).await.unwrap();
    // For longer than a lease, and nobody can say meanwhile that a worker is dead.
    world.database_proxy.set(Mode::StallBoth);
    world.provider.release();
    world.provider.wait_answered(6, BOUND).await.unwrap();
    tokio::time::sleep(Duration::from_millis(3 * LEASE_MS)).await;
    // One COMMIT is carried out, and its answer is lost on top of that.
    world.database_proxy.set(Mode::lose_commit());
    world.settled().await;
    assert_eq!(done_or_held_together(&world, &names).await, 6, "every answer was kept and stored");
    assert_eq!((calls(&world, MODEL), calls(&world, WEBHOOK)), (6, 6));
    assert_eq!(world.count("SELECT count(*) FROM oncely.ledger").await, 6);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w8_killed_between_the_stored_answer_and_the_webhook() {
    let mut world = world("model-stored", [answer(), tokens(), told()]).await;
    let first = world.run().await;
    world.provider.fail(Rule::times(6, Fault::HangBefore).to(WEBHOOK));
    let names = world.pay_many(1, 6, 2).await;
    world.until("six webhooks on their way", async || world.provider.counts().held == 6).await;
    assert_eq!(world.count("SELECT count(*) FROM oncely.ledger").await, 6);
    world.workers[first].kill9().await;
    world.provider.release();
    world.run().await;
    world.settled().await;
    assert_eq!(done_or_held_together(&world, &names).await, 6);
    assert_eq!((calls(&world, MODEL), calls(&world, WEBHOOK)), (6, 6));
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w1_to_w9_models_killed_at_any_moment_under_load() {
    let mut world = world("model-load", [answer(), tokens(), told()]).await;
    world.provider.set_latency(Duration::from_millis(30));
    for _ in 0..3 {
        world.spawn(&[]);
    }
    let (mut next, mut names) = (1, Vec::new());
    for round in 0..3 {
        names.extend(world.pay_many(next, 20, 2).await);
        next += 20;
        let applied = world.provider.counts().applied + 7 + 8 * round;
        drop(world.provider.wait_applied(applied, Duration::from_secs(8)).await);
        let victim = world.workers.len() - 3;
        world.workers[victim].kill9().await;
        world.spawn(&[]);
    }
    names.iter().for_each(|name| owe_done_or_held(&world, name));
    world.settled().await;
    let done = done_or_held_together(&world, &names).await;
    assert_eq!(world.count("SELECT count(*) FROM oncely.ledger").await, done as i64);
    assert_eq!(calls(&world, WEBHOOK), done);
    assert!(calls(&world, MODEL) <= 60);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k1_a_call_of_many_leases_is_taken_over_by_nobody() {
    let mut slow = answer();
    slow.replace("connect: 1s, total: 5s", "connect: 1s, total: 60s");
    let mut world = world("model-long", [slow, tokens(), told()]).await;
    world.run().await;
    world.run().await;
    // Thirteen leases. Two minutes are the same to a worker that goes on renewing its own.
    world.provider.fail(Rule::always(Fault::DelayMs(12_000)).to(MODEL));
    let names = world.pay_many(1, 4, 2).await;
    world.settled().await;
    assert_eq!(done_or_held_together(&world, &names).await, 4);
    assert_eq!(calls(&world, MODEL), 4);
    let wrong = "SELECT count(*) FROM oncely.effect WHERE takeovers > 0 OR attempts > 1";
    assert_eq!(world.count(wrong).await, 0);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_asks_bills_and_tells_once() {
    let ids = [("answer", MODEL), ("tokens_in", ""), ("tokens_out", ""), ("tell", WEBHOOK)];
    let effects = ids.map(|(id, endpoint)| EffectLines::elsewhere(id, endpoint));
    let wiring = Wiring::example("llm-run", "llm.requests.v1").effects(effects);
    let plan = World::plan(wiring).lease_ms(LEASE_MS).env("ONCELY_EGRESS_ALLOW", "127.0.0.1");
    let mut world = plan.start().await;
    world.provider.set_webhook_secrets([WEBHOOK_SECRETS[0].1.to_owned()]);
    let first = world.run().await;
    world.run().await;
    let endpoint = format!("http://{}{WEBHOOK}", world.provider_proxy.addr());
    for number in 1..=20 {
        let run = World::invoice(number);
        world.owe_all(&run);
        let event = json!({ "type": "run.requested", "tenant_id": "acct_7", "run_id": run,
            "question": format!("What of {run}?"), "endpoint": endpoint });
        for partition in [0, 1, 0] {
            let record = Record::of(event.to_string()).key(&run).to(partition);
            world.produce(&record, Some(&run), Fate::Applied).await;
        }
    }
    world.settled().await;
    world.workers[first].kill9().await;
    assert_eq!((calls(&world, MODEL), calls(&world, WEBHOOK)), (20, 20));
    assert_eq!(world.count("SELECT count(*) FROM oncely.ledger").await, 40);
    world.check_invariants().await;
}
