//! What a command answers: text for people and one JSON document for machines.

use std::io::IsTerminal as _;

use chrono::{DateTime, Utc};
use clap::ValueEnum;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use serde_json::{Value, json};

use super::exit::Exit;
use crate::store::admin::COUNTED_MAX;

/// For whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// Tables and text for people.
    #[default]
    Table,
    /// One JSON document.
    Json,
}

/// The same, said twice.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) json: Value,
    pub(super) exit: Exit,
    /// Printed already, by a command that went on afterwards.
    pub(super) is_said: bool,
}

impl Answer {
    pub(super) fn new(text: impl Into<String>, json: Value) -> Self {
        Self { text: text.into(), json, exit: Exit::Ok, is_said: false }
    }

    /// The end of a command whose answer was printed already.
    pub(super) const fn said(exit: Exit) -> Self {
        Self { text: String::new(), json: Value::Null, exit, is_said: true }
    }
}

/// Characters of one cell of a list; `show` shows the whole.
const CELL_CHARS_MAX: usize = 60;

/// A table without lines, one row a line. A terminal gets the beginnings of long cells, anybody else all of them.
pub(super) fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    table_on(std::io::stdout().is_terminal(), header, rows)
}

fn table_on(is_terminal: bool, header: &[&str], rows: Vec<Vec<String>>) -> String {
    let cut_row = |row: Vec<String>| {
        row.iter().map(|cell| if is_terminal { cut(cell) } else { shown(cell) }).collect()
    };
    laid_out(header, rows.into_iter().map(cut_row).collect())
}

/// A [`table`] whose cells are shown to their ends. Columns that are empty in all rows are left out.
pub(super) fn whole_table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let has_text = |column: usize| {
        rows.is_empty()
            || rows.iter().any(|row| row.get(column).is_some_and(|cell| !cell.is_empty()))
    };
    let kept: Vec<usize> = (0..header.len()).filter(|column| has_text(*column)).collect();
    let header: Vec<&str> = kept.iter().filter_map(|column| header.get(*column).copied()).collect();
    let rows = rows.iter().map(|row| {
        kept.iter()
            .map(|column| row.get(*column).map(|cell| shown(cell)).unwrap_or_default())
            .collect()
    });
    laid_out(&header, rows.collect())
}

fn laid_out(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().map(|name| name.to_uppercase()));
    for row in rows {
        table.add_row(row);
    }
    // The blank before the first column, and no more: its cell may be empty.
    let line = |line: String| {
        let line = line.trim_end();
        line.strip_prefix(' ').unwrap_or(line).to_owned() + "\n"
    };
    table.lines().map(line).collect()
}

fn cut(cell: &str) -> String {
    let cell = shown(cell);
    if cell.chars().count() <= CELL_CHARS_MAX {
        return cell;
    }
    cell.chars().take(CELL_CHARS_MAX.saturating_sub(1)).chain(['…']).collect()
}

/// Names and values, one a line.
pub(super) fn fields(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let set = pairs.iter().filter(|(_, value)| !value.is_empty());
    set.map(|(name, value)| format!("{name:width$}  {value}\n")).collect()
}

/// Text from an event, without what could drive a terminal.
pub(super) fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Bytes for people: JSON with indentation, else text, else hexadecimal digits.
pub(super) fn bytes_text(bytes: &[u8]) -> String {
    if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
        return serde_json::to_string_pretty(&value).unwrap_or_default();
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => shown(text),
        Err(_) => format!("0x{}", hex(bytes)),
    }
}

/// Bytes as they are, line by line: text, else hexadecimal digits.
pub(super) fn bytes_as_written(bytes: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(bytes) else { return format!("0x{}", hex(bytes)) };
    text.split('\n').map(shown).collect::<Vec<_>>().join("\n")
}

