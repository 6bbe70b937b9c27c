//! Requests that read results of earlier effects, rendered when they are claimed.
//!
//! Any process can do it: the event's bytes and where it stood were kept in the batch transaction.
//! The bytes are stored with the claim, so every attempt sends the same ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use oncely_connectors::format;
use oncely_core::connector::{Connector, EffectBody};
use oncely_core::effect::status::Status;
use oncely_core::expr::{Header, Meta, Scope, StateView};
use oncely_core::key::Key;
use oncely_core::render;
use oncely_core::value::Value;

use super::claims::Held;
use super::headers;
use crate::store::claim::{self, Payload};
use crate::store::{PgConnection, StoreError};

/// Renders the requests of claims that have none yet, and stores them. A claim whose request cannot
/// be made carries the reason instead, and is rejected.
///
/// # Errors
/// When the database fails; then nothing was claimed.
pub(super) async fn render_missing(
    tx: &mut PgConnection,
    connector: &Connector,
    claims: &mut [Held],
) -> Result<(), StoreError> {
    let missing: Vec<&mut Held> =
        claims.iter_mut().filter(|held| held.claim.request.is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let sorted = |keys: &mut dyn Iterator<Item = Key>| {
        let mut keys: Vec<Key> = keys.collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    };
    let events = sorted(&mut missing.iter().map(|held| held.claim.event));
    let after = sorted(&mut missing.iter().flat_map(|held| held.claim.after.iter().copied()));
    let payloads = claim::payloads(tx, &events).await?;
    let results = claim::results(tx, &after).await?;
    let mut rendered = Vec::new();
    for held in missing {
        match request(connector, held, payloads.get(&held.claim.event), &results) {
            Ok(bytes) => {
                rendered.push((held.claim.key, bytes.clone()));
                held.claim.request = Some(bytes);
            }
            Err(why) => held.unrenderable = Some(why),
        }
    }
    if !rendered.is_empty() {
        claim::store_requests(tx, &rendered).await?;
    }
    Ok(())
}

type Results = BTreeMap<Key, (String, Status, Option<Vec<u8>>)>;

fn request(
    connector: &Connector,
    held: &Held,
    payload: Option<&Payload>,
    results: &Results,
) -> Result<Vec<u8>, String> {
    let payload = payload.ok_or("the event's bytes were removed by retention")?;
    let rule = connector.effects.get(held.rule).ok_or("the connector has no such effect")?;
    let EffectBody::Call(call) = &rule.body else {
        return Err("the effect is no call any more".to_owned());
    };
    let stored = headers::decode(&payload.headers).ok_or("the kept headers cannot be read")?;
    let headers: Vec<Header<'_>> =
        stored.iter().map(|(name, value)| Header { name, value: value.as_deref() }).collect();
    let value = format::decode(&connector.decode, payload.value.as_deref(), &headers)
        .map_err(|error| error.to_string())?;
    let effects = recorded(&held.claim.after, results)?;
    let current: Option<Arc<str>> = payload.current.as_deref().map(Arc::from);
    let previous: Option<Arc<str>> = payload.previous.as_deref().map(Arc::from);
    let state = match (&current, &previous, payload.version) {
        (Some(current), Some(previous), Some(version)) => {
            Some(StateView { current, previous, version, moved: true })
        }
        _ => None,
    };
    let wire = held.claim.key.wire();
    let scope = Scope {
        event: Some(&value),
        headers: &headers,
        meta: Some(Meta {
            topic: &payload.topic,
            partition: payload.partition,
            offset: payload.offset,
            timestamp_ms: payload.timestamp_ms,
            key: payload.key.as_deref(),
        }),
        state,
        tenant: Some(&held.claim.tenant),
        effects: Some(&effects),
        effect_key: Some(&wire),
        ..Scope::default()
    };
    let request = render::request(&call.request, &scope);
    request.map(|request| request.to_bytes()).map_err(|error| super::chain(&error))
}

fn recorded(after: &[Key], results: &Results) -> Result<Value, String> {
    let mut members = Vec::new();
    for key in after {
        let Some((name, _, result)) = results.get(key) else { continue };
        let value = match result {
            None => Value::object::<&str>([]),
            Some(bytes) => format::json::parse(bytes)
                .map_err(|error| format!("the result of {name} cannot be read: {error}"))?,
        };
        members.push((name.as_str(), value));
    }
    Ok(Value::object(members))
}
