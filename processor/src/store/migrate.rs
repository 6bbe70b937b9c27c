//! Migrations: plain SQL, forward only, in their own schema.

use sqlx::PgConnection;
use sqlx::migrate::{Migrate, MigrateError, Migrator};

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

/// What is applied and what is missing.
///
/// # Errors
/// When the database cannot be asked.
pub async fn status(connection: &mut PgConnection) -> Result<Vec<Step>, MigrateError> {
    let migrator = migrator();
    for schema in migrator.create_schemas.iter() {
        connection.create_schema_if_not_exists(schema).await?;
    }
    connection.ensure_migrations_table(&migrator.table_name).await?;
    let applied = connection.list_applied_migrations(&migrator.table_name).await?;
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
