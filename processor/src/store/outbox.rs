//! The outbox: records that are to be published, who sends which, and what became of them.

use std::collections::BTreeMap;

use oncely_core::key::{Hasher, Key};
use sqlx::{PgConnection, query_file, query_file_as, query_file_scalar};
use uuid::Uuid;

use super::claim::{Claim, ClaimRow};
use super::columns::{clean, key, uuid, uuids};
use super::error::Result;
use super::origin::Origin;

/// Slices of a connector's sequences, spread over its relays.
pub const SLICES: u8 = 32;
/// Characters of a note, as the columns allow.
const NOTE_CHARS_MAX: usize = 500;

/// A record on its way into the outbox.
#[derive(Clone, Debug)]
pub struct Outgoing<'a> {
    /// The message id, by which readers recognise repeats.
    pub message: Key,
    pub topic: &'a str,
    /// Records of one topic with equal keys keep their order; those without a key have none.
    pub record_key: Option<&'a [u8]>,
    /// The dead letter that it is made from; `None`: it is the effect of this key.
    pub parked: Option<i64>,
}

impl Outgoing<'_> {
    fn sequence(&self) -> Key {
        match self.record_key {
            None => self.message,
            Some(record_key) => {
                Hasher::new("outbox sequence").part(self.topic).bytes(record_key).finish()
            }
        }
    }
}

