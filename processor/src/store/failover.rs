//! Where the database is: another server than before may lack commits that were acknowledged.
//!
//! Reads, on every new connection and with every heartbeat, which system and timeline the server shows and
//! what is on record of that. Whoever finds another one puts it on record by compare-and-set, and in that
//! transaction takes back what may be forgotten: positions count only as they stand here, in a new epoch;
//! every worker goes on under a new id; what is open may have been sent. The core decides
//! ([`oncely_core::failover`]); what it needs of the past is this process's [`Whereabouts`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oncely_core::failover::{EPOCHS_SKIPPED, Meeting, Memory, Server, Stand};
use sqlx::{Connection, PgConnection, query_file};

use super::columns::{key, uuid};
use super::error::{Result, Said, StoreError};

/// Times that one connection may find that others were first to put something on record.
const RACES_MAX: u32 = 5;

/// What there is to tell of another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It was found, and is being put on record; with many open effects that takes minutes.
    Begun { before: Server, now: Server },
    /// It was found and put on record by this process.
    Recorded(Recorded),
    /// This process has noticed it. `lost`: what it knows may be forgotten there.
    Noticed { number: i32, lost: bool },
}

/// A failover as it was put on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub number: i32,
    pub before: Server,
    pub now: Server,
    /// The settings say that nothing is lost.
    pub lossless: bool,
    /// Positions that were taken back to what is on record.
    pub positions: u64,
    /// Open effects that may have been sent since.
    pub effects: u64,
}

/// What a process knows of where its database is; clones share it.
#[derive(Clone)]
pub struct Whereabouts(Arc<Inner>);

struct Inner {
    memory: Mutex<Memory>,
    /// A failover loses nothing, by the settings.
    lossless: bool,
    lease_ms: i32,
    /// A connection of this process is putting a failover on record.
    recording: AtomicBool,
    tell: Box<dyn Fn(&Told) + Send + Sync>,
}

/// The right to put a failover on record, of one connection of a process at a time.
#[derive(Debug)]
pub(super) struct Recording(Whereabouts);

impl Drop for Recording {
    fn drop(&mut self) {
        self.0.0.recording.store(false, Ordering::Release);
    }
}

impl std::fmt::Debug for Whereabouts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Whereabouts").field("memory", &*self.memory()).finish_non_exhaustive()
    }
}

/// What a meeting came to for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Met {
    /// Rises whenever something may have been lost.
    pub(super) generation: u64,
    /// Of the last failover that is on record there.
    pub(super) number: i32,
    /// Other connections of this process may lead elsewhere.
    pub(super) moved: bool,
}

impl Whereabouts {
    /// `lease_ms`: for so long a worker that has not noticed yet may go on sending. `tell` is called once for
    /// each thing that there is to tell.
    pub fn new(
        lossless: bool,
        lease_ms: i32,
        tell: impl Fn(&Told) + Send + Sync + 'static,
    ) -> Self {
        let memory = Mutex::default();
        let recording = AtomicBool::new(false);
        Self(Arc::new(Inner { memory, lossless, lease_ms, recording, tell: Box::new(tell) }))
    }

