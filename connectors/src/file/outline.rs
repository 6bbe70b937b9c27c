//! Which field stands where: paths such as `effects[0].retry.attempts`, found by their place in the text.

use super::node::{Name, Node, NodeKind};
use super::source::Span;

/// The fields of one file, each before those inside it.
#[derive(Debug, Default)]
pub(crate) struct Outline(Vec<(Span, String)>);

impl Outline {
    pub(crate) fn of(root: &Node) -> Self {
        let mut all = Vec::new();
        inside(root, "", &mut all);
        Self(all)
    }

    /// The innermost field that `span` begins in; empty outside of all.
    pub(crate) fn at(&self, span: Span) -> &str {
        let holds = |(field, _): &&(Span, String)| {
            field.start <= span.start && (span.start < field.end || span.start == field.start)
        };
        self.0.iter().rev().find(holds).map_or("", |(_, path)| path)
    }
}

fn inside(node: &Node, path: &str, all: &mut Vec<(Span, String)>) {
    match &node.kind {
        NodeKind::List(items) => {
            for (index, item) in items.iter().enumerate() {
                let path = format!("{path}[{index}]");
                all.push((item.span, path.clone()));
                inside(item, &path, all);
            }
        }
        NodeKind::Map(members) => {
            for (name, value) in members {
                let path = member(path, name);
                let whole = Span::new(name.span.start, value.span.end.max(name.span.end));
                all.push((whole, path.clone()));
                inside(value, &path, all);
            }
        }
        NodeKind::Null
        | NodeKind::Bool(_)
        | NodeKind::Int(_)
        | NodeKind::Decimal(_)
        | NodeKind::Text(_) => {}
    }
}

fn member(path: &str, name: &Name) -> String {
    let text = &name.text;
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    match (path.is_empty(), !text.is_empty() && text.chars().all(plain)) {
        (true, true) => text.clone(),
        (false, true) => format!("{path}.{text}"),
        (_, false) => format!("{path}[{text:?}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::diagnostic::Findings;
    use super::super::node::parse;
    use super::*;

    #[test]
    fn a_place_is_in_its_innermost_field() {
        let text =
            "a: 1\neffects:\n  - id: x\n    retry: { attempts: 3 }\n  - id: y\n\"o d\": {b: 2}\n";
        let node = parse(text, &mut Findings::default()).unwrap();
        let outline = Outline::of(&node);
        let at = |part: &str| {
            let start = text.find(part).unwrap();
            outline.at(Span::new(start, start + part.len()))
        };
        assert_eq!(at("1"), "a");
        assert_eq!(at("effects"), "effects");
        assert_eq!(at("id: x"), "effects[0].id");
        assert_eq!(at("3 }"), "effects[0].retry.attempts");
        assert_eq!(at("attempts"), "effects[0].retry.attempts");
        assert_eq!(at("y\n"), "effects[1].id");
        assert_eq!(at("2}"), "[\"o d\"].b");
        assert_eq!(outline.at(Span::new(text.len() + 5, text.len() + 6)), "");
    }
}
