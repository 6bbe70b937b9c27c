//! Templates that are more than members between literal text: minijinja.
//!
//! Undefined members are errors, null is not printed, lists and objects are printed only by
//! `tojson`, decimals print as they were written, work and output are bounded.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Enumerator, Object, ObjectRepr, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior};

use super::{OUTPUT_BYTES_MAX, RenderError, Target, TemplateError, callable, url_encoded};
use crate::expr::{Path, Root, Scope, Step, spelling};
use crate::render::json;
use crate::value::{Decimal, Value};

/// Instructions that one rendering may take.
const FUEL: u64 = 100_000;
const NAME: &str = "template";
/// The variable that holds the value of a single expression.
const ANSWER: &str = "oncely_answer";

/// A compiled template.
pub(super) struct Jinja {
    /// Holds this one template.
    environment: Environment<'static>,
    roots: BTreeSet<Root>,
    pub(super) reads: BTreeSet<Path>,
}

impl fmt::Debug for Jinja {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jinja").field("reads", &self.reads).finish_non_exhaustive()
    }
}

impl Jinja {
    pub(super) fn text(source: &str, target: Target) -> Result<Self, TemplateError> {
        Self::compile(source.to_owned(), target, 0)
    }

    /// A single expression, whose value is asked for.
    pub(super) fn expression(source: &str) -> Result<Self, TemplateError> {
        let before = format!("{{% set {ANSWER} = (");
        let text = format!("{before}{source}) %}}");
        Self::compile(text, Target::Text, before.len())
    }

    fn compile(source: String, target: Target, before: usize) -> Result<Self, TemplateError> {
        let mut environment = base().clone();
        environment.set_auto_escape_callback(move |_| match target {
            Target::Text => AutoEscape::None,
            Target::Html => AutoEscape::Html,
            Target::Url => AutoEscape::Custom("url".into()),
        });
        environment.add_template_owned(NAME, source).map_err(|error| {
            let at = error.range().map(|range| range.start.saturating_sub(before));
            TemplateError::Syntax { message: message(&error), at }
        })?;
        let template = environment
            .get_template(NAME)
            .map_err(|error| TemplateError::Syntax { message: message(&error), at: None })?;
        callable::check(&environment, &template, before)?;
        let mut reads = BTreeSet::new();
        for name in template.undeclared_variables(true) {
            let mut members = name.split('.');
            let root = members.next().unwrap_or_default();
            if environment.globals().any(|(global, _)| global == root) {
                continue;
            }
            let root = known_root(root)?;
            let steps = members.map(|name| Step::Member(name.into())).collect();
            let path = Path { root, steps };
            check_members(&path)?;
            reads.insert(path);
        }
        let roots = reads.iter().map(|path| path.root).collect();
        Ok(Self { environment, roots, reads })
    }

    pub(super) fn render(&self, scope: &Scope<'_>) -> Result<String, RenderError> {
        let template = self.environment.get_template(NAME).map_err(|error| failed(&error))?;
        let mut out = Bounded(Vec::new());
        let rendered = template.render_captured_to(self.context(scope), &mut out);
        rendered.map_err(|error| failed(&error))?;
        String::from_utf8(out.0).map_err(|_| RenderError::TooLong)
    }

    pub(super) fn eval(&self, scope: &Scope<'_>) -> Result<Value, RenderError> {
        let template = self.environment.get_template(NAME).map_err(|error| failed(&error))?;
        let captured = template.render_captured(self.context(scope));
        let captured = captured.map_err(|error| failed(&error))?;
        let value = captured.state().lookup(ANSWER).unwrap_or(minijinja::Value::UNDEFINED);
        if value.is_undefined() {
            return Err(RenderError::Failed { message: "the value is not there".into() });
        }
        from_jinja(&value)
    }

    fn context(&self, scope: &Scope<'_>) -> minijinja::Value {
        let present = self.roots.iter().filter_map(|root| Some((root.name(), scope.root(*root)?)));
        minijinja::Value::from_pairs(present.map(|(name, value)| (name, to_jinja(&value))))
    }
}

/// Filters and functions are the same for all; building them once saves their maps.
fn base() -> &'static Environment<'static> {
    static BASE: OnceLock<Environment<'static>> = OnceLock::new();
    BASE.get_or_init(|| {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(FUEL));
        // Building fails for delimiters that clash; these are the usual ones.
        if let Ok(syntax) = SyntaxConfig::builder().keep_trailing_newline(true).build() {
            environment.set_syntax(syntax);
        }
        environment.set_debug(false);
        environment.set_formatter(format);
        environment.add_filter("tojson", |value: &minijinja::Value| {
            let text = from_jinja(value).map(|value| json::to_script_text(&value));
            text.map(minijinja::Value::from_safe_string)
                .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
        });
        // Prints everything that the template can see.
        environment.remove_global("debug");
        environment
    })
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the enum is non-exhaustive")]
fn format(
    out: &mut Output<'_>,
    state: &mut State<'_, '_>,
    value: &minijinja::Value,
) -> Result<(), Error> {
    let refuse = |text: &'static str| Err(Error::new(ErrorKind::InvalidOperation, text));
    match value.kind() {
        ValueKind::None => return refuse("the value is null; give it a default"),
        ValueKind::Map | ValueKind::Seq | ValueKind::Iterable => {
            return refuse("the value is a list or an object; print it with `| tojson`");
        }
        // As in JSON; Jinja's own is Python's `True`.
        ValueKind::Bool => {
            let text = if value.is_true() { "true" } else { "false" };
            return out.write_str(text).map_err(Error::from);
        }
        _ => {}
    }
    if matches!(state.auto_escape(), AutoEscape::Custom(_)) && !value.is_safe() {
        return out.write_str(&url_encoded(&value.to_string())).map_err(Error::from);
    }
    minijinja::escape_formatter(out, state, value)
}

