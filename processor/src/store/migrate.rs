//! Migrations: plain SQL, forward only, in their own schema.

use sqlx::PgConnection;
use sqlx::migrate::{Migrate, MigrateError, Migrator};

/// The SQLSTATE of a database without our schema.
const UNDEFINED_TABLE: &str = "42P01";

static MIGRATIONS: Migrator = sqlx::migrate!("../migrations");

fn migrator() -> Migrator {
    let mut migrator = Migrator { migrations: MIGRATIONS.migrations.clone(), ..Migrator::DEFAULT };
    migrator.dangerous_set_table_name("oncely._migrations");
    migrator.create_schema("oncely");
    migrator
}

/// One migration and whether this database has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub version: i64,
    pub name: String,
    pub applied: bool,
}

/// Applies what is missing. Several may run at once; one does the work.
///
/// # Errors
/// When a migration fails or one that was applied has changed since.
pub async fn up(connection: &mut PgConnection) -> Result<(), MigrateError> {
    migrator().run(connection).await
}

/// What is applied and what is missing. Only reads, so that a role without the right to change the
/// schema can ask.
///
/// # Errors
/// When the database cannot be asked.
pub async fn status(connection: &mut PgConnection) -> Result<Vec<Step>, MigrateError> {
    let migrator = migrator();
    let applied = match connection.list_applied_migrations(&migrator.table_name).await {
        Ok(applied) => applied,
        Err(MigrateError::Execute(sqlx::Error::Database(error)))
            if error.code().as_deref() == Some(UNDEFINED_TABLE) =>
        {
            Vec::new()
        }
        Err(error) => return Err(error),
    };
    let is_applied = |version| applied.iter().any(|applied| applied.version == version);
    Ok(migrator
        .iter()
        .map(|step| Step {
            version: step.version,
            name: step.description.to_string(),
            applied: is_applied(step.version),
        })
        .collect())
}
