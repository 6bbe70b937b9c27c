//! Signed calls of endpoints that are somebody else's.

use std::collections::{BTreeMap, BTreeSet};

use oncely_rig::provider::{Fault, Rule};
use oncely_tests::ledger::{Ending, Fate};
use oncely_tests::wiring::{WEBHOOK_SECRETS, webhook};
use oncely_tests::world::BOUND;
use oncely_tests::{Event, Record, Wiring, World};

/// Pays an invoice whose owner is to be told at this url.
async fn pay(world: &World, number: usize, endpoint: &str) -> String {
    pay_as(world, "acct_7", number, endpoint).await
}

async fn pay_as(world: &World, tenant: &str, number: usize, endpoint: &str) -> String {
    let invoice = World::invoice(number);
    let event = Event::paid(&invoice, 1).account(tenant);
    let mut json = event.json();
    json["data"]["endpoint"] = endpoint.into();
    let record = Record::of(json.to_string()).key(&invoice);
    world.produce(&record, Some(&event.id), Fate::Applied).await;
    invoice
}

/// An endpoint of the provider, as workers reach it.
fn endpoint(world: &World, name: &str) -> String {
    format!("http://{}/webhooks/{name}", world.provider_proxy.addr())
}

/// B38, S3: the receiver believes every attempt, before and after it went over to another secret, and
/// knows the repeats of a killed worker's by their id; each is signed for its own moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b38_s3_webhooks_are_believed_and_known_again_after_a_kill() {
    let wiring = Wiring::invoices("signed").effects([webhook()]);
    let mut world = World::plan(wiring).partitions(1).start().await;
    let [(_, new), (_, old)] = WEBHOOK_SECRETS;
    world.provider.set_webhook_secrets([old.to_owned()]);
    let first = world.run().await;
    world.provider.hold_answers();
    let to = endpoint(&world, "shop");
    for number in 1..=6 {
        let invoice = pay(&world, number, &to).await;
        world.owe("webhook", &invoice, Ending::Done);
    }
    world.provider.wait_held(6, BOUND).await.unwrap();
    // Told, and nobody knows it: then the receiver goes over to the other secret.
    world.workers[first].kill9().await;
    world.provider.set_webhook_secrets([new.to_owned()]);
    world.provider.release();
    world.run().await;
    let invoice = pay(&world, 7, &to).await;
    world.owe("webhook", &invoice, Ending::Done);
    world.settled().await;
    let log = world.provider.read_log().unwrap();
    assert_eq!(log.answers_with(401), 0, "every attempt was believed");
    assert_eq!(log.effects_at("/webhooks/"), 7);
    let mut moments: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for call in log.calls() {
        let signed = call.signed.expect("a signed call");
        assert_eq!(signed.signatures.split(' ').count(), 2, "{signed:?}");
        moments.entry(call.key.unwrap()).or_default().insert(&signed.timestamp);
    }
    assert_eq!(moments.len(), 7);
    let repeated = moments.values().filter(|moments| moments.len() > 1).count();
    assert_eq!(repeated, 6, "a repeat is signed for its own moment: {moments:?}");
    world.check_invariants().await;
}

/// S7: an event cannot aim at our own network, by address or by name; what it names is a dead letter
/// that says why, and others are told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s7_an_endpoint_inside_is_not_called_and_others_are() {
    let mut hook = webhook();
    hook.replace("allow: [\"127.0.0.1\"]", "allow: [\"127.0.0.1:{port}\"]");
    let wiring = Wiring::invoices("inside").effects([hook]);
    let mut world = World::plan(wiring).partitions(1).start().await;
    let port = world.provider_proxy.addr().port().to_string();
    world.wiring.effects[0].replace("{port}", &port);
    world.write_wiring();
    world.provider.set_webhook_secrets(WEBHOOK_SECRETS.map(|(_, secret)| secret.to_owned()));
    world.run().await;
    let direct = world.provider.http_addr();
    for (number, to) in [
        format!("http://{direct}/webhooks/other-port"),
        "http://169.254.169.254/webhooks/metadata".to_owned(),
        "https://[::ffff:10.0.0.1]/webhooks/mapped".to_owned(),
        format!("https://localhost:{}/webhooks/name", direct.port()),
        "https://localhost/webhooks/name".to_owned(),
        "http://example.com/webhooks/unencrypted".to_owned(),
    ]
    .into_iter()
    .enumerate()
    {
        let invoice = pay(&world, number + 1, &to).await;
        world.owe("webhook", &invoice, Ending::Rejected);
    }
    let invoice = pay(&world, 9, &endpoint(&world, "shop")).await;
    world.owe("webhook", &invoice, Ending::Done);
    world.settled().await;
    assert_eq!(world.provider.counts().received, 1, "nobody else was called");
    let why =
        world.sql("SELECT DISTINCT note FROM oncely.attempt WHERE outcome = 'rejected'").await;
    let why: Vec<&str> = why.iter().map(|row| row[0].as_deref().unwrap()).collect();
    assert!(why.iter().any(|text| text.contains("not public")), "{why:?}");
    assert!(why.iter().any(|text| text.contains("not https")), "{why:?}");
    world.check_invariants().await;
}

