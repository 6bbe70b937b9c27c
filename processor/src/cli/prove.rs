//! `oncely prove`: a crash at every point, with the connector's own rules, against a provider that this
//! program plays.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use oncely_connectors::file::{Check, Compiled};
use oncely_core::connector::{Connector, EffectBody};
use serde_json::{Value, json};

use super::answer::{Answer, counted, shown, table};
use super::context::Context;
use super::dry_run::{Sample, play};
use super::exit::{CliError, Exit};
use super::load::load;
use super::print;
use super::test::sample;
use crate::crash::{Order, Point};
use crate::prove::{self, Class, Fate, Options, Owed, ProveError, Window};

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Prove {
    /// A connector file [setting: ONCELY_CONNECTORS]
    paths: Vec<PathBuf>,
    /// Publish this event instead of those of all the file's tests; more of them are published in order
    #[arg(long, value_name = "FILE")]
    event: Vec<PathBuf>,
    /// Crash at this point only; may be repeated
    #[arg(long, value_name = "NAME", value_parser = point)]
    point: Vec<Point>,
}

fn point(text: &str) -> Result<Point, String> {
    Order::from_str(text).map(|order| order.point).map_err(|error| error.to_string())
}

impl Prove {
    pub(super) fn run(self, context: &Context) -> Result<Answer, CliError> {
        let files = super::load::files(context, &self.paths)?;
        let [file] = files.as_slice() else {
            let many = format!("one connector is proven at a time, and there are {}", files.len());
            return Err(CliError::Usage(format!("{many}: name its file")));
        };
        let mut compiled = load(context, &self.paths, Check::Offline)?.connectors()?;
        let Some(one) = compiled.pop() else {
            return Err(CliError::Usage("the file holds no connector".to_owned()));
        };
        let Samples { samples, tests } = self.samples(&one)?;
        let owed = owed(&one.connector, &samples)?;
        let events: Vec<String> = samples.iter().map(|sample| sample.name.clone()).collect();
        let options = Options {
            file: file.canonicalize().unwrap_or_else(|_| file.clone()),
            samples: samples.into_iter().map(|sample| sample.bytes).collect(),
            owed: owed.clone(),
            points: self.point,
            program: std::env::current_exe().map_err(|source| CliError::Start { source })?,
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|source| CliError::Start { source })?;
        let connector = Arc::new(one.connector);
        let progress = |done: usize, all: usize| {
            if done.checked_rem(8) == Some(0) || done == all {
                print::note(&format!("{done} of {} played", counted(all, "crash point")));
            }
        };
        let local = tokio::task::LocalSet::new();
        let proof = local.run_until(prove::run(&connector, &options, &progress));
        let windows = runtime.block_on(proof);
        drop(local);
        // What is left hangs at the provider on purpose.
        runtime.shutdown_background();
        let windows = windows.map_err(|source| CliError::Prove { source: Box::new(source) })?;
        let owed = owed.iter().map(|owed| owed.rule).collect();
        Ok(answer(&connector, &Played { events, tests, owed }, &windows))
    }

    /// What was named, else the events of all tests in their order, each content once: all of them are
    /// published twice anyway.
    fn samples(&self, one: &Compiled) -> Result<Samples, CliError> {
        if !self.event.is_empty() {
            let samples = self.event.iter().map(|path| sample(path)).collect::<Result<_, _>>()?;
            return Ok(Samples { samples, tests: Vec::new() });
        }
        let (mut samples, mut tests) = (Vec::<Sample>::new(), Vec::new());
        for case in &one.tests {
            for event in &case.events {
                let sample = sample(&event.path)?;
                if samples.iter().all(|known| known.bytes != sample.bytes) {
                    samples.push(sample);
                }
            }
            tests.push(case.name.to_string());
        }
        if samples.is_empty() {
            let text = "the file has no `tests:` with events; publish some with --event FILE";
            return Err(CliError::Usage(text.to_owned()));
        }
        Ok(Samples { samples, tests })
    }
}

/// What is published, and the tests that it is from.
struct Samples {
    samples: Vec<Sample>,
    tests: Vec<String>,
}

/// The same, by name, and the rules that are owed anything by it.
struct Played {
    events: Vec<String>,
    tests: Vec<String>,
    owed: BTreeSet<usize>,
}

