//! Calls that get an answer, and calls that must not be made.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use oncely_connectors::effect::egress::Egress;
use oncely_connectors::effect::performer::{Performed, Performer, PerformerError};
use oncely_core::connector::{Auth, RequestRule, SecretText, StatusClass};
use oncely_core::effect::outcome::{Outcome, OutcomeClass};
use oncely_core::effect::request::{EmailRequest, HttpRequest, Request};
use oncely_core::template::{Target, Template};
use oncely_core::value::Value;

use super::fixture::{
    CANARY, NOW_MS, attempt, attempted, canaries, http, key, performer, post, recording, refused,
    status, token, with_auth,
};
use super::peer::{Act, Peer, answer, head};

#[tokio::test]
async fn p3_a_success_is_recorded_and_the_connection_serves_again() {
    let peer = Peer::start([answer(201, "", r#"{"id":"ch_1"}"#)]).await;
    let performer = performer(&recording(http(&peer.url()), "charge", "response.json.id"));
    for _ in 0..5 {
        let seen = attempt(&performer, &post(&peer.url(), "{}")).await;
        assert_eq!(seen.outcome, Outcome::Done(Value::object([("charge", Value::text("ch_1"))])));
        assert_eq!((seen.status, &*seen.text), (Some(201), ""));
    }
    assert_eq!((peer.connections(), peer.requests().len()), (1, 5));
}

#[tokio::test]
async fn an_unwanted_body_is_read_away_and_the_connection_serves_again() {
    let peer = Peer::start([answer(200, "", &"x".repeat(40_000))]).await;
    let performer = performer(&http(&peer.url()));
    for _ in 0..3 {
        let seen = attempt(&performer, &post(&peer.url(), "{}")).await;
        assert_eq!(seen.outcome.class(), OutcomeClass::Done);
    }
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn p13_every_attempt_sends_the_same_bytes_and_the_same_key() {
    let peer = Peer::start([answer(500, "", "oops"), answer(200, "", "")]).await;
    let rule = with_auth(http(&peer.url()), Auth::Bearer(token()));
    let request = post(&peer.url(), r#"{"cents": 9007199254740993}"#);
    let first = attempt(&performer(&rule), &request).await;
    assert_eq!((first.outcome, &*first.text), (Outcome::Unknown, "oops"));
    let second = attempt(&performer(&rule), &request).await;
    assert_eq!(second.outcome.class(), OutcomeClass::Done);
    let requests = peer.requests();
    assert_eq!(requests[0], requests[1]);
    let has = |line: &str| requests[0].to_lowercase().contains(&line.to_lowercase());
    assert!(has(&format!("\r\nidempotency-key: {}\r\n", key("1").wire())), "{}", requests[0]);
    assert!(has(&format!("\r\nauthorization: Bearer {CANARY}\r\n")));
    assert!(has("\r\ncontent-length: 27\r\n"), "{}", requests[0]);
    assert!(requests[0].ends_with("\r\n\r\n{\"cents\": 9007199254740993}"));
}

#[tokio::test]
async fn b44_one_charge_has_one_key_and_another_charge_another() {
    let peer = Peer::start([answer(408, "", "")]).await;
    let performer = performer(&http(&peer.url()));
    for id in ["1", "1", "1", "2"] {
        let request = post(&peer.url(), "{}");
        let seen = attempted(performer.perform(&key(id), "t", &request, || true).await);
        assert_eq!(seen.outcome, Outcome::Unknown);
    }
    let sent = |id: &str| {
        let wire = key(id).wire();
        peer.requests().iter().filter(|request| request.contains(&wire)).count()
    };
    assert_eq!((sent("1"), sent("2")), (3, 1));
}

#[tokio::test]
async fn p5_s13_a_refused_credential_halts_and_is_not_repeated_to_anybody() {
    let echo = format!("no such token: Bearer {CANARY}\r\n\u{1b}[31m");
    let peer = Peer::start([answer(401, "", &echo)]).await;
    for (auth, sent) in [
        (Auth::Bearer(token()), format!("Bearer {CANARY}")),
        (
            Auth::Header { name: "X-Key".into(), value: SecretText("v=${secret:token}".into()) },
            format!("v={CANARY}"),
        ),
        (
            Auth::Basic { user: SecretText("me".into()), password: token() },
            "Basic bWU6Y2FuYXJ5LXMzY3JldA==".to_owned(),
        ),
    ] {
        let performer = performer(&with_auth(http(&peer.url()), auth));
        let seen = attempt(&performer, &post(&peer.url(), "{}")).await;
        assert_eq!((&seen.outcome, seen.status), (&Outcome::Halted, Some(401)));
        assert!(peer.requests().last().unwrap().contains(&sent), "{sent}");
        let shown = format!("{performer:?} {seen:?}");
        assert!(!shown.contains(CANARY), "{shown}");
        assert!(seen.text.starts_with("no such token: "), "{}", seen.text);
        assert!(!seen.text.contains(char::is_control));
    }
}

#[tokio::test]
async fn p5_p6_p7_refusals_are_told_apart() {
    let limited = "retry-after: Sun, 06 Nov 1994 08:50:07 GMT\r\n\
                   date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    for (act, want) in [
        (answer(422, "", "bad amount"), Outcome::Rejected),
        (answer(403, "", ""), Outcome::Halted),
        (answer(429, "retry-after: 7\r\n", ""), Outcome::Throttled { retry_after_ms: Some(7_000) }),
        (answer(429, limited, ""), Outcome::Throttled { retry_after_ms: Some(30_000) }),
        (answer(429, "", ""), Outcome::Throttled { retry_after_ms: None }),
        (answer(503, "retry-after: 1\r\n", ""), Outcome::Unknown),
        (answer(409, "", "in progress"), Outcome::Throttled { retry_after_ms: None }),
    ] {
        let peer = Peer::start([act.clone()]).await;
        let performer = performer(&status(http(&peer.url()), 409, StatusClass::Throttled));
        let seen = attempt(&performer, &post(&peer.url(), "{}")).await;
        assert_eq!(seen.outcome, want, "{act:?}");
    }
}

#[tokio::test]
async fn p10_a_redirect_is_not_followed() {
    let target = Peer::start([answer(200, "", "")]).await;
    let location = format!("location: {}\r\n", target.url());
    for code in [301, 302, 303, 307, 308] {
        let told_first = !matches!(code, 302 | 303);
        let want = if told_first { Outcome::Halted } else { Outcome::Unknown };
        let peer = Peer::start([answer(code, &location, "")]).await;
        let seen = attempt(&performer(&http(&peer.url())), &post(&peer.url(), "{}")).await;
        assert_eq!((seen.outcome, seen.status), (want, Some(code)));
        assert!(seen.text.contains(&target.url()), "{}", seen.text);
    }
    assert_eq!(target.connections(), 0);
}

#[tokio::test]
async fn p9_a_huge_answer_is_bounded() {
    let pour = |status| Act::Pour(head(status, "", 1 << 30), 8 << 20);
    let peer = Peer::start([pour(200), pour(200), pour(422)]).await;
    let recorded = performer(&recording(http(&peer.url()), "id", "response.text"));
    let seen = attempt(&recorded, &post(&peer.url(), "{}")).await;
    assert_eq!(seen.outcome, Outcome::Unknown);
    assert!(seen.text.starts_with("success, but the answer"), "{}", seen.text);
    let plain = performer(&http(&peer.url()));
    let seen = attempt(&plain, &post(&peer.url(), "{}")).await;
    assert_eq!(seen.outcome.class(), OutcomeClass::Done);
    let seen = attempt(&plain, &post(&peer.url(), "{}")).await;
    assert_eq!((seen.outcome, seen.text.chars().count()), (Outcome::Rejected, 500));
}

#[tokio::test]
async fn who_may_not_send_opens_no_connection() {
    let peer = Peer::start([answer(200, "", "")]).await;
    let performer = performer(&http(&peer.url()));
    let performed = performer.perform(&key("1"), "t", &post(&peer.url(), "{}"), || false).await;
    assert_eq!(performed, Performed::NotSent);
    assert_eq!(peer.connections(), 0);
}

/// The right to send ends while the connection is being made, or while a pooled one is taken.
#[tokio::test]
async fn who_loses_the_right_while_connecting_sends_no_byte() {
    let peer = Peer::start([answer(200, "", "")]).await;
    let performer = performer(&http(&peer.url()));
    let once = || {
        let asked = Arc::new(AtomicUsize::new(0));
        move || asked.fetch_add(1, Ordering::SeqCst) == 0
    };
    let request = post(&peer.url(), "{}");
    assert_eq!(performer.perform(&key("1"), "t", &request, once()).await, Performed::NotSent);
    assert_eq!((peer.connections(), peer.bytes()), (1, 0));
    assert_eq!(attempt(&performer, &request).await.outcome.class(), OutcomeClass::Done);
    let before = peer.bytes();
    assert_eq!(performer.perform(&key("2"), "t", &request, once()).await, Performed::NotSent);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!((peer.bytes(), peer.requests().len()), (before, 1));
}

#[tokio::test]
async fn a_request_without_a_body_is_sent_as_well() {
    let peer = Peer::start([answer(204, "", "")]).await;
    let performer = performer(&http(&peer.url()));
    let request = |body: Option<&str>| {
        Request::Http(HttpRequest {
            method: "DELETE".into(),
            url: peer.url().into(),
            headers: Vec::new(),
            body: body.map(Into::into),
        })
    };
    for body in [None, Some("")] {
        let seen = attempt(&performer, &request(body)).await;
        assert_eq!(seen.outcome.class(), OutcomeClass::Done);
    }
    assert_eq!(peer.requests().len(), 2);
    assert!(peer.requests()[0].starts_with("DELETE /charges HTTP/1.1\r\n"));
}

#[tokio::test]
async fn s11_an_event_cannot_bring_a_header_of_its_own() {
    let peer = Peer::start([answer(200, "", "")]).await;
    for (name, value) in [("x-id", "a\r\nx-admin: 1"), ("x-id\r\nx", "a"), ("x-id", "a\0")] {
        let request = Request::Http(HttpRequest {
            method: "POST".into(),
            url: peer.url().into(),
            headers: vec![(name.into(), value.into())],
            body: Some("{}".into()),
        });
        let seen = attempt(&performer(&http(&peer.url())), &request).await;
        assert_eq!(seen.outcome, Outcome::Rejected, "{name:?} {value:?}");
    }
    assert_eq!(peer.connections(), 0);
}

#[tokio::test]
async fn s7_an_event_that_names_an_inner_host_is_rejected() {
    let peer = Peer::start([answer(200, "", "")]).await;
    let rule = http("{{ event.endpoint }}");
    let guarded = performer(&rule);
    for url in [peer.url(), format!("https://{}/", peer.address), "https://localhost/hook".into()] {
        let seen = attempt(&guarded, &post(&url, "{}")).await;
        assert_eq!(seen.outcome, Outcome::Rejected, "{url}: {}", seen.text);
    }
    assert_eq!(peer.connections(), 0);
    let allowing = Egress::allowing([peer.address.to_string()]);
    let allowed = Performer::new(&rule, &canaries(), &allowing, || NOW_MS).unwrap();
    let seen = attempt(&allowed, &post(&peer.url(), "{}")).await;
    assert_eq!(seen.outcome.class(), OutcomeClass::Done);
}

#[tokio::test]
async fn an_effect_that_cannot_be_performed_is_refused_when_it_is_made() {
    let missing = Auth::Bearer(SecretText("${secret:other}".into()));
    assert_eq!(
        refused(&with_auth(http("http://a.local/"), missing)).to_string(),
        "`${secret:other}` has no value: put a file `other` into the directory that \
         ONCELY_SECRETS_DIR names"
    );
    let to_event = with_auth(http("https://{{ event.host }}/"), Auth::Bearer(token()));
    assert!(matches!(refused(&to_event), PerformerError::SecretToEventHost));
    assert!(matches!(refused(&http("ftp://a.local/")), PerformerError::Scheme { .. }));
    let mut framing = http("http://a.local/");
    if let RequestRule::Http(http) = &mut framing.request {
        let value = Template::compile("chunked", Target::Text).unwrap();
        http.headers.push(("Transfer-Encoding".into(), value));
    }
    assert!(matches!(refused(&framing), PerformerError::Framing { .. }));
    let broken = Auth::Header { name: "X-Key".into(), value: SecretText("a\nb".into()) };
    let error = refused(&with_auth(http("http://a.local/"), broken));
    assert!(matches!(error, PerformerError::CredentialBytes { .. }));
}

/// The file once let events name the host, or named another one: the credential stays here.
#[tokio::test]
async fn s13_a_stored_request_to_another_host_gets_no_credential() {
    let (old, new) = (Peer::start([answer(200, "", "")]).await, Peer::start([]).await);
    let performer = performer(&with_auth(http(&new.url()), Auth::Bearer(token())));
    let seen = attempt(&performer, &post(&old.url(), "{}")).await;
    assert_eq!(seen.outcome, Outcome::Halted);
    assert_eq!((old.connections(), new.connections()), (0, 0));
}

#[tokio::test]
async fn a_request_of_another_host_goes_where_the_file_says_now_or_nobody_has_said() {
    let now = |url: &str| performer(&http(url));
    let stored = |url: &str| post(url, "{}");
    let there = |url: &str, old: &str| {
        let moved = now(url).moved(&stored(old))?;
        let request = moved.request.map(|request| match request {
            Request::Http(request) => {
                assert_eq!(request.body.as_deref(), Some("{}"));
                request.url.to_string()
            }
            other @ (Request::Email(_) | Request::Record(_)) => panic!("{other:?}"),
        });
        Some((moved.from, moved.to, request))
    };
    for (url, old, want) in [
        ("http://new:81/v1/{{ event.id }}", "http://old/v1/7?a=b", "http://new:81/v1/7?a=b"),
        ("https://new/charge", "http://new/charge", "https://new/charge"),
        ("http://new:9/charge", "http://new:8/charge", "http://new:9/charge"),
        ("http://new?id={{ event.id }}", "http://old/?id=%20", "http://new/?id=%20"),
    ] {
        let (from, to, request) = there(url, old).unwrap();
        assert!(old.starts_with(&from) && want.starts_with(&to), "{from} {to}");
        assert_eq!(request.as_deref(), Some(want));
    }
    for (url, old) in [
        ("http://new:80/v1/charge", "http://new/v1/charge"),
        ("http://NEW/v1/charge", "http://new/v1/other"),
        ("{{ event.url }}", "http://anywhere/"),
        ("http://new/", "no url"),
    ] {
        assert_eq!(there(url, old), None, "{url} {old}");
    }
    let none = there("http://new/v2/charge", "http://old/v1/charge").unwrap();
    assert_eq!(none, ("http://old".to_owned(), "http://new".to_owned(), None));
    let beside = there("http://new.example/", "http://new.example.org/").unwrap();
    assert_eq!(beside.2.as_deref(), Some("http://new.example/"));
}

#[tokio::test]
async fn a_stored_request_of_another_type_halts() {
    let mail = Request::Email(EmailRequest {
        from: "a@example.org".into(),
        to: "b@example.net".into(),
        subject: "x".into(),
        text: Some("x".into()),
        html: None,
    });
    let seen = attempt(&performer(&http("http://127.0.0.1:1/")), &mail).await;
    assert_eq!(seen.outcome, Outcome::Halted);
}

/// Prints the pace of plain calls; run it by name with `--ignored --nocapture` in a release build.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, not a check"]
async fn pace_of_plain_calls() {
    const CALLS: usize = 50_000;
    let peer = Peer::start([answer(200, "", r#"{"id":"ch_1"}"#)]).await;
    let mut rule = recording(http(&peer.url()), "charge", "response.json.id");
    rule.limits.concurrency = 64;
    let performer = Arc::new(performer(&rule));
    let began = Instant::now();
    let lanes = (0..64).map(|lane| {
        let (performer, url) = (Arc::clone(&performer), peer.url());
        tokio::spawn(async move {
            for call in 0..CALLS / 64 {
                let request = post(&url, r#"{"invoice":"in_1","cents":1250}"#);
                let key = key(&format!("{lane}-{call}"));
                let seen = attempted(performer.perform(&key, "t", &request, || true).await);
                assert_eq!(seen.outcome.class(), OutcomeClass::Done);
            }
        })
    });
    for lane in lanes.collect::<Vec<_>>() {
        lane.await.unwrap();
    }
    let pace = CALLS as f64 / began.elapsed().as_secs_f64();
    eprintln!("{pace:.0} calls/s on {} connections", peer.connections());
}
