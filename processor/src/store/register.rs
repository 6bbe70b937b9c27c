//! Numbers of connectors and of the topics that they read.

use oncely_core::connector::{Connector, EffectBody};
use oncely_core::key_rule::KeyRule;
use sqlx::{PgConnection, query_file};
use uuid::Uuid;

use super::columns::{clean, uuid};
use super::error::Result;

/// Characters of the words of a rule that are kept.
const WORDS_CHARS_MAX: usize = 500;

/// Registers a connector with the ids of its effects, and of those whose provider can be asked, and with the words by
/// which its keys are made, and gives its number;
/// to be done again now and then by whoever runs it, since one that nobody runs is gone.
pub async fn connector(connection: &mut PgConnection, connector: &Connector) -> Result<i32> {
    let Connector { name, scope, source, .. } = connector;
    let effects: Vec<String> = connector.effects.iter().map(|rule| rule.id.to_string()).collect();
    let lookups: Vec<String> = (connector.effects.iter())
        .filter(|rule| matches!(&rule.body, EffectBody::Call(call) if call.lookup.is_some()))
        .map(|rule| rule.id.to_string())
        .collect();
    let mut rules = KeyRule::of_effects(connector);
    rules.push(KeyRule::of_events(connector));
    let made: Vec<String> =
        rules.iter().map(|rule| rule.effect.as_deref().unwrap_or_default().to_owned()).collect();
    let digests: Vec<Uuid> = rules.iter().map(|rule| uuid(rule.digest)).collect();
    let words: Vec<String> = rules.iter().map(|rule| clean(&rule.words, WORDS_CHARS_MAX)).collect();
    let group = &*source.group;
    let failure = &connector.failure;
    let dead_letter = failure.dead_letter.as_ref().map(|letters| &*letters.topic);
    let query = query_file!(
        "src/store/sql/connector_register.sql",
        &**name,
        &**scope,
        group,
        &effects,
        dead_letter,
        i32::try_from(failure.redrives_max).unwrap_or(i32::MAX),
        &lookups,
        &made,
        &digests,
        &words,
    );
    Ok(query.fetch_one(connection).await?.id)
}

/// Registers a topic as a connector reads it and gives its number.
pub async fn source(
    connection: &mut PgConnection,
    connector_id: i32,
    cluster_id: &str,
    topic_id: &str,
    topic: &str,
) -> Result<i32> {
    let query =
        query_file!("src/store/sql/source_register.sql", connector_id, cluster_id, topic_id, topic);
    Ok(query.fetch_one(connection).await?.id)
}
