//! A connector file that changes while something is under way that may have been applied.

use oncely_rig::provider::{Fault, Rule};
use oncely_tests::wiring::{charge, note, settlement, usage};
use oncely_tests::world::BOUND;
use oncely_tests::{Wiring, World};

/// A lease after which a death is found soon.
const LEASE_MS: u64 = 900;

/// Held since they were sent otherwise than the file says now.
const OTHERWISE: &str =
    "SELECT count(*) FROM oncely.effect WHERE status = 'held' AND note LIKE '%was sent before%'";

async fn deploy(world: &mut World, changes: &[(&str, &str)]) {
    world.stop_all().await;
    for (replaced, by) in changes {
        world.wiring.effects[0].replace(replaced, by);
    }
    world.write_wiring();
    world.run().await;
}

/// A person has looked: all of it took place.
async fn resolve(world: &World, effect: &str, count: u64) {
    world.overrides_many(&["effects", "resolve", "--effect", effect, "--as", "done"], count).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w5_a_key_that_comes_with_a_new_file_was_not_sent_with_the_old_one() {
    let wiring = Wiring::invoices("keyed-later").effects([note()]);
    let mut world = World::plan(wiring).lease_ms(LEASE_MS).start().await;
    let first = world.run().await;
    world.provider.hold_answers();
    world.pay_many(1, 4, 2).await;
    world.provider.wait_applied(4, BOUND).await.unwrap();
    world.workers[first].kill9().await;
    let keyed =
        "idempotency: { header: Idempotency-Key, window: 24h }\n    on_unknown: retry_same_key";
    world.wiring.effects[0].replace("on_unknown: hold", keyed);
    world.write_wiring();
    world.provider.release();
    world.run().await;
    world.until_count("all to be held", OTHERWISE, 4).await;
    // What was never sent is sent with the key, and repeated under it.
    world.provider.fail(Rule::times(2, Fault::CloseBefore).to("/plain/notes"));
    world.pay_many(5, 2, 2).await;
    world.until("both done", async || world.effects_in("done").await == 2).await;
    // Under another header the provider knows none of those that it gets now.
    world.provider.fail(Rule::times(2, Fault::CloseAfter).to("/plain/notes"));
    world.provider.fail(Rule::times(20, Fault::status(429)).to("/plain/notes"));
    world.pay_many(7, 2, 2).await;
    world.until("both unknown", async || world.effects_in("unknown").await == 2).await;
    deploy(&mut world, &[("header: Idempotency-Key", "header: X-Request-Id")]).await;
    world.until_count("these as well", OTHERWISE, 6).await;
    let sent = world.provider.counts().applied;
    assert_eq!(sent, 8, "each took effect once");
    resolve(&world, "note", 6).await;
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w5_a_look_up_that_comes_with_a_new_file_finds_nothing_that_was_sent_before() {
    // As it was before anybody could be asked.
    let mut blind = settlement();
    blind.replace("reference: \"{{ effect.key }}\"", "reference: \"{{ event.id }}\"");
    blind.replace("lookup: { ", "# lookup: { ");
    blind.replace("on_unknown: reconcile", "on_unknown: hold");
    let wiring = Wiring::invoices("asked-later").effects([blind]);
    let mut world = World::plan(wiring).lease_ms(LEASE_MS).start().await;
    world.run().await;
    world.provider.fail(Rule::times(4, Fault::CloseAfter).to("/lookup/settlements"));
    world.pay_many(1, 4, 2).await;
    world.until("all to be held", async || world.effects_in("held").await == 4).await;
    let changes = [
        ("reference: \"{{ event.id }}\"", "reference: \"{{ effect.key }}\""),
        ("# lookup: { ", "lookup: { "),
        ("on_unknown: hold", "on_unknown: reconcile"),
    ];
    deploy(&mut world, &changes).await;
    let ask = ["effects", "resolve", "--effect", "settle", "--as", "lookup"];
    world.overrides_many(&ask, 4).await;
    world.until_count("all to be held again", OTHERWISE, 4).await;
    let not_found = "SELECT count(*) FROM oncely.attempt WHERE outcome = 'not_found'";
    assert_eq!(world.count(not_found).await, 4);
    // What is sent from now on can be found.
    world.provider.fail(Rule::times(2, Fault::CloseAfter).to("/lookup/settlements"));
    world.pay_many(5, 2, 2).await;
    world.until("both found", async || world.effects_in("done").await == 2).await;
    assert_eq!(world.provider.counts().applied, 6, "each took effect once");
    resolve(&world, "settle", 4).await;
    world.settled().await;
    world.check_invariants().await;
}

/// Under its new name it knows nothing of what it did under the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r27_a_connector_by_a_new_name_does_not_do_all_again() {
    let mut world = World::plan(Wiring::invoices("named").effects([charge()])).start().await;
    world.run().await;
    world.pay_many(1, 4, 2).await;
    world.settled().await;
    world.stop_all().await;
    let before = world.wiring.name.clone();
    world.sql("UPDATE oncely.connector SET registered_at = now() - interval '1 hour'").await;
    world.wiring.name = format!("{before}-anew");
    world.write_wiring();
    let checked = world.oncely(&["validate", "--live"]).await;
    assert_eq!((checked.code, &checked.json["findings"][0]["code"]), (Some(78), &"E056".into()));
    let refused = world.spawn(&[]);
    assert_eq!(world.workers[refused].wait_exit(BOUND).await, Some(78));
    let log = world.workers[refused].log();
    assert!(log.contains("error[E056]") && log.contains(&format!("`scope: {before}`")), "{log}");
    // As it says.
    world.wiring.decode = format!("{{ format: json }}\nscope: {before}").leak();
    world.write_wiring();
    assert!(world.oncely(&["validate", "--live"]).await.ok);
    world.run().await;
    world.pay_many(5, 2, 2).await;
    world.settled().await;
    assert_eq!(world.provider.counts().applied, 6);
    world.check_invariants().await;
}

/// What is read again by other ids is done again: a rewind is told so, and a file as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r27_a_rewind_goes_behind_no_change_of_identity_unasked() {
    let mut world = World::plan(Wiring::invoices("other-ids").effects([charge()])).start().await;
    world.run().await;
    world.pay_many(1, 4, 2).await;
    world.settled().await;
    world.stop_all().await;
    let (name, identity) = (world.wiring.name.clone(), world.wiring.identity);
    world.wiring.identity = "{ id: event.id, fingerprint: [event.type] }";
    world.write_wiring();
    let checked = world.oncely(&["validate", "--live"]).await;
    assert!(checked.ok && checked.json["findings"][0]["code"] == "W109", "{checked:?}");
    let worker = world.run().await;
    assert!(world.workers[worker].log().contains("events get other ids than they had"));
    let rewind = ["rewind", &name, "--to", "earliest", "--reason", "x"];
    let refused = world.oncely(&[&rewind[..], &["--yes"]].concat()).await;
    assert_eq!(refused.code, Some(1));
    assert!(refused.errors.contains("tenant `event.account`"), "{refused:?}");
    let preview = world.oncely(&[&rewind[..], &["--as-new"]].concat()).await;
    assert!(preview.ok && preview.json["done"] == false, "{preview:?}");
    assert_eq!(preview.json["partitions"][0]["goes_back_to"], 0);
    // With the file of before all is known again.
    world.stop_all().await;
    world.wiring.identity = identity;
    world.write_wiring();
    world.run().await;
    world.stop_sampling().await;
    world.overrides_many(&rewind[..4], 2).await;
    world.settled().await;
    assert_eq!(world.provider.counts().applied, 4);
    world.check_invariants().await;
}

