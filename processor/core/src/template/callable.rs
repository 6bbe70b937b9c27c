//! What a template calls by name: filters, tests, functions and methods, in every branch of it.
//!
//! Reads: the instructions of a compiled template. Gives: the first name that nothing here has, with its
//! place. minijinja looks names up when it comes to them, which for a request that is rendered late is after
//! what it waits for was done; so they are looked up when the file is read.

use minijinja::machinery::{Instruction, Instructions, get_compiled_template};
use minijinja::{Environment, Template, Value};

use super::TemplateError;
use crate::expr::{Root, spelling};

/// What is called by a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callable {
    Filter,
    Test,
    Function,
    Method,
}

/// Names for a slip; what exists is asked of the environment.
const FILTERS: [&str; 33] = [
    "abs",
    "attr",
    "batch",
    "capitalize",
    "default",
    "dictsort",
    "escape",
    "first",
    "float",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "replace",
    "reverse",
    "round",
    "select",
    "sort",
    "split",
    "string",
    "sum",
    "tojson",
    "trim",
    "upper",
];
const TESTS: [&str; 14] = [
    "boolean",
    "defined",
    "divisibleby",
    "endingwith",
    "even",
    "in",
    "integer",
    "mapping",
    "none",
    "number",
    "odd",
    "sequence",
    "startingwith",
    "string",
];
/// Those of `loop`: values of an event have none.
const METHODS: [&str; 2] = ["changed", "cycle"];

impl Callable {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Test => "test",
            Self::Function => "function",
            Self::Method => "method",
        }
    }

    /// Some that are often used.
    pub const fn examples(self) -> &'static [&'static str] {
        match self {
            Self::Filter => {
                &["default", "join", "lower", "replace", "round", "tojson", "trim", "upper"]
            }
            Self::Test => &["defined", "in", "none", "number", "string"],
            Self::Function | Self::Method => self.known(),
        }
    }

    /// The names that are suggested.
    const fn known(self) -> &'static [&'static str] {
        match self {
            Self::Filter => &FILTERS,
            Self::Test => &TESTS,
            Self::Function => &["dict", "namespace", "range"],
            Self::Method => &METHODS,
        }
    }
}

/// Refuses a template that calls what is not there. `before` bytes of its text are none of the file's.
pub(super) fn check(
    environment: &Environment<'static>,
    template: &Template<'_, '_>,
    before: usize,
) -> Result<(), TemplateError> {
    let compiled = get_compiled_template(template);
    let mut instructions = std::iter::once(&compiled.instructions).chain(compiled.blocks.values());
    instructions.try_for_each(|one| check_all(environment, one, before))
}

#[allow(clippy::wildcard_enum_match_arm, reason = "most instructions call nothing")]
fn check_all(
    environment: &Environment<'static>,
    all: &Instructions<'_>,
    before: usize,
) -> Result<(), TemplateError> {
    for (index, instruction) in (0..).map_while(|index| Some((index, all.get(index)?))) {
        let refused = match instruction {
            Instruction::ApplyFilter(name, count, _) => {
                let named = handed_over(all, index, *count);
                let inner = match *name {
                    "map" => named.first().map(|inner| (Callable::Filter, inner)),
                    "select" | "reject" => named.first().map(|inner| (Callable::Test, inner)),
                    "selectattr" | "rejectattr" => {
                        named.get(1).map(|inner| (Callable::Test, inner))
                    }
                    _ => None,
                };
                let inner =
                    inner.and_then(|(what, name)| unknown(environment, what, name.as_str()?));
                unknown(environment, Callable::Filter, name).or(inner)
            }
            Instruction::PerformTest(name, ..) => unknown(environment, Callable::Test, name),
            // An unknown name is found with the variables; a value is no function.
            Instruction::CallFunction(name, _) => {
                Root::parse(name).map(|_| (Callable::Function, (*name).to_owned()))
            }
            Instruction::CallMethod(name, _) => {
                (!METHODS.contains(name)).then(|| (Callable::Method, (*name).to_owned()))
            }
            _ => None,
        };
        if let Some((what, name)) = refused {
            let near = spelling::nearest(&name, what.known().iter().copied()).map(Box::from);
            let start =
                all.get_span(index).and_then(|span| usize::try_from(span.start_offset).ok());
            // The place of a filter is that of what it is applied to.
            let written = start.and_then(|start| {
                let at = all.source().get(start..)?.find(&name)?;
                start.checked_add(at)?.checked_sub(before)
            });
            return Err(TemplateError::UnknownName { what, name: name.into(), near, at: written });
        }
    }
    Ok(())
}

