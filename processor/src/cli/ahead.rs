//! What is rendered later, shown ahead: requests that read results of earlier effects, and look-ups. Pure.
//!
//! Results are not there yet, so each stands as its own name in `‹›`.

use std::collections::BTreeMap;

use oncely_connectors::format;
use oncely_core::connector::{Connector, EffectBody, RequestRule};
use oncely_core::decide::EffectNew;
use oncely_core::effect::request::Request;
use oncely_core::expr::{Path, Root, Scope, Step};
use oncely_core::key::Key;
use oncely_core::render;
use oncely_core::value::Value;
use serde_json::{Map, Value as Json};

/// What will be rendered of one effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ahead {
    /// Its request, where that has to wait for results; else why it cannot be shown ahead.
    pub(super) request: Option<Result<Request, String>>,
    /// Which results it reads.
    pub(super) reads: Vec<String>,
    /// How the provider is asked when the outcome is unknown.
    pub(super) lookup: Option<Result<Request, String>>,
}

/// Looks at one effect of an event with everything that is known of that.
pub(super) fn ahead(
    connector: &Connector,
    (key, effect): (Key, &EffectNew),
    scope: &Scope<'_>,
) -> Ahead {
    let Some(rule) = connector.effects.get(effect.rule) else { return Ahead::default() };
    let (late, lookup) = match &rule.body {
        EffectBody::Call(call) => (Some(&call.request), call.lookup.as_ref()),
        EffectBody::Publish(publish) => (Some(&publish.request), None),
        EffectBody::Ledger(_) => (None, None),
    };
    let late = late.filter(|_| effect.request.is_none());
    let reads = late.map(results_of).unwrap_or_default();
    let wire = key.wire();
    let results = placeholders(&reads);
    let scope = Scope {
        tenant: Some(&effect.tenant),
        effect_key: Some(&wire),
        effects: results.as_ref(),
        ..*scope
    };
    let said = |error: render::RequestError| error.to_string();
    Ahead {
        request: late.map(|rule| render::request(rule, &scope).map_err(said)),
        lookup: lookup
            .map(|rule| render::http(&rule.request, &scope).map(Request::Http).map_err(said)),
        reads: reads.iter().map(ToString::to_string).collect(),
    }
}

fn results_of(rule: &RequestRule) -> Vec<Path> {
    let mut reads = Vec::new();
    rule.for_each_read(&mut |path| {
        if path.root == Root::Effects && !reads.contains(path) {
            reads.push(path.clone());
        }
    });
    reads
}

/// Results in which each value is the name by which it is read. `None`: they are no plain members.
fn placeholders(reads: &[Path]) -> Option<Value> {
    let mut root = Map::new();
    for path in reads {
        let names: Vec<&str> = (path.steps.iter())
            .map(|step| match step {
                Step::Member(name) => Some(&**name),
                Step::Index(_) => None,
            })
            .collect::<Option<_>>()?;
        let (last, parents) = names.split_last()?;
        let mut at = &mut root;
        for name in parents {
            let inner = at.entry(*name).or_insert_with(|| Json::Object(Map::new()));
            at = inner.as_object_mut()?;
        }
        at.insert((*last).to_owned(), Json::String(format!("‹{path}›")));
    }
    format::json::parse(Json::Object(root).to_string().as_bytes()).ok()
}

/// By effect, of all that an event is the first to owe.
pub(super) type AheadOf = BTreeMap<Key, Ahead>;