/// The message without the template's name and without values.
fn message(error: &Error) -> Box<str> {
    let detail = error.detail().unwrap_or_default();
    let kind = error.kind();
    if detail.is_empty() { kind.to_string().into() } else { format!("{kind}: {detail}").into() }
}

fn failed(error: &Error) -> RenderError {
    if error.kind() == ErrorKind::WriteFailure {
        return RenderError::TooLong;
    }
    RenderError::Failed { message: message(error) }
}

fn known_root(name: &str) -> Result<Root, TemplateError> {
    Root::parse(name).ok_or_else(|| TemplateError::UnknownRoot {
        name: name.into(),
        near: spelling::nearest(name, Root::ALL.into_iter().map(Root::name)).map(Box::from),
    })
}

pub(super) fn check_members(path: &Path) -> Result<(), TemplateError> {
    let Some(name) = path.unknown_member() else { return Ok(()) };
    let known = path.root.members().unwrap_or_default().iter().copied();
    Err(TemplateError::UnknownMember {
        root: path.root.name(),
        name: name.into(),
        near: spelling::nearest(name, known).map(Box::from),
    })
}

/// Takes bytes up to [`OUTPUT_BYTES_MAX`].
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len().saturating_add(bytes.len()) > OUTPUT_BYTES_MAX {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// --------------------------------------------------------------------------------------------- //

/// Cheap: lists and objects are shared, not copied.
fn to_jinja(value: &Value) -> minijinja::Value {
    match value {
        Value::Null => minijinja::Value::from(()),
        Value::Bool(value) => minijinja::Value::from(*value),
        Value::Int(number) => minijinja::Value::from(*number),
        Value::Text(text) => minijinja::Value::from(&**text),
        Value::Decimal(number) => minijinja::Value::from_object(Exact(number.clone())),
        Value::List(items) => minijinja::Value::from_object(Items(Arc::clone(items))),
        Value::Object(members) => minijinja::Value::from_object(Members(members.clone())),
    }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the enum is non-exhaustive")]
fn from_jinja(value: &minijinja::Value) -> Result<Value, RenderError> {
    if let Some(Exact(number)) = value.downcast_object_ref() {
        return Ok(Value::Decimal(number.clone()));
    }
    if let Some(Items(items)) = value.downcast_object_ref() {
        return Ok(Value::List(Arc::clone(items)));
    }
    if let Some(Members(members)) = value.downcast_object_ref() {
        return Ok(Value::Object(members.clone()));
    }
    let none = |kind: ValueKind| RenderError::NoValue { kind: kind.to_string().into() };
    match value.kind() {
        ValueKind::None => Ok(Value::Null),
        ValueKind::Bool => Ok(Value::Bool(value.is_true())),
        ValueKind::String => Ok(Value::text(value.as_str().unwrap_or_default())),
        ValueKind::Number => {
            let text = value.to_string();
            let number = text.parse().map(Value::Int).ok();
            let number = number.or_else(|| Decimal::parse(&text).map(Value::Decimal));
            number.ok_or_else(|| none(ValueKind::Number))
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value.try_iter().map_err(|error| failed(&error))?;
            items.map(|item| from_jinja(&item)).collect::<Result<Vec<_>, _>>().map(Value::list)
        }
        ValueKind::Map => {
            let names = value.try_iter().map_err(|error| failed(&error))?;
            let pair = |name: minijinja::Value| {
                let member = value.get_item(&name).map_err(|error| failed(&error))?;
                Ok((Arc::<str>::from(name.to_string()), from_jinja(&member)?))
            };
            names.map(pair).collect::<Result<Vec<_>, _>>().map(Value::object)
        }
        kind => Err(none(kind)),
    }
}

/// Prints as it was written; computing with it is an error, since it would round.
#[derive(Debug)]
struct Exact(Decimal);

impl Object for Exact {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

#[derive(Debug)]
struct Items(Arc<[Value]>);

impl Object for Items {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &minijinja::Value) -> Option<minijinja::Value> {
        self.0.get(key.as_usize()?).map(to_jinja)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.0.len())
    }
}

#[derive(Debug)]
struct Members(crate::value::Object);

impl Object for Members {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &minijinja::Value) -> Option<minijinja::Value> {
        self.0.get(key.as_str()?).map(to_jinja)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let names = self.0.iter().map(|(name, _)| minijinja::Value::from(&**name));
        Enumerator::Values(names.collect())
    }
}
