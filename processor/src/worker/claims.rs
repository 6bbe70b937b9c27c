//! The claims that this process holds in memory.
//!
//! A live worker can lose sight of its own claims: a COMMIT whose answer was lost, a task that
//! panicked. Comparing the database's list with this one shows them. Whoever makes claims holds
//! `making` from before its transaction until they are listed here, so that the comparison never
//! mistakes a claim that is just being made for a lost one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oncely_core::effect::request::HttpRequest;
use oncely_core::key::Key;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use uuid::Uuid;

use crate::clock::{self, Moment};
use crate::store::claim::Claim;

/// A claim, and under which id it was made.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) worker: Uuid,
    /// Index of the effect's rule.
    pub(super) rule: usize,
    pub(super) claim: Claim,
    /// When it came into these hands.
    pub(super) since: Moment,
    /// Why no request could be made, where it had to be rendered late.
    pub(super) unrenderable: Option<String>,
    /// The look-up, where it was claimed to ask; or why it cannot be made.
    pub(super) lookup: Option<Result<HttpRequest, String>>,
}

impl Held {
    /// A claim as it was just made.
    pub(super) fn new(worker: Uuid, rule: usize, claim: Claim) -> Self {
        Self { worker, rule, claim, since: clock::now(), unrenderable: None, lookup: None }
    }

    /// All that settling needs.
    pub(super) fn without_request(&self) -> Self {
        let Claim { key, fence, event, lane, version, marks, history, .. } = self.claim;
        let (tenant, business_id) = (self.claim.tenant.clone(), self.claim.business_id.clone());
        let (request, after) = (None, Vec::new());
        let claim = Claim {
            key,
            fence,
            event,
            lane,
            version,
            tenant,
            business_id,
            request,
            marks,
            after,
            history,
        };
        Self::new(self.worker, self.rule, claim)
    }
}

/// The list; clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims {
    list: Arc<Mutex<BTreeMap<(Key, i64), Uuid>>>,
    making: Arc<RwLock<()>>,
}

impl Claims {
    /// To be held from before a claiming transaction until its claims are listed.
    pub(super) async fn making(&self) -> OwnedRwLockReadGuard<()> {
        Arc::clone(&self.making).read_owned().await
    }

    /// Waits until no claim is being made.
    pub(super) async fn settled(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.making).write_owned().await
    }

    pub(super) fn add(&self, held: &Held) {
        self.list().insert((held.claim.key, held.claim.fence), held.worker);
    }

    pub(super) fn remove(&self, key: Key, fence: i64) {
        self.list().remove(&(key, fence));
    }

    pub(super) fn has(&self, key: Key, fence: i64) -> bool {
        self.list().contains_key(&(key, fence))
    }

    /// Whether no claim is held and none is being made.
    pub(super) fn is_idle(&self) -> bool {
        self.making.try_write().is_ok() && self.count() == 0
    }

    /// How many claims are held.
    pub(super) fn count(&self) -> usize {
        self.list().len()
    }

    /// The effects that claims are held of.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.list().keys().map(|(key, _)| *key).collect()
    }

    fn list(&self) -> MutexGuard<'_, BTreeMap<(Key, i64), Uuid>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
