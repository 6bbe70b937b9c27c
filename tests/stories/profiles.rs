//! Each profile that comes with the program, against a provider that plays by that profile's published rules.
//!
//! No Kafka, no database: the connector file, the performer, and the provider's own log.

use std::sync::Arc;
use std::time::Duration;

use oncely_connectors::effect::egress::Egress;
use oncely_connectors::effect::performer::{Asked, Performed, Performer};
use oncely_connectors::file::{Check, compile};
use oncely_connectors::secret::{Reference, Secret, SecretSource};
use oncely_core::connector::{CallRule, Connector, EffectBody};
use oncely_core::effect::lookup::Finding;
use oncely_core::effect::outcome::{Attempt, Outcome, OutcomeClass};
use oncely_core::effect::request::Request;
use oncely_core::expr::Scope;
use oncely_core::key::Key;
use oncely_core::render;
use oncely_core::value::Value;
use oncely_rig::places::Scratch;
use oncely_rig::provider::{Fault, Provider, ProviderOptions, Rule};

use OutcomeClass::{Done, Halted, Rejected, Throttled, Unknown};

struct Token;

impl SecretSource for Token {
    fn lookup(&self, _: &Reference) -> Option<Secret> {
        Some(Secret::new("token-of-the-story"))
    }
}

/// One effect as a file wires it, and the provider behind it.
struct Wired {
    provider: Provider,
    performer: Arc<Performer>,
    connector: Connector,
    path: &'static str,
    _scratch: Scratch,
}

impl Wired {
    /// `effect` in YAML, without id and key; `{url}` is the provider.
    async fn new(path: &'static str, effect: &str) -> Self {
        let scratch = Scratch::new(None, "profile").unwrap();
        let options = ProviderOptions::new(scratch.path().join("provider.log"));
        let provider = Provider::start(&options).await.unwrap();
        let effect = effect.replace("{url}", &provider.http_url());
        let effect = effect.replace("{smtp}", &provider.smtp_addr().to_string());
        let text = format!(
            "version: 1
connector: profile
source: {{ topics: [t] }}
identity: {{ id: event.id, fingerprint: [event.amount] }}
effects:
  - id: call
    key: event.id
    timeout: {{ connect: 10s, total: 20s }}
{effect}"
        );
        let compiled = compile("profile.yaml", &text, &Token, Check::Live);
        let compiled = compiled.unwrap_or_else(|found| panic!("{}", found[0]));
        let connector = compiled.connector;
        let secrets: Arc<dyn SecretSource> = Arc::new(Token);
        let performer = Performer::new(call(&connector), &secrets, &Egress::default(), || 0);
        let performer = Arc::new(performer.unwrap());
        Self { provider, performer, connector, path, _scratch: scratch }
    }

    async fn send(&self, key: &str, amount: i64) -> Attempt {
        sent(&self.performer, &key_of(key), &request(&self.connector, key, amount)).await
    }

    async fn classes(&self, keys_and_amounts: &[(&str, i64)]) -> Vec<OutcomeClass> {
        let mut classes = Vec::new();
        for (key, amount) in keys_and_amounts {
            classes.push(self.send(key, *amount).await.outcome.class());
        }
        classes
    }

    /// What one faulty answer means.
    async fn class_after(&self, fault: Fault, key: &str) -> OutcomeClass {
        self.provider.fail(Rule::once(fault).to(self.path));
        self.send(key, 1).await.outcome.class()
    }

    /// What a second request with the key of one in flight means.
    async fn class_in_flight(&self, key: &str) -> OutcomeClass {
        self.provider.hold(oncely_rig::provider::Hold::BeforeApply);
        let (performer, request) = (Arc::clone(&self.performer), request(&self.connector, key, 1));
        let first_key = key_of(key);
        let first = tokio::spawn(async move { sent(&performer, &first_key, &request).await });
        self.provider.wait_held(1, Duration::from_secs(10)).await.unwrap();
        let second = self.send(key, 1).await.outcome.class();
        self.provider.release();
        assert_eq!(first.await.unwrap().outcome.class(), Done);
        second
    }

    fn applied(&self) -> u64 {
        self.provider.counts().applied
    }
}

async fn sent(performer: &Performer, key: &Key, request: &Request) -> Attempt {
    match performer.perform(key, "t", request, || true).await {
        Performed::Attempted(attempt) => attempt,
        Performed::NotSent => panic!("not sent"),
    }
}

fn call(connector: &Connector) -> &CallRule {
    match &connector.effects[0].body {
        EffectBody::Call(call) => call,
        EffectBody::Ledger(_) | EffectBody::Publish(_) => panic!("no call"),
    }
}

