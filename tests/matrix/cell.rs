//! What the matrix is made of: a crash point, a class of provider, and how many processes there are.
//!
//! Reads: the program's own list of steps, so that a new one is in the matrix at once. Gives: all cells,
//! and a sample of them that comes to every point. Draws nothing.

use std::fmt;

use oncely::crash::{self, Action, Order, Point, Side, Step};
use oncely_tests::wiring::{EffectLines, charge, note, settlement};

/// What a provider can do for us when an answer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// It knows our key.
    A,
    /// It can be asked.
    B,
    /// Neither.
    C,
}

impl Class {
    pub(crate) const ALL: [Self; 3] = [Self::A, Self::B, Self::C];

    pub(crate) fn effect(self) -> EffectLines {
        match self {
            Self::A => charge(),
            Self::B => settlement(),
            Self::C => note(),
        }
    }
}

/// One cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) point: Point,
    pub(crate) class: Class,
    /// How many processes share the topic when one of them crashes.
    pub(crate) processes: usize,
    /// Killed; or frozen until others have declared it dead and taken over.
    pub(crate) action: Action,
}

impl Cell {
    pub(crate) const fn order(self) -> Order {
        Order { point: self.point, nth: 1, action: self.action }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.action {
            Action::Kill => "kill",
            Action::Stop => "freeze",
        };
        write!(out, "{}/{:?}/{}/{how}", self.point, self.class, self.processes)
    }
}

/// Every cell, in the order of a record's way.
pub(crate) fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    for point in crash::points() {
        for class in Class::ALL.into_iter().filter(|class| comes_to(point.step, *class)) {
            for processes in [1, 3] {
                cells.push(Cell { point, class, processes, action: Action::Kill });
            }
            if can_be_a_zombie(point) {
                cells.push(Cell { point, class, processes: 3, action: Action::Stop });
            }
        }
    }
    cells
}

/// Whether an effect of this class ever comes to the step.
fn comes_to(step: Step, class: Class) -> bool {
    match step {
        // Only who can be asked is asked.
        Step::LookUp => class == Class::B,
        // Brokers are no provider of any class; the effect beside the record is.
        Step::Publish | Step::PublishCommit => class == Class::A,
        _ => true,
    }
}

/// Where freezing a worker until others have taken over is another case than killing it.
fn can_be_a_zombie(point: Point) -> bool {
    match (point.step, point.side) {
        // Nothing is in its hands yet, or nothing any more.
        (Step::Start | Step::End, _) | (Step::Records, Side::Before) => false,
        _ => true,
    }
}

/// A sample that comes to every point by a kill, and for each class after its request has left; and by a
/// freeze to each class on both sides of a step. Classes and numbers of processes go round.
pub(crate) fn sample() -> Vec<Cell> {
    let all = all();
    let mut cells = Vec::new();
    let mut freezes = FREEZES.into_iter().peekable();
    for (turn, point) in crash::points().enumerate() {
        let of_point: Vec<&Cell> = all.iter().filter(|cell| cell.point == point).collect();
        let (kills, frozen): (Vec<&Cell>, Vec<&Cell>) =
            of_point.into_iter().partition(|cell| cell.action == Action::Kill);
        if (point.step, point.side) == (Step::Request, Side::After) {
            // Where the classes part.
            let mut turns = [1, 3].into_iter().cycle();
            for class in Class::ALL {
                let wanted = turns.next();
                let is_wanted =
                    |cell: &&&Cell| cell.class == class && Some(cell.processes) == wanted;
                cells.extend(kills.iter().find(is_wanted).map(|cell| **cell));
            }
        } else {
            cells.push(*kills[turn * 5 % kills.len()]);
        }
        let wanted = |side, class| {
            let is_wanted = |cell: &&&Cell| cell.point.side == side && cell.class == class;
            frozen.iter().find(is_wanted).map(|cell| **cell)
        };
        if turn % 5 == 2
            && let Some(cell) = freezes.peek().and_then(|(side, class)| wanted(*side, *class))
        {
            cells.push(cell);
            freezes.next();
        }
    }
    cells
}

/// What the sample freezes, in this order: each class on both sides of a step.
const FREEZES: [(Side, Class); 6] = [
    (Side::After, Class::A),
    (Side::Before, Class::B),
    (Side::After, Class::C),
    (Side::Before, Class::A),
    (Side::After, Class::B),
    (Side::Before, Class::C),
];
