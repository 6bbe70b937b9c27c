//! Dedicated connections.
//!
//! Every task that writes owns one connection for its life; there is no pool in a hot path. A
//! future that sends BEGIN or COMMIT is never cancelled: a dropped `begin` would leave a
//! transaction open that later statements fall into (transact-rs/sqlx#4385), so nothing here runs
//! under `select!` or a time-out, and the server's own time-outs bound each statement.

use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection, Postgres, Transaction};

use super::error::{Result, StoreError};

/// Longest time one statement may take on the server.
pub const STATEMENT_MS_MAX: u64 = 30_000;
/// Longest time a statement may wait for a row lock.
pub const LOCK_MS_MAX: u64 = 10_000;
/// Longest time a transaction may stay open without a statement: a dead client's locks go then.
pub const IDLE_IN_TRANSACTION_MS_MAX: u64 = 10_000;
/// Longest time a connection attempt may take.
pub const CONNECT_MS_MAX: u64 = 5_000;

/// Where the database is.
#[derive(Clone, Debug)]
pub struct Settings(PgConnectOptions);

impl Settings {
    /// # Errors
    /// When the URL is none.
    pub fn parse(url: &str) -> std::result::Result<Self, sqlx::Error> {
        let options = PgConnectOptions::from_str(url)?
            .options([
                ("statement_timeout", STATEMENT_MS_MAX.to_string()),
                ("lock_timeout", LOCK_MS_MAX.to_string()),
                ("idle_in_transaction_session_timeout", IDLE_IN_TRANSACTION_MS_MAX.to_string()),
                ("client_connection_check_interval", "5s".to_owned()),
                // UNNEST looks like ten rows to a generic plan, whatever the arrays hold.
                ("plan_cache_mode", "force_custom_plan".to_owned()),
                ("tcp_keepalives_idle", "10".to_owned()),
                ("tcp_keepalives_interval", "5".to_owned()),
                ("tcp_keepalives_count", "3".to_owned()),
                ("tcp_user_timeout", "20s".to_owned()),
            ])
            // Statements are logged by whoever runs them, never with their values.
            .disable_statement_logging();
        Ok(Self(options))
    }

    /// Opens one connection, named after its task.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the server does not answer or is read-only.
    pub async fn connect(&self, task: &str) -> Result<PgConnection> {
        let options = self.0.clone().application_name(&format!("oncely {task}"));
        let connecting = PgConnection::connect_with(&options);
        let mut connection =
            match tokio::time::timeout(Duration::from_millis(CONNECT_MS_MAX), connecting).await {
                Ok(connected) => connected?,
                Err(elapsed) => return Err(sqlx::Error::Io(elapsed.into()).into()),
            };
        let read_only: bool = sqlx::query_file_scalar!("src/store/sql/connection_read_only.sql")
            .fetch_one(&mut connection)
            .await?;
        if read_only {
            let source = sqlx::Error::Configuration("the server is read-only".into());
            return Err(StoreError::Unavailable { code: "25006".to_owned(), source });
        }
        Ok(connection)
    }
}

/// One task's connection, opened again when it broke.
#[derive(Debug)]
pub struct Session {
    settings: Settings,
    task: String,
    connection: Option<PgConnection>,
}

impl Session {
    pub fn new(settings: Settings, task: impl Into<String>) -> Self {
        Self { settings, task: task.into(), connection: None }
    }

    /// The connection, opened if there is none.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the server cannot be reached.
    pub async fn connection(&mut self) -> Result<&mut PgConnection> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.settings.connect(&self.task).await?,
        };
        Ok(self.connection.insert(connection))
    }

    /// Begins a transaction. To be awaited to its end.
    ///
    /// # Errors
    /// As [`Session::connection`].
    pub async fn begin(&mut self) -> Result<Transaction<'_, Postgres>> {
        Ok(self.connection().await?.begin().await?)
    }

    /// A session without a connection, for one whose last statement was cut short.
    pub fn renewed(self) -> Self {
        Self { connection: None, ..self }
    }

    /// Notes that the last transaction failed. Whatever it was, the next one gets a connection in a
    /// known state: the old one is closed unless the error says that the server is well.
    pub async fn failed(&mut self, error: &StoreError) {
        let broken = matches!(error, StoreError::Unavailable { .. } | StoreError::Refused { .. });
        match self.connection.as_mut() {
            Some(connection) if !broken => {
                // A dropped transaction has queued its ROLLBACK; a ping flushes it.
                if connection.ping().await.is_err() {
                    self.connection = None;
                }
            }
            Some(_) | None => self.connection = None,
        }
    }
}
