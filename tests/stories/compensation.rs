//! R39: a charge is refunded once, after it is known to be one.

use oncely_rig::provider::{Fault, Rule};
use oncely_rig::proxy::{Direction, Mode};
use oncely_tests::ledger::{Ending, Fate};
use oncely_tests::record::Event;
use oncely_tests::wiring::{EffectLines, charge, refund};
use oncely_tests::world::BOUND;
use oncely_tests::{Wiring, World};

/// A lease after which a death is found soon.
const LEASE_MS: u64 = 900;
const CHARGES: &str = "/v1/charges";
const REFUNDS: &str = "/v1/refunds";

async fn world(name: &str, charge: EffectLines) -> World {
    let wiring = Wiring::invoices(name).effects([charge, refund()]);
    World::plan(wiring).lease_ms(LEASE_MS).start().await
}

/// A charge without a key that the provider knows: what was lost is held.
fn blind() -> EffectLines {
    let mut charge = charge();
    charge.replace("type: billing", "type: http");
    charge.replace("on_unknown: retry_same_key", "on_unknown: hold");
    charge
}

/// Pays invoices and voids them; both are owed and done in the end.
async fn paid_and_voided(world: &World, numbers: std::ops::RangeInclusive<usize>) -> Vec<String> {
    let names: Vec<String> = numbers.map(World::invoice).collect();
    for name in &names {
        world.pay(name, 0).await;
    }
    void(world, &names).await;
    names
}

async fn void(world: &World, names: &[String]) {
    for name in names {
        let event = Event::new("invoice.voided", name, 2);
        world.event(&event, 0, Fate::Applied).await;
    }
}

fn calls(world: &World, endpoint: &str) -> usize {
    world.provider.read_log().unwrap().effects_at(endpoint)
}

