//! What was probably meant, where an expression or a template is none: habits from other languages.
//!
//! Reads: the text as it stands, and why it was refused. Gives: a remedy, or nothing.

use oncely_core::expr::{Expr, ExprError, Root};
use oncely_core::template::{Callable, TEXT_BYTES_MAX, TemplateError};

use super::super::read::listed;

/// What to write instead of an expression that was refused.
/// `known` are the roots that can be read there.
pub(super) fn remedy(text: &str, error: &ExprError, known: &[Root]) -> String {
    if text.contains("{{") {
        return "this field is an expression: write it without `{{ }}`".to_owned();
    }
    match error {
        ExprError::UnknownRoot { near: None, at, .. } => match dotted(text, *at) {
            name if name.is_empty() => roots(),
            name => unrooted(&name, known),
        },
        ExprError::UnknownRoot { at, .. } if known == [Root::Response] => {
            unrooted(&dotted(text, *at), known)
        }
        ExprError::UnknownRoot { .. } => roots(),
        ExprError::Syntax { .. } | ExprError::Parser => of_other_languages(text).unwrap_or_else(|| {
            "a path (`event.amount`) or CEL (`event.amount > 100 && event.kind == \"paid\"`)".to_owned()
        }),
        ExprError::Empty => "a path or CEL: `event.data.invoice_id`".to_owned(),
        ExprError::TooLong { .. } | ExprError::TooDeep { .. } | ExprError::TooManyLoops { .. } => {
            "let the one who writes the event work it out, and read the result".to_owned()
        }
        ExprError::UnknownMember { root, .. } => members(root),
        ExprError::UnknownFunction { .. } => {
            "functions are those of CEL, such as `size`, `has`, `startsWith`, `matches`, and `entered`"
                .to_owned()
        }
        ExprError::EnteredArgument { .. } => "write `entered(\"paid\")`".to_owned(),
        ExprError::MemberNeeded { root, .. } => match *root {
            "effects" => "name the effect and what it records: `effects.settle.charge_id`".to_owned(),
            root => members(root),
        },
        ExprError::NoStructs { .. } => "write a map: `{\"id\": event.id}`".to_owned(),
    }
}

/// What to write instead of a template that was refused.
pub(super) fn template_remedy(error: &TemplateError) -> String {
    match error {
        TemplateError::UnknownRoot { .. } => roots(),
        TemplateError::UnknownMember { root, .. } => members(root),
        TemplateError::TooLong { .. } => {
            format!("keep it below {TEXT_BYTES_MAX} bytes; what is larger stands in the event")
        }
        TemplateError::Syntax { .. } => {
            "values stand in `{{ event.number }}`, conditions in `{% if event.vip %}…{% endif %}`"
                .to_owned()
        }
        TemplateError::UnknownName { what: Callable::Method, .. } => {
            "values have no methods; filters stand behind `|`: `{{ event.name | lower }}`"
                .to_owned()
        }
        TemplateError::UnknownName { what, .. } => {
            format!("{}s are Jinja's, such as {}", what.name(), listed(what.examples()))
        }
    }
}

/// What a name means that begins with no root.
fn unrooted(name: &str, known: &[Root]) -> String {
    if known.contains(&Root::Response) {
        return match of_answer(name) {
            Some(path) => format!("write `{path}`"),
            None => {
                format!("what an answer holds stands in `response.json`: `response.json.{name}`")
            }
        };
    }
    let quoted = format!("quote it if it is a text: `\"{name}\"`");
    if known.contains(&Root::Event) {
        format!("write `event.{name}` if it stands in the event; {quoted}")
    } else {
        quoted
    }
}

/// `json.id`, `res.json.id` and `body.id` as they are written here.
fn of_answer(name: &str) -> Option<String> {
    let members = Root::Response.members().unwrap_or_default();
    let (first, rest) = name.split_once('.').unwrap_or((name, ""));
    let second = rest.split('.').next().unwrap_or_default();
    if members.contains(&first) {
        return Some(format!("response.{name}"));
    }
    if members.contains(&second) {
        return Some(format!("response.{rest}"));
    }
    match (first, rest) {
        ("body" | "data" | "result" | "res" | "resp" | "answer", "") => {
            Some("response.json".to_owned())
        }
        ("body" | "data" | "result" | "res" | "resp" | "answer", rest) => {
            Some(format!("response.json.{rest}"))
        }
        _ => None,
    }
}

fn roots() -> String {
    let names = Root::ALL.into_iter().map(Root::name).collect::<Vec<_>>();
    format!("values come from {}", listed(&names))
}

/// What a root has, where that is fixed.
fn members(root: &str) -> String {
    match Root::parse(root).and_then(Root::members) {
        Some([]) => format!("`{root}` is a text, without members: write `{root}`"),
        Some(members) => format!("`{root}` has {}", listed(members)),
        None => format!("write `{root}.` and the name of a member"),
    }
}

