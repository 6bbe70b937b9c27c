//! The text that is kept with an attempt: short, printable, without secrets.

use oncely_core::effect::outcome::TEXT_CHARS_MAX;

use crate::secret::Secret;

/// Bytes of an answer that are looked at for its text.
pub(super) const TEXT_BYTES_READ: usize = 4 * 1024;

/// Bytes from which on a value is taken for a secret; a shorter one would blot out ordinary words.
const SECRET_BYTES_MIN: usize = 4;

/// Stands where a secret stood.
const REDACTED: &str = "[secret]";

/// Knows the secrets of one effect, so that no answer can bring them back into a text.
#[derive(Clone, Debug, Default)]
pub(super) struct Redactor {
    /// Longest first: one secret may contain another.
    secrets: Vec<Secret>,
}

impl Redactor {
    pub(super) fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        let mut secrets: Vec<Secret> = secrets.into_iter().collect();
        secrets.retain(|secret| secret.expose().len() >= SECRET_BYTES_MIN);
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.expose().len()));
        Self { secrets }
    }

    /// `text` without secrets, control characters as spaces, at most [`TEXT_CHARS_MAX`] characters.
    /// Secrets go first: cutting first could leave the half of one.
    pub(super) fn text(&self, text: &str) -> String {
        let mut text = std::borrow::Cow::Borrowed(text);
        for secret in &self.secrets {
            if text.contains(secret.expose()) {
                text = text.replace(secret.expose(), REDACTED).into();
            }
        }
        let printable = |letter: char| if letter.is_control() { ' ' } else { letter };
        text.chars().map(printable).take(TEXT_CHARS_MAX).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s8_a_text_is_short_and_printable() {
        let text = Redactor::default().text(&format!("a\0b\r\n\u{1b}[31m{}", "é".repeat(1_000)));
        assert!(text.starts_with("a b   [31mé"));
        assert_eq!(text.chars().count(), TEXT_CHARS_MAX);
    }

    #[test]
    fn s13_an_echoed_secret_does_not_reach_the_text() {
        let redactor = Redactor::new(["", "key", "-key-", "my-key-1"].map(Secret::new));
        assert_eq!(redactor.text("bad my-key-1, bad key"), "bad [secret], bad key");
        let at_the_cut = format!("{}my-key-1", "x".repeat(TEXT_CHARS_MAX - 4));
        assert!(!redactor.text(&at_the_cut).contains("my-k"));
    }
}
