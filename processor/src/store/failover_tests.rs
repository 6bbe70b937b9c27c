//! A database that says of itself that it is elsewhere, on a real server: what is put on record, and what is
//! taken back with it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use oncely_core::progress::Witness;
use sqlx::raw_sql;
use uuid::Uuid;

use super::database_tests::World;
use super::failover::{self, Recorded, Told, Whereabouts};
use super::lease::{self, Pulse};
use super::progress::{self, END_UNKNOWN, Raise, Topic};
use super::{Session, Settings, claim};

const LEASE_MS: i32 = 5_000;

/// A process: its settings, and what it was told.
fn process(world: &World, lossless: bool) -> (Settings, Arc<Mutex<Vec<Told>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let whereabouts = Whereabouts::new(lossless, LEASE_MS, move |one: &Told| {
        heard.lock().unwrap().push(*one);
    });
    (Settings::parse(&world.url()).unwrap().watched(whereabouts), told)
}

/// From now on the server is not where the database has on record that it is.
async fn moves(world: &World) {
    world
        .sql(
            "UPDATE oncely.failover SET timeline = timeline + 6 WHERE number =
        (SELECT max(number) FROM oncely.failover)",
        )
        .await;
}

async fn effect(world: &World, key: u8, status: &str, more: &str) {
    let statement = format!(
        "INSERT INTO oncely.effect (key, event, lane, request_hash, connector, ordinal, status, name,
            tenant, business_id, worker, fence, due_at, settled_at, first_sent_at)
         SELECT k, k, k, k, 1, 0, '{status}', 'e', 't', 'b', {more}
         FROM (SELECT repeat('{key:02x}', 16)::uuid AS k) AS k"
    );
    world.sql(&statement).await;
}

fn topic() -> Topic {
    let text = |text: &str| text.to_owned();
    Topic { group: text("g"), cluster_id: text("k"), topic: text("t"), topic_id: text("i") }
}

fn raise(epoch: i64, position: i64) -> Raise {
    let witness = Some(Witness::of(position - 1, None, None, None));
    let (topic, topic_id) = ("t".to_owned(), "i".to_owned());
    Raise { topic, topic_id, partition: 0, epoch, position, witness }
}

