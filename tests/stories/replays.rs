//! Replay and rewind: events keep their id, what is on record does not run again, and order holds.

use std::time::Duration;

use oncely_rig::provider::{Fault, Rule};
use oncely_tests::ledger::{Ending, Fate};
use oncely_tests::record::Event;
use oncely_tests::wiring::{EffectLines, charge, hook, receipt, usage};
use oncely_tests::world::BOUND;
use oncely_tests::{Wiring, World};

/// A lease after which a death is found soon.
const LEASE_MS: u64 = 900;

async fn world(name: &str, effects: impl IntoIterator<Item = EffectLines>) -> World {
    let wiring = Wiring::invoices(name).effects(effects);
    World::plan(wiring).lease_ms(LEASE_MS).start().await
}

fn calls(world: &World, endpoint: &str) -> usize {
    world.provider.read_log().unwrap().effects_at(endpoint)
}

/// The file has another effect from now on, and processes run it.
async fn rewire(world: &mut World, effect: EffectLines) {
    world.stop_all().await;
    world.wiring.effects.push(effect);
    world.write_wiring();
    world.run().await;
}

fn name(world: &World) -> String {
    world.wiring.name.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r27_what_is_missing_is_added_once_and_what_is_on_record_stays() {
    let mut world = world("missing", [charge()]).await;
    world.run().await;
    let names = world.pay_many(1, 6, 2).await;
    world.settled().await;
    rewire(&mut world, receipt()).await;
    let connector = name(&world);
    let replay = ["replay", &connector, "--all", "--effects", "missing"];
    // A replay that says nothing of effects runs nothing.
    let skipped = world.oncely(&["replay", &connector, "--all", "--reason", "look", "--yes"]).await;
    assert_eq!(skipped.json["outcomes"]["absorbed"], 6, "{skipped:?}");
    let dry = [&replay[..], &["--reason", "look", "--dry-run"]].concat();
    let dry = world.oncely(&dry).await;
    assert_eq!(
        (&dry.json["effects"]["receipt"], &dry.json["done"]),
        (&6.into(), &false.into()),
        "{dry:?}"
    );
    assert_eq!(
        world.count("SELECT count(*) FROM oncely.effect").await,
        6,
        "a dry run adds nothing"
    );
    // By what it is of: an invoice, how it ended, where it was read.
    for (filter, selected) in [
        (&["--entity", names[0].as_str(), "--tenant", "acct_7"][..], 1),
        (&["--entity", names[0].as_str(), "--tenant", "acct_8"], 0),
        (&["--outcome", "applied"], 6),
        (&["--outcome", "stale"], 0),
        (&["--topic", world.topic(), "--partition", "1"], 3),
    ] {
        let replay =
            ["replay", &connector, "--effects", "missing", "--reason", "look", "--dry-run"];
        let dry = world.oncely(&[&replay[..], filter].concat()).await;
        assert_eq!(dry.json["selected"], selected, "{filter:?}: {dry:?}");
    }
    names.iter().for_each(|name| world.owe("receipt", name, Ending::Done));
    let said = world.overrides_many(&replay, 6).await;
    assert_eq!(said.json["effects"]["receipt"], 6, "{said:?}");
    world.settled().await;
    let again = [&replay[..], &["--reason", "again", "--yes"]].concat();
    let again = world.oncely(&again).await;
    assert_eq!(again.json["outcomes"]["absorbed"], 6, "{again:?}");
    assert_eq!((calls(&world, "/v1/charges"), calls(&world, "/emails")), (6, 6));
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r27_a_preview_counts_an_effect_once_that_many_events_owe() {
    let mut world = world("shared-missing", [usage()]).await;
    world.run().await;
    let names: Vec<String> = (1..=5).map(World::invoice).collect();
    for name in &names {
        let event = Event::paid(name, 1);
        world.owe("usage", &event.id, Ending::Done);
        world.event(&event, 0, Fate::Applied).await;
    }
    world.settled().await;
    let mut shared = hook();
    shared.replace("key: event.id", "key: event.account");
    shared.replace(
        "json: { event: \"{{ event.id }}\", cents: \"{{ event.data.amount }}\" }",
        "json: { account: \"{{ event.account }}\", of: evt- }",
    );
    rewire(&mut world, shared).await;
    let connector = name(&world);
    let replay = ["replay", &connector, "--all", "--effects", "missing"];
    let dry = [&replay[..], &["--reason", "look", "--dry-run"]].concat();
    let counts = |json: &serde_json::Value| {
        ["effects_added", "events_with_effects_added"].map(|count| json[count].clone())
    };
    let would = world.oncely(&dry).await;
    assert_eq!(counts(&would.json), [1, 5].map(serde_json::Value::from), "{would:?}");
    let said = world.overrides_many(&replay, 5).await;
    assert_eq!(counts(&said.json), counts(&would.json), "as it was announced");
    world.settled().await;
    assert_eq!(calls(&world, "/keyed/hooks"), 1);
    // In its request, and in the id of whichever event it is on record for.
    world.owe("hook", "evt-", Ending::Done);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r27_h6_a_deliberate_run_is_a_new_generation_once_for_each_request() {
    let mut world = world("generation", [charge(), receipt()]).await;
    world.run().await;
    let names = world.pay_many(1, 3, 1).await;
    world.settled().await;
    let connector = name(&world);
    let id = format!("evt-{}-001", names[0]);
    let rerun =
        ["replay", &connector, "--id", &id, "--tenant", "acct_7", "--effects", "rerun=receipt"];
    let rerun = [&rerun[..], &["--request", "INC-7"]].concat();
    world.owe("receipt", &names[0], Ending::Twice);
    let said = world.overrides(&rerun).await;
    assert_eq!(said.json["effects"]["receipt"], 1, "{said:?}");
    world.settled().await;
    // The same request once more, and the record itself once more: nothing.
    let again = [&rerun[..], &["--reason", "again", "--yes"]].concat();
    let again = world.oncely(&again).await;
    assert_eq!(again.json["outcomes"]["absorbed"], 1, "{again:?}");
    world.event(&Event::paid(&names[0], 1), 0, Fate::Applied).await;
    world.settled().await;
    assert_eq!((calls(&world, "/v1/charges"), calls(&world, "/emails")), (3, 4));
    let log = world.provider.read_log().unwrap();
    let mails = log.calls().filter(|call| call.endpoint == "/emails");
    let keys: std::collections::BTreeSet<_> = mails.filter_map(|call| call.key).collect();
    assert_eq!(keys.len(), 4, "the new generation has a key of its own");
    let said = world.oncely(&["explain", &id, "--tenant", "acct_7"]).await;
    assert!(said.json.to_string().contains("replay --effects rerun"), "{said:?}");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w17_a_replay_meets_its_original_in_flight() {
    let mut world = world("in-flight", [charge()]).await;
    let first = world.run().await;
    world.provider.hold_answers();
    let names = world.pay_many(1, 4, 1).await;
    world.provider.wait_held(4, BOUND).await.unwrap();
    let connector = name(&world);
    let (missing, id) =
        (["replay", &connector, "--all", "--effects", "missing"], format!("evt-{}-001", names[0]));
    let missing = [&missing[..], &["--reason", "impatient", "--yes"]].concat();
    let said = world.oncely(&missing).await;
    assert_eq!(said.json["outcomes"]["absorbed"], 4, "{said:?}");
    let rerun =
        ["replay", &connector, "--id", &id, "--tenant", "acct_7", "--effects", "rerun=charge"];
    let rerun = [&rerun[..], &["--reason", "impatient", "--yes"]].concat();
    let said = world.oncely(&rerun).await;
    assert!(!said.ok && said.json["outcomes"]["open"] == 1, "{said:?}");
    world.workers[first].kill9().await;
    world.provider.release();
    world.run().await;
    let said = world.oncely(&missing).await;
    assert_eq!(said.json["outcomes"]["absorbed"], 4, "{said:?}");
    world.settled().await;
    assert_eq!(calls(&world, "/v1/charges"), 4);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r28_a_replayed_event_keeps_its_place_before_later_ones() {
    let mut world = world("in-order", [hook()]).await;
    world.run().await;
    let invoice = World::invoice(1);
    world.event(&Event::past_due(&invoice, 1), 0, Fate::Applied).await;
    world.until("the first", async || calls(&world, "/keyed/hooks") == 1).await;
    // The second one is asked to come back in some seconds, and is overtaken by nobody meanwhile.
    let later = Fault::StatusBefore { status: 429, retry_after_s: Some(8) };
    world.provider.fail(Rule::once(later).to("/keyed/hooks"));
    world.event(&Event::paid(&invoice, 2), 0, Fate::Applied).await;
    world.until("a throttle", async || world.provider.counts().received == 2).await;
    let waits = "SELECT count(*) FROM oncely.effect WHERE status = 'waiting' AND due_at > now()";
    world.until_count("the second one to wait", waits, 1).await;
    let mut mail = receipt();
    mail.replace("    when: entered(\"paid\")\n", "");
    mail.replace("key: event.data.invoice", "key: event.id");
    mail.replace("Receipt {{ event.data.invoice }}", "Receipt {{ event.id }}");
    world.provider.set_latency(Duration::from_millis(300));
    rewire(&mut world, mail).await;
    for (effect, id) in [("hook", "001"), ("hook", "002"), ("receipt", "001")] {
        world.owe(effect, &format!("evt-{invoice}-{id}"), Ending::Done);
    }
    let (connector, id) = (name(&world), format!("evt-{invoice}-001"));
    let replay = ["replay", &connector, "--id", &id, "--tenant", "acct_7", "--effects", "missing"];
    world.overrides(&replay).await;
    world.settled().await;
    let log = world.provider.read_log().unwrap();
    let place = |endpoint: &str, id: &str| {
        let calls = log.calls().filter(|call| call.endpoint == endpoint);
        calls.filter(|call| call.body.unwrap_or_default().contains(id)).last().unwrap().place
    };
    let mail = place("/emails", &format!("evt-{invoice}-001"));
    assert!(mail < place("/keyed/hooks", &format!("evt-{invoice}-002")), "it was overtaken");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w18_t3_b25_an_event_older_than_the_retention_is_set_aside() {
    let mut world = world("too-old", [charge()]).await;
    world.run().await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let day = Duration::from_secs(24 * 3_600);
    let before = |days: u32| i64::try_from((now - day * days).as_millis()).unwrap();
    // Ids are remembered for 30 days. What may have been run and forgotten is not run.
    let (old, young) = (World::invoice(1), World::invoice(2));
    let mut record = Event::paid(&old, 1).record(0);
    record.timestamp_ms = Some(before(31));
    world.produce(&record, None, Fate::Parked("too_old")).await;
    world.owe_all(&young);
    let event = Event::paid(&young, 1);
    let mut record = event.record(0);
    record.timestamp_ms = Some(before(29));
    world.produce(&record, Some(&event.id), Fate::Applied).await;
    world.settled().await;
    assert_eq!(calls(&world, "/v1/charges"), 1);
    world.check_at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rewound_position_is_read_again_and_everything_is_absorbed() {
    let wiring = Wiring::invoices("rewound").effects([charge(), receipt()]);
    let mut world = World::plan(wiring).partitions(1).lease_ms(LEASE_MS).start().await;
    world.run().await;
    let names = world.pay_many(1, 12, 1).await;
    world.settled().await;
    let connector = name(&world);
    let rewind = ["rewind", &connector, "--to", "earliest"];
    let preview = world.oncely(&[&rewind[..], &["--reason", "look"]].concat()).await;
    assert_eq!(preview.json["done"], false, "{preview:?}");
    assert_eq!(preview.json["partitions"][0]["goes_back_to"], 0, "{preview:?}");
    let epoch = "SELECT max(epoch) FROM oncely.progress";
    let before = world.count(epoch).await;
    let position = "SELECT sum(position)::bigint FROM oncely.progress";
    assert_eq!(world.count(position).await, 12, "a preview changes nothing");
    // What Kafka has stays above the position until that is there again; PostgreSQL decides.
    world.stop_sampling().await;
    let said = world.overrides(&rewind).await;
    assert_eq!(said.json["done"], true, "{said:?}");
    // A process that runs goes back by itself, and is at the end again soon.
    let read =
        async |world: &World| world.workers[0].metric("oncely_events_consumed_total", "").await;
    world.until("all of it read again", async || read(&world).await >= 24.0).await;
    world.settled().await;
    assert_eq!(world.count(epoch).await, before + 1);
    // To an offset, with a process that dies on the way.
    world.overrides(&["rewind", &connector, "--partition", "0", "--to", "5"]).await;
    world.workers[0].kill9().await;
    world.run().await;
    world.settled().await;
    // To a time that nothing is beyond.
    let said =
        world.oncely(&["rewind", &connector, "--to", "0s", "--reason", "look", "--yes"]).await;
    assert_eq!(said.json["done"], false, "{said:?}");
    assert_eq!((calls(&world, "/v1/charges"), calls(&world, "/emails")), (12, 12));
    assert_eq!(names.len(), 12);
    world.check_invariants().await;
}
