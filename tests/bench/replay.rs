//! J2: the product's own SQL, replayed by two writers from plans that lie ready in memory.
//!
//! The plans are made beforehand by the product's own decoding and deciding, against a model of the
//! database, from the records in the order in which a consumer got them: an entity's events come close
//! together then, and its effects have to wait for each other. What is timed is the batch transaction as
//! the product has it: the same statements in the same order, with the same arrays. With effects, also what
//! settles them, and claims in the same transaction what waited for them.

use std::collections::{BTreeMap, BTreeSet};

use oncely::clock;
use oncely::store::batch::{self, Chosen, Written};
use oncely::store::settle::{self, Claiming, LaneLock, Settlement};
use oncely::store::{self, lease, register};
use oncely::worker::BATCH_RECORDS_MAX;
use oncely_connectors::format;
use oncely_core::connector::Connector;
use oncely_core::decide::{self, EntityRow, InboxRow, Input, Known, Place, Plan};
use oncely_core::effect::order::Turn;
use oncely_core::effect::outcome::OutcomeClass;
use oncely_core::effect::status::Status;
use oncely_core::event;
use oncely_core::expr::Scope;
use oncely_core::key::Key;
use oncely_core::value::Value;
use sqlx::PgConnection;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::error::{BenchError, Result};
use crate::limits::{WRITERS, shard};
use crate::services::Database;
use crate::workload::{Event, VALUE_BYTES, Workload};

/// Outcomes that one transaction settles, as in the product.
const SETTLED_MAX: usize = 500;
/// The only source of a replay.
const SOURCE: i32 = 1;

/// One batch, decided.
struct Batch {
    entities: Vec<Key>,
    /// Events that an earlier batch wrote: the product asks for no others.
    events: Vec<Key>,
    plan: Plan,
}

/// Events a second of the product's SQL alone, for all records of `workload` as they were consumed.
pub(crate) async fn replay(
    database: &Database,
    workload: Workload,
    consumed: &[Event],
    connector: Connector,
) -> Result<f64> {
    let mut first = database.connect("replay").await?;
    let id = register::connector(&mut first, &connector).await?;
    let source = register::source(&mut first, id, "bench", "bench", "bench").await?;
    if source != SOURCE {
        return Err(BenchError::wrong("the database of a replay is not fresh"));
    }
    let mut shards: Vec<Vec<(i64, Event)>> = vec![Vec::new(); WRITERS];
    for (offset, event) in consumed.iter().enumerate() {
        shards[shard(&event.entity_key())].push((offset as i64, *event));
    }
    let mut ready = Vec::new();
    for (partition, events) in shards.into_iter().enumerate() {
        let batches = plans(&connector, partition as i32, &events)?;
        let mut connection = database.connect_steady("replay writer").await?;
        let worker = Uuid::from_u128(partition as u128 + 1);
        lease::start(&mut connection, worker, 600_000, "bench").await?;
        ready.push((Writer { connection, worker, id, calls: has_calls(&connector) }, batches));
    }
    sqlx::query("CHECKPOINT").execute(&mut first).await?;
    let connector = std::sync::Arc::new(connector);
    let begun = clock::now();
    let mut writers = JoinSet::new();
    for (mut writer, batches) in ready {
        let connector = std::sync::Arc::clone(&connector);
        writers.spawn(async move {
            for batch in &batches {
                writer.write(&connector, batch).await?;
            }
            // Freed after the time is taken.
            Ok::<_, BenchError>(batches)
        });
    }
    let mut written = Vec::new();
    while let Some(batches) = writers.join_next().await {
        written.push(batches??);
    }
    let took = clock::since(begun).as_secs_f64();
    drop(written);
    check(&mut first, workload, has_calls(&connector)).await?;
    Ok(workload.records as f64 / took)
}

fn has_calls(connector: &Connector) -> bool {
    !connector.effects.is_empty()
}

/// A replay that did not write what the product writes would be no limit.
async fn check(connection: &mut PgConnection, workload: Workload, calls: bool) -> Result<()> {
    let (events, done): (i64, i64) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM oncely.inbox WHERE outcome = 'applied'),
                (SELECT count(*) FROM oncely.effect WHERE status = 'done')",
    )
    .fetch_one(connection)
    .await?;
    let distinct = workload.distinct() as i64;
    if events != distinct || done != if calls { distinct } else { 0 } {
        let what = format!("a replay of {distinct} events left {events} events, {done} effects");
        return Err(BenchError::wrong(what));
    }
    Ok(())
}

// --------------------------------------------------------------------------------------------- //

/// Decides all batches of one writer, each on what the earlier ones left.
fn plans(connector: &Connector, partition: i32, events: &[(i64, Event)]) -> Result<Vec<Batch>> {
    let mut inbox: BTreeMap<Key, InboxRow> = BTreeMap::new();
    let mut entities: BTreeMap<Key, EntityRow> = BTreeMap::new();
    let mut batches = Vec::new();
    for chunk in events.chunks(BATCH_RECORDS_MAX) {
        let decoded = chunk.iter().map(|(_, event)| decode(connector, *event));
        let decoded = decoded.collect::<Result<Vec<_>>>()?;
        let inputs: Vec<Input<'_>> = chunk
            .iter()
            .zip(&decoded)
            .map(|((offset, _), (event, value))| Input {
                event,
                scope: Scope { event: Some(value), ..Scope::default() },
                place: Place { source: SOURCE, partition, offset: *offset },
                age_ms: None,
            })
            .collect();
        let event_keys: BTreeSet<Key> = inputs.iter().map(|input| input.event.key).collect();
        let entity_keys: BTreeSet<Key> =
            inputs.iter().filter_map(|input| Some(input.event.entity.as_ref()?.key)).collect();
        let known = Known {
            inbox: known(&inbox, &event_keys),
            entities: known(&entities, &entity_keys),
            ..Known::default()
        };
        let seen = known.inbox.keys().copied().collect();
        let plan = decide::decide(connector, &inputs, known);
        for (key, new) in &plan.inbox {
            let row = InboxRow {
                fingerprint: new.fingerprint,
                ending: new.ending,
                effects: new.effects.clone(),
                first: new.place,
                age_ms: 0,
            };
            inbox.insert(*key, row);
        }
        entities.extend(plan.entities.iter().map(|(key, write)| (*key, write.row.clone())));
        batches.push(Batch { entities: entity_keys.into_iter().collect(), events: seen, plan });
    }
    Ok(batches)
}

