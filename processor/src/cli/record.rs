//! What the database has on record of connectors, held against the files that are to run.
//!
//! A file says nothing of the one before it. Ids and keys are made of its words; where these change, what was done is not
//! found under them, and happens again. Reads: compiled files, the database. Gives: findings, each at its place in a file.

use oncely_connectors::file::{Compiled, Diagnostic};
use oncely_core::key_rule::KeyRule;

use super::answer::{shown, time};
use crate::store::admin::key_rules::{self, EventRule, Former};
use crate::store::{PgConnection, StoreError};

/// Connectors that look like others by a new name (E056), and such as give events other ids than they had (W109).
pub(super) async fn findings(
    connection: &mut PgConnection,
    compiled: &[Compiled],
) -> Result<Vec<Diagnostic>, StoreError> {
    let given: Vec<String> = compiled.iter().map(|one| one.connector.name.to_string()).collect();
    let mut found = Vec::new();
    for one in compiled {
        if let Some(place) = one.of_name()
            && let Some(former) = key_rules::former(connection, &one.connector, &given).await?
        {
            found.push(renamed(one, &former, place));
        }
        let rules = key_rules::of_events(connection, &one.connector.name).await?;
        found.extend(identity(one, &rules));
    }
    Ok(found)
}

fn renamed(one: &Compiled, former: &Former, place: Diagnostic) -> Diagnostic {
    let (name, source) = (&one.connector.name, &one.connector.source);
    let (before, scope) = (shown(&former.name), shown(&former.scope));
    let ran = if former.runs {
        "runs at this moment".to_owned()
    } else {
        format!("ran last on {}", time(former.seen_at))
    };
    let effects = shown(&former.effects.join(", "));
    let note = format!(
        "`{before}` {ran}, with effects {effects}, on a topic that this one reads; no file given here is its own"
    );
    let why = format!(
        "without `scope` the memory of `{name}` begins empty: whatever the topic still has, `{before}` has done, and \
         happens again"
    );
    let place_of_group = if *source.group == *former.group {
        String::new()
    } else {
        let group = shown(&former.group);
        format!(", and `group: {group}` under `source` to go on where it stopped")
    };
    let help = format!(
        "where it is `{before}` by another name, write `scope: {scope}`{place_of_group}; where it is a connector of its \
         own, write `scope: {name}`"
    );
    let message = format!("`{name}` is new here, and looks like `{before}` by another name");
    Diagnostic { message, notes: vec![note, why], help, ..place }
}

/// `rules`: those of events, the last seen first.
fn identity(one: &Compiled, rules: &[EventRule]) -> Option<Diagnostic> {
    let now = KeyRule::of_events(&one.connector);
    let last = rules.first().filter(|last| last.digest != now.digest)?;
    let place = one.of_identity()?;
    let note = format!(
        "until {} they were made by {}, and here by {}",
        time(last.seen_at),
        shown(&last.words),
        shown(&now.words)
    );
    let why = "a record that is read again, whose offset was not committed or that lies behind a rewind, is a new event \
               by that, and what it owes happens once more: all of it where `scope` or `tenant` is another one, else what has a \
               `key` that is made of the id. A compensation finds nothing that was done under another scope or tenant";
    let help = "deploy it when all that was read is done (oncely progress list, oncely effects list), and rewind to no \
                time before it; or put back what it was";
    let message = "events get other ids than they had: what is read again runs again".to_owned();
    let notes = vec![note, why.to_owned()];
    Some(Diagnostic { message, notes, help: help.to_owned(), ..place })
}
