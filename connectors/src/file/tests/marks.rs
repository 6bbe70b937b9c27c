//! By what a file says that a provider would know again what it was sent.

use oncely_core::connector::EffectBody;
use oncely_core::effect::marks::Marks;

use super::{SMALL, one};

/// The marks of a payment with this look-up, whose file was changed so.
fn marks(lookup: &str, changes: &[(&str, &str)]) -> Marks {
    let mut text = format!(
        "{SMALL}effects:
  - id: pay
    type: http
    key: event.id
    request: {{ url: 'https://bank.test/v1/payments', json: {{ reference: '{{{{ effect.key }}}}', to: '{{{{ event.to }}}}' }} }}
    timeout: {{ connect: 1s, total: 5s }}
    on_unknown: reconcile
    lookup: {{ {lookup}, done: response.json.found, applies_within: 30s }}
"
    );
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let connector = one(&text).unwrap().connector;
    let EffectBody::Call(call) = &connector.effect("pay").unwrap().body else { panic!("no call") };
    Marks::of(call)
}

const BY_JSON: &str = "url: /v1/find, method: POST, headers: { x-ledger: 'main {{ event.book }}' }, \
                       json: { by: [{ field: reference, is: '{{ effect.key }}' }], book: 'book {{ event.book }}', of: '{{ event.day | default(1) }}', page: 1 }";
const BY_FORM: &str =
    "url: /v1/find, method: POST, form: { field: reference, is: '{{ effect.key }}' }";
const BY_URL: &str = "url: '/v1/payments?reference={{ effect.key }}'";

/// Texts that stand beside what is read are asked by as well.
#[test]
fn w5_whatever_a_look_up_asks_by_is_a_mark() {
    for (lookup, from, to) in [
        (BY_URL, "?reference=", "?ref="),
        (BY_URL, "'/v1/payments?", "'https://other.test/v1/payments?"),
        (BY_URL, "url: '", "method: POST, url: '"),
        (BY_JSON, "x-ledger", "x-book"),
        (BY_JSON, "'main {{", "'second {{"),
        (BY_JSON, "field: reference", "field: end_to_end_id"),
        (BY_JSON, "by: [", "any_of: ["),
        (BY_JSON, "'book {{", "'ledger {{"),
        (BY_JSON, "'book {{ event.book", "'book {{ event.shelf"),
        (BY_JSON, "default(1)", "default(2)"),
        (BY_JSON, "page: 1", "page: 2"),
        (BY_FORM, "field: reference", "field: end_to_end_id"),
        (BY_FORM, "field: reference", "key: reference"),
    ] {
        let (before, after) = (marks(lookup, &[]), marks(lookup, &[(from, to)]));
        assert_ne!(before.lookup, after.lookup, "{from} -> {to}");
        assert_eq!(before.key, after.key);
    }
}

/// What is made of an answer, and how long is waited for one, says nothing of what was sent.
#[test]
fn w5_what_a_look_up_reads_of_an_answer_is_no_mark() {
    for lookup in [BY_URL, BY_JSON, BY_FORM] {
        let before = marks(lookup, &[]);
        for change in [
            ("response.json.found", "response.json.items.size() > 0"),
            ("applies_within: 30s", "applies_within: 40s"),
            ("total: 5s", "total: 6s"),
            ("to: '{{ event.to }}'", "to: '{{ event.iban }}'"),
            ("lookup: { ", "lookup: { on_not_found: fail, "),
        ] {
            assert_eq!(marks(lookup, &[change]), before, "{change:?}");
        }
    }
}

#[test]
fn w5_the_header_of_a_key_is_a_mark_in_any_case_of_its_letters() {
    let keyed = |header: &str| {
        let idempotency =
            format!("    idempotency: {{ header: {header}, window: 24h }}\n    timeout:");
        marks(BY_URL, &[("    timeout:", &idempotency)])
    };
    assert_eq!(marks(BY_URL, &[]).key, None);
    assert_eq!(keyed("Idempotency-Key"), keyed("idempotency-key"));
    assert_ne!(keyed("Idempotency-Key").key, keyed("X-Request-Id").key);
}