/// Puts records into the outbox, in this order.
pub async fn put(tx: &mut PgConnection, connector: i32, records: &[Outgoing<'_>]) -> Result<()> {
    let sequences: Vec<Key> = records.iter().map(Outgoing::sequence).collect();
    let slice = |sequence: &Key| {
        let first = sequence.as_bytes().first().copied().unwrap_or(0);
        i16::from(first.checked_rem(SLICES).unwrap_or(0))
    };
    let message = uuids(records.iter().map(|record| &record.message));
    let slices: Vec<i16> = sequences.iter().map(slice).collect();
    let topic: Vec<&str> = records.iter().map(|record| record.topic).collect();
    let parked: Vec<Option<i64>> = records.iter().map(|record| record.parked).collect();
    query_file!(
        "src/store/sql/outbox_insert.sql",
        &message,
        &uuids(&sequences),
        &slices,
        &topic as &[&str],
        &parked as &[Option<i64>],
        connector,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Lanes of effects of these names whose turn has come and that are not in the outbox yet.
pub async fn lanes_due(
    connection: &mut PgConnection,
    connector: i32,
    names: &[String],
    limit: i64,
) -> Result<Vec<Key>> {
    let lanes = query_file_scalar!("src/store/sql/outbox_lanes_due.sql", connector, names, limit);
    Ok(lanes.fetch_all(connection).await?.into_iter().map(key).collect())
}

/// Those effects, locked, with their names. The lanes are locked by the caller.
pub async fn due(
    tx: &mut PgConnection,
    connector: i32,
    names: &[String],
    lanes: &[Key],
) -> Result<Vec<(String, Claim)>> {
    let lanes = uuids(lanes);
    let rows = query_file_as!(ClaimRow, "src/store/sql/outbox_due.sql", connector, names, &lanes);
    let rows = rows.fetch_all(tx).await?.into_iter();
    Ok(rows.map(|row| (row.name.clone(), Claim::from(row))).collect())
}

/// Notes that these effects' records are in the outbox.
pub async fn queued(tx: &mut PgConnection, effects: &[Key]) -> Result<()> {
    query_file!("src/store/sql/outbox_queued.sql", &uuids(effects)).execute(tx).await?;
    Ok(())
}

/// Rejects effects for which no record can be made, for these reasons; gives those that were open.
pub async fn reject(tx: &mut PgConnection, effects: &[(Key, String)]) -> Result<Vec<Key>> {
    let (keys, notes) = noted(effects);
    let rows = query_file_scalar!("src/store/sql/outbox_unrenderable.sql", &keys, &notes);
    Ok(rows.fetch_all(tx).await?.into_iter().map(key).collect())
}

fn noted(effects: &[(Key, String)]) -> (Vec<Uuid>, Vec<String>) {
    let keys = uuids(effects.iter().map(|(key, _)| key));
    let notes = effects.iter().map(|(_, note)| clean(note, NOTE_CHARS_MAX)).collect();
    (keys, notes)
}

// --------------------------------------------------------------------------------------------- //

/// A record that waits to be sent.
#[derive(Clone, Debug)]
pub struct Waiting {
    pub id: i64,
    pub message: Key,
    pub sequence: Key,
    pub slice: i16,
    pub topic: String,
    pub what: What,
    /// It was too large for its topic: only what says where it lies is sent.
    pub is_pointer: bool,
}

/// What a record is made from.
#[derive(Clone, Debug)]
pub enum What {
    Effect(Published),
    DeadLetter(Box<DeadLetter>),
    /// The number of a dead letter that is not there any more.
    Gone(i64),
}

impl What {
    /// The effect whose record it is; `None` for a dead letter.
    pub const fn effect(&self) -> Option<&Published> {
        match self {
            Self::Effect(effect) => Some(effect),
            Self::DeadLetter(_) | Self::Gone(_) => None,
        }
    }
}

/// An effect that publishes.
#[derive(Clone, Debug)]
pub struct Published {
    pub lane: Key,
    pub tenant: String,
    pub business_id: String,
    pub name: String,
    /// The rendered record; `None` when retention took it.
    pub request: Option<Vec<u8>>,
}

/// A parked row as it is sent.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    pub number: i64,
    pub connector: String,
    pub group: String,
    pub reason: String,
    pub detail: String,
    pub business_id: Option<String>,
    pub attempts: i32,
    pub redrives: i32,
    pub origin: Option<Origin>,
    pub timestamp_ms: Option<i64>,
    /// Key and id of the rejected effect.
    pub effect: Option<(Key, String)>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    /// `None`: the record's bytes are not kept.
    pub headers: Option<Vec<u8>>,
}

/// What is read at a time.
#[derive(Clone, Copy, Debug)]
pub struct Room<'a> {
    pub slices: &'a [i16],
    /// Rows that the caller has already.
    pub known: &'a [i64],
    /// Sequences of which it has enough.
    pub full: &'a [Key],
    /// Rows of each slice.
    pub rows: i64,
    /// Bytes of requests; at least one row is given.
    pub bytes: i64,
}

/// The next records of these slices, in the order in which each sequence is sent.
pub async fn load(
    connection: &mut PgConnection,
    connector: i32,
    room: Room<'_>,
) -> Result<Vec<Waiting>> {
    let rows = query_file!(
        "src/store/sql/outbox_load.sql",
        connector,
        room.slices,
        room.known,
        &uuids(room.full),
        room.rows,
        room.bytes,
    );
    let rows = rows.fetch_all(&mut *connection).await?;
    let numbers: Vec<i64> = rows.iter().filter_map(|row| row.parked).collect();
    let mut letters =
        if numbers.is_empty() { BTreeMap::new() } else { letters(connection, &numbers).await? };
    Ok(rows
        .into_iter()
        .map(|row| Waiting {
            id: row.id,
            message: key(row.message),
            sequence: key(row.sequence),
            slice: row.slice,
            topic: row.topic,
            what: match row.parked {
                Some(number) => letters
                    .remove(&number)
                    .map_or(What::Gone(number), |letter| What::DeadLetter(Box::new(letter))),
                None => What::Effect(Published {
                    lane: row.lane.map_or_else(|| key(row.message), key),
                    tenant: row.tenant.unwrap_or_default(),
                    business_id: row.business_id.unwrap_or_default(),
                    name: row.name.unwrap_or_default(),
                    request: row.request,
                }),
            },
            is_pointer: false,
        })
        .collect())
}

async fn letters(
    connection: &mut PgConnection,
    numbers: &[i64],
) -> Result<BTreeMap<i64, DeadLetter>> {
    let rows = query_file!("src/store/sql/letters_load.sql", numbers);
    let rows = rows.fetch_all(connection).await?.into_iter();
    Ok(rows
        .map(|row| {
            let letter = DeadLetter {
                number: row.id,
                connector: row.connector,
                group: row.group_name,
                reason: row.reason,
                detail: row.detail,
                business_id: row.business_id,
                attempts: row.attempts,
                redrives: row.redrives,
                origin: Origin::of(row.topic, row.record_partition, row.record_offset),
                timestamp_ms: row.record_timestamp,
                effect: row.effect.map(|effect| (key(effect), row.effect_name.unwrap_or_default())),
                key: row.record_key,
                value: row.value,
                headers: row.headers,
            };
            (row.id, letter)
        })
        .collect())
}

/// Records that the brokers have: row, partition, offset, message id.
pub async fn sent(tx: &mut PgConnection, records: &[(i64, i32, i64, Key)]) -> Result<()> {
    let id: Vec<_> = records.iter().map(|(id, ..)| *id).collect();
    let partition: Vec<_> = records.iter().map(|(_, partition, ..)| *partition).collect();
    let offset: Vec<_> = records.iter().map(|(_, _, offset, _)| *offset).collect();
    let message = uuids(records.iter().map(|(.., message)| message));
    query_file!("src/store/sql/outbox_sent.sql", &id, &partition, &offset, &message)
        .execute(tx)
        .await?;
    Ok(())
}

/// Settles the effects of such records, with their results; gives those that were open.
pub async fn published(tx: &mut PgConnection, effects: &[(Key, Vec<u8>)]) -> Result<Vec<Key>> {
    let key_ = uuids(effects.iter().map(|(key, _)| key));
    let result: Vec<_> = effects.iter().map(|(_, result)| result.clone()).collect();
    let rows = query_file_scalar!("src/store/sql/effect_published.sql", &key_, &result);
    Ok(rows.fetch_all(tx).await?.into_iter().map(key).collect())
}

/// Holds records that the brokers refuse, where `worker` still has their slice; gives those rows.
pub async fn hold(
    tx: &mut PgConnection,
    worker: Uuid,
    records: &[(i64, Key, String)],
) -> Result<Vec<i64>> {
    let id: Vec<_> = records.iter().map(|(id, ..)| *id).collect();
    let message = uuids(records.iter().map(|(_, message, _)| message));
    let note: Vec<_> = records.iter().map(|(.., note)| clean(note, NOTE_CHARS_MAX)).collect();
    let rows = query_file_scalar!("src/store/sql/outbox_hold.sql", &id, &note, worker, &message);
    Ok(rows.fetch_all(tx).await?)
}

/// Holds the effects of such records; gives those that were.
pub async fn unpublished(
    tx: &mut PgConnection,
    worker: Uuid,
    effects: &[(Key, String)],
) -> Result<Vec<Key>> {
    let (keys, notes) = noted(effects);
    let rows = query_file_scalar!("src/store/sql/effect_unpublished.sql", &keys, &notes, worker);
    Ok(rows.fetch_all(tx).await?.into_iter().map(key).collect())
}

/// Takes the record of an effect out that a person has settled.
pub async fn drop_of(tx: &mut PgConnection, effect: Key) -> Result<()> {
    query_file!("src/store/sql/outbox_drop.sql", uuid(effect)).execute(tx).await?;
    Ok(())
}

// --------------------------------------------------------------------------------------------- //

/// Makes the slices of a connector, once.
pub async fn make_slices(connection: &mut PgConnection, connector: i32) -> Result<()> {
    query_file!("src/store/sql/relay_slices.sql", connector).execute(connection).await?;
    Ok(())
}

/// Joins the relays of a connector; gives how many there are.
pub async fn join(connection: &mut PgConnection, connector: i32, worker: Uuid) -> Result<usize> {
    query_file!("src/store/sql/relay_join.sql", connector, worker)
        .execute(&mut *connection)
        .await?;
    query_file!("src/store/sql/relay_forget.sql", connector).execute(&mut *connection).await?;
    let count = query_file_scalar!("src/store/sql/relay_count.sql", connector);
    Ok(usize::try_from(count.fetch_one(connection).await?).unwrap_or(1))
}

/// The slices that this worker has.
pub async fn slices_of(
    connection: &mut PgConnection,
    connector: i32,
    worker: Uuid,
) -> Result<Vec<i16>> {
    let rows = query_file_scalar!("src/store/sql/relay_mine.sql", connector, worker);
    Ok(rows.fetch_all(connection).await?)
}

/// Takes up to `want` slices that no living worker has; gives them.
pub async fn take(
    connection: &mut PgConnection,
    connector: i32,
    worker: Uuid,
    want: usize,
) -> Result<Vec<i16>> {
    let want = i64::try_from(want).unwrap_or(i64::MAX);
    let rows = query_file_scalar!("src/store/sql/relay_take.sql", connector, worker, want);
    Ok(rows.fetch_all(connection).await?)
}

/// Lets slices go of which nothing is in flight.
pub async fn release(
    connection: &mut PgConnection,
    connector: i32,
    worker: Uuid,
    slices: &[i16],
) -> Result<()> {
    query_file!("src/store/sql/relay_release.sql", connector, worker, slices)
        .execute(connection)
        .await?;
    Ok(())
}

/// Leaves the relays of a connector, after the last slice was let go.
pub async fn leave(connection: &mut PgConnection, connector: i32, worker: Uuid) -> Result<()> {
    query_file!("src/store/sql/relay_leave.sql", connector, worker).execute(connection).await?;
    Ok(())
}
