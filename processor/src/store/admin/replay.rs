//! Replaying events that are on record: what they owe and do not have yet, or once more by a person's word.
//!
//! An event is replayed with its lane locked as the batch locks it, so it meets the original in flight where
//! everything else does. What is added is due like everything else, and claimed by whoever runs the connector.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use oncely_core::connector::Connector;
use oncely_core::decide::{Known, OwedAgain, Plan};
use oncely_core::effect::order::Turn;
use oncely_core::fingerprint::Fingerprint;
use oncely_core::key::Key;
use sqlx::{PgConnection, query_file, query_file_scalar};
use uuid::Uuid;

use super::audit::{Change, record};
use crate::store::batch::{self, Chosen, PayloadRecord};
use crate::store::columns::{elapsed, key, keys, uuid, uuids};
use crate::store::error::Result;
use crate::store::failover;
use crate::store::settle::{LaneLock, lock_lanes};

/// Which events are meant; `None` takes everything.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub connector: String,
    pub event: Option<Key>,
    pub tenant: Option<String>,
    /// When it was first seen.
    pub from: Option<DateTime<Utc>>,
    pub to: Option<DateTime<Utc>>,
    /// `applied` or `stale`.
    pub outcome: Option<String>,
    pub entity: Option<Key>,
    /// Where the event was first read.
    pub topic: Option<String>,
    pub partition: Option<i32>,
    pub limit: i64,
}

/// An event that is on record.
#[derive(Clone, Debug)]
pub struct Selected {
    pub key: Key,
    pub fingerprint: Fingerprint,
    pub entity: Option<Key>,
    pub version: i64,
    pub is_stale: bool,
    pub tenant: String,
    pub from_state: Option<String>,
    pub to_state: Option<String>,
    pub first_seen_at: DateTime<Utc>,
    pub age_ms: u64,
    pub source: i32,
    pub topic: String,
    pub topic_id: String,
    pub cluster_id: String,
    pub partition: i32,
    pub offset: i64,
    pub connector_id: i32,
}

/// Events that pass the filter, in the order of each entity's versions.
pub async fn select(connection: &mut PgConnection, filter: &Filter) -> Result<Vec<Selected>> {
    let rows = query_file!(
        "src/store/sql/admin_replay_select.sql",
        filter.connector,
        filter.event.map(uuid),
        filter.tenant,
        filter.from,
        filter.to,
        filter.limit,
        filter.outcome,
        filter.entity.map(uuid),
        filter.topic,
        filter.partition,
    );
    let rows = rows.fetch_all(connection).await?.into_iter();
    Ok(rows
        .map(|row| Selected {
            key: key(row.key),
            fingerprint: Fingerprint(key(row.fingerprint)),
            entity: row.entity.map(key),
            version: row.version.unwrap_or(0),
            is_stale: row.outcome == "stale",
            tenant: row.tenant,
            from_state: row.from_state,
            to_state: row.to_state,
            first_seen_at: row.first_seen_at,
            age_ms: elapsed(row.age_ms),
            source: row.source,
            topic: row.topic,
            topic_id: row.topic_id,
            cluster_id: row.cluster_id,
            partition: row.first_partition,
            offset: row.first_offset,
            connector_id: row.connector_id,
        })
        .collect())
}

/// Locks the event's lane and what it owes. Gives the effects that it owes on record, what is known of `asked`
/// keys and of its lane, and the state of its entity. `None`: it was forgotten meanwhile.
pub async fn lock(
    tx: &mut PgConnection,
    event: &Selected,
    connector: &Connector,
    asked: &[Key],
) -> Result<Option<(Vec<Key>, Known)>> {
    let (lock, lane) = match event.entity {
        Some(entity) => (LaneLock::Entity, entity),
        None => (LaneLock::Inbox, event.key),
    };
    lock_lanes(tx, lock, &[lane]).await?;
    let row = query_file!("src/store/sql/admin_replay_lock.sql", uuid(event.key));
    let Some(row) = row.fetch_optional(&mut *tx).await? else { return Ok(None) };
    let mut known = Known::default();
    if let Some(entity) = event.entity {
        known.entities = batch::load_entities(tx, &[entity]).await?;
    }
    known.open.insert(lane, batch::load_open(tx, &[lane]).await?);
    known.effects = batch::load_effects(tx, asked).await?;
    known.ledger = batch::load_ledger(tx, asked).await?;
    let with_id = (connector, event.connector_id);
    batch::doubt_undone(tx, with_id, &[lane], &mut known).await?;
    Ok(Some((keys(row.effects), known)))
}

