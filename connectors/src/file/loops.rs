//! Records that make records of their own kind: what is published comes back to the connector that published it.
//!
//! Reads: connectors that run together, and where they say to which topic they publish. Gives: one finding for
//! each effect on such a ring, if nothing on the ring could end it. A `match` or a `when` that reads something, or
//! a `state` block can, and is trusted to. Topics that a template names are known only when an event names them.

use std::collections::VecDeque;

use oncely_core::connector::{Connector, EffectBody, EffectRule, OnStale, RequestRule};
use oncely_core::expr::{Expr, Scope};

use super::Compiled;
use super::diagnostic::{Code, Diagnostic, Fault, Findings};
use super::raw::{RawConnector, RawEffect};
use super::read::Field;
use super::source::Source;

/// How the topic of dead letters is called among the effects.
const LETTERS: &str = "failure.dead_letter";

/// Where each effect names its topic, by the effect's id, and where dead letters go.
pub(super) fn places(
    raw: &RawConnector,
    findings: &Findings,
    source: &Source<'_>,
) -> Vec<(Box<str>, Diagnostic)> {
    let placed = |span| findings.placed(Fault::new(Code::PublishLoop, span, ""), source);
    let effects = raw.effects.as_ref().and_then(Field::get).into_iter().flatten();
    let place = |effect: &Field<RawEffect>| {
        let effect = effect.get()?;
        let span = effect.message.as_ref()?.get()?.topic.span()?;
        Some((effect.id.get()?.as_str().into(), placed(span)))
    };
    let letters = raw.failure.as_ref().and_then(|raw| raw.get()?.dead_letter.as_ref()?.span());
    let letters = letters.map(|span| (LETTERS.into(), placed(span)));
    effects.filter_map(place).chain(letters).collect()
}

/// Effects by their ids, and the topics to which they publish.
type Written = Vec<(Box<str>, String)>;

/// One hop: who publishes to a topic that who reads.
struct Hop {
    from: usize,
    effect: Box<str>,
    topic: String,
    to: usize,
}

/// Every hop of a ring that nothing ends: of effects, and of dead letters alone.
pub(super) fn find(all: &[Compiled]) -> Vec<Diagnostic> {
    let by_effects = rings(all, endless);
    let by_letters = rings(all, |connector| {
        let topic = connector.failure.dead_letter.as_ref().map(|letters| letters.topic.to_string());
        topic.map(|topic| (LETTERS.into(), topic)).into_iter().collect()
    });
    by_effects.into_iter().chain(by_letters).collect()
}

fn rings(all: &[Compiled], written: fn(&Connector) -> Written) -> Vec<Diagnostic> {
    let mut hops = Vec::new();
    for (from, one) in all.iter().enumerate() {
        for (effect, topic) in written(&one.connector) {
            for (to, other) in all.iter().enumerate() {
                if other.connector.source.topics.iter().any(|read| **read == *topic) {
                    hops.push(Hop { from, effect: effect.clone(), topic: topic.clone(), to });
                }
            }
        }
    }
    hops.iter().filter_map(|hop| told(all, hop, &way_back(&hops, hop)?)).collect()
}

/// The effects that publish for every record, and where to.
fn endless(connector: &Connector) -> Written {
    let ends = |rule: &EffectRule| {
        let by_state = connector.state.is_some() && rule.on_stale == OnStale::Skip;
        let chooses = |expr: &Expr| match expr.is_constant() {
            true => !expr.is_true(&Scope::default()).unwrap_or(false),
            false => true,
        };
        connector.matches.as_ref().is_some_and(chooses)
            || rule.when.as_ref().is_some_and(chooses)
            || by_state
    };
    let written = |rule: &EffectRule| match (&rule.body, rule.body.request()?) {
        (EffectBody::Publish(_), RequestRule::Record(record))
            if record.topic.reads().is_empty() =>
        {
            let topic = record.topic.render(&Scope::default()).ok()?;
            Some((rule.id.clone(), topic))
        }
        _ => None,
    };
    connector.effects.iter().filter(|rule| !ends(rule)).filter_map(written).collect()
}

/// The hops by which a record comes back, fewest first; none for a hop onto oneself.
fn way_back<'h>(hops: &'h [Hop], first: &Hop) -> Option<Vec<&'h Hop>> {
    let mut open = VecDeque::from([(first.to, Vec::<&Hop>::new())]);
    let mut seen = vec![first.to];
    while let Some((at, way)) = open.pop_front() {
        if at == first.from {
            return Some(way);
        }
        for hop in hops.iter().filter(|hop| hop.from == at) {
            if hop.to == first.from || !seen.contains(&hop.to) {
                seen.push(hop.to);
                let mut way = way.clone();
                way.push(hop);
                open.push_back((hop.to, way));
            }
        }
    }
    None
}

