//! Effects for people.

use chrono::{DateTime, Utc};
use oncely_core::effect::status::Status;
use oncely_core::key::Key;
use sqlx::{PgConnection, query_file, query_file_as, query_file_scalar};
use uuid::Uuid;

use super::COUNTED_MAX;
use crate::store::columns::{key, uuid, uuids};
use crate::store::error::{Result, StoreError};

/// Which effects are asked for; `None` and empty take everything.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub statuses: Vec<Status>,
    /// Besides those of `statuses`, those that refused credentials or configuration halt.
    pub halted: bool,
    pub connector: Option<String>,
    pub effect: Option<String>,
    pub tenant: Option<String>,
    pub business_id: Option<String>,
    /// Only those that nobody performs any more.
    pub orphaned: bool,
    /// Only open ones that no attempt was ever claimed for, and whose record does not lie in the outbox.
    pub never_sent: bool,
    /// When it came to be owed.
    pub from: Option<DateTime<Utc>>,
    pub to: Option<DateTime<Utc>>,
    /// When its last attempt was claimed, which comes right before it is sent.
    pub sent_from: Option<DateTime<Utc>>,
    pub sent_to: Option<DateTime<Utc>>,
    /// Oldest first, instead of newest.
    pub oldest_first: bool,
    /// Rows at most.
    pub limit: i64,
}

/// One effect as it stands.
#[derive(Clone, Debug)]
pub struct EffectRow {
    pub key: Key,
    pub event: Key,
    pub lane: Key,
    /// `None` when the connector's row is gone.
    pub connector: Option<String>,
    pub name: String,
    pub status: Status,
    pub tenant: String,
    pub business_id: String,
    pub version: i64,
    /// Of its last claim; none before the first.
    pub fence: Option<i64>,
    pub attempts: i32,
    /// Those of them that the retry plan counts.
    pub failures: i32,
    /// Since the last send.
    pub lookups: i32,
    pub takeovers: i16,
    pub was_unknown: bool,
    /// A failover may have lost that it was sent.
    pub suspect: bool,
    pub status_code: Option<i16>,
    pub note: Option<String>,
    pub created_at: DateTime<Utc>,
    pub due_at: Option<DateTime<Utc>>,
    pub first_sent_at: Option<DateTime<Utc>>,
    pub last_sent_at: Option<DateTime<Utc>>,
    pub settled_at: Option<DateTime<Utc>>,
    pub after: Vec<Key>,
    /// The last answer refused credentials or configuration; it is tried again by itself.
    pub halted: bool,
    /// Open, and no connector file that runs has it: nobody will perform it.
    pub orphaned: bool,
    /// Its time has come, and a worker has found its circuit open: `outage` or `refusal`.
    pub circuit: Option<String>,
    /// The held effect that it waits for, as far as it is one of the same entity.
    pub behind: Option<Key>,
}

/// The same, as the columns have it.
struct Columns {
    key: Uuid,
    event: Uuid,
    lane: Uuid,
    connector: Option<String>,
    name: String,
    status: String,
    tenant: String,
    business_id: String,
    version: i64,
    fence: Option<i64>,
    attempts: i32,
    failures: i32,
    lookups: i32,
    takeovers: i16,
    was_unknown: bool,
    suspect: bool,
    status_code: Option<i16>,
    note: Option<String>,
    created_at: DateTime<Utc>,
    due_at: Option<DateTime<Utc>>,
    first_sent_at: Option<DateTime<Utc>>,
    last_sent_at: Option<DateTime<Utc>>,
    settled_at: Option<DateTime<Utc>>,
    after_keys: Option<Vec<Uuid>>,
    halted: bool,
    orphaned: bool,
    circuit: Option<String>,
    behind: Option<Uuid>,
}

impl Columns {
    fn read(self) -> Result<EffectRow> {
        let corrupt = || StoreError::Corrupt { key: key(self.key), what: "unknown status" };
        let status = Status::parse(&self.status).ok_or_else(corrupt)?;
        Ok(EffectRow {
            key: key(self.key),
            event: key(self.event),
            lane: key(self.lane),
            connector: self.connector,
            name: self.name,
            status,
            tenant: self.tenant,
            business_id: self.business_id,
            version: self.version,
            fence: self.fence,
            attempts: self.attempts,
            failures: self.failures,
            lookups: self.lookups,
            takeovers: self.takeovers,
            was_unknown: self.was_unknown,
            suspect: self.suspect,
            status_code: self.status_code,
            note: self.note,
            created_at: self.created_at,
            due_at: self.due_at,
            first_sent_at: self.first_sent_at,
            last_sent_at: self.last_sent_at,
            settled_at: self.settled_at,
            after: crate::store::columns::keys(self.after_keys),
            halted: self.halted,
            orphaned: self.orphaned,
            circuit: self.circuit,
            behind: self.behind.map(key),
        })
    }
}

