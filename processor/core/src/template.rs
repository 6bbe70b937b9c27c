//! Text templates: literal text and `{{ }}` over the same roots as expressions.
//!
//! What stands inside `{{ }}` is Jinja's syntax. Inserted values are escaped for the place where
//! they land; a template is operator's text, an inserted value never is. Text of plain members is
//! put together directly, anything more by minijinja, both with the same result.

mod callable;
mod jinja;
pub mod url;

use std::collections::BTreeSet;
use std::fmt::Write;

pub use self::callable::Callable;
use self::jinja::Jinja;
use crate::expr::{Expr, ExprError, Path, Root, Scope};
use crate::value::{Decimal, Kind, Value};

/// Bytes of a template's text.
pub const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Bytes that one rendering may give.
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// Where a rendered text lands, which decides how inserted values are escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Mail subjects and text bodies, header values, form values (encoded later, as a whole).
    Text,
    Html,
    /// All but unreserved characters are percent-encoded.
    Url,
}

/// One compiled text.
#[derive(Debug)]
pub struct Template {
    text: Box<str>,
    target: Target,
    code: Code,
    reads: Vec<Path>,
}

#[derive(Debug)]
enum Code {
    Pieces(Vec<Piece>),
    Jinja(Box<Jinja>),
}

#[derive(Debug)]
enum Piece {
    Literal(Box<str>),
    Member(Expr),
}

/// Why a text is no template. Positions count bytes from its start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("{message}")]
    Syntax { message: Box<str>, at: Option<usize> },
    #[error("the template has {bytes} bytes, more than {TEXT_BYTES_MAX}")]
    TooLong { bytes: usize },
    #[error("unknown name `{name}`")]
    UnknownRoot { name: Box<str>, near: Option<Box<str>> },
    #[error("`{root}` has no member `{name}`")]
    UnknownMember { root: &'static str, name: Box<str>, near: Option<Box<str>> },
    #[error("unknown {} `{name}`", what.name())]
    UnknownName { what: Callable, name: Box<str>, near: Option<Box<str>>, at: Option<usize> },
}

impl TemplateError {
    /// Where in the text, in bytes, if that is known.
    pub fn at(&self) -> Option<usize> {
        match self {
            Self::Syntax { at, .. } | Self::UnknownName { at, .. } => *at,
            Self::TooLong { .. } | Self::UnknownRoot { .. } | Self::UnknownMember { .. } => None,
        }
    }

    /// The word that is wrong, and the one that was probably meant.
    pub fn near(&self) -> Option<&str> {
        match self {
            Self::UnknownRoot { near, .. }
            | Self::UnknownMember { near, .. }
            | Self::UnknownName { near, .. } => near.as_deref(),
            Self::Syntax { .. } | Self::TooLong { .. } => None,
        }
    }
}

/// Why a template gives no text for an event. Texts hold names, never values of an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    #[error("`{path}` is not there")]
    Absent { path: Box<str> },
    #[error("`{path}` is {kind}, which is no text")]
    NoText { path: Box<str>, kind: Kind },
    #[error("gives {kind}, which is no value")]
    NoValue { kind: Box<str> },
    #[error("{message}")]
    Failed { message: Box<str> },
    #[error("gives more than {OUTPUT_BYTES_MAX} bytes")]
    TooLong,
    /// Clients resolve such segments before they send, so another address would be called.
    #[error("a value would make a segment of the path `.` or `..`, or leave it empty")]
    Segment,
}

// --------------------------------------------------------------------------------------------- //

