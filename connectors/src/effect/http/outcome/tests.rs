//! Each thing that can be seen, and its class.

use std::sync::Arc;

use oncely_core::connector::{Profile, StatusRange, StatusRule};
use oncely_core::effect::outcome::OutcomeClass;
use oncely_core::expr::Expr;
use oncely_core::value::Value;
use proptest::prelude::*;
use reqwest::header::{HeaderName, HeaderValue};

use super::*;

fn profile(statuses: &[(u16, u16, StatusClass)]) -> Statuses {
    let rules = statuses.iter().map(|(first, last, class)| rule(*first, *last, None, *class));
    statuses_of(rules.collect())
}

fn rule(first: u16, last: u16, when: Option<&str>, class: StatusClass) -> StatusRule {
    let when = when.map(|text| Arc::new(Expr::compile(text).unwrap()));
    StatusRule { range: StatusRange { first, last }, when, class }
}

fn statuses_of(statuses: Vec<StatusRule>) -> Statuses {
    Statuses::of(&Profile {
        name: "test".into(),
        key_header: None,
        key_window_ms: None,
        applies_within_ms: None,
        statuses,
    })
}

fn record(members: &[(&str, &str)]) -> Record {
    let compiled =
        members.iter().map(|(name, text)| ((*name).into(), Expr::compile(text).unwrap()));
    Record::new(&compiled.collect::<Vec<_>>()).unwrap()
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| {
            (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap())
        })
        .collect()
}

fn answer(status: u16, body: &str) -> Seen {
    Seen::Answered(Reply {
        status,
        headers: HeaderMap::new(),
        body: body.as_bytes().to_vec(),
        complete: true,
    })
}

fn class(seen: &Seen) -> OutcomeClass {
    outcome(seen, &Record::default(), &profile(&[])).outcome.class()
}

#[test]
fn the_table_of_statuses() {
    use OutcomeClass::{Done, Halted, Rejected, Throttled, Unknown};
    for (statuses, want) in [
        (&[200, 201, 202, 204, 299][..], Done),
        (&[301, 307, 308], Halted),
        // A form that has done its work shows the way to the result.
        (&[300, 302, 303, 304], Unknown),
        (&[401, 403, 407], Halted),
        (&[408, 425], Unknown),
        (&[429], Throttled),
        (&[400, 402, 404, 405, 409, 410, 413, 415, 422, 451], Rejected),
        (&[500, 501, 502, 503, 504, 507, 520, 529, 599], Unknown),
        (&[101, 199, 600, 999], Unknown),
    ] {
        for status in statuses {
            assert_eq!(class(&answer(*status, "")), want, "{status}");
        }
    }
}

#[test]
fn p1_p2_p9_only_what_surely_never_left_is_not_applied() {
    let cause = || "x".to_owned();
    for (seen, want) in [
        (Seen::ConnectFailed { cause: cause() }, Outcome::NotApplied),
        (Seen::BrokenBeforeFirstByte { cause: cause() }, Outcome::NotApplied),
        (Seen::BrokenAfterSend { cause: cause() }, Outcome::Unknown),
        (Seen::Misconfigured { cause: cause() }, Outcome::Halted),
        (Seen::Unsendable { cause: cause() }, Outcome::Rejected),
    ] {
        let classified = outcome(&seen, &Record::default(), &profile(&[]));
        assert_eq!(classified, Classified { outcome: want, cause: "x".into() }, "{seen:?}");
    }
}

#[test]
fn p3_a_readable_answer_is_recorded() {
    let record = record(&[
        ("id", "response.json.id"),
        ("cents", "response.json.amount"),
        ("kind", "response.headers[\"content-type\"]"),
        ("first", "response.json.lines[0]"),
    ]);
    let seen = Seen::Answered(Reply {
        status: 201,
        headers: headers(&[("Content-Type", "application/json")]),
        body: br#"{"id":"ch_1","amount":18446744073709551615,"lines":[true]}"#.to_vec(),
        complete: true,
    });
    let Outcome::Done(kept) = outcome(&seen, &record, &profile(&[])).outcome else {
        panic!("not done");
    };
    assert_eq!(kept.get("id"), Some(&Value::text("ch_1")));
    assert_eq!(kept.get("kind"), Some(&Value::text("application/json")));
    assert_eq!(kept.get("first"), Some(&Value::Bool(true)));
    assert!(
        matches!(kept.get("cents"), Some(Value::Decimal(n)) if n.as_str() == "18446744073709551615")
    );
}

#[test]
fn p4_a_success_that_cannot_be_recorded_is_unknown() {
    let record = record(&[("id", "response.json.id")]);
    for body in ["", "{\"id\":", "<html>", "{\"error\":\"x\"}", "{\"id\":1,\"id\":2}", "[]"] {
        let classified = outcome(&answer(200, body), &record, &profile(&[]));
        assert_eq!(classified.outcome, Outcome::Unknown, "{body}");
        assert!(classified.cause.starts_with("success, but"), "{}", classified.cause);
    }
    let cut = Seen::Answered(Reply {
        status: 200,
        headers: HeaderMap::new(),
        body: br#"{"id":"a"}"#.to_vec(),
        complete: false,
    });
    assert_eq!(outcome(&cut, &record, &profile(&[])).outcome, Outcome::Unknown);
    let nothing = Record::default();
    assert_eq!(outcome(&cut, &nothing, &profile(&[])).outcome.class(), OutcomeClass::Done);
}