/// Whether a text without `{{ }}` is one expression over the event, and was hardly meant to be sent as
/// it stands. A root alone (`event`) is a word like others, but for `tenant`.
pub(super) fn is_bare_expression(text: &str) -> bool {
    let text = text.trim();
    let reads_member = || {
        let rooted = |root: Root| {
            text.contains(&format!("{}.", root.name()))
                || text.contains(&format!("{}[", root.name()))
        };
        Root::ALL.into_iter().any(rooted)
    };
    if text.contains("{{") || (text != Root::Tenant.name() && !reads_member()) {
        return false;
    }
    Expr::compile(text).is_ok_and(|expr| !expr.is_constant())
}

/// The name with its members at character `at`.
fn dotted(text: &str, at: usize) -> String {
    let in_name = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    text.chars().skip(at).take_while(in_name).collect::<String>().trim_end_matches('.').to_owned()
}

fn of_other_languages(text: &str) -> Option<String> {
    let code = outside_of_quotes(text);
    let words: Vec<&str> =
        code.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.'))).collect();
    let known = [("and", "&&"), ("or", "||"), ("not", "!")];
    let used =
        known.iter().filter(|(word, _)| words.iter().any(|one| one.eq_ignore_ascii_case(word)));
    let mut instead: Vec<String> =
        used.map(|(word, operator)| format!("`{operator}` for `{word}`")).collect();
    if has_single_equals(&code) {
        instead.insert(0, "`==` to compare".to_owned());
    }
    (!instead.is_empty()).then(|| format!("write {}", instead.join(", ")))
}

/// The text with a space for everything that stands in quotes.
fn outside_of_quotes(text: &str) -> String {
    let mut quote = None;
    let mut escaped = false;
    let mut code = String::with_capacity(text.len());
    for c in text.chars() {
        match quote {
            Some(end) => {
                if c == end && !escaped {
                    quote = None;
                }
                escaped = c == '\\' && !escaped;
                code.push(' ');
            }
            None if matches!(c, '"' | '\'') => {
                quote = Some(c);
                code.push(' ');
            }
            None => code.push(c),
        }
    }
    code
}

fn has_single_equals(code: &str) -> bool {
    let chars: Vec<char> = [' '].into_iter().chain(code.chars()).chain([' ']).collect();
    chars.windows(3).any(|three| match three {
        [before, '=', after] => !matches!(before, '=' | '!' | '<' | '>') && *after != '=',
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        remedy(text, &Expr::compile(text).unwrap_err(), &[])
    }

    #[test]
    fn a_name_without_its_root_is_told_with_the_one_that_is_there() {
        let said =
            |text: &str, known: &[Root]| remedy(text, &Expr::compile(text).unwrap_err(), known);
        for (slip, path) in [
            ("json.id", "response.json.id"),
            ("res.json.id", "response.json.id"),
            ("body.id", "response.json.id"),
            ("status", "response.status"),
            ("body", "response.json"),
        ] {
            assert_eq!(said(slip, &[Root::Response]), format!("write `{path}`"));
        }
        assert!(said("charge", &[Root::Response]).contains("`response.json.charge`"));
        let event = said("cents", &[Root::Event]);
        assert_eq!(
            event,
            "write `event.cents` if it stands in the event; quote it if it is a text: `\"cents\"`"
        );
    }

    #[test]
    fn habits_from_other_languages_are_told_in_ours() {
        assert_eq!(said("event.type = 'a=b'"), "write `==` to compare");
        assert_eq!(said("event.a == 1 and not event.b"), "write `&&` for `and`, `!` for `not`");
        assert_eq!(said("event.a == 1 OR event.b == 2"), "write `||` for `or`");
        assert_eq!(said("not event.a"), "write `!` for `not`");
        assert_eq!(
            said("event.type == invoice.paid"),
            "quote it if it is a text: `\"invoice.paid\"`"
        );
        assert_eq!(said("invoice.paid"), "quote it if it is a text: `\"invoice.paid\"`");
        assert_eq!(said("{{ event.a }}"), "this field is an expression: write it without `{{ }}`");
        assert!(said("evnt.a").starts_with("values come from `event`, "), "{}", said("evnt.a"));
        assert!(said("event.a == 'x and y' +").starts_with("a path (`event.amount`) or CEL"));
    }

    #[test]
    fn an_expression_without_braces_is_told_from_a_text() {
        for bare in ["event.email", " tenant ", "effects.a.id", "event.a + event.b", "event['x']"] {
            assert!(is_bare_expression(bare), "{bare}");
        }
        for text in [
            "event",
            "state",
            "{{ event.a }}",
            "a@example.com",
            "the event. It is",
            "paid",
            "https://event.example.com/",
            "event.a {{ event.b }}",
            "see event.id, please",
        ] {
            assert!(!is_bare_expression(text), "{text}");
        }
    }
}
