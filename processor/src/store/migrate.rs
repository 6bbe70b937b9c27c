//! Migrations: plain SQL, forward only, in their own schema.

use sqlx::migrate::{Migrate, MigrateError, Migrator};
use sqlx::{Connection as _, PgConnection, query_file};

use super::error::StoreError;

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

/// Why the schema is not up to date.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    #[error(transparent)]
    Store(StoreError),
    #[error("migration {version} was not applied")]
    Step { version: i64, source: StoreError },
    #[error(
        "the schema has migration {0}, which this program does not know: it is of a later version; \
         use that version of oncely, or another database"
    )]
    Later(i64),
    #[error(
        "migration {0} was applied in another wording: the schema was made by another build of \
         oncely; use that build, or another database"
    )]
    Changed(i64),
    #[error("the migrations cannot be applied")]
    Other(#[source] MigrateError),
}

impl SchemaError {
    /// What the database said, where it was the database.
    #[must_use]
    pub const fn store(&self) -> Option<&StoreError> {
        match self {
            Self::Store(source) | Self::Step { source, .. } => Some(source),
            Self::Later(_) | Self::Changed(_) | Self::Other(_) => None,
        }
    }
}

impl From<MigrateError> for SchemaError {
    #[allow(clippy::wildcard_enum_match_arm, reason = "the driver's list may grow")]
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::Execute(source) => Self::Store(source.into()),
            MigrateError::ExecuteMigration(source, version) => {
                Self::Step { version, source: source.into() }
            }
            MigrateError::VersionMissing(version) => Self::Later(version),
            MigrateError::VersionMismatch(version) => Self::Changed(version),
            other => Self::Other(other),
        }
    }
}

/// Applies what is missing, all of it or nothing. Several may run at once; one does the work. Its lock is
/// that of a transaction, and so are all steps: through a pooler each transaction has a session of its own.
///
/// # Errors
/// When a migration fails or one that was applied has changed since.
pub async fn up(connection: &mut PgConnection) -> Result<(), SchemaError> {
    let mut migrator = migrator();
    migrator.set_locking(false);
    let store = |error: sqlx::Error| SchemaError::Store(error.into());
    let mut tx = connection.begin().await.map_err(store)?;
    query_file!("src/store/sql/migrate_lock.sql").execute(&mut *tx).await.map_err(store)?;
    migrator.run(&mut *tx).await?;
    tx.commit().await.map_err(store)
}

/// What is applied and what is missing. Only reads, so that a role without the right to change the
/// schema can ask.
///
/// # Errors
/// When the database cannot be asked.
pub async fn status(connection: &mut PgConnection) -> Result<Vec<Step>, SchemaError> {
    let migrator = migrator();
    let applied = match connection.list_applied_migrations(&migrator.table_name).await {
        Ok(applied) => applied,
        Err(MigrateError::Execute(sqlx::Error::Database(error)))
            if error.code().as_deref() == Some(UNDEFINED_TABLE) =>
        {
            Vec::new()
        }
        Err(error) => return Err(error.into()),
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
