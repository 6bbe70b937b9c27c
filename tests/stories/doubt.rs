//! After a failover, events of one entity that are read again in another order than the first time: what may have been
//! done for them is held or asked, and a time that was over counts from the beginning.

use oncely_rig::provider::{Fault, Rule};
use oncely_tests::ledger::{Ending, Fate};
use oncely_tests::wiring::{charge, hook, note, refund, settlement, usage};
use oncely_tests::{Event, Wiring, World};

use super::gaps::{WAITING, life, send, wiring};

/// A lease after which a death is found soon.
const LEASE_MS: u64 = 900;

/// Positions whose records in doubt are not bounded yet.
const UNBOUNDED: &str = "SELECT count(*) FROM oncely.progress WHERE suspect = 9223372036854775807";
/// Positions below which something may be done and forgotten.
const IN_DOUBT: &str = "SELECT count(*) FROM oncely.progress WHERE suspect IS NOT NULL";

async fn ends(world: &World, effect: &str, name: &str, status: &str) {
    let is_so = async || world.status_of(effect, name).await.as_deref() == Some(status);
    world.until(&format!("the {effect} to be {status}"), is_so).await;
}

/// An invoice was paid and charged, all of it forgotten, and the record that voids it is read first: the payment comes
/// late then, and is no less paid for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w10_r39_a_forgotten_charge_and_its_refund_are_asked_for_whoever_is_read_first() {
    let mut line = usage();
    line.replace("on_stale: run", r#"when: entered("paid")"#);
    let wiring = Wiring::invoices("late-charge").effects([charge(), refund(), note(), line]);
    let plan = World::plan(wiring).lease_ms(LEASE_MS).session_ms(25_000);
    let plan = plan.env("ONCELY_SHUTDOWN_GRACE", "30s");
    let mut world = plan.own_postgres().start().await;
    world.run().await;
    world.run().await;
    world.apart().await;
    for (number, partition) in [(1, 0), (2, 1)] {
        let paid = Event::paid(&World::invoice(number), 1);
        world.owe("usage", &paid.id, Ending::Done);
        world.event(&paid, partition, Fate::Applied).await;
        world.owe("charge", &World::invoice(number), Ending::Done);
        world.owe("note", &World::invoice(number), Ending::Done);
    }
    world.settled().await;
    let standby = world.standby().await;
    standby.falls_behind();
    let name = World::invoice(3);
    for (effect, ending) in
        [("charge", Ending::Done), ("refund", Ending::Done), ("note", Ending::Held)]
    {
        world.owe(effect, &name, ending);
    }
    // A line is lost with what made it owed, so it is written again.
    let paid = Event::paid(&name, 1);
    world.owe("usage", &paid.id, Ending::Done);
    world.event(&paid, 0, Fate::AppliedOrStale).await;
    world.settled().await;
    let slow = world.holder(0).unwrap();
    world.workers[slow].freeze();
    world.fail_over(standby).await;
    world.until_count("the end of what is read", UNBOUNDED, 1).await;
    world.event(&Event::new("invoice.voided", &name, 2), 1, Fate::Applied).await;
    ends(&world, "refund", &name, "held").await;
    world.workers[slow].thaw();
    world.until_count("what is in doubt to be decided again", IN_DOUBT, 0).await;
    ends(&world, "charge", &name, "held").await;
    ends(&world, "note", &name, "held").await;
    let listed = world.oncely(&["effects", "list", "--status", "held"]).await;
    for row in listed.json["effects"].as_array().unwrap() {
        assert_eq!(row["suspect"], true, "{row}");
    }
    // A person has the charge sent again, by its key, and then what undoes it.
    for effect in ["charge", "refund"] {
        let key = world.key_of(effect, &name).await;
        world.overrides(&["effects", "resolve", &key, "--as", "retry"]).await;
        ends(&world, effect, &name, "done").await;
    }
    let log = world.provider.read_log().unwrap();
    assert_eq!((log.effects_at("/v1/charges"), log.effects_at("/v1/refunds")), (3, 1));
    world.check_invariants().await;
}

