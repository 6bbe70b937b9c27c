//! Whether the role of a processor may do all that it will have to.
//!
//! Asked before anything is done: a right that is missing is found at the start and by its name, not hours later by the
//! first statement that needs it.

use std::io::{Error, ErrorKind};

use sqlx::{PgConnection, query_file};

use super::error::{Result, Said, StoreError};

/// SQLSTATE insufficient_privilege.
const DENIED: &str = "42501";
/// Missing rights that are named; a role without any lacks them all.
const NAMED_MAX: usize = 5;

/// Finds that nothing is missing.
///
/// # Errors
/// [`StoreError::Refused`] names what is.
pub async fn check(connection: &mut PgConnection) -> Result<()> {
    let rows = query_file!("src/store/sql/rights_missing.sql").fetch_all(connection).await?;
    let Some(role) = rows.first().map(|row| row.role.clone()) else { return Ok(()) };
    let named: Vec<String> = rows.iter().take(NAMED_MAX).map(|row| row.what.clone()).collect();
    let more = match rows.len().saturating_sub(named.len()) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let said = format!("role {role} has {}{more} (deploy/grants.sql)", named.join("; "));
    let source = Said(sqlx::Error::Io(Error::new(ErrorKind::PermissionDenied, said)));
    Err(StoreError::Refused { code: DENIED.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Settings;
    use crate::store::database_tests::World;

    #[tokio::test]
    async fn what_a_role_lacks_is_named_and_the_grants_leave_nothing_to_ask_for() {
        let world = World::new().await;
        world.sql("CREATE ROLE weak LOGIN").await;
        let weak = Settings::parse(&world.url_as("weak")).unwrap();
        let lacking = async || {
            let checked = check(&mut weak.connect("test").await.unwrap()).await;
            std::error::Error::source(&checked.unwrap_err()).unwrap().to_string()
        };
        let none = lacking().await;
        assert!(none.starts_with("role weak has no USAGE on schema oncely; no SELECT"), "{none}");
        assert!(none.contains(" more (deploy/grants.sql)"), "{none}");
        world.sql(&World::GRANTS.replace("TO processor", "TO weak")).await;
        check(&mut weak.connect("test").await.unwrap()).await.unwrap();
        world.sql("REVOKE DELETE, UPDATE ON oncely.effect FROM weak").await;
        world.sql("REVOKE USAGE ON SEQUENCE oncely.fence FROM weak").await;
        assert_eq!(
            lacking().await,
            "role weak has no UPDATE, DELETE on oncely.effect; no USAGE on oncely.fence (deploy/grants.sql)"
        );
    }
}
