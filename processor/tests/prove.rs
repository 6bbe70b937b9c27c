//! `oncely prove`, as a person runs it: what it says of each class of provider.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a failed test should stop at once"
)]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../connectors/examples");

/// Runs the command with an environment that names no server and no secret.
fn prove(args: &[&str]) -> (i32, Value, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncely"));
    // Nothing here has a certificate, and each of its workers would read all of the system's.
    command.env("SSL_CERT_FILE", "/dev/null");
    command.arg("prove").args(args).args(["--output", "json"]).stdin(Stdio::null());
    for name in ["ONCELY_DATABASE_URL", "ONCELY_KAFKA_BROKERS", "ONCELY_SECRETS_DIR"] {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    let json = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code().expect("an end"), json, errors)
}

/// How an effect ended after a crash at a point.
fn end(json: &Value, point: &str, effect: &str) -> String {
    let points = json["points"].as_array().unwrap();
    let found = points.iter().find(|one| one["point"] == point).unwrap();
    let effects = found["effects"].as_array().unwrap();
    let of_effect = effects.iter().find(|one| one["effect"] == effect);
    of_effect.map(|one| one["end"].as_str().unwrap().to_owned()).unwrap_or_default()
}

#[test]
fn w5_w6_what_each_class_of_provider_comes_to() {
    let points =
        ["--point", "after-request", "--point", "before-outcome", "--point", "after-position"];
    let of = |file: &str| {
        let file = format!("{EXAMPLES}/{file}");
        prove(&[&[file.as_str()], &points[..]].concat())
    };
    let (code, keyed, errors) = of("invoice-paid.yaml");
    assert_eq!(code, 0, "{errors}");
    assert_eq!((&keyed["safe"], &keyed["risks"]), (&3.into(), &0.into()), "{keyed}");
    assert_eq!(end(&keyed, "after-request", "settle"), "safe");
    // The events of all tests, each content once, and what the windows' names mean.
    let text = fs::read_to_string(format!("{EXAMPLES}/invoice-paid.yaml")).unwrap();
    let tests = text.lines().filter(|line| line.trim_start().starts_with("- name: ")).count();
    assert_eq!(keyed["tests"].as_array().unwrap().len(), tests, "{keyed}");
    assert!(keyed["events"].as_array().unwrap().len() >= 3, "{keyed}");
    let explained = keyed["windows"]["W5"].as_str().unwrap();
    assert!(explained.contains("its answer is lost"), "{keyed}");
    assert_eq!(end(&keyed, "after-request", "receipt"), "safe", "what comes after it as well");
    let (code, asked, errors) = of("payout-requested.yaml");
    assert_eq!(code, 0, "{errors}");
    assert_eq!(asked["safe"], 3, "{asked}");
    let (code, neither, errors) = of("invoice-receipt-smtp.yaml");
    assert_eq!(code, 0, "held is no risk: {errors}");
    assert_eq!(end(&neither, "after-request", "receipt"), "held");
    assert_eq!(end(&neither, "after-position", "receipt"), "safe");
}

#[test]
fn w5_p14_what_hangs_on_a_paid_answer() {
    let file = format!("{EXAMPLES}/llm-run.yaml");
    let points = ["--point", "before-connect", "--point", "after-settle-commit"];
    let (code, json, errors) = prove(&[&[file.as_str()], &points[..]].concat());
    assert_eq!(code, 0, "{errors}");
    assert_eq!(end(&json, "before-connect", "answer"), "held", "{json}");
    for effect in ["tokens_in", "tokens_out", "tell"] {
        assert_eq!(end(&json, "before-connect", effect), "behind it", "{effect}: {json}");
        assert_eq!(end(&json, "after-settle-commit", effect), "safe", "{effect}: {json}");
    }
}