/// What the samples owe, each with the first sample that owes it.
fn owed(connector: &Connector, samples: &[Sample]) -> Result<Vec<Owed>, CliError> {
    let mut owed = BTreeMap::new();
    for (sample, _) in samples.iter().enumerate() {
        let before = samples.get(..=sample).unwrap_or(samples);
        let plan = play(connector, before).plan;
        let effects = plan.effects.iter().map(|(key, effect)| (*key, effect.rule));
        let lines = plan.ledger.iter().map(|(key, line)| (*key, line.rule));
        for (key, rule) in effects.chain(lines) {
            if let Entry::Vacant(new) = owed.entry(key) {
                new.insert(Owed { key, rule, sample });
            }
        }
    }
    let owed: Vec<Owed> = owed.into_values().collect();
    if owed.is_empty() {
        let text = "the sample events owe no effect, so there is nothing to prove: choose others \
                    with --event FILE";
        return Err(CliError::Usage(text.to_owned()));
    }
    Ok(owed)
}

// --------------------------------------------------------------------------------------------- //

/// How often each end came about.
#[derive(Default)]
struct Count {
    safe: usize,
    held: usize,
    given_up: usize,
    risks: usize,
    not_crashed: usize,
    not_reached: usize,
}

impl Count {
    fn of(windows: &[Window]) -> Self {
        let mut count = Self::default();
        for window in windows {
            let worst = window.verdicts.iter().map(|verdict| &verdict.fate).max();
            let counter = match worst {
                None if !window.reached => &mut count.not_reached,
                Some(Fate::NotCrashed) => &mut count.not_crashed,
                None | Some(Fate::Safe | Fate::Behind) => &mut count.safe,
                Some(Fate::GivenUp) => &mut count.given_up,
                Some(Fate::Held) => &mut count.held,
                Some(Fate::Risk(_)) => &mut count.risks,
            };
            *counter = counter.saturating_add(1);
        }
        count
    }
}

fn answer(connector: &Connector, played: &Played, windows: &[Window]) -> Answer {
    let count = Count::of(windows);
    let of_tests = match played.tests.len() {
        0 => String::new(),
        tests => format!(" of the file's {}", counted(tests, "test")),
    };
    let mut text = format!(
        "\n{}: {}{of_tests}, published twice; in each line processes die there, in every effect's own call, \
         claim or settlement,\nand others take over: {} crashes in all\n",
        connector.name,
        counted(played.events.len(), "sample event"),
        windows.iter().map(|window| window.crashes).sum::<usize>(),
    );
    played.events.iter().for_each(|event| text.push_str(&format!("  {}\n", shown(event))));
    text.push('\n');
    text.push_str(&classes(connector));
    text.push_str(&windows_table(connector, played, windows));
    let legend = legend(windows);
    text.push('\n');
    legend.iter().for_each(|(name, what)| text.push_str(&format!("  {name:<3}  {what}\n")));
    text.push_str(&words(connector, windows, &count));
    let json = json!({
        "connector": *connector.name,
        "events": played.events,
        "tests": played.tests,
        "windows": legend.iter().copied().collect::<BTreeMap<_, _>>(),
        "points": windows.iter().map(window_json).collect::<Vec<_>>(),
        "safe": count.safe,
        "held": count.held,
        "given_up": count.given_up,
        "risks": count.risks,
        "not_crashed": count.not_crashed,
        "not_reached": count.not_reached,
    });
    let exit = if count.risks == 0 { Exit::Ok } else { Exit::Failed };
    Answer { exit, ..Answer::new(text, json) }
}

/// What the file says of each effect whose outcome is not known.
fn classes(connector: &Connector) -> String {
    let mut text = String::new();
    let width = connector.effects.iter().map(|rule| rule.id.len()).max().unwrap_or(0);
    for rule in &connector.effects {
        let said = match &rule.body {
            EffectBody::Ledger(line) if line.waits => {
                "a row in the transaction that finds done what it comes after: once, or not at all"
            }
            EffectBody::Ledger(_) => {
                "a row in the batch transaction: once with the event, or not at all"
            }
            EffectBody::Publish(_) => {
                "a record by way of the outbox: what is sent again has the same message id"
            }
            EffectBody::Call(call) => match Class::of(call) {
                Class::Keyed => {
                    "class A: the provider keeps our key, and the same bytes are sent again"
                }
                Class::Asked => {
                    "class B: the provider is asked, and \"not found\" is believed late"
                }
                Class::Neither => "class C: nobody can be asked; it is held for a person",
                Class::Assumed => "class C: nobody can be asked; the file says to count it as done",
            },
        };
        text.push_str(&format!("  {:<width$}  {said}\n", rule.id));
    }
    text.push('\n');
    text
}

