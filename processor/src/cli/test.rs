//! `oncely test`: what a connector would do, on sample events, without doing it.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use oncely_connectors::file::{Check, Compiled, TestCase};
use oncely_core::connector::{EffectBody, Envelope};
use oncely_core::decide::EffectNew;
use oncely_core::effect::order::Turn;
use oncely_core::effect::request::Request;
use oncely_core::key::Key;
use serde_json::{Value, json};

use super::ahead::Ahead;
use super::answer::{Answer, counted, shown};
use super::context::Context;
use super::dry_run::{Decided, Outcome, Played, Sample, Step, play};
use super::effects::id;
use super::exit::{CliError, Exit};
use super::load::load;

/// Bytes of a sample event: more than a record of Kafka can have. A file may be a device, which never ends.
const SAMPLE_BYTES_MAX: u64 = 64 << 20;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Test {
    /// Connector files or directories [setting: ONCELY_CONNECTORS]
    paths: Vec<PathBuf>,
    /// Play this event instead of the file's tests; more of them are played in order
    #[arg(long, value_name = "FILE")]
    event: Vec<PathBuf>,
}

impl Test {
    pub(super) fn run(self, context: &Context) -> Result<Answer, CliError> {
        let compiled = load(context, &self.paths, Check::Offline)?.connectors()?;
        if self.event.is_empty() {
            return tests(&compiled);
        }
        let [one] = compiled.as_slice() else {
            return Err(CliError::Usage(format!(
                "--event is played on one connector, and there are {}: name its file",
                compiled.len()
            )));
        };
        let samples = self.event.iter().map(|path| sample(path)).collect::<Result<Vec<_>, _>>()?;
        Ok(played_answer(&play(&one.connector, &samples)))
    }
}