#[test]
fn what_is_counted_as_done_and_never_took_place_is_a_risk() {
    let dir = std::env::temp_dir().join(format!("oncely-prove-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let file = write(
        &dir,
        "guess.yaml",
        "version: 1
connector: guess
source: { topics: [guesses] }
identity: { id: event.id, fingerprint: [event.id] }
effects:
  - id: note
    type: http
    key: event.id
    request: { method: POST, url: \"https://nobody.example.com/notes\", json: { id: \"{{ event.id }}\" } }
    on_unknown: assume_done
",
    );
    let event = write(&dir, "event.json", r#"{"id":"g_1"}"#);
    let args =
        [file.as_str(), "--event", &event, "--point", "before-connect", "--point", "after-end"];
    let (code, json, errors) = prove(&args);
    assert_eq!(code, 1, "{errors}");
    assert_eq!(end(&json, "before-connect", "note"), "RISK", "{json}");
    assert_eq!(end(&json, "after-end", "note"), "safe", "{json}");
    let (code, _, errors) = prove(&[&file]);
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("--event"), "without events nothing can be proven: {errors}");
    let (code, _, errors) = prove(&[&file, "--event", &event, "--point", "nowhere"]);
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("after-batch-commit"), "points are named: {errors}");
    fs::remove_dir_all(dir).unwrap();
}

/// A mail of which nobody can be asked, after a charge.
const LATER: &str = r#"version: 1
connector: later
source: { topics: [orders] }
identity: { id: event.id, fingerprint: [event.id] }
effects:
  - id: charge
    type: http
    key: event.id
    request: { method: POST, url: "https://nobody.example.com/charges", json: { id: "{{ event.id }}" } }
    idempotency: { header: Idempotency-Key, window: 24h }
    on_unknown: retry_same_key
  - id: mail
    type: http
    after: [charge]
    key: event.id
    request: { method: POST, url: "https://nobody.example.com/mails", json: { id: "{{ event.id }}" } }
    on_unknown: hold
"#;

#[test]
fn w5_what_comes_after_another_effect_dies_in_its_own_call() {
    let dir = std::env::temp_dir().join(format!("oncely-prove-later-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let file = write(&dir, "later.yaml", LATER);
    let event = write(&dir, "event.json", r#"{"id":"o_1"}"#);
    let points = [
        "after-claim-commit",
        "before-connect",
        "after-request",
        "before-outcome",
        "after-settle-commit",
        "before-death",
        "after-take-over",
        "before-publish",
    ];
    let mut args = vec![file.as_str(), "--event", &event];
    points.iter().for_each(|point| args.extend(["--point", point]));
    let (code, json, errors) = prove(&args);
    assert_eq!(code, 0, "{errors}");
    for point in points.iter().filter(|point| **point != "before-publish") {
        assert_eq!(end(&json, point, "charge"), "safe", "{point}: {json}");
        // With the outcome of the charge the mail is claimed as well, unless somebody else was quicker.
        let ends = if *point == "after-settle-commit" { &["held", "safe"][..] } else { &["held"] };
        assert!(ends.contains(&&*end(&json, point, "mail")), "{point}: {json}");
    }
    assert_eq!(end(&json, "before-publish", "mail"), "", "it publishes nothing: {json}");
    assert_eq!(json["not_crashed"], 0, "{json}");
    assert_eq!(json["not_reached"], 1, "{json}");
    fs::remove_dir_all(dir).unwrap();
}

/// A provider that can be asked, and a record for other teams: together they come to every point.
const EVERYWHERE: &str = r#"version: 1
connector: everywhere
source: { topics: [payouts] }
identity: { id: event.id, fingerprint: [event.id] }
profiles:
  bank:
    applies_within: 2m
    body: json
    lookup:
      url: "?reference={{ effect.key }}"
      done: response.json.payments.size() > 0
      not_found: response.json.payments.size() == 0
      answer: response.json.payments[0]
effects:
  - id: pay
    type: http
    profile: bank
    key: event.id
    request: { url: "https://nobody.example.com/payments", json: { reference: "{{ effect.key }}" } }
    on_unknown: reconcile
  - id: announce
    type: publish
    after: [pay]
    key: event.id
    message: { topic: paid, key: "{{ event.id }}", json: { id: "{{ event.id }}" } }
"#;

#[test]
fn every_point_is_crashed_with_every_effect_that_comes_there() {
    let dir = std::env::temp_dir().join(format!("oncely-prove-all-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let file = write(&dir, "everywhere.yaml", EVERYWHERE);
    let event = write(&dir, "event.json", r#"{"id":"p_1"}"#);
    let (code, json, errors) = prove(&[&file, "--event", &event]);
    assert_eq!(code, 0, "{errors}");
    let points = json["points"].as_array().unwrap();
    assert_eq!(json["safe"], points.len(), "{json}");
    for point in points {
        let effects = point["effects"].as_array().unwrap();
        assert!(!effects.is_empty() && effects.iter().all(|one| one["crashed"] == true), "{point}");
    }
    let of = |effect: &str| {
        let has = |point: &&Value| !end(&json, point["point"].as_str().unwrap(), effect).is_empty();
        points.iter().filter(has).count()
    };
    assert_eq!((of("pay"), of("announce")), (points.len() - 4, points.len() - 16), "{json}");
    fs::remove_dir_all(dir).unwrap();
}

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}
