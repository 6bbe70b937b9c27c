//! Connector files: those that come with the program, those that are wrong, and any bytes at all.

use proptest::prelude::*;

use super::*;

mod mail;
mod marks;
mod remedies;
mod together;

const EXAMPLES: [&str; 11] = [
    "invoice-paid.yaml",
    "invoice-paid-cloudevents.yaml",
    "invoice-receipt-smtp.yaml",
    "llm-run.yaml",
    "order-placed-http.yaml",
    "order-refund.yaml",
    "order-shipped-publish.yaml",
    "order-shipped-webhook.yaml",
    "payout-requested.yaml",
    "shipment-tracked.yaml",
    "usage-ledger.yaml",
];

/// Every secret is set; variables have their defaults.
struct AllSecrets;

impl SecretSource for AllSecrets {
    fn lookup(&self, reference: &Reference) -> Option<Secret> {
        match reference {
            Reference::Secret { name } if name.starts_with("webhook") => {
                Some(Secret::new("whsec_Q0FOQVJZLXZhbHVlLXRoYXQtc2lnbnMtd2ViaG9va3M="))
            }
            Reference::Secret { .. } => Some(Secret::new("CANARY-value")),
            Reference::Env { .. } => None,
        }
    }
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

fn shown(found: &[Diagnostic]) -> String {
    found.iter().map(|one| format!("{one}\n")).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_example_compiles_without_a_warning() {
    let files = find(&[examples()]).unwrap();
    assert_eq!(files.len(), EXAMPLES.len());
    let loaded = load(&files, &AllSecrets, Check::Live);
    let compiled = loaded.unwrap_or_else(|found| panic!("{}", shown(&found)));
    for one in compiled {
        assert!(one.warnings.is_empty(), "{}", shown(&one.warnings));
        assert!(!one.tests.is_empty(), "{} has no tests", one.file);
    }
}

#[test]
fn every_yaml_file_beside_the_examples_is_one_of_them() {
    let names = fs::read_dir(examples()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut yaml: Vec<_> =
        names.filter_map(|name| name.into_string().ok()).filter(|n| n.ends_with(".yaml")).collect();
    yaml.sort();
    let mut known = EXAMPLES;
    known.sort_unstable();
    assert_eq!(yaml, known);
}

/// `ONCELY_WRITE_SCHEMA=1 cargo test -p oncely-connectors schema` writes it.
#[test]
#[allow(clippy::disallowed_methods, reason = "this variable belongs to the test alone")]
fn the_editor_schema_is_fresh() {
    let path = examples().join("connector.schema.json");
    let fresh = schema::text();
    #[allow(clippy::disallowed_methods, reason = "a switch of this test alone")]
    let write = std::env::var_os("ONCELY_WRITE_SCHEMA").is_some();
    if write {
        fs::write(&path, &fresh).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == fresh,
        "connector.schema.json is stale; run: \
         ONCELY_WRITE_SCHEMA=1 cargo test -p oncely-connectors schema"
    );
}

fn as_json(node: &node::Node) -> serde_json::Value {
    use node::NodeKind;
    match &node.kind {
        NodeKind::Null => serde_json::Value::Null,
        NodeKind::Bool(value) => (*value).into(),
        NodeKind::Int(number) => (*number).into(),
        NodeKind::Decimal(number) => number.as_str().parse::<f64>().unwrap().into(),
        NodeKind::Text(text) => text.as_str().into(),
        NodeKind::List(items) => items.iter().map(as_json).collect(),
        NodeKind::Map(members) => {
            members.iter().map(|(name, value)| (name.text.clone(), as_json(value))).collect()
        }
    }
}

#[test]
fn every_example_fits_the_editor_schema_and_a_slip_does_not() {
    let schema: serde_json::Value = serde_json::from_str(&schema::text()).unwrap();
    let validator = jsonschema::draft7::new(&schema).unwrap();
    for name in EXAMPLES {
        let text = fs::read_to_string(examples().join(name)).unwrap();
        let json = as_json(&node::parse(&text, &mut Findings::default()).unwrap());
        let errors: Vec<_> = validator.iter_errors(&json).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
        let slip = text.replace("identity:", "identify:");
        let json = as_json(&node::parse(&slip, &mut Findings::default()).unwrap());
        assert!(!validator.is_valid(&json), "{name}");
    }
}

#[test]
fn names_are_the_same_to_the_editor_and_to_the_program() {
    let schema: serde_json::Value = serde_json::from_str(&schema::text()).unwrap();
    let validator = jsonschema::draft7::new(&schema).unwrap();
    for (name, connector, effect) in [
        ("a", true, true),
        ("a_b-c9", true, false),
        ("a_b9", true, true),
        ("a-b", true, false),
        ("_a", false, false),
        ("9a", false, false),
        ("A", false, false),
        ("a.b", false, false),
        (&*"a".repeat(63), true, true),
        (&*"a".repeat(64), false, false),
    ] {
        let effects = "effects: [{ id: NAME, type: http, key: event.id, \
                       request: { url: 'https://x.test/' } }]\n";
        let texts = [
            (SMALL.replace("small", name), connector),
            (format!("{SMALL}{}", effects.replace("NAME", name)), effect),
        ];
        for (text, accepted) in texts {
            let json = as_json(&node::parse(&text, &mut Findings::default()).unwrap());
            assert_eq!(validator.is_valid(&json), accepted, "the schema on {text}");
            assert_eq!(one(&text).is_ok(), accepted, "the program on {text}");
        }
    }
}

/// What people read when something is wrong. `INSTA_UPDATE=always cargo test -p oncely-connectors`
/// accepts new texts.
#[test]
fn bad_files_are_told_so_that_they_can_be_put_right() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/file/bad");
    let mut files: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    assert!(!files.is_empty());
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let found = compile(name, &text, &NothingSet, Check::Live);
        let found = found.expect_err(&format!("{name} was accepted"));
        let stem = path.file_stem().unwrap().to_str().unwrap();
        insta::with_settings!({ snapshot_path => "bad", prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(stem, shown(&found));
        });
    }
}

/// An example with a slip, beside its own samples.
fn slipped(example: &str, right: &str, wrong: &str) -> Vec<Diagnostic> {
    let text = fs::read_to_string(examples().join(example)).unwrap();
    assert!(text.contains(right), "{right}");
    let name = examples().join("slip.yaml").display().to_string();
    let compiled = compile(&name, &text.replacen(right, wrong, 1), &AllSecrets, Check::Live);
    let mut found = compiled.map_or_else(|found| found, |compiled| compiled.warnings);
    found.iter_mut().for_each(|one| one.file = "slip.yaml".to_owned());
    found
}

#[test]
fn what_cannot_work_on_the_samples_is_told_where_it_stands() {
    let found = [
        slipped("order-placed-http.yaml", "{{ event.lines }}", "{{ event.lnes }}"),
        slipped("order-placed-http.yaml", "== \"order.placed\"", "+ 1 > 2"),
        slipped(
            "usage-ledger.yaml",
            "event.input_tokens + event.output",
            "event.model + event.output",
        ),
        slipped("order-placed-http.yaml", "key: event.order_id", "key: event.ordr_id"),
        slipped("order-placed-http.yaml", "id: event.order_id", "id: event.lines"),
        slipped("shipment-tracked.yaml", "from: event.number", "from: event.step"),
        slipped("shipment-tracked.yaml", "key: event.shipment_id", "key: event.shipmnt_id"),
    ]
    .concat();
    insta::with_settings!({ snapshot_path => "bad", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!("samples", shown(&found));
    });
}

#[test]
fn a_window_that_nobody_promises_is_accepted_and_not_trusted_in_silence() {
    let window =
        |word: &str| slipped("order-placed-http.yaml", "window: 24h", &format!("window: {word}"));
    let none = window("none");
    assert_eq!(none.iter().map(|one| one.code).collect::<Vec<_>>(), [Code::WindowNotKnown]);
    assert_eq!(none[0].severity, Severity::Warning);
    assert!(window("forever").is_empty(), "whoever says so has said it");
    let text = fs::read_to_string(examples().join("order-placed-http.yaml")).unwrap();
    let held = text.replace("window: 24h", "window: none").replace("retry_same_key", "hold");
    let name = examples().join("held.yaml").display().to_string();
    let held = compile(&name, &held, &AllSecrets, Check::Live).unwrap();
    assert!(held.warnings.is_empty(), "{}", shown(&held.warnings));
}

fn one(text: &str) -> Result<Compiled, Vec<Diagnostic>> {
    compile("connectors/x.yaml", text, &AllSecrets, Check::Live)
}

const SMALL: &str = "version: 1
connector: small
source: { topics: [t] }
identity: { id: event.id, fingerprint: [event.amount] }
";

#[test]
fn what_is_not_said_has_safe_defaults() {
    use oncely_core::connector::{OffsetWait, OnConflict, Start};
    let made = one(SMALL).unwrap().connector;
    assert_eq!(&*made.source.group, "oncely.small");
    assert_eq!(&*made.scope, "small");
    assert_eq!(made.source.start, Start::Earliest);
    assert_eq!(made.identity.on_conflict, OnConflict::Quarantine);
    assert_eq!(made.failure.offset_wait, OffsetWait::Millis(60_000));
    assert_eq!(made.decode.bytes_max, 1 << 20);
}

#[test]
fn an_effect_holds_what_is_unknown_unless_told_otherwise() {
    use oncely_core::connector::{EffectBody, OnUnknown};
    let effect = "effects:
  - { id: a, type: http, key: event.id, request: { url: 'https://x.test/' } }
  - id: b
    type: http
    key: event.id
    request: { url: 'https://x.test/' }
    idempotency: { header: Idempotency-Key, window: 6h }
    on_unknown: retry_same_key
";
    let made = one(&format!("{SMALL}{effect}")).unwrap().connector;
    let call = |index: usize| match &made.effects[index].body {
        EffectBody::Call(call) => call,
        EffectBody::Ledger(_) | EffectBody::Publish(_) => panic!("not a call"),
    };
    assert_eq!(call(0).on_unknown, OnUnknown::Hold);
    assert_eq!(call(0).profile.key_header, None);
    assert_eq!(call(1).on_unknown, OnUnknown::RetrySameKey);
    assert_eq!(call(1).profile.key_header.as_deref(), Some("idempotency-key"));
    let plan = call(1).retry.elapsed_ms_max();
    assert!(plan < 6 * 3_600_000, "the default plan ends inside the key window: {plan}");
}

#[test]
fn a_call_knows_the_type_that_the_file_gives_it() {
    use oncely_core::connector::EffectBody;
    let kinds = |name: &str| {
        let text = fs::read_to_string(examples().join(name)).unwrap();
        let name = examples().join(name).display().to_string();
        let made = compile(&name, &text, &AllSecrets, Check::Live).unwrap().connector;
        let kind = |body: &EffectBody| match body {
            EffectBody::Call(call) => call.kind,
            EffectBody::Ledger(_) => "ledger",
            EffectBody::Publish(_) => "publish",
        };
        made.effects.iter().map(|rule| kind(&rule.body)).collect::<Vec<_>>()
    };
    assert_eq!(kinds("invoice-paid.yaml"), ["billing", "email"]);
    assert_eq!(kinds("invoice-receipt-smtp.yaml"), ["email"]);
    assert_eq!(kinds("order-shipped-webhook.yaml"), ["webhook"]);
    assert_eq!(kinds("order-shipped-publish.yaml"), ["publish"]);
    assert_eq!(kinds("order-placed-http.yaml"), ["http", "http"]);
    assert_eq!(kinds("llm-run.yaml"), ["llm", "ledger", "ledger", "webhook"]);
}

#[test]
fn w15_a_call_that_outlives_the_grace_is_refused_where_the_grace_is_known() {
    let effect = "effects:
  - { id: a, type: http, key: event.id, request: { url: 'https://x.test/' }, timeout: { total: 30s } }
";
    let text = format!("{SMALL}{effect}");
    assert!(one(&text).is_ok(), "nobody said how long a stop waits");
    let within = |grace_ms| {
        let bounds = Bounds { grace_ms: Some(grace_ms) };
        compile_within("x.yaml", &text, &AllSecrets, Check::Live, bounds)
    };
    assert!(within(30_001).is_ok());
    let found = within(30_000).unwrap_err();
    assert_eq!(found[0].code, Code::OutlivesGrace);
    assert_eq!(found[0].line, 6);
}

#[test]
fn t3_what_is_replayed_must_be_remembered() {
    let text = |retention: &str| format!("{SMALL}retention: {{ {retention} }}\n");
    assert!(one(&text("dedupe: 30d, replay: 14d")).is_ok());
    let found = one(&text("dedupe: 14d, replay: 14d")).unwrap_err();
    assert_eq!(found[0].code, Code::RetentionTooShort);
}

#[test]
fn the_billing_profile_writes_what_stripe_reads() {
    use oncely_core::connector::EffectBody;
    use oncely_core::effect::request::Request;
    use oncely_core::expr::Scope;
    use oncely_core::render;
    let files = [examples().join("invoice-paid.yaml")];
    let compiled = load(&files, &AllSecrets, Check::Live).unwrap();
    let connector = &compiled[0].connector;
    let sample = fs::read(examples().join("samples/paid.json")).unwrap();
    let event = crate::format::decode(&connector.decode, Some(&sample), &[]).unwrap();
    let effects = oncely_core::value::Value::object([(
        "settle",
        oncely_core::value::Value::object([("charge_id", oncely_core::value::Value::text("ch_1"))]),
    )]);
    let scope = Scope {
        event: Some(&event),
        tenant: Some("acct_7"),
        effects: Some(&effects),
        ..Scope::default()
    };
    let made = |id: &str| match &connector.effect(id).unwrap().body {
        EffectBody::Call(call) => {
            (render::request(&call.request, &scope).unwrap(), call.reads_results)
        }
        EffectBody::Ledger(_) | EffectBody::Publish(_) => panic!("not a call"),
    };
    let (Request::Http(settle), false) = made("settle") else { panic!("settle is no plain call") };
    assert_eq!(&*settle.url, "https://api.stripe.com/v1/charges");
    assert_eq!(
        settle.body.as_deref(),
        Some(
            "amount=1990&currency=eur&description=Invoice%201009\
             &metadata%5Binvoice%5D=in_1009&metadata%5Baccount%5D=acct_7"
        )
    );
    let headers: Vec<_> = settle.headers.iter().map(|(n, v)| (&**n, &**v)).collect();
    assert!(headers.contains(&("stripe-version", "2025-09-30.clover")), "{headers:?}");
    let (Request::Http(receipt), true) = made("receipt") else { panic!("receipt reads a result") };
    assert_eq!(&*receipt.url, "https://api.resend.com/emails");
    let body: serde_json::Value = serde_json::from_str(receipt.body.as_deref().unwrap()).unwrap();
    assert_eq!(body["to"], serde_json::json!(["ada@example.com"]));
    assert_eq!(body["subject"], "Receipt 1009");
    assert!(body["html"].as_str().unwrap().contains("Payment reference: ch_1"));
}

#[test]
fn a_mistake_in_a_template_file_is_told_with_its_line() {
    let dir = std::env::temp_dir().join(format!("oncely-template-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("receipt.html.j2"), "<p>\n{{ evnt.number }}</p>").unwrap();
    let effect = "effects:
  - id: a
    type: email
    key: event.id
    to: a@example.com
    subject: hello
    template: receipt.html.j2
    provider: { kind: smtp, server: 'smtp://localhost:25', from: b@example.com }
";
    let name = dir.join("x.yaml").display().to_string();
    let found = compile(&name, &format!("{SMALL}{effect}"), &AllSecrets, Check::Live).unwrap_err();
    assert_eq!(found[0].message, "unknown name `evnt`, did you mean `event`?");
    assert_eq!(found[0].notes, ["in line 2 of receipt.html.j2"]);
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn variables_are_replaced_and_unset_ones_are_told() {
    let text = SMALL.replace("[t]", "['${env:TOPIC:-a.b}']");
    assert_eq!(one(&text).unwrap().connector.source.topics, [Box::from("a.b")]);
    let text = SMALL.replace("[t]", "['${env:TOPIC}']");
    let live = one(&text).unwrap_err();
    assert_eq!(live[0].code, Code::Unresolved);
    let billing = fs::read_to_string(examples().join("invoice-paid.yaml")).unwrap();
    let name = examples().join("x.yaml").display().to_string();
    let quiet = compile(&name, &billing, &NothingSet, Check::Offline).unwrap();
    assert!(quiet.warnings.is_empty(), "nobody has secrets where a file is only checked");
    let offline = compile("x.yaml", &text, &NothingSet, Check::Offline).unwrap();
    assert_eq!(offline.warnings[0].code, Code::UnresolvedHere);
}

#[test]
fn s13_no_form_of_a_connector_or_an_error_shows_a_secret() {
    let files: Vec<_> = EXAMPLES.iter().map(|name| examples().join(name)).collect();
    for one in load(&files, &AllSecrets, Check::Live).unwrap() {
        assert!(!format!("{one:?}").contains("CANARY"), "{} shows a value", one.file);
    }
    for auth in [
        "auth: { bearer: CANARY }",
        "auth: { bearer: [CANARY] }",
        "auth: { basic: { user: me, password: CANARY } }",
        "auth: { basic: { user: CANARY } }",
        "auth: { header: { name: x-key, value: \"CANARY\" } }",
        "headers: { authorization: Bearer CANARY }",
        "auth: { bearer: \"${env:X:-CANARY}\", basic: { user: x } }",
    ] {
        let effect = format!(
            "effects:\n  - id: a\n    type: http\n    key: event.id\n    request:\n      \
             url: https://x.test/\n      {auth}\n"
        );
        let found = one(&format!("{SMALL}{effect}")).expect_err(auth);
        let shown =
            format!("{} {found:?} {}", shown(&found), serde_json::to_string(&found).unwrap());
        assert!(!shown.contains("CANARY"), "{auth}: {shown}");
    }
}

#[test]
fn b_hostile_files_are_errors_not_crashes() {
    for text in [
        "",
        "---",
        "\u{0}",
        "a: &a [*a]",
        "x: !!python/object:os.system {}",
        "- 1\n- 2",
        "version: 1\n---\nversion: 1",
        "a: {b: {c: {d: [e, {f: ",
        "? [complex]\n: key",
        "\u{feff}version: 1",
        "version: 1\nversion: 2",
        "\t- tab",
        "version: 99999999999999999999",
        "%YAML 1.1\n---\nversion: 1",
    ] {
        assert!(one(text).is_err(), "{text:?}");
    }
    for deep in ["[".repeat(5000), "{a: ".repeat(5000), "- ".repeat(5000)] {
        assert!(one(&deep).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Typing mistakes of all kinds: they are told or harmless, and never a crash.
    #[test]
    fn no_slip_makes_it_panic(
        file in 0..EXAMPLES.len(), at: prop::sample::Index, cut in 0_usize..20,
        put in "[\\[\\]{}:,'\"|>&*!?#\\- \n\t\u{e9}a-z0-9$]{0,6}",
    ) {
        let text = fs::read_to_string(examples().join(EXAMPLES[file])).unwrap();
        let chars: Vec<char> = text.chars().collect();
        let at = at.index(chars.len());
        let kept = chars[..at].iter().chain(chars[at..].iter().skip(cut));
        let kept: String = kept.collect();
        let (before, after) = kept.split_at(chars[..at].iter().map(|c| c.len_utf8()).sum());
        let slipped = format!("{before}{put}{after}");
        let name = examples().join("slip.yaml").display().to_string();
        match compile(&name, &slipped, &AllSecrets, Check::Live) {
            Ok(_) => {}
            Err(found) => {
                prop_assert!(found.iter().any(|one| one.severity == Severity::Error));
                prop_assert!(!shown(&found).contains("CANARY"));
            }
        }
    }
}