#[tokio::test]
async fn w10_e3_what_may_be_lost_is_taken_back_once_by_whoever_is_first() {
    let world = World::new().await;
    let (settings, told) = process(&world, false);
    let mut session = Session::new(settings.clone(), "one");
    let mut other = Session::new(settings, "other");
    let worker = Uuid::from_u128(7);
    let c = session.connection().await.unwrap();
    lease::start(c, worker, LEASE_MS, "host").await.unwrap();
    progress::create(c, &topic(), 0, 5, None).await.unwrap();
    other.connection().await.unwrap();
    assert!(told.lock().unwrap().is_empty(), "the first server is no news");
    for (key, status, more) in [
        (1, "waiting", "NULL, NULL, now(), NULL, NULL"),
        (2, "claimed", "repeat('77', 16)::uuid, 9, NULL, NULL, now() - interval '1 hour'"),
        (3, "done", "NULL, NULL, NULL, now(), NULL"),
        (4, "waiting", "NULL, NULL, 'infinity', NULL, NULL"),
        (5, "waiting", "NULL, NULL, NULL, NULL, NULL"),
    ] {
        effect(&world, key, status, more).await;
    }
    moves(&world).await;
    // Behind a pooler a connection stays: nothing is claimed and no position rises before it has looked.
    assert_eq!(
        lease::alive(session.connection().await.unwrap(), worker).await.unwrap(),
        Pulse::Dead
    );
    let c = session.connection().await.unwrap();
    assert!(claim::claim_due(c, worker, 1, "e", 9).await.unwrap().is_empty());
    progress::raise(c, "g", "k", (uuid::Uuid::nil(), &[raise(1, 8)])).await.unwrap();
    assert_eq!(world.text("SELECT position FROM oncely.progress").await, "5");

    session.confirm().await.unwrap();
    other.confirm().await.unwrap();
    assert_eq!((session.generation(), other.generation()), (1, 1));
    let heard = told.lock().unwrap().clone();
    assert!(matches!(heard[0], Told::Begun { .. }), "{heard:?}");
    let Told::Recorded(Recorded { number, before, now, lossless, positions, effects }) = heard[1]
    else {
        panic!("{heard:?}")
    };
    assert_eq!((number, lossless, positions, effects), (2, false, 1, 3));
    assert_eq!((before.timeline - now.timeline, before.system), (6, now.system));
    assert_eq!(heard[2..], [Told::Noticed { number: 2, lost: true }], "told once in a process");

    let rows = "SELECT left(key::text, 2) || status || suspect::int || (worker IS NULL)::int
        || coalesce((due_at > now() + interval '4 s')::int::text, '-')
        || coalesce((unknown_at > now() + interval '4 s')::int::text, '-')
        || coalesce((first_sent_at < now() - interval '30 min')::int::text, '-')
        FROM oncely.effect ORDER BY key";
    let rows = world.text(rows).await;
    let wanted = "01waiting11110 02unknown11111 03done01--- 04waiting011-- 05waiting11-10";
    assert_eq!(rows, wanted, "open, on its way, final, in the outbox, blocked");
    let c = session.connection().await.unwrap();
    assert_eq!(lease::beat(c, worker).await.unwrap(), Pulse::Dead, "it goes on under a new id");
    let row = progress::load(c, &topic()).await.unwrap().remove(0);
    assert!(row.epoch > 1_000_000);
    assert_eq!(row.suspect, Some(END_UNKNOWN));
    // An old tracker raises nothing; up to the topic's end everything is in doubt, and then nothing.
    progress::raise(c, "g", "k", (uuid::Uuid::nil(), &[raise(1, 8)])).await.unwrap();
    progress::bound_suspect(c, &topic(), (0, row.epoch), 9).await.unwrap();
    progress::bound_suspect(c, &topic(), (0, row.epoch), 20).await.unwrap();
    let stands = "SELECT position || '/' || coalesce(suspect::text, '-') FROM oncely.progress";
    assert_eq!(world.text(stands).await, "5/9");
    progress::raise(c, "g", "k", (uuid::Uuid::nil(), &[raise(row.epoch, 8)])).await.unwrap();
    assert_eq!(world.text(stands).await, "8/9");
    progress::raise(c, "g", "k", (uuid::Uuid::nil(), &[raise(row.epoch, 9)])).await.unwrap();
    assert_eq!(world.text(stands).await, "9/-");
    // A process that starts later finds it on record.
    let (settings, told) = process(&world, false);
    let mut late = Session::new(settings, "late");
    late.connection().await.unwrap();
    assert_eq!((late.generation(), told.lock().unwrap().len()), (0, 0));
}

#[tokio::test]
async fn w10_a_failover_that_keeps_everything_takes_nothing_back() {
    let world = World::new().await;
    let (settings, told) = process(&world, true);
    let mut session = Session::new(settings, "one");
    let c = session.connection().await.unwrap();
    lease::start(c, Uuid::from_u128(7), LEASE_MS, "host").await.unwrap();
    progress::create(c, &topic(), 0, 5, None).await.unwrap();
    moves(&world).await;
    session.confirm().await.unwrap();
    assert_eq!(session.generation(), 0);
    let c = session.connection().await.unwrap();
    assert_eq!(lease::beat(c, Uuid::from_u128(7)).await.unwrap(), Pulse::Alive);
    let row = progress::load(c, &topic()).await.unwrap().remove(0);
    assert_eq!((row.epoch, row.suspect), (1, None));
    let heard = told.lock().unwrap().clone();
    assert!(matches!(heard[1], Told::Recorded(Recorded { lossless: true, .. })), "{heard:?}");
    assert_eq!(heard[2..], [Told::Noticed { number: 2, lost: false }]);
}

