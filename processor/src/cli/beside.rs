//! Two texts side by side, line by line. Pure.

/// Lines of a text from which on two are shown one below the other.
const LINES_MAX: usize = 400;
/// Characters of a line from which on.
const LINE_CHARS_MAX: usize = 72;

/// Both under their names, with `|` between lines that differ and `<` or `>` where one has a line that the other
/// has not. `None`: they are too long or too wide to be read like that.
pub(super) fn beside(names: (&str, &str), texts: (&str, &str)) -> Option<String> {
    let (left, right) = (lines(texts.0)?, lines(texts.1)?);
    let width = left.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let width = width.max(names.0.chars().count());
    let row = |left: &str, mark: char, right: &str| {
        format!("{left:width$} {mark} {right}").trim_end().to_owned() + "\n"
    };
    let mut text = row(names.0, ' ', names.1);
    for (one, other) in aligned(&left, &right) {
        text.push_str(&match (one, other) {
            (Some(one), Some(other)) if same(one, other) => row(one, ' ', other),
            (Some(one), Some(other)) => row(one, '|', other),
            (Some(one), None) => row(one, '<', ""),
            (None, other) => row("", '>', other.unwrap_or_default()),
        });
    }
    Some(text)
}

fn lines(text: &str) -> Option<Vec<&str>> {
    let lines: Vec<&str> = text.lines().collect();
    let narrow = |line: &&str| line.chars().count() <= LINE_CHARS_MAX;
    (lines.len() <= LINES_MAX && lines.iter().all(narrow)).then_some(lines)
}

/// The comma behind a last member says nothing.
fn same(one: &str, other: &str) -> bool {
    one.trim_end_matches(',') == other.trim_end_matches(',')
}

/// Lines that both have stand beside each other; between them, what each has in its order.
fn aligned<'a>(left: &[&'a str], right: &[&'a str]) -> Vec<(Option<&'a str>, Option<&'a str>)> {
    let mut rows = Vec::new();
    let (mut one, mut other) = (0_usize, 0_usize);
    for (next_one, next_other) in in_both(left, right) {
        gap(&mut rows, left.get(one..next_one), right.get(other..next_other));
        rows.push((left.get(next_one).copied(), right.get(next_other).copied()));
        (one, other) = (next_one.saturating_add(1), next_other.saturating_add(1));
    }
    gap(&mut rows, left.get(one..), right.get(other..));
    rows
}

type Rows<'a> = Vec<(Option<&'a str>, Option<&'a str>)>;

fn gap<'a>(rows: &mut Rows<'a>, left: Option<&[&'a str]>, right: Option<&[&'a str]>) {
    let (left, right) = (left.unwrap_or_default(), right.unwrap_or_default());
    let count = left.len().max(right.len());
    rows.extend((0..count).map(|at| (left.get(at).copied(), right.get(at).copied())));
}

/// The places of a longest common subsequence.
fn in_both(left: &[&str], right: &[&str]) -> Vec<(usize, usize)> {
    let row = right.len().saturating_add(1);
    // How many lines are common from each pair of places on.
    let mut longest = vec![0_u16; left.len().saturating_add(1).saturating_mul(row)];
    let cell = |one: usize, other: usize| one.saturating_mul(row).saturating_add(other);
    let at = |longest: &[u16], one: usize, other: usize| {
        longest.get(cell(one, other)).copied().unwrap_or(0)
    };
    for (one, line) in left.iter().enumerate().rev() {
        for (other, other_line) in right.iter().enumerate().rev() {
            let (next_one, next_other) = (one.saturating_add(1), other.saturating_add(1));
            let value = if same(line, other_line) {
                at(&longest, next_one, next_other).saturating_add(1)
            } else {
                at(&longest, next_one, other).max(at(&longest, one, next_other))
            };
            if let Some(here) = longest.get_mut(cell(one, other)) {
                *here = value;
            }
        }
    }
    let (mut one, mut other, mut places) = (0_usize, 0_usize, Vec::new());
    while let (Some(line), Some(other_line)) = (left.get(one), right.get(other)) {
        let (next_one, next_other) = (one.saturating_add(1), other.saturating_add(1));
        if same(line, other_line) {
            places.push((one, other));
            (one, other) = (next_one, next_other);
        } else if at(&longest, next_one, other) >= at(&longest, one, next_other) {
            one = next_one;
        } else {
            other = next_other;
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_differ_stand_beside_each_other_and_are_marked() {
        let this = "{\n  \"amount\": 2,\n  \"note\": \"x\",\n  \"id\": 7\n}";
        let known = "{\n  \"amount\": 1,\n  \"id\": 7,\n  \"kind\": \"paid\"\n}";
        let text = beside(("this record", "known event"), (this, known)).unwrap();
        insta::assert_snapshot!(text, @r#"
        this record      known event
        {                {
          "amount": 2, |   "amount": 1,
          "note": "x", <
          "id": 7          "id": 7,
                       >   "kind": "paid"
        }                }
        "#);
    }

    #[test]
    fn what_is_too_wide_or_too_long_is_not_laid_out() {
        assert_eq!(beside(("a", "b"), (&"x".repeat(73), "y")), None);
        assert_eq!(beside(("a", "b"), ("y", &"x\n".repeat(401))), None);
        assert_eq!(beside(("a", "b"), ("", "")).as_deref(), Some("a   b\n"));
    }
}
