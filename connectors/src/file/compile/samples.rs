//! What requests read, against the sample events: a mistyped member shows before it runs.

use std::collections::BTreeSet;
use std::fs;

use oncely_core::connector::{Connector, EffectBody};
use oncely_core::expr::{Path, Root, Scope};
use oncely_core::value::Value;

use super::super::TestCase;
use super::super::diagnostic::{Code, Finding};
use super::super::raw::RawConnector;
use super::super::read::Field;
use super::Compiler;
use crate::format;

impl Compiler<'_> {
    /// Warns of members that requests need and that no sample has.
    pub(super) fn samples(
        &mut self,
        connector: &Connector,
        tests: &[TestCase],
        raw: &RawConnector,
    ) {
        let files: BTreeSet<_> =
            tests.iter().flat_map(|test| &test.events).map(|event| &event.path).collect();
        let samples: Vec<Value> = files
            .into_iter()
            .filter_map(|path| {
                format::decode(&connector.decode, Some(&fs::read(path).ok()?), &[]).ok()
            })
            .collect();
        if samples.is_empty() {
            return;
        }
        let effects = raw.effects.as_ref().and_then(Field::get).into_iter().flatten();
        let places: Vec<_> = effects.filter_map(|effect| effect.get()?.id.valid()).collect();
        for rule in &connector.effects {
            let EffectBody::Call(call) = &rule.body else { continue };
            let mut reads = BTreeSet::new();
            call.request.for_each_read(&mut |path| {
                if path.root == Root::Event {
                    reads.insert(path.clone());
                }
            });
            let absent =
                reads.into_iter().filter(|path| !samples.iter().any(|event| has(event, path)));
            let place =
                places.iter().find(|(_, id)| id.as_str() == &*rule.id).map(|(span, _)| *span);
            for path in absent {
                let text = format!("`{}` reads `{path}`, which no sample event has", rule.id);
                self.add(Finding::new(Code::NotInSamples, place, text));
            }
        }
    }
}

fn has(event: &Value, path: &Path) -> bool {
    Scope { event: Some(event), ..Scope::default() }.find(path).is_some()
}
