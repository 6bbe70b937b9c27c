//! The text of one file, and places in it.

use std::ops::Range;

/// Bytes of a connector file.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// Stands for what must not be shown.
const HIDDEN: &str = "•••";

/// Bytes of the text, from and to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Span {
    pub(crate) const fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }

    pub(crate) const fn range(self) -> Range<usize> {
        self.start..self.end
    }
}

/// A file's name and text.
#[derive(Clone, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) name: &'a str,
    pub(crate) text: &'a str,
}

/// A place as people count: lines and columns from 1, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
    /// The whole line.
    pub(crate) snippet: String,
    /// Characters of the snippet before those that are meant.
    pub(crate) indent: usize,
    /// Characters of the line that are meant, at least one.
    pub(crate) width: usize,
}

impl Source<'_> {
    /// Where `span` begins. Of a span over several lines, the first is shown. Bytes in `hidden` are
    /// replaced: a secret that was written into the file is not repeated by its error.
    pub(crate) fn place(&self, span: Span, hidden: &[Span]) -> Place {
        let start = floor(self.text, span.start);
        let before = self.text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at.saturating_add(1));
        let rest = self.text.get(line_start..).unwrap_or_default();
        let length = rest.find('\n').unwrap_or(rest.len());
        let line_end = line_start.saturating_add(length);
        let end = floor(self.text, span.end).clamp(start, line_end);
        let column = chars(self.text, line_start, start).saturating_add(1);
        let mut snippet = String::new();
        let (mut at, mut indent, mut width) = (line_start, 0_usize, 0_usize);
        let shown = |from: usize, to: usize, part: &str, snippet: &mut String| {
            snippet.push_str(part);
            let length = part.chars().count();
            // A replaced part counts where it begins.
            let (before, inside) = if to <= start {
                (length, 0)
            } else if from >= end {
                (0, 0)
            } else {
                (0, length)
            };
            (before, inside)
        };
        let mut add = |from: usize, to: usize, part: &str| {
            let (before, inside) = shown(from, to, part, &mut snippet);
            indent = indent.saturating_add(before);
            width = width.saturating_add(inside);
        };
        let plain = |from: usize, to: usize, add: &mut dyn FnMut(usize, usize, &str)| {
            // Cut where the mark begins and ends, so that each piece is inside it or not.
            let mut cuts = vec![from, start.clamp(from, to), end.clamp(from, to), to];
            cuts.dedup();
            for pair in cuts.windows(2) {
                if let [from, to] = pair {
                    add(*from, *to, self.text.get(*from..*to).unwrap_or_default());
                }
            }
        };
        for span in hidden.iter().filter(|span| span.start < line_end && span.end > line_start) {
            let from = span.start.clamp(at, line_end);
            let to = span.end.clamp(from, line_end);
            plain(at, from, &mut add);
            if from < to {
                add(from, to, HIDDEN);
            }
            at = to;
        }
        plain(at, line_end, &mut add);
        let snippet = snippet.trim_end().replace('\t', " ");
        let line = before.matches('\n').count().saturating_add(1);
        Place { line, column, snippet, indent, width: width.max(1) }
    }

    pub(crate) fn line(&self, span: Span) -> usize {
        let before = self.text.get(..floor(self.text, span.start)).unwrap_or_default();
        before.matches('\n').count().saturating_add(1)
    }
}

/// The start of the character at `at`.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at = at.saturating_sub(1);
    }
    at
}

fn chars(text: &str, from: usize, to: usize) -> usize {
    text.get(from..to).unwrap_or_default().chars().count()
}
