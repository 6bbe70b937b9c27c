//! What to do about a finding: how a missing field is written, and what takes the place of what is
//! not available yet.
//!
//! A finding without a remedy leaves a person with a search; so every field that must be there and
//! every part of the language that is refused stands in one of these tables.

/// How a field that must be there is written, by its place and name.
pub(super) fn how_to_write(field: &str) -> Option<&'static str> {
    Some(match field {
        "version" => "begin the file with `version: 1`",
        "connector" => "name it: `connector: invoice-paid`",
        "source" => "say what is read: `source: { topics: [billing.invoices.v1] }`",
        "source.topics" => "name the topics one by one: `topics: [billing.invoices.v1]`",
        "identity" => {
            "say what makes two records one event: \
             `identity: { id: event.id, fingerprint: [event.amount] }`"
        }
        "identity.id" => "a business id that the event carries: `id: event.data.invoice_id`",
        "identity.fingerprint" => {
            "what must be equal when an id comes again: `fingerprint: [event.amount]`; or what may \
             differ: `fingerprint: { except: [event.sent_at] }`"
        }
        "state.entity" => "what the events are about: `entity: invoice`",
        "state.key" => "which one of them: `key: event.data.invoice_id`",
        "state.version" | "state.version.from" => {
            "the number that rises with each change: `version: { from: event.data.version }`"
        }
        "state.initial" => "the state before the first event: `initial: open`",
        "state.transitions" => {
            "the moves that are legal: `transitions: [{ from: open, to: paid }]`"
        }
        "transition.from" | "transition.to" => "write `{ from: [open, past_due], to: paid }`",
        "effect.id" => "name it, once in this file: `id: receipt`",
        "effect.type" => "one of `http`, `billing`, `email`, `webhook`, `llm`, `publish`, `ledger`",
        "effect.key" => "what this is done once for: `key: event.data.invoice_id`",
        "effect.request" => {
            "`request: { url: \"https://host/path\", json: { id: \"{{ event.id }}\" } }`"
        }
        "request.url" => "`url: \"https://host/path/{{ event.id }}\"`",
        "idempotency.header" => {
            "the header in which the provider looks for the key: `header: Idempotency-Key`"
        }
        "idempotency.window" => {
            "how long the provider remembers a key: `window: 24h`; `forever` if it never forgets; \
             `none` if it does not say"
        }
        "status.status" | "status.means" => {
            "`{ status: 409, when: 'response.json.code == \"in_flight\"', means: unknown }`"
        }
        "lookup.url" | "lookup.done" => {
            "`lookup: { url: \"https://host/path?key={{ effect.key }}\", done: \
             response.json.items.size() > 0, applies_within: 30s }`"
        }
        "lookup.applies_within" => {
            "how long after a request its effect may still appear, here or in the profile: \
             `applies_within: 30s`"
        }
        "basic.user" => "`basic: { user: \"${secret:user}\", password: \"${secret:password}\" }`",
        "header.name" | "header.value" => "`header: { name: x-api-key, value: \"${secret:key}\" }`",
        "ledger.entry" | "entry.account" | "entry.metric" | "entry.quantity" => {
            "`entry: { account: tenant, metric: calls, quantity: event.count }`"
        }
        "email.provider" => {
            "who sends it: `provider: { kind: smtp, server: \"${env:SMTP_URL}\" }`, or \
             `{ kind: resend, token: \"${secret:resend}\" }`"
        }
        "webhook.endpoint" | "endpoint.url" | "endpoint.secrets" => {
            "`endpoint: { url: \"https://host/path\", secrets: [\"${secret:webhook}\"] }`"
        }
        "llm.chat" | "chat.model" | "chat.messages" | "message.role" | "message.content" => {
            "`chat: { model: gpt-4o-mini, max_tokens: 400, auth: { bearer: \"${secret:openai}\" }, \
             messages: [{ role: user, content: \"{{ event.question }}\" }] }`"
        }
        "chat.max_tokens" => "the longest answer that is paid for: `max_tokens: 400`",
        "webhook.json" => "what it says: `json: { invoice: \"{{ event.data.invoice_id }}\" }`",
        "publish.message" | "message.topic" => {
            "`message: { topic: orders.shipped.v1, key: \"{{ event.order_id }}\", json: { id: \"{{ \
             event.id }}\" } }`"
        }
        "provider.kind" => "`kind: smtp` or `kind: resend`",
        "email.from" => "the sender, here or in `provider`: `from: billing@example.com`",
        "email.to" => "the recipient: `to: \"{{ event.email }}\"`",
        "email.subject" => "`subject: \"Receipt {{ event.number }}\"`",
        "smtp.server" => "`server: \"smtp+starttls://mail.example.com:587\"`",
        "resend.token" => "`token: \"${secret:resend}\"`",
        "test.name" | "test.events" | "test.expect" => {
            "`{ name: paid once, events: [samples/paid.json], expect: { outcomes: [applied] } }`"
        }
        _ => return None,
    })
}