pub(super) fn sample(path: &Path) -> Result<Sample, CliError> {
    let unreadable = |source| CliError::Unreadable { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(unreadable)?;
    file.take(SAMPLE_BYTES_MAX.saturating_add(1)).read_to_end(&mut bytes).map_err(unreadable)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > SAMPLE_BYTES_MAX {
        return Err(CliError::Usage(format!(
            "{} is longer than any record ({} MiB): give a file with one event",
            path.display(),
            SAMPLE_BYTES_MAX >> 20
        )));
    }
    Ok(Sample { name: path.display().to_string(), bytes })
}

// --------------------------------------------------------------------------------------------- //

fn tests(compiled: &[Compiled]) -> Result<Answer, CliError> {
    let mut text = String::new();
    let mut results = Vec::new();
    let (mut passed, mut failed) = (0_usize, 0_usize);
    for one in compiled {
        for case in &one.tests {
            let paths = case.events.iter().map(|event| event.path.as_path());
            let samples = paths.map(sample).collect::<Result<Vec<_>, _>>()?;
            let wrong = differences(case, &play(&one.connector, &samples));
            let (file, line, name) = (&one.file, case.line, &case.name);
            if wrong.is_empty() {
                passed = passed.saturating_add(1);
                text.push_str(&format!("ok      {}: {name}\n", one.connector.name));
            } else {
                failed = failed.saturating_add(1);
                text.push_str(&format!("FAILED  {}: {name}\n", one.connector.name));
                text.push_str(&format!("  --> {file}:{line}\n"));
                wrong.iter().for_each(|wrong| text.push_str(&format!("      {wrong}\n")));
            }
            results.push(json!({
                "connector": *one.connector.name,
                "test": name,
                "file": file,
                "line": line,
                "ok": wrong.is_empty(),
                "differences": wrong,
            }));
        }
    }
    let count = counted(passed.saturating_add(failed), "test");
    if results.is_empty() {
        text.push_str("no connector has `tests:`; play one event with --event FILE\n");
    } else {
        text.push_str(&format!("{count}, {failed} failed; nothing was sent\n"));
    }
    let exit = if failed == 0 { Exit::Ok } else { Exit::Failed };
    Ok(Answer { exit, ..Answer::new(text, json!({ "tests": results, "failed": failed })) })
}

/// Where what happened is not what the test expects.
fn differences(case: &TestCase, played: &Played<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for ((number, step), expected) in (1..).zip(&played.steps).zip(&case.expect.outcomes) {
        let (got, expected) = (step.ending().as_str(), expected.as_str());
        if got != expected {
            let why = step.reason().map(|reason| format!(" ({reason})")).unwrap_or_default();
            let name = &step.name;
            wrong.push(format!("event {number} ({name}): expected {expected}, got {got}{why}"));
            wrong.extend(detail(step).map(|detail| format!("  {detail}")));
        }
    }
    if let Some(expected) = &case.expect.state {
        let got = played.state().unwrap_or("none");
        if got != &**expected {
            wrong.push(format!("state: expected {expected}, got {got}"));
        }
    }
    for (effect, expected) in &case.expect.effects {
        let got = played.owed(effect);
        if u32::try_from(got) != Ok(*expected) {
            wrong.push(format!("effect {effect}: expected {expected}, got {got}"));
        }
    }
    wrong
}

fn detail(step: &Step) -> Option<&str> {
    match &step.outcome {
        Outcome::Unusable { detail, .. } => Some(detail),
        Outcome::NotMatched => None,
        Outcome::Decided(decided) => decided.detail.as_deref(),
    }
}

// --------------------------------------------------------------------------------------------- //

fn played_answer(played: &Played<'_>) -> Answer {
    let mut text = String::new();
    for step in &played.steps {
        text.push_str(&step_text(played, step));
        text.push('\n');
    }
    text.push_str("nothing was sent\n");
    let steps = played.steps.iter().map(|step| step_json(played, step));
    Answer::new(text, json!({ "events": steps.collect::<Vec<_>>(), "sent": 0 }))
}

fn line(name: &str, rest: &str) -> String {
    format!("{name:<9}  {rest}").trim_end().to_owned() + "\n"
}

fn step_text(played: &Played<'_>, step: &Step) -> String {
    let mut text = line("event", &step.name);
    let envelope = match played.connector.decode.envelope {
        Envelope::None => "json",
        Envelope::CloudEvents => "cloudevents",
    };
    let read = format!("ok  {envelope} {} B", step.bytes);
    match &step.outcome {
        Outcome::Unusable { stage: "decode", reason, detail } => {
            text.push_str(&line("decode", &format!("{reason}: {}", shown(detail))));
        }
        Outcome::Unusable { stage, reason, detail } => {
            text.push_str(&line("decode", &read));
            text.push_str(&line(stage, &format!("{reason}: {}", shown(detail))));
        }
        Outcome::NotMatched => {
            text.push_str(&line("decode", &read));
            text.push_str(&line("match", "not true"));
        }
        Outcome::Decided(decided) => {
            text.push_str(&line("decode", &read));
            text.push_str(&decided_text(played, decided));
        }
    }
    let reason = step.reason().map(|reason| format!(" ({reason})")).unwrap_or_default();
    text.push_str(&line("outcome", &format!("{}{reason}", step.ending().as_str())));
    text
}

fn decided_text(played: &Played<'_>, decided: &Decided) -> String {
    let Decided { event, decision, detail, .. } = decided;
    let fingerprint = event.fingerprint.0.to_string();
    let fingerprint = fingerprint.get(..8).unwrap_or(&fingerprint);
    let name = shown(&id(&event.tenant, &event.id));
    let mut text = line("identity", &format!("{name}  (fingerprint {fingerprint}…)"));
    if let (Some(rules), Some(entity)) = (&played.connector.state, &event.entity) {
        let moved = decision.moved.as_ref().map(|moved| format!("{} → {}", moved.from, moved.to));
        let moved = moved.unwrap_or_else(|| "unchanged".to_owned());
        let (kind, id, version) = (&rules.entity, shown(&entity.id), entity.version);
        text.push_str(&line("state", &format!("{kind} {id}   {moved}  (version {version})")));
    }
    if let Some(detail) = detail {
        text.push_str(&line("because", &shown(detail)));
    }
    for (number, (key, effect)) in (1..).zip(played.effects(decided)) {
        text.push_str(&effect_text(played, number, key, effect));
    }
    for (number, entry) in (1..).zip(played.ledger(decided)) {
        let name = played.rule(entry.rule);
        let (quantity, metric, account) = (&entry.quantity, &entry.metric, &entry.account);
        let what = format!("{name}  {quantity} {} for {}", shown(metric), shown(account));
        text.push_str(&line(&format!("ledger {number}"), &what));
    }
    text
}

/// A request in one line, and its body.
fn request_text(request: &Request) -> (String, Option<&str>) {
    match request {
        Request::Http(request) => {
            (format!("{} {}", request.method, request.url), request.body.as_deref())
        }
        Request::Email(request) => {
            let body = request.text.as_deref().or(request.html.as_deref());
            (format!("email to {} {:?}", request.to, request.subject), body)
        }
        Request::Record(record) => {
            let key = record.key.as_deref();
            let key = key.map_or_else(|| "no key".to_owned(), |key| format!("key {key}"));
            (format!("record to {} with {key}", record.topic), record.value.as_deref())
        }
    }
}

fn effect_text(played: &Played<'_>, number: usize, key: Key, effect: &EffectNew) -> String {
    let request = effect.request.as_deref().and_then(|bytes| Request::from_bytes(bytes).ok());
    let ahead = played.ahead.get(&key);
    let late = ahead.and_then(|ahead| ahead.request.as_ref());
    let (what, body) = match (&request, late) {
        (Some(request), _) | (None, Some(Ok(request))) => request_text(request),
        (None, _) if is_line(played, effect) => {
            ("a ledger line that is made from earlier results".to_owned(), None)
        }
        (None, _) => ("a request that is made from earlier results".to_owned(), None),
    };
    let does = if is_line(played, effect) { "write" } else { "send" };
    let when = match effect.turn {
        Turn::Ready => format!("would {does}"),
        Turn::Skip => "would be skipped".to_owned(),
        Turn::Hold(_) => "would be held".to_owned(),
        Turn::Blocked => {
            let after = after_names(played, effect);
            if after.is_empty() {
                format!("would {does} after the effects of earlier versions")
            } else {
                format!("would {does} after {}", after.join(", "))
            }
        }
    };
    let (name, key) = (played.rule(effect.rule), key.wire());
    let what = format!("{name}  {}   key {key}   {when}", shown(&what));
    let mut text = line(&format!("effect {number}"), &what);
    for part in body.iter().flat_map(|body| body.lines()) {
        text.push_str(&line("", &shown(part)));
    }
    text.push_str(&ahead.map(|ahead| ahead_text(ahead, request.is_none())).unwrap_or_default());
    text
}

/// What of an effect is rendered later, and by what.
fn ahead_text(ahead: &Ahead, is_late: bool) -> String {
    let mut text = String::new();
    if is_late && !ahead.reads.is_empty() {
        let reads = ahead.reads.join(", ");
        text.push_str(&line("  late", &format!("rendered when these results are there: {reads}")));
        if let Some(Err(why)) = &ahead.request {
            text.push_str(&line("", &format!("it cannot be shown without them: {}", shown(why))));
        }
    }
    match &ahead.lookup {
        None => {}
        Some(Ok(request)) => {
            let (what, body) = request_text(request);
            let what = format!("{}   asked when its outcome is unknown", shown(&what));
            text.push_str(&line("  look-up", &what));
            for part in body.iter().flat_map(|body| body.lines()) {
                text.push_str(&line("", &shown(part)));
            }
        }
        Some(Err(why)) => {
            let why = format!("cannot be rendered for this event: {}", shown(why));
            text.push_str(&line("  look-up", &why));
        }
    }
    text
}

/// A request that is rendered later: with the names of results in place of them, or why not.
fn made_json(made: &Result<Request, String>) -> Value {
    match made {
        Ok(request) => json!({ "request": serde_json::to_value(request).unwrap_or_default() }),
        Err(why) => json!({ "why_not": why }),
    }
}

fn late_json(ahead: &Ahead) -> Value {
    let Some(made) = &ahead.request else { return Value::Null };
    json!({ "reads": ahead.reads, "made": made_json(made) })
}

fn is_line(played: &Played<'_>, effect: &EffectNew) -> bool {
    let rule = played.connector.effects.get(effect.rule);
    rule.is_some_and(|rule| matches!(rule.body, EffectBody::Ledger(_)))
}

fn after_names<'a>(played: &'a Played<'_>, effect: &EffectNew) -> Vec<&'a str> {
    let earlier = effect.after.iter().filter_map(|key| played.plan.effects.get(key));
    earlier.map(|effect| played.rule(effect.rule)).collect()
}

fn step_json(played: &Played<'_>, step: &Step) -> Value {
    let mut json = json!({
        "event": step.name,
        "bytes": step.bytes,
        "outcome": step.ending().as_str(),
        "reason": step.reason(),
        "detail": detail(step),
    });
    let (Outcome::Decided(decided), Some(members)) = (&step.outcome, json.as_object_mut()) else {
        return json;
    };
    let event = &decided.event;
    let moved = decided.decision.moved.as_ref();
    let state = event.entity.as_ref().map(|entity| {
        json!({
            "id": *entity.id,
            "version": entity.version,
            "from": moved.map(|moved| &*moved.from),
            "to": moved.map(|moved| &*moved.to),
        })
    });
    let effects = played.effects(decided).into_iter().map(|(key, effect)| {
        let request =
            effect.request.as_deref().and_then(|bytes| serde_json::from_slice(bytes).ok());
        json!({
            "effect": played.rule(effect.rule),
            "key": key.wire(),
            "after": after_names(played, effect),
            "request": request.unwrap_or(Value::Null),
            "late": played.ahead.get(&key).map(late_json),
            "lookup": played.ahead.get(&key).and_then(|ahead| ahead.lookup.as_ref()).map(made_json),
        })
    });
    let ledger = played.ledger(decided).into_iter().map(|entry| {
        json!({
            "effect": played.rule(entry.rule),
            "account": *entry.account,
            "metric": *entry.metric,
            "quantity": *entry.quantity,
        })
    });
    members.insert("tenant".to_owned(), json!(*event.tenant));
    members.insert("business_id".to_owned(), json!(*event.id));
    members.insert("key".to_owned(), json!(event.key.to_string()));
    members.insert("fingerprint".to_owned(), json!(event.fingerprint.0.to_string()));
    members.insert("state".to_owned(), json!(state));
    members.insert("effects".to_owned(), effects.collect());
    members.insert("ledger".to_owned(), ledger.collect());
    json
}
