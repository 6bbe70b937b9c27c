//! The benchmark: real Kafka, real PostgreSQL, the product as it is run, and limits measured beside it.
//!
//! Reads: two flags. Gives: one JSON object per figure and line on standard output. Never gives a
//! figure of a run whose result is wrong.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "figures are counted in a few billions at most, and a bench that fails should stop"
)]

mod check;
mod connector;
mod cpu;
mod error;
mod figure;
mod limits;
mod product;
mod recovery;
mod replay;
mod services;
mod workload;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use connector::{Calls, IN_FLIGHT};
use error::{BenchError, Result};
use figure::{Limit, Series, print, say};
use oncely_core::cause::chain;
use services::Services;
use workload::Workload;

/// The product's own, so that limits and product differ in nothing but what they do.
#[global_allocator]
static ALLOCATOR: oncely::MiMalloc = oncely::MiMalloc;

const HELP: &str = "\
Measures oncely on a real Kafka and a real PostgreSQL of its own, beside what limits it.

Usage: bench [--quick] [--only PART] [--postgres-bin DIR]

  --quick             one short repetition: under a minute
  --only PART         limits, events, effects, memory or recovery
  --postgres-bin DIR  directory with initdb and postgres

Prints one JSON object per figure and line: figure, value, unit, limit, ratio (value to limit), and
the range where there are several repetitions. A value is the median of the repetitions, and a ratio that
of their own ratios, each to the limit measured right before it; the first one of a full run is not
counted. After each run the tables and the provider's own log are checked; a run
whose result is wrong gives no figure and the exit code 1.

How it is measured. The topic lies ready: JSON of 1,024 bytes, keyed by invoice, eight versions of each,
20 % of the records a repeat, 12 partitions. One process of `oncely run` reads it to its end. Time is
taken by the database's clock, from the begin of the first batch transaction to the last position on
record, so that the start of a process does not count and the last progress write does.

  events_per_s             records a second, no effects; limit F2
  events_per_s_of_own_sql  the same value; limit J2
  healthy_per_s_among_poison
                           the same records, where a fifth of all cannot be decoded and has keys of its
                           own (100,000; with --quick 25,000); limit events_per_s
  rss_mb_with_poison       the most memory resident in that run; limit 300
  healthy_effects_per_s_among_poison
                           new events a second whose call succeeds, as in effects_per_s, while the calls
                           of a fifth of all invoices fail and hold what follows them; limit what the same
                           events come to in effects_per_s, where none fails
  effects_per_s            new events a second, one keyed HTTP call each, provider at 0 ms; limit the
                           lower of J2 with effects and H
  rss_mb                   the most memory resident while it reads the topic (1,000,000 records; with
                           --quick those of events_per_s); limit 300
  recovery_s               kill -9 of one of two workers under load until each partition has a higher
                           position on record (session time-out 6 s); limit 10

Limits, measured beside each repetition:

  C   the median of 500 single-row commits, in milliseconds; also their 99th percentile
  K   the topic drained by a bare consumer that touches the payload
  F2  the least that any inbox must write: batches of 1,000, one 16-byte key with DO NOTHING and one
      version-guarded upsert of (key, version, amount) folded per entity, from arrays, 2 writers; of the
      records in the order in which they were made, a batch of which has one version of each invoice.
      As consumed: in the order in which K got them, so that several versions fold into one row
  J2  the product's own statements replayed from decided plans in memory, in batches as large as the
      product's, 2 writers, no Kafka; of the records in the order in which K got them, as the product
      gets them. With effects each of the two settles what it has claimed before its next batch; the
      product has 4 writers and 2 settlers
  H   bare HTTP calls of the fake provider, as many in flight as the product has
";

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Size {
    repetitions: usize,
    /// The first repetition warms files and caches and is not counted.
    warm_up: bool,
    /// Records without effects, and with one effect for each new event.
    records: u64,
    effect_records: u64,
    /// Records of the run whose memory counts; without them, that of the run without effects.
    memory_records: Option<u64>,
    /// Records that lie ready when workers are started of which one is killed.
    backlog: u64,
}

const QUICK: Size = Size {
    repetitions: 1,
    warm_up: false,
    records: 100_000,
    effect_records: 20_000,
    memory_records: None,
    backlog: 40_000,
};
const FULL: Size = Size {
    repetitions: 6,
    warm_up: true,
    records: 400_000,
    effect_records: 60_000,
    memory_records: Some(1_000_000),
    backlog: 150_000,
};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Limits,
    Events,
    Effects,
    Memory,
    Recovery,
}

