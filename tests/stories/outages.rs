//! What is away or full is waited for, in sight: nothing is lost, nothing runs without its claim on record,
//! and no event pays for it.

use std::time::Duration;

use oncely_rig::provider::{Fault, Rule};
use oncely_rig::proxy::Mode;
use oncely_tests::ledger::{Ending, Fate};
use oncely_tests::wiring::{charge, hook, note, receipt, settlement};
use oncely_tests::world::{BOUND, Worker};
use oncely_tests::{Event, Record, Wiring, World};

/// Room for the tables of a story, and little more.
const DISK: u64 = 48 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r31_too_many_open_effects_pause_the_intake_until_calls_have_caught_up() {
    let mut wiring = Wiring::invoices("backlog").effects([charge(), hook()]);
    (wiring.open_effects_max, wiring.offset_wait) = (40, "0s");
    let mut world = World::plan(wiring).start().await;
    let worker = world.run().await;
    world.provider_proxy.listener_off().await;
    // Three times what may be open, some of it before the first count after it.
    let paused = "oncely_intake_paused";
    world.pay_many(1, 30, 2).await;
    world.until("a pause", async || world.workers[worker].metric(paused, "").await == 1.0).await;
    world.pay_many(31, 60, 2).await;
    let read = "oncely_events_consumed_total";
    world
        .until("all to be read", async || world.workers[worker].metric(read, "").await == 90.0)
        .await;
    // Read and not decided, over several looks of everybody.
    let open = "SELECT count(*) FROM oncely.effect WHERE settled_at IS NULL";
    for _ in 0..3 {
        world.looked().await;
        assert_eq!(world.count(open).await, 60, "what was open before the pause");
    }
    let (code, _) = world.workers[worker].get("/healthz/ready").await.unwrap();
    assert_eq!(code, 200, "a pause is no fault of this process");
    assert_eq!(world.count("SELECT count(*) FROM oncely.parked").await, 0);
    // A process that joins sees for itself, and takes nothing either.
    let second = world.run().await;
    world.until("its pause", async || world.workers[second].metric(paused, "").await == 1.0).await;
    world.provider_proxy.listener_on().await.unwrap();
    world.settled().await;
    for number in [worker, second] {
        world
            .until("the end of it", async || world.workers[number].metric(paused, "").await == 0.0)
            .await;
    }
    assert!(world.workers[worker].log().contains("too many effects are open"));
    assert!(world.workers[worker].log().contains("calls have caught up"));
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e5_a_full_disk_is_waited_for() {
    let wiring = Wiring::invoices("full").effects([charge(), receipt(), note()]);
    let mut world = World::plan(wiring).small_disk(DISK).start().await;
    let first = world.run().await;
    world.run().await;
    for name in world.pay_many(1, 20, 2).await {
        world.owe("note", &name, Ending::DoneOrHeld);
    }
    world.settled().await;
    world.postgres().disk().unwrap().fill().unwrap();
    let full = "(53100)";
    let mut next = 21;
    // Pages that are there have room yet.
    while !world.workers.iter().any(|worker| worker.log().contains(full)) {
        for name in world.pay_many(next, 20, 2).await {
            world.owe("note", &name, Ending::DoneOrHeld);
        }
        next += 20;
        assert!(next < 5_000, "the disk is not full");
        world.looked().await;
    }
    // One dies meanwhile, and another begins.
    world.workers[first].kill9().await;
    world.spawn(&[]);
    world.looked().await;
    assert_eq!(world.count("SELECT count(*) FROM oncely.parked").await, 0);
    world.postgres().disk().unwrap().free().unwrap();
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_a_pooler_in_transaction_mode_each_effect_happens_once() {
    let wiring = Wiring::invoices("pooled").effects([charge(), receipt(), note(), hook()]);
    let mut world = World::plan(wiring).pooled().lease_ms(900).start().await;
    let first = world.run().await;
    let second = world.run().await;
    assert!(world.database_proxy.traffic().open > 0, "no way leads past the pooler");
    for name in world.pay_many(1, 30, 2).await {
        world.owe("note", &name, Ending::DoneOrHeld);
    }
    world.until("some done", async || world.effects_in("done").await >= 20).await;
    world.workers[first].kill9().await;
    world.run().await;
    for name in world.pay_many(31, 20, 2).await {
        world.owe("note", &name, Ending::DoneOrHeld);
    }
    // The next COMMIT goes through, and its answer is lost between worker and pooler.
    world.database_proxy.set(Mode::lose_commit());
    for name in world.pay_many(51, 20, 2).await {
        world.owe("note", &name, Ending::DoneOrHeld);
    }
    world.database_proxy.wait_cut(1, Duration::from_secs(30)).await.unwrap();
    world.database_proxy.set(Mode::Pass);
    // Every server connection goes, and the pooler makes new ones.
    world
        .sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .await;
    world.settled().await;
    let shared =
        world.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()");
    assert!(shared.await <= 8 + 4, "sessions share the pooler's connections");
    let log = world.workers[second].log();
    assert!(!log.contains("have no time-outs"), "the pooler gives its sessions their settings");
    world.check_invariants().await;
}

/// As after a failover that somebody else did: the old primary answers on the connections that are open, and
/// takes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e2_b31_a_demoted_primary_that_goes_on_answering_is_waited_out() {
    let wiring = Wiring::invoices("demoted").effects([charge(), note()]);
    let mut world = World::plan(wiring).lease_ms(900).own_postgres().start().await;
    world.run().await;
    world.run().await;
    world.pay_many(1, 10, 2).await;
    world.settled().await;
    // These are on their way, and how they end cannot be put on record at first.
    world.provider.hold_answers();
    for name in world.pay_many(11, 6, 2).await {
        world.owe("note", &name, Ending::DoneOrHeld);
    }
    world.provider.wait_held(12, BOUND).await.unwrap();
    let connections = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE 'oncely %'";
    assert!(world.count(connections).await > 0);
    demote(&world, "on").await;
    world.provider.release();
    let refused = |world: &World| {
        let mut logs = world.workers.iter().map(Worker::log);
        logs.all(|log| log.contains("25006"))
    };
    world.until("refusals of every worker", async || refused(&world)).await;
    for name in world.pay_many(17, 10, 2).await {
        world.owe("note", &name, Ending::DoneOrHeld);
    }
    // Several leases long: nothing can be claimed, so nothing is sent.
    let received = world.provider.counts().received;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(world.provider.counts().received, received, "no effect without a claim on record");
    assert_eq!(world.count("SELECT count(*) FROM oncely.inbox").await, 16, "nothing was written");
    assert_eq!(world.count("SELECT count(*) FROM oncely.parked").await, 0);
    assert!(world.workers.iter_mut().all(Worker::runs), "an outage ends no process");
    demote(&world, "off").await;
    world.settled().await;
    assert_eq!(world.count("SELECT count(*) FROM oncely.parked").await, 0);
    world.check_invariants().await;
}

async fn demote(world: &World, read_only: &str) {
    world.sql(&format!("ALTER SYSTEM SET default_transaction_read_only = {read_only}")).await;
    world.sql("SELECT pg_reload_conf()").await;
    // A connection learns of it between two statements.
    let wanted = format!(
        "SELECT count(*) FROM pg_settings WHERE name = 'default_transaction_read_only'
        AND setting = '{read_only}'"
    );
    world.until_count("the setting", &wanted, 1).await;
}

/// Somebody else locks the rows of two entities in the other order than a batch does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e6_a_batch_that_loses_in_a_deadlock_is_run_again() {
    const INVOICES: usize = 8;
    let wiring = Wiring::invoices("deadlock").effects([charge()]);
    let plan = World::plan(wiring).partitions(1).lease_ms(20_000).session_ms(30_000);
    let mut world = plan.env("ONCELY_SHUTDOWN_GRACE", "40s").start().await;
    let worker = world.run().await;
    let redos = async |world: &World| {
        world.workers[worker].metric("oncely_batch_redos_total", "cause=\"contention\"").await
    };
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND application_name LIKE 'oncely %' AND wait_event_type = 'Lock'";
    let lock = |order: &str| {
        let known = "SELECT 1 FROM oncely.entity WHERE version = 1";
        format!("{known} ORDER BY key {order} LIMIT 1 FOR UPDATE")
    };
    let mut other = world.postgres().connect(&world.name).await.unwrap();
    // The batch looks for a deadlock first, and so is the one that gives way.
    other.run("SET deadlock_timeout = '30s'").await.unwrap();
    let mut first = 1;
    while redos(&world).await == 0.0 {
        assert!(first < 20 * INVOICES, "a batch always came in pieces");
        let names = (first..first + INVOICES).map(World::invoice);
        let names: Vec<String> = names.collect();
        first += INVOICES;
        for name in &names {
            world.event(&Event::past_due(name, 1), 0, Fate::Applied).await;
        }
        world.settled().await;
        other.run(&format!("BEGIN; {}", lock("DESC"))).await.unwrap();
        // Written while nobody reads, so that they come as one batch.
        world.workers[worker].freeze();
        for name in &names {
            world.owe("charge", name, Ending::Done);
            world.event(&Event::paid(name, 2), 0, Fate::Applied).await;
        }
        world.workers[worker].thaw();
        world.until("a batch that waits", async || world.count(waits).await > 0).await;
        other.run(&lock("ASC")).await.unwrap();
        other.run("COMMIT").await.unwrap();
        world.settled().await;
    }
    assert_eq!(world.count("SELECT count(*) FROM oncely.parked").await, 0, "no event pays for it");
    world.check_invariants().await;
}

