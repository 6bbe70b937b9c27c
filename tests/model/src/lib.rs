//! The protocol of claims as an exhaustive model: every order of every step of two workers, with crashes,
//! freezes, lost answers and late requests, for each class of provider, in small bounds.
//!
//! What follows from an outcome, from a look-up and from a death is decided by the functions of the core
//! that the product runs. Around them stands what the product's statements do, a step for each transaction.
//!
//! Each rule that keeps the promise is also taken out once, and the checker must find the fault that
//! comes of it: a rule that could go without anybody noticing would not be in the model.
//!
//! Times are ages, so time has no end: a state is the same an hour later. Not covered: more than one effect
//! at a time (order and `after`), more than two workers, anything finer than
//! a tick, and of liveness more than that from every state one fair run without faults comes to an end.

#![cfg(test)]
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::wildcard_enum_match_arm,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "a failed test should stop at once, and says what it walked"
)]

mod effect;
mod normal;
mod position;
mod step;
mod table;
mod verdict;

use std::sync::Mutex;

use effect::{Class, Faults, Protocol, Rules};
use mimalloc::MiMalloc;
use stateright::{Checker, HasDiscoveries, Model};

/// A third of the work is to make and drop states.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn check(
    class: Class,
    rules: Rules,
    faults: Faults,
    until: HasDiscoveries,
) -> impl Checker<Protocol> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let protocol = Protocol { class, rules, faults, ending: Mutex::default() };
    protocol.checker().threads(threads).finish_when(until).spawn_bfs().join()
}

/// Every rule in place: no order of steps breaks any property.
fn holds(class: Class, faults: Faults) {
    let checker = check(class, Rules::ALL, faults, HasDiscoveries::AnyFailures);
    eprintln!("{class:?} with {faults:?}: {} states", checker.unique_state_count());
    checker.assert_properties();
    assert!(checker.unique_state_count() > 1_000, "the bounds leave nothing to look at");
}

/// Without the rule, some order of steps breaks the property.
fn breaks(property: &'static str, class: Class, rules: Rules, faults: Faults) {
    let until = HasDiscoveries::AllOf(std::iter::once(property).collect());
    let checker = check(class, rules, faults, until);
    let found = checker.discovery(property);
    assert!(found.is_some(), "nobody would notice if this rule were gone: {rules:?}");
}

const AT_MOST_ONCE: &str = "the provider applies at most one effect";
const NOTHING_LOST: &str = "no offset passes an effect that is open";

#[test]
fn a_provider_that_knows_our_key() {
    holds(Class::Keyed, Faults { crashes: 1, ..Faults::NONE });
    holds(Class::Keyed, Faults { lost: 1, ..Faults::NONE });
}

#[test]
fn a_provider_that_can_be_asked() {
    holds(Class::Asked, Faults { crashes: 1, ..Faults::NONE });
    holds(Class::Asked, Faults { lost: 1, ..Faults::NONE });
}

#[test]
fn a_provider_that_knows_our_key_for_a_while_and_can_be_asked_later() {
    holds(Class::KeyedThenAsked, Faults::NONE);
}

#[test]
fn a_provider_that_can_do_neither() {
    holds(Class::Neither, Faults { crashes: 1, lost: 1, refused: 1, ..Faults::NONE });
    holds(Class::Neither, Faults { lost: 1, panics: 1, deaths: 3, ..Faults::NONE });
}

/// A database that fails over to a standby which lacks what was committed since some moment, any moment.
#[test]
fn w10_e3_a_database_that_forgets_commits() {
    let faults = Faults { failovers: 1, deaths: 0, ..Faults::NONE };
    for class in [Class::Keyed, Class::Asked, Class::Neither] {
        holds(class, faults);
    }
}

#[test]
fn w10_what_is_lost_and_taken_for_new_is_sent_again() {
    let rules = Rules { loss_is_unknown: false, ..Rules::ALL };
    let faults = Faults { failovers: 1, deaths: 0, ..Faults::NONE };
    breaks(AT_MOST_ONCE, Class::Asked, rules, faults);
    breaks(AT_MOST_ONCE, Class::Neither, rules, faults);
}

#[test]
fn w10_a_copy_that_is_taken_for_new_while_its_first_one_lies_unread_is_sent_again() {
    let rules = Rules { copies_are_in_doubt: false, ..Rules::ALL };
    let faults = Faults { failovers: 1, deaths: 0, ..Faults::NONE };
    breaks(AT_MOST_ONCE, Class::Asked, rules, faults);
    breaks(AT_MOST_ONCE, Class::Neither, rules, faults);
}

