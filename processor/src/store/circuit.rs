//! Circuits that workers have found open: a provider does not answer, or refuses credentials. Nothing is decided
//! by them; they tell people why an effect waits whose time has come.

use oncely_core::effect::circuit::Cause;
use sqlx::{PgConnection, query_file, query_file_scalar};
use uuid::Uuid;

use super::error::Result;

/// How a cause is written.
pub const fn cause_str(cause: Cause) -> &'static str {
    match cause {
        Cause::Outage => "outage",
        Cause::Refusal => "refusal",
    }
}

/// Puts on record which circuits of a connector `worker` finds open, by effect; those of workers that are gone
/// are forgotten.
pub async fn show(
    connection: &mut PgConnection,
    connector: i32,
    worker: Uuid,
    open: &[(String, Cause)],
) -> Result<()> {
    let effects: Vec<String> = open.iter().map(|(effect, _)| effect.clone()).collect();
    let causes: Vec<&str> = open.iter().map(|(_, cause)| cause_str(*cause)).collect();
    query_file!("src/store/sql/circuit_forget.sql", connector, worker, &effects)
        .execute(&mut *connection)
        .await?;
    query_file!("src/store/sql/circuit_show.sql", connector, worker, &effects, &causes as &[&str],)
        .execute(connection)
        .await?;
    Ok(())
}

/// Of effects whose circuit is open, those that have anything left to try.
pub async fn owed(
    connection: &mut PgConnection,
    connector: i32,
    effects: &[String],
) -> Result<Vec<String>> {
    let query = query_file_scalar!("src/store/sql/circuit_owed.sql", connector, effects);
    Ok(query.fetch_all(connection).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::database_tests::World;

    #[tokio::test]
    async fn what_is_held_or_behind_that_has_nothing_left_to_try() {
        let world = World::new().await;
        // Of each name one: key, and what it is.
        for (n, name, status, due_at, worker) in [
            (1, "due", "waiting", "now()", "NULL"),
            (2, "later", "unknown", "now() + interval '1 h'", "NULL"),
            (3, "claimed", "claimed", "NULL", "gen_random_uuid()"),
            (4, "held", "held", "NULL", "NULL"),
            (5, "behind", "waiting", "NULL", "NULL"),
            (6, "queued", "waiting", "'infinity'", "NULL"),
        ] {
            let key = uuid::Uuid::from_u128(n);
            world
                .sql(&format!(
                    "INSERT INTO oncely.effect (key, event, lane, request_hash, connector, ordinal, status,
                        due_at, worker, first_sent_at, fence, name, tenant, business_id)
                     VALUES ('{key}', '{key}', '{key}', '{key}', 1, 0, '{status}', {due_at}, {worker}, now(),
                        nextval('oncely.fence'), '{name}', 't', 'b')"
                ))
                .await;
        }
        let names = ["due", "later", "claimed", "held", "behind", "queued", "done"];
        let names = names.map(str::to_owned);
        let mut owed = owed(&mut world.connect().await, 1, &names).await.unwrap();
        owed.sort();
        assert_eq!(owed, ["claimed", "due", "later"]);
    }
}
