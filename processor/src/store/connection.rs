//! Dedicated connections.
//!
//! Every task that writes owns one connection for its life; there is no pool in a hot path. A
//! future that sends BEGIN or COMMIT is never cancelled: a dropped `begin` would leave a
//! transaction open that later statements fall into (transact-rs/sqlx#4385), so nothing here runs
//! under `select!`, and the server's own time-outs bound each statement. The one exception is
//! [`Patience`], for a server that is gone without a word: whoever loses it gives the connection up.

use std::future::Future;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection, Postgres, Transaction};

use tokio::sync::watch;

use super::error::{Result, Said, StoreError};
use super::failover::{Met, Whereabouts, unavailable};
use super::locked::{self, Told};

/// Longest time one statement may take on the server.
pub const STATEMENT_MS_MAX: u64 = 30_000;
/// Longest time a statement may wait for a row lock.
pub const LOCK_MS_MAX: u64 = 10_000;
/// Longest time a transaction may stay open without a statement: a dead client's locks go then.
pub const IDLE_IN_TRANSACTION_MS_MAX: u64 = 10_000;
/// Longest time a connection attempt may take.
pub const CONNECT_MS_MAX: u64 = 5_000;

/// Longest time that one piece of work may take before its connection counts as dead. No packet
/// says so when a host is gone or a gateway has forgotten a connection; a server that is there ends
/// each statement sooner, by its own time-outs.
pub const SILENT_MS_MAX: u64 = 45_000;
/// The same once another connection was given up as dead and a new one was answered.
pub const MOVED_MS_MAX: u64 = 5_000;

/// Begins a transaction that no failover can be put on record beside: one lock that costs no round trip and is
/// written down nowhere. What is asked in it of where the database is holds until its end.
const BEGIN: &str = "BEGIN; LOCK TABLE oncely.failover IN ROW SHARE MODE";

/// Begins a transaction that writes what may have to be sent. To be awaited to its end.
///
/// # Errors
/// As every query.
pub async fn begin(connection: &mut PgConnection) -> Result<Transaction<'_, Postgres>> {
    Ok(connection.begin_with(BEGIN).await?)
}

/// How long one piece of work is waited for.
#[derive(Clone, Debug)]
pub struct Patience(watch::Receiver<u64>);

impl Patience {
    /// Does one piece of work (a query, a transaction from its begin to its commit) within
    /// [`SILENT_MS_MAX`], or [`MOVED_MS_MAX`] after the database has turned out to have moved.
    ///
    /// # Errors
    /// As the work; [`StoreError::Unavailable`] when its time is up. Then a COMMIT may have gone
    /// through, and the session must hear of it by [`Session::failed`], which closes the connection.
    pub async fn bounded<T, E: From<StoreError>>(
        mut self,
        work: impl Future<Output = std::result::Result<T, E>>,
    ) -> std::result::Result<T, E> {
        let moved = async {
            if self.0.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(Duration::from_millis(MOVED_MS_MAX)).await;
        };
        tokio::select! {
            done = work => return done,
            () = moved => {}
            () = tokio::time::sleep(Duration::from_millis(SILENT_MS_MAX)) => {}
        }
        Err(StoreError::silent().into())
    }
}