/// Every refund names the charge that was made, and none came before it.
fn refunds_fit(world: &World) {
    let log = world.provider.read_log().unwrap();
    for call in log.calls().filter(|call| call.endpoint == REFUNDS) {
        assert!(call.body.unwrap().contains("charge=ch_"), "{call:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r39_a_voided_invoice_is_refunded_once_by_the_stored_id_of_its_charge() {
    let mut world = world("refund", charge()).await;
    world.run().await;
    world.run().await;
    let names = paid_and_voided(&world, 1..=8).await;
    // Voided before it was paid: there is nothing to take back.
    let unpaid = World::invoice(9);
    let event = Event::new("invoice.voided", &unpaid, 1);
    world.owe("refund", &unpaid, Ending::Skipped);
    world.event(&event, 0, Fate::Applied).await;
    world.settled().await;
    assert_eq!((calls(&world, CHARGES), calls(&world, REFUNDS)), (8, 8));
    refunds_fit(&world);
    let explained = async |id: String| {
        let said = world.oncely(&["explain", &id, "--tenant", "acct_7"]).await;
        assert!(said.ok, "{said:?}");
        said.json.to_string()
    };
    let voided = explained(format!("evt-{}-002", names[0])).await;
    assert!(voided.contains(&format!("undoes charge of evt-{}-001", names[0])), "{voided}");
    let paid = explained(format!("evt-{}-001", names[0])).await;
    assert!(paid.contains(&format!("undone by refund of evt-{}-002", names[0])), "{paid}");
    let never = explained(format!("evt-{unpaid}-001")).await;
    assert!(never.contains("undoes what was never owed"), "{never}");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r39_an_unknown_charge_is_never_refunded_blindly() {
    let mut world = world("refund-unknown", blind()).await;
    world.provider.fail(Rule::times(3, Fault::CloseAfter).to(CHARGES));
    world.run().await;
    let names = paid_and_voided(&world, 1..=3).await;
    world.until("three held charges", async || world.effects_in("held").await == 3).await;
    world
        .until_count(
            "three refunds that wait",
            "SELECT count(*) FROM oncely.effect WHERE name = 'refund'",
            3,
        )
        .await;
    world.looked().await;
    assert_eq!(calls(&world, REFUNDS), 0);
    // The first is found on the provider's page, the second is not, of the third nobody knows yet.
    let found = world.key_of("charge", &names[0]).await;
    let result = r#"{"charge_id":"ch_found"}"#;
    world.overrides(&["effects", "resolve", &found, "--as", "done", "--result", result]).await;
    world.owe("charge", &names[0], Ending::Assumed);
    let lost = world.key_of("charge", &names[1]).await;
    world.overrides(&["effects", "resolve", &lost, "--as", "skipped"]).await;
    world.owe("charge", &names[1], Ending::Unwanted);
    world.owe("refund", &names[1], Ending::Skipped);
    world.owe("charge", &names[2], Ending::Held);
    world.owe("refund", &names[2], Ending::Blocked);
    world.settled().await;
    let log = world.provider.read_log().unwrap();
    let refunds: Vec<_> = log.calls().filter(|call| call.endpoint == REFUNDS).collect();
    assert_eq!(refunds.len(), 1);
    assert!(refunds[0].body.unwrap().contains("charge=ch_found"), "{refunds:?}");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r39_a_refused_charge_has_no_refund() {
    let mut world = world("refund-refused", charge()).await;
    world.provider.fail(Rule::times(2, Fault::status(402)).to(CHARGES));
    world.run().await;
    for name in paid_and_voided(&world, 1..=2).await {
        world.owe("charge", &name, Ending::Rejected);
        world.owe("refund", &name, Ending::Skipped);
    }
    world.settled().await;
    assert_eq!((calls(&world, CHARGES), calls(&world, REFUNDS)), (0, 0));
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r39_a_refused_charge_that_is_redriven_has_its_refund_back() {
    let mut world = world("refund-redriven", charge()).await;
    world.provider.fail(Rule::times(2, Fault::status(400)).to(CHARGES));
    world.run().await;
    let names = paid_and_voided(&world, 1..=2).await;
    // Voided after the charge was refused, so its refund was skipped at once.
    let late = World::invoice(3);
    world.provider.fail(Rule::times(3, Fault::status(400)).to(CHARGES));
    world.pay(&late, 0).await;
    let refused =
        "SELECT count(*) FROM oncely.effect WHERE name = 'charge' AND status = 'rejected'";
    world.until_count("three refused charges", refused, 3).await;
    void(&world, std::slice::from_ref(&late)).await;
    let skipped = "SELECT count(*) FROM oncely.effect WHERE name = 'refund' AND status = 'skipped'
                   AND note = 'an effect that it comes after was not done'";
    world.until_count("three refunds that are skipped", skipped, 3).await;
    world.settled().await;
    assert_eq!((calls(&world, CHARGES), calls(&world, REFUNDS)), (0, 0));
    world.provider.heal();
    world.overrides_many(&["dlq", "redrive", "--effect", "charge"], 3).await;
    world.settled().await;
    assert_eq!((calls(&world, CHARGES), calls(&world, REFUNDS)), (3, 3));
    refunds_fit(&world);
    for name in names.iter().chain([&late]) {
        let refund = world.status_of("refund", &format!("{name}-002")).await;
        assert_eq!(refund.as_deref(), Some("done"));
    }
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r39_t3_what_may_be_forgotten_is_not_taken_for_what_never_was() {
    let mut world = world("refund-forgotten", charge()).await;
    world.run().await;
    let names: Vec<String> = (1..=2).map(World::invoice).collect();
    for name in &names {
        world.pay(name, 0).await;
    }
    world.settled().await;
    // Ids are remembered for 30 days; retention has taken away what was charged before that.
    world.sql("DELETE FROM oncely.effect").await;
    world.sql("DELETE FROM oncely.inbox").await;
    world.sql("UPDATE oncely.entity SET created_at = now() - interval '31 days'").await;
    void(&world, &names).await;
    world.until("both to be held", async || world.effects_in("held").await == 2).await;
    assert_eq!(calls(&world, REFUNDS), 0);
    // The story has deleted what the books are compared with: no invariants.
    world.stop_all().await;
}

/// A deploy after which what was charged before is on record by another key than the file makes: nothing of it is
/// skipped in silence, and what is charged from then on is refunded as ever.
async fn redeployed(world: &mut World, deploy: impl FnOnce(&mut Wiring)) {
    world.run().await;
    let names: Vec<String> = (1..=3).map(World::invoice).collect();
    for name in &names {
        world.pay(name, 0).await;
    }
    world.settled().await;
    world.stop_all().await;
    deploy(&mut world.wiring);
    world.write_wiring();
    world.run().await;
    void(world, &names).await;
    let held = "SELECT count(*) FROM oncely.effect WHERE name = 'refund' AND status = 'held'
                AND note LIKE 'what it undoes is not on record under the key%'";
    world.until_count("three refunds to be held", held, 3).await;
    assert_eq!(calls(world, REFUNDS), 0);
    // Two are taken back by hand; of the third a person knows that nobody wants that.
    for (name, how, ending) in [
        (&names[0], "done", Ending::Assumed),
        (&names[1], "done", Ending::Assumed),
        (&names[2], "skipped", Ending::Skipped),
    ] {
        let refund = world.key_of("refund", &format!("{name}-002")).await;
        world.overrides(&["effects", "resolve", &refund, "--as", how]).await;
        world.owe("refund", name, ending);
    }
    paid_and_voided(world, 4..=5).await;
    world.settled().await;
    assert_eq!(calls(world, REFUNDS), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r39_a_charge_under_the_key_of_an_older_file_is_not_taken_for_one_that_never_was() {
    let mut world = world("refund-rekeyed", charge()).await;
    redeployed(&mut world, |wiring| {
        let key = "key: '\"invoice:\" + event.data.invoice'\n";
        wiring.effects[0].replace("key: event.data.invoice\n", key);
    })
    .await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r39_a_charge_under_the_id_of_an_older_file_is_not_taken_for_one_that_never_was() {
    let mut world = world("refund-renamed", charge()).await;
    redeployed(&mut world, |wiring| {
        wiring.effects[0].replace("- id: charge", "- id: debit");
        wiring.effects[0].replace(CHARGES, "/v1/debits");
        (wiring.effects[0].id, wiring.effects[0].endpoint) = ("debit", "/v1/debits");
        wiring.effects[1].replace("compensate: charge", "compensate: debit");
        wiring.effects[1].replace("effects.charge.charge_id", "effects.debit.charge_id");
    })
    .await;
    // Of the file before.
    world.wiring.effects.push(EffectLines::elsewhere("charge", CHARGES));
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r39_killed_between_the_charge_and_its_refund() {
    let mut world = world("refund-killed", charge()).await;
    let first = world.run().await;
    world.provider.hold_answers();
    let names = paid_and_voided(&world, 1..=6).await;
    world.provider.wait_held(6, BOUND).await.unwrap();
    // Charged and not told: another process repeats with the same key, and refunds what it is told.
    world.workers[first].kill9().await;
    world.provider.release();
    world.provider.fail(Rule::times(6, Fault::HangAfter).to(REFUNDS));
    let second = world.run().await;
    world.until("six refunds in flight", async || calls(&world, REFUNDS) == 6).await;
    // Refunded and not told: the same once more.
    world.workers[second].kill9().await;
    world.provider.heal();
    world.run().await;
    world.settled().await;
    assert_eq!((calls(&world, CHARGES), calls(&world, REFUNDS)), (6, 6));
    for name in &names {
        assert_eq!(
            world.status_of("refund", &format!("{name}-002")).await.as_deref(),
            Some("done")
        );
    }
    refunds_fit(&world);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r39_killed_before_the_refund_is_sent() {
    let mut world = world("refund-unsent", charge()).await;
    let first = world.run().await;
    let names: Vec<String> = (1..=6).map(World::invoice).collect();
    for name in &names {
        world.pay(name, 0).await;
    }
    world.until("six charges", async || world.effects_in("done").await == 6).await;
    world.provider_proxy.set(Mode::Stall(Direction::ToServer));
    void(&world, &names).await;
    world.until("claims", async || world.effects_in("claimed").await == 6).await;
    world.workers[first].kill9().await;
    world.provider_proxy.cut_all();
    world.provider_proxy.set(Mode::Pass);
    world.run().await;
    world.settled().await;
    assert_eq!(calls(&world, REFUNDS), 6);
    refunds_fit(&world);
    world.check_invariants().await;
}
