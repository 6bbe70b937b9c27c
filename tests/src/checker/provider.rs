//! I1 in the provider's own log: what took effect, how often, and under which keys.

use std::collections::{BTreeMap, BTreeSet};

use oncely_rig::provider::Log;
use oncely_rig::provider::log::Entry;

use crate::ledger::{Ending, Ledger, Owed};
use crate::wiring::Wiring;

/// What the log says of one owed effect.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) applied: u64,
    pub(super) keys: BTreeSet<String>,
    bodies: BTreeSet<String>,
}

/// What was called and what took effect, by owed effect; and requests that nobody owed.
pub(super) fn seen(
    ledger: &Ledger,
    wiring: &Wiring,
    log: &Log,
) -> (BTreeMap<Owed, Seen>, Vec<String>) {
    let mut all: BTreeMap<Owed, Seen> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut requests: BTreeMap<u64, Owed> = BTreeMap::new();
    for entry in log.entries() {
        match entry {
            Entry::Received { request, method, endpoint, key, body_sha256, body, .. } => {
                if method == "GET" {
                    continue;
                }
                let body = body.as_deref().unwrap_or_default();
                let effect = wiring.effects.iter().find(|effect| {
                    !effect.endpoint.is_empty() && endpoint.starts_with(effect.endpoint)
                });
                let owed = effect.and_then(|effect| {
                    let of_effect = ledger.owed.keys().filter(|owed| owed.effect == effect.id);
                    of_effect.into_iter().find(|owed| body.contains(&owed.mark))
                });
                let Some(owed) = owed else {
                    wrong.push(format!("I1: nobody owed request {request} to {endpoint}: {body}"));
                    continue;
                };
                requests.insert(*request, owed.clone());
                let seen = all.entry(owed.clone()).or_default();
                seen.keys.extend(key.clone());
                seen.bodies.insert(body_sha256.clone());
            }
            Entry::Applied { request, .. } => {
                if let Some(owed) = requests.get(request) {
                    let seen = all.entry(owed.clone()).or_default();
                    seen.applied += 1;
                }
            }
            Entry::Answered { .. } => {}
        }
    }
    (all, wrong)
}

pub(super) fn check(ledger: &Ledger, wiring: &Wiring, log: &Log) -> Vec<String> {
    let (all, mut wrong) = seen(ledger, wiring, log);
    let is_again = |key: &str| {
        let mut of_key = all.iter().filter(|(_, seen)| seen.keys.contains(key));
        of_key.any(|(owed, _)| ledger.owed.get(owed) == Some(&Ending::Again))
    };
    for (key, times) in log.repeated().into_iter().filter(|(key, _)| !is_again(key)) {
        wrong.push(format!("I1: key {key} took effect {times} times"));
    }
    let mut owners: BTreeMap<&str, &Owed> = BTreeMap::new();
    for (owed, seen) in &all {
        let ending = ledger.owed.get(owed);
        let again = matches!(ending, Some(Ending::Again | Ending::Twice));
        if seen.applied > 1 + u64::from(again) {
            wrong.push(format!("I1: {owed:?} took effect {} times", seen.applied));
        }
        if seen.keys.len() > 1 + usize::from(ending == Some(&Ending::Twice)) {
            wrong.push(format!("I1: {owed:?} was sent under {:?}", seen.keys));
        }
        // A mail carries the time of its sending; its request is the same for all that.
        if seen.bodies.len() > 1 && owed.effect != "letter" {
            wrong.push(format!("I1: {owed:?} was sent with {} bodies", seen.bodies.len()));
        }
        for key in &seen.keys {
            if let Some(other) = owners.insert(key, owed) {
                wrong.push(format!("I1: {owed:?} and {other:?} share the key {key}"));
            }
        }
    }
    wrong
}