#[test]
fn w10_a_batch_that_is_written_beside_the_loss_is_sent_again() {
    let rules = Rules { batches_meet_the_loss: false, ..Rules::ALL };
    let faults = Faults { failovers: 1, deaths: 0, ..Faults::NONE };
    breaks(AT_MOST_ONCE, Class::Asked, rules, faults);
    breaks(AT_MOST_ONCE, Class::Neither, rules, faults);
}

#[test]
fn w10_not_found_before_every_lease_is_over_is_sent_again() {
    let rules = Rules { loss_waits: false, ..Rules::ALL };
    let faults = Faults { failovers: 1, deaths: 0, ..Faults::NONE };
    breaks(AT_MOST_ONCE, Class::Asked, rules, faults);
}

#[test]
fn w10_a_key_whose_first_send_is_forgotten_is_as_old_as_the_loss() {
    let rules = Rules { loss_has_an_age: false, ..Rules::ALL };
    let faults = Faults { failovers: 1, deaths: 0, lost: 1, ..Faults::NONE };
    breaks(AT_MOST_ONCE, Class::Keyed, rules, faults);
}

#[test]
fn without_a_declared_death_two_workers_send() {
    let rules = Rules { death_is_declared: false, ..Rules::ALL };
    breaks(AT_MOST_ONCE, Class::Asked, rules, Faults::NONE);
}

#[test]
fn without_a_look_at_the_lease_a_frozen_worker_sends() {
    let rules = Rules { lease_is_checked: false, ..Rules::ALL };
    breaks(AT_MOST_ONCE, Class::Asked, rules, Faults::NONE);
}

#[test]
fn without_dropping_its_claims_a_worker_that_died_sends_under_its_new_name() {
    let rules = Rules { death_drops_claims: false, ..Rules::ALL };
    breaks(AT_MOST_ONCE, Class::Asked, rules, Faults::NONE);
}

#[test]
fn not_found_that_is_believed_at_once_is_sent_again() {
    let rules = Rules { not_found_waits: false, ..Rules::ALL };
    breaks(AT_MOST_ONCE, Class::Asked, rules, Faults { lost: 1, ..Faults::NONE });
}

#[test]
fn unknown_that_does_not_stick_is_sent_again() {
    let rules = Rules { unknown_sticks: false, ..Rules::ALL };
    let faults = Faults { lost: 1, ..Faults::NONE };
    breaks(AT_MOST_ONCE, Class::Asked, rules, faults);
    breaks(AT_MOST_ONCE, Class::Neither, rules, faults);
}

#[test]
fn a_key_that_is_used_after_its_window_is_a_new_one() {
    let rules = Rules { window_is_kept: false, ..Rules::ALL };
    breaks(AT_MOST_ONCE, Class::Keyed, rules, Faults { lost: 1, ..Faults::NONE });
}

#[test]
fn a_key_whose_last_send_may_arrive_after_its_window_is_a_new_one() {
    let rules = Rules { window_leaves_room: false, ..Rules::ALL };
    breaks(AT_MOST_ONCE, Class::Keyed, rules, Faults { lost: 1, ..Faults::NONE });
}

#[test]
fn a_claim_that_lay_about_is_as_old_as_it_is() {
    let rules = Rules { age_is_of_now: false, ..Rules::ALL };
    breaks(AT_MOST_ONCE, Class::Keyed, rules, Faults { lost: 1, ..Faults::NONE });
}

#[test]
fn a_stale_owner_that_settles_frees_what_another_has_sent() {
    let rules = Rules { settling_is_fenced: false, ..Rules::ALL };
    breaks(AT_MOST_ONCE, Class::Asked, rules, Faults { refused: 1, ..Faults::NONE });
}

#[test]
fn a_started_claim_that_is_adopted_as_if_it_were_new_is_sent_again() {
    let rules = Rules { started_is_remembered: false, ..Rules::ALL };
    breaks(AT_MOST_ONCE, Class::Neither, rules, Faults { panics: 1, ..Faults::NONE });
}

#[test]
fn a_position_that_passes_what_is_only_claimed_is_found() {
    let rules = Rules { position_waits: false, ..Rules::ALL };
    breaks(NOTHING_LOST, Class::Keyed, rules, Faults::NONE);
}

#[test]
fn a_second_row_for_a_repeated_record_is_a_second_effect() {
    let rules = Rules { repeats_are_known: false, ..Rules::ALL };
    breaks(AT_MOST_ONCE, Class::Neither, rules, Faults { lost: 1, ..Faults::NONE });
}

/// The limit that is not promised: a worker that is frozen between its last look at the lease and its
/// first byte, for longer than the settle delay, reaches a provider that can only be asked.
#[test]
fn the_freeze_that_nobody_can_see_is_the_limit_of_asking() {
    let rules = Rules { freezes_end: false, ..Rules::ALL };
    breaks(AT_MOST_ONCE, Class::Asked, rules, Faults::NONE);
    holds(Class::Neither, Faults::NONE);
}
