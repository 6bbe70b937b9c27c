//! JSON text: numbers exactly as they are, members in the order given.

use std::fmt::Write;

use super::RequestError;
use crate::expr::Scope;
use crate::template::TextTree;
use crate::value::Value;

/// The JSON text of a value; members in the order of their names.
pub fn to_text(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value);
    out
}

/// JSON text that may stand inside HTML and script: `<`, `>`, `&` and `'` are escaped.
pub(crate) fn to_script_text(value: &Value) -> String {
    let text = to_text(value);
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\'' => out.push_str("\\u0027"),
            other => out.push(other),
        }
    }
    out
}

/// Renders a tree: texts that are one expression keep its type.
///
/// # Errors
/// [`RequestError::Render`] names the member.
pub(super) fn render(tree: &TextTree, scope: &Scope<'_>) -> Result<String, RequestError> {
    let mut out = String::new();
    let mut place = String::from("json");
    write_tree(&mut out, &mut place, tree, scope)?;
    Ok(out)
}

fn write_tree(
    out: &mut String,
    place: &mut String,
    tree: &TextTree,
    scope: &Scope<'_>,
) -> Result<(), RequestError> {
    match tree {
        TextTree::Null => out.push_str("null"),
        TextTree::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        TextTree::Int(number) => push(out, number),
        TextTree::Decimal(number) => out.push_str(number.as_str()),
        TextTree::Text(node) => {
            let value = node.eval(scope);
            let render = |cause| RequestError::Render { place: place.as_str().into(), cause };
            write_value(out, &value.map_err(render)?);
        }
        TextTree::Line(template) => write_string(out, &super::field(place, template, scope)?),
        TextTree::List(items) => {
            out.push('[');
            let length = place.len();
            for (index, item) in items.iter().enumerate() {
                comma(out, index);
                push(place, &format_args!("[{index}]"));
                write_tree(out, place, item, scope)?;
                place.truncate(length);
            }
            out.push(']');
        }
        TextTree::Object(members) => {
            out.push('{');
            let length = place.len();
            for (index, (name, member)) in members.iter().enumerate() {
                comma(out, index);
                write_string(out, name);
                out.push(':');
                push(place, &format_args!(".{name}"));
                write_tree(out, place, member, scope)?;
                place.truncate(length);
            }
            out.push('}');
        }
    }
    Ok(())
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int(number) => push(out, number),
        Value::Decimal(number) => out.push_str(number.as_str()),
        Value::Text(text) => write_string(out, text),
        Value::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                comma(out, index);
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (index, (name, member)) in members.iter().enumerate() {
                comma(out, index);
                write_string(out, name);
                out.push(':');
                write_value(out, member);
            }
            out.push('}');
        }
    }
}

fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if u32::from(control) < 0x20 => {
                push(out, &format_args!("\\u{:04x}", u32::from(control)));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

fn comma(out: &mut String, index: usize) {
    if index > 0 {
        out.push(',');
    }
}

/// Writing to a string cannot fail.
fn push(out: &mut String, what: &dyn std::fmt::Display) {
    let _infallible = write!(out, "{what}").is_ok();
}
