//! The whole core against a small model: random deliveries, repeats, reorders and crashes.
//!
//! A database of maps takes what plans say. Whatever the batches, and whatever was lost before it
//! became durable, the end must be what a model of a few lines says, and the same as deciding one
//! event at a time.

#![allow(
    clippy::unwrap_used,
    clippy::as_conversions,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a failed test should stop at once"
)]

use std::collections::{BTreeMap, BTreeSet};

use oncely_core::connector::{
    BodyRule, CallRule, Connector, Decode, EffectBody, EffectRule, Envelope, Failure,
    FingerprintRule, GroupProtocol, HttpRule, Identity, Limits, OffsetWait, OnConflict, OnGap,
    OnInvalid, OnParked, OnStale, OnUnknown, Profile, RequestRule, Retention, Source, Start,
    StateRules, Timeout, Transition,
};
use oncely_core::decide::{EffectRow, Ending, InboxRow, Input, Known, Place, Plan, decide};
use oncely_core::effect::order::{OpenEffect, Turn};
use oncely_core::effect::retry::Retry;
use oncely_core::effect::status::Status;
use oncely_core::event::identify;
use oncely_core::expr::{Expr, Scope};
use oncely_core::key::Key;
use oncely_core::template::{Target, Template};
use oncely_core::value::Value;
use proptest::prelude::*;

fn expr(text: &str) -> Expr {
    Expr::compile(text).unwrap()
}