/// What had been read by a time is to be read again: a time that was over before a failover is not over after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w10_a_time_that_was_over_before_a_failover_counts_from_the_beginning() {
    let wiring = wiring("late-time", "{ wait: 5s, then: apply, first: 1 }");
    let plan = World::plan(wiring).lease_ms(LEASE_MS).session_ms(25_000).unsampled();
    let plan = plan.env("ONCELY_SHUTDOWN_GRACE", "30s");
    let mut world = plan.own_postgres().start().await;
    world.run().await;
    world.run().await;
    world.apart().await;
    let [past_due, paid, voided] = life(&World::invoice(1));
    let third = |number: usize| Event::new("invoice.voided", &World::invoice(number), 3);
    send(&world, &past_due, 0, Fate::Applied).await;
    world.settled().await;
    let standby = world.standby().await;
    send(&world, &voided, 1, Fate::Applied).await;
    world.until_count("it to wait", WAITING, 1).await;
    world.caught_up().await;
    standby.falls_behind();
    send(&world, &paid, 0, Fate::Applied).await;
    // The time of another one comes, so that of the first one would be over.
    send(&world, &third(2), 1, Fate::Applied).await;
    let over = "SELECT count(*) FROM oncely.deferred WHERE escalated";
    world.until_count("another one's time", over, 1).await;
    world.settled().await;
    let slow = world.holder(0).unwrap();
    world.workers[slow].freeze();
    world.fail_over(standby).await;
    world.until_count("the end of what is read", UNBOUNDED, 1).await;
    // Whoever lets this one go looks at the first one as well, which has waited for longer.
    send(&world, &third(3), 1, Fate::Applied).await;
    world.until_count("three to wait", WAITING, 3).await;
    world.overrides(&["deferred", "release", "--id", &third(3).id]).await;
    world.until_count("it to go", WAITING, 2).await;
    world.workers[slow].thaw();
    world.until_count("what is in doubt to be decided again", IN_DOUBT, 0).await;
    world.settled().await;
    let in_turn = format!(
        "SELECT count(*) FROM oncely.deferred WHERE NOT escalated AND business_id = '{}'",
        voided.id
    );
    assert_eq!(world.count(&in_turn).await, 1);
    world.check_invariants().await;
}

/// Dead letters that a person had tried again, all of it forgotten, and has tried again: they may be done, and so may
/// what was skipped because of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w10_r27_what_was_redriven_and_forgotten_is_repeated_by_key_asked_for_or_held() {
    let effects = [charge(), settlement(), note().with("after: [charge]")];
    let wiring = Wiring::invoices("forgotten-redrive").effects(effects);
    let mut world = World::plan(wiring).lease_ms(LEASE_MS).own_postgres().start().await;
    world.run().await;
    for endpoint in ["/v1/charges", "/lookup/settlements"] {
        world.provider.fail(Rule::once(Fault::status(400)).to(endpoint));
    }
    let name = World::invoice(1);
    world.pay(&name, 0).await;
    ends(&world, "note", &name, "skipped").await;
    ends(&world, "settle", &name, "rejected").await;
    world.settled().await;
    let standby = world.standby().await;
    standby.falls_behind();
    let redrive = ["dlq", "redrive", "--all", "--yes", "--reason", "x"];
    let said = world.oncely(&redrive).await;
    assert_eq!(said.json["changed"], 2, "{said:?}");
    for effect in ["charge", "settle", "note"] {
        ends(&world, effect, &name, "done").await;
    }
    world.settled().await;
    world.fail_over(standby).await;
    world.until_count("a failover on record", "SELECT max(number) FROM oncely.failover", 2).await;
    world.until_count("what is in doubt to be decided again", IN_DOUBT, 0).await;
    ends(&world, "charge", &name, "rejected").await;
    let listed = world.oncely(&["dlq", "list"]).await;
    for row in listed.json["parked"].as_array().unwrap() {
        assert_eq!(row["suspect"], true, "{row}");
    }
    world.overrides_many(&["dlq", "redrive", "--all"], 2).await;
    for (effect, status) in [("charge", "done"), ("settle", "done"), ("note", "held")] {
        ends(&world, effect, &name, status).await;
    }
    let log = world.provider.read_log().unwrap();
    for endpoint in ["/v1/charges", "/lookup/settlements", "/plain/notes"] {
        assert_eq!(log.effects_at(endpoint), 1, "{endpoint}");
    }
    world.owe("note", &name, Ending::Held);
    world.check_invariants().await;
}

