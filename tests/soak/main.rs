//! Randomized rounds: load, at least five faults, quiet, and the invariants from outside.
//!
//! A round is a fresh topic and database. Its plan follows from its seed. Without a wish those rounds are
//! played that have every kind of fault together (`plan::SEEDS`); `--seed S --rounds N` plays the seeds from
//! `S` on, so `--rounds 1` with the seed of a failed round plays its plan again. `--jobs N`
//! rounds run at once, each on a PostgreSQL and a Kafka of its own, which its faults may break; the first
//! of them has three brokers. `--failovers` leaves out rounds in which PostgreSQL does not fail over.
//!
//! Prints a line for each round, and at the end one JSON object; exit code 1 when an invariant was broken.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "a failed test should stop at once"
)]

mod plan;
mod round;
mod took;

use std::collections::{BTreeSet, VecDeque};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use oncely_rig::kafka::{Kafka, KafkaOptions};
use oncely_rig::postgres::{Cluster, PostgresOptions};
use oncely_tests::{jobs, servers};
use plan::Plan;
use round::Played;

/// Rounds, and the seed of the first, where one of both was said.
const ROUNDS: u64 = 3;
const SEED: u64 = 1;
/// Room for the tables of a round.
const DISK: u64 = 64 << 20;
/// Rounds at once.
const JOBS: usize = 3;

/// The servers of one job.
struct Lane {
    brokers: u16,
    servers: Option<(Box<Kafka>, Box<Cluster>)>,
}

impl Lane {
    async fn servers(&mut self) -> (Box<Kafka>, Box<Cluster>) {
        if let Some(servers) = self.servers.take() {
            return servers;
        }
        // The client waits as long for the answer to a heartbeat as for the next one; an answer that comes
        // later and holds an assignment is lost on it until the broker fences it, minutes later (librdkafka
        // 2.12.1, KIP-848). On a machine that is as busy as this one, answers take their time.
        let kafka = KafkaOptions::returning(self.brokers);
        let kafka = kafka.with("group.consumer.heartbeat.interval.ms", "2000");
        let kafka = Kafka::start(&kafka).await.unwrap();
        let options = PostgresOptions { small_disk: Some(DISK), ..servers::options() };
        let cluster = Cluster::start(&options).await.unwrap();
        (Box::new(kafka), Box::new(cluster))
    }

    /// A round that fails takes its servers with it; the next one gets new ones.
    async fn play(&mut self, plan: Plan) -> Played {
        let (kafka, cluster) = self.servers().await;
        if plan.forgets() {
            // Tables on a disk of their own have no standby.
            let plain = Box::new(Cluster::start(&servers::options()).await.unwrap());
            let (played, kafka, _) = round::play(plan, kafka, plain).await;
            self.servers = Some((kafka, cluster));
            return played;
        }
        let (played, kafka, cluster) = round::play(plan, kafka, cluster).await;
        self.servers = Some((kafka, cluster));
        played
    }
}

fn main() -> ExitCode {
    let options = jobs::Options::of_process();
    if !options.is_meant("soak") {
        return ExitCode::SUCCESS;
    }
    let seeds = seeds(options.number("--seed"), options.number("--rounds"));
    let at_once: usize = options.number("--jobs").unwrap_or(JOBS);
    let forgetful = options.flag("--failovers");
    println!("{} rounds, seeds {seeds:?}", seeds.len());
    let begun = Instant::now();
    let left = Mutex::new(VecDeque::from(seeds));
    let done = Mutex::new(Vec::new());
    jobs::each((0..at_once).collect(), at_once, |job| {
        let mut lane = Lane { brokers: if job == 0 { 3 } else { 1 }, servers: None };
        loop {
            let next = left.lock().unwrap().pop_front();
            let Some(seed) = next else { return };
            let plan = Plan::of(seed);
            if forgetful && !plan.forgets() {
                continue;
            }
            let begun = Instant::now();
            let played = jobs::on_runtime(lane.play(plan.clone()));
            say(&plan, begun, &played);
            done.lock().unwrap().push((seed, played));
        }
    });
    let done = done.into_inner().unwrap();
    let mut sum = Played::default();
    let mut failed: Vec<u64> = Vec::new();
    for (seed, played) in &done {
        match played {
            Ok(played) => {
                sum.kills += played.kills;
                sum.crashes += played.crashes;
                sum.faults += played.faults;
                sum.effects += played.effects;
                sum.held += played.held;
                sum.quiet = sum.quiet.max(played.quiet);
            }
            Err(_) => failed.push(*seed),
        }
    }
    failed.sort_unstable();
    // From the first to the last; some between them may have been left out.
    let mut played: Vec<u64> = done.iter().map(|(seed, _)| *seed).collect();
    played.sort_unstable();
    let kinds: BTreeSet<_> = played.iter().flat_map(|seed| Plan::of(*seed).kinds()).collect();
    let object = serde_json::json!({
        "rounds": done.len(),
        "kinds": kinds,
        "violations": failed.len(),
        "faults": sum.faults,
        "kills": sum.kills,
        "crashes": sum.crashes,
        "effects": sum.effects,
        "held": sum.held,
        "seeds": played,
        "failed": failed,
        "longest_quiet_s": sum.quiet.as_secs_f64(),
        "seconds": begun.elapsed().as_secs(),
    });
    println!("{object}");
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The default rounds, or as many as were wished for, from the wished one on.
fn seeds(first: Option<u64>, rounds: Option<u64>) -> Vec<u64> {
    if first.is_none() && rounds.is_none() {
        return plan::SEEDS.to_vec();
    }
    let (first, rounds) = (first.unwrap_or(SEED), rounds.unwrap_or(ROUNDS));
    (first..first.saturating_add(rounds)).collect()
}

fn say(plan: &Plan, begun: Instant, played: &Result<Played, String>) {
    let (seed, seconds) = (plan.seed, begun.elapsed().as_secs_f64());
    match played {
        Ok(Played { faults, kills, effects, held, quiet, .. }) => println!(
            "round {seed}  {seconds:5.1} s  {faults} faults  {kills} kills  {effects} effects  {held} held  quiet after {:.1} s",
            quiet.as_secs_f64()
        ),
        Err(why) => println!(
            "round {seed}  {seconds:5.1} s  BROKEN: {why}\n  its plan: {plan}\n  again: make soak ROUNDS=1 SEED={seed}"
        ),
    }
}
