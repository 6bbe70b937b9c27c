//! Requests, rendered.

use super::*;
use crate::template::{Target, TextNode, TextTree};
use crate::value::Value;

fn text(text: &str) -> Template {
    Template::compile(text, Target::Text).unwrap()
}

fn event(pairs: &[(&str, Value)]) -> Value {
    Value::object(pairs.iter().map(|(name, value)| (*name, value.clone())))
}

fn make(rule: &RequestRule, event: &Value) -> Result<Request, RequestError> {
    request(rule, &Scope { event: Some(event), ..Scope::default() })
}

fn http_rule(body: BodyRule) -> HttpRule {
    HttpRule {
        method: "POST".into(),
        url: Template::compile("https://x.test/{{ event.id }}", Target::Url).unwrap(),
        headers: vec![("X-Tenant".into(), text("{{ event.id }}"))],
        auth: None,
        body,
    }
}

#[test]
fn a_json_body_keeps_types_and_order() {
    let node = |source: &str| TextTree::Text(TextNode::compile(source).unwrap());
    let tree = TextTree::Object(vec![
        ("z".into(), node("{{ event.cents }}")),
        ("a".into(), node("id {{ event.id }}")),
        (
            "list".into(),
            TextTree::List(vec![TextTree::Int(1), TextTree::Null, node("{{ event.x }}")]),
        ),
    ]);
    let rule = RequestRule::Http(http_rule(BodyRule::Json(tree)));
    let event = event(&[
        ("id", Value::text("a\"/1")),
        ("cents", Value::Int(5)),
        ("x", Value::object([("k", Value::Bool(true))])),
    ]);
    let Ok(Request::Http(made)) = make(&rule, &event) else { panic!("no request") };
    assert_eq!(&*made.url, "https://x.test/a%22%2F1");
    assert_eq!(made.body.as_deref(), Some(r#"{"z":5,"a":"id a\"/1","list":[1,null,{"k":true}]}"#));
    let headers: Vec<_> = made.headers.iter().map(|(n, v)| (&**n, &**v)).collect();
    assert_eq!(headers, [("x-tenant", "a\"/1"), ("content-type", "application/json")]);
}

#[test]
fn a_form_body_is_encoded() {
    let pairs = vec![
        ("metadata[invoice]".into(), text("{{ event.id }}")),
        ("amount".into(), text("{{ event.cents }}")),
    ];
    let rule = RequestRule::Http(http_rule(BodyRule::Form(pairs)));
    let event = event(&[("id", Value::text("a&b=c")), ("cents", Value::Int(5))]);
    let Ok(Request::Http(made)) = make(&rule, &event) else { panic!("no request") };
    assert_eq!(made.body.as_deref(), Some("metadata%5Binvoice%5D=a%26b%3Dc&amount=5"));
}

#[test]
fn s9_no_header_can_be_added_by_an_event() {
    let mail = RequestRule::Smtp(SmtpRule {
        server: crate::connector::SecretText("smtp://localhost:25".into()),
        auth: None,
        from: text("billing@example.com"),
        to: text("{{ event.to }}"),
        subject: text("Receipt {{ event.subject }}"),
        text: Some(text("{{ event.body }}")),
        html: None,
    });
    let event = |to: &str, subject: &str, body: &str| {
        event(&[
            ("to", Value::text(to)),
            ("subject", Value::text(subject)),
            ("body", Value::text(body)),
        ])
    };
    let sent = make(&mail, &event("a@example.com", "1", "two\r\nlines\r\n.\r\n"));
    assert!(matches!(sent, Ok(Request::Email(_))), "{sent:?}");
    for (to, subject, body) in [
        ("a@example.com\r\nBcc: b@example.com", "1", "x"),
        ("a@example.com\nBcc: b@example.com", "1", "x"),
        ("a@example.com", "1\r\n\r\nbody", "x"),
        ("a@example.com", "1\rX: y", "x"),
        ("a@example.com", "nul\0", "x"),
        ("a@example.com", "\u{2028}X: y", "x"),
        ("a@example.com", "\u{85}X: y", "x"),
        ("a@example.com", "1", "nul\0"),
    ] {
        let refused = make(&mail, &event(to, subject, body));
        let refused = refused.expect_err("a control character went through");
        assert!(matches!(refused, RequestError::ControlCharacter { .. }), "{refused:?}");
    }
    let empty = make(&mail, &event("", "1", "x"));
    assert_eq!(empty, Err(RequestError::Empty { place: "to".into() }));
}

#[test]
fn equal_events_make_equal_bytes() {
    let rule = RequestRule::Http(http_rule(BodyRule::None));
    let event = event(&[("id", Value::text("a"))]);
    let made = || make(&rule, &event).unwrap();
    assert_eq!(made().to_bytes(), made().to_bytes());
    assert_eq!(Request::from_bytes(&made().to_bytes()).unwrap(), made());
}

#[test]
fn what_cannot_be_rendered_is_named() {
    let tree = TextTree::Object(vec![(
        "lines".into(),
        TextTree::List(vec![TextTree::Text(TextNode::compile("{{ event.none }}").unwrap())]),
    )]);
    let rule = RequestRule::Http(http_rule(BodyRule::Json(tree)));
    let error = make(&rule, &event(&[("id", Value::text("a"))])).unwrap_err();
    assert_eq!(error.to_string(), "json.lines[0] cannot be rendered");
}

#[test]
fn a_record_has_a_topic_that_kafka_allows() {
    let event = event(&[("to", Value::Text("orders".into()))]);
    let rule = |topic: &str| {
        RequestRule::Record(RecordRule {
            topic: text(topic),
            key: Some(text("{{ event.to }}")),
            headers: vec![("a".into(), text("1"))],
            value: ValueRule::Null,
        })
    };
    let Ok(Request::Record(made)) = make(&rule("{{ event.to }}.v1"), &event) else {
        panic!("no record")
    };
    assert_eq!((&*made.topic, made.key.as_deref()), ("orders.v1", Some("orders")));
    assert_eq!((made.headers.len(), made.value), (1, None));
    for wrong in ["a b", "..", "", "{{ event.to }}/v1"] {
        assert_eq!(make(&rule(wrong), &event), Err(RequestError::TopicName), "{wrong}");
    }
}
