//! Expressions over an event.
//!
//! A plain member path is looked up directly and costs well under a microsecond. `entered("x")`
//! alone is answered from the state. Everything else is CEL.
//!
//! Reads: a text when the connector loads, a [`Scope`] for each event. Gives: a value, or an error
//! that names what is missing. Error texts hold types and member names, never values of an event.

mod cel;
mod path;
mod scope;
pub mod spelling;
mod steps;
mod view;

use std::borrow::Cow;

use ::cel::ExecutionError;

pub use self::cel::TEXT_BYTES_MAX;
pub use self::path::{Path, Root, Step};
pub use self::scope::{Header, Meta, Scope, StateView};
use crate::value::{Kind, Value};

/// One compiled expression.
#[derive(Debug)]
pub struct Expr {
    text: Box<str>,
    code: Code,
    reads: Vec<Path>,
    entered: Vec<Box<str>>,
}

#[derive(Debug)]
enum Code {
    Path(Path),
    Entered(Box<str>),
    Cel(Box<cel::Program>),
}

/// Why a text is no expression. Positions count characters from the start of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExprError {
    #[error("the expression is empty")]
    Empty,
    #[error("the expression has {bytes} bytes, more than {TEXT_BYTES_MAX}")]
    TooLong { bytes: usize },
    #[error("the expression is nested deeper than {max} levels")]
    TooDeep { max: usize },
    #[error("more than {max} loops inside each other")]
    TooManyLoops { at: usize, max: usize },
    #[error("{message}")]
    Syntax { message: Box<str>, at: usize },
    #[error("unknown name `{name}`")]
    UnknownRoot { name: Box<str>, near: Option<Box<str>>, at: usize },
    #[error("`{root}` has no member `{name}`")]
    UnknownMember { root: &'static str, name: Box<str>, near: Option<Box<str>>, at: usize },
    #[error("unknown function `{name}`")]
    UnknownFunction { name: Box<str>, near: Option<Box<str>>, at: usize },
    #[error("`entered` takes one state name in quotes")]
    EnteredArgument { at: usize },
    #[error("`{root}` must be followed by a name: `{root}.name`")]
    MemberNeeded { root: &'static str, at: usize },
    #[error("expressions make no structs")]
    NoStructs { at: usize },
    #[error("the expression cannot be parsed")]
    Parser,
}

impl ExprError {
    /// Where in the text, in characters, if that is known.
    pub fn at(&self) -> Option<usize> {
        match self {
            Self::Empty | Self::TooLong { .. } | Self::TooDeep { .. } | Self::Parser => None,
            Self::TooManyLoops { at, .. }
            | Self::Syntax { at, .. }
            | Self::UnknownRoot { at, .. }
            | Self::UnknownMember { at, .. }
            | Self::UnknownFunction { at, .. }
            | Self::EnteredArgument { at }
            | Self::MemberNeeded { at, .. }
            | Self::NoStructs { at } => Some(*at),
        }
    }

    /// The word that was probably meant.
    pub fn near(&self) -> Option<&str> {
        match self {
            Self::UnknownRoot { near, .. }
            | Self::UnknownMember { near, .. }
            | Self::UnknownFunction { near, .. } => near.as_deref(),
            Self::Empty
            | Self::TooLong { .. }
            | Self::TooDeep { .. }
            | Self::TooManyLoops { .. }
            | Self::Syntax { .. }
            | Self::EnteredArgument { .. }
            | Self::MemberNeeded { .. }
            | Self::NoStructs { .. }
            | Self::Parser => None,
        }
    }
}

/// Why an expression gives no value for an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// Nothing is there: a missing id is told apart from a broken one.
    #[error("`{path}` is not there")]
    Absent { path: Box<str> },
    #[error("{message}")]
    Failed { message: Box<str> },
    #[error("its loops would walk more than {} elements of this event", steps::STEPS_MAX)]
    TooManySteps,
    #[error("gives {kind}, not true or false")]
    NotBool { kind: Kind },
    #[error("gives a number that is none (infinite, or beyond 64 bits)")]
    NoNumber,
    #[error("gives {kind}, which is no value of an event")]
    NoValue { kind: Box<str> },
}