/// Any event moves a counter entity on; each id owes one call; a receipt is shared per entity.
fn connector() -> Connector {
    let call = |id: &str, key: &str, url: &str| EffectRule {
        id: id.into(),
        when: None,
        key: vec![expr(key)],
        after: Vec::new(),
        compensates: None,
        on_stale: OnStale::Skip,
        body: EffectBody::Call(Box::new(CallRule {
            kind: "http",
            model: None,
            request: RequestRule::Http(HttpRule {
                method: "POST".into(),
                url: Template::compile(url, Target::Url).unwrap(),
                headers: Vec::new(),
                auth: None,
                body: BodyRule::None,
            }),
            reads_results: false,
            record: Vec::new(),
            profile: Profile {
                name: "plain".into(),
                key_header: Some("idempotency-key".into()),
                key_window_ms: None,
                applies_within_ms: None,
                statuses: Vec::new(),
            },
            on_unknown: OnUnknown::RetrySameKey,
            lookup: None,
            retry: Retry::new(3, 1, 1, 1_000).unwrap(),
            timeout: Timeout { connect_ms: 1, total_ms: 1 },
            limits: Limits { concurrency: 1, rate: None },
        })),
    };
    Connector {
        name: "model".into(),
        scope: "model".into(),
        owner: None,
        source: Source {
            topics: vec!["t".into()],
            group: "g".into(),
            start: Start::Earliest,
            protocol: GroupProtocol::Classic,
        },
        decode: Decode { envelope: Envelope::None, bytes_max: 1_000 },
        matches: None,
        identity: Identity {
            tenant: None,
            id: expr("event.id"),
            fingerprint: FingerprintRule::Fields(vec![expr("event.content")]),
            on_conflict: OnConflict::Quarantine,
        },
        state: Some(StateRules {
            entity: "counter".into(),
            key: expr("event.entity"),
            version: expr("event.version"),
            initial: "on".into(),
            transitions: vec![Transition {
                from: vec!["on".into()],
                to: "on".into(),
                condition: None,
            }],
            on_invalid: OnInvalid::Quarantine,
            on_gap: OnGap::Apply,
            on_parked: OnParked::Apply,
            deferred_max: 10,
        }),
        effects: vec![
            call("call", "event.id", "http://x/{{ event.id }}"),
            call("receipt", "event.entity", "http://x/{{ event.entity }}"),
        ],
        failure: Failure {
            offset_wait: OffsetWait::Forever,
            dead_letter: None,
            redrives_max: 5,
            open_effects_max: 1,
        },
        retention: Retention { dedupe_ms: 1, replay_ms: 0, payloads_ms: 1 },
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sent {
    entity: u8,
    version: u8,
    content: u8,
}

impl Sent {
    /// The id follows from entity and version; content is usually the same for one id.
    fn id(self) -> String {
        format!("e{}-v{}", self.entity, self.version)
    }

    fn value(self) -> Value {
        Value::object([
            ("id", Value::text(self.id())),
            ("entity", Value::text(format!("e{}", self.entity))),
            ("version", Value::Int(self.version.into())),
            ("content", Value::Int(self.content.into())),
        ])
    }
}

/// What is durable.
#[derive(Default)]
struct Database {
    known: Known,
    effects: BTreeMap<Key, usize>,
    endings: BTreeMap<usize, Ending>,
}

impl Database {
    fn run(&mut self, connector: &Connector, batch: &[(usize, Sent)], durable: bool) {
        let values: Vec<Value> = batch.iter().map(|(_, sent)| sent.value()).collect();
        let scopes: Vec<Scope<'_>> =
            values.iter().map(|value| Scope { event: Some(value), ..Scope::default() }).collect();
        let events: Vec<_> =
            scopes.iter().map(|scope| identify(connector, scope).unwrap()).collect();
        let inputs: Vec<Input<'_>> = events
            .iter()
            .zip(&scopes)
            .zip(batch)
            .map(|((event, scope), (offset, _))| Input {
                event,
                scope: *scope,
                place: Place { source: 1, partition: 0, offset: i64::try_from(*offset).unwrap() },
                age_ms: None,
            })
            .collect();
        let plan = decide(connector, &inputs, self.known.clone());
        assert_eq!(plan.decisions.len(), inputs.len());
        if durable {
            self.write(plan, batch);
        }
    }

    fn write(&mut self, plan: Plan, batch: &[(usize, Sent)]) {
        for (key, write) in plan.entities {
            let before = self.known.entities.insert(key, write.row.clone());
            assert_eq!(before.as_ref().map(|before| before.version), write.was);
            assert!(before.is_none_or(|before| before.version < write.row.version));
        }
        for (key, new) in plan.inbox {
            let row = InboxRow {
                fingerprint: new.fingerprint,
                ending: new.ending,
                effects: new.effects,
                first: new.place,
                age_ms: 0,
            };
            assert!(self.known.inbox.insert(key, row).is_none(), "an id is decided once");
        }
        for (key, new) in plan.effects {
            *self.effects.entry(key).or_default() += 1;
            let row = EffectRow { status: Status::Waiting, request_hash: new.request_hash };
            assert!(self.known.effects.insert(key, row).is_none(), "an effect is owed once");
            self.known.open.entry(new.lane).or_default().push(OpenEffect {
                key,
                lane: new.lane,
                event: new.event,
                version: new.version,
                blocked: new.turn == Turn::Blocked,
                status: Status::Waiting,
                after: new.after,
            });
        }
        for (decision, (offset, _)) in plan.decisions.iter().zip(batch) {
            self.endings.entry(*offset).or_insert(decision.ending);
        }
    }

    fn versions(&self) -> BTreeSet<i64> {
        self.known.entities.values().map(|row| row.version).collect()
    }
}

/// The model: what each delivery must come to, in order.
fn model(sent: &[Sent]) -> (Vec<Ending>, BTreeMap<u8, u8>) {
    let mut contents = BTreeMap::new();
    let mut versions: BTreeMap<u8, u8> = BTreeMap::new();
    let endings = sent.iter().map(|one| match contents.get(&one.id()) {
        Some(content) if *content == one.content => Ending::Duplicate,
        Some(_) => Ending::Quarantined,
        None => {
            contents.insert(one.id(), one.content);
            let stored = versions.get(&one.entity).copied();
            if stored.is_some_and(|stored| stored > one.version) {
                return Ending::Stale;
            }
            versions.insert(one.entity, one.version);
            Ending::Applied
        }
    });
    (endings.collect(), versions)
}

fn deliveries() -> impl Strategy<Value = Vec<Sent>> {
    let content = prop_oneof![9 => Just(0_u8), 1 => Just(1_u8)];
    let one = (0_u8..4, 0_u8..6, content).prop_map(|(entity, version, content)| Sent {
        entity,
        version,
        content,
    });
    prop::collection::vec(one, 1..60)
}

proptest! {
    #[test]
    fn any_batches_and_crashes_end_as_the_model_says(
        sent in deliveries(),
        cuts in prop::collection::vec((1_usize..9, any::<bool>()), 1..60),
    ) {
        let connector = connector();
        let mut database = Database::default();
        let numbered: Vec<(usize, Sent)> = sent.iter().copied().enumerate().collect();
        let mut rest = &numbered[..];
        let mut cuts = cuts.iter().cycle();
        while !rest.is_empty() {
            let (size, crash) = cuts.next().unwrap();
            let (batch, after) = rest.split_at((*size).min(rest.len()));
            if *crash {
                // Decided, but lost before it was durable: delivered again.
                database.run(&connector, batch, false);
            }
            database.run(&connector, batch, true);
            if *crash {
                // Durable, but the offset was lost: delivered again, which must change nothing.
                let effects = database.effects.clone();
                database.run(&connector, batch, true);
                prop_assert_eq!(&effects, &database.effects);
            }
            rest = after;
        }
        let (endings, versions) = model(&sent);
        let got: Vec<Ending> = database.endings.values().copied().collect();
        prop_assert_eq!(&got, &endings);
        let want: BTreeSet<i64> = versions.values().map(|version| i64::from(*version)).collect();
        prop_assert_eq!(database.versions(), want);
        let applied = endings.iter().filter(|ending| **ending == Ending::Applied).count();
        let entities: BTreeSet<u8> = sent.iter().map(|one| one.entity).collect();
        prop_assert_eq!(database.effects.len(), applied + entities.len());
    }
}
