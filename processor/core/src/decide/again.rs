//! What an event that is on record owes by the connector file as it is now.
//!
//! Reads: the event, where its entity stood after it, and what is known of its effects. Gives: the effects and
//! lines that are not on record, or effects of a new generation, under keys of their own. Decides no state:
//! that was done when the event was new.

use std::collections::BTreeMap;

use super::known::{EffectRow, Known};
use super::owed::{Question, Refusal, first_keys, generation, owed};
use super::plan::{EffectNew, LedgerNew, Moved};
use crate::connector::Connector;
use crate::event::Event;
use crate::expr::Scope;
use crate::key::Key;

/// An event that was decided before.
#[derive(Clone, Copy, Debug)]
pub struct Decided<'a> {
    pub connector: &'a Connector,
    pub event: &'a Event,
    /// Event value, headers and coordinates.
    pub scope: Scope<'a>,
    /// How it moved its entity.
    pub moved: Option<&'a Moved>,
    /// It came after a newer one: where the entity stood.
    pub stale: bool,
    pub current: Option<&'a str>,
    /// What is added may have been added and sent before, though nothing is on record of it: a failover may have
    /// lost that.
    pub suspect: bool,
}

/// What it owes.
#[derive(Clone, Debug, Default)]
pub struct OwedAgain {
    /// Effects that are not on record.
    pub effects: BTreeMap<Key, EffectNew>,
    /// All that it owes, in the order of the file.
    pub keys: Vec<Key>,
    pub ledger: BTreeMap<Key, LedgerNew>,
    pub needs_payload: bool,
}

impl<'a> Decided<'a> {
    fn question<'q>(&'q self, known: &'q Known) -> Question<'q> {
        Question {
            connector: self.connector,
            known,
            event: self.event,
            scope: self.scope,
            stale: self.stale,
            moved: self.moved,
            current: self.current,
            suspect: self.suspect,
        }
    }

    /// All keys that it owes: effects and lines, to be looked for.
    ///
    /// # Errors
    /// [`Refusal`] names the field that has no usable value now.
    pub fn keys(&self) -> Result<Vec<Key>, Refusal> {
        let owed = owed(&self.question(&Known::default()))?;
        Ok(owed.keys.into_iter().chain(owed.ledger.into_iter().map(|(key, _)| key)).collect())
    }

    /// The keys of these rules, by their index, of the first generation.
    ///
    /// # Errors
    /// As [`Decided::keys`]; or the event does not owe one of them.
    pub fn keys_of(&self, rules: &[usize]) -> Result<Vec<Key>, Refusal> {
        first_keys(&self.question(&Known::default()), rules)
    }

    /// What is owed and is not among `known`. That a request reads otherwise now than when it was made changes
    /// nothing: what is on record is on record.
    ///
    /// # Errors
    /// As [`Decided::keys`].
    pub fn missing(&self, known: &mut Known) -> Result<OwedAgain, Refusal> {
        let first = owed(&self.question(&Known::default()))?;
        for (key, new) in &first.effects {
            if let Some(EffectRow { request_hash, .. }) = known.effects.get_mut(key) {
                *request_hash = new.request_hash;
            }
        }
        for (key, line) in &first.ledger {
            if let Some(content) = known.ledger.get_mut(key) {
                *content = line.content;
            }
        }
        let owed = owed(&self.question(known))?;
        Ok(OwedAgain {
            effects: owed.effects.into_iter().collect(),
            keys: owed.keys,
            ledger: owed.ledger.into_iter().collect(),
            needs_payload: owed.needs_payload,
        })
    }

    /// Effects of a new generation, under keys that hold `tag`: the same tag gives the same keys. What comes
    /// after one of them comes after the new one.
    ///
    /// # Errors
    /// As [`Decided::keys`]; or the event does not owe one of them.
    pub fn generation(
        &self,
        known: &Known,
        rules: &[usize],
        tag: &str,
    ) -> Result<OwedAgain, Refusal> {
        let made = generation(&self.question(known), rules, tag)?;
        Ok(OwedAgain {
            keys: made.effects.iter().map(|(key, _)| *key).collect(),
            effects: made.effects.into_iter().collect(),
            ledger: BTreeMap::new(),
            needs_payload: made.needs_payload,
        })
    }
}
