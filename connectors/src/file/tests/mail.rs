//! What an event may put into a mail.

use oncely_core::connector::EffectBody;
use oncely_core::expr::Scope;
use oncely_core::render;
use oncely_core::value::Value;

use super::{SMALL, one};

#[test]
fn s9_an_event_adds_no_lines_to_the_head_of_a_mail_of_any_provider() {
    let providers = [
        "{ kind: resend, from: '{{ event.from }}', token: '${secret:mail_token}' }",
        "{ kind: smtp, server: 'smtp://localhost:25', from: '{{ event.from }}' }",
    ];
    for provider in providers {
        let effect = format!(
            "effects:
  - id: a
    type: email
    key: event.id
    to: '{{{{ event.to }}}}'
    subject: '{{{{ event.subject }}}}'
    text: '{{{{ event.text }}}}'
    provider: {provider}
"
        );
        let connector = one(&format!("{SMALL}{effect}")).unwrap().connector;
        let EffectBody::Call(call) = &connector.effect("a").unwrap().body else {
            panic!("no call")
        };
        let made = |broken: &str| {
            let text = |member: &str| {
                let end = if member == broken { "x\nBcc: b@example.com" } else { "" };
                Value::text(format!("a@example.com{end}"))
            };
            let members = ["from", "to", "subject", "text"].map(|member| (member, text(member)));
            let event = Value::object(members);
            render::request(&call.request, &Scope { event: Some(&event), ..Scope::default() })
        };
        assert!(made("text").is_ok(), "lines of a body are its own: {:?}", made("text"));
        for member in ["from", "to", "subject"] {
            let error = made(member).expect_err(member).to_string();
            let told = error.contains(member) && error.contains("would contain a line break");
            assert!(told, "{provider}: {error}");
        }
    }
}
