//! The connector file that a story writes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// An effect of the file: its id, where it arrives at the provider, and its YAML.
#[derive(Clone, Debug)]
pub struct EffectLines {
    pub id: &'static str,
    /// Beginning of the provider's endpoint; empty for rows of the usage ledger, `kafka` for records.
    pub endpoint: &'static str,
    /// `{provider}` and `{smtp}` stand for addresses.
    yaml: String,
}

impl EffectLines {
    /// Adds lines, without indentation.
    #[must_use]
    pub fn with(mut self, lines: &str) -> Self {
        for line in lines.lines() {
            writeln!(self.yaml, "    {line}").unwrap();
        }
        self
    }

    /// Replaces a part of its lines.
    pub fn replace(&mut self, from: &str, to: &str) {
        assert!(self.yaml.contains(from), "{from} is not in {}", self.yaml);
        self.yaml = self.yaml.replace(from, to);
    }

    /// An effect of an example: its lines are in that file.
    pub fn elsewhere(id: &'static str, endpoint: &'static str) -> Self {
        Self { id, endpoint, yaml: String::new() }
    }

    fn new(id: &'static str, endpoint: &'static str, yaml: &str) -> Self {
        let blank = Self { id, endpoint, yaml: format!("  - id: {id}\n") };
        blank.with(yaml)
    }

    /// One that calls a provider, with bounds that suit a story.
    fn call(id: &'static str, endpoint: &'static str, yaml: &str) -> Self {
        Self::new(id, endpoint, yaml).with(
            "timeout: { connect: 1s, total: 5s }
retry: { attempts: 20, backoff: 50ms..400ms, max_elapsed: 10m }",
        )
    }
}

/// A card is charged: form body, keyed, for 24 hours.
pub fn charge() -> EffectLines {
    EffectLines::call(
        "charge",
        "/v1/charges",
        r#"type: billing
when: entered("paid")
key: event.data.invoice
request:
  url: "{provider}/v1/charges"
  form: { amount: "{{ event.data.amount }}", currency: "{{ event.data.currency }}", description: "{{ event.data.invoice }}" }
record: { charge_id: response.json.id }
on_unknown: retry_same_key"#,
    )
}

/// A mail by an API that knows keys.
pub fn receipt() -> EffectLines {
    EffectLines::call(
        "receipt",
        "/emails",
        r#"type: email
when: entered("paid")
key: event.data.invoice
to: "{{ event.data.email }}"
subject: "Receipt {{ event.data.invoice }}"
text: "Thank you."
provider: { kind: resend, url: "{provider}", from: billing@example.com, token: "${env:STORY_TOKEN}" }
on_unknown: retry_same_key"#,
    )
}

/// A mail by SMTP, which knows no keys.
pub fn letter() -> EffectLines {
    EffectLines::call(
        "letter",
        "smtp",
        r#"type: email
when: entered("paid")
key: event.data.invoice
to: "{{ event.data.email }}"
subject: "Letter {{ event.data.invoice }}"
text: "Thank you."
provider: { kind: smtp, server: "smtp://{smtp}", from: billing@example.com }
on_unknown: hold"#,
    )
}

/// A call that is keyed, in JSON.
pub fn hook() -> EffectLines {
    EffectLines::call(
        "hook",
        "/keyed/hooks",
        r#"type: http
key: event.id
request:
  method: POST
  url: "{provider}/keyed/hooks"
  json: { event: "{{ event.id }}", cents: "{{ event.data.amount }}" }
idempotency: { header: Idempotency-Key, window: 24h }
on_unknown: retry_same_key"#,
    )
}

/// A call that cannot be repeated and cannot be asked for.
pub fn note() -> EffectLines {
    EffectLines::call(
        "note",
        "/plain/notes",
        r#"type: http
when: entered("paid")
key: event.data.invoice
request:
  method: POST
  url: "{provider}/plain/notes"
  json: { reference: "{{ event.data.invoice }}" }
on_unknown: hold"#,
    )
}

/// The secrets of webhooks: a new one, and the one that it replaces.
pub const WEBHOOK_SECRETS: [(&str, &str); 2] = [
    ("webhook_new", "whsec_bmV3LW5ldy1uZXctbmV3LW5ldy1uZXctbmV3"),
    ("webhook_old", "whsec_b2xkLW9sZC1vbGQtb2xkLW9sZC1vbGQtb2xk"),
];

