//! All that is on record of one event.

use chrono::{DateTime, Utc};
use oncely_core::key::Key;
use sqlx::{PgConnection, query_file, query_file_as, query_file_scalar};
use uuid::Uuid;

use super::audit::{self, Entry};
use super::compensations::{self, Pair};
use super::deferred::{self, DeferredRow, Filter};
use super::effects::{self, AttemptRow, EffectRow};
use super::parked::First;
use crate::store::columns::{key, keys, uuid, uuids};
use crate::store::error::Result;
use crate::store::origin::Origin;

/// How often an event is told to have waited.
const DEFERRED_MAX: i64 = 20;

/// Tenants that are read at once, as `admin_tenants.sql` has it.
pub const TENANTS_MAX: usize = 10_000;

/// A connector, as far as keys of its events need it.
#[derive(Clone, Debug)]
pub struct ConnectorRow {
    pub name: String,
    pub scope: String,
}

/// Connectors that ever ran here, by name; one, or all.
pub async fn connectors(
    connection: &mut PgConnection,
    name: Option<&str>,
) -> Result<Vec<ConnectorRow>> {
    let rows = query_file_as!(ConnectorRow, "src/store/sql/admin_connectors.sql", name);
    Ok(rows.fetch_all(connection).await?)
}

/// Ids of effects that connector files had when they ran last; of one connector, or of all.
pub async fn effect_names(
    connection: &mut PgConnection,
    connector: Option<&str>,
) -> Result<Vec<String>> {
    let names = query_file_scalar!("src/store/sql/admin_effect_names.sql", connector);
    Ok(names.fetch_all(connection).await?)
}

/// Tenants that ever had an event, at most [`TENANTS_MAX`] of them. Reads the whole inbox.
pub async fn tenants(connection: &mut PgConnection) -> Result<Vec<String>> {
    Ok(query_file_scalar!("src/store/sql/admin_tenants.sql").fetch_all(connection).await?)
}

/// Tenants that have something under a business id, at most 20. Reads whole tables.
pub async fn tenants_of(connection: &mut PgConnection, business_id: &str) -> Result<Vec<String>> {
    let rows = query_file_scalar!("src/store/sql/admin_tenants_of.sql", business_id);
    Ok(rows.fetch_all(connection).await?)
}

/// Tenants that own an event of that id, at most 20, by trying every tenant that ever had one: the
/// inbox keeps no ids. For events that left neither effect nor parked record.
pub async fn tenants_by_key(
    connection: &mut PgConnection,
    scopes: &[String],
    business_id: &str,
) -> Result<Vec<String>> {
    let tenants = tenants(connection).await?;
    let events = tenants
        .iter()
        .flat_map(|tenant| scopes.iter().map(move |scope| Key::event(scope, tenant, business_id)));
    let keys: Vec<_> = events.map(uuid).collect();
    let rows = query_file_scalar!("src/store/sql/admin_tenants_by_key.sql", &keys);
    Ok(rows.fetch_all(connection).await?)
}

/// One event: what came, what it owed, what became of it.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub inbox: Option<InboxRow>,
    pub parked: Vec<ParkedEntry>,
    /// How often, and for what, it waited.
    pub deferred: Vec<DeferredRow>,
    pub effects: Vec<EffectRow>,
    pub attempts: Vec<AttemptRow>,
    pub ledger: Vec<LedgerRow>,
    pub audit: Vec<Entry>,
    /// What its effects undo, and by what they are undone.
    pub pairs: Vec<Pair>,
}

impl History {
    pub fn is_empty(&self) -> bool {
        self.inbox.is_none() && self.parked.is_empty()
    }

    /// Other contents that came under its id and that a person has released: each parked record, which is a dead letter
    /// where it failed then, and the key that it runs under.
    pub fn released(&self) -> impl Iterator<Item = (&ParkedEntry, Key)> {
        self.parked.iter().filter_map(|row| Some((row, row.released?)))
    }

    /// How much is not over: effects, what was set aside, what waits for other events.
    pub fn open(&self) -> [usize; 3] {
        [
            self.effects.iter().filter(|effect| !effect.status.is_final()).count(),
            self.parked.iter().filter(|row| row.closed.is_none()).count(),
            self.deferred.iter().filter(|row| row.closed.is_none()).count(),
        ]
    }
}