#[tokio::test]
async fn w10_a_recording_outlives_the_patience_of_whoever_began_it() {
    let world = World::new().await;
    let (settings, _) = process(&world, false);
    let mut session = Session::new(settings.clone(), "one");
    session.connection().await.unwrap();
    moves(&world).await;
    // Something holds the rows that it has to change, for longer than the first one waits.
    let mut holder = Session::new(settings, "holder");
    let mut blocker = Settings::parse(&world.url()).unwrap().connect("blocker").await.unwrap();
    let lock = "BEGIN; LOCK TABLE oncely.progress IN ACCESS EXCLUSIVE MODE";
    raw_sql(lock).execute(&mut blocker).await.unwrap();
    let impatient = tokio::time::timeout(Duration::from_millis(300), session.confirm());
    assert!(impatient.await.is_err());
    let busy = holder.connection().await.map(drop).unwrap_err().to_string();
    assert!(busy.contains("failover"), "{busy}");
    raw_sql("ROLLBACK").execute(&mut blocker).await.unwrap();
    let recorded = "SELECT max(number)::text FROM oncely.failover";
    let is_recorded = async {
        while world.text(recorded).await != "2" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), is_recorded).await.expect("it goes on");
    holder.connection().await.unwrap();
    assert_eq!(holder.generation(), 1);
}

#[tokio::test]
async fn w10_what_is_written_beside_a_failover_is_seen_by_it_or_refused() {
    let world = World::new().await;
    let (settings, _) = process(&world, false);
    let mut writer = Session::new(settings.clone(), "writer");
    let mut other = Session::new(settings, "other");
    other.connection().await.unwrap();
    let mut tx = writer.begin().await.unwrap();
    assert!(failover::stands(&mut tx, Some(1)).await.unwrap());
    moves(&world).await;
    // It is under way when the server is found to be another one.
    let insert =
        "INSERT INTO oncely.effect (key, event, lane, request_hash, connector, ordinal, status,
            name, tenant, business_id, due_at)
        SELECT k, k, k, k, 1, 0, 'waiting', 'e', 't', 'b', now()
        FROM (SELECT repeat('07', 16)::uuid AS k) AS k";
    raw_sql(insert).execute(&mut *tx).await.unwrap();
    assert!(!failover::stands(&mut tx, Some(1)).await.unwrap(), "nobody has it on record yet");
    let recording = async {
        other.confirm().await.unwrap();
        other.generation()
    };
    let waits = "SELECT count(*) FROM pg_locks WHERE relation = 'oncely.failover'::regclass AND NOT granted";
    let committing = async {
        while world.text(waits).await == "0" {
            tokio::task::yield_now().await;
        }
        tx.commit().await.unwrap();
    };
    let both = async { tokio::join!(recording, committing) };
    let (generation, ()) = tokio::time::timeout(Duration::from_secs(10), both).await.unwrap();
    assert_eq!(generation, 1);
    assert_eq!(world.text("SELECT suspect FROM oncely.effect").await, "t");
    // What was decided for the time before is not written any more.
    let mut tx = writer.begin().await.unwrap();
    assert!(!failover::stands(&mut tx, Some(1)).await.unwrap());
    assert!(failover::stands(&mut tx, Some(2)).await.unwrap());
    tx.rollback().await.unwrap();
    // Another system with the same timeline is another server.
    world.sql("UPDATE oncely.failover SET system_identifier = system_identifier + 1").await;
    assert_eq!(world.text("SELECT oncely.is_here()").await, "f");
}

/// Whether new events of connector `c` are in doubt, and whether that stays as it is.
async fn doubt(world: &World) -> (bool, bool) {
    let mut connection = world.connect().await;
    let doubt = failover::doubt(&mut connection, ("c", 1), "k", &["t".to_owned()]).await.unwrap();
    (doubt.any, doubt.over)
}

