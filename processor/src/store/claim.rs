//! Claims: the right to send one effect now.

use std::collections::BTreeMap;
use std::time::Duration;

use oncely_core::effect::marks::Marks;
use oncely_core::effect::next::History;
use oncely_core::effect::request::Request;
use oncely_core::effect::status::Status;
use oncely_core::key::Key;
use sqlx::{PgConnection, query_file, query_file_as};
use uuid::Uuid;

use super::columns::{elapsed, key, keys, uuids};
use super::error::{Result, StoreError};

/// A request as it is on record, or why its bytes are none.
pub type Stored = std::result::Result<Request, String>;

/// Reads a request that is on record.
pub fn stored(bytes: &[u8]) -> Stored {
    Request::from_bytes(bytes).map_err(|error| error.to_string())
}

/// One claimed effect, with all that is needed to send it and to decide what follows.
#[derive(Clone, Debug)]
pub struct Claim {
    pub key: Key,
    pub fence: i64,
    pub event: Key,
    pub lane: Key,
    pub version: i64,
    pub tenant: Box<str>,
    pub business_id: Box<str>,
    /// `None`: to be rendered from results now, and stored before it is sent.
    pub request: Option<Stored>,
    /// How the stored request is sent.
    pub marks: Option<Marks>,
    pub after: Vec<Key>,
    pub history: Recorded,
}

pub(super) struct ClaimRow {
    pub(super) key: Uuid,
    pub(super) fence: i64,
    pub(super) event: Uuid,
    pub(super) lane: Uuid,
    pub(super) version: i64,
    pub(super) name: String,
    pub(super) connector: i32,
    pub(super) tenant: String,
    pub(super) business_id: String,
    pub(super) request: Option<Vec<u8>>,
    pub(super) was_unknown: bool,
    pub(super) asks: bool,
    pub(super) suspect: bool,
    pub(super) attempts: i32,
    pub(super) failures: i32,
    pub(super) lookups: i32,
    pub(super) takeovers: i16,
    pub(super) after_keys: Option<Vec<Uuid>>,
    pub(super) elapsed_ms: i64,
    pub(super) failing_ms: Option<i64>,
    pub(super) quiet_ms: Option<i64>,
    pub(super) status: String,
}

impl From<ClaimRow> for Claim {
    fn from(row: ClaimRow) -> Self {
        let marks = row.request.as_deref().and_then(Marks::found);
        Self {
            key: key(row.key),
            fence: row.fence,
            event: key(row.event),
            lane: key(row.lane),
            version: row.version,
            tenant: row.tenant.into(),
            business_id: row.business_id.into(),
            request: row.request.as_deref().map(stored),
            marks,
            after: keys(row.after_keys),
            history: Recorded::of(
                (row.attempts, row.failures, row.lookups),
                row.takeovers,
                (row.was_unknown, row.asks, row.suspect),
                (row.elapsed_ms, row.failing_ms, row.quiet_ms),
            )
            .sent(marks.filter(|_| row.was_unknown)),
        }
    }
}

/// What is on record of an effect before this attempt.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recorded {
    pub attempts: u32,
    /// Those of them that the retry plan counts.
    pub failures: u32,
    /// Since the last send.
    pub lookups: u32,
    pub takeovers: u16,
    pub was_unknown: bool,
    /// The provider is to be asked before anything is sent again.
    pub asks: bool,
    /// A failover may have lost that it was sent.
    pub suspect: bool,
    /// Since the first claim, by the database's clock, when it was claimed this time.
    pub elapsed_ms: u64,
    /// Since the failures began that go on, by the same clock; `None`: none do.
    pub failing_ms: Option<u64>,
    /// Since the last attempt that may have been applied, by the same clock; `None`: none was.
    pub quiet_ms: Option<u64>,
    /// See [`History::sent`].
    pub sent: Option<Marks>,
}

impl Recorded {
    fn sent(self, sent: Option<Marks>) -> Self {
        Self { sent, ..self }
    }

    /// From the columns; their constraints keep them at zero or more.
    pub(super) fn of(
        (attempts, failures, lookups): (i32, i32, i32),
        takeovers: i16,
        (was_unknown, asks, suspect): (bool, bool, bool),
        (elapsed_ms, failing_ms, quiet_ms): (i64, Option<i64>, Option<i64>),
    ) -> Self {
        Self {
            attempts: u32::try_from(attempts).unwrap_or(0),
            failures: u32::try_from(failures).unwrap_or(0),
            lookups: u32::try_from(lookups).unwrap_or(0),
            takeovers: u16::try_from(takeovers).unwrap_or(0),
            was_unknown,
            asks,
            suspect,
            elapsed_ms: elapsed(elapsed_ms),
            failing_ms: failing_ms.map(elapsed),
            quiet_ms: quiet_ms.map(elapsed),
            sent: None,
        }
    }

    /// As it was when it was claimed.
    pub fn when_claimed(&self) -> History {
        History {
            attempts: self.attempts,
            failures: self.failures,
            lookups: self.lookups,
            elapsed_ms: self.elapsed_ms,
            failing_ms: self.failing_ms.unwrap_or(0),
            quiet_ms: self.quiet_ms.unwrap_or(0),
            was_unknown: self.was_unknown,
            asks: self.asks,
            takeovers: self.takeovers,
            suspect: self.suspect,
            sent: self.sent,
        }
    }