/// The arguments that a filter is given beside its value, as far as all of them are written out.
fn handed_over<'a>(all: &'a Instructions<'_>, index: u32, count: Option<u16>) -> Vec<&'a Value> {
    let count = u32::from(count.unwrap_or_default()).saturating_sub(1);
    let from = index.saturating_sub(count);
    let constant = |index| match all.get(index) {
        Some(Instruction::LoadConst(value)) => Some(value),
        _ => None,
    };
    (from..index).map(constant).collect::<Option<_>>().unwrap_or_default()
}

fn unknown(
    environment: &Environment<'static>,
    what: Callable,
    name: &str,
) -> Option<(Callable, String)> {
    let name = name.trim();
    let asked = environment.empty_state().perform_test(what.name(), &[Value::from(name)]);
    (!asked.unwrap_or(false)).then(|| (what, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::{Target, Template, TextNode};
    use super::*;

    fn refused(text: &str) -> Option<(String, Option<usize>)> {
        let error = Template::compile(text, Target::Text).err()?;
        assert!(matches!(error, TemplateError::UnknownName { .. }), "{text}: {error}");
        let near = error.near().map(|near| format!(", {near}")).unwrap_or_default();
        Some((format!("{error}{near}"), error.at()))
    }

    #[test]
    fn names_that_nothing_has_are_found_in_every_branch() {
        for (text, said, at) in [
            ("{{ event.a | uper }}", "unknown filter `uper`, upper", 13),
            ("{% if false %}{{ event.a | money }}{% endif %}", "unknown filter `money`", 27),
            ("{{ event.a is evn }}", "unknown test `evn`, even", 14),
            ("{{ event.a | map('uper') | join }}", "unknown filter `uper`, upper", 18),
            ("{{ event.a | select('ood') | list | tojson }}", "unknown test `ood`, odd", 21),
            (
                "{{ event.a | selectattr('b', 'ood') | list | tojson }}",
                "unknown test `ood`, odd",
                30,
            ),
            ("{{ event.a.upper() }}", "unknown method `upper`", 11),
            ("{{ event('a') }}", "unknown function `event`", 3),
            ("{% filter money %}x{% endfilter %}", "unknown filter `money`", 10),
            (
                "{% macro m(x) %}{{ x | money }}{% endmacro %}{{ m(1) }}",
                "unknown filter `money`",
                23,
            ),
        ] {
            assert_eq!(refused(text), Some((said.to_owned(), Some(at))), "{text}");
        }
        let error = TextNode::compile("{{ event.a | uper }}").unwrap_err();
        assert_eq!((error.to_string().as_str(), error.at()), ("unknown filter `uper`", Some(11)));
    }

    #[test]
    fn what_is_there_is_called() {
        for text in [
            "{{ event.a | default('x') | upper | tojson }}",
            "{% for x in event.a %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x) }}{% endfor %}",
            "{{ event.a | map('upper') | select('in', ['A']) | list | tojson }}",
            "{{ event.a | map(attribute='b') | join(', ') }}",
            "{{ event.a is not none and event.a > 3 }}",
            "{% macro m(x) %}{{ x | trim }}{% endmacro %}{{ m(event.a) }}",
            "{% for i in range(3) %}{{ i }}{% endfor %}",
        ] {
            assert_eq!(refused(text), None, "{text}");
        }
        let environment = Environment::new();
        for what in [Callable::Filter, Callable::Test] {
            assert!(what.examples().iter().all(|name| what.known().contains(name)));
        }
        for name in FILTERS {
            assert!(unknown(&environment, Callable::Filter, name).is_none(), "{name}");
        }
        for name in TESTS {
            assert!(unknown(&environment, Callable::Test, name).is_none(), "{name}");
        }
    }

    /// A template is one text: another file would not be read with it.
    #[test]
    fn other_templates_are_refused_when_the_file_is_read() {
        for text in [
            "{% include 'a' %}",
            "{% extends 'a' %}",
            "{% import 'a' as b %}",
            "{% block x %}{% endblock %}",
        ] {
            let error = Template::compile(text, Target::Text).unwrap_err();
            assert!(matches!(error, TemplateError::Syntax { .. }), "{text}: {error}");
        }
    }
}