/// A webhook to an endpoint that the event names.
pub fn webhook() -> EffectLines {
    EffectLines::call(
        "webhook",
        "/webhooks/",
        r#"type: webhook
when: entered("paid")
key: event.data.invoice
endpoint:
  url: "{{ event.data.endpoint }}"
  secrets: ["${secret:webhook_new}", "${secret:webhook_old}"]
  allow: ["127.0.0.1"]
event_type: invoice.paid
json: { invoice: "{{ event.data.invoice }}", cents: "{{ event.data.amount }}" }"#,
    )
}

/// A call without a key, to a provider that can be asked by our reference. What was sent is believed to be
/// nowhere after its time-out and a second.
pub fn settlement() -> EffectLines {
    EffectLines::new(
        "settle",
        "/lookup/settlements",
        r#"type: http
when: entered("paid")
key: event.data.invoice
request:
  method: POST
  url: "{provider}/lookup/settlements"
  json: { reference: "{{ effect.key }}", invoice: "{{ event.data.invoice }}" }
timeout: { connect: 300ms, total: 700ms }
retry: { attempts: 20, backoff: 50ms..200ms, max_elapsed: 10m }
record: { settlement: response.json.id }
on_unknown: reconcile
lookup: { url: "/lookup/settlements?key={{ effect.key }}", done: response.json.items.size() > 0, answer: "response.json.items[0]", applies_within: 1s }"#,
    )
}

/// A record in the story's second topic, keyed by its invoice.
pub fn announce() -> EffectLines {
    EffectLines::new(
        "announce",
        "kafka",
        r#"type: publish
key: event.id
message:
  topic: "{topic}.out"
  key: "{{ event.data.invoice }}"
  headers: { kind: "{{ event.type }}" }
  json: { id: "{{ event.id }}", invoice: "{{ event.data.invoice }}", version: "{{ event.version }}" }"#,
    )
}

/// The charge is taken back when the invoice is voided.
pub fn refund() -> EffectLines {
    EffectLines::call(
        "refund",
        "/v1/refunds",
        r#"type: billing
when: entered("voided")
compensate: charge
key: event.data.invoice
request:
  url: "{provider}/v1/refunds"
  form: { charge: "{{ effects.charge.charge_id }}", reason: "{{ event.data.invoice }}" }
record: { refund_id: response.json.id }
on_unknown: retry_same_key"#,
    )
}

/// A line of the usage ledger.
pub fn usage() -> EffectLines {
    EffectLines::new(
        "usage",
        "",
        r#"type: ledger
on_stale: run
key: event.id
entry: { account: event.account, metric: "events", quantity: event.data.amount }"#,
    )
}

/// A question to a model: every call is paid for, and nobody can be asked for a lost answer.
pub fn answer() -> EffectLines {
    EffectLines::call(
        "answer",
        "/model/v1/chat/completions",
        r#"type: llm
when: entered("paid")
key: event.data.invoice
chat:
  url: "{provider}/model/v1"
  auth: { bearer: "${env:STORY_TOKEN}" }
  model: small-1
  max_tokens: 100
  messages:
    - { role: system, content: "Answer in one line." }
    - { role: user, content: "What was {{ event.data.invoice }} for?" }"#,
    )
}

/// A line of the usage ledger that says what the answer used.
pub fn tokens() -> EffectLines {
    EffectLines::new(
        "tokens",
        "",
        r#"type: ledger
when: entered("paid")
after: [answer]
key: event.data.invoice
entry: { account: event.account, metric: "tokens", quantity: effects.answer.usage.total_tokens }"#,
    )
}

/// The customer's webhook, from the stored answer and after the bill.
pub fn told() -> EffectLines {
    EffectLines::call(
        "told",
        "/webhooks/told",
        r#"type: webhook
when: entered("paid")
after: [answer, tokens]
key: event.data.invoice
endpoint: { url: "{provider}/webhooks/told", secrets: ["${secret:webhook_new}"], allow: ["127.0.0.1"] }
event_type: run.answered
json: { invoice: "{{ event.data.invoice }}", answer: "{{ effects.answer.text }}" }"#,
    )
}

