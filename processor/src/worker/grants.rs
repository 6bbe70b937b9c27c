//! Slots for the effects of a batch that are claimed in its own transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use oncely_core::decide::Plan;
use oncely_core::effect::order::Turn;
use oncely_core::key::Key;

use super::claims::Held;
use super::lane::Lane;
use crate::store::claim::{Claim, Recorded, stored};

/// Slots taken for effects of the plan that are ready: these are claimed in the transaction.
/// Dropped before [`Grants::keep`], the slots go back.
pub(super) struct Grants<'a> {
    lanes: &'a [Option<Arc<Lane>>],
    pub(super) keys: BTreeSet<Key>,
    slots: Vec<usize>,
}

impl<'a> Grants<'a> {
    pub(super) fn take(lanes: &'a [Option<Arc<Lane>>], plan: &Plan) -> Self {
        let mut wanted = vec![Vec::new(); lanes.len()];
        for (key, effect) in &plan.effects {
            // A late request is rendered when it is claimed from the database, and so is the question about
            // what may have been sent before.
            if effect.turn == Turn::Ready && effect.request.is_some() && !effect.suspect {
                if let Some(wanted) = wanted.get_mut(effect.rule) {
                    wanted.push(*key);
                }
            } else if let Some(Some(lane)) = lanes.get(effect.rule) {
                lane.set_backlog(true);
            }
        }
        let mut keys = BTreeSet::new();
        let mut slots = vec![0; lanes.len()];
        for ((lane, wanted), slots) in lanes.iter().zip(wanted).zip(&mut slots) {
            let Some(lane) = lane.as_ref().filter(|_| !wanted.is_empty()) else { continue };
            *slots = lane.reserve(wanted.len());
            if *slots < wanted.len() {
                lane.set_backlog(true);
            }
            keys.extend(wanted.into_iter().take(*slots));
        }
        Self { lanes, keys, slots }
    }

    /// The transaction is durable: the claims stand, and so do their slots.
    pub(super) fn keep(
        mut self,
        plan: &Plan,
        fences: &BTreeMap<Key, i64>,
        worker: uuid::Uuid,
    ) -> Vec<Held> {
        self.slots.clear();
        let held = |(key, fence): (&Key, &i64)| {
            let effect = plan.effects.get(key)?;
            let claim = Claim {
                key: *key,
                fence: *fence,
                event: effect.event,
                lane: effect.lane,
                version: effect.version,
                tenant: effect.tenant.clone(),
                business_id: effect.business_id.clone(),
                request: effect.request.as_deref().map(stored),
                // By the file as it is.
                marks: None,
                after: effect.after.clone(),
                history: Recorded::default(),
            };
            Some(Held::new(worker, effect.rule, claim))
        };
        fences.iter().filter_map(held).collect()
    }
}

impl Drop for Grants<'_> {
    fn drop(&mut self) {
        for (lane, slots) in self.lanes.iter().zip(&self.slots) {
            if let Some(lane) = lane {
                lane.refund(*slots);
            }
        }
    }
}
