//! Timelines as people read them.

use oncely_core::key::Key;

use super::*;
use crate::store::admin::events::Repeats;
use crate::store::admin::parked::First;

fn at(ms: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(1_795_946_531_204 + ms).unwrap()
}

fn origin(partition: i32, offset: i64) -> Option<Origin> {
    Some(Origin { topic: "billing.invoices.v1".to_owned(), partition, offset })
}

fn effect(n: u8, name: &str, status: Status) -> EffectRow {
    EffectRow {
        key: Key::from_bytes([n; 16]),
        event: Key::from_bytes([9; 16]),
        lane: Key::from_bytes([8; 16]),
        connector: Some("invoice-paid".to_owned()),
        name: name.to_owned(),
        status,
        tenant: "acct_7".to_owned(),
        business_id: "in_1009:invoice.paid".to_owned(),
        version: 7,
        fence: Some(1),
        attempts: 1,
        failures: 0,
        takeovers: 0,
        lookups: 0,
        was_unknown: false,
        suspect: false,
        status_code: Some(200),
        note: None,
        created_at: at(2),
        due_at: None,
        first_sent_at: Some(at(3)),
        last_sent_at: Some(at(3)),
        settled_at: status.is_final().then(|| at(15_697)),
        after: Vec::new(),
        halted: false,
        orphaned: false,
        circuit: None,
        behind: None,
    }
}

