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
use super::sweep::Takeover;
use super::{PgConnection, Session, Settings, migrate, share, sweep};

/// A cluster with the schema in it.
pub(crate) struct World {
    cluster: Cluster,
}

impl World {
    /// What the role of a processor is given.
    pub(crate) const GRANTS: &str =
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/grants.sql"));

    pub(crate) async fn new() -> Self {
        let cluster = Cluster::start(&PostgresOptions::quick()).await.unwrap();
        let world = Self { cluster };
        let owner = Settings::parse(&world.cluster.url("postgres")).unwrap();
        migrate::up(&mut owner.connect("test").await.unwrap()).await.unwrap();
        world.sql("CREATE ROLE processor LOGIN").await;
        world.sql(Self::GRANTS).await;
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

    /// With the rights of a processor, and no others: so every query is tried with them.
    pub(crate) async fn connect(&self) -> PgConnection {
        Settings::parse(&self.url()).unwrap().connect("test").await.unwrap()
    }

    pub(crate) fn url(&self) -> String {
        self.url_as("processor")
    }

    pub(crate) fn url_as(&self, role: &str) -> String {
        let url = self.cluster.url("postgres");
        let (_, place) = url.split_once('@').unwrap();
        format!("postgres://{role}@{place}")
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

pub(super) fn key(n: u8) -> Key {
    Key::from_bytes([n; 16])
}

/// What an event writes that owes these effects; those in `new` have no row yet.
pub(super) fn owing(event: u8, effects: &[u8], new: &[u8]) -> Plan {
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
pub(super) async fn write(tx: &mut PgConnection, plan: &Plan) -> Written {
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

/// K1: what the outcome of a worker wakes that is on record as dead is for those who live, and at once.
#[tokio::test]
async fn k1_what_a_dead_workers_outcome_wakes_is_due_and_not_forgotten() {
    let world = World::new().await;
    let mut connection = world.connect().await;
    let c = &mut connection;
    let (first, second, worker) = (key(0x11), key(0x12), Uuid::from_u128(7));
    world
        .sql(&format!(
            "INSERT INTO oncely.effect (key, event, lane, request_hash, connector, ordinal, due_at, status, name,
                tenant, business_id, after_keys)
             VALUES ('{first}', '{first}', '{first}', '{first}', 1, 0, now(), 'waiting', 'e', 't', 'b', NULL),
                    ('{second}', '{first}', '{first}', '{second}', 1, 1, NULL, 'waiting', 'e', 't', 'b', '{{{first}}}')"
        ))
        .await;
    let claimed = claim(c, worker).await;
    let done = Settlement { status: Status::Done, ..seen(&claimed, OutcomeClass::Done) };
    world.sql("UPDATE oncely.worker SET dead_at = now()").await;
    settle::settle(c, worker, &[done]).await.unwrap();
    let claiming =
        settle::Claiming { worker, connector_id: 1, take_slot: &|_| true, is_line: &|_| false };
    let woken = settle::wake(c, &[first], Some(claiming)).await.unwrap();
    assert!(woken.due && woken.claimed.is_empty());
    let status =
        "SELECT status || coalesce(' ' || (due_at <= now()), '') FROM oncely.effect ORDER BY key";
    assert_eq!(world.text(status).await, "done waiting true");
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

/// A network that has forgotten connections tells nobody. What one session finds out after its patience is over, the
/// others need not find out one after the other.
#[tokio::test]
async fn a_session_that_got_no_answer_and_then_one_spares_the_others_the_wait() {
    let world = World::new().await;
    let settings = Settings::parse(&world.url()).unwrap();
    let [mut one, mut other] = ["one", "other"].map(|task| Session::new(settings.clone(), task));
    let lives = [pid(&mut one).await, pid(&mut other).await];
    one.failed(&StoreError::silent()).await;
    assert_eq!(pid(&mut other).await, lives[1], "nobody has answered yet: the server may be away");
    let new = pid(&mut one).await;
    assert_ne!(new, lives[0]);
    assert_ne!(pid(&mut other).await, lives[1]);
    assert_eq!(pid(&mut one).await, new, "its own is new already");
}

async fn pid(session: &mut Session) -> i32 {
    let connection = session.connection().await.unwrap();
    sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(connection).await.unwrap()
}