fn windows_table(connector: &Connector, played: &Played, windows: &[Window]) -> String {
    let shown: Vec<&str> = connector.effects.iter().map(|rule| &*rule.id).collect();
    let mut header = vec!["crash", "windows"];
    header.extend(&shown);
    let rows = windows.iter().map(|window| {
        let mut row = vec![window.point.to_string(), window.point.step.windows().to_owned()];
        for (number, id) in shown.iter().enumerate() {
            let verdict = window.verdicts.iter().find(|verdict| *verdict.effect == **id);
            row.push(match verdict.map(|verdict| &verdict.fate) {
                None if !played.owed.contains(&number) => NOT_OWED.to_owned(),
                None => NO_STEP.to_owned(),
                Some(fate) => fate_word(fate).to_owned(),
            });
        }
        row
    });
    table(&header, rows.collect())
}

/// What the names of windows mean, of those that the points shown fall into.
fn legend(windows: &[Window]) -> Vec<(&'static str, &'static str)> {
    let named: BTreeSet<&str> =
        windows.iter().flat_map(|window| window.point.step.windows().split(' ')).collect();
    WINDOWS.iter().filter(|(name, _)| named.contains(name)).copied().collect()
}

/// Where a process can die between a record and its committed offset.
const WINDOWS: [(&str, &str); 12] = [
    ("W1", "records were read, and nothing was written"),
    ("W2", "the COMMIT of a claim was sent, and its answer lost"),
    ("W3", "an effect was claimed, and nothing sent"),
    ("W4", "a request was cut after some bytes"),
    ("W5", "the provider has applied it, and its answer is lost"),
    ("W6", "the answer is in memory, and not stored"),
    ("W7", "the answer to the COMMIT of an outcome is lost"),
    ("W8", "the outcome is stored, and the position is not"),
    ("W9", "the position is stored, and Kafka's offset is not"),
    ("W12", "a record was published, and the mark of it lost"),
    ("W15", "a clean stop with calls in flight, cut short"),
    ("W20", "half of a batch is claimed"),
];

/// What the table says of an effect that has no such step, and of one that no sample event owes.
const NO_STEP: &str = "-";
const NOT_OWED: &str = "not owed";

const fn fate_word(fate: &Fate) -> &'static str {
    match fate {
        Fate::Safe => "safe",
        Fate::NotCrashed => "not crashed here",
        Fate::Behind => "behind it",
        Fate::GivenUp => "given up",
        Fate::Held => "held",
        Fate::Risk(_) => "RISK",
    }
}