/// Where the database is. Clones learn together that it has moved.
#[derive(Clone, Debug)]
pub struct Settings {
    options: PgConnectOptions,
    /// Rises when connections made before are probably dead.
    moved: watch::Sender<u64>,
    /// Whether the log has said that sessions have no time-outs.
    told_unbounded: Arc<AtomicBool>,
    /// When the log has said who keeps everybody from a table.
    told_locked: Told,
    /// `None`: nobody looks where the database is.
    whereabouts: Option<Whereabouts>,
}

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
                // A plan for no values in particular takes every array for ten rows.
                ("plan_cache_mode", "force_custom_plan".to_owned()),
                // Compiling costs tens of milliseconds, and is set off by estimates that are far too high.
                ("jit", "off".to_owned()),
                ("tcp_keepalives_idle", "10".to_owned()),
                ("tcp_keepalives_interval", "5".to_owned()),
                ("tcp_keepalives_count", "3".to_owned()),
                ("tcp_user_timeout", "20s".to_owned()),
            ])
            // Statements are logged by whoever runs them, never with their values.
            .disable_statement_logging();
        let told_unbounded = Arc::default();
        let (moved, told_locked) = (watch::Sender::new(0), Told::default());
        Ok(Self { options, moved, told_unbounded, told_locked, whereabouts: None })
    }

    /// The same, where each connection of a session looks where it leads to before anything is done on it.
    #[must_use]
    pub fn watched(self, whereabouts: Whereabouts) -> Self {
        Self { whereabouts: Some(whereabouts), ..self }
    }

    /// The same for the few statements that run all the time: each is planned once for a connection.
    /// Planning costs more than many of them do. As a plan must hold while a table grows from nothing to
    /// millions of rows, only what is right at any size is left to choose from: rows are found by an
    /// index, one by one.
    #[must_use]
    pub fn planned_once(&self) -> Self {
        let options = self.options.clone().options([
            ("plan_cache_mode", "force_generic_plan"),
            ("enable_seqscan", "off"),
            ("enable_hashjoin", "off"),
            ("enable_mergejoin", "off"),
        ]);
        Self { options, ..self.clone() }
    }

    /// Opens one connection, named after its task.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the server does not answer or is read-only.
    pub async fn connect(&self, task: &str) -> Result<PgConnection> {
        let options = self.options.clone().application_name(&format!("oncely {task}"));
        let connecting = PgConnection::connect_with(&options);
        let mut connection =
            match tokio::time::timeout(Duration::from_millis(CONNECT_MS_MAX), connecting).await {
                Ok(connected) => connected?,
                Err(elapsed) => return Err(sqlx::Error::Io(elapsed.into()).into()),
            };
        let state = sqlx::query_file!("src/store/sql/connection_state.sql");
        let state = state.fetch_one(&mut connection).await?;
        if state.unbounded && !self.told_unbounded.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                remedy = "give a pooler the connect_query of deploy/pgbouncer.ini",
                "sessions of this database have no time-outs: something between takes no settings \
                 from clients, and locks of a dead worker may stay"
            );
        }
        if state.read_only {
            let source = sqlx::Error::Configuration("the server is read-only".into());
            return Err(StoreError::Unavailable { code: "25006".to_owned(), source: Said(source) });
        }
        Ok(connection)
    }
}

/// Puts on record that the database has failed over. Whoever has found it may lose patience; the recording
/// goes on, since with many open effects it takes longer than any patience.
async fn record(
    whereabouts: &Whereabouts,
    mut connection: PgConnection,
    moved: watch::Sender<u64>,
) -> Result<(PgConnection, Met)> {
    let busy = || unavailable("its failover is being put on record", "failover");
    let recording = whereabouts.recording().ok_or_else(busy)?;
    let whereabouts = whereabouts.clone();
    // Its loss is seen by the next connection, which begins anew.
    let recorded = crate::task::spawn_to_the_end(async move {
        let met = whereabouts.meet(&mut connection, Some(&recording)).await?;
        if met.is_some_and(|met| met.moved) {
            moved.send_modify(|times| *times = times.wrapping_add(1));
        }
        Ok::<_, StoreError>((connection, met))
    });
    match recorded.await {
        Ok(Ok((connection, Some(met)))) => Ok((connection, met)),
        Ok(Err(error)) => Err(error),
        Ok(Ok((_, None))) | Err(_) => Err(busy()),
    }
}

/// One task's connection, opened again when it broke.
#[derive(Debug)]
pub struct Session {
    settings: Settings,
    task: String,
    connection: Option<PgConnection>,
    /// What [`Settings::moved`] was when the connection was made.
    made_at: u64,
    /// The last connection got no answer.
    unanswered: bool,
    /// Of what the connection leads to; see [`Session::generation`].
    generation: u64,
    /// See [`Session::number`].
    number: Option<i32>,
}

impl Session {
    pub fn new(settings: Settings, task: impl Into<String>) -> Self {
        let (connection, number) = (None, None);
        let (made_at, unanswered, generation) = (0, false, 0);
        Self { settings, task: task.into(), connection, made_at, unanswered, generation, number }
    }

    /// What the server calls this session's connections, without the name of the program.
    pub fn task(&self) -> &str {
        &self.task
    }