/// One connector file about invoices.
#[derive(Clone, Debug)]
pub struct Wiring {
    pub name: String,
    pub topic: String,
    pub group: String,
    pub start: &'static str,
    pub protocol: &'static str,
    pub decode: &'static str,
    pub matches: &'static str,
    pub identity: &'static str,
    /// Where the invoice stands in an event.
    pub state_key: &'static str,
    pub version: &'static str,
    /// What becomes of later versions while one is missing, and while one is parked.
    pub on_gap: &'static str,
    pub on_parked: &'static str,
    pub kind: &'static str,
    pub offset_wait: &'static str,
    pub open_effects_max: u32,
    /// Dead letters go to the story's `.dlq` topic as well.
    pub dead_letter: bool,
    pub effects: Vec<EffectLines>,
    /// An example that comes with the program, and the topic that stands in it.
    pub example: Option<(String, String)>,
}

impl Wiring {
    /// One of the program's own examples, for a topic and a group of the story.
    pub fn example(file: &str, topic: &str) -> Self {
        let name = format!("job-{file}");
        Self { example: Some((file.to_owned(), topic.to_owned())), ..Self::invoices(&name) }
    }

    /// Invoices of one topic, without effects.
    pub fn invoices(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            topic: name.to_owned(),
            group: format!("oncely.{name}"),
            start: "earliest",
            protocol: "classic",
            decode: "{ format: json }",
            matches: r#"event.type in ["invoice.paid", "invoice.past_due", "invoice.voided"]"#,
            identity: "{ tenant: event.account, id: event.id, \
                       fingerprint: [event.type, event.data.amount, event.data.currency] }",
            state_key: "event.data.invoice",
            version: "event.version",
            on_gap: "apply",
            on_parked: "apply",
            kind: "event.type",
            offset_wait: "60s",
            open_effects_max: 100_000,
            dead_letter: false,
            effects: Vec::new(),
            example: None,
        }
    }

    #[must_use]
    pub fn effects(mut self, effects: impl IntoIterator<Item = EffectLines>) -> Self {
        self.effects = effects.into_iter().collect();
        self
    }

    /// The file, with the addresses of the provider as workers reach it.
    pub fn yaml(&self, provider: &str, smtp: &str) -> String {
        if let Some((file, topic)) = &self.example {
            return self.of_example(file, topic);
        }
        let Self { name, topic, group, start, protocol, decode, matches, .. } = self;
        let Self { identity, state_key, version, kind, offset_wait, open_effects_max, .. } = self;
        let Self { on_gap, on_parked, .. } = self;
        let dead_letter =
            if self.dead_letter { format!(", dead_letter: {topic}.dlq") } else { String::new() };
        let mut text = format!(
            r#"version: 1
connector: {name}
owner: stories
source: {{ topics: [{topic}], group: {group}, start: {start}, protocol: {protocol} }}
decode: {decode}
match: '{matches}'
identity: {identity}
state:
  entity: invoice
  key: {state_key}
  version: {{ from: {version}, on_gap: {on_gap} }}
  on_parked: {on_parked}
  initial: open
  transitions:
    - {{ from: open, to: past_due, if: '{kind} == "invoice.past_due"' }}
    - {{ from: [open, past_due], to: paid, if: '{kind} == "invoice.paid"' }}
    - {{ from: [open, past_due, paid], to: voided, if: '{kind} == "invoice.voided"' }}
failure: {{ offset_wait: {offset_wait}, max_open_effects: {open_effects_max}{dead_letter} }}
retention: {{ dedupe: 30d }}
"#
        );
        if !self.effects.is_empty() {
            text.push_str("effects:\n");
        }
        for effect in &self.effects {
            let yaml = effect.yaml.replace("{provider}", provider).replace("{smtp}", smtp);
            text.push_str(&yaml.replace("{topic}", topic));
        }
        text
    }

    /// The example's text with the story's topic and group; addresses come by the environment.
    fn of_example(&self, file: &str, topic: &str) -> String {
        let text = std::fs::read_to_string(examples().join(format!("{file}.yaml"))).unwrap();
        let text: String = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("group:"))
            .map(|line| line.replace(&format!("[{topic}]"), &format!("[{}]", self.topic)) + "\n")
            .collect();
        let named = format!("connector: {file}\n");
        assert!(text.contains(&named), "{file} says its name");
        let own = self.group.strip_prefix("oncely.").unwrap_or(&self.group);
        text.replace(&named, &format!("connector: {own}\n"))
    }
}

/// Where the examples are.
pub fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../connectors/examples")
}
