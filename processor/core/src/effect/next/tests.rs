//! Unknown is sticky, whatever happens to an effect.

use proptest::prelude::*;

use super::*;

fn policy(on_unknown: OnUnknown) -> Policy {
    Policy {
        on_unknown,
        retry: Retry::new(5, 10, 1_000, 100_000).unwrap(),
        key_window_ms: Some(50_000),
        asking: None,
        marks: NOW,
    }
}

const NOW: Marks = Marks { key: Some(1), lookup: Some(2) };
const SETTLE_MS: u64 = 5_000;

fn asking(on_unknown: OnUnknown, on_not_found: OnNotFound) -> Policy {
    let asking = Some(Asking { settle_ms: SETTLE_MS, on_not_found });
    Policy { asking, ..policy(on_unknown) }
}

fn finding() -> impl Strategy<Value = Finding> {
    prop_oneof![
        Just(Finding::Found(Value::Null)),
        Just(Finding::NotFound),
        Just(Finding::Undecided),
        prop::option::of(0_u64..10_000_000)
            .prop_map(|retry_after_ms| Finding::Unanswered { retry_after_ms }),
        Just(Finding::Halted),
        Just(Finding::Unaskable),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::NotApplied),
        prop::option::of(0_u64..10_000_000)
            .prop_map(|retry_after_ms| Outcome::Throttled { retry_after_ms }),
        Just(Outcome::Rejected),
        Just(Outcome::Halted),
        Just(Outcome::Unknown),
        Just(Outcome::Done(Value::Null)),
    ]
}

fn rule() -> impl Strategy<Value = OnUnknown> {
    prop_oneof![
        Just(OnUnknown::RetrySameKey),
        Just(OnUnknown::Reconcile),
        Just(OnUnknown::Hold),
        Just(OnUnknown::AssumeDone)
    ]
}

fn blank() -> History {
    History::default()
}