/// The most memory that a process had resident, in megabytes.
fn memory_peak_mb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() / 1_024
}

/// What is read and cannot be written stays within its bound by bytes, whatever lies in the topic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b39_large_records_of_many_partitions_wait_outside_while_the_database_is_silent() {
    const PARTITIONS: i32 = 12;
    const EACH: usize = 18;
    const PADDING: usize = 900_000;
    let wiring = Wiring::invoices("large").effects([charge()]);
    let mut world = World::plan(wiring).partitions(PARTITIONS.unsigned_abs()).start().await;
    let worker = world.run().await;
    world.pay_many(1, 12, PARTITIONS).await;
    world.settled().await;
    let pid = world.workers[worker].pid();
    let before = memory_peak_mb(pid);
    world.database_proxy.set(Mode::StallBoth);
    for (number, partition) in (13..).zip((0..PARTITIONS).cycle()).take(EACH * 12) {
        let name = World::invoice(number);
        let event = Event::paid(&name, 1);
        let mut json = event.json();
        json["data"]["padding"] = "x".repeat(PADDING).into();
        world.owe("charge", &name, Ending::Done);
        let record = Record::of(json.to_string()).to(partition);
        world.produce(&record, Some(&event.id), Fate::Applied).await;
    }
    // The bound is 32 MiB: it is reached, and what is beyond it is not taken.
    let read = async || world.workers[worker].metric("oncely_events_consumed_total", "").await;
    world.until("as much as it may hold", async || read().await >= 12.0 + 36.0).await;
    for _ in 0..5 {
        world.looked().await;
        assert!(read().await <= 12.0 + 50.0, "{} records of 0.9 MB are held", read().await - 12.0);
    }
    let peak = memory_peak_mb(pid);
    assert!(peak < before + 100, "{before} MB before, {peak} MB at most");
    world.database_proxy.set(Mode::Pass);
    world.settled().await;
    let peak = memory_peak_mb(pid);
    // The bound twice, in the client and here, and what allocators keep; all of it at once would be 194 MB more.
    assert!(peak < before + 160, "{before} MB before, {peak} MB while all of it was read");
    assert_eq!(world.provider.counts().received, 228);
    world.check_invariants().await;
}

