//! "Did you mean": the known word that is nearest to a mistyped one.

/// Edits (insert, delete, replace, swap neighbours) up to which a word counts as a typing mistake.
const EDITS_MAX: usize = 2;

/// The nearest of `known`, when it is near enough to be meant. Ties go to the first.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = EDITS_MAX.min(word.chars().count().saturating_add(1) / 2);
    let measured = known.into_iter().map(|other| (edits(word, other), other));
    measured.filter(|(edits, _)| *edits <= limit).min_by_key(|(edits, _)| *edits).map(|(_, w)| w)
}

/// Optimal string alignment distance, in characters.
fn edits(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    let mut last = None;
    for (line, letter) in left.chars().enumerate() {
        let mut next = Vec::with_capacity(row.len());
        next.push(line.saturating_add(1));
        for (column, other) in right.iter().enumerate() {
            let at = |row: &[usize], column: usize| row.get(column).copied().unwrap_or(usize::MAX);
            let replace = at(&row, column).saturating_add(usize::from(letter != *other));
            let insert = at(&next, column).saturating_add(1);
            let delete = at(&row, column.saturating_add(1)).saturating_add(1);
            let mut best = replace.min(insert).min(delete);
            let previous = column.checked_sub(1).and_then(|column| right.get(column));
            if last == Some(*other) && previous == Some(&letter) {
                let swap = column.checked_sub(1).map_or(usize::MAX, |c| at(&before, c));
                best = best.min(swap.saturating_add(1));
            }
            next.push(best);
        }
        before = std::mem::replace(&mut row, next);
        last = Some(letter);
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slip_of_the_finger_is_found_and_another_word_is_not() {
        let known = ["key", "when", "after", "timeout", "idempotency"];
        for (typed, meant) in [
            ("kye", Some("key")),
            ("whne", Some("when")),
            ("timeouts", Some("timeout")),
            ("idempotncy", Some("idempotency")),
            ("x", None),
            ("banana", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, known), meant, "{typed}");
        }
    }
}
