//! What was probably meant, where an expression or a template is none: habits from other languages.
//!
//! Reads: the text as it stands, and why it was refused. Gives: a remedy, or nothing.

use oncely_core::expr::{Expr, ExprError, Root};

/// What to write instead of an expression that was refused.
pub(super) fn remedy(text: &str, error: &ExprError) -> Option<String> {
    if text.contains("{{") {
        return Some("this field is an expression: write it without `{{ }}`".to_owned());
    }
    match error {
        ExprError::UnknownRoot { near: None, at, .. } => {
            let name = dotted(text, *at);
            (!name.is_empty()).then(|| format!("quote it if it is a text: `\"{name}\"`"))
        }
        ExprError::Syntax { .. } | ExprError::Parser => of_other_languages(text),
        ExprError::Empty
        | ExprError::TooLong { .. }
        | ExprError::TooDeep { .. }
        | ExprError::TooManyLoops { .. }
        | ExprError::UnknownRoot { .. }
        | ExprError::UnknownMember { .. }
        | ExprError::UnknownFunction { .. }
        | ExprError::EnteredArgument { .. }
        | ExprError::MemberNeeded { .. }
        | ExprError::NoStructs { .. } => None,
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
        remedy(text, &Expr::compile(text).unwrap_err()).unwrap_or_default()
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
        assert_eq!(said("evnt.a"), "", "a name that is nearly right is told already");
        assert_eq!(said("event.a == 'x and y' +"), "");
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