impl Template {
    /// # Errors
    /// [`TemplateError`] says what is wrong and, if known, where.
    pub fn compile(text: &str, target: Target) -> Result<Self, TemplateError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(TemplateError::TooLong { bytes: text.len() });
        }
        let (code, reads) = match pieces(text)? {
            Some(pieces) => {
                let reads = pieces.iter().filter_map(Piece::path).cloned().collect();
                (Code::Pieces(pieces), reads)
            }
            None => {
                let mut jinja = Jinja::text(text, target)?;
                let reads = std::mem::take(&mut jinja.reads);
                (Code::Jinja(Box::new(jinja)), reads)
            }
        };
        let reads: BTreeSet<Path> = reads;
        Ok(Self { text: text.into(), target, code, reads: reads.into_iter().collect() })
    }

    /// # Errors
    /// [`RenderError`] where a member is missing, null, or no text.
    pub fn render(&self, scope: &Scope<'_>) -> Result<String, RenderError> {
        let out = match &self.code {
            Code::Jinja(jinja) => jinja.render(scope)?,
            Code::Pieces(pieces) => self.put_together(pieces, scope)?,
        };
        if self.target == Target::Url && url::path_segments(&out).any(url::is_dots) {
            return Err(RenderError::Segment);
        }
        Ok(out)
    }

    fn put_together(&self, pieces: &[Piece], scope: &Scope<'_>) -> Result<String, RenderError> {
        let mut out = String::with_capacity(self.text.len());
        let mut emptied = url::Emptied::default();
        for piece in pieces {
            match piece {
                Piece::Literal(text) => {
                    out.push_str(text);
                    emptied.literal(text);
                }
                Piece::Member(member) => {
                    let before = out.len();
                    self.insert(&mut out, member, scope)?;
                    emptied.inserted(out.len().saturating_sub(before));
                }
            }
            if out.len() > OUTPUT_BYTES_MAX {
                return Err(RenderError::TooLong);
            }
        }
        if self.target == Target::Url && emptied.any() {
            return Err(RenderError::Segment);
        }
        Ok(out)
    }

    fn insert(
        &self,
        out: &mut String,
        member: &Expr,
        scope: &Scope<'_>,
    ) -> Result<(), RenderError> {
        let path = || member.text().into();
        let value = member.eval(scope).map_err(|_| RenderError::Absent { path: path() })?;
        let text = match &value {
            Value::Text(text) => text,
            Value::Int(number) => {
                // Digits and a sign need no escaping anywhere. Writing to a string cannot fail.
                let _infallible = write!(out, "{number}").is_ok();
                return Ok(());
            }
            Value::Decimal(number) => number.as_str(),
            Value::Bool(true) => "true",
            Value::Bool(false) => "false",
            Value::Null | Value::List(_) | Value::Object(_) => {
                return Err(RenderError::NoText { path: path(), kind: value.kind() });
            }
        };
        match self.target {
            Target::Text => out.push_str(text),
            Target::Html => html_escaped(out, text),
            Target::Url => out.push_str(&url_encoded(text)),
        }
        Ok(())
    }

    /// As it is written.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn target(&self) -> Target {
        self.target
    }

    /// Everything that it looks at, without repeats.
    pub fn reads(&self) -> &[Path] {
        &self.reads
    }

    pub fn reads_root(&self, root: Root) -> bool {
        self.reads.iter().any(|path| path.root == root)
    }
}

impl Piece {
    fn path(&self) -> Option<&Path> {
        match self {
            Self::Literal(_) => None,
            Self::Member(member) => member.as_path(),
        }
    }
}

/// The pieces, when `text` is literal text and plain members; `None` when it needs Jinja.
fn pieces(text: &str) -> Result<Option<Vec<Piece>>, TemplateError> {
    if text.contains("{%") || text.contains("{#") {
        return Ok(None);
    }
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((literal, after)) = rest.split_once("{{") {
        let Some((inside, tail)) = after.split_once("}}") else { return Ok(None) };
        let Some(member) = member(inside)? else { return Ok(None) };
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal.into()));
        }
        pieces.push(Piece::Member(member));
        rest = tail;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Literal(rest.into()));
    }
    Ok(Some(pieces))
}

/// A plain member with a dotted name, which Jinja and our own paths read alike.
fn member(inside: &str) -> Result<Option<Expr>, TemplateError> {
    let inside = inside.trim();
    let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '[' | ']');
    let constant = ["true", "false", "none", "True", "False", "None"].contains(&inside);
    if inside.is_empty() || constant || !inside.chars().all(letters) {
        return Ok(None);
    }
    match Expr::compile(inside) {
        Ok(expr) if expr.as_path().is_some() => Ok(Some(expr)),
        Err(ExprError::UnknownRoot { name, near, .. }) => {
            Err(TemplateError::UnknownRoot { name, near })
        }
        Err(ExprError::UnknownMember { root, name, near, .. }) => {
            Err(TemplateError::UnknownMember { root, name, near })
        }
        Ok(_) | Err(_) => Ok(None),
    }
}

/// As minijinja's own HTML escaping, so that both ways give the same.
fn html_escaped(out: &mut String, text: &str) {
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#x27;"),
            '/' => out.push_str("&#x2f;"),
            other => out.push(other),
        }
    }
}