/// Names of the effects that these keys are of, and with `lines` of the event's ledger lines.
pub async fn named(
    tx: &mut PgConnection,
    event: &Selected,
    owes: &[Key],
    lines: bool,
) -> Result<BTreeSet<String>> {
    let (owes, event_key) = (uuids(owes), uuid(event.key));
    let rows = query_file_scalar!(
        "src/store/sql/admin_replay_named.sql",
        &owes,
        event.tenant,
        event_key,
        lines
    );
    Ok(rows.fetch_all(tx).await?.into_iter().collect())
}

/// Whether effects of this event may have been added, and the database may have lost it.
pub async fn in_doubt(
    tx: &mut PgConnection,
    connector: &Connector,
    event: &Selected,
) -> Result<bool> {
    let replayed = query_file_scalar!("src/store/sql/failover_replayed.sql", event.first_seen_at);
    if replayed.fetch_one(&mut *tx).await? {
        return Ok(true);
    }
    let topics = connector.source.topics.iter().map(|topic| topic.to_string()).collect::<Vec<_>>();
    let scope = (&*connector.scope, event.connector_id);
    Ok(failover::doubt(tx, scope, &event.cluster_id, &topics).await?.any)
}

/// What is kept of the event's record.
#[derive(Clone, Copy, Debug)]
pub struct Kept<'a> {
    pub timestamp_ms: Option<i64>,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    /// In the stored form.
    pub headers: &'a [u8],
}

/// Adds to what an event owes: effects, lines, and the event's bytes where they are still needed. `owes`
/// comes as it is on record and is what the event owes then. Effects of later versions that have not gone
/// yet wait for these.
pub async fn add(
    tx: &mut PgConnection,
    event: &Selected,
    (connector, again): (&Connector, OwedAgain),
    owes: &mut Vec<Key>,
    kept: &Kept<'_>,
) -> Result<()> {
    let with_connector = (connector, event.connector_id);
    let more: Vec<Key> = again.keys.into_iter().filter(|key| !owes.contains(key)).collect();
    // Owed by another event already: shared with it from now on.
    let shared: Vec<Key> =
        more.iter().filter(|key| !again.effects.contains_key(key)).copied().collect();
    let goes =
        again.effects.values().any(|effect| !matches!(effect.turn, Turn::Skip | Turn::Hold(_)));
    let plan = Plan { effects: again.effects, ledger: again.ledger, ..Plan::default() };
    if !plan.effects.is_empty() {
        batch::write_effects(tx, &plan, with_connector, (Uuid::nil(), None), |_| Chosen::Waiting)
            .await?;
        batch::write_compensations(tx, &plan).await?;
    }
    batch::write_lines(tx, &plan.ledger, with_connector).await?;
    if !shared.is_empty() {
        let one_each = vec![1_i32; shared.len()];
        query_file!("src/store/sql/admin_replay_share.sql", &uuids(&shared), &one_each)
            .execute(&mut *tx)
            .await?;
    }
    if again.needs_payload {
        let place = oncely_core::decide::Place {
            source: event.source,
            partition: event.partition,
            offset: event.offset,
        };
        let payload = PayloadRecord {
            event: event.key,
            place,
            timestamp_ms: kept.timestamp_ms,
            key: kept.key,
            value: kept.value,
            headers: kept.headers,
            previous: event.from_state.as_deref(),
            current: event.to_state.as_deref(),
        };
        batch::write_payloads(tx, &[payload]).await?;
    }
    if !more.is_empty() {
        owes.extend(more);
        let owes = uuids(&*owes);
        query_file!("src/store/sql/admin_replay_owe.sql", uuid(event.key), &owes)
            .execute(&mut *tx)
            .await?;
    }
    if let (true, Some(entity)) = (goes, event.entity) {
        let (lane, own) = (uuid(entity), uuid(event.key));
        query_file!("src/store/sql/admin_replay_block.sql", lane, event.version, own)
            .execute(&mut *tx)
            .await?;
    }
    Ok(())
}

/// Notes on record that a person had this event replayed.
pub async fn note(
    tx: &mut PgConnection,
    event: Key,
    action: &str,
    change: &Change,
    detail: &BTreeMap<&str, serde_json::Value>,
) -> Result<()> {
    let detail = serde_json::to_string(detail).unwrap_or_default();
    record(tx, Some(event), action, change, &detail).await
}
