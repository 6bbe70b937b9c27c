//! A person's word on many effects at once, while others work on them.

use oncely_rig::provider::{Fault, Rule};
use oncely_tests::ledger::Ending;
use oncely_tests::wiring::note;
use oncely_tests::{Wiring, World};
use serde_json::Value;

/// Commands that wait for a lock of somebody else.
const WAITS_FOR_LOCK: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'";

/// Calls that cannot be asked for, held one and all.
async fn held(name: &str, count: usize) -> (World, Vec<String>) {
    let wiring = Wiring::invoices(name).effects([note()]);
    let mut world = World::plan(wiring).start().await;
    world.run().await;
    world.provider.fail(Rule::times(count as u64, Fault::CloseBefore).to("/plain/notes"));
    let mut names = Vec::new();
    for number in 1..=count {
        // One after the other: a list says the oldest first.
        names.extend(world.pay_many(number, 1, 1).await);
        world.until("held", async || world.effects_in("held").await == number as i64).await;
    }
    world.looked().await;
    (world, names)
}

/// Locks the lane of an invoice, as a long transaction of somebody else does.
async fn locked(world: &World, name: &str) -> oncely_rig::postgres::Wire {
    let mut lock = world.postgres().connect(&world.name).await.unwrap();
    let lane = format!(
        "BEGIN; SELECT FROM oncely.entity AS e JOIN oncely.effect AS f ON f.lane = e.key
         WHERE f.business_id LIKE '%{name}%' FOR UPDATE OF e"
    );
    lock.run(&lane).await.unwrap();
    lock
}

/// Keys of the answer's rows by why they were left.
fn left(said: &Value) -> Vec<(String, Option<String>)> {
    let rows = said["rows"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    rows.iter().map(|row| (text(&row["key"]).unwrap(), text(&row["left"]))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p14_what_was_tried_again_since_it_was_listed_is_not_sent_by_an_old_list() {
    let (world, names) = held("old-list", 3).await;
    let second = world.key_of("note", &names[1]).await;
    let mut lock = locked(&world, &names[0]).await;
    let many =
        ["effects", "resolve", "--effect", "note", "--as", "retry", "--reason", "A", "--yes"];
    let meanwhile = async {
        world.until_count("the list to be at its first", WAITS_FOR_LOCK, 1).await;
        // Another person: it is sent, it takes effect, and its answer is lost.
        world.provider.fail(Rule::once(Fault::CloseAfter).to("/plain/notes"));
        world.overrides(&["effects", "resolve", &second, "--as", "retry"]).await;
        let again = "SELECT count(*) FROM oncely.effect WHERE attempts = 2 AND status = 'held'";
        world.until_count("the second to be held again", again, 1).await;
        lock.run("COMMIT").await.unwrap();
    };
    let (said, ()) = tokio::join!(world.oncely(&many), meanwhile);
    assert!(said.ok, "{said:?}");
    assert_eq!(said.json["changed"], 2, "{said:?}");
    world.overridden(2);
    let (key, why) = left(&said.json).into_iter().find(|(_, why)| why.is_some()).unwrap();
    assert_eq!(key, second);
    assert!(why.unwrap().contains("since it was listed"), "{said:?}");
    world.settled().await;
    assert_eq!(world.provider.read_log().unwrap().effects_at("/plain/notes"), 3);
    let mut world = world;
    world.owe("note", &names[1], Ending::Held);
    world.check_invariants().await;
}

/// Whoever gives it up does not know, and whoever redrives everything does not either: it is held once more, and only
/// a word on this very effect sends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r27_what_was_given_up_in_doubt_is_not_sent_by_a_redrive_of_everything() {
    let wiring = Wiring::invoices("given-up").effects([note()]);
    let mut world = World::plan(wiring).start().await;
    world.run().await;
    // The first one takes effect, and its answer is lost; the second one is refused.
    world.provider.fail(Rule::once(Fault::CloseAfter).to("/plain/notes"));
    let doubtful = world.pay_many(1, 1, 1).await.remove(0);
    world.until("held", async || world.effects_in("held").await == 1).await;
    world.provider.fail(Rule::once(Fault::status(400)).to("/plain/notes"));
    let refused = world.pay_many(2, 1, 1).await.remove(0);
    world.until("rejected", async || world.effects_in("rejected").await == 1).await;
    let key = world.key_of("note", &doubtful).await;
    world.overrides(&["effects", "resolve", &key, "--as", "rejected"]).await;
    let listed = world.oncely(&["dlq", "list"]).await;
    let suspects = |said: &Value, rows: &str| -> Vec<(bool, String)> {
        let of = |row: &Value| {
            (row["suspect"] == true, row["business_id"].as_str().unwrap_or_default().to_owned())
        };
        said[rows].as_array().unwrap().iter().map(of).collect()
    };
    for (is_suspect, id) in suspects(&listed.json, "parked") {
        assert_eq!(is_suspect, id.contains(&doubtful), "{listed:?}");
    }
    let all = ["dlq", "redrive", "--all", "--reason", "x", "--dry-run"];
    let dry = world.oncely(&all).await;
    assert_eq!(suspects(&dry.json, "rows").iter().filter(|(is, _)| *is).count(), 1, "{dry:?}");
    world.overrides_many(&["dlq", "redrive", "--all"], 2).await;
    let is = async |name: &str, status: &str| {
        let is_so = async || world.status_of("note", name).await.as_deref() == Some(status);
        world.until(status, is_so).await;
    };
    is(&refused, "done").await;
    is(&doubtful, "held").await;
    assert_eq!(world.provider.read_log().unwrap().effects_at("/plain/notes"), 2);
    world.overrides(&["effects", "resolve", &key, "--as", "retry"]).await;
    is(&doubtful, "done").await;
    world.owe("note", &doubtful, Ending::Again);
    world.owe("note", &refused, Ending::Done);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_that_is_locked_is_left_and_what_was_done_is_told() {
    let (world, names) = held("locked-lane", 3).await;
    let second = world.key_of("note", &names[1]).await;
    let mut lock = locked(&world, &names[1]).await;
    let many =
        ["effects", "resolve", "--effect", "note", "--as", "rejected", "--reason", "A", "--yes"];
    let said = world.oncely(&many).await;
    assert!(said.ok, "two of three are done: {said:?}");
    assert_eq!(said.json["changed"], 2, "{said:?}");
    world.overridden(2);
    let (key, why) = left(&said.json).into_iter().find(|(_, why)| why.is_some()).unwrap();
    assert_eq!(key, second);
    assert!(why.unwrap().contains("locked"), "{said:?}");
    lock.run("COMMIT").await.unwrap();
    let mut world = world;
    for name in [&names[0], &names[2]] {
        world.owe("note", name, Ending::Rejected);
    }
    world.owe("note", &names[1], Ending::Held);
    world.check_invariants().await;
}
