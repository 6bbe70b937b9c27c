//! Ledger lines that come after other effects: written in the very transaction that finds these done.
//!
//! A line is made of the event's kept bytes and the stored results, so it says what was used and not what
//! was asked for. Its key is unique in the ledger, and it is settled where it is written: whatever is lost
//! takes both along. A line that cannot be made is rejected, a dead letter that says why.

use std::collections::BTreeMap;

use oncely_core::connector::{EffectBody, EffectRule};
use oncely_core::decide::{LedgerNew, ledger_line};
use oncely_core::effect::status::Status;
use oncely_core::key::Key;

use super::Shared;
use super::claims::Held;
use super::late::{Sources, in_scope};
use super::prepared::tell;
use crate::store::claim::Claim;
use crate::store::settle::{self, Claiming, Woken};
use crate::store::{PgConnection, StoreError, batch, lines};
use crate::telemetry::Finished;

/// Why a line is not written.
const OTHER_CONTENT: &str =
    "another line stands under this key; if both are meant, `key` must tell them apart";

/// The rules of the file whose lines wait for others.
pub(super) fn names(shared: &Shared) -> Vec<String> {
    let waits = |rule: &&EffectRule| matches!(&rule.body, EffectBody::Ledger(line) if line.waits);
    shared.connector.effects.iter().filter(waits).map(|rule| rule.id.to_string()).collect()
}

/// Whether an effect of that name is a line that is written when its time has come.
pub(super) fn is_line(shared: &Shared, name: &str) -> bool {
    let rule = shared.connector.effect(name);
    rule.is_some_and(|rule| matches!(&rule.body, EffectBody::Ledger(line) if line.waits))
}

/// What became of lines.
#[derive(Debug, Default)]
pub(super) struct Written {
    done: BTreeMap<usize, u64>,
    rejected: BTreeMap<usize, u64>,
    /// Why each of those is not written.
    refused: Vec<Refused>,
}

#[derive(Debug)]
struct Refused {
    key: Key,
    name: String,
    tenant: String,
    business_id: String,
    why: String,
}

impl Written {
    /// Those of whose lines some were written or rejected.
    pub(super) fn rules(&self) -> impl Iterator<Item = usize> {
        self.done.keys().chain(self.rejected.keys()).copied()
    }

    /// Counts what is durable now, and tells of what a person has to look at.
    pub(super) fn count(&self, shared: &Shared) {
        let of = [(&self.done, Finished::Done), (&self.rejected, Finished::Rejected)];
        for (counts, how) in of {
            for (rule, times) in counts {
                if let Some(metrics) = shared.metrics.effect(*rule) {
                    metrics.finished(how, *times);
                }
            }
        }
        for one in &self.refused {
            let business_id = shared.shown(&one.tenant, &one.business_id);
            tell(one.key, &one.name, &business_id, Status::Rejected, (None, &one.why));
        }
    }
}

/// Writes lines that were woken, and wakes what waited for them, until none is left. The lanes are locked.
///
/// # Errors
/// When the database fails; then nothing was written.
pub(super) async fn write_woken(
    tx: &mut PgConnection,
    shared: &Shared,
    woken: &mut Woken,
    claiming: Claiming<'_>,
    let_go: &mut Vec<Key>,
) -> Result<Written, StoreError> {
    let mut written = Written::default();
    while !woken.lines.is_empty() {
        let due = std::mem::take(&mut woken.lines);
        let mut lanes: Vec<Key> = due.iter().map(|(_, claim)| claim.lane).collect();
        lanes.sort_unstable();
        lanes.dedup();
        write(tx, shared, due, &mut written, let_go).await?;
        let more = settle::wake(tx, &lanes, Some(claiming)).await?;
        woken.skipped.extend(more.skipped);
        woken.claimed.extend(more.claimed);
        woken.lines.extend(more.lines);
        woken.due |= more.due;
    }
    Ok(written)
}

/// Writes lines of locked lanes.
///
/// # Errors
/// As [`write_woken`].
pub(super) async fn write(
    tx: &mut PgConnection,
    shared: &Shared,
    due: Vec<(String, Claim)>,
    written: &mut Written,
    let_go: &mut Vec<Key>,
) -> Result<(), StoreError> {
    let rule_of = |name: &str| shared.connector.effects.iter().position(|rule| *rule.id == *name);
    // No claim is made: the row is locked, and so nobody else's.
    let nobody = uuid::Uuid::nil();
    let held =
        due.into_iter().filter_map(|(name, claim)| Some(Held::new(nobody, rule_of(&name)?, claim)));
    let held: Vec<Held> = held.collect();
    let sources = Sources::load(tx, held.iter()).await?;
    let mut made: BTreeMap<Key, LedgerNew> = BTreeMap::new();
    let mut settled = Vec::new();
    for held in &held {
        match line(shared, held, &sources) {
            Ok(line) => drop(made.insert(held.claim.key, line)),
            Err(why) => settled.push((held.claim.key, Status::Rejected, why)),
        }
    }
    let connector = (&*shared.connector, shared.connector_id);
    let new = batch::write_lines(tx, &made, connector).await?;
    let taken: Vec<Key> = made.keys().filter(|key| !new.contains(key)).copied().collect();
    let known =
        if taken.is_empty() { BTreeMap::new() } else { batch::load_ledger(tx, &taken).await? };
    for (key, line) in &made {
        let same = known.get(key).is_none_or(|content| *content == line.content);
        settled.push(if same {
            (*key, Status::Done, String::new())
        } else {
            (*key, Status::Rejected, OTHER_CONTENT.to_owned())
        });
    }
    lines::settle(tx, &settled).await?;
    let rejected: BTreeMap<Key, &String> = settled
        .iter()
        .filter(|(_, status, _)| *status == Status::Rejected)
        .map(|(key, _, why)| (*key, why))
        .collect();
    if !rejected.is_empty() {
        let keys: Vec<Key> = rejected.keys().copied().collect();
        settle::park_rejected(tx, &keys).await?;
    }
    for held in &held {
        let_go.push(held.claim.key);
        let refused = rejected.get(&held.claim.key).map(|why| Refused {
            key: held.claim.key,
            name: shared
                .connector
                .effects
                .get(held.rule)
                .map_or_else(String::new, |r| r.id.to_string()),
            tenant: held.claim.tenant.to_string(),
            business_id: held.claim.business_id.to_string(),
            why: (*why).clone(),
        });
        let counts = if refused.is_some() { &mut written.rejected } else { &mut written.done };
        written.refused.extend(refused);
        let count = counts.entry(held.rule).or_insert(0);
        *count = count.saturating_add(1);
    }
    Ok(())
}

fn line(shared: &Shared, held: &Held, sources: &Sources) -> Result<LedgerNew, String> {
    let rule = shared.connector.effects.get(held.rule);
    let Some((rule, EffectBody::Ledger(body))) = rule.map(|rule| (rule, &rule.body)) else {
        return Err("the effect is no line of the ledger any more".to_owned());
    };
    let whose = (held.claim.event, &*held.claim.tenant);
    let line = in_scope(&shared.connector, held, sources, |scope| {
        ledger_line(rule, held.rule, body, whose, scope).map_err(|refusal| refusal.detail)
    })?;
    // The database refuses it, and here nobody looks for the one line that it refuses.
    if [&line.account, &line.metric].iter().any(|text| text.contains('\0')) {
        return Err("its account or its metric contains NUL".to_owned());
    }
    Ok(line)
}
