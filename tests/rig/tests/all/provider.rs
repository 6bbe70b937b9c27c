//! The provider's rules, its faults and its log, seen by a client that reads bytes.

use std::time::Duration;

use oncely_rig::RigError;
use oncely_rig::places::Scratch;
use oncely_rig::provider::{Fault, FaultRates, Flush, Hold, Log, Provider, ProviderOptions, Rule};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const BOUND: Duration = Duration::from_secs(20);

struct World {
    provider: Provider,
    scratch: Scratch,
}

async fn world() -> World {
    world_with(|_| {}).await
}

async fn world_with(change: impl FnOnce(&mut ProviderOptions)) -> World {
    let scratch = Scratch::new(None, "provider").unwrap();
    let mut options = ProviderOptions::new(scratch.path().join("log.jsonl"));
    change(&mut options);
    World { provider: Provider::start(&options).await.unwrap(), scratch }
}

/// Status, head and body; status 0 when the connection closed without an answer.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

async fn call(
    address: std::net::SocketAddr,
    method: &str,
    path: &str,
    key: &str,
    body: &str,
) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let key = if key.is_empty() { String::new() } else { format!("Idempotency-Key: {key}\r\n") };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\n{key}Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = Vec::new();
    // A reset shows as an error after what was read before.
    drop(stream.read_to_end(&mut text).await);
    let text = String::from_utf8(text).unwrap();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        assert_eq!(text, "", "half a head");
        return Answer { status: 0, head: String::new(), body: String::new() };
    };
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

impl World {
    async fn post(&self, path: &str, key: &str, body: &str) -> Answer {
        call(self.provider.http_addr(), "POST", path, key, body).await
    }

    async fn get(&self, path: &str) -> Answer {
        call(self.provider.http_addr(), "GET", path, "", "").await
    }

    fn log(&self) -> Log {
        Log::read(&self.scratch.path().join("log.jsonl")).unwrap()
    }
}