/// P5: a receiver that says that it is gone is called no more, by no process, until a person says
/// otherwise; others of the same effect are told all the while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p5_an_endpoint_that_is_gone_is_called_no_more() {
    let wiring = Wiring::invoices("gone").effects([webhook()]);
    let mut world = World::plan(wiring).partitions(1).start().await;
    world.provider.set_webhook_secrets(WEBHOOK_SECRETS.map(|(_, secret)| secret.to_owned()));
    world.provider.fail(Rule::always(Fault::status(410)).to("/webhooks/gone"));
    let (gone, shop) = (endpoint(&world, "gone"), endpoint(&world, "shop"));
    let first = world.run().await;
    for (number, to, ending) in [
        (1, &gone, Ending::Rejected),
        (2, &shop, Ending::Done),
        (3, &gone, Ending::Rejected),
        (4, &shop, Ending::Done),
    ] {
        let invoice = pay(&world, number, to).await;
        world.owe("webhook", &invoice, ending);
        world.settled().await;
    }
    assert!(world.workers[first].log().contains("endpoint disabled"), "it is told");
    world.workers[first].kill9().await;
    world.run().await;
    let invoice = pay(&world, 5, &gone).await;
    world.owe("webhook", &invoice, Ending::Rejected);
    world.settled().await;
    let log = world.provider.read_log().unwrap();
    assert_eq!(log.calls_at("/webhooks/gone"), 1, "once was enough, for a new process as well");
    assert_eq!(log.effects_at("/webhooks/shop"), 2);
    let said = world.oncely(&["webhooks", "list"]).await;
    assert_eq!(said.json["endpoints"].as_array().map(Vec::len), Some(1), "{said:?}");
    assert_eq!(said.json["endpoints"][0]["url"], gone.as_str(), "{said:?}");
    let letters = world.oncely(&["dlq", "list"]).await;
    assert_eq!(letters.json.to_string().matches("webhooks enable").count(), 2, "{letters:?}");

    // It is there again.
    world.provider.heal();
    let said = world.oncely(&["webhooks", "enable", &gone, "--reason", "x", "--dry-run"]).await;
    assert_eq!(said.json["enabled"][0]["url"], gone.as_str(), "{said:?}");
    world.overrides(&["webhooks", "enable", &gone]).await;
    let mut number = 6;
    loop {
        assert!(number < 200, "a person's word is not heard");
        let invoice = pay(&world, number, &gone).await;
        number += 1;
        world.owe("webhook", &invoice, Ending::Rejected);
        world.settled().await;
        if world.status_of("webhook", &invoice).await.as_deref() == Some("done") {
            world.owe("webhook", &invoice, Ending::Done);
            break;
        }
    }
    world.check_invariants().await;
}