#[tokio::test]
async fn w10_new_events_are_in_doubt_until_all_that_may_be_forgotten_is_read_again() {
    let world = World::new().await;
    let (settings, _) = process(&world, false);
    let mut session = Session::new(settings, "one");
    let c = session.connection().await.unwrap();
    assert_eq!(doubt(&world).await, (false, true), "where nothing was ever lost");
    progress::create(c, &topic(), 0, 5, None).await.unwrap();
    progress::create(c, &topic(), 1, 5, None).await.unwrap();
    moves(&world).await;
    session.confirm().await.unwrap();
    assert_eq!(doubt(&world).await, (true, false));
    let c = session.connection().await.unwrap();
    let epoch = progress::load(c, &topic()).await.unwrap()[0].epoch;
    // One of them is where the topic ends, the other is read again.
    progress::bound_suspect(c, &topic(), (0, epoch), 5).await.unwrap();
    progress::bound_suspect(c, &topic(), (1, epoch), 9).await.unwrap();
    assert_eq!(doubt(&world).await, (true, false));
    let again = Raise { partition: 1, ..raise(epoch, 5) };
    let old = Raise { epoch: 1, ..again.clone() };
    progress::decided(c, "g", "k", &[old]).await.unwrap();
    assert_eq!(doubt(&world).await, (true, false), "an old tracker says nothing");
    progress::decided(c, "g", "k", &[again]).await.unwrap();
    assert_eq!(doubt(&world).await, (false, false), "rows may be made anew for a while");
    // A topic without any rows, whose rows may be lost.
    world
        .sql("CREATE TABLE kept AS SELECT * FROM oncely.progress; DELETE FROM oncely.progress")
        .await;
    assert_eq!(doubt(&world).await, (true, false));
    world
        .sql("UPDATE oncely.failover SET at = at - interval '11 minutes', lost_since = now()")
        .await;
    assert_eq!(doubt(&world).await, (false, true), "what begins later begins anew");
    world.sql("INSERT INTO oncely.progress SELECT * FROM kept").await;
    // Its own position that a person has yet to accept; what was in a topic that was made anew is gone.
    world.sql("UPDATE oncely.progress SET suspect = 9, stopped = 'why' WHERE partition = 1").await;
    assert_eq!(doubt(&world).await, (true, false));
    let remade = "INSERT INTO oncely.source (connector, cluster_id, topic_id, topic) VALUES (1, 'k', 'j', 't')";
    world.sql(remade).await;
    assert_eq!(doubt(&world).await, (false, true));
    // Another connector of the scope counts if it ran in the time that was lost, and not for ever.
    world
        .sql(
            "INSERT INTO oncely.connector (name, scope, group_name, effects) VALUES ('d', 'c', 'h', '{}');
             INSERT INTO oncely.source (connector, cluster_id, topic_id, topic) VALUES (2, 'k', 'i', 'u');
             INSERT INTO oncely.progress (group_name, cluster_id, topic, topic_id, partition, position, suspect)
             VALUES ('h', 'k', 'u', 'i', 0, 5, 6)",
        )
        .await;
    assert_eq!(doubt(&world).await, (true, false));
    world.sql("UPDATE oncely.connector SET seen_at = now() - interval '1 hour' WHERE id = 2").await;
    assert_eq!(doubt(&world).await, (false, true), "it did not run then");
    world.sql("UPDATE oncely.failover SET lost_since = now() - interval '1 hour'").await;
    assert_eq!(doubt(&world).await, (true, false));
    world.sql("UPDATE oncely.failover SET at = now() - interval '25 hours'").await;
    assert_eq!(doubt(&world).await, (false, true), "it runs no more");
    world.sql("UPDATE oncely.connector SET scope = 'other' WHERE id = 2").await;
    world.sql("UPDATE oncely.failover SET at = now() - interval '1 hour'").await;
    assert_eq!(doubt(&world).await, (false, true), "another scope");
}

#[tokio::test]
async fn e2_a_server_that_was_left_is_not_taken_up_again() {
    let world = World::new().await;
    let (settings, _told) = process(&world, false);
    let mut session = Session::new(settings, "one");
    session.connection().await.unwrap();
    moves(&world).await;
    session.confirm().await.unwrap();
    // As an old primary that still answers: its last row is the one before.
    world.sql("DELETE FROM oncely.failover WHERE number = 2").await;
    world.sql("UPDATE oncely.failover SET timeline = 1").await;
    let refused = session.confirm().await.unwrap_err();
    assert!(super::error::NextStep::Wait == refused.next_step(), "{refused}");
    assert!(session.connection().await.is_err());
}