/// A key that is made otherwise than it was tells nothing of what was done under the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r27_what_is_on_record_under_another_key_is_not_missing() {
    let wiring = Wiring::invoices("rekeyed").effects([charge(), usage()]);
    let mut world = World::plan(wiring).start().await;
    world.run().await;
    world.pay_many(1, 3, 2).await;
    world.settled().await;
    world.stop_all().await;
    let files = [
        // One of the two is made otherwise, then the other one.
        (0, "key: event.data.invoice", "key: [event.data.invoice, event.type]", "charge"),
        (1, "key: event.id", "key: [event.id, event.type]", "usage"),
    ];
    for (effect, key, other, id) in files {
        world.wiring.effects[effect].replace(key, other);
        world.write_wiring();
        let name = world.wiring.name.clone();
        let missing = ["replay", &name, "--all", "--effects", "missing", "--reason", "x", "--yes"];
        let said = world.oncely(&missing).await;
        assert_eq!(said.json["outcomes"]["refused"], 3, "{said:?}");
        assert!(said.json.to_string().contains(&format!("effects.{id}: it is on record")));
        world.wiring.effects[effect].replace(other, key);
    }
    world.write_wiring();
    world.run().await;
    assert_eq!(world.provider.counts().applied, 3);
    world.check_invariants().await;
}