#[test]
fn a_record_of_the_status_alone_needs_no_body() {
    let record = record(&[("status", "response.status")]);
    assert!(!record.reads_body());
    let Outcome::Done(kept) = outcome(&answer(204, ""), &record, &profile(&[])).outcome else {
        panic!("not done");
    };
    assert_eq!(kept.get("status"), Some(&Value::Int(204)));
}

#[test]
fn p6_p7_p8_the_profile_knows_its_provider() {
    let profile = profile(&[
        (409, 409, StatusClass::Throttled),
        (503, 503, StatusClass::Throttled),
        (404, 404, StatusClass::Halted),
        (208, 208, StatusClass::Done),
        (500, 599, StatusClass::Rejected),
    ]);
    for (status, want) in [
        (409, OutcomeClass::Throttled),
        (503, OutcomeClass::Throttled),
        (404, OutcomeClass::Halted),
        (208, OutcomeClass::Done),
        (502, OutcomeClass::Rejected),
        (200, OutcomeClass::Done),
    ] {
        let classified = outcome(&answer(status, ""), &Record::default(), &profile);
        assert_eq!(classified.outcome.class(), want, "{status}");
    }
}

#[test]
fn p6_p13_one_status_is_told_apart_by_its_body() {
    use StatusClass::{Rejected, Unknown};
    let statuses = statuses_of(vec![
        rule(409, 409, Some(r#"response.json.name == "other_body""#), Rejected),
        rule(409, 409, None, Unknown),
    ]);
    let class = |seen: &Seen| outcome(seen, &Record::default(), &statuses).outcome.class();
    for (body, want) in [
        (r#"{"name":"other_body"}"#, OutcomeClass::Rejected),
        (r#"{"name":"in_flight"}"#, OutcomeClass::Unknown),
        (r#"{"message":"other_body"}"#, OutcomeClass::Unknown),
        (r#"{"name":"other_body""#, OutcomeClass::Unknown),
        ("", OutcomeClass::Unknown),
    ] {
        assert_eq!(class(&answer(409, body)), want, "{body}");
    }
    let cut = Seen::Answered(Reply {
        status: 409,
        headers: HeaderMap::new(),
        body: br#"{"name":"other_body"}"#.to_vec(),
        complete: false,
    });
    assert_eq!(class(&cut), OutcomeClass::Unknown, "half an answer decides nothing");
    assert_eq!(class(&answer(400, r#"{"name":"other_body"}"#)), OutcomeClass::Rejected);
}

#[test]
fn p7_already_exists_is_done_and_recorded_where_the_profile_says_so() {
    let record = record(&[("id", "response.json.existing.id")]);
    let profile = profile(&[(409, 409, StatusClass::Done)]);
    let seen = answer(409, r#"{"existing":{"id":"ch_1"}}"#);
    let Outcome::Done(kept) = outcome(&seen, &record, &profile).outcome else {
        panic!("not done");
    };
    assert_eq!(kept.get("id"), Some(&Value::text("ch_1")));
}

#[test]
fn p6_what_the_answer_asks_to_wait() {
    let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
    for (pairs, want) in [
        (vec![("retry-after", "2")], Some(2_000)),
        (vec![("retry-after", " 0 ")], Some(0)),
        (vec![("retry-after", "99999999999999999999")], None),
        (vec![("retry-after", "999999999999")], Some(RETRY_AFTER_MS_MAX)),
        (vec![("retry-after", "-1")], None),
        (vec![("retry-after", "soon")], None),
        (vec![("retry-after-ms", "250"), ("retry-after", "1")], Some(250)),
        (vec![date, ("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")], Some(30_000)),
        (vec![date, ("retry-after", "Sun, 06 Nov 1994 08:49:07 GMT")], Some(0)),
        (vec![date, ("retry-after", "Sat, 06 Nov 2094 08:49:07 GMT")], Some(RETRY_AFTER_MS_MAX)),
        (vec![("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")], None),
        (vec![], None),
    ] {
        assert_eq!(retry_after_ms(&headers(&pairs)), want, "{pairs:?}");
    }
}

#[test]
fn p10_a_redirect_names_where_it_leads() {
    let seen = Seen::Answered(Reply {
        status: 307,
        headers: headers(&[("location", "https://elsewhere.example/")]),
        body: Vec::new(),
        complete: true,
    });
    let classified = outcome(&seen, &Record::default(), &profile(&[]));
    assert_eq!(classified.outcome, Outcome::Halted);
    assert!(classified.cause.contains("https://elsewhere.example/"));
}

fn any_class() -> impl Strategy<Value = StatusClass> {
    prop::sample::select(vec![
        StatusClass::Done,
        StatusClass::Throttled,
        StatusClass::Rejected,
        StatusClass::Halted,
        StatusClass::Unknown,
        StatusClass::NotApplied,
    ])
}

proptest! {
    /// Whatever a provider answers, a call that may have been applied is never said to be not
    /// applied, unless the profile vouches for it; and nothing panics.
    #[test]
    fn no_answer_is_taken_for_not_applied_without_the_profiles_word(
        status in 100_u16..1000, body in prop::collection::vec(any::<u8>(), 0..64),
        complete: bool, at in 100_u16..1000, declared in any_class(),
    ) {
        let seen = Seen::Answered(Reply { status, headers: HeaderMap::new(), body, complete });
        let profile = profile(&[(at, at, declared)]);
        let record = record(&[("id", "response.json.id")]);
        let class = outcome(&seen, &record, &profile).outcome.class();
        if class == OutcomeClass::NotApplied {
            prop_assert!(status == at && declared == StatusClass::NotApplied);
        }
        if status >= 500 && status != at {
            prop_assert_eq!(class, OutcomeClass::Unknown);
        }
    }
}
