//! What the batch transaction loads and writes, table by table.

use std::collections::{BTreeMap, BTreeSet};

use oncely_core::connector::{Connector, EffectRule};
use oncely_core::decide::{self, Input, Known, Plan};
use oncely_core::key::Key;

use super::Shared;
use super::age::aged;
use super::deferred::{self, Releasing};
use super::grants::Grants;
use super::item::Item;
use super::outbox;
use super::records::{self, Kept, Numbers};
use super::redrive::Redriving;
use super::writer::Undone;
use crate::store::batch::{self, Chosen, Written};
use crate::store::lease::{self, Pulse};
use crate::store::{self, PgConnection, StoreError};
use crate::store::{failover, share};

/// The keys of a batch, by what is asked about them.
pub(super) struct Asked<'a> {
    /// Events taken for new: each is proven so by the insert of its inbox row, or all is redone.
    pub(super) news: Vec<Key>,
    pub(super) events: Vec<Key>,
    /// Effects and ledger lines of which some exist already.
    pub(super) shared: &'a BTreeSet<Key>,
    /// Contents that a person has released.
    pub(super) released: &'a BTreeSet<Key>,
    /// Whether it is asked how many events wait.
    pub(super) counting: bool,
}

/// What a transaction is about.
pub(super) struct Of<'a> {
    pub(super) items: &'a [Item],
    pub(super) inputs: &'a [(usize, Input<'a>)],
    pub(super) redriving: Option<&'a Redriving>,
    pub(super) releasing: &'a Releasing,
    /// Of the connection; see [`oncely_core::failover::Doubt`].
    pub(super) generation: u64,
}

/// What is known before it is decided.
pub(super) struct Loaded<'a> {
    pub(super) known: Known,
    pub(super) events: Vec<Input<'a>>,
    /// Records of events that may go with these.
    pub(super) waiting: Vec<Item>,
    pub(super) entities: Vec<Key>,
    /// Entities that a released record takes the place of another one in, with the versions that they have.
    pub(super) was: BTreeMap<Key, i64>,
}

/// Loads what the database knows, entities first.
pub(super) async fn gather<'a>(
    tx: &mut PgConnection,
    shared: &Shared,
    of: &Of<'a>,
    asked: &Asked<'_>,
) -> Result<Loaded<'a>, Undone> {
    let rules = &*shared.connector;
    let (mut parked_events, mut deciding) = (Vec::new(), Vec::new());
    if let Some(redriving) = of.redriving.filter(|_| !of.items.is_empty()) {
        deciding = redriving.numbers(of.items);
        if store::parked::lock(tx, &deciding).await? < deciding.len() {
            return Err(Undone::Gone);
        }
        parked_events = redriving.events(of.items);
    }
    let entities = entities(of.inputs, &of.releasing.due);
    let may_be_left = rules.state.is_some() && !rules.defers() && shared.left.may_be();
    let mut defers = rules.defers() || !of.releasing.due.is_empty() || may_be_left;
    let calls = rules.effects.iter().any(EffectRule::is_tracked);
    let order = (calls, calls || defers);
    let mut known = load(tx, &entities, asked, &parked_events, order).await?;
    let mut was = BTreeMap::new();
    if let Some(redriving) = of.redriving {
        was = redriving.make_way(tx, of.items, &mut known).await?;
        known.insisted = redriving.insisted(of.items);
    }
    let events = aged(tx, rules, of.inputs).await?;
    let mut waiting = Vec::new();
    if may_be_left && of.releasing.due.is_empty() {
        // With the entities locked: whoever waits by another file is here, or comes after this.
        defers = deferred::is_any_left(tx, shared).await?;
    }
    if defers {
        known.releases = of.releasing.releases;
        let order = (&*entities, &*deciding);
        waiting = deferred::load(tx, shared, &mut known, &events, order, of.generation).await?;
        if asked.counting {
            known.room = Some(deferred::room(tx, shared).await?);
        }
    }
    Ok(Loaded { known, events, waiting, entities, was })
}

