//! `oncely demo` as a person runs it, bounded by the minute that it promises.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::arithmetic_side_effects,
    reason = "a failed test should stop at once, and measures the minute by itself"
)]

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use oncely_rig::kafka::{Kafka, KafkaOptions};
use oncely_rig::postgres::{Cluster, PostgresOptions};
use serde_json::{Value, json};

/// What the demo promises.
const DEMO_MAX: Duration = Duration::from_secs(60);

/// A demo mostly waits, so two run at once on a small machine and each still keeps to its minute.
const AT_ONCE_MAX: usize = 2;

static RUNNING: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// The right to run a demo.
struct Turn;

impl Turn {
    fn taken() -> Self {
        let running = RUNNING.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = RUNNING.1.wait_while(running, |running| *running >= AT_ONCE_MAX);
        *taken.unwrap_or_else(PoisonError::into_inner) += 1;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        RUNNING.1.notify_one();
    }
}

fn demo(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncely"));
    // Nothing here has a certificate, and each of its workers would read all of the system's.
    command.env("SSL_CERT_FILE", "/dev/null");
    command.arg("demo").args(args).stdin(Stdio::null());
    // A person's own settings must not reach the demo's servers.
    command.env("ONCELY_DATABASE_URL", "postgres://nobody@127.0.0.1:1/elsewhere");
    command.env("ONCELY_KAFKA_BROKERS", "127.0.0.1:1");
    command.env("ONCELY_KAFKA__SECURITY_PROTOCOL", "ssl");
    command
}

fn wait(mut child: Child) -> Output {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > DEMO_MAX {
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            panic!("not over after {DEMO_MAX:?}:\n{}", said(&output));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

fn run(command: &mut Command) -> Output {
    wait(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Every number, and one JSON object only.
fn must_be_right(output: &Output) {
    let said = said(output);
    let mut answer: Value = serde_json::from_slice(&output.stdout).expect(&said);
    let mut varying = |name: &str| answer.as_object_mut().unwrap().remove(name).unwrap();
    for name in ["in_flight_at_kills", "answers_lost", "errors_answered", "seed"] {
        assert!(varying(name).as_u64().unwrap() > 0, "{name}: {said}");
    }
    let seconds = varying("seconds");
    assert!(seconds.as_f64().unwrap() < DEMO_MAX.as_secs_f64(), "{said}");
    let right = json!({
        "events": 1_000,
        "events_owing_nothing": 300,
        "records": 1_300,
        "repeats_absorbed": 300,
        "stale_ignored": 100,
        "effects_owed": 1_200,
        "effects": 1_200,
        "held": 0,
        "duplicates_at_provider": 0,
        "lost": 0,
        "kills": 2,
        "right": true,
        "wrong": [],
    });
    assert_eq!(answer, right, "{said}");
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(said.matches("kill -9 ").count(), 2, "{said}");
    assert_eq!(said.matches("was found dead, ").count(), 2, "{said}");
}

#[test]
fn the_demo_ends_with_right_numbers_on_its_own_servers() {
    let _turn = Turn::taken();
    must_be_right(&run(&mut demo(&["--seed", "1", "--output", "json"])));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_ends_with_right_numbers_on_a_real_kafka_and_a_given_database() {
    let _turn = Turn::taken();
    let kafka = Kafka::start(&KafkaOptions::new(1)).await.unwrap();
    let cluster = Cluster::start(&PostgresOptions::quick()).await.unwrap();
    cluster.create_database("given").await.unwrap();
    let (brokers, url) = (kafka.bootstrap(), cluster.url("given"));
    let mut first = demo(&["--seed", "2", "--kafka", &brokers, "--database", &url]);
    first.args(["--output", "json"]).env_remove("ONCELY_KAFKA__SECURITY_PROTOCOL");
    let output = tokio::task::block_in_place(|| run(&mut first));
    must_be_right(&output);
    let left = format!(
        "left in 127.0.0.1:{}/given: the schema `oncely`, made by this run",
        cluster.port()
    );
    assert!(said(&output).contains(&left), "{}", said(&output));
    let names = kafka.tool("org.apache.kafka.tools.TopicCommand", &["--list"], None).await.unwrap();
    assert!(!names.contains("oncely-demo"), "{names}");
    // A second run in the same database meets nothing of the first.
    let mut second = demo(&["--seed", "2", "--database", &url, "--output", "json"]);
    must_be_right(&tokio::task::block_in_place(|| run(&mut second)));
}

#[test]
fn what_is_missing_is_named_with_the_remedy() {
    let empty = std::env::temp_dir();
    let mut command = demo(&[]);
    command.env("PATH", "/nowhere").env("ONCELY_CACHE", &empty);
    if Path::new("/usr/lib/postgresql").exists() {
        return;
    }
    let output = run(&mut command);
    assert_eq!(output.status.code(), Some(69), "{}", said(&output));
    assert!(said(&output).contains("make demo"), "{}", said(&output));
}

#[test]
fn a_given_kafka_that_is_away_is_named_and_nothing_is_left() {
    let output = run(&mut demo(&["--kafka", "127.0.0.1:1"]));
    assert_eq!(output.status.code(), Some(69), "{}", said(&output));
    assert!(said(&output).contains("kafka at 127.0.0.1:1"), "{}", said(&output));
}

#[test]
fn a_killed_demo_takes_its_processes_and_files_with_it() {
    let _turn = Turn::taken();
    let log = std::env::temp_dir().join(format!("oncely-demo-test-{}", std::process::id()));
    let to = std::fs::File::create(&log).unwrap();
    let child = demo(&["--keep"]).stdout(Stdio::null()).stderr(to).spawn();
    let mut child = child.unwrap();
    let began = Instant::now();
    let started = || std::fs::read_to_string(&log).unwrap().contains("worker-2 started");
    while !started() {
        assert!(began.elapsed() < DEMO_MAX);
        std::thread::sleep(Duration::from_millis(20));
    }
    let children = processes_under(child.id());
    assert!(children.len() >= 3, "{children:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    std::fs::remove_file(log).unwrap();
    let began = Instant::now();
    let alive = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
    while children.iter().any(alive) {
        assert!(began.elapsed() < Duration::from_secs(15), "{children:?} are still there");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Children of a process: workers, the database server, and their watchdogs.
fn processes_under(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest = stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned()).unwrap_or_default();
        rest.split(' ').nth(1) == Some(parent.to_string().as_str())
    })
    .collect()
}