fn key_of(key: &str) -> Key {
    Key::effect("profile", "t", "call", &[key.to_owned()])
}

fn in_scope<T>(key: &str, amount: i64, render: impl FnOnce(&Scope<'_>) -> T) -> T {
    let event = Value::object([("id", Value::text(key)), ("amount", Value::Int(amount))]);
    let wire = key_of(key).wire();
    let scope = Scope {
        event: Some(&event),
        tenant: Some("t"),
        effect_key: Some(&wire),
        ..Scope::default()
    };
    render(&scope)
}

fn request(connector: &Connector, key: &str, amount: i64) -> Request {
    in_scope(key, amount, |scope| render::request(&call(connector).request, scope).unwrap())
}

const STATUS: fn(u16) -> Fault = Fault::status;

fn later(status: u16) -> Fault {
    Fault::StatusBefore { status, retry_after_s: Some(2) }
}

#[tokio::test]
async fn p7_p8_p13_stripe_v1_repeats_its_first_answer_a_500_included() {
    let wired = Wired::new(
        "/v1/charges",
        r#"    type: billing
    request:
      url: "{url}/v1/charges"
      form: { amount: "{{ event.amount }}", metadata: { oncely_key: "{{ effect.key }}" } }
    record: { charge: response.json.id }
    on_unknown: reconcile
"#,
    )
    .await;
    let first = wired.send("a", 1).await;
    assert_eq!(wired.send("a", 1).await.outcome, first.outcome, "the same charge, again");
    assert_eq!(wired.applied(), 1);
    assert_eq!(wired.classes(&[("a", 2)]).await, [Rejected], "other parameters, same key");
    assert_eq!(wired.class_in_flight("b").await, Unknown);
    assert_eq!(wired.class_after(Fault::StatusAfter { status: 500 }, "c").await, Unknown);
    assert_eq!(wired.classes(&[("c", 1)]).await, [Unknown], "the 500 is its answer for a day");
    assert_eq!(wired.applied(), 3);
    for (fault, want) in [
        (STATUS(402), Rejected),
        (STATUS(401), Halted),
        (STATUS(424), Unknown),
        (STATUS(502), Unknown),
        (later(429), Throttled),
    ] {
        let key = format!("{fault:?}");
        assert_eq!(wired.class_after(fault, &key).await, want, "{key}");
    }
    // By the metadata that the request carried, what the 500 hid is found with its id.
    let lookup = &call(&wired.connector).lookup.as_ref().unwrap().request;
    for (key, found) in [("c", true), ("never", false)] {
        let asked = in_scope(key, 1, |scope| render::http(lookup, scope).unwrap());
        let answer = wired.performer.look_up(&key_of(key), &asked, || true).await;
        let Asked::Answered(answer) = answer else { panic!("not asked") };
        if let Finding::Found(record) = &answer.finding {
            assert!(found && record.get("charge").is_some(), "{key}: {record:?}");
        } else {
            assert!(!found && answer.finding == Finding::NotFound, "{key}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn p8_stripe_v2_finishes_what_had_failed() {
    let wired = Wired::new(
        "/v2/",
        r#"    type: http
    profile: stripe-v2
    request:
      url: "{url}/v2/core/events"
      json: { amount: "{{ event.amount }}" }
    record: { id: response.json.id }
    on_unknown: retry_same_key
"#,
    )
    .await;
    assert_eq!(wired.class_after(Fault::StatusAfter { status: 500 }, "a").await, Unknown);
    assert_eq!(wired.classes(&[("a", 1), ("a", 1), ("a", 2)]).await, [Done, Done, Rejected]);
    assert_eq!(wired.class_in_flight("b").await, Unknown);
    assert_eq!(wired.class_after(STATUS(500), "c").await, Unknown);
    assert_eq!(wired.classes(&[("c", 1)]).await, [Done]);
    assert_eq!(wired.applied(), 3);
}

#[tokio::test]
async fn p6_p13_resend_says_two_things_with_a_409() {
    let wired = Wired::new(
        "/emails",
        r#"    type: email
    to: "a@example.com"
    subject: "{{ event.amount }}"
    text: "hello"
    provider: { kind: resend, url: "{url}", from: b@example.com, token: "${secret:resend}" }
    record: { mail: response.json.id }
    on_unknown: retry_same_key
"#,
    )
    .await;
    assert_eq!(wired.classes(&[("a", 1), ("a", 1)]).await, [Done, Done]);
    assert_eq!(wired.classes(&[("a", 2)]).await, [Rejected], "the key came with another body");
    assert_eq!(wired.class_in_flight("b").await, Unknown, "it may be sent at this moment");
    assert_eq!(wired.class_after(later(429), "c").await, Throttled);
    assert_eq!(wired.class_after(STATUS(429), "c").await, Halted, "the day's share is used up");
    assert_eq!(wired.class_after(STATUS(422), "c").await, Rejected);
    assert_eq!(wired.class_after(Fault::HalfBody, "d").await, Unknown);
    assert_eq!(wired.applied(), 3);
}

#[tokio::test]
async fn p14_a_model_is_paid_for_each_time_that_it_is_called() {
    let wired = Wired::new(
        "/model/",
        r#"    type: http
    profile: openai
    request:
      url: "{url}/model/v1/chat/completions"
      json: { model: "m", messages: [{ role: user, content: "{{ event.amount }}" }] }
    record: { answer: "response.json.choices[0].message.content", id: response.json.id, tokens: response.json.usage.total_tokens }
"#,
    )
    .await;
    let (first, second) = (wired.send("a", 1).await.outcome, wired.send("a", 1).await.outcome);
    let (Outcome::Done(first), Outcome::Done(second)) = (first, second) else { panic!("not done") };
    assert_ne!(first.get("answer"), second.get("answer"), "nobody deduplicates");
    assert_eq!(wired.applied(), 2);
    for (fault, want) in [
        (later(429), Throttled),
        (STATUS(429), Halted),
        (STATUS(404), Halted),
        (STATUS(401), Halted),
        (STATUS(400), Rejected),
        (STATUS(409), Unknown),
        (STATUS(500), Unknown),
        (STATUS(503), Unknown),
        (Fault::GarbledBody, Unknown),
    ] {
        let key = format!("{fault:?}");
        assert_eq!(wired.class_after(fault, &key).await, want, "{key}");
    }
}

#[tokio::test]
async fn p5_p6_p8_plain_http_and_receivers_of_webhooks() {
    let plain = Wired::new(
        "/plain/",
        r#"    type: http
    request: { url: "{url}/plain/x", json: { reference: "{{ event.id }}" } }
"#,
    )
    .await;
    let receiver = Wired::new(
        "/keyed/",
        r#"    type: http
    profile: standard-webhooks
    request: { url: "{url}/keyed/x", json: { amount: "{{ event.amount }}" } }
    on_unknown: retry_same_key
"#,
    )
    .await;
    // What a receiver refuses is its own to mend, so it is tried again; only a 410 is its last word.
    let mends = OutcomeClass::NotApplied;
    for (fault, of_plain, of_receiver) in [
        (STATUS(400), Rejected, mends),
        (STATUS(404), Rejected, mends),
        (STATUS(410), Rejected, Rejected),
        (STATUS(422), Rejected, mends),
        (STATUS(403), Halted, mends),
        (STATUS(307), Halted, mends),
        (STATUS(408), Unknown, Unknown),
        (STATUS(500), Unknown, Unknown),
        (later(503), Unknown, Unknown),
        (later(429), Throttled, Throttled),
        (Fault::CloseBefore, Unknown, Unknown),
    ] {
        let key = format!("{fault:?}");
        assert_eq!(plain.class_after(fault.clone(), &key).await, of_plain, "{key}");
        assert_eq!(receiver.class_after(fault, &key).await, of_receiver, "{key}");
    }
    assert_eq!(plain.classes(&[("a", 1), ("a", 1)]).await, [Done, Done]);
    assert_eq!(plain.applied(), 2, "nobody deduplicates");
    assert_eq!(receiver.classes(&[("a", 1), ("a", 1)]).await, [Done, Done]);
    assert_eq!(receiver.applied(), 1, "the receiver knows the id");
}

#[tokio::test]
async fn r17_smtp_takes_every_mail() {
    let wired = Wired::new(
        "smtp",
        r#"    type: email
    to: "a@example.com"
    subject: "{{ event.amount }}"
    text: "hello"
    provider: { kind: smtp, server: "smtp://{smtp}", from: b@example.com }
"#,
    )
    .await;
    assert_eq!(wired.classes(&[("a", 1), ("a", 1)]).await, [Done, Done]);
    assert_eq!(wired.applied(), 2, "it can only be held");
    assert_eq!(wired.class_after(Fault::CloseAfter, "b").await, Unknown);
    assert_eq!(wired.class_after(STATUS(552), "c").await, Rejected);
    assert_eq!(wired.class_after(STATUS(451), "c").await, OutcomeClass::NotApplied);
}
