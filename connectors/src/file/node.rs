//! YAML as a tree with places: the one file that knows the YAML library.
//!
//! Scalars follow the core schema of YAML 1.2 and keep their text, so that `1.10` stays `1.10` and
//! `yes` stays a text. Anchors, tags and further documents are refused.

use serde_saphyr::granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span as Mark};

use oncely_core::value::Decimal;

use super::diagnostic::{Code, Fault, Findings};
use super::source::Span;

/// Levels of lists and maps.
const DEPTH_MAX: usize = 32;

/// A value of the file and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) kind: NodeKind,
}

#[derive(Clone, Debug)]
pub(crate) enum NodeKind {
    Null,
    Bool(bool),
    Int(i64),
    /// Any other number.
    Decimal(Decimal),
    Text(String),
    List(Vec<Node>),
    /// In the order of the file, without repeats.
    Map(Members),
}

type Members = Vec<(Name, Node)>;

/// A member's name and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) span: Span,
}

impl NodeKind {
    pub(crate) const fn describe(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Decimal(_) => "a decimal number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

/// Reads the one document of a file. `None` when what stands there is no YAML.
pub(crate) fn parse(text: &str, findings: &mut Findings) -> Option<Node> {
    let mut events = Events { parser: Parser::new_from_str(text), text, findings };
    let read = events.document();
    match read {
        Ok(node) => node,
        Err(error) => {
            let at = events.offset(error.marker());
            let message = format!("this is no YAML: {}", error.info());
            let help = "look at this line and those above it for a colon or a quote that is missing, a tab, \
                        or a text with `: ` or ` #` in it that needs quotes";
            events.findings.add(Fault::new(Code::Yaml, Span::new(at, at), message).help(help));
            None
        }
    }
}

struct Events<'t, 'f, I: serde_saphyr::granit_parser::BorrowedInput<'t>> {
    parser: Parser<'t, I>,
    text: &'t str,
    findings: &'f mut Findings,
}

impl<'t, I: serde_saphyr::granit_parser::BorrowedInput<'t>> Events<'t, '_, I> {
    #[allow(clippy::wildcard_enum_match_arm, reason = "the enum depends on features")]
    fn document(&mut self) -> Result<Option<Node>, ScanError> {
        let mut root = None;
        let mut documents = 0_usize;
        while let Some((event, mark)) = self.next()? {
            match event {
                Event::StreamEnd => break,
                Event::DocumentStart(..) => {
                    documents = documents.saturating_add(1);
                    if documents > 1 {
                        let text = "one file holds one connector; a second document begins here";
                        self.refuse(mark, text, "put it into a file of its own");
                        break;
                    }
                }
                Event::StreamStart | Event::DocumentEnd => {}
                other => root = Some(self.node(other, mark, 0)?),
            }
        }
        Ok(root)
    }

