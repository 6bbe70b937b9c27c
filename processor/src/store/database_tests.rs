//! Queries on a real database of their own.

use oncely_core::decide::{EffectNew, Ending, InboxNew, Place, Plan};
use oncely_core::effect::order::Turn;
use oncely_core::effect::outcome::OutcomeClass;
use oncely_core::effect::status::Status;
use oncely_core::fingerprint::Fingerprint;
use oncely_core::key::Key;
use oncely_rig::postgres::{Cluster, PostgresOptions};
use sqlx::{Connection as _, Executor as _};
use uuid::Uuid;

use super::admin::audit::Change;
use super::admin::resolve::{self, Resolution};
use super::admin::{effects, events, totals};
use super::batch::{self, Written};
use super::claim::{self, Claim};
use super::error::{NextStep, StoreError};
use super::settle::{self, Settlement};
use super::sweep::{Takeover, Walk};
use super::{PgConnection, Session, Settings, migrate, share, sweep};

/// A cluster with the schema in it.
pub(crate) struct World {
    cluster: Cluster,
}

impl World {
    pub(crate) async fn new() -> Self {
        let cluster = Cluster::start(&PostgresOptions::quick()).await.unwrap();
        let world = Self { cluster };
        let mut connection = world.connect().await;
        migrate::up(&mut connection).await.unwrap();
        world
            .sql(
                "INSERT INTO oncely.connector (name, scope, group_name, effects)
                 VALUES ('c', 'c', 'g', '{e}')",
            )
            .await;
        world.sql(
            "INSERT INTO oncely.source (connector, cluster_id, topic_id, topic) VALUES (1, 'k', 'i', 't')",
        )
        .await;
        world
    }

    pub(crate) async fn connect(&self) -> PgConnection {
        Settings::parse(&self.url()).unwrap().connect("test").await.unwrap()
    }

    pub(crate) fn url(&self) -> String {
        self.cluster.url("postgres")
    }

    pub(crate) async fn sql(&self, statements: &str) -> Vec<oncely_rig::postgres::Row> {
        let mut wire = self.cluster.connect("postgres").await.unwrap();
        wire.run(statements).await.unwrap()
    }

    pub(crate) async fn text(&self, statement: &str) -> String {
        let rows = self.sql(statement).await;
        let values = rows.iter().map(|row| row[0].clone().unwrap_or_default());
        values.collect::<Vec<_>>().join(" ")
    }
}

const RETENTION_MS: u64 = 1_000_000;

fn key(n: u8) -> Key {
    Key::from_bytes([n; 16])
}

/// What an event writes that owes these effects; those in `new` have no row yet.
fn owing(event: u8, effects: &[u8], new: &[u8]) -> Plan {
    let mut plan = Plan::default();
    let keys: Vec<Key> = effects.iter().copied().map(key).collect();
    let place = Place { source: 1, partition: 0, offset: event.into() };
    let row = InboxNew {
        fingerprint: Fingerprint(key(event)),
        entity: None,
        place,
        ending: Ending::Applied,
        tenant: "t".into(),
        moved: None,
        effects: keys,
    };
    plan.inbox.insert(key(event), row);
    for effect in new {
        let effect_new = EffectNew {
            event: key(event),
            lane: key(event),
            version: 0,
            rule: 0,
            tenant: "t".into(),
            business_id: "b".into(),
            request_hash: key(*effect),
            request: None,
            undoes: None,
            after: Vec::new(),
            turn: Turn::Ready,
            suspect: false,
        };
        plan.effects.insert(key(*effect), effect_new);
    }
    plan
}

/// The part of a batch that counts here; effects are done at once.
async fn write(tx: &mut PgConnection, plan: &Plan) -> Written {
    for (key, effect) in &plan.effects {
        let event = effect.event;
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
            "INSERT INTO oncely.effect (key, event, lane, request_hash, connector, attempts, ordinal,
                status, settled_at, name, tenant, business_id)
             VALUES ('{key}', '{event}', '{event}', '{key}', 1, 1, 0, 'done', now(), 'e', 't', 'b');
             INSERT INTO oncely.attempt (effect, fence, worker, outcome)
             VALUES ('{key}', 1, '{event}', 'done')"
        )))
        .execute(&mut *tx)
        .await
        .unwrap();
    }
    if share::share_effects(tx, plan).await.unwrap() == Written::LostRace {
        return Written::LostRace;
    }
    batch::write_inbox(tx, plan).await.unwrap()
}

