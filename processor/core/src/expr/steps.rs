//! A bound on what the loops of one expression may do.
//!
//! An expression is the operator's, the lists that it walks are the event's: two loops, or a search inside of one,
//! cost their product, which one long record makes hours. So what a loop walks is counted before it is walked, and so
//! is what is searched or read inside of it. Expressions without loops cost no more than they are long.

use std::cell::Cell;

use cel::common::ast::{CallExpr, Expr as Node, IdedExpr};
use cel::common::types::DYN_TYPE;
use cel::common::value::CowVal;
use cel::{Env, ExecutionError};

/// Elements that one evaluation may walk.
pub(super) const STEPS_MAX: u64 = 5_000_000;
/// Characters that are read as fast as one element is walked.
const CHARACTERS: usize = 32;

/// Names that no text of an expression can have.
const WALK: &str = "@walk";
const READ: &str = "@read";

thread_local! {
    /// What is left to the evaluation that runs on this thread.
    static LEFT: Cell<u64> = const { Cell::new(STEPS_MAX) };
}

/// Declares what counts.
pub(super) fn declare(env: &mut Env) {
    // Fails only for a name that is taken twice, which the tests would show.
    let _declared = env.add_overload(WALK, "walk_dyn", vec![DYN_TYPE], walk).is_ok();
    let _declared = env.add_overload(READ, "read_dyn", vec![DYN_TYPE], read).is_ok();
}

/// An evaluation begins.
pub(super) fn begin() {
    LEFT.set(STEPS_MAX);
}

/// Takes so many steps, and one. False: there are none left.
pub(super) fn spend(steps: usize) -> bool {
    let steps = u64::try_from(steps).unwrap_or(u64::MAX).saturating_add(1);
    LEFT.set(LEFT.get().saturating_sub(steps));
    !is_spent()
}

/// Whether the evaluation was cut off: its answer means nothing then, since `||` goes over errors.
pub(super) fn is_spent() -> bool {
    LEFT.get() == 0
}

/// Counts the elements of what the node gives.
pub(super) fn count_walk(node: &mut IdedExpr) {
    wrap(node, WALK);
}

/// Counts the characters of what the node gives.
pub(super) fn count_read(node: &mut IdedExpr) {
    if !matches!(node.expr, Node::Literal(_)) {
        wrap(node, READ);
    }
}

fn wrap(node: &mut IdedExpr, name: &str) {
    let inner = std::mem::take(node);
    let id = inner.id;
    let call = CallExpr { func_name: name.to_owned(), target: None, args: vec![inner] };
    *node = IdedExpr { id, expr: Node::Call(call) };
}

fn walk<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    take(WALK, arguments, 1)
}

fn read<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    take(READ, arguments, CHARACTERS)
}

fn take<'b, 'v>(
    name: &str,
    arguments: Vec<CowVal<'b, 'v>>,
    per_step: usize,
) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let spent = || ExecutionError::function_error(name, "too many steps");
    let value = arguments.into_iter().next().ok_or_else(spent)?;
    let size = value.as_ref().as_sizer().map_or(0, |sizer| *sizer.size().inner());
    let size = usize::try_from(size).unwrap_or(0);
    if spend(size.checked_div(per_step).unwrap_or(size)) { Ok(value) } else { Err(spent()) }
}
