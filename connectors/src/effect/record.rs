//! What is kept of an answer: the `record:` of an effect.
//!
//! Reads: the expressions over `response`, and an answer. Gives: an object of the recorded members.
//! An answer that does not hold what was to be recorded is an error, never a gap in the result:
//! later effects are rendered from it.

use std::str;

use oncely_core::expr::{EvalError, Expr, ExprError, Root, Scope};
use oncely_core::value::Value;

use crate::format::DecodeError;
use crate::format::json;

/// The compiled `record:` of one effect.
#[derive(Debug, Default)]
pub struct Record {
    members: Vec<(Box<str>, Expr)>,
    reads: Reads,
}

/// Which members of `response` are looked at; the others are not made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reads {
    headers: bool,
    json: bool,
    text: bool,
}

impl Reads {
    pub(super) fn of<'e>(exprs: impl Iterator<Item = &'e Expr>) -> Self {
        let mut reads = Self::default();
        for path in exprs.flat_map(|expr| expr.reads()).filter(|path| path.root == Root::Response) {
            let reads_member = |member| path.first_member().is_none_or(|first| first == member);
            reads.headers |= reads_member("headers");
            reads.json |= reads_member("json");
            reads.text |= reads_member("text");
        }
        reads
    }

    pub(super) const fn body(self) -> bool {
        self.json || self.text
    }

    /// `response`, as far as it is looked at.
    pub(super) fn response<'h>(
        self,
        answer: &Answer<'_>,
        headers: impl Iterator<Item = (&'h str, &'h [u8])>,
    ) -> Result<Value, RecordError> {
        let mut response = vec![("status", Value::Int(answer.status.into()))];
        if self.headers {
            let text = |(name, value)| Some((name, Value::text(str::from_utf8(value).ok()?)));
            response.push(("headers", Value::object(headers.filter_map(text))));
        }
        if self.json {
            response.push(("json", json::parse(answer.body)?));
        }
        if self.text {
            let text = str::from_utf8(answer.body).map_err(|_| RecordError::NoText)?;
            response.push(("text", Value::text(text)));
        }
        Ok(Value::object(response))
    }
}

/// An answer as the expressions see it; a mail server's reply has a code and a text only.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    pub status: u16,
    pub body: &'a [u8],
}

/// Why an answer cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("the body is no JSON: {0}")]
    NoJson(#[from] DecodeError),
    #[error("the body is no UTF-8 text")]
    NoText,
    #[error("`{name}`: {cause}")]
    Member { name: Box<str>, cause: EvalError },
}

impl Record {
    /// # Errors
    /// When an expression that was compiled before does not compile again.
    pub fn new(members: &[(Box<str>, Expr)]) -> Result<Self, ExprError> {
        let reads = Reads::of(members.iter().map(|(_, expr)| expr));
        let members = members.iter();
        let members = members.map(|(name, expr)| Ok((name.clone(), Expr::compile(expr.text())?)));
        Ok(Self { members: members.collect::<Result<_, _>>()?, reads })
    }

    /// Whether the body of an answer is needed.
    pub fn reads_body(&self) -> bool {
        self.reads.body()
    }

    /// # Errors
    /// [`RecordError`] names what is missing or cannot be read.
    pub fn of<'h>(
        &self,
        answer: &Answer<'_>,
        headers: impl Iterator<Item = (&'h str, &'h [u8])>,
    ) -> Result<Value, RecordError> {
        if self.members.is_empty() {
            return Ok(Value::object::<&str>([]));
        }
        self.of_response(&self.reads.response(answer, headers)?)
    }

    /// As [`Record::of`], of an answer that is a value already.
    ///
    /// # Errors
    /// [`RecordError`] names what is missing.
    pub(super) fn of_response(&self, response: &Value) -> Result<Value, RecordError> {
        let scope = Scope { response: Some(response), ..Scope::default() };
        let members = self.members.iter().map(|(name, expr)| match expr.eval(&scope) {
            Ok(value) => Ok((name.clone(), value)),
            Err(cause) => Err(RecordError::Member { name: name.clone(), cause }),
        });
        Ok(Value::object(members.collect::<Result<Vec<_>, _>>()?))
    }
}
