//! Which field stands where: paths such as `effects[0].retry.attempts`, found by their place in the text.

use super::node::{Node, NodeKind};
use super::source::Span;

/// The fields of one file.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    /// Name and value, each before those inside it.
    fields: Vec<(Span, String)>,
    /// Lists and maps.
    blocks: Vec<Block>,
}

/// A list or a map, without its name.
#[derive(Debug)]
struct Block {
    span: Span,
    path: String,
    /// Where its name stands; an item of a list, and the file, have none.
    name: Option<Span>,
    is_map: bool,
}

impl Outline {
    /// `repeated`: names that stand in a map for a second time, and are not in the tree.
    pub(crate) fn of(root: &Node, repeated: &[(Span, String)]) -> Self {
        let mut outline = Self::default();
        outline.inside(root, "", None);
        for (span, text) in repeated {
            let holds = |one: &&Block| {
                one.is_map && one.span.start <= span.start && span.start < one.span.end
            };
            let path = outline.blocks.iter().rev().find(holds).map_or("", |one| one.path.as_str());
            let path = member(path, text);
            outline.fields.push((*span, path));
        }
        outline
    }

    /// The field that `span` is about: the list or map that it is, else the innermost one that it begins
    /// in; empty outside of all.
    pub(crate) fn at(&self, span: Span) -> &str {
        if let Some(one) = self.whole(span) {
            return &one.path;
        }
        let holds = |(field, _): &&(Span, String)| {
            field.start <= span.start && (span.start < field.end || span.start == field.start)
        };
        self.fields.iter().rev().find(holds).map_or("", |(_, path)| path)
    }

    /// What is shown for `span`: the name of a list or map, since its value begins with what is in it.
    pub(crate) fn shown(&self, span: Span) -> Span {
        self.whole(span).and_then(|one| one.name).unwrap_or(span)
    }

    /// A field that is missing in the map at `map`: its path, and where the map begins, by its name.
    pub(crate) fn missing(&self, map: Span, name: &str) -> (String, Span) {
        match self.whole(map) {
            Some(one) if one.is_map => {
                let start = Span::new(one.span.start, one.span.start);
                (member(&one.path, name), one.name.unwrap_or(start))
            }
            Some(_) | None => (self.at(map).to_owned(), map),
        }
    }

    fn whole(&self, span: Span) -> Option<&Block> {
        self.blocks.iter().find(|one| one.span == span)
    }

    fn inside(&mut self, node: &Node, path: &str, name: Option<Span>) {
        let is_map = matches!(node.kind, NodeKind::Map(_));
        if is_map || matches!(node.kind, NodeKind::List(_)) {
            self.blocks.push(Block { span: node.span, path: path.to_owned(), name, is_map });
        }
        match &node.kind {
            NodeKind::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    let path = format!("{path}[{index}]");
                    self.fields.push((item.span, path.clone()));
                    self.inside(item, &path, None);
                }
            }
            NodeKind::Map(members) => {
                for (name, value) in members {
                    let path = member(path, &name.text);
                    let whole = Span::new(name.span.start, value.span.end.max(name.span.end));
                    self.fields.push((whole, path.clone()));
                    self.inside(value, &path, Some(name.span));
                }
            }
            NodeKind::Null
            | NodeKind::Bool(_)
            | NodeKind::Int(_)
            | NodeKind::Decimal(_)
            | NodeKind::Text(_) => {}
        }
    }
}

fn member(path: &str, text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    match (path.is_empty(), !text.is_empty() && text.chars().all(plain)) {
        (true, true) => text.to_owned(),
        (false, true) => format!("{path}.{text}"),
        (_, false) => format!("{path}[{text:?}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::diagnostic::Findings;
    use super::super::node::parse;
    use super::*;

    const TEXT: &str = "a: 1\neffects:\n  - id: x\n    retry:\n      attempts: 3\n    id: z\n  - id: y\n\"o d\": {b: 2}\n";

    fn outline() -> Outline {
        let mut findings = Findings::default();
        let node = parse(TEXT, &mut findings).unwrap();
        Outline::of(&node, &findings.repeated)
    }

    fn span(part: &str) -> Span {
        let start = TEXT.find(part).unwrap();
        Span::new(start, start + part.len())
    }

    #[test]
    fn a_place_is_in_its_innermost_field() {
        let outline = outline();
        let at = |part: &str| outline.at(span(part)).to_owned();
        assert_eq!(at("1"), "a");
        assert_eq!(at("effects"), "effects");
        assert_eq!(at("id: x"), "effects[0].id");
        assert_eq!(at("3"), "effects[0].retry.attempts");
        assert_eq!(at("attempts"), "effects[0].retry.attempts");
        assert_eq!(at("y\n"), "effects[1].id");
        assert_eq!(at("2}"), "[\"o d\"].b");
        assert_eq!(outline.at(Span::new(TEXT.len() + 5, TEXT.len() + 6)), "");
    }

    #[test]
    fn a_map_is_no_first_member_of_its_own() {
        let outline = outline();
        let retry = span("attempts: 3");
        assert_eq!(outline.at(retry), "effects[0].retry");
        assert_eq!(outline.shown(retry), span("retry"));
        assert_eq!(
            outline.missing(retry, "backoff"),
            ("effects[0].retry.backoff".to_owned(), span("retry"))
        );
        assert_eq!(outline.at(span("id: z")), "effects[0].id", "the second one of the same name");
        assert_eq!(outline.missing(Span::new(0, TEXT.len() - 1), "b").0, "b");
    }
}