    /// As it is `since` it was claimed.
    pub fn aged(&self, since: Duration) -> History {
        let since_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let elapsed_ms = self.elapsed_ms.saturating_add(since_ms);
        History { elapsed_ms, ..self.when_claimed() }
    }

    /// With the attempt now seen counted in, `since_ms` after the claim. `failed`: the retry plan
    /// counts it.
    pub fn after_attempt(&self, since_ms: u64, failed: bool) -> History {
        History {
            attempts: self.attempts.saturating_add(1),
            failures: self.failures.saturating_add(u32::from(failed)),
            elapsed_ms: self.elapsed_ms.saturating_add(since_ms),
            failing_ms: self.failing_ms.map_or(0, |ms| ms.saturating_add(since_ms)),
            ..self.when_claimed()
        }
    }

    /// With the look-up now seen counted in. Its answer is no younger than the claim.
    pub fn after_lookup(&self) -> History {
        History { lookups: self.lookups.saturating_add(1), ..self.when_claimed() }
    }
}

/// A record from which a late request is rendered.
#[derive(Clone, Debug)]
pub struct Payload {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    pub timestamp_ms: Option<i64>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<u8>,
    pub previous: Option<String>,
    pub current: Option<String>,
    pub version: Option<i64>,
}

/// Claims up to `slots` effects of one kind that are due, oldest first.
pub async fn claim_due(
    tx: &mut PgConnection,
    worker: Uuid,
    connector_id: i32,
    name: &str,
    slots: usize,
) -> Result<Vec<Claim>> {
    let limit = i64::try_from(slots).unwrap_or(i64::MAX);
    let rows = query_file_as!(
        ClaimRow,
        "src/store/sql/effect_claim_due.sql",
        connector_id,
        name,
        limit,
        worker
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().map(Claim::from).collect())
}

/// Every claim of this worker, with the effect's name and connector: what it may have lost sight of
/// (a COMMIT whose answer was lost, a panicked task) is among them.
pub async fn claimed_by(
    connection: &mut PgConnection,
    worker: Uuid,
) -> Result<Vec<(i32, String, Claim)>> {
    let rows = query_file_as!(ClaimRow, "src/store/sql/effect_claimed_by_me.sql", worker)
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(|row| (row.connector, row.name.clone(), Claim::from(row))).collect())
}

/// Gives claims back that were never sent.
pub async fn give_back(
    connection: &mut PgConnection,
    worker: Uuid,
    claims: &[(Key, i64)],
) -> Result<()> {
    let key = uuids(claims.iter().map(|(key, _)| key));
    let fence: Vec<_> = claims.iter().map(|(_, fence)| *fence).collect();
    query_file!("src/store/sql/effect_give_back.sql", worker, &key, &fence)
        .execute(connection)
        .await?;
    Ok(())
}

/// Loads the records of events whose effects are rendered late.
pub async fn payloads(tx: &mut PgConnection, events: &[Key]) -> Result<BTreeMap<Key, Payload>> {
    let rows = query_file!("src/store/sql/payload_load.sql", &uuids(events)).fetch_all(tx).await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let payload = Payload {
                topic: row.topic,
                partition: row.record_partition,
                offset: row.record_offset,
                timestamp_ms: row.record_timestamp,
                key: row.record_key,
                value: row.value,
                headers: row.headers,
                previous: row.previous_state,
                current: row.current_state,
                version: row.version,
            };
            (key(row.event), payload)
        })
        .collect())
}

/// Recorded results by effect key, with the effect's name.
pub async fn results(
    tx: &mut PgConnection,
    effects: &[Key],
) -> Result<BTreeMap<Key, (String, Status, Option<Vec<u8>>)>> {
    let rows =
        query_file!("src/store/sql/effect_results.sql", &uuids(effects)).fetch_all(tx).await?;
    rows.into_iter()
        .map(|row| {
            let status = Status::parse(&row.status)
                .ok_or(StoreError::Corrupt { key: key(row.key), what: "unknown status" })?;
            Ok((key(row.key), (row.name, status, row.result)))
        })
        .collect()
}

/// Stores requests of claims in the place of those that they were made from.
///
/// # Errors
/// As every query.
pub async fn replace_requests(tx: &mut PgConnection, requests: &[(Key, Vec<u8>)]) -> Result<()> {
    let key = uuids(requests.iter().map(|(key, _)| key));
    let bytes: Vec<_> = requests.iter().map(|(_, bytes)| bytes.clone()).collect();
    query_file!("src/store/sql/effect_readdress.sql", &key, &bytes).execute(tx).await?;
    Ok(())
}

/// Stores the bytes of late requests with their claims.
pub async fn store_requests(tx: &mut PgConnection, requests: &[(Key, Vec<u8>)]) -> Result<()> {
    let key = uuids(requests.iter().map(|(key, _)| key));
    let bytes: Vec<_> = requests.iter().map(|(_, bytes)| bytes.clone()).collect();
    query_file!("src/store/sql/effect_request.sql", &key, &bytes).execute(tx).await?;
    Ok(())
}
