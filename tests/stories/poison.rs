//! Records that cannot be decided: set aside with their bytes and a cause, and the rest goes on.

use oncely_tests::ledger::{Ending, Fate};
use oncely_tests::wiring::{charge, usage};
use oncely_tests::{Event, Record, Wiring, World};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d1_to_d8_r29_poison_is_set_aside_and_the_rest_goes_on() {
    let mut wiring = Wiring::invoices("poison").effects([charge(), usage()]);
    wiring.decode = "{ format: json, max_bytes: 16KiB }";
    let mut world = World::plan(wiring).partitions(1).start().await;
    let good = |number: usize| Event::paid(&World::invoice(number), 1);
    let with = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut event = good(900).json();
        change(&mut event);
        event.to_string()
    };
    let deep = format!(r#"{{"type":"invoice.paid","x":{}1{}}}"#, "[".repeat(200), "]".repeat(200));
    let twice = good(901).json().to_string().replacen('{', r#"{"id":"evt-other","#, 1);
    let poison: Vec<(Record, &str)> = vec![
        (Record::of("{"), "syntax"),
        (Record::of(""), "syntax"),
        (Record::of("\u{feff}{}"), "syntax"),
        (Record::of(format!("{}x", good(902).json())), "syntax"),
        (Record::tombstone("inv"), "null_value"),
        (Record::default(), "null_value"),
        (Record::of(twice), "duplicate_key"),
        (Record::of(deep), "too_deep"),
        (Record::of(vec![b'"', 0xff, b'"']), "bad_text"),
        (Record::of(r#"{"type":"invoice.paid","id":"\ud800"}"#), "bad_text"),
        (Record::of(format!("\"{}\"", "x".repeat(20_000))), "too_large"),
        (Record::of(with(&|event| event["id"] = json!("evt-\u{0}"))), "bad_id"),
        (Record::of(with(&|event| event["id"] = json!(""))), "bad_id"),
        (
            Record::of(with(&|event| drop(event.as_object_mut().unwrap().remove("id")))),
            "missing_id",
        ),
        (Record::of(with(&|event| event["id"] = json!(null))), "missing_id"),
        (Record::of(with(&|event| event["account"] = json!({}))), "bad_tenant"),
        (
            Record::of(with(&|event| event["version"] = json!(18_446_744_073_709_551_615_u64))),
            "bad_version",
        ),
        (Record::of(with(&|event| event["version"] = json!("seven"))), "bad_version"),
    ];
    let two_to_the_64 = with(&|event| event["version"] = json!(0))
        .replace(r#""version":0"#, r#""version":18446744073709551616"#);
    world.produce(&Record::of(two_to_the_64), None, Fate::Parked("bad_version")).await;
    for (number, (record, reason)) in (1..).zip(&poison) {
        let mut record = record.clone().header("trace", "a").header("trace", "b");
        record.headers.push(("empty".to_owned(), None));
        world.produce(&record, None, Fate::Parked(reason)).await;
        world.pay(&World::invoice(number), 0).await;
    }
    // Legal, though unusual: no key, a key that is no text, NUL where nobody looks, and an amount that
    // no machine word holds.
    let mut null_key = good(100).record(0);
    null_key.key = None;
    let mut odd_key = good(101).record(0);
    odd_key.key = Some(vec![0xff, 0x00, 0xfe]);
    let mut nul_inside = good(102).json();
    nul_inside["data"]["memo"] = json!("a\u{0}b");
    let nul_inside = Record::of(nul_inside.to_string()).header("odd", "\u{0}");
    let large = good(103).json().to_string().replace("1200", "18446744073709551616");
    for (number, record) in (100..).zip([null_key, odd_key, nul_inside, Record::of(large)]) {
        let name = World::invoice(number);
        world.owe("charge", &name, Ending::Done);
        world.owe("usage", &name, Ending::Done);
        world.produce(&record, Some(&good(number).id), Fate::Applied).await;
    }
    world.run().await;
    world.settled().await;
    // Bytes as they were, and a page that shows them.
    let rows = world
        .sql(
            "SELECT encode(value, 'hex'), encode(record_key, 'hex'), value IS NULL, reason, detail, business_id
             FROM oncely.parked ORDER BY record_offset",
        )
        .await;
    assert_eq!(rows.len(), poison.len() + 1);
    for (row, (record, reason)) in rows.iter().skip(1).zip(&poison) {
        let hex =
            |bytes: &Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(row[0], record.value.as_ref().map(hex), "{reason}");
        assert_eq!(row[1], record.key.as_ref().map(hex), "{reason}");
        assert!(row[4].as_ref().is_some_and(|detail| !detail.is_empty()), "{reason} has a cause");
        assert_eq!(row[5].is_some(), *reason == "bad_version", "{reason}: the id is known by then");
    }
    let large = world
        .count("SELECT count(*) FROM oncely.ledger WHERE quantity = 18446744073709551616")
        .await;
    assert_eq!(large, 1, "a large number stays exact");
    assert!(world.oncely(&["dlq", "list"]).await.ok);
    world.check_invariants().await;
}
