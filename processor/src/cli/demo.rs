//! `oncely demo`: the demo on the screen.

use std::cell::Cell;
use std::time::Duration;

use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::answer::Answer;
use super::bar::Bar;
use super::context::Context;
use super::exit::{CliError, Exit};
use super::print;
use crate::clock::{self, Moment as Instant};
use crate::demo::{
    self, DemoError, Finished, Happening, LeftBehind, Moment, Options, Report, Show, Tally,
};

/// Between two lines about progress where there is no bar.
const LINE_EVERY: Duration = Duration::from_secs(3);

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Demo {
    /// Real Kafka to run on; a topic and a group are made there, and removed at the end
    #[arg(long, value_name = "HOST:PORT")]
    kafka: Option<String>,
    /// Publish the same events as a run before; on the demo's own database, the provider also fails
    /// the same attempts (which of them a kill meets is up to the machine)
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Leave everything up at the end, to look around with the other commands, until Ctrl-C
    #[arg(long)]
    keep: bool,
}

impl Demo {
    pub(super) fn run(self, context: &Context) -> Result<Answer, CliError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|source| CliError::Start { source })?;
        let answer = runtime.block_on(self.shown(context));
        // What is left hangs at the provider on purpose.
        runtime.shutdown_background();
        answer
    }

    async fn shown(self, context: &Context) -> Result<Answer, CliError> {
        let failed = |source| CliError::Demo { source: Box::new(source) };
        let program = std::env::current_exe();
        let options = Options {
            seed: self.seed.unwrap_or_else(|| u64::from(rand::random::<u32>())),
            kafka: self.kafka.or_else(|| context.named_brokers.clone()),
            database: context.named_database.clone(),
            environment: context.environment.clone(),
            program: program.map_err(|source| failed(DemoError::OwnPath { source }))?,
        };
        let screen = Screen::new();
        let shown = tokio::select! {
            shown = demo::run(&options, &screen) => shown,
            () = told_to_stop() => Err(DemoError::Interrupted),
        };
        screen.bar.clear();
        let finished = shown.map_err(failed)?;
        for line in finished.report.wrong_lines() {
            print::note(&format!("wrong: {line}"));
        }
        let mut answer = answer(&finished.report, options.seed);
        if self.keep {
            print::answer(context.output, &answer);
            print::note(&left_up(&finished));
            told_to_stop().await;
        }
        let left = finished.left_behind();
        if let Err(error) = finished.leave().await {
            print::note(&format!("not everything could be taken away: {}", print::chain(&error)));
            answer.exit = Exit::Failed;
        }
        let Some(left) = left else {
            return Ok(if self.keep { Answer::said(answer.exit) } else { answer });
        };
        // The last word, below the table.
        if !self.keep {
            print::answer(context.output, &answer);
        }
        print::note(&left_text(&left));
        Ok(Answer::said(answer.exit))
    }
}

