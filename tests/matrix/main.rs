//! The crash matrix: every crash point, every class of provider, one process and three.
//!
//! Each cell is a story of its own: a topic, a database, a provider, real worker processes of which one
//! ends itself by SIGKILL (or freezes itself by SIGSTOP) at the point; then the invariants are checked from
//! outside. Broker and PostgreSQL are shared, and several cells run at once.
//!
//! Without options a sample that comes to every point. `--all`: every cell. `--only TEXT`: cells whose
//! names hold the text. `--jobs N`: so many at once. Prints a line for each cell and one JSON object at
//! the end; exit code 1 when an invariant was broken.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "a failed test should stop at once, and a new step is played as most are"
)]

mod cell;
mod script;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use cell::Cell;
use oncely_tests::jobs::{self, Options};
use script::Played;

/// Cells at once; most of a cell is waiting for leases and sessions.
const JOBS: usize = 6;

fn main() -> ExitCode {
    let options = Options::of_process();
    if !options.is_meant("matrix") {
        return ExitCode::SUCCESS;
    }
    let cells = if options.flag("--all") { cell::all() } else { cell::sample() };
    let cells: Vec<Cell> = match options.text("--only") {
        Some(text) => {
            cell::all().into_iter().filter(|cell| cell.to_string().contains(text)).collect()
        }
        None => cells,
    };
    let points: BTreeSet<_> = cells.iter().map(|cell| cell.point).collect();
    println!("{} of {} cells, {} points", cells.len(), cell::all().len(), points.len());
    let begun = Instant::now();
    let done = Mutex::new(Vec::new());
    let jobs = options.number("--jobs").unwrap_or(JOBS);
    jobs::each(cells, jobs, |cell| {
        let begun = Instant::now();
        let played = jobs::on_runtime(script::play(cell));
        say(cell, begun.elapsed(), &played);
        done.lock().unwrap().push(played);
    });
    let done = done.into_inner().unwrap();
    let well: Vec<&Played> = done.iter().filter_map(|played| played.as_ref().ok()).collect();
    let violations = done.len() - well.len();
    let object = serde_json::json!({
        "cells": done.len(),
        "points": points.len(),
        "violations": violations,
        "effects": well.iter().map(|played| played.effects).sum::<u64>(),
        "held": well.iter().map(|played| played.held).sum::<i64>(),
        "seconds": begun.elapsed().as_secs(),
    });
    println!("{object}");
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn say(cell: Cell, took: Duration, played: &Result<Played, String>) {
    let name = cell.to_string();
    let seconds = took.as_secs_f64();
    match played {
        Ok(Played { effects, held }) => {
            println!("{name:<36} {seconds:5.1} s  {effects:3} effects  {held:2} held");
        }
        Err(why) => println!("{name:<36} {seconds:5.1} s  BROKEN: {why}"),
    }
}