proptest! {
    /// A plan is exhausted by failures alone: by as many as it allows, or by an unbroken row of
    /// them that is longer than it allows. Nothing else ends the tries but the key's window.
    #[test]
    fn only_failures_exhaust_a_plan(
        seen in prop::collection::vec((outcome(), 1_u64..90_000), 1..40), draw: u32, window: bool,
    ) {
        let window = window.then_some(50_000);
        let policy = Policy { key_window_ms: window, ..policy(OnUnknown::RetrySameKey) };
        let mut history = blank();
        let mut failing = false;
        for (outcome, took) in seen {
            let failed = outcome.class().is_failure();
            history.attempts += 1;
            history.failures += u32::from(failed);
            history.elapsed_ms += took;
            history.failing_ms = if failing { history.failing_ms + took } else { 0 };
            let exhausted = failed && (history.failures >= 5 || history.failing_ms > 100_000);
            let next = next_step(&policy, &history, &outcome, draw);
            let held = matches!(next, Next::Held { why: Why::PlanExhausted });
            prop_assert!(!held || exhausted, "{:?} {:?}", history, outcome);
            let late = matches!(next, Next::Held { why: Why::KeyWindowPassed });
            prop_assert!(!exhausted || held || late, "{:?} {:?}", history, outcome);
            if matches!(next, Next::Done { .. } | Next::Held { .. } | Next::Rejected) {
                break;
            }
            history.was_unknown |= outcome == Outcome::Unknown;
            failing = failed;
        }
    }

    /// Whatever follows an unknown attempt where the provider cannot be asked: no outcome but a
    /// success makes it look applied or refused for sure, and nothing is ever sent again outside
    /// `retry_same_key`.
    #[test]
    fn unknown_is_sticky(
        rule in rule(), seen in prop::collection::vec(outcome(), 1..30), draw: u32, step in 1_u64..20_000,
    ) {
        let policy = policy(rule);
        let mut history = blank();
        for outcome in seen {
            history.attempts += 1;
            history.failures += u32::from(outcome.class().is_failure());
            let next = next_step(&policy, &history, &outcome, draw);
            let unknown = history.was_unknown || outcome == Outcome::Unknown;
            let success = matches!(outcome, Outcome::Done(_));
            match &next {
                Next::Waiting { .. } => prop_assert!(!unknown),
                Next::Rejected => prop_assert!(!unknown && outcome == Outcome::Rejected),
                Next::Halted { was_unknown } => prop_assert_eq!(*was_unknown, unknown),
                Next::Done { .. } => prop_assert!(success || (unknown && rule == OnUnknown::AssumeDone)),
                Next::Unknown { due_in_ms } => {
                    prop_assert!(unknown && rule == OnUnknown::RetrySameKey);
                    prop_assert!(history.elapsed_ms + due_in_ms < 50_000);
                }
                Next::Held { .. } => prop_assert!(!success),
                Next::Asking { .. } => prop_assert!(false, "nobody can be asked"),
            }
            if matches!(next, Next::Done { .. } | Next::Held { .. } | Next::Rejected) {
                break;
            }
            history.was_unknown = unknown;
            history.elapsed_ms += step;
        }
    }

    /// As above where the provider can be asked, over whole lives of an effect: sends, look-ups,
    /// deaths, in any order that the rules allow. Only a success, a look-up that found it, or a
    /// "not found" after everything has settled ends unknown; and while something may have been
    /// applied, nothing is sent but with a key inside its window.
    #[test]
    fn unknown_ends_by_a_success_or_a_believed_look_up_alone(
        rule in rule(), fails: bool,
        seen in prop::collection::vec((outcome(), finding(), 0_u64..9_000, 0_u8..8), 1..40), draw: u32,
    ) {
        let on_not_found = if fails { OnNotFound::Fail } else { OnNotFound::Resend };
        let policy = asking(rule, on_not_found);
        let mut history = blank();
        for (outcome, finding, passes, dies) in seen {
            history.elapsed_ms += passes;
            history.quiet_ms += passes;
            let unknown = history.was_unknown;
            let act = act(&policy, &history);
            let sends = act == Act::Send;
            if sends && unknown {
                prop_assert!(rule == OnUnknown::RetrySameKey && history.elapsed_ms < 50_000);
                prop_assert!(!history.asks);
            }
            let next = match act {
                Act::Hold(_) => {
                    prop_assert!(unknown && matches!(rule, OnUnknown::Hold | OnUnknown::AssumeDone));
                    break;
                }
                _ if dies == 0 => {
                    let next = after_death(&policy, &history, draw);
                    history.takeovers += 1;
                    history.was_unknown = true;
                    history.quiet_ms = if sends { 0 } else { history.quiet_ms };
                    let assumed = rule == OnUnknown::AssumeDone && matches!(next, Next::Done { .. });
                    let open = matches!(next, Next::Unknown { .. } | Next::Asking { .. } | Next::Held { .. });
                    prop_assert!(assumed || open, "{next:?}");
                    next
                }
                Act::Send => {
                    history.attempts += 1;
                    history.lookups = 0;
                    history.failures += u32::from(outcome.class().is_failure());
                    let next = next_step(&policy, &history, &outcome, draw);
                    let unknown = unknown || outcome == Outcome::Unknown;
                    match &next {
                        Next::Waiting { .. } | Next::Rejected => prop_assert!(!unknown),
                        Next::Done { .. } => prop_assert!(
                            matches!(outcome, Outcome::Done(_)) || rule == OnUnknown::AssumeDone
                        ),
                        Next::Halted { was_unknown } => prop_assert_eq!(*was_unknown, unknown),
                        Next::Unknown { .. } | Next::Asking { .. } => prop_assert!(unknown),
                        Next::Held { .. } => {}
                    }
                    history.was_unknown = unknown;
                    if outcome == Outcome::Unknown {
                        history.quiet_ms = 0;
                    }
                    next
                }
                Act::LookUp => {
                    history.lookups += 1;
                    let settled = history.quiet_ms >= SETTLE_MS;
                    let next = after_lookup(&policy, &history, &finding, draw);
                    let believed = finding == Finding::NotFound && settled;
                    match &next {
                        Next::Done { .. } => prop_assert!(matches!(finding, Finding::Found(_))),
                        Next::Waiting { .. } => prop_assert!(believed && !fails),
                        Next::Rejected => prop_assert!(believed && fails),
                        Next::Unknown { .. } => prop_assert!(false, "a look-up sends nothing"),
                        Next::Asking { due_in_ms } => {
                            let early = finding == Finding::NotFound;
                            prop_assert!(!early || history.quiet_ms + due_in_ms <= SETTLE_MS);
                        }
                        Next::Held { .. } => prop_assert!(!matches!(finding, Finding::Found(_))),
                        Next::Halted { was_unknown } => prop_assert!(*was_unknown),
                    }
                    history.was_unknown = !matches!(next, Next::Waiting { .. });
                    next
                }
            };
            history.asks = match next {
                Next::Asking { .. } => true,
                Next::Halted { .. } => history.asks,
                Next::Done { .. }
                | Next::Waiting { .. }
                | Next::Unknown { .. }
                | Next::Held { .. }
                | Next::Rejected => false,
            };
            if matches!(next, Next::Done { .. } | Next::Held { .. } | Next::Rejected) {
                break;
            }
        }
    }

    #[test]
    fn a_dead_workers_claim_is_never_free(rule in rule(), elapsed in 0_u64..200_000, takeovers in 0_u16..6, draw: u32) {
        let history = History { attempts: 1, elapsed_ms: elapsed, takeovers, ..blank() };
        let next = after_death(&policy(rule), &history, draw);
        let allowed = match next {
            Next::Unknown { .. } => rule == OnUnknown::RetrySameKey && elapsed < 50_000,
            Next::Held { .. } => true,
            Next::Done { .. } => rule == OnUnknown::AssumeDone,
            Next::Waiting { .. } | Next::Rejected | Next::Halted { .. } | Next::Asking { .. } => false,
        };
        prop_assert!(allowed);
        if takeovers >= TAKEOVERS_MAX {
            prop_assert_eq!(next, Next::Held { why: Why::TakenOverTooOften });
        }
    }
}

