//! Expressions over an event.
/// One compiled expression.
#[derive(Debug)]
pub struct Expr;
