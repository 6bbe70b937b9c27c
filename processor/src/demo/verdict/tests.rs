//! Each promise broken once in a log, and the verdict that notices it.

use std::path::Path;

use super::*;
use crate::demo::plan::Plan;

/// One effect as the provider would log it, with its answer.
fn effect(number: u64, endpoint: &str, key: &str, body: &str) -> Vec<Value> {
    let (request, hash) = (number, format!("hash of {body}"));
    vec![
        serde_json::json!({"entry": "received", "request": request, "at": 0, "method": "POST",
            "endpoint": endpoint, "key": key, "body_sha256": hash, "body": body}),
        serde_json::json!({"entry": "applied", "request": request, "at": 1, "endpoint": endpoint,
            "key": key, "body_sha256": hash, "effect_no": number}),
        serde_json::json!({"entry": "answered", "request": request, "at": 2, "status": 200,
            "end": "whole"}),
    ]
}

fn charge(number: u64, invoice: &Invoice) -> Vec<Value> {
    let body = format!("amount={}&metadata%5Binvoice%5D={}", invoice.amount_cents, invoice.id);
    effect(number, CHARGES, &format!("c-{}", invoice.id), &body)
}

fn receipt(number: u64, of_charge: u64, invoice: &Invoice) -> Vec<Value> {
    let text = format!("number ch_{of_charge:08}.");
    let body = serde_json::json!({"subject": format!("Receipt for {}", invoice.id), "text": text});
    effect(number, MAILS, &format!("r-{}", invoice.id), &body.to_string())
}

struct World {
    plan: Plan,
    lines: Vec<Value>,
    stored: Stored,
    deeds: Deeds,
}

impl World {
    /// Everything as it must be.
    fn right() -> Self {
        let plan = Plan::new(1);
        let mut lines = Vec::new();
        for (place, invoice) in plan.invoices.iter().enumerate() {
            let number = count(place) * 2 + 1;
            lines.extend(charge(number, invoice));
            lines.extend(receipt(number + 1, number, invoice));
        }
        let totals =
            Totals { applied: 900, stale: 100, repeats: 300, done: 1_200, ..Totals::default() };
        let stored = Stored { totals, ..Stored::default() };
        Self { plan, lines, stored, deeds: Deeds { kills: 2, in_flight: 9 } }
    }

    fn report(&self) -> Report {
        let text: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        let path = std::env::temp_dir().join(format!("oncely-verdict-{:x}", rand::random::<u64>()));
        std::fs::write(&path, text).unwrap();
        let log = Log::read(Path::new(&path)).unwrap();
        std::fs::remove_file(path).unwrap();
        verdict(&self.plan, &log, &self.stored, &self.deeds, 1.0)
    }

    /// Lines of the request with this number.
    fn remove(&mut self, request: u64) {
        self.lines.retain(|line| line["request"] != request);
    }
}

#[test]
fn what_is_right_has_no_wrong_number() {
    let report = World::right().report();
    assert_eq!(report.wrong, Vec::<String>::new());
    assert_eq!((report.owed, report.done, report.lost, report.duplicates), (1_200, 1_200, 0, 0));
    assert_eq!(report.answers_lost, 0);
}

#[test]
fn i1_a_second_effect_with_the_same_key_is_a_duplicate() {
    let mut world = World::right();
    let again = charge(9_999, &world.plan.invoices[7]);
    world.lines.extend(again);
    let report = world.report();
    assert_eq!(report.duplicates, 1);
    let said = report.wrong_lines().join("\n");
    assert!(said.contains("effects that took place twice: 1 instead of 0"), "{said}");
    assert!(said.contains("keys with more than one effect: 1 instead of 0"), "{said}");
}

#[test]
fn i1_a_second_effect_under_another_key_is_a_duplicate_as_well() {
    let mut world = World::right();
    let mut again = receipt(9_999, 1, &world.plan.invoices[0]);
    again.iter_mut().for_each(|line| line["key"] = "other".into());
    world.lines.extend(again);
    let report = world.report();
    assert_eq!(report.duplicates, 1);
    assert_eq!(report.wrong, ["effects that took place twice: 1 instead of 0"]);
}

#[test]
fn i2_an_effect_that_is_missing_is_lost_unless_it_is_openly_held() {
    let mut world = World::right();
    world.remove(4);
    let report = world.report();
    assert_eq!((report.done, report.lost, report.held), (1_199, 1, 0));
    assert!(report.wrong.contains(&"effects that are lost: 1 instead of 0".to_owned()));

    let of = format!("{}:invoice.paid", world.plan.invoices[1].id);
    world.stored.held.insert(("receipt".to_owned(), of));
    let report = world.report();
    assert_eq!((report.done, report.lost, report.held), (1_199, 0, 1));
    // The provider knows our keys, so nothing has to be held here.
    assert!(!report.is_right());
}

#[test]
fn a_wrong_amount_a_wrong_charge_and_a_stranger_are_noticed() {
    let mut world = World::right();
    let amount = world.plan.invoices[0].amount_cents;
    world.plan.invoices[0].amount_cents += 1;
    world.remove(4);
    let other = receipt(4, 77, &world.plan.invoices[1]);
    world.lines.extend(other);
    let stranger = Invoice { id: "in_9999".to_owned(), ..world.plan.invoices[2].clone() };
    world.lines.extend(charge(9_999, &stranger));
    let report = world.report();
    let id = |place: usize| &world.plan.invoices[place].id;
    assert_eq!(
        report.wrong,
        [
            format!("{} owes {} and was charged {amount}", id(0), amount + 1),
            format!("the receipt for {} does not name its charge ch_00000003", id(1)),
            "1 effects took place for invoices that nobody owed anything".to_owned(),
        ]
    );
}

#[test]
fn what_the_database_says_counts_too() {
    for (change, said) in [
        (Totals { stale: 99, ..World::right().stored.totals }, "stale events ignored: 99"),
        (Totals { repeats: 301, ..World::right().stored.totals }, "repeats absorbed: 301"),
        (Totals { unknown: 1, ..World::right().stored.totals }, "effects still open: 1"),
        (Totals { done: 1_199, ..World::right().stored.totals }, "as the database has it: 1199"),
    ] {
        let mut world = World::right();
        world.stored.totals = change;
        let report = world.report();
        assert_eq!(report.wrong.len(), 1, "{:?}", report.wrong);
        assert!(report.wrong[0].contains(said), "{:?}", report.wrong);
    }
    let mut world = World::right();
    world.deeds.kills = 1;
    assert_eq!(world.report().wrong, ["workers killed: 1 instead of 2"]);
}

#[test]
fn an_answer_that_came_too_late_or_broken_is_a_lost_one() {
    let mut world = World::right();
    let answered = |line: &&mut Value| line["entry"] == "answered";
    let mut answers = world.lines.iter_mut().filter(answered);
    answers.next().unwrap()["at"] = 2_000_000.into();
    answers.next().unwrap()["end"] = "half".into();
    answers.next().unwrap()["status"] = 502.into();
    let report = world.report();
    assert_eq!((report.answers_lost, report.errors), (3, 1));
    assert!(report.is_right());
}
