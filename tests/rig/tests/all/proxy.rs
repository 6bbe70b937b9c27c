//! The faulty network, between a client and a server that sends every line back.

use std::time::Duration;

use oncely_rig::RigError;
use oncely_rig::postgres::{Cluster, PostgresOptions, Wire};
use oncely_rig::proxy::{Direction, Mode, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const BOUND: Duration = Duration::from_secs(20);
/// Long enough for bytes that are on their way; only ever waited for in vain.
const NOTHING: Duration = Duration::from_millis(150);

/// Sends every byte back; its address.
async fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let (mut from, mut to) = stream.into_split();
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    address
}

async fn say(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
}

async fn hear(stream: &mut TcpStream, bytes: usize) -> String {
    let mut heard = vec![0; bytes];
    timeout(BOUND, stream.read_exact(&mut heard)).await.unwrap().unwrap();
    String::from_utf8(heard).unwrap()
}

async fn connected() -> (Proxy, TcpStream) {
    let proxy = Proxy::start(echo().await).await.unwrap();
    let mut stream = TcpStream::connect(proxy.addr()).await.unwrap();
    say(&mut stream, "hello").await;
    assert_eq!(hear(&mut stream, 5).await, "hello");
    (proxy, stream)
}

#[tokio::test]
async fn stalled_bytes_arrive_when_the_mode_changes() {
    let (proxy, mut stream) = connected().await;
    for mode in
        [Mode::Stall(Direction::ToServer), Mode::Stall(Direction::ToClient), Mode::StallBoth]
    {
        proxy.set(mode);
        say(&mut stream, "late").await;
        assert!(timeout(NOTHING, stream.read(&mut [0; 1])).await.is_err());
        proxy.set(Mode::DelayMs(1));
        assert_eq!(hear(&mut stream, 4).await, "late");
    }
}

#[tokio::test]
async fn a_connection_is_cut_after_so_many_bytes() {
    let (proxy, mut stream) = connected().await;
    proxy.set(Mode::CutAfter { direction: Direction::ToClient, bytes: 7 });
    say(&mut stream, "abcd").await;
    assert_eq!(hear(&mut stream, 4).await, "abcd");
    say(&mut stream, "efgh").await;
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"efg");
    assert_eq!(proxy.wait_cut(1, BOUND).await.unwrap().to_client, 5 + 7);

    let mut stream = TcpStream::connect(proxy.addr()).await.unwrap();
    proxy.set(Mode::CutAfter { direction: Direction::ToServer, bytes: 3 });
    say(&mut stream, "abcd").await;
    proxy.wait_cut(2, BOUND).await.unwrap();
    assert_eq!(proxy.traffic().to_server, 5 + 8 + 3);
    assert_eq!(proxy.traffic().open, 0);
}

#[tokio::test]
async fn a_request_is_cut_before_it_arrives_even_in_pieces() {
    let (proxy, mut stream) = connected().await;
    proxy.set(Mode::CutRequest { sent: b"COMMIT".to_vec() });
    say(&mut stream, "x COM").await;
    assert_eq!(hear(&mut stream, 5).await, "x COM");
    say(&mut stream, "MIT").await;
    proxy.wait_cut(1, BOUND).await.unwrap();
    assert!(stream.read(&mut [0; 9]).await.is_err(), "a reset");
    assert_eq!(proxy.traffic().sighted, 1);
    let mut again = TcpStream::connect(proxy.addr()).await.unwrap();
    say(&mut again, "COMMIT").await;
    assert_eq!(hear(&mut again, 6).await, "COMMIT", "a sighting uses the mode up");
}

#[tokio::test]
async fn answers_to_one_connection_stall_and_come_later() {
    let (proxy, mut stream) = connected().await;
    let mut other = TcpStream::connect(proxy.addr()).await.unwrap();
    proxy.set(Mode::StallAnswer { sent: b"BEGIN".to_vec() });
    say(&mut stream, "BEGIN").await;
    proxy.wait_sighted(1, BOUND).await.unwrap();
    say(&mut other, "free").await;
    assert_eq!(hear(&mut other, 4).await, "free");
    assert!(timeout(NOTHING, stream.read(&mut [0; 1])).await.is_err());
    proxy.set(Mode::Pass);
    assert_eq!(hear(&mut stream, 5).await, "BEGIN");
}

#[tokio::test]
async fn a_refusing_proxy_and_a_dead_server_look_alike() {
    let (mut proxy, mut stream) = connected().await;
    proxy.listener_off().await;
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0);
    assert!(TcpStream::connect(proxy.addr()).await.is_err());
    proxy.listener_on().await.unwrap();
    let mut stream = TcpStream::connect(proxy.addr()).await.unwrap();
    say(&mut stream, "back").await;
    assert_eq!(hear(&mut stream, 4).await, "back");
    proxy.cut_all();
    assert!(stream.read(&mut [0; 1]).await.is_err(), "a reset");
    proxy.set_target("127.0.0.1:1");
    let mut stream = TcpStream::connect(proxy.addr()).await.unwrap();
    assert!(stream.read(&mut [0; 1]).await.is_err(), "a reset");
}

/// W2, W7: the transaction is committed, and the client cannot know.
#[tokio::test]
async fn the_answer_to_a_commit_is_lost() {
    let cluster = Cluster::start(&PostgresOptions::quick()).await.unwrap();
    let proxy = Proxy::start(cluster.address()).await.unwrap();
    assert!(proxy.through(&cluster.url("postgres")).contains(&proxy.port().to_string()));
    let mut direct = cluster.connect("postgres").await.unwrap();
    direct.run("CREATE TABLE fact (id int)").await.unwrap();

    let mut wire = Wire::connect(&proxy.addr().to_string(), "postgres", "postgres").await.unwrap();
    wire.run("BEGIN; INSERT INTO fact VALUES (1)").await.unwrap();
    proxy.set(Mode::lose_commit());
    let error = wire.run("COMMIT").await.unwrap_err();
    assert!(matches!(error, RigError::Io { .. }), "{error}");
    assert_eq!(direct.value("SELECT count(*) FROM fact").await.unwrap(), "1");

    let mut wire = Wire::connect(&proxy.addr().to_string(), "postgres", "postgres").await.unwrap();
    wire.run("BEGIN; INSERT INTO fact VALUES (2)").await.unwrap();
    proxy.set(Mode::CutRequest { sent: b"COMMIT".to_vec() });
    wire.run("COMMIT").await.unwrap_err();
    assert_eq!(direct.value("SELECT count(*) FROM fact").await.unwrap(), "1");
}