#[test]
fn p11_past_the_key_window_nothing_is_sent_again() {
    let late =
        History { attempts: 1, failures: 1, elapsed_ms: 60_000, was_unknown: true, ..blank() };
    let next = next_step(&policy(OnUnknown::RetrySameKey), &late, &Outcome::Unknown, 0);
    assert_eq!(next, Next::Held { why: Why::KeyWindowPassed });
}

#[test]
fn p11_past_the_key_window_the_provider_is_asked_where_it_can_be() {
    let policy = asking(OnUnknown::RetrySameKey, OnNotFound::Resend);
    let late =
        History { attempts: 1, failures: 1, elapsed_ms: 60_000, was_unknown: true, ..blank() };
    assert_eq!(act(&policy, &late), Act::LookUp);
    let next = next_step(&policy, &late, &Outcome::Unknown, 0);
    assert!(matches!(next, Next::Asking { .. }), "{next:?}");
    let held = act(&super::tests::policy(OnUnknown::RetrySameKey), &late);
    assert_eq!(held, Act::Hold(Why::KeyWindowPassed));
}

#[test]
fn w5_not_found_is_believed_only_after_everything_has_settled() {
    let policy = asking(OnUnknown::Reconcile, OnNotFound::Resend);
    let early = History {
        attempts: 1,
        failures: 1,
        lookups: 9,
        quiet_ms: SETTLE_MS - 1,
        was_unknown: true,
        asks: true,
        ..blank()
    };
    let next = after_lookup(&policy, &early, &Finding::NotFound, u32::MAX);
    assert_eq!(next, Next::Asking { due_in_ms: 1 });
    let late = History { quiet_ms: SETTLE_MS, ..early };
    let next = after_lookup(&policy, &late, &Finding::NotFound, u32::MAX);
    assert_eq!(next, Next::Waiting { due_in_ms: 0 });
    let failing = asking(OnUnknown::Reconcile, OnNotFound::Fail);
    assert_eq!(after_lookup(&failing, &late, &Finding::NotFound, 0), Next::Rejected);
    let spent = History { failures: 5, ..late };
    let next = after_lookup(&policy, &spent, &Finding::NotFound, 0);
    assert_eq!(next, Next::Held { why: Why::PlanExhausted }, "resends are in the plan, too");
}

#[test]
fn h8_a_provider_that_does_not_answer_is_asked_for_as_long_as_retries_may_last() {
    let policy = asking(OnUnknown::Reconcile, OnNotFound::Resend);
    let away = Finding::Unanswered { retry_after_ms: Some(700) };
    let asked = History { lookups: 200, was_unknown: true, asks: true, ..blank() };
    let patient = History { quiet_ms: SETTLE_MS + 100_000, ..asked };
    let next = after_lookup(&policy, &patient, &away, 0);
    assert_eq!(next, Next::Asking { due_in_ms: 700 });
    let over = History { quiet_ms: SETTLE_MS + 100_001, ..asked };
    let next = after_lookup(&policy, &over, &away, 0);
    assert_eq!(next, Next::Held { why: Why::NobodySaid });
}

#[test]
fn b2_a_refused_credential_stops_the_lane_and_rejects_nothing() {
    let first = History { attempts: 1, ..blank() };
    let next = next_step(&policy(OnUnknown::Hold), &first, &Outcome::Halted, 0);
    assert_eq!(next, Next::Halted { was_unknown: false });
}