impl World {
    /// Makes events older than the retention.
    async fn age(&self, events: &[u8]) {
        for event in events {
            let statement = format!(
                "UPDATE oncely.inbox SET first_seen_at = now() - interval '1 day' WHERE key = '{}'",
                key(*event)
            );
            self.sql(&statement).await;
        }
    }

    async fn effects(&self) -> String {
        self.text("SELECT left(key::text, 2) || 'x' || owners FROM oncely.effect ORDER BY key")
            .await
    }
}

/// Looks at ten events that are older than the retention; gives how many were removed.
async fn remove(c: &mut PgConnection, walk: &mut Walk) -> i64 {
    sweep::remove_closed(c, 1, RETENTION_MS, 10, walk).await.unwrap().removed
}

#[tokio::test]
async fn an_effect_is_remembered_as_long_as_any_event_that_owes_it() {
    let world = World::new().await;
    let mut connection = world.connect().await;
    let c = &mut connection;
    // Effect 10 is the first event's alone; 11 is owed by both, 12 by the second alone.
    assert_eq!(write(c, &owing(1, &[0x10, 0x11], &[0x10, 0x11])).await, Written::All);
    assert_eq!(write(c, &owing(2, &[0x11, 0x12], &[0x12])).await, Written::All);
    assert_eq!(world.effects().await, "10x1 11x2 12x1");
    world.age(&[1]).await;
    assert_eq!(remove(c, &mut Walk::default()).await, 1);
    assert_eq!(world.effects().await, "11x1 12x1", "the shared one is not forgotten");
    assert_eq!(world.text("SELECT count(*) FROM oncely.attempt").await, "2");

    // A third event finds it and shares it; it goes with the last owner, whoever that is.
    assert_eq!(write(c, &owing(3, &[0x11], &[])).await, Written::All);
    world.age(&[3]).await;
    assert_eq!(remove(c, &mut Walk::default()).await, 1);
    assert_eq!(world.effects().await, "11x1 12x1");
    world.age(&[2]).await;
    assert_eq!(remove(c, &mut Walk::default()).await, 1);
    assert_eq!(world.effects().await, "");
    assert_eq!(world.text("SELECT count(*) FROM oncely.attempt").await, "0");
    assert_eq!(write(c, &owing(4, &[0x11], &[])).await, Written::LostRace, "it is gone");
}

#[tokio::test]
async fn owners_of_one_batch_and_of_one_slice_are_counted_each() {
    let world = World::new().await;
    let mut connection = world.connect().await;
    let c = &mut connection;
    let mut both = owing(1, &[0x11], &[0x11]);
    both.inbox.extend(owing(2, &[0x11], &[]).inbox);
    assert_eq!(write(c, &both).await, Written::All);
    assert_eq!(world.effects().await, "11x2");
    world.age(&[1, 2]).await;
    assert_eq!(remove(c, &mut Walk::default()).await, 2);
    assert_eq!(world.effects().await, "");
}

