//! Orders that are charged when they are paid, and refunded when they are cancelled.

use oncely_core::connector::{
    BodyRule, CallRule, Compensation, Connector, Decode, EffectBody, EffectRule, Envelope, Failure,
    FingerprintRule, GroupProtocol, HttpRule, Identity, Limits, OffsetWait, OnConflict, OnGap,
    OnInvalid, OnParked, OnStale, OnUnknown, Profile, RequestRule, Retention, Source, Start,
    StateRules, Timeout, Transition,
};
use oncely_core::effect::retry::Retry;
use oncely_core::expr::Expr;
use oncely_core::template::{Target, Template};
use oncely_core::value::Value;

fn expr(text: &str) -> Expr {
    Expr::compile(text).unwrap()
}

fn call(id: &str, when: &str, url: &str, compensates: Option<Compensation>) -> EffectRule {
    EffectRule {
        id: id.into(),
        when: Some(expr(when)),
        key: vec![expr("event.order")],
        after: Vec::new(),
        compensates,
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
            reads_results: url.contains("effects."),
            record: Vec::new(),
            profile: Profile {
                name: "plain".into(),
                key_header: None,
                key_window_ms: None,
                applies_within_ms: None,
                statuses: Vec::new(),
            },
            on_unknown: OnUnknown::Hold,
            lookup: None,
            retry: Retry::new(3, 1, 1, 1_000).unwrap(),
            timeout: Timeout { connect_ms: 1, total_ms: 1 },
            limits: Limits { concurrency: 1, rate: None },
        })),
    }
}

pub(crate) fn connector() -> Connector {
    let moved = |from: &str, to: &str, kind: &str| Transition {
        from: vec![from.into()],
        to: to.into(),
        condition: Some(expr(&format!("event.type == \"{kind}\""))),
    };
    let undo = Compensation { effect: 0, key: vec![expr("event.order")] };
    Connector {
        name: "orders".into(),
        scope: "orders".into(),
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
            id: expr("event.order + \":\" + event.type"),
            fingerprint: FingerprintRule::Fields(vec![expr("event.type")]),
            on_conflict: OnConflict::Quarantine,
        },
        state: Some(StateRules {
            entity: "order".into(),
            key: expr("event.order"),
            version: expr("event.version"),
            initial: "open".into(),
            transitions: vec![
                moved("open", "paid", "paid"),
                moved("open", "cancelled", "cancelled"),
                moved("paid", "cancelled", "cancelled"),
            ],
            on_invalid: OnInvalid::Quarantine,
            on_gap: OnGap::Apply,
            on_parked: OnParked::Apply,
            deferred_max: 10,
        }),
        effects: vec![
            call("charge", "entered(\"paid\")", "http://x/{{ event.order }}", None),
            call(
                "refund",
                "entered(\"cancelled\")",
                "http://x/{{ effects.charge.id }}",
                Some(undo),
            ),
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

pub(crate) fn value(kind: &str, version: i64) -> Value {
    Value::object([
        ("order", Value::text("o1")),
        ("type", Value::text(kind)),
        ("version", Value::Int(version)),
    ])
}