/// RFC 3986: everything but unreserved characters as `%XX`.
pub(crate) fn url_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _infallible = write!(out, "%{byte:02X}").is_ok();
        }
    }
    out
}

// --------------------------------------------------------------------------------------------- //

/// A JSON tree whose texts are templates. Members keep the order of the file.
#[derive(Debug)]
pub enum TextTree {
    Null,
    Bool(bool),
    Int(i64),
    Decimal(Decimal),
    Text(TextNode),
    /// A text of one line, as a mail's address is: a break in it is an error.
    Line(Template),
    List(Vec<TextTree>),
    Object(Vec<(Box<str>, TextTree)>),
}

/// A text of a tree: one that is a single `{{ expression }}` keeps the expression's type.
#[derive(Debug)]
pub struct TextNode {
    code: NodeCode,
    reads: Vec<Path>,
}

#[derive(Debug)]
enum NodeCode {
    Value(Expr),
    Expression { jinja: Box<Jinja>, text: Box<str> },
    Text(Template),
}

impl TextNode {
    /// # Errors
    /// As [`Template::compile`].
    pub fn compile(text: &str) -> Result<Self, TemplateError> {
        let inside = text.trim().strip_prefix("{{").and_then(|text| text.strip_suffix("}}"));
        let inside = inside.filter(|inside| !inside.contains("{{") && !inside.contains("}}"));
        let Some(inside) = inside else {
            let template = Template::compile(text, Target::Text)?;
            let reads = template.reads.clone();
            return Ok(Self { code: NodeCode::Text(template), reads });
        };
        if let Some(expr) = member(inside)? {
            let reads = expr.reads().to_vec();
            return Ok(Self { code: NodeCode::Value(expr), reads });
        }
        let mut jinja = Jinja::expression(inside)?;
        let reads = std::mem::take(&mut jinja.reads).into_iter().collect();
        let code = NodeCode::Expression { jinja: Box::new(jinja), text: inside.trim().into() };
        Ok(Self { code, reads })
    }

    /// A node that gives the template's text, whatever it consists of.
    pub fn from_template(template: Template) -> Self {
        let reads = template.reads.clone();
        Self { code: NodeCode::Text(template), reads }
    }

    /// # Errors
    /// As [`Template::render`]; null, lists and objects are values here.
    pub fn eval(&self, scope: &Scope<'_>) -> Result<Value, RenderError> {
        match &self.code {
            NodeCode::Value(expr) => {
                let absent = |_| RenderError::Absent { path: expr.text().into() };
                expr.eval(scope).map_err(absent)
            }
            NodeCode::Expression { jinja, .. } => jinja.eval(scope),
            NodeCode::Text(template) => template.render(scope).map(Value::text),
        }
    }

    pub fn reads(&self) -> &[Path] {
        &self.reads
    }

    /// As it is written, of a single `{{ expression }}` the expression.
    fn text(&self) -> &str {
        match &self.code {
            NodeCode::Value(expr) => expr.text(),
            NodeCode::Expression { text, .. } => text,
            NodeCode::Text(template) => template.text(),
        }
    }
}

impl TextTree {
    /// Calls `visit` with all that it consists of, in order: names, texts as they are written, other values.
    pub fn for_each_text(&self, visit: &mut dyn FnMut(&str)) {
        match self {
            Self::Null => visit("null"),
            Self::Bool(value) => visit(if *value { "true" } else { "false" }),
            Self::Int(number) => visit(&number.to_string()),
            Self::Decimal(number) => visit(number.as_str()),
            Self::Text(node) => visit(node.text()),
            Self::Line(template) => visit(template.text()),
            Self::List(items) => items.iter().for_each(|item| item.for_each_text(visit)),
            Self::Object(members) => {
                for (name, value) in members {
                    visit(name);
                    value.for_each_text(visit);
                }
            }
        }
    }

    /// Calls `visit` with everything that the tree's texts look at.
    pub fn for_each_read(&self, visit: &mut dyn FnMut(&Path)) {
        match self {
            Self::Null | Self::Bool(_) | Self::Int(_) | Self::Decimal(_) => {}
            Self::Text(node) => node.reads.iter().for_each(visit),
            Self::Line(template) => template.reads.iter().for_each(visit),
            Self::List(items) => items.iter().for_each(|item| item.for_each_read(visit)),
            Self::Object(members) => {
                members.iter().for_each(|(_, member)| member.for_each_read(visit));
            }
        }
    }
}

#[cfg(test)]
mod tests;
