//! What the rounds and the cells come to that all tests play.
//!
//! Reads: the plans of the soak, and the sample of the matrix. Gives: a failure that names what is missing
//! there. Plays nothing.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "a failed test should stop at once"
)]

#[allow(dead_code, reason = "what plays them is another program")]
#[path = "matrix/cell.rs"]
mod cell;
#[allow(dead_code, reason = "what plays them is another program")]
#[path = "soak/plan.rs"]
mod plan;

use std::collections::{BTreeMap, BTreeSet};

use cell::{Cell, Class};
use oncely::crash::{self, Action, Point, Side, Step};
use plan::{FAULTS_MIN, Plan, SEEDS};

/// So many plans have everything that a plan can have.
const PLANS: u64 = 2_000;

fn kinds(seeds: impl IntoIterator<Item = u64>) -> BTreeSet<&'static str> {
    seeds.into_iter().flat_map(|seed| Plan::of(seed).kinds()).collect()
}

#[test]
fn the_default_rounds_have_every_kind_of_fault_and_every_shape() {
    let (all, ours) = (kinds(0..PLANS), kinds(SEEDS));
    let missing: Vec<_> = all.difference(&ours).collect();
    let why = "plans have changed: other seeds are needed; `every_triple` finds them";
    assert!(missing.is_empty(), "no default round has {missing:?}; {why}");
    assert!(SEEDS.into_iter().any(|seed| Plan::of(seed).forgets()), "{why}");
    assert_eq!(BTreeSet::from(SEEDS).len(), SEEDS.len());
    assert!(all.len() > 20, "{all:?}");
}

#[test]
fn every_round_has_faults_enough() {
    assert!((0..PLANS).all(|seed| Plan::of(seed).faults.len() as u64 >= FAULTS_MIN));
}

/// Looks for three seeds that have everything, and prints the first.
#[test]
#[ignore = "for whoever changes plans: cargo test --test plans every_triple -- --ignored --nocapture"]
fn every_triple() {
    const SEARCHED: u64 = 100_000;
    const RICHEST: usize = 3_000;
    let all: Vec<&str> = kinds(0..PLANS).into_iter().collect();
    let bits = |seed: u64| {
        let has = Plan::of(seed).kinds();
        let bit = |(at, kind): (usize, &&str)| u32::from(has.contains(*kind)) << at;
        all.iter().enumerate().map(bit).sum::<u32>()
    };
    let whole = (1_u32 << all.len()) - 1;
    let by_bits: BTreeMap<u32, u64> = (1..SEARCHED).rev().map(|seed| (bits(seed), seed)).collect();
    let mut rounds: Vec<(u32, u64)> = by_bits.into_iter().collect();
    rounds.sort_by_key(|(bits, seed)| (bits.count_zeros(), *seed));
    rounds.truncate(RICHEST);
    for (at, first) in rounds.iter().enumerate() {
        for (at, second) in rounds.iter().enumerate().skip(at + 1) {
            let missing = whole & !(first.0 | second.0);
            if missing.count_ones() > second.0.count_ones() {
                continue;
            }
            let mut rest = rounds.iter().skip(at + 1);
            if let Some(third) = rest.find(|third| third.0 & missing == missing) {
                println!("{:?}", [first.1, second.1, third.1]);
                return;
            }
        }
    }
    panic!("no three of {SEARCHED} have all of {all:?}");
}

// ----------------------------------------------------------------------------------------------------

#[test]
fn the_sample_of_the_matrix_comes_to_every_point_and_every_class() {
    let (sample, all) = (cell::sample(), cell::all());
    let of = |action: Action| sample.iter().filter(move |cell| cell.action == action);
    let killed: BTreeSet<Point> = of(Action::Kill).map(|cell| cell.point).collect();
    assert_eq!(killed, crash::points().collect(), "every point by a kill");
    let has =
        |action, side, class| of(action).any(|cell| cell.point.side == side && cell.class == class);
    for class in Class::ALL {
        for side in Side::ALL {
            assert!(has(Action::Stop, side, class), "{class:?} frozen {side:?} a step");
            assert!(has(Action::Kill, side, class), "{class:?} killed {side:?} a step");
        }
        let request = Point { step: Step::Request, side: Side::After };
        let mut there = of(Action::Kill).filter(|cell| cell.point == request);
        assert!(
            there.any(|cell| cell.class == class),
            "{class:?} killed when its request has left"
        );
    }
    let of_each = |processes| of(Action::Kill).filter(|cell| cell.processes == processes).count();
    assert!(of_each(1) > 10 && of_each(3) > 10);
    assert!(sample.iter().all(|cell| all.contains(cell)) && sample.len() <= 46, "{}", sample.len());
    let names: BTreeSet<String> = sample.iter().map(Cell::to_string).collect();
    assert_eq!(names.len(), sample.len(), "no cell twice");
}
