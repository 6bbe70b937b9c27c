//! What of an event a connector looks at.
//!
//! Reads: every expression and template of a connector. Gives: the members that are worth keeping of
//! a record. The rest of the record is checked like any other part and then forgotten, which is most
//! of the work that a value costs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::connector::{Connector, FingerprintRule};
use crate::expr::{Path, Root, Step};

/// The part of a value that is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    Everything,
    /// Of an object these members; of anything else all.
    Members(BTreeMap<Arc<str>, Wanted>),
}

impl Wanted {
    /// What a connector's expressions and templates read of `event`.
    pub fn by(connector: &Connector) -> Self {
        let mut wanted = Self::Members(BTreeMap::new());
        if matches!(connector.identity.fingerprint, FingerprintRule::WholeWithout(_)) {
            return Self::Everything;
        }
        connector.for_each_read(&mut |path: &Path| {
            if path.root == Root::Event {
                wanted.add(&path.steps);
            }
        });
        wanted
    }

    /// What of the member `name` is looked at, where only some members are, with the name to be
    /// shared; `None`: nothing, or everything of all members.
    pub fn member(&self, name: &str) -> Option<(Arc<str>, &Self)> {
        let Self::Members(members) = self else { return None };
        members.get_key_value(name).map(|(name, wanted)| (Arc::clone(name), wanted))
    }

    fn add(&mut self, steps: &[Step]) {
        let Self::Members(members) = self else { return };
        match steps.split_first() {
            Some((Step::Member(name), rest)) => {
                let nothing = || Self::Members(BTreeMap::new());
                members.entry(Arc::from(&**name)).or_insert_with(nothing).add(rest);
            }
            // The end of a path means all that is there; a list is kept whole.
            Some((Step::Index(_), _)) | None => *self = Self::Everything,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::Expr;

    fn by(texts: &[&str]) -> Wanted {
        let mut wanted = Wanted::Members(BTreeMap::new());
        for text in texts {
            let expr = Expr::compile(text).unwrap();
            expr.reads().iter().for_each(|path| wanted.add(&path.steps));
        }
        wanted
    }

    fn whole(name: &str) -> Option<(Arc<str>, &'static Wanted)> {
        Some((name.into(), &Wanted::Everything))
    }

    #[test]
    fn a_path_wants_what_is_at_its_end() {
        let wanted = by(&["event.a.b", "event.c[0].d", "event.a.b.c"]);
        let (_, a) = wanted.member("a").unwrap();
        assert_eq!(a.member("b"), whole("b"));
        assert_eq!(a.member("x"), None);
        assert_eq!(wanted.member("c"), whole("c"));
        assert_eq!(wanted.member("d"), None);
    }

    #[test]
    fn what_an_expression_hands_on_is_wanted_whole() {
        assert_eq!(by(&["size(event)"]), Wanted::Everything);
        let wanted = by(&["event.lines.exists(line, line.cents > 5)"]);
        assert_eq!(wanted.member("lines"), whole("lines"));
        let wanted = by(&["has(event.a.b) ? event.a.b : event.c"]);
        assert_eq!(wanted.member("a").unwrap().1.member("b"), whole("b"));
        assert_eq!(wanted.member("c"), whole("c"));
    }
}
