//! Identity: what makes an event, and what parks a record.

use super::*;
use crate::connector::{
    Decode, Envelope, Failure, GroupProtocol, Identity, OffsetWait, OnConflict, OnGap, OnInvalid,
    OnParked, Retention, Source, Start,
};
use crate::value::Decimal;

fn expr(text: &str) -> Expr {
    Expr::compile(text).unwrap()
}

fn connector(fingerprint: FingerprintRule) -> Connector {
    Connector {
        name: "invoices".into(),
        scope: "invoices".into(),
        owner: None,
        source: Source {
            topics: vec!["t".into()],
            group: "g".into(),
            start: Start::Earliest,
            protocol: GroupProtocol::Classic,
        },
        decode: Decode { envelope: Envelope::None, bytes_max: 1024 },
        matches: Some(expr("event.type == \"paid\"")),
        identity: Identity {
            tenant: Some(expr("event.account")),
            id: expr("event.id + \":\" + event.type"),
            fingerprint,
            on_conflict: OnConflict::Quarantine,
        },
        state: Some(StateRules {
            entity: "invoice".into(),
            key: expr("event.id"),
            version: expr("event.version"),
            initial: "open".into(),
            transitions: Vec::new(),
            on_invalid: OnInvalid::Quarantine,
            on_gap: OnGap::Apply,
            on_parked: OnParked::Apply,
            deferred_max: 10,
        }),
        effects: Vec::new(),
        failure: Failure {
            offset_wait: OffsetWait::Forever,
            dead_letter: None,
            redrives_max: 5,
            open_effects_max: 1,
        },
        retention: Retention { dedupe_ms: 1, replay_ms: 0, payloads_ms: 1 },
    }
}

fn event(changes: &[(&'static str, Value)]) -> Value {
    let mut members = vec![
        ("account", Value::text("acct_7")),
        ("id", Value::text("in_1")),
        ("type", Value::text("paid")),
        ("version", Value::Int(7)),
        ("cents", Value::Int(1990)),
        ("sent_at", Value::Int(1)),
    ];
    members.extend(changes.iter().cloned());
    Value::object(members)
}

fn fields() -> FingerprintRule {
    FingerprintRule::Fields(vec![expr("event.cents"), expr("event.currency")])
}

fn run(connector: &Connector, event: &Value) -> Result<Event, Reject> {
    identify(connector, &Scope { event: Some(event), ..Scope::default() })
}

#[test]
fn an_event_has_its_identity_from_its_own_members() {
    let event = run(&connector(fields()), &event(&[])).unwrap();
    assert_eq!((&*event.tenant, &*event.id), ("acct_7", "in_1:paid"));
    assert_eq!(event.key, Key::event("invoices", "acct_7", "in_1:paid"));
    let entity = event.entity.unwrap();
    assert_eq!((&*entity.id, entity.version), ("in_1", 7));
    assert_eq!(entity.key, Key::entity("invoices", "acct_7", "invoice", "in_1"));
}

#[test]
fn d8_d12_what_does_not_identify_is_rejected_with_its_reason() {
    let decimal = |text| Value::Decimal(Decimal::parse(text).unwrap());
    let connector = connector(fields());
    for (name, value, want) in [
        ("account", Value::Null, RejectReason::MissingTenant),
        ("account", Value::text(""), RejectReason::BadTenant),
        ("account", Value::Bool(true), RejectReason::BadTenant),
        ("account", Value::text("a\0b"), RejectReason::BadTenant),
        ("id", Value::Int(1), RejectReason::ExpressionFailed),
        ("id", Value::text("x".repeat(600)), RejectReason::BadId),
        ("version", Value::Null, RejectReason::MissingVersion),
        ("version", Value::Int(-1), RejectReason::BadVersion),
        ("version", Value::text("7a"), RejectReason::BadVersion),
        ("version", Value::text(""), RejectReason::BadVersion),
        ("version", decimal("7.5"), RejectReason::BadVersion),
        ("version", decimal("18446744073709551616"), RejectReason::BadVersion),
    ] {
        let reject = run(&connector, &event(&[(name, value.clone())])).unwrap_err();
        assert_eq!(reject.reason, want, "{name} {value:?}: {reject}");
    }
    let reject = run(&connector, &Value::object([("account", Value::text("a"))])).unwrap_err();
    assert_eq!(reject.reason, RejectReason::MissingId);
    let text = "identity.id: nothing is there (`event.id + \":\" + event.type`)";
    assert_eq!(reject.to_string(), text);
    let version = run(&connector, &event(&[("version", Value::text("9223372036854775807"))]));
    assert_eq!(version.unwrap().entity.unwrap().version, i64::MAX);
}

#[test]
fn d5_the_fingerprint_follows_the_declared_fields() {
    let connector = connector(fields());
    let of =
        |changes: &[(&'static str, Value)]| run(&connector, &event(changes)).unwrap().fingerprint;
    assert_eq!(of(&[]), of(&[("sent_at", Value::Int(2))]));
    assert_ne!(of(&[]), of(&[("cents", Value::Int(1991))]));
    assert_ne!(of(&[]), of(&[("currency", Value::text("eur"))]));
}

#[test]
fn a_whole_fingerprint_leaves_out_what_is_excluded() {
    let paths = vec![vec!["sent_at".into()], vec!["meta".into(), "trace".into()]];
    let connector = connector(FingerprintRule::WholeWithout(paths));
    let of =
        |changes: &[(&'static str, Value)]| run(&connector, &event(changes)).unwrap().fingerprint;
    let meta = |trace: i64, kept: i64| {
        Value::object([("trace", Value::Int(trace)), ("kept", Value::Int(kept))])
    };
    assert_eq!(of(&[]), of(&[("sent_at", Value::Int(2))]));
    assert_eq!(of(&[("meta", meta(1, 1))]), of(&[("meta", meta(2, 1))]));
    assert_ne!(of(&[("meta", meta(1, 1))]), of(&[("meta", meta(1, 2))]));
}

#[test]
fn d14_a_record_that_cannot_be_judged_is_not_ignored() {
    let connector = connector(fields());
    let judge =
        |event: &Value| matches(&connector, &Scope { event: Some(event), ..Scope::default() });
    assert_eq!(judge(&event(&[])), Ok(true));
    assert_eq!(judge(&event(&[("type", Value::text("other"))])), Ok(false));
    let reject = judge(&Value::object([("a", Value::Null)])).unwrap_err();
    assert_eq!(reject.reason, RejectReason::ExpressionFailed);
    assert_eq!(reject.to_string(), "match: `type` is not there (`event.type == \"paid\"`)");
}