#[tokio::test]
async fn an_event_that_shares_an_effect_while_retention_runs_keeps_it() {
    let world = World::new().await;
    let mut connection = world.connect().await;
    assert_eq!(write(&mut connection, &owing(1, &[0x11], &[0x11])).await, Written::All);
    world.age(&[1]).await;
    let mut sharing = connection.begin().await.unwrap();
    assert_eq!(write(&mut sharing, &owing(2, &[0x11], &[])).await, Written::All);
    let mut other = world.connect().await;
    let mut walk = Walk::default();
    let removing = remove(&mut other, &mut walk);
    let committing = async {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        while world.text(waits).await == "0" {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        sharing.commit().await.unwrap();
    };
    let (removed, ()) = tokio::join!(removing, committing);
    assert_eq!(removed, 1);
    assert_eq!(world.effects().await, "11x1");
}

#[tokio::test]
async fn b25_old_events_that_must_stay_do_not_stand_before_those_that_may_go() {
    let world = World::new().await;
    let mut connection = world.connect().await;
    let c = &mut connection;
    // The oldest 25 have an effect each that a person has to resolve; of 12 others everything is closed.
    for event in 1..=37 {
        assert_eq!(write(c, &owing(event, &[event], &[event])).await, Written::All);
        world.age(&[event]).await;
    }
    let open = format!("key <= '{}'", key(25));
    world
        .sql(&format!("UPDATE oncely.effect SET status = 'held', settled_at = NULL WHERE {open}"))
        .await;
    let mut walk = Walk::default();
    let mut removed = Vec::new();
    for _ in 0..4 {
        removed.push(remove(c, &mut walk).await);
    }
    assert_eq!(removed, [0, 0, 5, 7], "each was looked at once");
    assert_eq!(remove(c, &mut walk).await, 0, "nothing is left to look at");
    world.sql("UPDATE oncely.effect SET status = 'done', settled_at = now()").await;
    assert_eq!(remove(c, &mut walk).await, 0, "they were passed");
    assert_eq!(remove(c, &mut Walk::default()).await, 10, "and go when a walk begins anew");
}

#[tokio::test]
async fn requests_and_results_go_before_their_keys_but_for_what_may_still_be_read() {
    let world = World::new().await;
    let mut connection = world.connect().await;
    let c = &mut connection;
    for event in 1..=4 {
        assert_eq!(write(c, &owing(event, &[event], &[event])).await, Written::All);
        world.age(&[event]).await;
    }
    world.sql("UPDATE oncely.effect SET request = 'r', result = 'r'").await;
    // The second is not settled, the third is read by what is open, and the fourth may have to be undone.
    let second = "status = 'held', settled_at = NULL, result = NULL";
    world.sql(&format!("UPDATE oncely.effect SET {second} WHERE key = '{}'", key(2))).await;
    let after = format!("after_keys = ARRAY['{}']::uuid[]", key(3));
    world.sql(&format!("UPDATE oncely.effect SET {after} WHERE key = '{}'", key(2))).await;
    world.sql(&format!("UPDATE oncely.effect SET name = 'undone' WHERE key = '{}'", key(4))).await;
    let undoable = ["undone".to_owned()];
    let walk = &mut Walk::default();
    let looked = sweep::clear_results(c, 1, RETENTION_MS, 10, walk, &undoable).await.unwrap();
    assert_eq!((looked.events, looked.removed), (4, 2));
    let left = "SELECT left(key::text, 2) || coalesce('q' || encode(request, 'escape'), '')
                    || coalesce('=' || encode(result, 'escape'), '') FROM oncely.effect ORDER BY key";
    assert_eq!(world.text(left).await, "01 02qr 03qr=r 04=r");
    let looked = sweep::clear_results(c, 1, RETENTION_MS, 10, walk, &undoable).await.unwrap();
    assert_eq!(looked.events, 0, "each is looked at once");
}

/// What the next attempt of effect 11 knows of those before it.
async fn claim(c: &mut PgConnection, worker: Uuid) -> Claim {
    let alive = format!(
        "INSERT INTO oncely.worker (id, lease_ms, host) VALUES ('{worker}', 5000, 'h')
         ON CONFLICT DO NOTHING"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(alive)).execute(&mut *c).await.unwrap();
    let claimed = claim::claim_due(c, worker, 1, "e", 10).await.unwrap();
    claimed.into_iter().next().unwrap()
}

fn seen(claim: &Claim, class: OutcomeClass) -> Settlement {
    Settlement {
        key: claim.key,
        fence: claim.fence,
        lane: claim.lane,
        status: Status::Waiting,
        due_in_ms: 0,
        status_code: None,
        note: String::new(),
        was_unknown: false,
        asks: false,
        unknown_ms: None,
        result: None,
        seen: class.as_str(),
        succeeded: class == OutcomeClass::Done,
        on_record: true,
        tries: 1,
        failures: i32::from(class.is_failure()),
        lookups: 0,
    }
}

#[tokio::test]
async fn only_failures_are_counted_and_their_time_runs_while_they_go_on() {
    let world = World::new().await;
    let mut connection = world.connect().await;
    let c = &mut connection;
    let effect = key(0x11);
    let worker = Uuid::from_u128(7);
    world
        .sql(&format!(
            "INSERT INTO oncely.effect (key, event, lane, request_hash, connector, ordinal, due_at,
                status, name, tenant, business_id)
             VALUES ('{effect}', '{effect}', '{effect}', '{effect}', 1, 0, now(), 'waiting', 'e',
                't', 'b')"
        ))
        .await;
    let hours_pass = "UPDATE oncely.effect SET first_sent_at = first_sent_at - interval '2 hours',
        failing_since = failing_since - interval '2 hours'";
    let hours = 2 * 3_600_000;
    for class in [OutcomeClass::Throttled, OutcomeClass::Halted, OutcomeClass::Throttled] {
        let claimed = claim(c, worker).await;
        assert_eq!((claimed.history.failures, claimed.history.failing_ms), (0, None));
        settle::settle(c, worker, &[seen(&claimed, class)]).await.unwrap();
        world.sql(hours_pass).await;
    }
    let claimed = claim(c, worker).await;
    assert_eq!(claimed.history.attempts, 3);
    assert!(claimed.history.elapsed_ms >= hours, "the key window runs from the first send");
    let first = claimed.history.after_attempt(5, true);
    assert_eq!((first.failures, first.failing_ms), (1, 0));
    settle::settle(c, worker, &[seen(&claimed, OutcomeClass::NotApplied)]).await.unwrap();
    world.sql(hours_pass).await;

    let failing = claim(c, worker).await;
    assert!(failing.history.failing_ms.unwrap() >= hours);
    assert_eq!(failing.history.after_attempt(5, true).failures, 2);
    // Given back unsent, nothing has changed.
    claim::give_back(c, worker, &[(failing.key, failing.fence)]).await.unwrap();
    let again = claim(c, worker).await;
    assert!(again.history.failing_ms.unwrap() >= hours);
    settle::settle(c, worker, &[seen(&again, OutcomeClass::Throttled)]).await.unwrap();
    let after = claim(c, worker).await;
    assert_eq!((after.history.failures, after.history.failing_ms), (1, None));

    // A person's word begins the plan anew.
    settle::settle(c, worker, &[seen(&after, OutcomeClass::Unknown)]).await.unwrap();
    world.sql("UPDATE oncely.effect SET status = 'held', due_at = NULL").await;
    let change = Change { actor: "ana".into(), reason: "INC-7".into(), dry_run: false };
    let mut tx = c.begin().await.unwrap();
    let seen = effects::of_keys(&mut tx, &[effect]).await.unwrap().remove(0);
    resolve::resolve(&mut tx, &seen, &Resolution::Retry, &change).await.unwrap();
    tx.commit().await.unwrap();
    let anew = claim(c, worker).await;
    assert_eq!((anew.history.failures, anew.history.failing_ms), (0, None));
}

#[tokio::test]
async fn w5_how_long_it_is_quiet_counts_from_the_last_attempt_that_may_have_been_applied() {
    let world = World::new().await;
    let mut connection = world.connect().await;
    let c = &mut connection;
    let effect = key(0x11);
    let worker = Uuid::from_u128(7);
    world
        .sql(&format!(
            "INSERT INTO oncely.effect (key, event, lane, request_hash, connector, ordinal, due_at,
                status, name, tenant, business_id)
             VALUES ('{effect}', '{effect}', '{effect}', '{effect}', 1, 0, now(), 'waiting', 'e',
                't', 'b')"
        ))
        .await;
    let sent = claim(c, worker).await;
    assert_eq!((sent.history.quiet_ms, sent.history.asks), (None, false));
    let unknown = Settlement {
        status: Status::Unknown,
        was_unknown: true,
        asks: true,
        unknown_ms: Some(4_000),
        ..seen(&sent, OutcomeClass::Unknown)
    };
    settle::settle(c, worker, &[unknown]).await.unwrap();
    let asking = claim(c, worker).await;
    let quiet_ms = asking.history.quiet_ms.unwrap();
    assert!(quiet_ms >= 4_000 && asking.history.asks && asking.history.was_unknown);

    // A look-up moves nothing but its own count; nor does the death of a worker that only asked.
    let found_nothing = |claim: &Claim| Settlement {
        status: Status::Unknown,
        was_unknown: true,
        asks: true,
        tries: 0,
        failures: 0,
        lookups: 1,
        ..seen(claim, OutcomeClass::Unknown)
    };
    settle::settle(c, worker, &[found_nothing(&asking)]).await.unwrap();
    let again = claim(c, worker).await;
    assert_eq!((again.history.lookups, again.history.attempts), (1, 1));
    assert!(again.history.quiet_ms.unwrap() >= quiet_ms && again.history.failing_ms.is_some());
    let died = |claim: &Claim, sent| Takeover {
        key: claim.key,
        fence: claim.fence,
        status: "unknown",
        due_in_ms: 0,
        note: String::new(),
        asks: true,
        sent,
    };
    sweep::take_over(c, &[died(&again, false)]).await.unwrap();
    let third = claim(c, worker).await;
    assert!(third.history.quiet_ms.unwrap() >= quiet_ms);
    // That of one that may have sent it does.
    sweep::take_over(c, &[died(&third, true)]).await.unwrap();
    let fourth = claim(c, worker).await;
    assert!(fourth.history.quiet_ms.unwrap() < quiet_ms);

    // Believed to be nowhere, it begins anew; what failed before still counts.
    let resent = Settlement {
        status: Status::Waiting,
        was_unknown: false,
        asks: false,
        ..found_nothing(&fourth)
    };
    settle::settle(c, worker, &[resent]).await.unwrap();
    let anew = claim(c, worker).await;
    assert!(!anew.history.was_unknown && !anew.history.asks);
    assert_eq!((anew.history.failures, anew.history.failing_ms), (1, None));
    settle::settle(c, worker, &[seen(&anew, OutcomeClass::NotApplied)]).await.unwrap();
    assert_eq!(claim(c, worker).await.history.lookups, 0, "look-ups count from the last send");
}

