//! A private cluster: made, killed, frozen, started again, gone.

use std::path::PathBuf;
use std::time::Duration;

use oncely_rig::RigError;
use oncely_rig::places::Scratch;
use oncely_rig::postgres::{Cluster, PostgresOptions};
use oncely_rig::proxy::{Direction, Mode, Proxy};

const BOUND: Duration = Duration::from_secs(20);

#[tokio::test]
async fn what_was_committed_is_there_after_a_kill() {
    let mut cluster = Cluster::start(&PostgresOptions::quick()).await.unwrap();
    cluster.create_database("story").await.unwrap();
    let mut wire = cluster.connect("story").await.unwrap();
    wire.run("CREATE TABLE kept (id int); INSERT INTO kept VALUES (1)").await.unwrap();
    wire.run("BEGIN; INSERT INTO kept VALUES (2)").await.unwrap();

    cluster.kill().await.unwrap();
    assert!(cluster.connect("story").await.is_err());
    cluster.start_again().await.unwrap();
    let mut again = cluster.connect("story").await.unwrap();
    assert_eq!(again.run("SELECT id, NULL FROM kept").await.unwrap(), [[Some("1".into()), None]]);

    cluster.stop_immediate().await.unwrap();
    cluster.start_again().await.unwrap();
    let mut again = cluster.connect("story").await.unwrap();
    assert_eq!(again.value("SELECT count(*) FROM kept").await.unwrap(), "1");
    cluster.stop_fast().await.unwrap();
    assert_eq!(cluster.pid(), None);
}

#[tokio::test]
async fn a_frozen_cluster_answers_nobody_until_resumed() {
    let mut cluster = Cluster::start(&PostgresOptions::quick()).await.unwrap();
    let mut wire = cluster.connect("postgres").await.unwrap();
    cluster.pause().unwrap();
    let asked = tokio::spawn(async move { wire.value("SELECT 7").await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!asked.is_finished(), "a frozen server answered");
    cluster.resume().unwrap();
    assert_eq!(asked.await.unwrap().unwrap(), "7");
}

#[tokio::test]
async fn settings_place_and_errors_are_those_asked_for() {
    // A tmpfs, where this user may write to one.
    let base = PathBuf::from("/dev/shm");
    let options = PostgresOptions {
        base_dir: Scratch::new(Some(&base), "may-write").is_ok().then_some(base),
        ..PostgresOptions::quick().with("shared_buffers", "16MB")
    };
    let cluster = Cluster::start(&options).await.unwrap();
    let mut wire = cluster.connect("postgres").await.unwrap();
    assert_eq!(wire.value("SHOW shared_buffers").await.unwrap(), "16MB");
    let error = wire.run("SELECT 1/0").await.unwrap_err();
    assert!(matches!(&error, RigError::Sql { code, .. } if code == "22012"), "{error}");
    assert_eq!(wire.value("SELECT 2").await.unwrap(), "2", "usable after an error");
    let error = cluster.connect("nowhere").await.unwrap_err();
    assert!(matches!(&error, RigError::Sql { code, .. } if code == "3D000"), "{error}");

    let data = cluster.data_dir();
    assert!(data.exists());
    drop(cluster);
    assert!(!data.exists(), "a dropped cluster leaves nothing");
}

/// W10, E2, E3: commits that an asynchronous standby has not received are gone after a failover.
#[tokio::test]
async fn a_promoted_standby_has_lost_what_it_had_not_received() {
    let mut primary = Cluster::start(&PostgresOptions::quick()).await.unwrap();
    let proxy = Proxy::start(primary.address()).await.unwrap();
    let mut wire = primary.connect("postgres").await.unwrap();
    wire.run("CREATE TABLE kept (id int); INSERT INTO kept VALUES (1)").await.unwrap();
    let standby = primary.start_standby(Some(proxy.port()), &[]).await.unwrap();
    let mut there = standby.connect("postgres").await.unwrap();
    wire.run("INSERT INTO kept VALUES (2)").await.unwrap();
    primary.wait_standby(BOUND).await.unwrap();
    assert_eq!(there.value("SELECT count(*) FROM kept").await.unwrap(), "2");
    let error = there.run("INSERT INTO kept VALUES (9)").await.unwrap_err();
    assert!(matches!(&error, RigError::Sql { code, .. } if code == "25006"), "{error}");

    proxy.set(Mode::Stall(Direction::ToClient));
    wire.run("INSERT INTO kept VALUES (3)").await.unwrap();
    primary.kill().await.unwrap();
    proxy.cut_all();
    standby.promote().await.unwrap();
    there.run("INSERT INTO kept VALUES (4)").await.unwrap();
    let kept = there.value("SELECT string_agg(id::text, ',' ORDER BY id) FROM kept").await.unwrap();
    assert_eq!(kept, "1,2,4");
}

#[tokio::test]
async fn missing_binaries_are_an_error_that_names_the_remedy() {
    let bin_dir = Some(PathBuf::from("/nonexistent"));
    let options = PostgresOptions { bin_dir, ..PostgresOptions::default() };
    let error = Cluster::start(&options).await.unwrap_err().to_string();
    assert!(error.contains("/nonexistent") && error.contains("tests/postgres/fetch"), "{error}");
}