/// Words of the language that this version refuses, and what can be done instead.
const WORDS: [(&str, &str); 2] =
    [("avro", "only `json` is read"), ("protobuf", "only `json` is read")];

/// Fields of the language that this version refuses, and what can be done instead.
const FIELDS: [(&str, &str); 10] = [
    (
        "on_status",
        "say what a status means in a profile: `profiles: { mine: { extends: http, statuses: [{ status: 409, \
         means: done }] } }`, and `profile: mine` in the effect",
    ),
    ("schedule", "use `backoff: 5s..24h` with `max_elapsed`"),
    ("per_tenant", "use `rate` and `concurrency`, which hold for all tenants together"),
    ("per_endpoint", "use `rate`"),
    ("in_flight_per_tenant", "use `concurrency`, which holds for all tenants together"),
    ("alerts", "remove it; alert on the metrics, see deploy/"),
    ("schema", "remove it; a record that lacks what is read is set aside with its cause"),
    ("registry", "remove it; only `json` without a registry is read"),
    ("on_unknown_schema", "remove it; only `json` without a registry is read"),
    ("redact", "remove it; `retention.payloads` drops the bytes of events"),
];

/// What can be done instead of something that is not available yet.
pub(super) fn instead_of(word: &str) -> &'static str {
    let known = WORDS.iter().chain(&FIELDS).find(|(name, _)| *name == word);
    known.map_or("remove it", |(_, instead)| instead)
}

/// The choices that this version does not refuse.
pub(super) fn available_words(choices: &[&'static str]) -> Vec<&'static str> {
    let is_later = |choice: &str| WORDS.iter().any(|(word, _)| *word == choice);
    choices.iter().copied().filter(|choice| !is_later(choice)).collect()
}

/// The fields that this version does not refuse.
pub(super) fn available_fields(fields: &[&'static str]) -> Vec<&'static str> {
    let is_later = |field: &str| FIELDS.iter().any(|(name, _)| *name == field);
    fields.iter().copied().filter(|field| !is_later(field)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every field of the type for refused fields has an alternative of its own.
    #[test]
    fn nothing_is_refused_without_an_alternative() {
        for source in [include_str!("raw/mod.rs"), include_str!("raw/effect.rs")] {
            let lines = source.lines().filter(|line| line.ends_with("Option<Later>,"));
            for line in lines {
                let (_, field) = line.split_once("pub(crate) ").unwrap();
                let (name, _) = field.split_once(':').unwrap();
                let known = FIELDS.iter().any(|(field, _)| *field == name);
                assert!(known, "{name} has no alternative");
            }
        }
    }

    /// The note of such a finding names a list, and that list names it.
    #[test]
    fn what_is_refused_stands_among_what_is_not_there_yet() {
        let changes = include_str!("../../../CHANGELOG.md");
        let (_, later) = changes.split_once("### Not there yet").unwrap();
        for (word, _) in WORDS.iter().chain(&FIELDS) {
            assert!(later.contains(&format!("`{word}`")), "`{word}` is not in CHANGELOG.md");
        }
    }

    /// Every field that is asked for by name can be written after its finding was read.
    #[test]
    fn nothing_is_missing_without_a_remedy() {
        let sources = [
            include_str!("compile/mod.rs"),
            include_str!("compile/call.rs"),
            include_str!("compile/effect.rs"),
            include_str!("compile/email.rs"),
            include_str!("compile/identity.rs"),
            include_str!("compile/llm.rs"),
            include_str!("compile/lookup.rs"),
            include_str!("compile/profile.rs"),
            include_str!("compile/publish.rs"),
            include_str!("compile/repeat.rs"),
            include_str!("compile/state.rs"),
            include_str!("compile/testcase.rs"),
            include_str!("compile/webhook.rs"),
        ];
        let mut asked = 0;
        for source in sources {
            for call in
                source.split("self.need(").skip(1).chain(source.split("self.missing(").skip(1))
            {
                let arguments = call.split(';').next().unwrap_or_default();
                let Some((_, rest)) = arguments.split_once('"') else { continue };
                let (name, _) = rest.split_once('"').unwrap();
                assert!(how_to_write(name).is_some(), "`{name}` has no remedy");
                asked += 1;
            }
        }
        assert!(asked > 25, "only {asked} were found");
    }
}
