//! Path segments of URLs: an inserted value stays in its own.
//!
//! Inserted values are percent-encoded, so none of them brings a `/` or a `?`. But whoever sends a URL
//! first resolves segments that are `.` or `..`, and many servers read an empty one as if it were not
//! there: such a value would lead to another address than the template names.

/// The segments of the path of a URL, as they are written.
pub fn path_segments(url: &str) -> impl Iterator<Item = &str> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = rest.split(['?', '#']).next().unwrap_or_default();
    // What stands before the first slash is the authority.
    path.split('/').skip(1)
}

/// Whether a segment is resolved away before anything is sent, however it is written.
pub fn is_dots(segment: &str) -> bool {
    let plain = segment.to_ascii_lowercase().replace("%2e", ".");
    matches!(plain.as_str(), "." | "..")
}

/// Whether a segment that consists of inserted values alone was left empty by them.
#[derive(Debug, Default)]
pub(super) struct Emptied {
    any: bool,
    /// Of the segment so far.
    bytes: usize,
    inserts: bool,
    /// The path is over, or has not begun.
    place: Place,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Slashes that are still to come before the path: two of the scheme, and its own.
    Before(u8),
    #[default]
    Start,
    Path,
    Behind,
}

impl Emptied {
    pub(super) fn literal(&mut self, text: &str) {
        for byte in text.bytes() {
            match (self.place, byte) {
                (Place::Behind, _) => return,
                (Place::Start, b'/') => self.place = Place::Before(2),
                (Place::Before(2), b'/') => self.place = Place::Before(1),
                (Place::Before(_), b'/') => self.place = Place::Path,
                (Place::Start | Place::Before(_), b'?' | b'#') => self.place = Place::Behind,
                (Place::Start | Place::Before(_), _) => {}
                (Place::Path, b'/') => self.close(),
                (Place::Path, b'?' | b'#') => {
                    self.close();
                    self.place = Place::Behind;
                }
                (Place::Path, _) => self.bytes = self.bytes.saturating_add(1),
            }
        }
    }

    pub(super) fn inserted(&mut self, bytes: usize) {
        if self.place == Place::Path {
            self.inserts = true;
            self.bytes = self.bytes.saturating_add(bytes);
        }
    }

    fn close(&mut self) {
        self.any |= self.inserts && self.bytes == 0;
        self.inserts = false;
        self.bytes = 0;
    }

    pub(super) fn any(mut self) -> bool {
        if self.place == Place::Path {
            self.close();
        }
        self.any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::Scope;
    use crate::template::{RenderError, Target, Template};
    use crate::value::Value;

    #[test]
    fn segments_are_those_of_the_path_alone() {
        let of = |url| path_segments(url).collect::<Vec<_>>();
        assert_eq!(of("https://h:1/a/b?c=/d/../e"), ["a", "b"]);
        assert_eq!(of("https://h/"), [""]);
        assert_eq!(of("https://h?x=/.."), [""; 0]);
        for dots in [".", "..", "%2e", "%2E.", ".%2e", "%2e%2E"] {
            assert!(is_dots(dots), "{dots}");
        }
        for other in ["", "...", "a..", "%252e", "..%2F"] {
            assert!(!is_dots(other), "{other}");
        }
    }

    #[test]
    fn s10_no_value_leaves_its_segment() {
        let render = |template: &str, a: &str, b: &str| {
            let event = Value::object([("a", Value::text(a)), ("b", Value::text(b))]);
            let template = Template::compile(template, Target::Url).unwrap();
            template.render(&Scope { event: Some(&event), ..Scope::default() })
        };
        let plain = "https://x.test/accounts/{{ event.a }}/carts/{{ event.b }}";
        let jinja = "https://x.test/accounts/{{ event.a }}/carts/{{ event.b | trim }}";
        for template in [plain, jinja] {
            for dots in [".", ".."] {
                assert_eq!(render(template, "a1", dots), Err(RenderError::Segment), "{dots}");
                assert_eq!(render(template, dots, "c"), Err(RenderError::Segment), "{dots}");
            }
            assert!(render(template, "...", "%2e%2e").is_ok(), "these are encoded, or no dots");
        }
        for (a, b) in [("", "c"), ("a", "")] {
            assert_eq!(render(plain, a, b), Err(RenderError::Segment), "an empty segment");
        }
        let together = "https://x.test/{{ event.a }}{{ event.b }}/.{{ event.b }}/x?q={{ event.a }}";
        assert_eq!(render(together, ".", ""), Err(RenderError::Segment));
        assert_eq!(render(together, "..", "x").as_deref(), Ok("https://x.test/..x/.x/x?q=.."));
        assert_eq!(render(together, "", "x").as_deref(), Ok("https://x.test/x/.x/x?q="));
        assert!(render("https://x.test//{{ event.a }}-/", "", "").is_ok(), "the file's own");
    }
}