    /// The next event that is no comment.
    fn next(&mut self) -> Result<Option<(Event<'t>, Mark)>, ScanError> {
        loop {
            let Some(next) = self.parser.next_event() else { return Ok(None) };
            let (event, mark) = next?;
            if event.is_node()
                || matches!(
                    event,
                    Event::StreamStart
                        | Event::StreamEnd
                        | Event::DocumentStart(..)
                        | Event::DocumentEnd
                        | Event::SequenceEnd
                        | Event::MappingEnd
                )
            {
                return Ok(Some((event, mark)));
            }
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "the enum depends on features")]
    fn node(&mut self, event: Event<'t>, mark: Mark, depth: usize) -> Result<Node, ScanError> {
        if event.tag().is_some() {
            let text = "YAML tags are not used in connector files";
            self.refuse(mark, text, "remove it; put a text in quotes");
        }
        if event.anchor_id().is_some_and(|id| id != 0) {
            let text = "YAML anchors are not used in connector files";
            self.refuse(mark, text, "remove it, and write the value out in each place");
        }
        let span = self.span(mark);
        let node = |kind| Node { span, kind };
        match event {
            Event::Scalar(text, style, ..) => Ok(node(scalar(&text, style))),
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                let mut end = span.end;
                while let Some((event, mark)) = self.next()? {
                    if matches!(event, Event::SequenceEnd) {
                        end = self.span(mark).end;
                        break;
                    }
                    if let Some(depth) = self.deeper(mark, depth) {
                        items.push(self.node(event, mark, depth)?);
                    } else {
                        self.skip(&event)?;
                    }
                }
                Ok(Node { span: self.trimmed(span.start, end), kind: NodeKind::List(items) })
            }
            Event::MappingStart(..) => {
                let (members, end) = self.members(depth)?;
                let end = end.unwrap_or(span.end);
                Ok(Node { span: self.trimmed(span.start, end), kind: NodeKind::Map(members) })
            }
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                let text = "YAML aliases are not used in connector files";
                self.refuse(mark, text, "write the value out");
                Ok(node(NodeKind::Null))
            }
            _ => Ok(node(NodeKind::Null)),
        }
    }

    /// The members of a map, and where it ends.
    fn members(&mut self, depth: usize) -> Result<(Members, Option<usize>), ScanError> {
        let mut members: Members = Vec::new();
        while let Some((event, mark)) = self.next()? {
            if matches!(event, Event::MappingEnd) {
                return Ok((members, Some(self.span(mark).end)));
            }
            let span = self.span(mark);
            let text = event.scalar().map(|(text, _)| text.to_owned());
            if text.is_none() {
                self.refuse(mark, "the name of a field must be a text", "write `name: value`");
                self.skip(&event)?;
            }
            let Some((event, mark)) = self.next()? else { break };
            let value = match self.deeper(mark, depth) {
                Some(depth) => Some(self.node(event, mark, depth)?),
                None => {
                    self.skip(&event)?;
                    None
                }
            };
            let (Some(text), Some(value)) = (text, value) else { continue };
            if members.iter().any(|(name, _)| name.text == text) {
                let message = format!("field `{text}` stands twice");
                self.findings.repeated.push((span, text));
                let help = "remove one of the two, or join what stands in them";
                self.findings.add(Fault::new(Code::DuplicateField, span, message).help(help));
                continue;
            }
            members.push((Name { text, span }, value));
        }
        Ok((members, None))
    }

    fn deeper(&mut self, mark: Mark, depth: usize) -> Option<usize> {
        if depth >= DEPTH_MAX {
            let text = format!("nested deeper than {DEPTH_MAX} levels");
            self.refuse(
                mark,
                &text,
                "let the one who writes the event build it, and pass it on whole",
            );
            return None;
        }
        depth.checked_add(1)
    }

    /// Passes over the rest of a node that began with `event`.
    fn skip(&mut self, event: &Event<'t>) -> Result<(), ScanError> {
        let opens =
            |event: &Event<'t>| matches!(event, Event::SequenceStart(..) | Event::MappingStart(..));
        let mut open = usize::from(opens(event));
        while open > 0 {
            let Some((event, _)) = self.next()? else { break };
            if opens(&event) {
                open = open.saturating_add(1);
            } else if matches!(event, Event::SequenceEnd | Event::MappingEnd) {
                open = open.saturating_sub(1);
            }
        }
        Ok(())
    }

    fn refuse(&mut self, mark: Mark, text: &str, help: &str) {
        let span = self.span(mark);
        self.findings.add(Fault::new(Code::YamlFeature, span, text).help(help));
    }

    fn span(&self, mark: Mark) -> Span {
        self.trimmed(self.offset(&mark.start), self.offset(&mark.end))
    }

    /// Without white space at its end, which block values carry.
    fn trimmed(&self, start: usize, end: usize) -> Span {
        let text = self.text.get(start..end).unwrap_or_default();
        Span::new(start, start.saturating_add(text.trim_end().len()))
    }

    fn offset(&self, marker: &Marker) -> usize {
        marker.byte_offset().unwrap_or_else(|| {
            let mut letters = self.text.char_indices().map(|(at, _)| at);
            letters.nth(marker.index()).unwrap_or(self.text.len())
        })
    }
}

/// Members whose values are secrets when they are written out.
const SECRET_NAMES: [&str; 5] = ["authorization", "bearer", "password", "secret", "token"];

/// Marks what no finding may show: values where only references belong, and defaults in them.
pub(crate) fn hide_secrets(node: &Node, findings: &mut Findings) {
    match &node.kind {
        NodeKind::List(items) => items.iter().for_each(|item| hide_secrets(item, findings)),
        NodeKind::Map(members) => {
            for (name, value) in members {
                let lower = name.text.to_ascii_lowercase();
                if SECRET_NAMES.contains(&lower.as_str()) || lower == "value" {
                    let plain_reference = matches!(
                        &value.kind, NodeKind::Text(text) if text.starts_with("${") && !text.contains(":-")
                    );
                    if !plain_reference {
                        findings.hide(value.span);
                    }
                }
                hide_secrets(value, findings);
            }
        }
        NodeKind::Null
        | NodeKind::Bool(_)
        | NodeKind::Int(_)
        | NodeKind::Decimal(_)
        | NodeKind::Text(_) => {}
    }
}

/// The core schema, without octal and hexadecimal notation and without leading zeros, which other
/// readers take for octal: those stay texts.
fn scalar(text: &str, style: ScalarStyle) -> NodeKind {
    if style != ScalarStyle::Plain {
        return NodeKind::Text(text.to_owned());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return NodeKind::Null,
        "true" | "True" | "TRUE" => return NodeKind::Bool(true),
        "false" | "False" | "FALSE" => return NodeKind::Bool(false),
        _ => {}
    }
    match Decimal::parse(text) {
        Some(number) => match text.parse() {
            Ok(integer) => NodeKind::Int(integer),
            Err(_) => NodeKind::Decimal(number),
        },
        None => NodeKind::Text(text.to_owned()),
    }
}