    /// `None`: another connection of this process is at it.
    pub(super) fn recording(&self) -> Option<Recording> {
        let taken = self.0.recording.swap(true, Ordering::AcqRel);
        (!taken).then(|| Recording(self.clone()))
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds out where a connection leads to; afterwards that is on record, and everything that may be lost
    /// there has been taken back. `None`: that has yet to be put on record, which takes a [`Recording`] and may
    /// take minutes.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] for a server that was left; as every query.
    pub(super) async fn meet(
        &self,
        connection: &mut PgConnection,
        recording: Option<&Recording>,
    ) -> Result<Option<Met>> {
        // Put on record here, and whether it may have lost something.
        let mut recorded_loss = None;
        for _ in 0..RACES_MAX {
            let known = self.memory().current();
            let seen = look(connection, known.map(uuid)).await?;
            let (met, generation) = {
                let mut memory = self.memory();
                // Another connection may have met it meanwhile.
                if memory.current() != known {
                    continue;
                }
                let met = memory.meet(seen.server, seen.stand.as_ref(), seen.unbroken);
                if let Some(stand) = &seen.stand {
                    memory.follow(stand.history, met);
                }
                (met, memory.generation())
            };
            let number = seen.stand.map_or(0, |stand| stand.number);
            match met {
                Meeting::Same => return Ok(Some(Met { generation, number, moved: false })),
                Meeting::Goes | Meeting::Lost => {
                    let lost = met == Meeting::Lost || recorded_loss == Some(true);
                    if known.is_some() || recorded_loss.is_some() {
                        (self.0.tell)(&Told::Noticed { number, lost });
                    }
                    return Ok(Some(Met { generation, number, moved: known.is_some() }));
                }
                Meeting::Left => {
                    return Err(unavailable("the server was replaced by another one", "left"));
                }
                Meeting::Moved => {
                    if let Some(stand) = &seen.stand {
                        if recording.is_none() {
                            return Ok(None);
                        }
                        (self.0.tell)(&Told::Begun { before: stand.server, now: seen.server });
                    }
                    if let Some(recorded) = self.record(connection, &seen).await? {
                        recorded_loss = Some(!recorded.lossless);
                        (self.0.tell)(&Told::Recorded(recorded));
                    }
                }
            }
        }
        Err(unavailable("where the database is changes too fast", "moves"))
    }

    /// Puts on record that the database is on another server, and takes back what may be lost with it. `None`:
    /// others were first, or there was nothing on record yet.
    async fn record(&self, connection: &mut PgConnection, seen: &Seen) -> Result<Option<Recorded>> {
        let before = seen.stand.map(|stand| stand.server);
        let number = seen.stand.map_or(0, |stand| stand.number).saturating_add(1);
        let lossless = self.0.lossless || before.is_none();
        let now = seen.server;
        let mut tx = connection.begin().await?;
        query_file!("src/store/sql/failover_patience.sql").fetch_one(&mut *tx).await?;
        query_file!("src/store/sql/failover_lock.sql").execute(&mut *tx).await?;
        let first = query_file!(
            "src/store/sql/failover_record.sql",
            number,
            now.system,
            now.timeline,
            before.map(|server| server.system),
            before.map(|server| server.timeline),
            lossless,
            self.0.lease_ms,
        );
        if first.execute(&mut *tx).await?.rows_affected() == 0 {
            tx.rollback().await?;
            return Ok(None);
        }
        let (mut positions, mut effects) = (0, 0);
        if !lossless {
            positions = query_file!("src/store/sql/failover_positions.sql", EPOCHS_SKIPPED)
                .execute(&mut *tx)
                .await?
                .rows_affected();
            query_file!("src/store/sql/failover_workers.sql").execute(&mut *tx).await?;
            effects = query_file!("src/store/sql/failover_effects.sql", number)
                .execute(&mut *tx)
                .await?
                .rows_affected();
            query_file!("src/store/sql/failover_rejected.sql", number).execute(&mut *tx).await?;
            query_file!("src/store/sql/failover_parked.sql", number).execute(&mut *tx).await?;
            query_file!("src/store/sql/failover_deferred.sql").execute(&mut *tx).await?;
            let count = |rows: u64| i32::try_from(rows).unwrap_or(i32::MAX);
            let (p, e) = (count(positions), count(effects));
            query_file!("src/store/sql/failover_counts.sql", number, p, e)
                .execute(&mut *tx)
                .await?;
        }
        tx.commit().await?;
        Ok(before.map(|before| Recorded { number, before, now, lossless, positions, effects }))
    }
}

/// Whether new events of a scope may be done although nothing is on record of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScopeDoubt {
    pub any: bool,
    /// It stays as it is, until the next failover.
    pub over: bool,
}

/// Asks for the scope of a connector, which reads these topics. To be asked in a transaction before inbox rows
/// are loaded: what is decided again by then is seen by them.
pub async fn doubt(
    tx: &mut PgConnection,
    (scope, connector_id): (&str, i32),
    cluster_id: &str,
    topics: &[String],
) -> Result<ScopeDoubt> {
    let asked =
        query_file!("src/store/sql/failover_doubt.sql", scope, connector_id, cluster_id, topics);
    let row = asked.fetch_one(tx).await?;
    Ok(ScopeDoubt { any: row.doubt, over: row.over })
}

/// Whether the database is still where a transaction was decided for, as [`super::Session::number`] says. In a
/// transaction that was begun by [`super::begin`] that stays so until its end.
pub async fn stands(tx: &mut PgConnection, number: Option<i32>) -> Result<bool> {
    let asked = query_file!("src/store/sql/failover_stands.sql", number);
    Ok(asked.fetch_one(tx).await?.stands)
}

pub(super) fn unavailable(why: &'static str, code: &str) -> StoreError {
    let source = Said(sqlx::Error::Configuration(why.into()));
    StoreError::Unavailable { code: code.to_owned(), source }
}

/// What a connection shows.
#[derive(Clone, Copy, Debug)]
struct Seen {
    server: Server,
    stand: Option<Stand>,
    unbroken: bool,
}

async fn look(connection: &mut PgConnection, known: Option<uuid::Uuid>) -> Result<Seen> {
    let row = query_file!("src/store/sql/failover_look.sql", known).fetch_one(connection).await?;
    let stand = match (row.number, row.history, row.known_system, row.known_timeline) {
        (Some(number), Some(history), Some(system), Some(timeline)) => {
            Some(Stand { number, history: key(history), server: Server { system, timeline } })
        }
        _ => None,
    };
    let server = Server { system: row.system_identifier, timeline: row.timeline };
    Ok(Seen { server, stand, unbroken: row.unbroken })
}