#[test]
fn a_refusal_after_hours_of_throttling_is_the_first_of_its_plan() {
    let hours = 2 * 3_600_000;
    let many = History { attempts: 500, elapsed_ms: hours, ..blank() };
    let throttled = Outcome::Throttled { retry_after_ms: Some(2_000) };
    let next = next_step(&policy(OnUnknown::Hold), &many, &throttled, 0);
    assert_eq!(next, Next::Waiting { due_in_ms: 2_000 });
    let refused = History { attempts: 501, failures: 1, ..many };
    let next = next_step(&policy(OnUnknown::Hold), &refused, &Outcome::NotApplied, u32::MAX);
    assert_eq!(next, Next::Waiting { due_in_ms: 9 }, "the back-off begins at its first step");
}

proptest! {
    /// What a failover may have lost is sent again only with a key that the provider still knows, is asked
    /// where it can be asked, and is else a person's.
    #[test]
    fn w10_e3_what_may_have_been_lost_is_never_sent_as_if_it_were_new(
        rule in rule(),
        asks in any::<bool>(),
        can_ask in any::<bool>(),
        elapsed_ms in 0_u64..100_000,
        attempts in 0_u32..3,
    ) {
        let policy =
            if can_ask { asking(rule, OnNotFound::Resend) } else { policy(rule) };
        let history =
            History { was_unknown: true, suspect: true, asks, elapsed_ms, attempts, ..blank() };
        let keyed = rule == OnUnknown::RetrySameKey && in_window(&policy, &history, 0);
        match act(&policy, &history) {
            Act::Send => prop_assert!(keyed && !asks),
            Act::LookUp => prop_assert!(can_ask),
            Act::Hold(why) => {
                let never = matches!(rule, OnUnknown::Hold | OnUnknown::AssumeDone);
                prop_assert!(never || !can_ask);
                prop_assert_eq!(why == Why::LostInFailover, never);
            }
        }
    }

    /// Nor does the death of whoever had claimed it make it done.
    #[test]
    fn w10_what_may_have_been_lost_is_not_done_because_a_worker_died(
        rule in rule(),
        takeovers in 0_u16..6,
        draw: u32,
    ) {
        let history = History { was_unknown: true, suspect: true, takeovers, ..blank() };
        let next = after_death(&policy(rule), &history, draw);
        prop_assert!(!matches!(next, Next::Done { .. }), "{:?}", next);
    }
}

/// What was sent before the file had the key or the look-up that it has now.
#[test]
fn w5_a_new_key_and_a_new_look_up_know_nothing_of_what_was_sent_before_them() {
    let unknown = |sent| History { attempts: 1, was_unknown: true, sent, ..blank() };
    let sent = [
        None,
        Some(NOW),
        Some(Marks { key: None, ..NOW }),
        Some(Marks { key: Some(7), ..NOW }),
        Some(Marks { lookup: None, ..NOW }),
        Some(Marks { lookup: Some(7), ..NOW }),
    ];
    let other_key = |sent: Option<Marks>| sent.is_some_and(|sent| sent.key != NOW.key);
    let other_look_up = |sent: Option<Marks>| sent.is_some_and(|sent| sent.lookup != NOW.lookup);
    for sent in sent {
        let history = unknown(sent);
        let by_key = act(&policy(OnUnknown::RetrySameKey), &history);
        let held = Act::Hold(Why::SentOtherwise);
        assert_eq!(by_key, if other_key(sent) { held } else { Act::Send }, "{sent:?}");
        // One that can be asked is asked.
        let both = asking(OnUnknown::RetrySameKey, OnNotFound::Resend);
        let wanted = if other_key(sent) { Act::LookUp } else { Act::Send };
        assert_eq!(act(&both, &history), wanted, "{sent:?}");
        let asks = asking(OnUnknown::Reconcile, OnNotFound::Resend);
        assert_eq!(act(&asks, &history), Act::LookUp, "{sent:?}");
        let quiet = History { quiet_ms: SETTLE_MS, ..history };
        for on_not_found in [OnNotFound::Resend, OnNotFound::Fail] {
            let asks = asking(OnUnknown::Reconcile, on_not_found);
            let next = after_lookup(&asks, &quiet, &Finding::NotFound, 0);
            let is_held = next == Next::Held { why: Why::SentOtherwise };
            assert_eq!(is_held, other_look_up(sent), "{sent:?}: {next:?}");
        }
        // What is found is there, however it was asked for.
        let found = after_lookup(&asks, &quiet, &Finding::Found(Value::Null), 0);
        assert_eq!(found, Next::Done { result: Value::Null });
    }
    // Where nothing may have been applied, nothing has to be known again.
    let fresh = History { was_unknown: false, ..unknown(Some(Marks::default())) };
    assert_eq!(act(&policy(OnUnknown::RetrySameKey), &fresh), Act::Send);
}