#[test]
fn a_rerun_names_what_it_has_added() {
    let entry = |detail: &str| AuditEntry {
        at: at(0),
        subject: None,
        actor: "ana".to_owned(),
        action: "replay --effects rerun".to_owned(),
        reason: "INC-7".to_owned(),
        detail: detail.to_owned(),
    };
    let told = by_hand(&entry(r#"{"effects": ["receipt"], "keys": ["ef_11"]}"#), &[]);
    assert_eq!(told.detail, "replay --effects rerun of receipt ef_11 by ana: INC-7");
    let older = by_hand(&entry(r#"{"effects": ["receipt", "settle"]}"#), &[]);
    assert_eq!(older.detail, "replay --effects rerun of receipt, settle by ana: INC-7");
    assert_eq!(by_hand(&entry("{}"), &[]).detail, "replay --effects rerun by ana: INC-7");
}

fn attempt(n: u8, ms: i64, outcome: &str, note: &str) -> AttemptRow {
    AttemptRow {
        effect: Key::from_bytes([n; 16]),
        fence: ms,
        at: at(ms),
        outcome: outcome.to_owned(),
        status_code: None,
        note: Some(note.to_owned()),
        evidence: false,
    }
}

fn inbox() -> InboxRow {
    InboxRow {
        first_seen_at: at(2),
        outcome: "applied".to_owned(),
        version: Some(7),
        from_state: Some("open".to_owned()),
        to_state: Some("paid".to_owned()),
        origin: origin(3, 88_121),
        repeats: Some(Repeats { times: 2, last_seen_at: at(334_000), last: origin(3, 88_990) }),
    }
}

#[test]
fn a_life_with_an_unknown_answer() {
    let history = History {
        inbox: Some(inbox()),
        effects: vec![effect(1, "settle", Status::Done), effect(2, "receipt", Status::Done)],
        attempts: vec![
            attempt(1, 15_003, "unknown", "timed out after 15 s"),
            attempt(1, 15_600, "done", ""),
        ],
        ledger: vec![LedgerRow {
            key: uuid::Uuid::nil(),
            name: "usage".to_owned(),
            account: "acct_7".to_owned(),
            metric: "invoices".to_owned(),
            quantity: "1".to_owned(),
            created_at: at(2),
        }],
        ..History::default()
    };
    insta::assert_snapshot!(timeline(&history).text(), @r#"
    2026-11-29 UTC
    10:02:11.206  received    billing.invoices.v1[3]@88121
    10:02:11.206  applied     open → paid  v7
    10:02:11.206  usage       1 invoices for acct_7                         DONE
    10:02:26.207  settle      attempt 1  timed out after 15 s               UNKNOWN
    10:02:26.804  settle      attempt 2                                     DONE
    10:02:26.901  receipt     attempt 1  200                                DONE
    10:07:45.204  repeated    2 times, last billing.invoices.v1[3]@88990    DUPLICATE
    verdict: 1 settle, 1 receipt, 1 usage, 2 repeats absorbed, nothing open
    "#);
}

#[test]
fn outcomes_of_one_instant_stand_in_the_order_of_their_claims() {
    let done = |n: u8, name: &str, fence| EffectRow {
        fence: Some(fence),
        ..effect(n, name, Status::Done)
    };
    let history = History {
        inbox: Some(inbox()),
        effects: vec![done(1, "notify", 12), done(2, "settle", 11)],
        attempts: vec![AttemptRow { fence: 10, ..attempt(1, 15_697, "throttled", "") }],
        ..History::default()
    };
    let timeline = timeline(&history);
    let told = timeline.entries.iter().filter(|entry| entry.detail.starts_with("attempt"));
    let told: Vec<_> = told.map(|entry| (&*entry.what, &*entry.state)).collect();
    assert_eq!(told, [("notify", "THROTTLED"), ("settle", "DONE"), ("notify", "DONE")]);
}

#[test]
fn a_long_word_keeps_the_columns() {
    let halted = EffectRow {
        halted: true,
        status_code: Some(401),
        due_at: Some(at(9_000)),
        ..effect(1, "settle", Status::Waiting)
    };
    let inbox = InboxRow {
        outcome: "dead_lettered".to_owned(),
        version: None,
        from_state: None,
        to_state: None,
        repeats: None,
        ..inbox()
    };
    let history = History { inbox: Some(inbox), effects: vec![halted], ..History::default() };
    insta::assert_snapshot!(timeline(&history).text(), @r#"
    2026-11-29 UTC
    10:02:11.206  received       billing.invoices.v1[3]@88121
    10:02:11.206  dead_lettered
    now           settle         halted: 401, credentials or configuration refused; due 10:02:20.204  ef_01010101010101010101010101010101  WAITING
    verdict: 1 settle waiting, 1 open
    "#);
}

#[test]
fn r31_what_is_overdue_says_what_it_waits_for() {
    let said = |circuit: Option<&str>, halted| {
        let circuit = circuit.map(str::to_owned);
        let due_at = Some(at(9_000));
        let row = EffectRow { circuit, halted, due_at, ..effect(1, "settle", Status::Waiting) };
        stands(&row).detail
    };
    let outage = said(Some("outage"), false);
    assert!(outage.starts_with("its circuit is open: the provider does not answer"), "{outage}");
    assert!(outage.contains("; due 10:02:20.204"), "{outage}");
    let behind_another = said(Some("refusal"), false);
    assert!(behind_another.starts_with("its lane is halted: "), "{behind_another}");
    let itself = said(Some("refusal"), true);
    assert!(itself.starts_with("halted: ") && !itself.contains("lane"), "{itself}");
    assert!(said(None, false).starts_with("due"));
}

#[test]
fn a_life_that_needs_a_person() {
    let held = EffectRow {
        note: Some("the provider may have applied it\n".to_owned()),
        takeovers: 3,
        ..effect(1, "settle", Status::Held)
    };
    let behind = Some(Key::from_bytes([1; 16]));
    let blocked = EffectRow { attempts: 0, behind, ..effect(2, "receipt", Status::Waiting) };
    let resolved = EffectRow {
        note: Some("by hand: INC-7".to_owned()),
        ..effect(3, "extra", Status::Rejected)
    };
    let history = History {
        inbox: Some(InboxRow { repeats: None, ..inbox() }),
        parked: vec![ParkedEntry {
            released: None,
            redrives: 0,
            suspect: true,
            closed: None,
            first: None,
            id: 12,
            at: at(90_000_000),
            kind: "quarantine".to_owned(),
            reason: "conflict".to_owned(),
            detail: "same id, other content".to_owned(),
            origin: origin(0, 4),
            effect: None,
        }],
        audit: vec![AuditEntry {
            at: at(60_000),
            subject: Some(uuid::Uuid::from_bytes([3; 16])),
            actor: "ana".to_owned(),
            action: "effects resolve --as rejected".to_owned(),
            reason: "INC-7".to_owned(),
            detail: String::new(),
        }],
        effects: vec![held, blocked, resolved],
        ..History::default()
    };
    let timeline = timeline(&history);
    assert_eq!(timeline.open, 3);
    insta::assert_snapshot!(timeline.text(), @r#"
    2026-11-29 UTC
    10:02:11.206  received    billing.invoices.v1[3]@88121
    10:02:11.206  applied     open → paid  v7
    10:03:11.204  extra       effects resolve --as rejected by ana: INC-7   BY HAND
    2026-11-30 UTC
    11:02:11.204  parked      #12 conflict: same id, other content  billing.invoices.v1[0]@4  may have been run: suspect  QUARANTINED
    now           settle      the provider may have applied it\u{a}; taken over 3 times  ef_01010101010101010101010101010101  HELD
    now           receipt     waits behind ef_01010101010101010101010101010101, which is held  ef_02020202020202020202020202020202  WAITING
    verdict: 1 settle held, 1 receipt waiting, 1 extra rejected, 1 parked: waits for a person, 3 open
    "#);
}

#[test]
fn what_a_person_decides_later_hides_nothing_of_what_came_before() {
    let parked = |first: Option<First>, closed| ParkedEntry {
        id: 4,
        at: at(60_000),
        kind: "dead_letter".to_owned(),
        reason: "expression_failed".to_owned(),
        detail: "`event.amount` is text".to_owned(),
        origin: origin(3, 88_121),
        effect: None,
        released: None,
        redrives: 2,
        suspect: false,
        closed,
        first,
    };
    let first =
        First { at: at(0), reason: "syntax".to_owned(), detail: "no `}` at the end".to_owned() };
    let history = History {
        inbox: Some(InboxRow { first_seen_at: at(90_000), repeats: None, ..inbox() }),
        parked: vec![parked(Some(first), Some((at(90_000), "applied".to_owned())))],
        ..History::default()
    };
    insta::assert_snapshot!(timeline(&history).text(), @"
    2026-11-29 UTC
    10:02:11.204  received    billing.invoices.v1[3]@88121
    10:02:11.204  parked      #4 syntax: no `}` at the end  billing.invoices.v1[3]@88121
    10:03:11.204  parked      #4 expression_failed: `event.amount` is text  DEAD LETTER
    10:03:41.204  applied     open → paid  v7
    10:03:41.204  closed      #4  decided again: 2                          APPLIED
    verdict: nothing open
    ");
}
