//! The outbox: records that are published, and dead letters for their topic.
//!
//! Rows are written by the transaction that decides about them. Relays, one for each connector and process,
//! share the slices of its sequences; a slice goes to another only when its relay lets go of it with nothing in
//! flight, or when its worker is on record as dead. A sequence (topic and key) has one record in flight, and the
//! next follows when the brokers have it, so no failure can turn the order around. Whatever is sent twice, after
//! a crash or by a process that thaws, has the same message id and comes after its first copy.
//!
//! - [`queue`] – what is in memory: one record of each sequence in flight
//! - [`record`], [`letter`] – the record as it is sent
//! - [`sender`] – one send
//! - [`relay`] – the loop; [`slices`] – which of them are its own
//! - [`turn`] – effects whose turn has come are put into the outbox; [`settle`] – what was sent is on record

mod letter;
mod queue;
mod record;
mod relay;
mod sender;
mod settle;
mod slices;
mod turn;

pub(super) use self::relay::{Relay, RelayParts};

use std::collections::BTreeMap;

use oncely_core::connector::{Connector, EffectBody};
use oncely_core::decide::Plan;
use oncely_core::effect::order::Turn;
use oncely_core::effect::request::Request;
use oncely_core::key::Key;

use crate::store::outbox::Outgoing;

/// Whether anything of this connector goes through the outbox.
pub(super) fn is_used(connector: &Connector) -> bool {
    connector.failure.dead_letter.is_some()
        || connector.effects.iter().any(|rule| is_published(&rule.body))
}

pub(super) const fn is_published(body: &EffectBody) -> bool {
    matches!(body, EffectBody::Publish(_))
}

/// Records of a batch that go into the outbox in its own transaction.
#[derive(Debug, Default)]
pub(super) struct Ready {
    /// Topic and key, in the order of the events.
    records: Vec<(Key, Box<str>, Option<Box<str>>)>,
}

impl Ready {
    /// Those of the plan whose turn has come and that could be rendered.
    pub(super) fn of(connector: &Connector, plan: &Plan) -> Self {
        if !is_used(connector) {
            return Self::default();
        }
        let mut ready: BTreeMap<Key, _> = BTreeMap::new();
        for (key, effect) in &plan.effects {
            let published =
                connector.effects.get(effect.rule).is_some_and(|rule| is_published(&rule.body));
            if published
                && effect.turn == Turn::Ready
                && let Some(Ok(Request::Record(record))) =
                    effect.request.as_deref().map(Request::from_bytes)
            {
                ready.insert(*key, (record.topic, record.key));
            }
        }
        let in_order = plan.decisions.iter().flat_map(|decision| &decision.effects);
        let records = in_order.filter_map(|key| {
            ready.remove(key).map(|(topic, record_key)| (*key, topic, record_key))
        });
        Self { records: records.collect() }
    }

    pub(super) fn has(&self, key: &Key) -> bool {
        self.records.iter().any(|(ready, ..)| ready == key)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn outgoing(&self) -> Vec<Outgoing<'_>> {
        self.records
            .iter()
            .map(|(message, topic, key)| Outgoing {
                message: *message,
                topic,
                record_key: key.as_deref().map(str::as_bytes),
                parked: None,
            })
            .collect()
    }
}
