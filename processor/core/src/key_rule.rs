//! By which words of a connector file keys are made.
//!
//! A key says nothing of the words that it was made by: where they change, what is on record under the keys of before is
//! not found any more. So the words are put on record themselves, and held against those of the file as it is now.
//! Reads: a connector. Gives: one rule for its events and one for each effect. Invariant: two connectors whose rules are
//! equal make equal keys of equal events; where rules differ, keys may be equal all the same.

use crate::connector::Connector;
use crate::expr::Expr;
use crate::key::{Hasher, Key};

/// How the keys of one kind of thing are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRule {
    /// An effect's id; `None`: of events.
    pub effect: Option<Box<str>>,
    /// As the file says it, for people.
    pub words: String,
    /// Tells it from another one.
    pub digest: Key,
}

impl KeyRule {
    fn new(effect: Option<&str>, parts: &[(&str, String)]) -> Self {
        let said = parts.iter().map(|(name, text)| match *name {
            "" => format!("`{text}`"),
            name => format!("{name} `{text}`"),
        });
        let hasher = Hasher::new("key rule");
        let hasher = parts.iter().fold(hasher, |hasher, (name, text)| hasher.part(name).part(text));
        let words = said.collect::<Vec<_>>().join(", ");
        Self { effect: effect.map(Box::from), words, digest: hasher.finish() }
    }

    /// That of the ids of a connector's events. Scope and tenant are part of every key as well.
    pub fn of_events(connector: &Connector) -> Self {
        let identity = &connector.identity;
        let tenant = identity.tenant.as_ref().map(|tenant| ("tenant", spelled(tenant)));
        let scope = Some(("scope", connector.scope.to_string()));
        let id = Some(("id", spelled(&identity.id)));
        let parts: Vec<_> = [scope, tenant, id].into_iter().flatten().collect();
        Self::new(None, &parts)
    }

    /// Those of a connector's effects, in the order of the file.
    pub fn of_effects(connector: &Connector) -> Vec<Self> {
        let rule = |effect: &crate::connector::EffectRule| {
            let parts: Vec<_> = effect.key.iter().map(|part| ("", spelled(part))).collect();
            Self::new(Some(&effect.id), &parts)
        };
        connector.effects.iter().map(rule).collect()
    }
}

/// A path as all paths are spelled, so that `a["b"]` is `a.b`; anything else as it stands, save white space that
/// means nothing.
fn spelled(expr: &Expr) -> String {
    expr.as_path().map_or_else(|| without_spaces(expr.text()), ToString::to_string)
}

/// Outside of quotes no white space but between two words, and there one space.
fn without_spaces(text: &str) -> String {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut spelled = String::with_capacity(text.len());
    let (mut quote, mut is_escaped, mut space) = (None, false, false);
    for c in text.chars() {
        if quote.is_none() && c.is_whitespace() {
            space = true;
            continue;
        }
        if std::mem::take(&mut space) && is_of_word(c) && spelled.ends_with(is_of_word) {
            spelled.push(' ');
        }
        quote = match quote {
            None => Some(c).filter(|c| matches!(c, '"' | '\'')),
            Some(open) if c == open && !is_escaped => None,
            open => open,
        };
        is_escaped = c == '\\' && !is_escaped;
        spelled.push(c);
    }
    spelled
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(texts: &[&str]) -> KeyRule {
        let parts: Vec<_> =
            texts.iter().map(|text| ("", spelled(&Expr::compile(text).unwrap()))).collect();
        KeyRule::new(Some("charge"), &parts)
    }

    #[test]
    fn another_spelling_of_a_path_is_no_other_rule() {
        let rules = [rule(&["event.data.order_id"]), rule(&[r#"event["data"]["order_id"]"#])];
        assert_eq!(rules[0], rules[1]);
        assert_eq!(rules[0].words, "`event.data.order_id`");
        let rules = [rule(&[r#"event.a + ":  " + event.b"#]), rule(&[r#"event.a+":  "+event.b"#])];
        assert_eq!(rules[0], rules[1]);
        assert_ne!(rules[0].digest, rule(&[r#"event.a + ":" + event.b"#]).digest);
        assert_eq!(without_spaces("a  in\n b ? 'x \\' y' : c"), "a in b?'x \\' y':c");
    }

    #[test]
    fn other_parts_or_another_order_is_another_rule() {
        let rules = [
            rule(&["event.a"]),
            rule(&["event.b"]),
            rule(&["event.a", "event.b"]),
            rule(&["event.b", "event.a"]),
            rule(&["event.a + event.b"]),
        ];
        for (at, one) in rules.iter().enumerate() {
            assert!(rules.iter().skip(at + 1).all(|other| other.digest != one.digest), "{one:?}");
        }
    }
}