impl Part {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "limits" => Self::Limits,
            "events" => Self::Events,
            "effects" => Self::Effects,
            "memory" => Self::Memory,
            "recovery" => Self::Recovery,
            _ => return None,
        })
    }
}

/// What the command line asks for.
struct Asked {
    size: Size,
    only: Option<Part>,
    bin_dir: Option<PathBuf>,
}

impl Asked {
    fn wants(&self, part: Part) -> bool {
        self.only.is_none_or(|only| only == part)
    }
}

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let mut asked = Asked { size: FULL, only: None, bin_dir: None };
    while let Some(arg) = args.next() {
        match (arg.to_str(), args.len()) {
            (Some("provider"), 1) => {
                let dir = args.next().map(PathBuf::from).unwrap_or_default();
                return ended(block_on(services::provide(&dir)));
            }
            (Some("--quick"), _) => asked.size = QUICK,
            (Some("--postgres-bin"), 1..) => asked.bin_dir = args.next().map(PathBuf::from),
            (Some("--only"), 1..) => {
                let part = args.next().and_then(|part| Part::parse(part.to_str()?));
                if part.is_none() {
                    return misused();
                }
                asked.only = part;
            }
            (Some("--help" | "-h"), _) => {
                figure::out(HELP);
                return ExitCode::SUCCESS;
            }
            _ => return misused(),
        }
    }
    ended(block_on(bench(&asked)))
}

fn misused() -> ExitCode {
    say("--help shows how this program is used");
    ExitCode::from(2)
}

fn block_on<F: Future<Output = Result<()>>>(future: F) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(BenchError::io("start the runtime"))?;
    runtime.block_on(future)
}

fn ended(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format!("error: {}", chain(&error)));
            ExitCode::FAILURE
        }
    }
}

async fn bench(asked: &Asked) -> Result<()> {
    let size = asked.size;
    say("starting PostgreSQL and Kafka");
    let services = Services::start(asked.bin_dir.clone()).await?;
    let mut series = Series::default();
    for repetition in 0..size.repetitions {
        say(format!("repetition {} of {}", repetition + 1, size.repetitions));
        let mut round = Round { services: &services, asked, repetition, series: &mut series };
        round.events().await?;
        round.effects().await?;
        round.recovery().await?;
        if repetition == 0 && size.warm_up {
            series.drop_first();
        }
    }
    if let Some(records) = size.memory_records.filter(|_| asked.wants(Part::Memory)) {
        memory(&services, records, &mut series).await?;
    }
    report(&series, services.counts_statements);
    Ok(())
}

/// One repetition: limits and product in turn.
struct Round<'a> {
    services: &'a Services,
    asked: &'a Asked,
    repetition: usize,
    series: &'a mut Series,
}

