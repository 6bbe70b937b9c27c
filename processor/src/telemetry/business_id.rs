//! Business ids in log lines.
//!
//! An id may be personal data, so what stands in a line is a short hash, unless the operator asked
//! for ids as they are. The hash is the beginning of the event's key without scope, so equal ids
//! look equal, and `oncely explain` finds the event by its id.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use oncely_core::key::Key;

/// Hexadecimal digits of the hash: enough to tell ids of one log apart.
const DIGITS: usize = 12;

/// Set once at start, read by every line.
static PLAIN: AtomicBool = AtomicBool::new(false);

/// From now on ids are shown as they are.
pub fn show_business_ids() {
    PLAIN.store(true, Ordering::Relaxed);
}

/// A business id on its way into a log line: `info!(event = %BusinessId::new(tenant, id), …)`.
#[derive(Clone, Copy)]
pub struct BusinessId<'a> {
    tenant: &'a str,
    id: &'a str,
    plain: bool,
}

impl<'a> BusinessId<'a> {
    pub fn new(tenant: &'a str, id: &'a str) -> Self {
        Self { tenant, id, plain: PLAIN.load(Ordering::Relaxed) }
    }
}

impl fmt::Display for BusinessId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.plain {
            let key = Key::event("", self.tenant, self.id).to_string();
            return write!(f, "#{}", key.get(..DIGITS).unwrap_or(&key));
        }
        if !self.tenant.is_empty() {
            escaped(f, self.tenant)?;
            f.write_str(" / ")?;
        }
        escaped(f, self.id)
    }
}

impl fmt::Debug for BusinessId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Control characters as `\u{1b}`, so that an id cannot write lines or drive a terminal.
fn escaped(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for character in text.chars() {
        if character.is_control() {
            write!(f, "{}", character.escape_unicode())?;
        } else {
            f.write_char(character)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s14_an_id_is_hashed_unless_asked_for() {
        let hidden = BusinessId { tenant: "acct_7", id: "in_1009", plain: false };
        assert_eq!(hidden.to_string().len(), DIGITS + 1);
        assert!(!format!("{hidden}{hidden:?}").contains("in_1009"));
        let other = BusinessId { tenant: "acct_71", id: "n_1009", plain: false };
        assert_ne!(hidden.to_string(), other.to_string());
    }

    #[test]
    fn s21_control_characters_are_escaped() {
        let shown = BusinessId { tenant: "a", id: "x\n\u{1b}[2Jy", plain: true };
        assert_eq!(shown.to_string(), "a / x\\u{a}\\u{1b}[2Jy");
    }
}
