//! Signed calls, and endpoints that are not called.

use std::sync::atomic::{AtomicI64, Ordering};

use oncely_connectors::effect::egress::Egress;
use oncely_connectors::effect::performer::{Performer, PerformerError};
use oncely_connectors::effect::webhook::Signer;
use oncely_connectors::secret::Secret;
use oncely_core::effect::outcome::{Outcome, OutcomeClass};

use super::fixture::{
    CANARY, NOW_MS, WEBHOOK, WEBHOOK_NEW, attempt, canaries, key, performer, post, refused, webhook,
};
use super::peer::{Peer, answer};

const BODY: &str = r#"{"email":"test@example.com","username":"test_user"}"#;

/// The value of a request's header.
fn header<'t>(request: &'t str, name: &str) -> Option<&'t str> {
    let mut pairs = request.lines().filter_map(|line| line.split_once(": "));
    pairs.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// B38, S3: the id stays, the time is the attempt's own, and every secret signs what is sent.
#[tokio::test]
async fn b38_s3_each_attempt_is_signed_with_every_secret() {
    static NOW: AtomicI64 = AtomicI64::new(NOW_MS);
    let peer = Peer::start([answer(500, "", ""), answer(204, "", "")]).await;
    let host = peer.address.to_string();
    let rule = webhook(&peer.url(), &["webhook_new", "webhook"], &[&host]);
    let clock = || NOW.fetch_add(60_000, Ordering::SeqCst);
    let performer = Performer::new(&rule, &canaries(), &Egress::default(), clock).unwrap();
    let request = post(&peer.url(), BODY);
    assert_eq!(attempt(&performer, &request).await.outcome, Outcome::Unknown);
    assert_eq!(attempt(&performer, &request).await.outcome.class(), OutcomeClass::Done);
    let signer = Signer::new(&[Secret::new(WEBHOOK_NEW), Secret::new(WEBHOOK)]).unwrap();
    let id = key("1").wire();
    for (number, text) in peer.requests().iter().enumerate() {
        let at_s = u64::try_from(NOW_MS / 1_000).unwrap() + 60 * u64::try_from(number).unwrap();
        assert_eq!(header(text, "webhook-id"), Some(&*id), "{text}");
        assert_eq!(header(text, "webhook-timestamp"), Some(&*at_s.to_string()), "{text}");
        let signed = signer.sign(&id, at_s, BODY.as_bytes());
        assert_eq!(header(text, "webhook-signature"), Some(&*signed), "{text}");
        assert_eq!(signed.matches("v1,").count(), 2);
        assert!(text.ends_with(BODY), "{text}");
        assert!(!text.contains("whsec"), "{text}");
    }
    assert_eq!(peer.requests().len(), 2);
}

/// S7: also where the file names the host, what is not public is called only by its permission.
#[tokio::test]
async fn s7_an_endpoint_inside_is_called_only_where_the_file_allows_it() {
    let peer = Peer::start([answer(200, "", "")]).await;
    let by_file = webhook(&peer.url(), &["webhook"], &[]);
    let error = refused(&by_file);
    assert!(matches!(error, PerformerError::Endpoint { .. }), "{error}");
    assert!(error.to_string().contains("`allow`"), "{error}");
    let by_event = webhook("{{ event.endpoint }}", &["webhook"], &[]);
    let guarded = performer(&by_event);
    for url in [peer.url(), format!("https://{}/", peer.address), "https://localhost/".to_owned()] {
        let seen = attempt(&guarded, &post(&url, "{}")).await;
        assert_eq!(seen.outcome, Outcome::Rejected, "{url}: {}", seen.text);
    }
    assert_eq!(peer.connections(), 0, "nobody was even connected to");
    let allowed = webhook("{{ event.endpoint }}", &["webhook"], &[&peer.address.to_string()]);
    let seen = attempt(&performer(&allowed), &post(&peer.url(), "{}")).await;
    assert_eq!(seen.outcome.class(), OutcomeClass::Done);
    let elsewhere = format!("http://{}:1/", peer.address.ip());
    let seen = attempt(&performer(&allowed), &post(&elsewhere, "{}")).await;
    assert_eq!(seen.outcome, Outcome::Rejected, "another port is another door");
}

/// P10: a redirect could lead inside; it is not followed.
#[tokio::test]
async fn p10_s7_a_redirect_is_not_followed() {
    let inside = Peer::start([answer(200, "", "")]).await;
    let to = format!("location: {}\r\n", inside.url());
    let peer = Peer::start([answer(307, &to, "")]).await;
    let rule = webhook(&peer.url(), &["webhook"], &[&peer.address.ip().to_string()]);
    let seen = attempt(&performer(&rule), &post(&peer.url(), "{}")).await;
    assert_eq!(seen.outcome, Outcome::Halted, "{}", seen.text);
    assert_eq!(inside.connections(), 0);
}

#[test]
fn a_secret_that_cannot_sign_is_named_and_not_shown() {
    let error = refused(&webhook("https://hooks.example.com/", &["webhook", "token"], &[]));
    let text = error.to_string();
    assert!(text.starts_with("`${secret:token}`: a webhook secret begins with `whsec_`"), "{text}");
    assert!(text.contains("openssl rand"), "{text}");
    assert!(!text.contains(CANARY), "{text}");
}