impl Round<'_> {
    fn add(&mut self, name: &'static str, value: f64) {
        say(format!("  {name} {value:.1}"));
        self.series.add(name, value);
    }

    fn scratch(&self) -> &Path {
        self.services.scratch.path()
    }

    /// C, K, F2, J2, and the product without effects.
    async fn events(&mut self) -> Result<()> {
        let (limits, events) = (self.asked.wants(Part::Limits), self.asked.wants(Part::Events));
        if !limits && !events {
            return Ok(());
        }
        let (services, repetition) = (self.services, self.repetition);
        let workload = Workload::of(self.asked.size.records);
        let topic = format!("bench.events.{repetition}");
        let ends = workload.preload(&services.kafka, &topic).await?;
        let database = services.database(&format!("limits_{repetition}")).await?;
        let (median, p99) = limits::commits(&database).await?;
        self.add("limit_c_ms", median);
        self.add("limit_c_p99_ms", p99);
        let bootstrap = services.kafka.bootstrap();
        let drained = limits::drain(&bootstrap, &topic, workload.records).await?;
        self.add("limit_k", drained.per_s);
        let made: Vec<_> = workload.events().collect();
        self.add("limit_f2", limits::least_inbox(&database, &made).await?);
        drop(made);
        let consumed = limits::least_inbox(&database, &drained.events).await?;
        self.add("limit_f2_as_consumed", consumed);
        let database = services.database(&format!("replay_{repetition}")).await?;
        let connector = connector::compiled(&topic, Calls::Nobody)?;
        let replayed = replay::replay(&database, workload, &drained.events, connector).await?;
        drop(drained);
        self.add("limit_j2", replayed);
        if !events {
            return Ok(());
        }
        let database = services.database(&format!("events_{repetition}")).await?;
        let file = connector::write(self.scratch(), &topic, Calls::Nobody)?;
        let run = product::run(services, &database, &file, &ends).await?;
        check::state(&database, workload).await?;
        let records = workload.records as f64;
        self.add("events_per_s", records / run.seconds);
        self.add("events_wal_bytes", run.wal_bytes / records);
        self.add("events_statements", run.statements / records * 1_000.0);
        self.add("events_cpu_product", run.cpu_product / records * 1e6);
        self.add("events_cpu_postgres", run.cpu_postgres / records * 1e6);
        self.add("events_cpu_broker", run.cpu_broker / records * 1e6);
        if self.asked.size.memory_records.is_none() {
            self.add("rss_mb", run.memory_mb);
        }
        self.poison(workload.with_poison()).await
    }

    /// The same records, with others among them that cannot be decoded.
    async fn poison(&mut self, workload: Workload) -> Result<()> {
        let (services, repetition) = (self.services, self.repetition);
        let topic = format!("bench.poison.{repetition}");
        let ends = workload.preload(&services.kafka, &topic).await?;
        let database = services.database(&format!("poison_{repetition}")).await?;
        let file = connector::write(self.scratch(), &topic, Calls::Nobody)?;
        let run = product::run(services, &database, &file, &ends).await?;
        check::state(&database, workload).await?;
        self.add("healthy_per_s_among_poison", workload.records as f64 / run.seconds);
        self.add("rss_mb_with_poison", run.memory_mb);
        Ok(())
    }

    /// H, J2 with effects, and the product with one call for each new event.
    async fn effects(&mut self) -> Result<()> {
        let (limits, effects) = (self.asked.wants(Part::Limits), self.asked.wants(Part::Effects));
        if !limits && !effects {
            return Ok(());
        }
        let (services, repetition) = (self.services, self.repetition);
        let workload = Workload::of(self.asked.size.effect_records);
        let distinct = workload.distinct() as f64;
        let topic = format!("bench.effects.{repetition}");
        let ends = workload.preload(&services.kafka, &topic).await?;
        let provider = services.provider(&format!("limit-{repetition}")).await?;
        let calls = limits::calls(&provider.url, workload.distinct(), IN_FLIGHT).await?;
        self.add("limit_h", calls);
        drop(provider);
        let provider = services.provider(&format!("effects-{repetition}")).await?;
        let connector = connector::compiled(&topic, Calls::Provider(&provider.url))?;
        let database = services.database(&format!("replay_effects_{repetition}")).await?;
        let bootstrap = services.kafka.bootstrap();
        let drained = limits::drain(&bootstrap, &topic, workload.records).await?;
        let replayed = replay::replay(&database, workload, &drained.events, connector).await?;
        drop(drained);
        self.add("limit_j2_effects", replayed * distinct / workload.records as f64);
        if !effects {
            return Ok(());
        }
        let database = services.database(&format!("effects_{repetition}")).await?;
        let file = connector::write(self.scratch(), &topic, Calls::Provider(&provider.url))?;
        let provider_cpu = cpu::seconds(provider.child.pid());
        let run = product::run(services, &database, &file, &ends).await?;
        let provider_cpu = cpu::seconds(provider.child.pid()) - provider_cpu;
        check::state(&database, workload).await?;
        check::effects(&database, workload, &provider).await?;
        self.add("effects_per_s", distinct / run.seconds);
        self.add("effects_wal_bytes", run.wal_bytes / distinct);
        self.add("effects_statements", run.statements / distinct * 1_000.0);
        self.add("effects_cpu_product", run.cpu_product / distinct * 1e6);
        self.add("effects_cpu_postgres", run.cpu_postgres / distinct * 1e6);
        self.add("effects_cpu_broker", run.cpu_broker / distinct * 1e6);
        self.add("effects_cpu_provider", provider_cpu / distinct * 1e6);
        self.add("effects_rss_mb", run.memory_mb);
        self.poisoned_keys(workload.with_poisoned_keys()).await
    }

    /// The same records, of which a fifth of the invoices has calls that fail.
    async fn poisoned_keys(&mut self, workload: Workload) -> Result<()> {
        let (services, repetition) = (self.services, self.repetition);
        let topic = format!("bench.poisoned.{repetition}");
        let ends = workload.preload(&services.kafka, &topic).await?;
        let provider = services.provider(&format!("poisoned-{repetition}")).await?;
        let database = services.database(&format!("poisoned_{repetition}")).await?;
        let file = connector::write(self.scratch(), &topic, Calls::Holding(&provider.url))?;
        let run = product::run(services, &database, &file, &ends).await?;
        check::state(&database, workload).await?;
        check::effects(&database, workload, &provider).await?;
        let healthy = workload.healthy().count() as f64;
        self.add("healthy_effects_per_s_among_poison", healthy / run.seconds);
        let share = healthy / workload.distinct() as f64;
        let unharmed = self.series.of("effects_per_s").last().copied().unwrap_or_default();
        self.add("limit_healthy_effects", unharmed * share);
        Ok(())
    }

    async fn recovery(&mut self) -> Result<()> {
        if !self.asked.wants(Part::Recovery) {
            return Ok(());
        }
        let name = format!("recovery_{}", self.repetition);
        let seconds = recovery::recovery(self.services, &name, self.asked.size.backlog).await?;
        self.add("recovery_s", seconds);
        Ok(())
    }
}