/// A VACUUM FULL that waits for a reader makes everybody wait who comes after it. Somebody has to say so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e3_a_statement_that_everybody_waits_behind_is_named() {
    let mut world = World::plan(Wiring::invoices("vacuum").effects([hook()])).start().await;
    let worker = world.run().await;
    for number in [1, 2] {
        world.owe("hook", &World::invoice(number), Ending::Done);
    }
    world.event(&Event::paid(&World::invoice(1), 1), 0, Fate::Applied).await;
    world.settled().await;
    let mut reader = world.postgres().connect(&world.name).await.unwrap();
    reader.run("BEGIN; SELECT count(*) FROM oncely.failover").await.unwrap();
    let mut ddl = world.postgres().connect(&world.name).await.unwrap();
    let vacuum =
        tokio::spawn(async move { ddl.run("VACUUM FULL oncely.failover").await.map(drop) });
    world.event(&Event::paid(&World::invoice(2), 1), 0, Fate::Applied).await;
    let named = |log: &str| {
        let of_it = |line: &&str| line.contains("all work waits behind it");
        let named = |line: &str| {
            ["VACUUM FULL oncely.failover", "idle in transaction", "pg_terminate_backend"]
                .iter()
                .all(|part| line.contains(part))
        };
        log.lines().find(of_it).is_some_and(named)
    };
    world.until("it to be named", async || named(&world.workers[worker].log())).await;
    let ready = async || world.workers[worker].get("/healthz/ready").await.unwrap();
    world.until("no readiness", async || ready().await.0 == 503).await;
    let (_, why) = ready().await;
    assert!(why.contains("database"), "{why}");
    reader.run("COMMIT").await.unwrap();
    vacuum.await.unwrap().unwrap();
    world.settled().await;
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h8_a_provider_that_cannot_be_asked_is_not_taken_for_one_that_found_nothing() {
    let wiring = Wiring::invoices("mumbling").effects([settlement()]);
    let mut world = World::plan(wiring).lease_ms(900).start().await;
    world.provider.fail(Rule::times(4, Fault::CloseAfter).to("/lookup/settlements"));
    let silent = [
        Fault::status(503),
        Fault::status(404),
        Fault::CloseBefore,
        Fault::HalfBody,
        Fault::GarbledBody,
    ];
    // For longer than it takes until "not found" would be believed: after twenty in a row it is asked by one
    // at a time, seconds apart.
    for fault in silent.iter().cycle().take(22).cloned() {
        world.provider.fail(Rule::once(fault).to("/lookup/settlements").lookups());
    }
    world.run().await;
    world.pay_many(1, 4, 2).await;
    world.settled().await;
    assert_eq!(world.effects_in("done").await, 4);
    assert_eq!(world.provider.counts().received, 4);
    let silent = "SELECT count(*) FROM oncely.attempt WHERE outcome = 'unanswered'";
    assert_eq!(world.count(silent).await, 22);
    world.check_invariants().await;
}