fn known<T: Clone>(rows: &BTreeMap<Key, T>, keys: &BTreeSet<Key>) -> BTreeMap<Key, T> {
    keys.iter().filter_map(|key| Some((*key, rows.get(key)?.clone()))).collect()
}

fn decode(connector: &Connector, event: Event) -> Result<(event::Event, Value)> {
    let mut text = String::with_capacity(VALUE_BYTES);
    event.value(false, &mut text);
    let value = format::decode(&connector.decode, Some(text.as_bytes()), &[]);
    let value = value.map_err(BenchError::wrong)?;
    let scope = Scope { event: Some(&value), ..Scope::default() };
    let identified = event::identify(connector, &scope).map_err(BenchError::wrong)?;
    Ok((identified, value))
}

// --------------------------------------------------------------------------------------------- //

/// What settling needs of a claim: its key, its fence, its lane.
type Claimed = (Key, i64, Key);

struct Writer {
    connection: PgConnection,
    worker: Uuid,
    id: i32,
    calls: bool,
}

impl Writer {
    /// The batch transaction, and then what settles the effects that it claimed.
    async fn write(&mut self, connector: &Connector, batch: &Batch) -> Result<()> {
        let plan = &batch.plan;
        let mut tx = store::begin(&mut self.connection).await?;
        let entities = if self.calls {
            batch::lock_entities(&mut tx, &batch.entities).await?
        } else {
            batch::load_entities(&mut tx, &batch.entities).await?
        };
        if !batch.events.is_empty() {
            batch::load_inbox(&mut tx, &batch.events).await?;
        }
        if self.calls && !entities.is_empty() {
            let lanes: Vec<Key> = entities.keys().copied().collect();
            batch::load_open(&mut tx, &lanes).await?;
        }
        if batch::write_entities(&mut tx, plan).await? == Written::LostRace {
            return Err(BenchError::wrong("a replay lost a race for an entity"));
        }
        let mut claimed: Vec<Claimed> = Vec::new();
        if !plan.effects.is_empty() {
            let all = |_: &Key| Chosen::Claimed;
            let rules = (connector, self.id);
            let fenced =
                batch::write_effects(&mut tx, plan, rules, (self.worker, None), all).await?;
            if fenced.len() < plan.effects.len() {
                return Err(BenchError::wrong("the worker of a replay was declared dead"));
            }
            claimed.extend(fenced.into_iter().filter_map(|fenced| {
                let effect = plan.effects.get(&fenced.key)?;
                (effect.turn == Turn::Ready).then_some((fenced.key, fenced.fence?, effect.lane))
            }));
        }
        if !plan.inbox.is_empty() && batch::write_inbox(&mut tx, plan).await? == Written::LostRace {
            return Err(BenchError::wrong("a replay lost a race for an event"));
        }
        if !plan.repeats.is_empty() {
            batch::write_repeats(&mut tx, plan).await?;
        }
        tx.commit().await?;
        for some in claimed.chunks(SETTLED_MAX) {
            let mut claims = self.settle(some).await?;
            while !claims.is_empty() {
                claims = self.settle(&claims).await?;
            }
        }
        Ok(())
    }

    /// Settles claims, and in the same transaction wakes and claims what waited for them. Gives the new claims.
    async fn settle(&mut self, claims: &[Claimed]) -> Result<Vec<Claimed>> {
        let mut lanes: Vec<Key> = claims.iter().map(|(_, _, lane)| *lane).collect();
        lanes.sort_unstable();
        lanes.dedup();
        let outcomes: Vec<Settlement> = claims.iter().map(settlement).collect();
        let claiming = Claiming {
            worker: self.worker,
            connector_id: self.id,
            take_slot: &|_| true,
            is_line: &|_| false,
        };
        let mut tx = store::begin(&mut self.connection).await?;
        settle::lock_lanes(&mut tx, LaneLock::Entity, &lanes).await?;
        let settled = settle::settle(&mut tx, self.worker, &outcomes).await?;
        if settled.len() != claims.len() {
            return Err(BenchError::wrong("a replay lost claims"));
        }
        let woken = settle::wake(&mut tx, &lanes, Some(claiming)).await?;
        tx.commit().await?;
        let claimed = woken.claimed.into_iter();
        Ok(claimed.map(|(_, claim)| (claim.key, claim.fence, claim.lane)).collect())
    }
}

fn settlement((key, fence, lane): &Claimed) -> Settlement {
    Settlement {
        key: *key,
        fence: *fence,
        lane: *lane,
        status: Status::Done,
        due_in_ms: 0,
        status_code: Some(200),
        note: String::new(),
        was_unknown: false,
        result: None,
        asks: false,
        unknown_ms: None,
        seen: OutcomeClass::Done.as_str(),
        succeeded: true,
        lookups: 0,
        on_record: false,
        tries: 1,
        failures: 0,
    }
}
