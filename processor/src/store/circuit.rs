//! Circuits that workers have found open: a provider does not answer, or refuses credentials. Nothing is decided
//! by them; they tell people why an effect waits whose time has come.

use oncely_core::effect::circuit::Cause;
use sqlx::{PgConnection, query_file};
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