/// What is held tries nothing: of an effect of which no more than that is left, an open circuit is no news, and what
/// comes next finds out that the provider is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_circuit_of_an_effect_of_which_all_is_held_is_no_news() {
    let mut world = World::plan(Wiring::invoices("all-held").effects([note()])).start().await;
    let worker = world.run().await;
    // As many in a row as open a circuit, and some that find it open.
    let lost = 22;
    world.provider.fail(Rule::times(lost, Fault::CloseAfter).to("/plain/notes"));
    for name in world.pay_many(1, 22, 2).await {
        world.owe("note", &name, Ending::Assumed);
    }
    let circuits = "SELECT count(*) FROM oncely.circuit WHERE effect = 'note' AND cause = 'outage'";
    world.until_count("an open circuit", circuits, 1).await;
    world.until("all to be held", async || world.effects_in("held").await == 22).await;
    let open = "oncely_effect_circuit_open";
    world.until("no news", async || world.workers[worker].metric(open, "note").await == 0.0).await;
    assert_eq!(world.count(circuits).await, 1, "it is open all the same");
    assert!(world.workers[worker].is_ready().await);
    world.pay_many(23, 4, 2).await;
    world.until("what came next", async || world.effects_in("done").await == 4).await;
    world.until_count("it to be closed", circuits, 0).await;
    world.overrides_many(&["effects", "resolve", "--effect", "note", "--as", "done"], 22).await;
    world.settled().await;
    world.check_invariants().await;
}

/// The heartbeat has its session, and so it lives; others have none. Who, is said where an operator looks first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_with_too_few_connections_is_not_ready_and_says_whose_are_missing() {
    let mut world = World::plan(Wiring::invoices("few").effects([charge()])).start().await;
    let role = format!("\"{}\"", world.wiring.name);
    let grants =
        include_str!("../../deploy/grants.sql").replace("TO processor", &format!("TO {role}"));
    world.sql(&format!("CREATE ROLE {role} LOGIN CONNECTION LIMIT 4; {grants}")).await;
    let url = world.postgres().url(&world.name);
    let url = url.replace("//postgres@", &format!("//{}@", world.wiring.name));
    world.pay_many(1, 4, 2).await;
    let worker = world.spawn(&[("ONCELY_DATABASE_URL", &url)]);
    let told = async || match world.workers[worker].get("/healthz/ready").await {
        Some((503, text)) => text,
        Some(_) | None => String::new(),
    };
    let named = "the database is away for ";
    world.until("parts without a session", async || told().await.contains(named)).await;
    let text = told().await;
    assert!(text.contains("53300"), "{text}");
    let live = world.workers[worker].get("/healthz/live").await.map(|(code, _)| code);
    assert_eq!(live, Some(200), "a restart would mend nothing");
    world.sql(&format!("ALTER ROLE {role} CONNECTION LIMIT -1")).await;
    world.wait_ready(worker).await;
    world.settled().await;
    world.check_invariants().await;
    world.sql(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}