#[tokio::test]
async fn billing_keeps_the_first_answer_of_a_key() {
    let world = world().await;
    let first =
        world.post("/v1/charges", "k-1", "amount=500&currency=eur&metadata%5Boncely%5D=k-1").await;
    assert_eq!(first.status, 200, "{first:?}");
    assert!(first.body.contains(r#""id":"ch_00000001""#), "{first:?}");
    assert!(first.body.contains(r#""amount":500"#), "{first:?}");
    let again =
        world.post("/v1/charges", "k-1", "amount=500&currency=eur&metadata%5Boncely%5D=k-1").await;
    assert_eq!((again.status, &again.body), (200, &first.body));
    assert!(again.head.contains("Idempotent-Replayed: true"), "{again:?}");
    let other =
        world.post("/v1/charges", "k-1", "amount=501&currency=eur&metadata%5Boncely%5D=k-1").await;
    assert_eq!(other.status, 400);
    assert!(other.body.contains("idempotency_error"), "{other:?}");

    let log = world.log();
    assert_eq!((log.calls_for("k-1"), log.effects_for("k-1"), log.replays()), (3, 1, 1));
    assert!(log.repeated().is_empty());
    assert_eq!(log.keys_with_other_bodies().into_iter().collect::<Vec<_>>(), ["k-1"]);

    let found = world.get("/v1/charges/search?query=metadata%5B%27oncely%27%5D%3A%27k-1%27").await;
    assert!(found.body.contains("ch_00000001") && found.body.contains(r#""total":1"#), "{found:?}");
    let found = world.get("/v1/charges?key=k-2").await;
    assert!(found.body.contains(r#""items":[]"#), "{found:?}");
}

#[tokio::test]
async fn billing_keeps_a_500_even_when_the_card_was_charged() {
    let world = world().await;
    world.provider.fail(Rule::once(Fault::StatusAfter { status: 500 }).key("a"));
    world.provider.fail(Rule::once(Fault::status(500)).key("b"));
    world
        .provider
        .fail(Rule::once(Fault::StatusBefore { status: 429, retry_after_s: Some(7) }).key("c"));
    for key in ["a", "b"] {
        assert_eq!(world.post("/v1/charges", key, "").await.status, 500);
        let again = world.post("/v1/charges", key, "").await;
        assert_eq!(again.status, 500, "{again:?}");
        assert!(again.head.contains("Idempotent-Replayed: true"), "{again:?}");
    }
    let throttled = world.post("/v1/charges", "c", "").await;
    assert!(throttled.status == 429 && throttled.head.contains("Retry-After: 7"), "{throttled:?}");
    assert_eq!(world.post("/v1/charges", "c", "").await.status, 200, "a 429 is not kept");
    let effects: Vec<usize> = ["a", "b", "c"].map(|key| world.log().effects_for(key)).into();
    assert_eq!(effects, [1, 0, 1]);
}

#[tokio::test]
async fn mail_and_keyed_endpoints_answer_in_their_own_words() {
    let world = world().await;
    let sent = world.post("/emails", "m", r#"{"to":"a"}"#).await;
    let again = world.post("/emails", "m", r#"{"to":"a"}"#).await;
    assert_eq!((sent.status, sent.body), (200, again.body));
    let other = world.post("/emails", "m", r#"{"to":"b"}"#).await;
    assert!(other.status == 409 && other.body.contains("invalid_idempotent_request"), "{other:?}");
    assert_eq!(world.post("/keyed/hook", "", "x").await.status, 400, "a key is needed");
    assert_eq!(world.post("/keyed/hook", "k", "x").await.status, 200);
    assert_eq!(world.post("/keyed/hook", "k", "y").await.status, 422);
    assert_eq!(world.post("/nowhere", "k", "y").await.status, 404);
    let log = world.log();
    assert_eq!((log.effects_at(""), log.effects_at("/keyed/")), (2, 1));
}

#[tokio::test]
async fn a_key_in_flight_is_refused_until_decided() {
    let world = world().await;
    world.provider.hold(Hold::BeforeApply);
    let (first, later) = tokio::join!(world.post("/v1/refunds", "k", "a=1"), async {
        world.provider.wait_held(1, BOUND).await.unwrap();
        let second = world.post("/v1/refunds", "k", "a=1").await;
        let error = world.provider.wait_applied(1, Duration::from_millis(50)).await.unwrap_err();
        world.provider.release();
        (second, error)
    });
    assert_eq!(first.status, 200);
    assert!(later.0.status == 409 && later.0.body.contains("idempotency_key_in_use"));
    assert!(matches!(&later.1, RigError::TimedOut { seen, .. } if seen.contains("applied: 0")));
    assert_eq!(world.log().effects_for("k"), 1);
}

#[tokio::test]
async fn plain_endpoints_repeat_and_lookups_find_what_took_effect_late() {
    let world = world_with(|options| options.apply_delay_ms = 150).await;
    for _ in 0..2 {
        assert_eq!(world.post("/plain/order", "p", "x").await.status, 200);
    }
    assert_eq!(world.log().repeated().get("p"), Some(&2));

    world.provider.fail(Rule::once(Fault::CloseAfter).to("/lookup/"));
    let cut = world.post("/lookup/order?key=r%201", "", "x").await;
    assert_eq!(cut.status, 0);
    let early = world.get("/lookup/order?key=r%201").await;
    assert!(early.body.contains(r#""total":0"#), "an effect takes its time: {early:?}");
    world.provider.wait_applied(3, BOUND).await.unwrap();
    let late = world.get("/lookup/order?key=r%201").await;
    assert!(late.body.contains(r#""total":1"#), "{late:?}");
    assert_eq!(world.provider.counts().lookups, 2);
    let first = world.post("/model/chat", "m", "{}").await.body;
    assert_ne!(first, world.post("/model/chat", "m", "{}").await.body);
}

#[tokio::test]
async fn each_fault_is_seen_by_the_client_and_told_by_the_log() {
    let world = world().await;
    let faults = [
        (Fault::CloseBefore, 0, 0),
        (Fault::ResetBefore, 0, 0),
        (Fault::CloseAfter, 0, 1),
        (Fault::ResetAfter, 0, 1),
        (Fault::HalfBody, 200, 1),
        (Fault::GarbledBody, 200, 1),
        (Fault::OversizedBytes(100_000), 200, 1),
        (Fault::DripMs(0), 200, 1),
        (Fault::DelayMs(5), 200, 1),
        (Fault::status(401), 401, 0),
        (Fault::status(302), 302, 0),
        (Fault::StatusAfter { status: 502 }, 502, 1),
    ];
    for (number, (fault, status, effects)) in faults.into_iter().enumerate() {
        let key = format!("k-{number}");
        world.provider.fail(Rule::once(fault.clone()).key(&key));
        let seen = world.post("/plain/x", &key, "body").await;
        assert_eq!(seen.status, status, "{fault:?}: {seen:?}");
        assert_eq!(world.log().effects_for(&key), effects, "{fault:?}");
        if fault == Fault::HalfBody {
            assert!(seen.body.starts_with('{') && !seen.body.ends_with('}'));
        } else if fault == Fault::GarbledBody {
            assert_eq!(seen.body, "<html>gateway</html>");
        } else if let Fault::OversizedBytes(bytes) = fault {
            assert!(seen.body.len() > bytes);
        }
    }
}

#[tokio::test]
async fn a_hang_ends_when_released_and_an_outage_when_the_listener_is_on_again() {
    let mut world = world().await;
    world.provider.fail(Rule::once(Fault::HangAfter));
    let (answer, ()) = tokio::join!(world.post("/plain/x", "k", ""), async {
        world.provider.wait_held(1, BOUND).await.unwrap();
        assert_eq!(world.log().effects_for("k"), 1);
        world.provider.heal();
    });
    assert_eq!(answer.status, 200);

    world.provider.listener_off().await;
    assert!(TcpStream::connect(world.provider.http_addr()).await.is_err());
    world.provider.listener_on().await.unwrap();
    assert_eq!(world.post("/plain/x", "k2", "").await.status, 200);
}

#[tokio::test]
async fn an_outage_leaves_no_key_in_flight() {
    let mut world = world().await;
    world.provider.hold(Hold::BeforeApply);
    let address = world.provider.http_addr();
    let cut = tokio::spawn(async move { call(address, "POST", "/keyed/x", "k", "").await });
    world.provider.wait_held(1, BOUND).await.unwrap();
    world.provider.listener_off().await;
    assert_eq!(cut.await.unwrap().status, 0);
    world.provider.release();
    world.provider.listener_on().await.unwrap();
    assert_eq!(world.post("/keyed/x", "k", "").await.status, 200);
    assert_eq!(world.provider.counts().held, 0);
}

#[tokio::test]
async fn mail_by_smtp_is_an_effect_of_its_message_id() {
    let world = world().await;
    assert_eq!(mail(&world, "<one@oncely>").await, "250");
    world.provider.fail(Rule::once(Fault::CloseAfter).to("smtp"));
    assert_eq!(mail(&world, "<two@oncely>").await, "");
    world.provider.fail(Rule::once(Fault::status(451)).to("smtp"));
    assert_eq!(mail(&world, "<three@oncely>").await, "451");
    world.provider.fail(Rule::once(Fault::CloseBefore).to("smtp"));
    assert_eq!(mail(&world, "<four@oncely>").await, "");
    let log = world.log();
    assert_eq!(log.keys_in_order("smtp"), ["one@oncely", "two@oncely"]);
    assert_eq!(log.calls_at("smtp"), 4);
}

/// The code that DATA was answered with; empty when the connection closed instead.
async fn mail(world: &World, id: &str) -> String {
    let mut stream = TcpStream::connect(world.provider.smtp_addr()).await.unwrap();
    let message = format!("Message-ID: {id}\r\nSubject: x\r\n\r\n..dotted\r\n.\r\n");
    let mut last = String::new();
    for said in ["", "EHLO x\r\n", "MAIL FROM:<a@b>\r\n", "RCPT TO:<c@d>\r\n", "DATA\r\n", &message]
    {
        stream.write_all(said.as_bytes()).await.unwrap();
        let mut bytes = [0; 512];
        let read = stream.read(&mut bytes).await.unwrap();
        last = String::from_utf8_lossy(&bytes[..read]).into_owned();
    }
    last.chars().take(3).collect()
}

#[tokio::test]
async fn a_new_key_after_a_mark_and_a_forgotten_key_are_told_apart() {
    let world = world_with(|options| options.keep_bodies = true).await;
    world.post("/v1/charges", "old", "a=1").await;
    let mark = world.log().mark();
    world.provider.forget_keys();
    world.post("/v1/charges", "old", "a=1").await;
    world.post("/v1/charges", "new", "a=2").await;
    let log = world.log();
    assert_eq!(log.new_keys_since(mark).into_iter().collect::<Vec<_>>(), ["new"]);
    assert_eq!(log.repeated().get("old"), Some(&2), "a key outside its window is charged again");
    assert_eq!(log.bodies_for("new"), ["a=2"]);
}

#[tokio::test]
async fn a_log_in_groups_has_every_line_that_was_answered_for() {
    let flush = Flush::Group { every_ms: 5, answers_wait: true };
    let rates = vec![(0.5, Fault::CloseAfter)];
    let rates = FaultRates { seed: 3, rates, attempts_max: 1 };
    let world = world_with(|options| (options.flush, options.rates) = (flush, rates)).await;
    let mut answered = 0;
    for number in 0..40 {
        let answer = world.post("/plain/x", &format!("k-{number}"), "").await;
        answered += usize::from(answer.status == 200);
        assert_eq!(world.log().effects_at("/plain/"), number + 1);
    }
    assert!((5..35).contains(&answered), "half of them by chance: {answered}");
}
