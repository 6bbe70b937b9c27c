//! Calls that break: what left, what may have left, what never did.

use std::time::{Duration, Instant};

use oncely_core::effect::outcome::{Outcome, OutcomeClass};
use oncely_core::effect::request::{HttpRequest, Request};
use tokio::net::TcpListener;

use super::fixture::{SHORT_MS, attempt, attempted, http, key, performer, post, recording, short};
use super::peer::{Act, Peer, answer, head};

async fn seen(act: Act) -> (Outcome, String, Peer) {
    let peer = Peer::start([act]).await;
    let performer = performer(&short(recording(http(&peer.url()), "id", "response.json.id")));
    let seen = attempt(&performer, &post(&peer.url(), "{}")).await;
    (seen.outcome, seen.text, peer)
}

#[tokio::test]
async fn p1_a_refused_connection_is_not_applied() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = format!("http://{free}/");
    let seen = attempt(&performer(&http(&url)), &post(&url, "{}")).await;
    assert_eq!(seen.outcome, Outcome::NotApplied);
    assert!(seen.status.is_none());
    // What went wrong, without the client's own wrappings around it.
    assert!(seen.text.ends_with("Connection refused (os error 111)"), "{}", seen.text);
    assert!(!seen.text.contains("client error"), "{}", seen.text);
}

#[tokio::test]
async fn p1_a_name_that_does_not_resolve_is_not_applied() {
    let url = "http://no-such-host.invalid/";
    let seen = attempt(&performer(&http(url)), &post(url, "{}")).await;
    assert_eq!(seen.outcome, Outcome::NotApplied, "{}", seen.text);
}

#[tokio::test]
async fn p1_a_failed_tls_handshake_is_not_applied() {
    for act in [Act::Close, answer(200, "", ""), Act::ResetAfter(1), Act::Hang] {
        let peer = Peer::start([act.clone()]).await;
        let url = format!("https://{}/", peer.address);
        let seen = attempt(&performer(&http(&url)), &post(&url, "{}")).await;
        assert_eq!(seen.outcome, Outcome::NotApplied, "{act:?}: {}", seen.text);
    }
}

#[tokio::test]
async fn p2_b41_closed_after_the_request_was_read_is_unknown_and_not_repeated() {
    let (outcome, text, peer) = seen(Act::Close).await;
    assert_eq!(outcome, Outcome::Unknown, "{text}");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(peer.requests().len(), 1);
}

#[tokio::test]
async fn p2_w4_a_reset_in_the_middle_of_the_request_is_unknown() {
    let peer = Peer::start([Act::ResetAfter(100_000)]).await;
    let performer = performer(&http(&peer.url()));
    let seen = attempt(&performer, &post(&peer.url(), &"x".repeat(20_000_000))).await;
    assert_eq!(seen.outcome, Outcome::Unknown, "{}", seen.text);
    assert_eq!(peer.requests().len(), 1);
}

#[tokio::test]
async fn p2_w5_no_answer_in_time_is_unknown() {
    let began = Instant::now();
    let (outcome, text, peer) = seen(Act::Hang).await;
    assert_eq!(outcome, Outcome::Unknown, "{text}");
    assert!(began.elapsed() < Duration::from_millis(SHORT_MS * 5));
    assert_eq!(peer.requests().len(), 1);
}

#[tokio::test]
async fn p4_w5_half_an_answer_is_unknown_where_it_is_to_be_recorded() {
    let half = head(200, "", 100) + r#"{"id":"#;
    for act in [Act::AnswerAndClose(half.clone()), Act::Stall(half.clone())] {
        let (outcome, text, _) = seen(act.clone()).await;
        assert_eq!(outcome, Outcome::Unknown, "{act:?} {text}");
        let peer = Peer::start([act.clone()]).await;
        let unread = attempt(&performer(&short(http(&peer.url()))), &post(&peer.url(), "{}")).await;
        assert_eq!(unread.outcome.class(), OutcomeClass::Done, "{act:?}");
    }
}

#[tokio::test]
async fn p2_what_is_no_http_is_unknown() {
    for text in ["220 mail.local ESMTP\r\n", "HTTP/1.1 200", "HTTP/1.1 2x0 X\r\n\r\n", "\0\0\0"] {
        let (outcome, text, _) = seen(Act::AnswerAndClose(text.to_owned())).await;
        assert_eq!(outcome, Outcome::Unknown, "{text}");
    }
}

#[tokio::test]
async fn p9_a_dripping_answer_ends_with_the_total_timeout() {
    let slow_head = Act::Drip(head(200, &format!("x-a: {}\r\n", "y".repeat(500)), 0));
    let began = Instant::now();
    let (outcome, text, _) = seen(slow_head).await;
    assert_eq!(outcome, Outcome::Unknown, "{text}");
    assert!(began.elapsed() < Duration::from_millis(SHORT_MS * 5));
    let slow_body = Act::Drip(head(200, "", 0).replace(": 0", ": 5000") + &"y".repeat(5_000));
    let (outcome, text, _) = seen(slow_body).await;
    assert_eq!(outcome, Outcome::Unknown, "{text}");
}

#[tokio::test]
async fn p2_a_break_without_a_body_is_unknown_as_well() {
    let peer = Peer::start([Act::Close]).await;
    let request = Request::Http(HttpRequest {
        method: "POST".into(),
        url: peer.url().into(),
        headers: Vec::new(),
        body: None,
    });
    let seen = attempt(&performer(&http(&peer.url())), &request).await;
    assert_eq!(seen.outcome, Outcome::Unknown, "{}", seen.text);
    assert_eq!(peer.requests().len(), 1);
}

/// The peer closes each connection right after its answer although it said that it keeps it. Which
/// request meets the closing is chance; no request may be sent twice, and none that arrived may be
/// called not applied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b41_a_pooled_connection_that_is_being_closed_never_doubles_a_request() {
    const CALLS: usize = 400;
    let Act::Answer(text) = answer(200, "connection: keep-alive\r\n", "ok") else { panic!() };
    let peer = Peer::start([Act::AnswerAndClose(text)]).await;
    let performer = performer(&http(&peer.url()));
    let mut outcomes = Vec::new();
    for call in 0..CALLS {
        let key = key(&call.to_string());
        let performed = performer.perform(&key, "t", &post(&peer.url(), "{}"), || true).await;
        outcomes.push((key, attempted(performed).outcome.class()));
        if call % 7 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let requests = peer.requests();
    for (key, class) in outcomes {
        let arrived = requests.iter().filter(|request| request.contains(&key.wire())).count();
        let right = match class {
            OutcomeClass::Done => arrived == 1,
            OutcomeClass::NotApplied => arrived == 0,
            OutcomeClass::Unknown => arrived <= 1,
            OutcomeClass::Throttled | OutcomeClass::Rejected | OutcomeClass::Halted => false,
        };
        assert!(right, "{class:?} and {arrived} arrived");
    }
}

/// A call that is given up while it connects must not begin afterwards.
#[tokio::test]
async fn w19_a_dropped_call_sends_nothing_later() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let performer = performer(&http(&url));
    let (key, request) = (key("1"), post(&url, "{}"));
    let call = performer.perform(&key, "t", &request, || true);
    assert!(tokio::time::timeout(Duration::from_millis(50), call).await.is_err());
    let (stream, _) = listener.accept().await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut bytes = [0; 4_096];
    let read = stream.try_read(&mut bytes).unwrap_or(0);
    assert!(!String::from_utf8_lossy(&bytes[..read]).contains("POST"));
}