/// The first copy, and how often it came again.
#[derive(Clone, Debug)]
pub struct InboxRow {
    pub first_seen_at: DateTime<Utc>,
    pub outcome: String,
    pub version: Option<i64>,
    pub from_state: Option<String>,
    pub to_state: Option<String>,
    pub origin: Option<Origin>,
    pub repeats: Option<Repeats>,
}

#[derive(Clone, Debug)]
pub struct Repeats {
    pub times: i64,
    pub last_seen_at: DateTime<Utc>,
    pub last: Option<Origin>,
}

#[derive(Clone, Debug)]
pub struct ParkedEntry {
    pub id: i64,
    pub at: DateTime<Utc>,
    pub kind: String,
    pub reason: String,
    pub detail: String,
    pub origin: Option<Origin>,
    pub effect: Option<Key>,
    /// The key that it runs under, where it is a second content that a person has released.
    pub released: Option<Key>,
    pub redrives: i32,
    /// It may have been done already.
    pub suspect: bool,
    /// When it was closed, and as what.
    pub closed: Option<(DateTime<Utc>, String)>,
    pub first: Option<First>,
}

#[derive(Clone, Debug)]
pub struct LedgerRow {
    pub key: Uuid,
    pub name: String,
    pub account: String,
    pub metric: String,
    /// Exact, as text.
    pub quantity: String,
    pub created_at: DateTime<Utc>,
}

/// Everything on record under one event key.
pub async fn history(connection: &mut PgConnection, tenant: &str, event: Key) -> Result<History> {
    let waited =
        Filter { event: Some(event), closed: true, limit: DEFERRED_MAX, ..Filter::default() };
    let mut history = History {
        parked: parked(connection, event).await?,
        deferred: deferred::list(connection, &waited).await?,
        ..History::default()
    };
    let mut subjects = vec![event];
    let row = query_file!("src/store/sql/admin_inbox.sql", uuid(event));
    if let Some(row) = row.fetch_optional(&mut *connection).await? {
        let owed = keys(row.effects);
        history.effects = effects::of_keys(connection, &owed).await?;
        history.attempts = effects::attempts(connection, &owed).await?;
        if !owed.is_empty() {
            history.pairs = compensations::of(connection, &owed).await?;
        }
        let lines = query_file_as!(
            LedgerRow,
            "src/store/sql/admin_ledger_of.sql",
            tenant,
            uuid(event),
            row.first_seen_at,
            &uuids(&owed)
        );
        history.ledger = lines.fetch_all(&mut *connection).await?;
        subjects.extend(owed);
        history.inbox = Some(InboxRow {
            first_seen_at: row.first_seen_at,
            outcome: row.outcome,
            version: row.version,
            from_state: row.from_state,
            to_state: row.to_state,
            origin: Origin::of(row.topic, Some(row.first_partition), Some(row.first_offset)),
            repeats: row.times.zip(row.last_seen_at).map(|(times, last_seen_at)| Repeats {
                times,
                last_seen_at,
                last: Origin::of(row.last_topic, row.last_partition, row.last_offset),
            }),
        });
    }
    history.audit = audit::of(connection, &subjects).await?;
    Ok(history)
}

async fn parked(connection: &mut PgConnection, event: Key) -> Result<Vec<ParkedEntry>> {
    let rows = query_file!("src/store/sql/admin_parked_of_event.sql", uuid(event));
    let rows = rows.fetch_all(connection).await?.into_iter();
    Ok(rows
        .map(|row| ParkedEntry {
            id: row.id,
            at: row.parked_at,
            kind: row.kind,
            reason: row.reason,
            detail: row.detail,
            origin: Origin::of(row.topic, row.record_partition, row.record_offset),
            effect: row.effect.map(key),
            released: row.released.map(key),
            redrives: row.redrives,
            suspect: row.suspect,
            closed: row.closed_at.zip(row.closed_as),
            first: First::of(row.first_at, row.first_reason, row.first_detail),
        })
        .collect())
}