impl EvalError {
    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent { .. })
    }

    /// CEL's own texts print operands; these do not.
    #[allow(clippy::wildcard_enum_match_arm, reason = "the enum is non-exhaustive")]
    fn from_cel(error: &ExecutionError) -> Self {
        let failed = |message: &str| Self::Failed { message: message.into() };
        match error {
            ExecutionError::NoSuchKey(key) => Self::Absent { path: key.as_str().into() },
            ExecutionError::UndeclaredReference(name) => {
                Self::Absent { path: name.as_str().into() }
            }
            ExecutionError::NoSuchOverload(overload) => {
                let function = overload.function();
                let types = overload.argument_types().join(", ");
                Self::Failed { message: format!("`{function}` does not take ({types})").into() }
            }
            ExecutionError::UnexpectedType { got, want } => {
                Self::Failed { message: format!("is {got} where {want} is needed").into() }
            }
            ExecutionError::UnsupportedBinaryOperator(operator, left, right) => {
                let (left, right) = (left.type_of(), right.type_of());
                Self::Failed { message: format!("cannot {operator} {left} and {right}").into() }
            }
            ExecutionError::FunctionError { function, .. } => {
                Self::Failed { message: format!("`{function}` failed on its arguments").into() }
            }
            ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => {
                failed("division by zero")
            }
            ExecutionError::Overflow(..) => failed("the number does not fit into 64 bits"),
            ExecutionError::IndexOutOfBounds(_) => failed("the list is shorter than that"),
            ExecutionError::ValuesNotComparable(left, right) => {
                let (left, right) = (left.type_of(), right.type_of());
                Self::Failed { message: format!("cannot compare {left} with {right}").into() }
            }
            _ => failed("the expression failed on these types"),
        }
    }
}

// --------------------------------------------------------------------------------------------- //

impl Expr {
    /// # Errors
    /// [`ExprError`] says what is wrong and where.
    pub fn compile(text: &str) -> Result<Self, ExprError> {
        let trimmed = text.trim();
        let lead = text.chars().count().saturating_sub(text.trim_start().chars().count());
        Self::compile_trimmed(trimmed).map_err(|error| shifted(error, lead))
    }

    fn compile_trimmed(text: &str) -> Result<Self, ExprError> {
        if text.is_empty() {
            return Err(ExprError::Empty);
        }
        let make = |code, reads, entered| Self { text: text.into(), code, reads, entered };
        if let Some(name) = entered_alone(text) {
            return Ok(make(Code::Entered(name.into()), Vec::new(), vec![name.into()]));
        }
        let path = path::split(text).filter(|(root, _)| !["true", "false", "null"].contains(root));
        if let Some((root, steps)) = path {
            let path = Path { root: known_root(root, 0)?, steps };
            check_members(&path, 0)?;
            return Ok(make(Code::Path(path.clone()), vec![path], Vec::new()));
        }
        let program = cel::Program::compile(text)?;
        let reads = program.reads.iter().cloned().collect();
        let entered = program.entered.iter().cloned().collect();
        Ok(make(Code::Cel(Box::new(program)), reads, entered))
    }

    /// # Errors
    /// [`EvalError::Absent`] where nothing is there; others where the event does not fit.
    pub fn eval(&self, scope: &Scope<'_>) -> Result<Value, EvalError> {
        match &self.code {
            Code::Path(path) => match scope.find(path) {
                Some(Cow::Borrowed(value)) => Ok(value.clone()),
                Some(Cow::Owned(value)) => Ok(value),
                None => Err(EvalError::Absent { path: self.text.clone() }),
            },
            Code::Entered(name) => {
                Ok(Value::Bool(scope.state.is_some_and(|state| state.entered(name))))
            }
            Code::Cel(program) => program.eval(scope),
        }
    }

