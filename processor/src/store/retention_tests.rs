//! What retention takes away, and what it leaves, on a real database.

use sqlx::{Connection as _, Postgres, Transaction};
use uuid::Uuid;

use super::batch::Written;
use super::database_tests::{World, key, owing, write};
use super::lease::{self, Pulse};
use super::sweep::Walk;
use super::{PgConnection, sweep};

const RETENTION_MS: u64 = 1_000_000;

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

/// Lets retention look while a transaction has written what it waits for, and then commits that.
async fn remove_beside(
    world: &World,
    other: &mut PgConnection,
    beside: Transaction<'_, Postgres>,
) -> i64 {
    let mut walk = Walk::default();
    let removing = remove(other, &mut walk);
    let committing = async {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        while world.text(waits).await == "0" {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        beside.commit().await.unwrap();
    };
    tokio::join!(removing, committing).0
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
    assert_eq!(remove_beside(&world, &mut other, sharing).await, 1);
    assert_eq!(world.effects().await, "11x1");
}

/// W18: what a person's redrive opens again after retention has looked is found by the lock, not by the look.
#[tokio::test]
async fn w18_what_is_opened_again_while_retention_runs_stays() {
    let world = World::new().await;
    let mut connection = world.connect().await;
    assert_eq!(write(&mut connection, &owing(1, &[0x11], &[0x11])).await, Written::All);
    assert_eq!(write(&mut connection, &owing(2, &[0x11, 0x12], &[0x12])).await, Written::All);
    assert_eq!(write(&mut connection, &owing(3, &[0x12], &[])).await, Written::All);
    world.age(&[1, 2, 3]).await;
    let mut opening = connection.begin().await.unwrap();
    let open = format!(
        "UPDATE oncely.effect SET status = 'held', settled_at = NULL WHERE key = '{}'",
        key(0x11)
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(open)).execute(&mut *opening).await.unwrap();
    let mut other = world.connect().await;
    assert_eq!(remove_beside(&world, &mut other, opening).await, 1, "the third event alone");
    assert_eq!(world.effects().await, "11x2 12x1", "those that stay are owed as before");
}

/// W18: an effect whose predecessor were gone would count it as never owed, and be sent.
#[tokio::test]
async fn w18_what_an_open_effect_of_another_event_waits_for_stays() {
    let world = World::new().await;
    let mut connection = world.connect().await;
    let c = &mut connection;
    assert_eq!(write(c, &owing(1, &[0x11], &[0x11])).await, Written::All);
    assert_eq!(write(c, &owing(2, &[0x12], &[0x12])).await, Written::All);
    world.age(&[1]).await;
    let follower = format!(
        "UPDATE oncely.effect SET status = 'waiting', settled_at = NULL,
            after_keys = ARRAY['{}']::uuid[] WHERE key = '{}'",
        key(0x11),
        key(0x12)
    );
    world.sql(&follower).await;
    assert_eq!(remove(c, &mut Walk::default()).await, 0);
    world.sql("UPDATE oncely.effect SET status = 'done', settled_at = now()").await;
    assert_eq!(remove(c, &mut Walk::default()).await, 1);
    assert_eq!(world.effects().await, "12x1");
}

/// W18, R27: what was skipped comes back with the effect that it comes after, as long as that one's letter is open.
#[tokio::test]
async fn w18_what_a_redrive_may_open_again_stays_with_all_that_it_is_made_of() {
    let world = World::new().await;
    let mut connection = world.connect().await;
    let c = &mut connection;
    // A charge that was rejected, a receipt after it in the same event, and a refund in another one.
    let (charge, receipt, refund) = (key(0x11), key(0x12), key(0x13));
    assert_eq!(write(c, &owing(1, &[0x11, 0x12], &[0x11, 0x12])).await, Written::All);
    assert_eq!(write(c, &owing(2, &[0x13], &[0x13])).await, Written::All);
    world.age(&[1, 2]).await;
    world
        .sql(&format!(
            "UPDATE oncely.effect SET request = 'r';
             UPDATE oncely.effect SET status = 'rejected' WHERE key = '{charge}';
             UPDATE oncely.effect SET status = 'skipped', after_keys = ARRAY['{charge}']::uuid[]
                WHERE key IN ('{receipt}', '{refund}');
             INSERT INTO oncely.payload (event, record_offset, record_partition, source, headers, created_at)
                SELECT key, 1, 0, 1, '', now() - interval '1 day' FROM oncely.inbox;
             INSERT INTO oncely.parked (event, effect, connector, kind, reason, detail)
                VALUES ('{event}', '{charge}', 1, 'dead_letter', 'rejected', 'd')",
            event = key(1)
        ))
        .await;
    let kept = async |c: &mut PgConnection| {
        let results = sweep::clear_results(c, 1, RETENTION_MS, 10, &mut Walk::default(), &[]).await;
        let bytes = sweep::remove_payloads(c, 1, RETENTION_MS, 10, &mut Walk::default()).await;
        let closed = remove(c, &mut Walk::default()).await;
        (results.unwrap().removed, bytes.unwrap().removed, closed)
    };
    assert_eq!(kept(c).await, (0, 0, 0), "the letter is open");
    world.sql("UPDATE oncely.parked SET closed_at = now(), closed_as = 'discarded'").await;
    assert_eq!(kept(c).await, (3, 2, 2));
    assert_eq!(world.effects().await, "");
}

#[tokio::test]
async fn bytes_go_when_nothing_is_rendered_from_them_any_more_and_are_looked_at_once() {
    let world = World::new().await;
    let mut connection = world.connect().await;
    let c = &mut connection;
    for event in 1..=14 {
        assert_eq!(write(c, &owing(event, &[event], &[event])).await, Written::All);
        world
            .sql(&format!(
                "INSERT INTO oncely.payload (event, record_offset, record_partition, source, headers, created_at)
                 VALUES ('{}', 1, 0, 1, '', now() - interval '1 day')",
                key(event)
            ))
            .await;
    }
    let open = format!("key <= '{}'", key(12));
    world
        .sql(&format!("UPDATE oncely.effect SET status = 'held', settled_at = NULL WHERE {open}"))
        .await;
    let mut walk = Walk::default();
    let mut looks = Vec::new();
    for _ in 0..3 {
        let looked = sweep::remove_payloads(c, 1, RETENTION_MS, 10, &mut walk).await.unwrap();
        looks.push((looked.events, looked.removed));
    }
    assert_eq!(looks, [(10, 0), (4, 2), (0, 0)]);
    world.sql("UPDATE oncely.effect SET status = 'done', settled_at = now()").await;
    let looked = sweep::remove_payloads(c, 1, RETENTION_MS, 20, &mut Walk::default()).await;
    assert_eq!(looked.unwrap().removed, 12);
}

#[tokio::test]
async fn workers_that_are_long_gone_are_forgotten_once_their_claims_are_taken() {
    let world = World::new().await;
    let mut connection = world.connect().await;
    let c = &mut connection;
    assert_eq!(write(c, &owing(1, &[0x11], &[0x11])).await, Written::All);
    let (gone, claims, lives) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
    world
        .sql(&format!(
            "INSERT INTO oncely.worker (id, lease_ms, host, dead_at, ended_at) VALUES
                ('{gone}', 5000, 'h', NULL, now() - interval '8 days'),
                ('{claims}', 5000, 'h', now() - interval '8 days', NULL),
                ('{lives}', 5000, 'h', NULL, NULL);
             UPDATE oncely.effect SET status = 'claimed', settled_at = NULL, worker = '{claims}', fence = 1"
        ))
        .await;
    let left = "SELECT right(id::text, 1) FROM oncely.worker ORDER BY id";
    lease::prune(c).await.unwrap();
    assert_eq!(world.text(left).await, "2 3");
    world.sql("UPDATE oncely.effect SET status = 'held', worker = NULL, fence = NULL").await;
    lease::prune(c).await.unwrap();
    assert_eq!(world.text(left).await, "3");
    // Who comes back under a forgotten id is as dead as before.
    assert_eq!(lease::beat(c, claims).await.unwrap(), Pulse::Dead);
    assert_eq!(lease::alive(c, claims).await.unwrap(), Pulse::Dead);
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
