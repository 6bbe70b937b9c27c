//! From a record to what is to be decided about it: decode and identify, both pure.

use oncely_connectors::format::{self, DecodeError};
use oncely_core::connector::Connector;
use oncely_core::decide::Place;
use oncely_core::event::{self, Event, Named};
use oncely_core::expr::{Header, Meta, Scope};
use oncely_core::failover::Doubt;
use oncely_core::key::Key;
use oncely_core::value::Value;
use oncely_core::wanted::Wanted;

use super::parked::{BAD_HEADER, PANICKED};
use crate::kafka::{Permit, Record};

/// A record on its way to a writer.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) record: Record,
    pub(super) place: Place,
    pub(super) what: What,
    /// Whether it may be done although nothing is on record of it.
    pub(super) doubt: Doubt,
    /// Its share of the bounds on what is in flight; given back when the item is written.
    pub(super) _permit: Permit,
}

#[derive(Debug)]
pub(super) enum What {
    Event {
        event: Event,
        value: Value,
    },
    /// To be parked as it is: nothing can be decided about it.
    Unusable {
        reason: &'static str,
        detail: String,
        /// Whose it is, where that could be read.
        named: Option<Named>,
    },
}

/// What a record turned out to be.
#[derive(Debug)]
pub(super) enum Prepared {
    /// The connector does not want it.
    Ignored,
    Wanted(What),
}

/// Decodes and identifies a record. A panic in here is the record's fault as much as ours, and
/// parks it.
pub(super) fn prepare(connector: &Connector, wanted: &Wanted, record: &Record) -> Prepared {
    let prepared = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        decoded(connector, wanted, record)
    }));
    prepared.unwrap_or_else(|_| {
        let detail = "reading this record panicked; please report it with the log of that time";
        Prepared::Wanted(What::Unusable {
            reason: PANICKED,
            detail: detail.to_owned(),
            named: None,
        })
    })
}

fn decoded(connector: &Connector, wanted: &Wanted, record: &Record) -> Prepared {
    if record.headers_broken {
        let detail = "a header name is not UTF-8".to_owned();
        return Prepared::Wanted(What::Unusable { reason: BAD_HEADER, detail, named: None });
    }
    let headers = headers(record);
    let bytes = record.value.as_deref();
    let value = match format::decode_wanted(&connector.decode, bytes, &headers, wanted) {
        Ok(value) => value,
        Err(error) => return Prepared::Wanted(undecodable(&error)),
    };
    let scope = scope(&value, &headers, record);
    let identified = match event::matches(connector, &scope) {
        Ok(false) => return Prepared::Ignored,
        Ok(true) => event::identify(connector, &scope),
        Err(reject) => Err(reject),
    };
    Prepared::Wanted(match identified {
        Ok(event) => What::Event { event, value },
        Err(reject) => {
            let detail = reject.to_string();
            What::Unusable { reason: reject.reason.as_str(), detail, named: reject.named }
        }
    })
}

fn undecodable(error: &DecodeError) -> What {
    What::Unusable { reason: error.reason.as_str(), detail: error.to_string(), named: None }
}

/// The headers as expressions see them.
pub(super) fn headers(record: &Record) -> Vec<Header<'_>> {
    record
        .headers
        .iter()
        .map(|header| Header { name: &header.name, value: header.value.as_deref() })
        .collect()
}

/// What a record alone gives to expressions.
pub(super) fn scope<'a>(
    value: &'a Value,
    headers: &'a [Header<'a>],
    record: &'a Record,
) -> Scope<'a> {
    Scope {
        event: Some(value),
        headers,
        meta: Some(Meta {
            topic: &record.topic,
            partition: record.partition,
            offset: record.offset,
            timestamp_ms: record.timestamp_ms,
            key: record.key.as_deref(),
        }),
        ..Scope::default()
    }
}

impl Item {
    /// Keeps events of one entity together, so that they are decided in order.
    pub(super) fn shard(&self, writers: usize) -> usize {
        let key = match &self.what {
            What::Event { event, .. } => {
                event.entity.as_ref().map_or(event.key, |entity| entity.key)
            }
            What::Unusable { .. } => return 0,
        };
        shard(key, writers)
    }
}

fn shard(key: Key, writers: usize) -> usize {
    let last = key.as_bytes().last().copied().unwrap_or(0);
    usize::from(last).checked_rem(writers).unwrap_or(0)
}