    /// The connection, opened if there is none.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the server cannot be reached.
    pub async fn connection(&mut self) -> Result<&mut PgConnection> {
        let moved = *self.settings.moved.borrow();
        let connection = match self.connection.take() {
            Some(connection) if self.made_at == moved => connection,
            Some(_) | None => {
                self.made_at = moved;
                let connection = self.settings.connect(&self.task).await?;
                let connection = self.meet(connection).await?;
                // Otherwise each session of this process would have to find out for itself, one after the other.
                if std::mem::take(&mut self.unanswered) {
                    self.database_moved();
                    self.made_at = *self.settings.moved.borrow();
                }
                connection
            }
        };
        Ok(self.connection.insert(connection))
    }

    /// Gives the connection back when it leads to where this process is.
    async fn meet(&mut self, mut connection: PgConnection) -> Result<PgConnection> {
        let Some(whereabouts) = &self.settings.whereabouts else { return Ok(connection) };
        let met = match whereabouts.meet(&mut connection, None).await? {
            Some(met) => met,
            None => {
                let met;
                (connection, met) =
                    record(whereabouts, connection, self.settings.moved.clone()).await?;
                met
            }
        };
        (self.generation, self.number) = (met.generation, Some(met.number));
        if met.moved {
            self.database_moved();
            self.made_at = *self.settings.moved.borrow();
        }
        Ok(connection)
    }

    /// Looks once more where the connection leads to: behind a pooler it stays while the server changes.
    ///
    /// # Errors
    /// As [`Session::connection`].
    pub async fn confirm(&mut self) -> Result<()> {
        let Some(connection) = self.connection.take() else { return Ok(()) };
        self.connection = Some(self.meet(connection).await?);
        Ok(())
    }

    /// Counts what this process has lived through: rises whenever the database is another one that may lack
    /// what was on record. Of the connection that this session has.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// The last failover that was on record where the connection leads to, by its number; `None` where nobody
    /// looks.
    pub const fn number(&self) -> Option<i32> {
        self.number
    }

    /// Begins a transaction, as [`begin`]. To be awaited to its end.
    ///
    /// # Errors
    /// As [`Session::connection`].
    pub async fn begin(&mut self) -> Result<Transaction<'_, Postgres>> {
        begin(self.connection().await?).await
    }

    /// For one piece of work of this session.
    pub fn patience(&self) -> Patience {
        Patience(self.settings.moved.subscribe())
    }

    /// A connection got no answer, and a new one did: those of other sessions are probably dead too.
    pub fn database_moved(&self) {
        self.settings.moved.send_modify(|times| *times = times.wrapping_add(1));
    }

    /// A session without a connection, for one whose last statement was cut short.
    pub fn renewed(self) -> Self {
        Self { connection: None, ..self }
    }

    /// Notes that the last transaction failed. Whatever it was, the next one gets a connection in a
    /// known state: the old one is closed unless the error says that the server is well.
    pub async fn failed(&mut self, error: &StoreError) {
        self.unanswered |= error.is_silent();
        let broken = match error {
            StoreError::Unavailable { .. } | StoreError::Refused { .. } => true,
            // A BEGIN that waited in vain for its lock leaves a transaction open that nobody knows of.
            StoreError::Contended { .. } => error.is_locked(),
            StoreError::BadValue { .. } | StoreError::Corrupt { .. } => false,
        };
        match self.connection.as_mut() {
            Some(connection) if !broken => {
                // A dropped transaction has queued its ROLLBACK; a ping flushes it.
                let ping = async { connection.ping().await.map_err(StoreError::from) };
                if Patience(self.settings.moved.subscribe()).bounded(ping).await.is_err() {
                    self.connection = None;
                }
            }
            Some(_) | None => self.connection = None,
        }
        if error.is_locked() && self.settings.told_locked.is_due() {
            // A lock that is gone by now is no news, and neither is that nobody could be asked.
            let told = async {
                let mut connection = self.settings.connect("lock").await?;
                locked::tell(&mut connection).await
            };
            if let Err(error) = Patience(self.settings.moved.subscribe()).bounded(told).await {
                tracing::debug!(%error, "who holds the lock is not known");
            }
        }
    }
}