impl Filter {
    /// The states that are asked for, where any are named; and whether all of them are open ones.
    fn states(&self) -> (Option<Vec<String>>, bool) {
        let statuses: Vec<_> =
            self.statuses.iter().map(|status| status.as_str().to_owned()).collect();
        let has_states = self.halted || !statuses.is_empty();
        let open_only = has_states && self.statuses.iter().all(|status| !status.is_final());
        (has_states.then_some(statuses), open_only)
    }
}

/// How many effects pass the filter, whatever its limit; counted up to [`COUNTED_MAX`].
pub async fn count(connection: &mut PgConnection, filter: &Filter) -> Result<i64> {
    let (statuses, open_only) = filter.states();
    let count = query_file_scalar!(
        "src/store/sql/admin_effects_count.sql",
        statuses.as_deref(),
        open_only,
        filter.connector,
        filter.effect,
        filter.tenant,
        filter.business_id,
        COUNTED_MAX,
        filter.orphaned,
        filter.halted,
        filter.from,
        filter.to,
        filter.sent_from,
        filter.sent_to,
        filter.never_sent,
    );
    Ok(count.fetch_one(connection).await?)
}

/// Effects that pass the filter.
pub async fn list(connection: &mut PgConnection, filter: &Filter) -> Result<Vec<EffectRow>> {
    let (statuses, open_only) = filter.states();
    let rows = query_file_as!(
        Columns,
        "src/store/sql/admin_effects.sql",
        statuses.as_deref(),
        open_only,
        filter.connector,
        filter.effect,
        filter.tenant,
        filter.business_id,
        filter.limit,
        filter.orphaned,
        filter.halted,
        filter.from,
        filter.to,
        filter.oldest_first,
        filter.sent_from,
        filter.sent_to,
        filter.never_sent,
    );
    rows.fetch_all(connection).await?.into_iter().map(Columns::read).collect()
}

/// The effects of these keys that there are.
pub async fn of_keys(connection: &mut PgConnection, keys: &[Key]) -> Result<Vec<EffectRow>> {
    let rows = query_file_as!(Columns, "src/store/sql/admin_effects_by_key.sql", &uuids(keys));
    rows.fetch_all(connection).await?.into_iter().map(Columns::read).collect()
}

/// What an effect sends, and what was kept of the answer; either may have been dropped by age.
#[derive(Clone, Debug, Default)]
pub struct Bytes {
    pub request: Option<Vec<u8>>,
    pub result: Option<Vec<u8>>,
}

pub async fn bytes(connection: &mut PgConnection, effect: Key) -> Result<Bytes> {
    let row = query_file_as!(Bytes, "src/store/sql/admin_effect_bytes.sql", uuid(effect));
    Ok(row.fetch_optional(connection).await?.unwrap_or_default())
}

/// One attempt on record. A first one that succeeded has no row of its own.
#[derive(Clone, Debug)]
pub struct AttemptRow {
    pub effect: Key,
    pub fence: i64,
    pub at: DateTime<Utc>,
    pub outcome: String,
    pub status_code: Option<i16>,
    pub note: Option<String>,
    /// Seen by a worker that had been declared dead.
    pub evidence: bool,
}

/// Attempts of these effects, oldest first.
pub async fn attempts(connection: &mut PgConnection, effects: &[Key]) -> Result<Vec<AttemptRow>> {
    let rows = query_file!("src/store/sql/admin_attempts.sql", &uuids(effects));
    let rows = rows.fetch_all(connection).await?.into_iter();
    Ok(rows
        .map(|row| AttemptRow {
            effect: key(row.effect),
            fence: row.fence,
            at: row.at,
            outcome: row.outcome,
            status_code: row.status_code,
            note: row.note,
            evidence: row.evidence,
        })
        .collect())
}