    /// # Errors
    /// As [`Expr::eval`], and [`EvalError::NotBool`].
    pub fn is_true(&self, scope: &Scope<'_>) -> Result<bool, EvalError> {
        let value = self.eval(scope)?;
        let Value::Bool(value) = value else {
            return Err(EvalError::NotBool { kind: value.kind() });
        };
        Ok(value)
    }

    /// As it is written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Everything that it looks at, without repeats. `entered()` is listed in
    /// [`Expr::states_entered`] instead.
    pub fn reads(&self) -> &[Path] {
        &self.reads
    }

    /// The states that `entered()` asks for.
    pub fn states_entered(&self) -> &[Box<str>] {
        &self.entered
    }

    /// Whether it reads nothing, so that it has one value for all events.
    pub fn is_constant(&self) -> bool {
        self.reads.is_empty() && self.entered.is_empty()
    }

    pub fn reads_root(&self, root: Root) -> bool {
        self.reads.iter().any(|path| path.root == root)
            || (root == Root::State && !self.entered.is_empty())
    }

    /// Whether it is the same for every event, or depends on where the record stands alone: such
    /// an expression identifies nothing.
    pub fn is_coordinates_only(&self) -> bool {
        self.entered.is_empty() && self.reads.iter().all(|path| path.root == Root::Meta)
    }

    /// The kind of value that it gives for every event for which it gives one, where its form alone says so.
    pub fn kind(&self) -> Option<Kind> {
        match &self.code {
            Code::Path(_) => None,
            Code::Entered(_) => Some(Kind::Bool),
            Code::Cel(program) => program.kind(),
        }
    }

    /// The path, when it is one and nothing else.
    pub fn as_path(&self) -> Option<&Path> {
        match &self.code {
            Code::Path(path) => Some(path),
            Code::Entered(_) | Code::Cel(_) => None,
        }
    }
}

/// `entered("name")` and nothing else.
fn entered_alone(text: &str) -> Option<&str> {
    let inside = text.strip_prefix("entered(")?.strip_suffix(')')?.trim();
    let quoted = |quote: char| inside.strip_prefix(quote)?.strip_suffix(quote);
    let name = quoted('"').or_else(|| quoted('\''))?;
    (!name.contains(['"', '\'', '\\'])).then_some(name)
}

fn known_root(name: &str, at: usize) -> Result<Root, ExprError> {
    Root::parse(name).ok_or_else(|| {
        let known = Root::ALL.into_iter().map(Root::name);
        ExprError::UnknownRoot {
            name: name.into(),
            near: spelling::nearest(name, known).map(Box::from),
            at,
        }
    })
}

fn check_members(path: &Path, at: usize) -> Result<(), ExprError> {
    if cel::needs_member(path.root) && path.first_member().is_none() {
        return Err(ExprError::MemberNeeded { root: path.root.name(), at });
    }
    let Some(name) = path.unknown_member() else { return Ok(()) };
    let known = path.root.members().unwrap_or_default().iter().copied();
    Err(ExprError::UnknownMember {
        root: path.root.name(),
        name: name.into(),
        near: spelling::nearest(name, known).map(Box::from),
        at,
    })
}

/// The same error, counted from `lead` characters earlier.
fn shifted(mut error: ExprError, lead: usize) -> ExprError {
    match &mut error {
        ExprError::Empty
        | ExprError::TooLong { .. }
        | ExprError::TooDeep { .. }
        | ExprError::Parser => {}
        ExprError::TooManyLoops { at, .. }
        | ExprError::Syntax { at, .. }
        | ExprError::UnknownRoot { at, .. }
        | ExprError::UnknownMember { at, .. }
        | ExprError::UnknownFunction { at, .. }
        | ExprError::EnteredArgument { at }
        | ExprError::MemberNeeded { at, .. }
        | ExprError::NoStructs { at } => *at = at.saturating_add(lead),
    }
    error
}

#[cfg(test)]
mod tests;
