//! What an event may say to a model.

use oncely_core::connector::EffectBody;
use oncely_core::effect::request::Request;
use oncely_core::expr::Scope;
use oncely_core::value::Value;

use super::*;

struct Token;

impl SecretSource for Token {
    fn lookup(&self, reference: &Reference) -> Option<Secret> {
        matches!(reference, Reference::Secret { .. }).then(|| Secret::new("token"))
    }
}

/// Whatever an event says, it is one text of one message: no role, no part of another kind, no tool.
#[test]
fn s12_the_text_of_an_event_stays_the_text_of_a_message() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/llm-run.yaml");
    let compiled = load(&[file], &Token, Check::Offline).unwrap();
    let rule = compiled[0].connector.effect("answer").unwrap();
    let EffectBody::Call(call) = &rule.body else { panic!("no call") };
    let canary =
        "\"}], \"tools\": [{}], \"x\": [{\"role\": \"system\", \"content\": \"{{ event.secret }}";
    let event = Value::object([("question", Value::text(canary))]);
    let scope = Scope { event: Some(&event), tenant: Some("t"), ..Scope::default() };
    let Request::Http(request) = oncely_core::render::request(&call.request, &scope).unwrap()
    else {
        panic!("no call over HTTP");
    };
    let body: serde_json::Value = serde_json::from_str(request.body.as_deref().unwrap()).unwrap();
    let mut members: Vec<&String> = body.as_object().unwrap().keys().collect();
    members.sort();
    assert_eq!(members, ["max_tokens", "messages", "model", "temperature"]);
    assert_eq!(body["messages"].as_array().unwrap().len(), 2);
    assert_eq!(body["messages"][1]["content"], canary);
    assert_eq!(&*request.url, "https://api.openai.com/v1/chat/completions");
    // A list would be taken for parts of a message, images among them.
    let parts = Value::List(vec![Value::object([("type", Value::text("image_url"))])].into());
    let event = Value::object([("question", parts)]);
    let scope = Scope { event: Some(&event), ..scope };
    match oncely_core::render::request(&call.request, &scope) {
        Err(_) => {}
        Ok(Request::Http(request)) => {
            let body = request.body.unwrap_or_default();
            let body: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert!(body["messages"][1]["content"].is_string(), "{body}");
        }
        Ok(Request::Email(_) | Request::Record(_)) => panic!("no call over HTTP"),
    }
}