/// The entities of a batch and of deferred events that may go, sorted.
fn entities(inputs: &[(usize, Input<'_>)], due: &[Key]) -> Vec<Key> {
    let about = inputs.iter().filter_map(|(_, input)| input.event.entity.as_ref());
    let all: BTreeSet<Key> = about.map(|entity| entity.key).chain(due.iter().copied()).collect();
    all.into_iter().collect()
}

/// `calls`: effects have an order. `locks`: the order of something hangs on the entities.
async fn load(
    tx: &mut PgConnection,
    entities: &[Key],
    asked: &Asked<'_>,
    parked_events: &[Key],
    (calls, locks): (bool, bool),
) -> Result<Known, StoreError> {
    let mut known = Known::default();
    if !entities.is_empty() {
        // Without any order the guarded write of each entity is enough, and the lock would only be
        // written down for nothing.
        known.entities = if locks {
            batch::lock_entities(tx, entities).await?
        } else {
            batch::load_entities(tx, entities).await?
        };
    }
    if !parked_events.is_empty() {
        store::parked::forget(tx, parked_events).await?;
    }
    if !asked.events.is_empty() {
        known.inbox = batch::load_inbox(tx, &asked.events).await?;
    }
    if !asked.released.is_empty() {
        let released: Vec<Key> = asked.released.iter().copied().collect();
        known.inbox.extend(batch::load_inbox(tx, &released).await?);
    }
    // Entities that are new to the database have no effects yet.
    if calls && !known.entities.is_empty() {
        let lanes: Vec<Key> = known.entities.keys().copied().collect();
        for effect in batch::load_open(tx, &lanes).await? {
            known.open.entry(effect.lane).or_default().push(effect);
        }
    }
    if !asked.shared.is_empty() {
        let keys: Vec<Key> = asked.shared.iter().copied().collect();
        known.effects = batch::load_effects(tx, &keys).await?;
        known.ledger = batch::load_ledger(tx, &keys).await?;
    }
    Ok(known)
}

/// Since when the entities stand that suspect events come too late for.
pub(super) async fn load_stood(
    tx: &mut PgConnection,
    inputs: &[(usize, Input<'_>)],
    redriving: Option<&Redriving>,
    known: &mut Known,
) -> Result<(), StoreError> {
    let mut asked: BTreeMap<(Key, Option<i32>), Vec<Key>> = BTreeMap::new();
    for (_, input) in inputs.iter().filter(|(_, input)| known.suspect.contains(&input.event.key)) {
        let Some(about) = &input.event.entity else { continue };
        let stored = known.entities.get(&about.key);
        if stored.is_some_and(|row| row.version > about.version) {
            let failover = redriving.and_then(|redriving| redriving.failover(input.place));
            asked.entry((about.key, failover)).or_default().push(input.event.key);
        }
    }
    if asked.is_empty() {
        return Ok(());
    }
    let questions: Vec<(Key, Option<i32>)> = asked.keys().copied().collect();
    for (question, stood) in batch::stood(tx, &questions).await? {
        known.set_at.extend(stood.set_at.map(|place| (question.0, place)));
        if stood.before {
            known.late.extend(asked.remove(&question).unwrap_or_default());
        }
    }
    Ok(())
}

/// What is known of the effects that these events may undo.
pub(super) async fn load_undone(
    tx: &mut PgConnection,
    (connector, id): (&Connector, i32),
    events: &[Input<'_>],
    entities: &[Key],
    known: &mut Known,
) -> Result<(), StoreError> {
    let undone: BTreeSet<Key> = events
        .iter()
        .flat_map(|input| decide::undone_keys(connector, input.event, &input.scope))
        .collect();
    if undone.is_empty() {
        return Ok(());
    }
    let keys: Vec<Key> = undone.into_iter().collect();
    let found = batch::load_effects(tx, &keys).await?;
    if found.len() < keys.len() {
        batch::doubt_undone(tx, (connector, id), entities, known).await?;
    }
    known.effects.extend(found);
    Ok(())
}

/// Writes the plan, decided for the database as of the failover of this `number`. Gives the fences of what was
/// claimed, and the numbers of what was parked.
pub(super) async fn write(
    tx: &mut PgConnection,
    shared: &Shared,
    plan: &Plan,
    grants: &Grants<'_>,
    (worker, number): (uuid::Uuid, Option<i32>),
    kept: &Kept<'_>,
) -> Result<(BTreeMap<Key, i64>, Numbers), Undone> {
    let connector = (&*shared.connector, shared.connector_id);
    if batch::write_entities(tx, plan).await? == Written::LostRace {
        return Err(Undone::LostRace);
    }
    if !plan.released.is_empty() && store::deferred::close(tx, plan).await? == Written::LostRace {
        return Err(Undone::LostRace);
    }
    let mut fences = BTreeMap::new();
    if !plan.effects.is_empty() {
        let claimed = |key: &Key| grants.keys.contains(key);
        let ready = outbox::Ready::of(&shared.connector, plan);
        let how = |key: &Key| match key {
            key if claimed(key) => Chosen::Claimed,
            key if ready.has(key) => Chosen::Queued,
            _ => Chosen::Waiting,
        };
        let written = batch::write_effects(tx, plan, connector, (worker, number), how).await?;
        if written.is_empty() {
            refused(tx, (worker, number), !grants.keys.is_empty()).await?;
        }
        if written.len() < plan.effects.len() {
            let written: BTreeSet<Key> = written.iter().map(|fenced| fenced.key).collect();
            let keys = plan.effects.keys().filter(|key| !written.contains(key));
            return Err(Undone::Collided(keys.copied().collect()));
        }
        fences = written.iter().filter_map(|new| Some((new.key, new.fence?))).collect();
        if !ready.is_empty() {
            store::outbox::put(tx, shared.connector_id, &ready.outgoing()).await?;
        }
    }
    batch::write_compensations(tx, plan).await?;
    if share::share_effects(tx, plan).await? == Written::LostRace {
        return Err(Undone::LostRace);
    }
    if !plan.inbox.is_empty() && batch::write_inbox(tx, plan).await? == Written::LostRace {
        return Err(Undone::LostRace);
    }
    if !plan.ledger.is_empty() {
        let written: BTreeSet<Key> =
            batch::write_lines(tx, &plan.ledger, connector).await?.into_iter().collect();
        if written.len() < plan.ledger.len() {
            let keys = plan.ledger.keys().filter(|key| !written.contains(key));
            return Err(Undone::Collided(keys.copied().collect()));
        }
    }
    // Effects have asked that already.
    let keeps = kept.parks(plan) || !plan.deferred.is_empty() || !plan.released.is_empty();
    if plan.effects.is_empty() && keeps && !failover::stands(tx, number).await? {
        return Err(Undone::Moved);
    }
    let numbers = records::write(tx, shared, plan, kept).await?;
    if !plan.repeats.is_empty() {
        batch::write_repeats(tx, plan).await?;
    }
    Ok((fences, numbers))
}

/// Why no effect at all was written, unless all of them exist already.
async fn refused(
    tx: &mut PgConnection,
    (worker, number): (uuid::Uuid, Option<i32>),
    claims: bool,
) -> Result<(), Undone> {
    if !failover::stands(tx, number).await? {
        return Err(Undone::Moved);
    }
    if claims && lease::alive(tx, worker).await? == Pulse::Dead {
        return Err(Undone::Dead);
    }
    Ok(())
}
