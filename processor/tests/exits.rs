//! How the program ends and what it says then, by its exit code, as a shell or a supervisor sees it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "a failed test should stop at once"
)]

use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use oncely_rig::postgres::{Cluster, PostgresOptions};

const CONNECTOR: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../connectors/examples/usage-ledger.yaml");
const AWAY: &str = "127.0.0.1:1";

/// What the role of a processor is given.
const GRANTS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/grants.sql"));

fn as_role(role: &str, url: String) -> String {
    let (_, place) = url.split_once('@').unwrap();
    format!("postgres://{role}@{place}")
}

/// The program with an environment of its own.
fn oncely(args: &[&str], pairs: &[(&str, &str)]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncely"));
    command.args(args).env_clear().envs(pairs.iter().copied()).stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (status.code().expect(&text), text)
}

#[test]
fn run_says_what_the_kafka_client_refuses_before_it_waits_for_the_database() {
    let away =
        [("ONCELY_DATABASE_URL", "postgres://u@127.0.0.1:1/x"), ("ONCELY_KAFKA_BROKERS", AWAY)];
    let run = |more: &[(&str, &str)]| oncely(&["run", CONNECTOR], &[&away[..], more].concat());
    let (code, text) = run(&[
        ("ONCELY_KAFKA__SSL_CA_LOCATION", "/nowhere/ca.pem"),
        ("ONCELY_KAFKA__SECURITY_PROTOCOL", "ssl"),
    ]);
    assert_eq!(code, 78, "{text}");
    assert!(text.contains("the kafka client cannot be made from its settings"), "{text}");
    assert!(text.contains("ssl.ca.location"), "{text}");
    let (code, text) = run(&[("ONCELY_KAFKA__ENABLE_AUTO_COMMIT", "true")]);
    assert_eq!(code, 78, "{text}");
    assert!(text.contains("enable.auto.commit cannot be set"), "{text}");
}