fn told(all: &[Compiled], hop: &Hop, back: &[&Hop]) -> Option<Diagnostic> {
    let name = |index: usize| all.get(index).map(|one| &*one.connector.name).unwrap_or_default();
    let one = all.get(hop.from)?;
    let (_, place) = one.places.published.iter().find(|(id, _)| *id == hop.effect)?;
    let message = if back.is_empty() {
        format!("`{}` publishes to `{}`, which this connector reads", hop.effect, hop.topic)
    } else {
        let reader = name(hop.to);
        format!(
            "`{}` publishes to `{}`, and by way of `{reader}` that comes back",
            hop.effect, hop.topic
        )
    };
    let mut way = format!("{} -> {} -> {}", name(hop.from), hop.topic, name(hop.to));
    for next in back {
        way.push_str(&format!(" -> {} -> {}", next.topic, name(next.to)));
    }
    let notes = vec![format!("one record makes others for ever: {way}")];
    let help = if *hop.effect == *LETTERS {
        "name a topic that no connector reads back into it: `dead_letter: billing.invoices.v1.dlq`"
    } else {
        "publish to another topic, or say what ends it: a `match` that leaves out what is published here, \
                or a `when` of the effect"
    };
    Some(Diagnostic { message, notes, help: help.to_owned(), ..place.clone() })
}

#[cfg(test)]
mod tests {
    use super::super::{Check, NothingSet, compile};
    use super::*;

    /// A connector that reads `reads` and publishes to `writes`.
    fn connector(name: &str, reads: &str, writes: &str, more: &str, when: &str) -> Compiled {
        let text = format!(
            "version: 1\nconnector: {name}\nsource: {{ topics: [{reads}] }}\nidentity: {{ id: event.id, fingerprint: \
             [event.a] }}\n{more}effects:\n  - {{ id: pass, type: publish, key: event.id, {when}message: {{ topic: \
             '{writes}', json: {{ id: '{{{{ event.id }}}}' }} }} }}\n"
        );
        compile(&format!("{name}.yaml"), &text, &NothingSet, Check::Offline).unwrap()
    }

    fn found(all: &[Compiled]) -> Vec<(String, usize, String, String)> {
        let told = find(all);
        assert!(told.iter().all(|one| !one.help.is_empty() && one.code == Code::PublishLoop));
        told.into_iter().map(|one| (one.file, one.line, one.field, one.notes.join("; "))).collect()
    }

    #[test]
    fn what_comes_back_to_its_connector_is_refused_where_it_is_published() {
        let own = [connector("a", "x, t", "t", "", "")];
        let way = "one record makes others for ever: a -> t -> a".to_owned();
        let field = "effects[0].message.topic".to_owned();
        assert_eq!(found(&own), [("a.yaml".to_owned(), 6, field, way)]);
        let round = [
            connector("a", "t", "u", "", ""),
            connector("b", "u", "v", "", ""),
            connector("c", "v", "t", "", ""),
        ];
        let told = found(&round);
        assert_eq!(told.len(), 3);
        assert_eq!(told[1].3, "one record makes others for ever: b -> v -> c -> t -> a -> u -> b");
        assert!(found(&round[..2]).is_empty(), "the third one closes it");
    }

    #[test]
    fn what_can_end_is_trusted_to() {
        for (more, when) in [
            ("match: event.type == 'order'\n", ""),
            ("", "when: event.again, "),
            (
                "state: { entity: e, key: event.e, version: { from: event.v }, initial: a, transitions: [{ from: a, to: b \
                 }] }\n",
                "",
            ),
        ] {
            assert!(found(&[connector("a", "t", "t", more, when)]).is_empty(), "{more}{when}");
        }
        assert!(
            found(&[connector("a", "t", "t", "", "when: 'false', ")]).is_empty(),
            "it never publishes"
        );
        for (more, when) in [("match: 'true'\n", ""), ("", "when: 1 < 2, ")] {
            assert_eq!(found(&[connector("a", "t", "t", more, when)]).len(), 1, "{more}{when}");
        }
        assert!(found(&[connector("a", "t", "{{ event.topic }}", "", "")]).is_empty());
        assert!(
            found(&[connector("a", "t", "u", "", ""), connector("b", "t", "u", "", "")]).is_empty()
        );
    }

    #[test]
    fn dead_letters_of_two_that_read_each_other_go_round() {
        let with = |name: &str, reads: &str, letters: &str| {
            connector(name, reads, "out", &format!("failure: {{ dead_letter: {letters} }}\n"), "")
        };
        let told = found(&[with("a", "t", "u"), with("b", "u", "t")]);
        assert_eq!(told.len(), 2);
        assert_eq!(told[0].2, "failure.dead_letter");
        assert!(found(&[with("a", "t", "u"), with("b", "u", "w")]).is_empty());
    }
}