/// Bytes for machines: `{"text": …}` or `{"hex": …}`.
pub(super) fn bytes_json(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({ "text": text }),
        Err(_) => json!({ "hex": hex(bytes) }),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A time as people and machines read it, in UTC, to the millisecond.
pub(super) fn time(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

pub(super) fn time_or_none(at: Option<DateTime<Utc>>) -> String {
    at.map(time).unwrap_or_default()
}

/// `1 row`, `2 rows`.
pub(super) fn counted(count: usize, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// Whether a list may have been cut by its limit.
pub(super) fn is_full(rows: usize, limit: i64) -> bool {
    i64::try_from(rows).is_ok_and(|count| count >= limit)
}

/// How many rows a list shows, and of how many.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    rows: usize,
    total: i64,
}

impl Shown {
    pub(super) fn all(rows: usize) -> Self {
        Self { rows, total: i64::try_from(rows).unwrap_or(i64::MAX) }
    }

    pub(super) const fn of(rows: usize, total: i64) -> Self {
        Self { rows, total }
    }

    /// Whether no more were counted.
    const fn is_bound(self) -> bool {
        self.total >= COUNTED_MAX
    }

    /// Whether there are more than are shown.
    pub(super) fn is_cut(self) -> bool {
        self.rest_at_least() > 0
    }

    /// How many are not shown, as far as they were counted.
    pub(super) fn rest_at_least(self) -> i64 {
        let rows = i64::try_from(self.rows).unwrap_or(i64::MAX);
        self.total.saturating_sub(rows).max(0)
    }

    /// `5`, `at least 5`.
    pub(super) fn rest(self) -> String {
        let least = if self.is_bound() { "at least " } else { "" };
        format!("{least}{}", self.rest_at_least())
    }

    /// `2 rows`, `showing 2 of 7 rows`, `showing 2 of at least 100000 rows`.
    pub(super) fn text(self, one: &str) -> String {
        if usize::try_from(self.total).is_ok_and(|total| total <= self.rows) {
            return counted(self.rows, one);
        }
        let least = if self.is_bound() { "at least " } else { "" };
        format!("showing {} of {least}{} {one}s; --limit shows more", self.rows, self.total)
    }

    /// The same beside the rows, for machines.
    pub(super) fn add_to(self, mut json: Value) -> Value {
        if let Some(members) = json.as_object_mut() {
            members.insert("total".to_owned(), self.total.into());
            members.insert("total_is_at_least".to_owned(), self.is_bound().into());
        }
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned_and_harmless() {
        let rows = vec![
            vec!["1".to_owned(), "a\u{1b}[2Jb".to_owned()],
            vec!["22".to_owned(), "x".repeat(70)],
        ];
        assert!(table_on(false, &["detail"], rows.clone()).contains(&"x".repeat(70)));
        insta::assert_snapshot!(table_on(true, &["id", "detail"], rows), @r#"
        ID  DETAIL
        1   a\u{1b}[2Jb
        22  xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
        "#);
    }

    #[test]
    fn a_whole_table_cuts_nothing_and_leaves_empty_columns_out() {
        let rows = vec![vec!["1".to_owned(), String::new(), "x".repeat(70)]];
        let text = whole_table(&["at", "seen by", "note"], rows);
        assert!(text.contains(&"x".repeat(70)) && !text.contains("SEEN BY"), "{text}");
        assert!(whole_table(&["at", "note"], Vec::new()).contains("NOTE"));
    }

    #[test]
    fn a_list_that_is_cut_says_of_how_many() {
        assert_eq!(Shown::all(1).text("effect"), "1 effect");
        assert_eq!(Shown::of(2, 2).text("effect"), "2 effects");
        let some = Shown::of(50, 51);
        assert_eq!(some.text("effect"), "showing 50 of 51 effects; --limit shows more");
        assert_eq!(some.add_to(json!({}))["total"], 51);
        let most = Shown::of(50, COUNTED_MAX);
        assert!(most.text("effect").starts_with("showing 50 of at least 100000 effects"));
        assert_eq!(most.add_to(json!({}))["total_is_at_least"], true);
    }

    #[test]
    fn bytes_are_shown_as_what_they_are() {
        assert_eq!(bytes_text(b"{\"a\":1}"), "{\n  \"a\": 1\n}");
        assert_eq!(bytes_text(b"plain\n"), "plain\\u{a}");
        assert_eq!(bytes_text(&[0xff, 0]), "0xff00");
        assert_eq!(bytes_json(&[0xff]), json!({ "hex": "ff" }));
    }
}