/// What the table means for whoever runs this connector.
fn words(connector: &Connector, windows: &[Window], count: &Count) -> String {
    let Count { safe, held, given_up, risks, not_crashed, not_reached } = count;
    let mut text = format!("\n{safe} safe, {held} held, {given_up} given up, {risks} at risk");
    if *not_crashed > 0 {
        text.push_str(&format!(", {not_crashed} where not every effect was crashed"));
    }
    if *not_reached > 0 {
        text.push_str(&format!(", {not_reached} that this connector does not come to"));
    }
    text.push_str("\n\n");
    for id in connector.effects.iter().map(|rule| &*rule.id) {
        let mut risky: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        let (mut open, mut given_up, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
        for window in windows {
            for verdict in window.verdicts.iter().filter(|verdict| *verdict.effect == *id) {
                match &verdict.fate {
                    Fate::Risk(why) => {
                        let points = risky.entry(why).or_default();
                        points.insert(window.point.to_string());
                    }
                    Fate::Held => open.push(format!(
                        "{} (on record: {})",
                        window.point,
                        window.point.step.on_record(window.point.side)
                    )),
                    Fate::GivenUp => given_up.push(window.point.to_string()),
                    Fate::NotCrashed => unknown.push(window.point.to_string()),
                    Fate::Safe | Fate::Behind => {}
                }
            }
        }
        for (why, points) in risky {
            let points = points.into_iter().collect::<Vec<_>>().join(", ");
            text.push_str(&format!("RISK  {id} {why}, after a crash at {points}\n"));
        }
        if !open.is_empty() {
            text.push_str(&format!(
                "held  {id}: it took place at most once, and a person is asked, after a crash at\n      {}\n",
                open.join("\n      ")
            ));
        }
        if !unknown.is_empty() {
            text.push_str(&format!(
                "not crashed here  {id}: nothing is known of it at {}\n",
                unknown.join(", ")
            ));
        }
        text.push_str(&will_not_happen(id, &given_up, windows));
    }
    text.push_str(&ends(windows));
    text.push_str(
        "\
         What this cannot show: whether your provider keeps keys, or can be asked, as the file says. \
         Times were shortened,\nvalues recorded of answers are made up, and nobody but this program was called.\n",
    );
    text
}

/// What is said of an effect that was given up. Where it is so at every point, no crash is the reason.
fn will_not_happen(id: &str, given_up: &[String], windows: &[Window]) -> String {
    if given_up.is_empty() {
        return String::new();
    }
    let reached = windows.iter().filter(|window| window.reached).count();
    let (at, look) = if given_up.len() == reached {
        (
            "at every point, so no crash is the reason".to_owned(),
            "its request cannot be made, or is refused: ",
        )
    } else {
        (format!("after a crash at\n          {}", given_up.join("\n          ")), "")
    };
    format!(
        "given up  {id}: it has not taken place and will not, {at}\n          {look}see it with `oncely test`\n"
    )
}

/// What the words of the table mean, of those that stand in it.
fn ends(windows: &[Window]) -> String {
    let of_all = windows.iter().flat_map(|window| &window.verdicts);
    let found: BTreeSet<&str> = of_all.map(|verdict| fate_word(&verdict.fate)).collect();
    let words = ENDS.iter().filter(|(word, _)| found.contains(word));
    let lines: String = words.map(|(word, what)| format!("{word}: {what}\n")).collect();
    format!("\n{lines}{NO_STEP}: an effect of its type has no such step\n")
}

/// How an effect can end, from well to badly. A line of the table counts by the worst in it.
const ENDS: [(&str, &str); 6] = [
    (
        "safe",
        "a process died there with this very effect in its hands; it took place once, and Kafka's second \
         delivery changed nothing",
    ),
    ("not crashed here", "it comes there, and no process died there with it: nothing is known"),
    (
        "behind it",
        "it waits behind an effect that is held, or was skipped with one that was given up",
    ),
    ("held", "it took place at most once, and a person is asked"),
    (
        "given up",
        "it was rejected without having taken place: a dead letter, which `oncely dlq redrive` tries again",
    ),
    ("RISK", "it may take place twice, or never, or be forgotten"),
];

fn window_json(window: &Window) -> Value {
    let Point { step, side } = window.point;
    let effects = window.verdicts.iter().map(|verdict| {
        let why = match &verdict.fate {
            Fate::Risk(why) => Some(why),
            Fate::Safe | Fate::NotCrashed | Fate::Behind | Fate::GivenUp | Fate::Held => None,
        };
        json!({
            "effect": *verdict.effect,
            "crashed": verdict.crashed,
            "end": fate_word(&verdict.fate),
            "why": why,
        })
    });
    json!({
        "point": window.point.to_string(),
        "windows": step.windows(),
        "on_record": step.on_record(side),
        "reached": window.reached,
        "crashes": window.crashes,
        "effects": effects.collect::<Vec<_>>(),
    })
}

/// Whether somebody has to put something in place first.
pub(super) const fn needs_programs(error: &ProveError) -> bool {
    matches!(error, ProveError::NoPostgres { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash;

    #[test]
    fn what_is_given_up_is_counted_and_explained() {
        let verdict =
            |effect: &str, fate| prove::Verdict { effect: effect.into(), crashed: true, fate };
        let windows: Vec<Window> = crash::points()
            .take(2)
            .map(|point| Window {
                point,
                reached: true,
                crashes: 2,
                verdicts: vec![verdict("settle", Fate::Held), verdict("receipt", Fate::GivenUp)],
            })
            .collect();
        let count = Count::of(&windows);
        assert_eq!((count.given_up, count.held), (2, 0), "what will not happen is the worse");
        let text = will_not_happen("receipt", &["a".to_owned(), "b".to_owned()], &windows);
        assert!(text.contains("at every point, so no crash is the reason"), "{text}");
        let text = will_not_happen("receipt", &["a".to_owned()], &windows);
        assert!(text.contains("after a crash at\n          a\n"), "{text}");
        let text = ends(&windows);
        assert!(text.contains("\ngiven up: it was rejected") && !text.contains("safe:"), "{text}");
        for fate in [
            Fate::Safe,
            Fate::NotCrashed,
            Fate::Behind,
            Fate::Held,
            Fate::GivenUp,
            Fate::Risk(String::new()),
        ] {
            assert!(ENDS.iter().any(|(word, _)| *word == fate_word(&fate)));
        }
    }

    #[test]
    fn every_window_of_a_point_is_explained() {
        let windows: Vec<Window> = crash::points()
            .map(|point| Window { point, reached: true, crashes: 1, verdicts: Vec::new() })
            .collect();
        let explained = legend(&windows);
        assert_eq!(explained.len(), WINDOWS.len(), "each is of some point");
        for window in &windows {
            for name in window.point.step.windows().split(' ') {
                assert!(explained.iter().any(|(known, _)| *known == name), "{name}");
            }
        }
    }
}
