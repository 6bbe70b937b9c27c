//! Mails: the phase in which something breaks decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oncely_connectors::effect::performer::{Performed, PerformerError};
use oncely_core::connector::{Auth, SecretText};
use oncely_core::effect::outcome::{Attempt, Outcome, OutcomeClass};
use oncely_core::effect::request::{EmailRequest, Request};
use oncely_core::value::Value;
use tokio::net::TcpListener;

use super::fixture::{
    CANARY, attempt, key, performer, recording, refused, short, smtp, token, with_auth,
};
use super::mail_peer::{MailPeer, Step, Twist};

fn mail(to: &str, text: &str) -> Request {
    Request::Email(EmailRequest {
        from: "Billing <billing@example.org>".into(),
        to: to.into(),
        subject: "Quittung für 7".into(),
        text: Some(text.into()),
        html: Some("<p>x</p>".into()),
    })
}

async fn seen(twist: Option<(Step, Twist)>) -> (Attempt, MailPeer) {
    let peer = MailPeer::start(twist).await;
    let performer = performer(&short(smtp(&peer.url())));
    let seen = attempt(&performer, &mail("ann@example.net", "hello")).await;
    (seen, peer)
}

#[tokio::test]
async fn p3_an_accepted_mail_is_done() {
    let peer = MailPeer::start(None).await;
    let performer = performer(&recording(smtp(&peer.url()), "reply", "response.text"));
    let seen =
        attempt(&performer, &mail("ann@example.net, Bob <bob@example.net>", ".\nhi\n.")).await;
    let reply = Value::object([("reply", Value::text("queued as 4711"))]);
    assert_eq!((seen.outcome, seen.status), (Outcome::Done(reply), Some(250)));
    let log = peer.log();
    let named = |name: &str| log.commands.iter().filter(|line| line.starts_with(name)).count();
    assert_eq!((named("MAIL"), named("RCPT"), log.messages.len()), (1, 2, 1));
    let id = format!("Message-ID: <{}@example.org>\r\n", key("1").wire());
    assert!(log.messages[0].contains(&id), "{}", log.messages[0]);
    assert!(log.messages[0].contains(&format!("Idempotency-Key: {}\r\n", key("1").wire())));
    let ends = log.messages[0].matches("\r\n.\r\n").count();
    assert_eq!(ends, 1, "only the end of the message is a line with one dot");
}

#[tokio::test]
async fn p2_every_phase_that_dies_or_hangs_has_its_class() {
    for (step, want) in [
        (Step::Greeting, Outcome::NotApplied),
        (Step::Ehlo, Outcome::NotApplied),
        (Step::Mail, Outcome::NotApplied),
        (Step::Rcpt, Outcome::NotApplied),
        (Step::Data, Outcome::NotApplied),
        (Step::MidText, Outcome::Unknown),
        (Step::Text, Outcome::Unknown),
    ] {
        for twist in [Twist::Die, Twist::Hang, Twist::Reply("no smtp at all")] {
            if matches!((step, twist), (Step::MidText, Twist::Reply(_))) {
                continue;
            }
            let (seen, _) = seen(Some((step, twist))).await;
            assert_eq!(seen.outcome, want, "{step:?} {twist:?}: {}", seen.text);
        }
    }
}

#[tokio::test]
async fn p5_p6_every_reply_has_its_class() {
    use OutcomeClass::{Halted, NotApplied, Rejected, Throttled, Unknown};
    for (step, reply, want) in [
        (Step::Greeting, "554 no service for you", Halted),
        (Step::Greeting, "421 too busy", Throttled),
        (Step::Mail, "530 log in first", Halted),
        (Step::Mail, "451 later", NotApplied),
        (Step::Rcpt, "550 no such user", Rejected),
        (Step::Rcpt, "450 greylisted", NotApplied),
        (Step::Data, "554 no", Rejected),
        (Step::Data, "250 what now", NotApplied),
        (Step::Text, "554 spam", Rejected),
        (Step::Text, "451 later", NotApplied),
        (Step::Text, "354 go on", Unknown),
    ] {
        let (seen, peer) = seen(Some((step, Twist::Reply(reply)))).await;
        assert_eq!(seen.outcome.class(), want, "{step:?} {reply}: {}", seen.text);
        let code = reply.get(..3).unwrap().parse().unwrap();
        assert_eq!(seen.status, Some(code), "{step:?} {reply}");
        assert_eq!(peer.log().text_bytes > 0, step == Step::Text, "{step:?} {reply}");
    }
}