/// S3, P10: an endpoint that does not know the secret yet, or has moved, halts nobody else's webhooks; it
/// is told when it has mended that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_p10_an_endpoint_that_refuses_stops_no_other() {
    let wiring = Wiring::invoices("refusing").effects([webhook()]);
    let mut world = World::plan(wiring).partitions(1).start().await;
    world.provider.fail(Rule::always(Fault::status(307)).to("/webhooks/moved"));
    world.run().await;
    let (shop, moved) = (endpoint(&world, "shop"), endpoint(&world, "moved"));
    let refused = pay(&world, 1, &moved).await;
    let unknown = pay(&world, 2, &shop).await;
    for invoice in [&refused, &unknown] {
        world.owe("webhook", invoice, Ending::Done);
    }
    let tried = "SELECT count(*) FROM oncely.effect WHERE failures >= 2";
    world.until_count("both to be tried again", tried, 2).await;
    world.provider.set_webhook_secrets(WEBHOOK_SECRETS.map(|(_, secret)| secret.to_owned()));
    let done = async || world.status_of("webhook", &unknown).await.as_deref() == Some("done");
    world.until("the shop to be told", done).await;
    let third = pay(&world, 3, &shop).await;
    world.owe("webhook", &third, Ending::Done);
    let done = async || world.status_of("webhook", &third).await.as_deref() == Some("done");
    world.until("others to be told meanwhile", done).await;
    let log = world.provider.read_log().unwrap();
    assert_eq!(log.calls_at("/plain/elsewhere"), 0, "a redirect is not followed");
    let why = world.sql("SELECT DISTINCT note FROM oncely.attempt WHERE status_code = 307").await;
    assert!(why[0][0].as_deref().unwrap().contains("redirects are not followed"), "{why:?}");
    world.provider.heal();
    world.check_invariants().await;
}

/// S3: each tenant has a secret of its own, and changes it while the processor runs; one that has none yet
/// waits for it, and nobody else does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_a_tenants_own_secret_signs_what_it_is_told() {
    let mut hook = webhook();
    let own = r#"["${secret:hook-{{ tenant }}}", "${secret:hook-old-{{ tenant }}}"]"#;
    hook.replace(r#"["${secret:webhook_new}", "${secret:webhook_old}"]"#, own);
    let mut world =
        World::plan(Wiring::invoices("tenants").effects([hook])).partitions(1).start().await;
    let [(_, new), (_, old)] = WEBHOOK_SECRETS;
    let secrets = world.dir().join("secrets");
    let set = |name: &str, secret: &str| std::fs::write(secrets.join(name), secret).unwrap();
    world.provider.set_webhook_secrets([old.to_owned()]);
    set("hook-acct_1", old);
    world.run().await;
    let to = endpoint(&world, "shop");
    let (first, second) =
        (pay_as(&world, "acct_1", 1, &to).await, pay_as(&world, "acct_2", 2, &to).await);
    for invoice in [&first, &second] {
        world.owe("webhook", invoice, Ending::Done);
    }
    let done =
        async |invoice: &str| world.status_of("webhook", invoice).await.as_deref() == Some("done");
    world.until("the first to be told", async || done(&first).await).await;
    let missing = "SELECT count(*) FROM oncely.effect WHERE failures >= 2 AND status = 'waiting'
        AND note LIKE '%secret:hook-acct_2%'";
    world.until_count("the second to lack its secret", missing, 1).await;
    assert_eq!(world.provider.counts().received, 1, "nothing goes out unsigned");
    set("hook-acct_2", old);
    world.until("the second to be told", async || done(&second).await).await;
    // The receiver goes over: for a while both sign, and then the new one alone.
    set("hook-old-acct_1", old);
    set("hook-acct_1", new);
    let third = pay_as(&world, "acct_1", 3, &to).await;
    world.owe("webhook", &third, Ending::Done);
    world.until("the third to be told", async || done(&third).await).await;
    world.provider.set_webhook_secrets([new.to_owned()]);
    std::fs::remove_file(secrets.join("hook-old-acct_1")).unwrap();
    let fourth = pay_as(&world, "acct_1", 4, &to).await;
    world.owe("webhook", &fourth, Ending::Done);
    world.settled().await;
    let log = world.provider.read_log().unwrap();
    let signatures = |call: oncely_rig::provider::log::Call<'_>| {
        call.signed.map_or(0, |signed| signed.signatures.split(' ').count())
    };
    assert_eq!(log.calls().map(signatures).collect::<Vec<_>>(), [1, 1, 2, 1]);
    assert_eq!(log.answers_with(401), 0);
    set("hook-acct_2", new);
    world.check_invariants().await;
}
