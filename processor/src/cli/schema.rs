//! `oncely schema`: the JSON schema of connector files, for editors.

use oncely_connectors::file::schema;

use super::answer::Answer;

/// The schema is JSON whatever the output is.
pub(super) fn run() -> Answer {
    let text = schema::text();
    let json = serde_json::from_str(&text).unwrap_or_default();
    Answer::new(text, json)
}
