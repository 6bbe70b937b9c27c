//! The main job, with the connector files that come with the program: invoices written by Kafka's own
//! console producer, one billing call and one mail each, whatever is repeated, reordered or killed.

use std::time::Duration;

use oncely_tests::ledger::{Ending, Fate};
use oncely_tests::wiring::{EffectLines, usage};
use oncely_tests::world::Plan;
use oncely_tests::{Wiring, World, servers};
use serde_json::{Value, json};

const INVOICES: usize = 40;

/// One of the files that come with the program, for a topic of the story's own.
fn example(name: &str, topic: &str, effects: &[(&'static str, &'static str)]) -> Plan {
    let effects = effects.iter().map(|(id, endpoint)| EffectLines::elsewhere(id, endpoint));
    let wiring = Wiring::example(name, topic).effects(effects);
    World::plan(wiring).partitions(3).lease_ms(900)
}

fn paid(invoice: &str) -> Value {
    json!({
        "type": "invoice.paid",
        "account_id": "acct_7",
        "data": {
            "invoice_id": invoice, "number": invoice, "version": 2,
            "amount_cents": 4_200, "currency": "eur", "email": format!("{invoice}@example.com"),
        },
    })
}

fn past_due(invoice: &str) -> Value {
    let mut event = paid(invoice);
    event["type"] = json!("invoice.past_due");
    event["data"]["version"] = json!(1);
    event
}

/// Lines `key|value`: every invoice paid, a third of them twice more, and for some an older event at the
/// end, when it is stale.
fn lines(event_of: impl Fn(Value) -> String) -> Vec<String> {
    let line = |invoice: &str, event: Value| format!("{invoice}|{}", event_of(event));
    let mut lines = Vec::new();
    for number in 1..=INVOICES {
        let invoice = World::invoice(number);
        lines.push(line(&invoice, paid(&invoice)));
        if number % 3 == 0 {
            lines.push(line(&invoice, paid(&invoice)));
        }
    }
    for number in (1..=INVOICES).filter(|number| number % 3 == 0) {
        let invoice = World::invoice(number);
        lines.push(line(&invoice, paid(&invoice)));
    }
    for number in (1..=INVOICES).filter(|number| number % 5 == 0) {
        let invoice = World::invoice(number);
        lines.push(line(&invoice, past_due(&invoice)));
    }
    lines
}

/// What a line must become: business id, fate, entity and version.
fn booked(event: &Value, data: &Value) -> (String, Fate, Option<(String, i64)>) {
    let invoice = data["invoice_id"].as_str().unwrap().to_owned();
    let kind = event.as_str().unwrap();
    let version = data["version"].as_i64().unwrap();
    let fate = if version == 2 { Fate::Applied } else { Fate::Stale };
    (format!("{invoice}:{kind}"), fate, Some((invoice, version)))
}

const KEYED: [(&str, &str); 2] = [("parse.key", "true"), ("key.separator", "|")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invoices_as_plain_json_are_billed_and_mailed_once() {
    drop(bills_and_mails(|plan| plan).await);
}

/// People have the PostgreSQL of their distribution: all statements and migrations work there too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_distributions_postgresql_does_the_main_job_too() {
    let Some(bin_dir) = servers::distribution() else { return };
    let world = bills_and_mails(|plan| plan.postgres_from(bin_dir.clone())).await;
    assert_eq!(world.postgres().bin_dir(), bin_dir);
    let version = world.sql("SHOW server_version").await[0][0].clone().unwrap();
    assert!(version.to_lowercase().contains("debian") || version.contains("Ubuntu"), "{version}");
}

