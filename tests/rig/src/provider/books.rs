//! What the provider remembers: keys with their answers, and the effects that can be asked for.
//!
//! Reads: one request. Gives: whether it takes effect, is a repeat, or is refused by the published rules
//! of its kind. Decides in memory; opens no socket, writes no log.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::answers;
use super::request::{Kind, Reply, Request};
use crate::clock;

/// What a key is at, at the provider.
#[derive(Debug)]
enum Known {
    /// Its first request has not been decided yet.
    InFlight { body_sha256: String },
    /// Its first request was decided by this answer.
    Decided { body_sha256: String, answer: Reply, since: Instant },
}

/// What the books say about a request before it takes effect.
#[derive(Debug)]
pub(super) enum Entry {
    /// It takes effect. A key is in flight from now on until `decided` or `forget`.
    New,
    /// It does not: this is the answer.
    Answer(Reply),
}

/// An effect that took place.
#[derive(Debug, Clone)]
pub(super) struct Effect {
    pub(super) id: String,
    pub(super) endpoint: String,
    pub(super) key: Option<String>,
    pub(super) effect_no: u64,
}

/// The memory of the provider.
#[derive(Debug)]
pub(super) struct Books {
    keys: HashMap<(Kind, String), Known>,
    key_window: Duration,
    by_key: HashMap<String, Vec<Effect>>,
    by_metadata: HashMap<String, Vec<Effect>>,
    effects: u64,
}

impl Books {
    pub(super) fn new(key_window: Duration) -> Self {
        Self {
            keys: HashMap::new(),
            key_window,
            by_key: HashMap::new(),
            by_metadata: HashMap::new(),
            effects: 0,
        }
    }

    /// Decides by the rules of the request's kind.
    pub(super) fn enter(&mut self, request: &Request) -> Entry {
        if let Some(refusal) = answers::malformed(request) {
            return Entry::Answer(refusal);
        }
        let Some(place) = place(request) else { return Entry::New };
        let window = self.key_window;
        match self.keys.get(&place) {
            Some(Known::Decided { since, .. }) if clock::since(*since) >= window => {}
            Some(Known::Decided { body_sha256, .. } | Known::InFlight { body_sha256 })
                if *body_sha256 != request.body_sha256 =>
            {
                return Entry::Answer(answers::other_body(request.kind, &place.1));
            }
            Some(Known::Decided { answer, .. }) => {
                return Entry::Answer(answers::replayed(request.kind, answer));
            }
            Some(Known::InFlight { .. }) => {
                return Entry::Answer(answers::in_flight(request.kind, &place.1));
            }
            None => {}
        }
        let body_sha256 = request.body_sha256.clone();
        self.keys.insert(place, Known::InFlight { body_sha256 });
        Entry::New
    }

    /// Records an effect, and gives it with its answer.
    pub(super) fn take_effect(&mut self, request: &Request) -> (Effect, Reply) {
        self.effects = self.effects.saturating_add(1);
        let effect = Effect {
            id: answers::id(request, self.effects),
            endpoint: request.path.clone(),
            key: request.key.clone(),
            effect_no: self.effects,
        };
        if let (Some(key), true) = (&request.key, request.kind.can_be_asked()) {
            self.by_key.entry(key.clone()).or_default().push(effect.clone());
        }
        if request.kind == Kind::Billing {
            for value in answers::metadata(request) {
                self.by_metadata.entry(value).or_default().push(effect.clone());
            }
        }
        let answer = answers::success(request, &effect);
        (effect, answer)
    }

    /// Keeps the answer of a key.
    pub(super) fn decided(&mut self, request: &Request, answer: &Reply) {
        if let Some(place) = place(request) {
            let body_sha256 = request.body_sha256.clone();
            let known = Known::Decided { body_sha256, answer: answer.clone(), since: clock::now() };
            self.keys.insert(place, known);
        }
    }

    /// Keeps a refusal as the answer of a key that was not seen before (Stripe keeps a 500).
    pub(super) fn refused(&mut self, request: &Request, answer: &Reply) {
        if place(request).is_some_and(|place| !self.keys.contains_key(&place)) {
            self.decided(request, answer);
        }
    }

    /// Forgets a key whose request was given up.
    pub(super) fn forget(&mut self, request: &Request) {
        if let Some(place) = place(request)
            && matches!(self.keys.get(&place), Some(Known::InFlight { .. }))
        {
            self.keys.remove(&place);
        }
    }

    /// Forgets every decided key, as if its window were over; effects stay.
    pub(super) fn forget_decided(&mut self) {
        self.keys.retain(|_, known| matches!(known, Known::InFlight { .. }));
    }

    /// The effects at one endpoint that a look-up asks for.
    pub(super) fn asked_for(&self, endpoint: &str, asked: &answers::Asked) -> Vec<&Effect> {
        let effects = match asked {
            answers::Asked::Key(key) => self.by_key.get(key),
            answers::Asked::Metadata(value) => self.by_metadata.get(value),
        };
        let effects = effects.into_iter().flatten();
        effects.filter(|effect| effect.endpoint == endpoint).collect()
    }
}

/// Where a request's key is kept; `None` when its kind does not deduplicate or it has no key.
fn place(request: &Request) -> Option<(Kind, String)> {
    let key = request.key.as_ref().filter(|_| request.kind.deduplicates())?;
    Some((request.kind, key.clone()))
}