#[tokio::test]
async fn a_copy_counts_once_however_often_and_by_whichever_partition_it_is_read() {
    let world = World::new().await;
    let mut connection = world.connect().await;
    let c = &mut connection;
    let copies = |places: &[(u8, i32, i64)]| {
        let repeats = places.iter().map(|(n, partition, offset)| {
            (key(*n), Place { source: 1, partition: *partition, offset: *offset })
        });
        Plan { repeats: repeats.collect(), ..Plan::default() }
    };
    // One id comes by two partitions in turn, several times in a batch; another in between.
    let all = [
        (1, 0, 10),
        (1, 1, 20),
        (2, 0, 11),
        (1, 0, 12),
        (1, 1, 21),
        (1, 0, 13),
        (2, 1, 22),
        (1, 1, 23),
    ];
    let times = "SELECT sum(times) FROM oncely.repeat GROUP BY key ORDER BY key";
    // In batches of any size, and with everything read again after any of them.
    for size in 1..=all.len() {
        world.sql("TRUNCATE oncely.repeat").await;
        for end in (0..all.len()).step_by(size) {
            let end = (end + size).min(all.len());
            batch::write_repeats(c, &copies(&all[..end])).await.unwrap();
            let from = end.saturating_sub(size + 1);
            batch::write_repeats(c, &copies(&all[from..end])).await.unwrap();
        }
        assert_eq!(world.text(times).await, "6 2", "in batches of {size}");
    }
    assert_eq!(write(c, &owing(1, &[], &[])).await, Written::All);
    let found = events::history(c, "t", key(1)).await.unwrap().inbox.unwrap();
    assert_eq!(found.repeats.unwrap().times, 6);
    let totals = totals::of_connector(c, "c").await.unwrap();
    assert_eq!((totals.applied, totals.repeats), (1, 6), "one event, however it came");
}

/// E1: a transaction that a starved process has left idle is ended by the server. That is the end of one
/// connection, and no refusal.
#[tokio::test]
async fn e1_a_transaction_that_was_left_idle_costs_a_connection_and_no_more() {
    let world = World::new().await;
    let mut session = Session::new(Settings::parse(&world.url()).unwrap(), "starved");
    let connection = session.connection().await.unwrap();
    connection.execute("SET idle_in_transaction_session_timeout = 50").await.unwrap();
    let mut tx = session.begin().await.unwrap();
    let there = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE '%starved%'";
    while world.text(there).await != "0" {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let error = StoreError::from(tx.execute("SELECT 1").await.unwrap_err());
    drop(tx);
    assert_eq!(error.next_step(), NextStep::Wait, "{error}");
    session.failed(&error).await;
    session.connection().await.unwrap().execute("SELECT 1").await.unwrap();
}