/// What lay in quarantine for long may have been released in what is lost. It came too late for its entity even then,
/// so nothing is held that it never owed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w10_what_was_parked_before_a_failover_owes_what_it_owed_then() {
    let wiring = Wiring::invoices("old-quarantine").effects([note(), hook()]);
    let plan = World::plan(wiring).lease_ms(LEASE_MS).own_postgres().unsampled();
    let mut world = plan.start().await;
    world.run().await;
    let names = [World::invoice(1), World::invoice(2)];
    world.event(&Event::paid(&names[0], 1), 1, Fate::Applied).await;
    world.event(&Event::past_due(&names[1], 1), 1, Fate::Applied).await;
    // Neither leads anywhere.
    let late = [
        Event::past_due(&names[0], 2),
        Event { id: "again".to_owned(), ..Event::past_due(&names[1], 2) },
    ];
    for event in &late {
        world.event(event, 1, Fate::Parked("invalid_transition")).await;
    }
    world.event(&Event::new("invoice.voided", &names[0], 3), 1, Fate::Applied).await;
    world.event(&Event::paid(&names[1], 3), 1, Fate::Applied).await;
    world.settled().await;
    let effects = "SELECT count(*) FROM oncely.effect";
    let before = world.count(effects).await;
    let standby = world.standby().await;
    world.fail_over(standby).await;
    world.until_count("a failover on record", "SELECT max(number) FROM oncely.failover", 2).await;
    world.until_count("what is in doubt to be decided again", IN_DOUBT, 0).await;
    let listed = world.oncely(&["quarantine", "list"]).await;
    for row in listed.json["parked"].as_array().unwrap() {
        assert_eq!((&row["suspect"], &row["stands"]), (&true.into(), &"open (suspect)".into()));
    }
    let release = ["quarantine", "release", "--all", "--yes", "--reason", "x"];
    let said = world.oncely(&release).await;
    assert_eq!(said.json["changed"], 2, "{said:?}");
    let stale = "SELECT count(*) FROM oncely.parked WHERE closed_as = 'stale'";
    world.until_count("both to be stale", stale, 2).await;
    assert_eq!(world.count(effects).await, before, "nothing is held that was never owed");
}

/// A run under a name, forgotten, and asked for once more under that name: it may be done. Without a name it is a new
/// one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w10_r27_a_named_replay_that_is_forgotten_is_repeated_by_key_or_held() {
    let wiring = Wiring::invoices("forgotten-replay").effects([charge(), note()]);
    let plan = World::plan(wiring).lease_ms(LEASE_MS).own_postgres().unsampled();
    let mut world = plan.start().await;
    world.run().await;
    let (name, connector) = (World::invoice(1), world.wiring.name.clone());
    world.pay(&name, 0).await;
    world.settled().await;
    let standby = world.standby().await;
    standby.falls_behind();
    let id = Event::paid(&name, 1).id;
    let replay = ["replay", &connector, "--id", &id, "--tenant", "acct_7", "--effects"];
    let named = [&replay[..], &["rerun=charge,note", "--request", "R1"]].concat();
    let calls = |world: &World| {
        let log = world.provider.read_log().unwrap();
        (log.effects_at("/v1/charges"), log.effects_at("/plain/notes"))
    };
    let said = world.oncely(&[&named[..], &["--yes", "--reason", "x"]].concat()).await;
    assert_eq!(said.json["effects_added"], 2, "{said:?}");
    world.settled().await;
    assert_eq!(calls(&world), (2, 2));
    world.fail_over(standby).await;
    world.until_count("a failover on record", "SELECT max(number) FROM oncely.failover", 2).await;
    world.until_count("what is in doubt to be decided again", IN_DOUBT, 0).await;
    let said = world.overrides(&named).await;
    assert_eq!(said.json["effects_suspect"], 2, "{said:?}");
    let held = async || world.effects_in("held").await == 1 && world.effects_in("done").await == 3;
    world.until("the charge to be repeated and the note to be held", held).await;
    assert_eq!(calls(&world), (2, 2), "neither is done twice");
    // The books know of no note twice, whose provider knows of no keys: they are not laid beside it.
    let unnamed = [&replay[..], &["rerun=note", "--dry-run", "--reason", "x"]].concat();
    let said = world.oncely(&unnamed).await;
    assert_eq!(
        (&said.json["effects_added"], &said.json["effects_suspect"]),
        (&1.into(), &0.into())
    );
}
