//! An error with all its causes, in one line.

use std::error::Error;

/// Causes that are said; a longer chain is a circle.
const CAUSES_MAX: usize = 16;

/// `error: cause: its cause`. What a text says already is not said again: some libraries repeat
/// their cause in their own words.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    for _ in 0..CAUSES_MAX {
        let Some(error) = cause else { break };
        let said = error.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{said}")]
    struct Layer {
        said: &'static str,
        source: Option<Box<Layer>>,
    }

    #[test]
    fn a_cause_is_said_once() {
        let inner = Layer { said: "refused", source: None };
        let middle = Layer { said: "cannot talk: refused", source: Some(Box::new(inner)) };
        let outer = Layer { said: "the database is away", source: Some(Box::new(middle)) };
        assert_eq!(chain(&outer), "the database is away: cannot talk: refused");
    }
}