#[test]
fn a_port_that_is_taken_is_named_with_the_setting() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let pairs =
        [("ONCELY_DATABASE_URL", "postgres://u@127.0.0.1:1/x"), ("ONCELY_KAFKA_BROKERS", AWAY)];
    let (code, text) = oncely(&["run", CONNECTOR, "--http-listen", &listen], &pairs);
    assert_eq!(code, 78, "{text}");
    assert!(text.contains(&listen) && text.contains("ONCELY_HTTP_LISTEN"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_needs_a_person_is_no_outage() {
    let cluster = Cluster::start(&PostgresOptions::quick()).await.unwrap();
    cluster.create_database("empty").await.unwrap();
    let mut wire = cluster.connect("postgres").await.unwrap();
    wire.run("CREATE ROLE weak LOGIN").await.unwrap();
    let url = |database: &str| cluster.url(database);
    let mut said = String::new();
    for (args, url) in [
        (&["migrate", "status"][..], url("absent")),
        (&["effects", "list"], as_role("nobody", url("postgres"))),
        (&["effects", "list"], url("empty")),
        (&["migrate", "up"], as_role("weak", url("empty"))),
        (&["migrate", "status"], url("empty")),
        (&["run", CONNECTOR, "--http-listen", "127.0.0.1:0"], url("absent")),
    ] {
        let pairs = [
            ("ONCELY_DATABASE_URL", url.as_str()),
            ("ONCELY_KAFKA_BROKERS", AWAY),
            ("ONCELY_LOG", "off"),
        ];
        let (code, text) = oncely(args, &pairs);
        let shown = args.iter().take(if args[0] == "run" { 1 } else { 2 });
        let shown: Vec<_> = shown.copied().collect();
        said.push_str(&format!("$ oncely {}\n{text}[{code}]\n\n", shown.join(" ")));
    }
    insta::assert_snapshot!("refusals", said.replace(&cluster.port().to_string(), "PORT"));
}

/// The program until it ends, after it was seen to run: one worker is on record.
async fn ends_after(cluster: &Cluster, role: &str, statements: &str) -> (i32, String) {
    let mut wire = cluster.connect("postgres").await.unwrap();
    let url = as_role(role, cluster.url("postgres"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncely"));
    command.args(["run", CONNECTOR, "--http-listen", "127.0.0.1:0"]).env_clear();
    command.envs([("ONCELY_DATABASE_URL", &*url), ("ONCELY_KAFKA_BROKERS", AWAY)]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let workers = "SELECT count(*) FROM oncely.worker";
    while wire.run(workers).await.unwrap()[0][0].as_deref() == Some("0") {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    wire.run(statements).await.unwrap();
    wire.run(&format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"
    ))
    .await
    .unwrap();
    let ended = tokio::task::spawn_blocking(|| child.wait_with_output().unwrap()).await.unwrap();
    let text = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (ended.status.code().expect(&text), text)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_at_a_start_ends_a_running_processor_with_the_same_words() {
    let cluster = Cluster::start(&PostgresOptions::quick()).await.unwrap();
    let mut wire = cluster.connect("postgres").await.unwrap();
    wire.run("CREATE ROLE maker LOGIN; GRANT CREATE ON DATABASE postgres TO maker").await.unwrap();
    let owner = as_role("maker", cluster.url("postgres"));
    let (code, text) = oncely(&["migrate", "up"], &[("ONCELY_DATABASE_URL", &owner)]);
    assert_eq!(code, 0, "{text}");
    let weak = as_role("weak", owner);
    let starts = || {
        let pairs = [("ONCELY_DATABASE_URL", &*weak), ("ONCELY_KAFKA_BROKERS", AWAY)];
        oncely(&["run", CONNECTOR, "--http-listen", "127.0.0.1:0"], &pairs)
    };
    let error = |text: &str| text.split("error: ").last().unwrap().to_owned();
    wire.run("CREATE ROLE weak LOGIN").await.unwrap();
    wire.run(&GRANTS.replace("TO processor", "TO weak")).await.unwrap();
    for (taken, given, named) in [
        (
            "REVOKE UPDATE ON oncely.worker FROM weak",
            "GRANT UPDATE ON oncely.worker TO weak",
            "role weak has no UPDATE on oncely.worker",
        ),
        ("ALTER ROLE weak NOLOGIN", "ALTER ROLE weak LOGIN", "does not let this role in"),
    ] {
        wire.run("DELETE FROM oncely.worker").await.unwrap();
        let (code, running) = ends_after(&cluster, "weak", taken).await;
        assert_eq!(code, 78, "{running}");
        let (code, starting) = starts();
        assert_eq!(code, 78, "{starting}");
        assert_eq!(error(&running), error(&starting));
        assert!(starting.contains(named), "{starting}");
        wire.run(given).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_is_no_outage_where_the_url_asks_for_it() {
    let cluster = Cluster::start(&PostgresOptions::quick()).await.unwrap();
    let url = format!("{}?sslmode=require", cluster.url("postgres"));
    let (code, text) = oncely(&["migrate", "status"], &[("ONCELY_DATABASE_URL", &url)]);
    assert_eq!(code, 78, "{text}");
    assert!(text.contains("no TLS with this server") && text.contains("sslmode"), "{text}");
}

#[test]
fn a_crash_is_armed_by_two_flags_and_a_permit_and_by_nothing_else() {
    let away =
        [("ONCELY_DATABASE_URL", "postgres://u@127.0.0.1:1/x"), ("ONCELY_KAFKA_BROKERS", AWAY)];
    let run = |more: &[&str]| oncely(&[&["run", CONNECTOR], more].concat(), &away);
    let (code, text) = run(&["--crash-at", "after-batch-commit"]);
    assert_eq!(code, 2, "{text}");
    let (code, text) = run(&["--crash-at", "nowhere", "--crash-permit", "/nowhere/permit"]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("after-batch-commit"), "the points are named: {text}");
    let (code, text) = run(&["--crash-at", "after-end", "--crash-permit", "/nowhere/permit"]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("is no permit"), "{text}");
    let (_, help) = oncely(&["run", "--help"], &[]);
    assert!(!help.contains("crash"), "{help}");
    // A name that looks like a setting is refused as every other slip is, and others are not read.
    for (name, refused) in [("ONCELY_CRASH_AT", true), ("CRASH_AT", false), ("FAILPOINTS", false)] {
        let pairs = [&away[..], &[(name, "before-start")]].concat();
        let (code, text) = oncely(&["run", CONNECTOR, "--http-listen", "nowhere"], &pairs);
        assert_eq!(code, 78, "{text}");
        assert_eq!(text.contains(name), refused, "{text}");
        assert!(!text.contains("crash point armed"), "{text}");
    }
}