/// The memory of a run over many records.
async fn memory(services: &Services, records: u64, series: &mut Series) -> Result<()> {
    say(format!("memory with {records} records"));
    let workload = Workload::of(records);
    let ends = workload.preload(&services.kafka, "bench.memory").await?;
    let database = services.database("memory").await?;
    let file = connector::write(services.scratch.path(), "bench.memory", Calls::Nobody)?;
    let run = product::run(services, &database, &file, &ends).await?;
    check::state(&database, workload).await?;
    series.add("rss_mb", run.memory_mb);
    Ok(())
}

/// Prints all figures, the limits first.
fn report(series: &Series, counts_statements: bool) {
    let statements = |shown: &'static str, transactions: &'static str| {
        if counts_statements { shown } else { transactions }
    };
    let per_record = [
        ("limit_c_ms", "limit_c", "ms"),
        ("limit_c_p99_ms", "limit_c_p99", "ms"),
        ("limit_k", "limit_k", "1/s"),
        ("limit_f2", "limit_f2", "1/s"),
        ("limit_f2_as_consumed", "limit_f2_as_consumed", "1/s"),
        ("limit_j2", "limit_j2", "1/s"),
        ("limit_h", "limit_h", "1/s"),
        ("limit_j2_effects", "limit_j2_effects", "1/s"),
        ("events_wal_bytes", "wal_bytes_per_event", "B"),
        (
            "events_statements",
            statements("round_trips_per_1000_events", "transactions_per_1000_events"),
            "1",
        ),
        ("events_cpu_product", "cpu_product_per_event", "us"),
        ("events_cpu_postgres", "cpu_postgres_per_event", "us"),
        ("events_cpu_broker", "cpu_broker_per_event", "us"),
        ("effects_wal_bytes", "wal_bytes_per_effect", "B"),
        (
            "effects_statements",
            statements("round_trips_per_1000_effects", "transactions_per_1000_effects"),
            "1",
        ),
        ("effects_cpu_product", "cpu_product_per_effect", "us"),
        ("effects_cpu_postgres", "cpu_postgres_per_effect", "us"),
        ("effects_cpu_broker", "cpu_broker_per_effect", "us"),
        ("effects_cpu_provider", "cpu_provider_per_effect", "us"),
        ("effects_rss_mb", "effects_rss_mb", "MB"),
    ];
    for (name, figure, unit) in per_record {
        print(figure, unit, series.of(name), &Limit::None);
    }
    let measured = |name| Limit::Measured(series.of(name).to_vec());
    print("events_per_s", "1/s", series.of("events_per_s"), &measured("limit_f2"));
    print("events_per_s_of_own_sql", "1/s", series.of("events_per_s"), &measured("limit_j2"));
    let healthy = series.of("healthy_per_s_among_poison");
    print("healthy_per_s_among_poison", "1/s", healthy, &measured("events_per_s"));
    print("rss_mb_with_poison", "MB", series.of("rss_mb_with_poison"), &Limit::Fixed(300.0));
    let lower = series.of("limit_j2_effects").iter().zip(series.of("limit_h"));
    let lower = lower.map(|(own_sql, calls)| own_sql.min(*calls)).collect();
    print("effects_per_s", "1/s", series.of("effects_per_s"), &Limit::Measured(lower));
    let healthy = series.of("healthy_effects_per_s_among_poison");
    let unharmed = measured("limit_healthy_effects");
    print("healthy_effects_per_s_among_poison", "1/s", healthy, &unharmed);
    print("rss_mb", "MB", series.of("rss_mb"), &Limit::Fixed(300.0));
    print("recovery_s", "s", series.of("recovery_s"), &Limit::Fixed(10.0));
}