/// SIGINT or SIGTERM.
async fn told_to_stop() {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

// --------------------------------------------------------------------------------------------- //

fn answer(report: &Report, seed: u64) -> Answer {
    let json = json!({
        "events": report.events,
        "events_owing_nothing": report.owing_nothing,
        "records": report.records,
        "repeats_absorbed": report.repeats_absorbed,
        "stale_ignored": report.stale_ignored,
        "effects_owed": report.owed,
        "effects": report.done,
        "held": report.held,
        "duplicates_at_provider": report.duplicates,
        "lost": report.lost,
        "kills": report.kills,
        "in_flight_at_kills": report.in_flight_at_kills,
        "answers_lost": report.answers_lost,
        "errors_answered": report.errors,
        "seconds": (report.seconds * 10.0).round() / 10.0,
        "seed": seed,
        "right": report.is_right(),
        "wrong": report.wrong,
    });
    let exit = if report.is_right() { Exit::Ok } else { Exit::Failed };
    Answer { exit, ..Answer::new(table(report, seed), json) }
}

fn table(report: &Report, seed: u64) -> String {
    let again = report.records.saturating_sub(report.events);
    let invoices = report.owed.checked_div(2).unwrap_or(0);
    let rows = [
        ("events", report.events, format!("{again} of them published twice, at new offsets")),
        ("  invoice paid", invoices, "owes a charge and a receipt".to_owned()),
        ("  invoice created", report.owing_nothing, "changes the state, owes nothing".to_owned()),
        ("  stale", report.stale_ignored, "created, read after paid: ignored".to_owned()),
        ("repeats absorbed", report.repeats_absorbed, "published again, run once".to_owned()),
        ("effects owed", report.owed, String::new()),
        ("  done", report.done, "counted in the provider's own log".to_owned()),
        ("  held", report.held, "for a person to decide".to_owned()),
        ("  lost", report.lost, String::new()),
        ("duplicates at the provider", report.duplicates, String::new()),
        (
            "workers killed",
            report.kills,
            format!("kill -9, with {} in flight", counted(&report.in_flight_at_kills, "effect")),
        ),
        ("answers lost", report.answers_lost, "after the provider had acted".to_owned()),
        ("errors answered", report.errors, "500, 502, 503, 429".to_owned()),
    ];
    let mut text = String::from("\n");
    for (name, number, note) in rows {
        let line = format!("{name:<27} {:>7}   {note}", thousands(number));
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let verdict = if report.is_right() { "every number is right" } else { "NOT RIGHT" };
    text.push_str(&format!("\n{verdict}, after {:.1} s (seed {seed})\n", report.seconds));
    text
}

fn counted(number: &u64, one: &str) -> String {
    super::answer::counted(usize::try_from(*number).unwrap_or(usize::MAX), one)
}

/// `1,200`.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len().saturating_add(2));
    for (place, digit) in digits.chars().enumerate() {
        let left = digits.len().saturating_sub(place);
        if place > 0 && left.checked_rem(3) == Some(0) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What the other commands need to find everything.
const EXPORTED: [&str; 4] =
    ["ONCELY_DATABASE_URL", "ONCELY_KAFKA_BROKERS", "ONCELY_CONNECTORS", "ONCELY_SECRETS_DIR"];

fn left_up(finished: &Finished) -> String {
    let mut text = String::from("\neverything is left up; in another terminal:\n\n");
    for (name, value) in finished.settings() {
        if EXPORTED.contains(&name) {
            text.push_str(&format!("  export {name}='{value}'\n"));
        }
    }
    let connector = finished.connector();
    text.push_str(&format!("  oncely explain in_0300:invoice.paid --connector {connector}\n"));
    text.push_str(&format!("  oncely effects list --connector {connector} --limit 10\n"));
    text.push_str("  oncely progress list\n");
    for (worker, http) in finished.served() {
        text.push_str(&format!(
            "  curl -s http://{http}/metrics    # {worker}; and /healthz/ready\n"
        ));
    }
    text.push('\n');
    text.push_str(&format!("connector file and logs: {}\n", finished.dir().display()));
    text.push_str("Ctrl-C ends it and takes everything away");
    text
}

/// What stays where the demo was a guest.
fn left_text(left: &LeftBehind) -> String {
    let LeftBehind { database, connector, schema_made } = left;
    let made = if *schema_made { "the schema `oncely`, made by this run, and " } else { "" };
    format!(
        "\nleft in {database}: {made}the rows of connector `{connector}`;\nlook at them with the other \
         commands; none removes them, so drop the database if it was made for this"
    )
}

// --------------------------------------------------------------------------------------------- //

/// A bar and lines above it on a terminal; lines alone elsewhere.
struct Screen {
    bar: Bar,
    began: Instant,
    said: Cell<Instant>,
}

impl Screen {
    fn new() -> Self {
        Self { bar: Bar::of(1, "effects"), began: clock::now(), said: Cell::new(clock::now()) }
    }

    fn line(&self, text: &str) {
        let text = format!("{:>5.1}s  {text}", clock::since(self.began).as_secs_f64());
        self.bar.beside(|| print::note(&text));
    }
}

impl Show for Screen {
    fn happened(&self, happening: &Happening) {
        self.line(&told(happening));
    }

    fn progress(&self, tally: &Tally) {
        let text = format!(
            "{} of {} records published, {} lost, {} killed",
            tally.published,
            tally.records,
            counted(&tally.answers_lost, "answer"),
            counted(&tally.kills, "worker")
        );
        if self.bar.is_shown() {
            self.bar.length(tally.owed);
            self.bar.at(tally.effects);
            self.bar.says(text);
        } else if clock::since(self.said.get()) >= LINE_EVERY {
            self.said.set(clock::now());
            self.line(&format!("{} of {} effects; {text}", tally.effects, tally.owed));
        }
    }
}

fn told(happening: &Happening) -> String {
    match happening {
        Happening::Ready { database, brokers, provider, seed } => {
            format!("{database}, kafka at {brokers}, provider at {provider}, seed {seed}")
        }
        Happening::Started { workers } => format!("{} started", workers.join(" and ")),
        Happening::Killed { worker, in_flight, moment, instead } => {
            let moment = match moment {
                Moment::BeforeAnswer => "the provider had acted and not answered yet",
                Moment::BeforeEffect => "the provider had read the requests and not acted yet",
            };
            let in_flight = counted(in_flight, "effect");
            format!("kill -9 {worker}, {in_flight} in flight: {moment}; {instead} starts")
        }
        Happening::TakenOver { worker, after, effects } => format!(
            "{worker} was found dead, {} taken over {:.1} s after the kill",
            counted(effects, "effect"),
            after.as_secs_f64()
        ),
        Happening::ProviderDown { for_about } => {
            format!("the provider goes down for {} ms and cuts every call", for_about.as_millis())
        }
        Happening::ProviderUp => "the provider is back".to_owned(),
        Happening::Published { records } => format!("all {records} records are published"),
        Happening::Finished => "every effect is done, every record finished".to_owned(),
        Happening::GivenUp { after } => {
            format!("not everything is finished after {:.0} s, counting now", after.as_secs_f64())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(wrong: &[&str]) -> Report {
        Report {
            events: 1_000,
            records: 1_300,
            owing_nothing: 300,
            owed: 1_200,
            done: 1_200,
            held: 0,
            repeats_absorbed: 300,
            stale_ignored: 100,
            duplicates: 0,
            lost: 0,
            kills: 2,
            in_flight_at_kills: 17,
            answers_lost: 81,
            errors: 93,
            recognised: 60,
            seconds: 21.44,
            wrong: wrong.iter().map(|text| (*text).to_owned()).collect(),
        }
    }

    #[test]
    fn the_closing_table_is_what_people_read() {
        insta::assert_snapshot!(answer(&report(&[]), 7).text);
    }

    #[test]
    fn a_wrong_number_is_a_failure_in_text_and_exit_code() {
        assert_eq!(answer(&report(&[]), 7).exit, Exit::Ok);
        let wrong = answer(&report(&["stale events ignored: 99 instead of 100"]), 7);
        assert_eq!(wrong.exit, Exit::Failed);
        assert!(wrong.text.contains("NOT RIGHT"));
    }

    #[test]
    fn machines_get_all_that_people_get() {
        let json = answer(&report(&[]), 7).json;
        let mut fields: Vec<_> = json.as_object().unwrap().keys().cloned().collect();
        fields.sort_unstable();
        let promised = [
            "answers_lost",
            "duplicates_at_provider",
            "effects",
            "effects_owed",
            "errors_answered",
            "events",
            "events_owing_nothing",
            "held",
            "in_flight_at_kills",
            "kills",
            "lost",
            "records",
            "repeats_absorbed",
            "right",
            "seconds",
            "seed",
            "stale_ignored",
            "wrong",
        ];
        assert_eq!(fields, promised);
        assert_eq!(json["seconds"], 21.4);
        // Every number of the table, spelt as there, is among them.
        let text = answer(&report(&[]), 7).text;
        let numbers = json.as_object().unwrap().values().filter_map(serde_json::Value::as_u64);
        let numbers: Vec<String> = numbers.map(thousands).collect();
        let rows = text.lines().filter(|line| line.len() > 30 && !line.contains("every number"));
        for line in rows {
            let number: String = line.chars().skip(27).take(9).collect();
            let number = number.trim().to_owned();
            // Paid invoices are half of the effects owed.
            assert!(number == "600" || numbers.contains(&number), "{line}");
        }
    }

    #[test]
    fn one_of_a_thing_is_not_many() {
        assert_eq!(counted(&1, "worker"), "1 worker");
        let left = LeftBehind {
            database: "localhost:5432/test".to_owned(),
            connector: "demo-1a2b3c".to_owned(),
            schema_made: true,
        };
        insta::assert_snapshot!(left_text(&left), @r"

        left in localhost:5432/test: the schema `oncely`, made by this run, and the rows of connector `demo-1a2b3c`;
        look at them with the other commands; none removes them, so drop the database if it was made for this
        ");
    }
}
