//! Requests that are rendered when they are claimed: those that read results of earlier effects, and
//! look-ups.
//!
//! Any process can do it: the event's bytes and where it stood were kept in the batch transaction.
//! The bytes of a request are stored with the claim, so every attempt sends the same ones; a look-up is
//! rendered anew each time, by the file as it is now.

use std::collections::BTreeMap;
use std::sync::Arc;

use oncely_connectors::format;
use oncely_core::connector::{Connector, EffectBody, LookupRule, RequestRule};
use oncely_core::effect::marks::Marks;
use oncely_core::effect::next::{Act, Policy, act};
use oncely_core::effect::request::Request;
use oncely_core::effect::status::Status;
use oncely_core::expr::{Header, Meta, Scope, StateView};
use oncely_core::key::Key;
use oncely_core::render;
use oncely_core::value::Value;

use super::claims::Held;
use super::headers;
use crate::store::claim::{self, Payload};
use crate::store::{PgConnection, StoreError};

/// What is to be rendered for a claim.
#[derive(Clone, Copy)]
enum Missing<'a> {
    Request(&'a RequestRule),
    LookUp(&'a LookupRule),
}

impl Missing<'_> {
    fn reads_event(self) -> bool {
        match self {
            Self::Request(_) => true,
            Self::LookUp(lookup) => lookup.reads_event(),
        }
    }
}

/// Renders the requests of claims that have none yet, and stores them; renders the look-ups of those
/// that are claimed to ask. A claim for which neither can be made carries the reason instead.
///
/// # Errors
/// When the database fails; then nothing was claimed.
pub(super) async fn render_missing(
    tx: &mut PgConnection,
    connector: &Connector,
    claims: &mut [Held],
) -> Result<(), StoreError> {
    let missing = claims.iter_mut().filter_map(|held| Some((missing(connector, held)?, held)));
    let missing: Vec<(Missing<'_>, &mut Held)> = missing.collect();
    if missing.is_empty() {
        return Ok(());
    }
    let of_events = missing.iter().filter(|(what, _)| what.reads_event());
    let sources = Sources::load(tx, of_events.map(|(_, held)| &**held)).await?;
    let mut rendered = Vec::new();
    for (what, held) in missing {
        match what {
            Missing::Request(rule) => {
                let made = in_scope(connector, held, &sources, |scope| {
                    render::request(rule, scope).map_err(|error| super::chain(&error))
                });
                match made {
                    Ok(request) => {
                        held.claim.marks = marks(connector, held.rule);
                        rendered.push((held.claim.key, on_record(&request, held.claim.marks)));
                        held.claim.request = Some(Ok(request));
                    }
                    Err(why) => held.unrenderable = Some(why),
                }
            }
            Missing::LookUp(lookup) => {
                let render = |scope: &Scope<'_>| {
                    render::http(&lookup.request, scope).map_err(|error| super::chain(&error))
                };
                held.lookup = Some(if lookup.reads_event() {
                    in_scope(connector, held, &sources, render)
                } else {
                    let (tenant, wire) = (&held.claim.tenant, held.claim.key.wire());
                    let scope =
                        Scope { tenant: Some(tenant), effect_key: Some(&wire), ..Scope::default() };
                    render(&scope)
                });
            }
        }
    }
    if !rendered.is_empty() {
        claim::store_requests(tx, &rendered).await?;
    }
    Ok(())
}

/// How requests of a rule are sent by the file as it is now.
fn marks(connector: &Connector, rule: usize) -> Option<Marks> {
    match connector.effects.get(rule).map(|rule| &rule.body) {
        Some(EffectBody::Call(call)) => Some(Marks::of(call)),
        Some(EffectBody::Publish(_) | EffectBody::Ledger(_)) | None => None,
    }
}

/// A request as it is stored.
pub(super) fn on_record(request: &Request, marks: Option<Marks>) -> Vec<u8> {
    let bytes = request.to_bytes();
    match marks {
        Some(marks) => marks.put(bytes),
        None => bytes,
    }
}

/// What a claim lacks of what it is claimed for.
fn missing<'c>(connector: &'c Connector, held: &mut Held) -> Option<Missing<'c>> {
    let rule = connector.effects.get(held.rule);
    let call = match rule.map(|rule| &rule.body) {
        Some(EffectBody::Call(call)) => call,
        Some(EffectBody::Publish(publish)) => {
            return held.claim.request.is_none().then_some(Missing::Request(&publish.request));
        }
        Some(EffectBody::Ledger(_)) | None => {
            if held.claim.request.is_none() {
                held.unrenderable = Some("the effect is no call any more".to_owned());
            }
            return None;
        }
    };
    match act(&Policy::of(call), &held.claim.history.when_claimed()) {
        Act::Send if held.claim.request.is_none() => Some(Missing::Request(&call.request)),
        Act::LookUp => call.lookup.as_ref().map(Missing::LookUp),
        Act::Send | Act::Hold(_) => None,
    }
}

type Results = BTreeMap<Key, (String, Status, Option<Vec<u8>>)>;

/// What late requests and lines are made of.
#[derive(Debug, Default)]
pub(super) struct Sources {
    payloads: BTreeMap<Key, Payload>,
    results: Results,
}

impl Sources {
    /// Of these effects: their events, and the results of what they come after.
    pub(super) async fn load<'h>(
        tx: &mut PgConnection,
        held: impl Iterator<Item = &'h Held> + Clone,
    ) -> Result<Self, StoreError> {
        let sorted = |keys: &mut dyn Iterator<Item = Key>| {
            let mut keys: Vec<Key> = keys.collect();
            keys.sort_unstable();
            keys.dedup();
            keys
        };
        let events = sorted(&mut held.clone().map(|held| held.claim.event));
        if events.is_empty() {
            return Ok(Self::default());
        }
        let after = sorted(&mut held.flat_map(|held| held.claim.after.iter().copied()));
        let payloads = claim::payloads(tx, &events).await?;
        Ok(Self { payloads, results: claim::results(tx, &after).await? })
    }
}

/// Makes something with everything that was known of the event.
pub(super) fn in_scope<T>(
    connector: &Connector,
    held: &Held,
    Sources { payloads, results }: &Sources,
    make: impl FnOnce(&Scope<'_>) -> Result<T, String>,
) -> Result<T, String> {
    let payload = payloads.get(&held.claim.event);
    let payload = payload.ok_or("the event's bytes were removed by retention")?;
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
    make(&scope)
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