async fn bills_and_mails(planned: impl Fn(Plan) -> Plan) -> World {
    let effects = [("settle", "/v1/charges"), ("receipt", "/emails")];
    let mut world = planned(example("invoice-paid", "billing.invoices.v1", &effects)).start().await;
    (1..=INVOICES).for_each(|number| world.owe_all(&World::invoice(number)));
    world.provider.set_latency(Duration::from_millis(20));
    world.run().await;
    world.run().await;
    let lines = lines(|event| event.to_string());
    world
        .console(&lines, &KEYED, |found| {
            let event: Value = serde_json::from_slice(found.value.as_deref()?).ok()?;
            Some(booked(&event["type"], &event["data"]))
        })
        .await;
    // One of the two is killed in the middle of it, and another one comes.
    drop(world.provider.wait_applied(25, Duration::from_secs(5)).await);
    world.workers[0].kill9().await;
    world.run().await;
    world.settled().await;
    let log = world.provider.read_log().unwrap();
    assert_eq!(log.effects_at("/v1/charges"), INVOICES);
    assert_eq!(log.effects_at("/emails"), INVOICES);
    let id = format!("{}:invoice.paid", World::invoice(3));
    let said = world.oncely(&["explain", &id, "--tenant", "acct_7"]).await;
    assert!(said.ok, "{said:?}");
    world.check_invariants().await;
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invoices_as_cloudevents_of_both_modes_are_settled_once() {
    let effects = [("settle", "/keyed/settlements")];
    let topic = "billing.invoices.cloudevents.v1";
    let mut world = example("invoice-paid-cloudevents", topic, &effects).start().await;
    (1..=INVOICES).for_each(|number| world.owe_all(&World::invoice(number)));
    world.run().await;
    let whole = |event: Value| {
        let mut data = event["data"].clone();
        data["account_id"] = event["account_id"].clone();
        json!({
            "specversion": "1.0", "id": "ce-1", "source": "/billing", "type": event["type"], "data": data,
        })
    };
    // Structured: the whole event in the value. Half of the file, then the other half in binary mode.
    let structured: Vec<String> = lines(|event| whole(event).to_string())
        .into_iter()
        .map(|line| format!("content-type=application/cloudevents+json\t{line}"))
        .collect();
    // Binary: attributes in headers, the data alone in the value.
    let binary: Vec<String> = lines(|event| {
        let event = whole(event);
        format!("{}|{}", event["type"].as_str().unwrap(), event["data"])
    })
    .into_iter()
    .map(|line| {
        let mut parts = line.splitn(3, '|');
        let (key, kind, data) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        let headers = format!(
            "content-type=application/json,ce_specversion=1.0,ce_id=ce-2,ce_source=/billing,ce_type={kind}"
        );
        format!("{headers}\t{key}|{data}")
    })
    .collect();
    let reader = [KEYED[0], KEYED[1], ("parse.headers", "true"), ("headers.key.separator", "=")];
    for lines in [structured, binary] {
        world
            .console(&lines, &reader, |found| {
                let value: Value = serde_json::from_slice(found.value.as_deref()?).ok()?;
                let header = |name: &str| {
                    let header = found.headers.iter().find(|(found, _)| found == name)?;
                    Some(json!(String::from_utf8_lossy(header.1.as_deref()?)))
                };
                match header("ce_type") {
                    Some(kind) => Some(booked(&kind, &value)),
                    None => Some(booked(&value["type"], &value["data"])),
                }
            })
            .await;
        world.settled().await;
    }
    assert_eq!(world.provider.read_log().unwrap().effects_at("/keyed/settlements"), INVOICES);
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receipts_by_smtp_go_out_once_or_are_held_and_shown() {
    let plan = example("invoice-receipt-smtp", "billing.invoices.v1", &[("receipt", "smtp")]);
    let mut world = plan.start().await;
    for number in 1..=INVOICES {
        world.owe("receipt", &World::invoice(number), Ending::DoneOrHeld);
    }
    world.provider.set_latency(Duration::from_millis(60));
    world.run().await;
    world.run().await;
    let lines: Vec<String> = lines(|event| event.to_string());
    world
        .console(&lines, &KEYED, |found| {
            let event: Value = serde_json::from_slice(found.value.as_deref()?).ok()?;
            let (_, fate, _) = booked(&event["type"], &event["data"]);
            // This file wants paid invoices alone, and keeps no states.
            let fate = if fate == Fate::Stale { Fate::Ignored } else { fate };
            Some((event["data"]["invoice_id"].as_str()?.to_owned(), fate, None))
        })
        .await;
    drop(world.provider.wait_applied(8, Duration::from_secs(5)).await);
    world.workers[0].kill9().await;
    world.run().await;
    world.settled().await;
    let (done, held) = (world.effects_in("done").await, world.effects_in("held").await);
    assert_eq!(done + held, i64::try_from(INVOICES).unwrap());
    let said = world.oncely(&["effects", "list", "--status", "held"]).await;
    let listed = said.json["effects"].as_array().map(Vec::len);
    assert_eq!(listed, usize::try_from(held).ok(), "what is held is shown");
    world.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_left_only_ledger_lines_is_explained_without_its_tenant() {
    let mut world = World::plan(Wiring::invoices("lines").effects([usage()])).start().await;
    world.run().await;
    let names = world.pay_many(1, 2, 2).await;
    world.settled().await;
    let said = world.oncely(&["explain", &format!("evt-{}-001", names[0])]).await;
    assert!(said.ok, "{said:?}");
    assert!(said.json.to_string().contains("usage"), "{said:?}");
    let said = world.oncely(&["explain", "evt-nobody"]).await;
    assert!(!said.ok, "{said:?}");
    world.check_invariants().await;
}