#[tokio::test]
async fn p1_a_refused_connection_is_not_applied() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let seen = attempt(&performer(&smtp(&format!("smtp://{free}"))), &mail("a@b.org", "x")).await;
    assert_eq!(seen.outcome, Outcome::NotApplied, "{}", seen.text);
}

#[tokio::test]
async fn s24_without_encryption_where_it_was_asked_for_nothing_is_said() {
    let peer = MailPeer::start(None).await;
    let url = format!("smtp+starttls://{}", peer.address);
    let rule = with_auth(smtp(&url), Auth::Basic { user: token(), password: token() });
    let seen = attempt(&performer(&rule), &mail("a@b.org", "x")).await;
    assert_eq!(seen.outcome, Outcome::Halted, "{}", seen.text);
    assert!(peer.log().commands.iter().all(|line| !line.starts_with("AUTH")));
}

#[tokio::test]
async fn p5_s13_a_refused_login_halts_and_keeps_its_secret() {
    let twist = Twist::Reply("535 canary-s3cret is not the password");
    for (twist, want) in
        [(Some((Step::Auth, twist)), OutcomeClass::Halted), (None, OutcomeClass::Done)]
    {
        let peer = MailPeer::start(twist).await;
        let auth = Auth::Basic { user: SecretText("me".into()), password: token() };
        let performer = performer(&with_auth(smtp(&peer.url()), auth));
        let seen = attempt(&performer, &mail("a@b.org", "x")).await;
        let shown = format!("{performer:?} {seen:?}");
        assert!(!shown.contains(CANARY), "{shown}");
        assert_eq!(seen.outcome.class(), want);
    }
}

#[tokio::test]
async fn s9_an_event_cannot_bring_headers_or_commands() {
    let peer = MailPeer::start(None).await;
    let performer = performer(&smtp(&peer.url()));
    for to in
        ["a@b.org\r\nRCPT TO:<x@y.z>", "a@b.org\nBcc: x@y.z", "a@b.org>\r\nDATA", "nobody", ""]
    {
        let seen = attempt(&performer, &mail(to, "x")).await;
        assert_eq!(seen.outcome, Outcome::Rejected, "{to:?}");
        assert!(!seen.text.contains("x@y.z"), "{}", seen.text);
    }
    assert!(peer.log().commands.is_empty());
    let smuggled = "x\n.\nMAIL FROM:<evil@y.z>\r.\rRCPT TO:<x@y.z>\r\n.\r\nDATA";
    let seen = attempt(&performer, &mail("a@b.org", smuggled)).await;
    assert_eq!(seen.outcome.class(), OutcomeClass::Done);
    let log = peer.log();
    assert_eq!(log.messages.len(), 1);
    let without_pairs = log.messages[0].replace("\r\n", "");
    assert!(!without_pairs.contains(['\r', '\n']));
    assert!(log.commands.iter().all(|line| !line.contains("y.z")), "{:?}", log.commands);
}

#[tokio::test]
async fn who_loses_the_right_before_the_text_sends_none_of_it() {
    let peer = MailPeer::start(None).await;
    let performer = performer(&smtp(&peer.url()));
    let asked = Arc::new(AtomicUsize::new(0));
    let once = move || asked.fetch_add(1, Ordering::SeqCst) == 0;
    let performed = performer.perform(&key("1"), "t", &mail("a@b.org", "x"), once).await;
    assert_eq!(performed, Performed::NotSent);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let log = peer.log();
    assert!(log.commands.iter().any(|line| line == "DATA"), "{:?}", log.commands);
    assert_eq!((log.text_bytes, log.messages.len()), (0, 0));
}

#[test]
fn what_no_mail_server_takes_is_refused_when_it_is_made() {
    let basic = || Auth::Basic { user: token(), password: token() };
    let plain = refused(&with_auth(smtp("smtp://mail.local"), basic()));
    assert!(matches!(plain, PerformerError::PlainCredentials));
    let bearer = refused(&with_auth(smtp("smtps://mail.local"), Auth::Bearer(token())));
    assert!(matches!(bearer, PerformerError::MailAuth));
    assert!(matches!(refused(&smtp("http://mail.local")), PerformerError::MailServer));
}
