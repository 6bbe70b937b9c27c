//! The JSON schema (draft-07) of connector files, for editors.

use schemars::generate::SchemaSettings;

use super::raw::RawConnector;

/// The schema as it is committed beside the examples: indented, with a line break at its end.
pub fn text() -> String {
    let generator = SchemaSettings::draft07().for_deserialize().into_generator();
    let mut schema = generator.into_root_schema_for::<RawConnector>();
    schema.insert("title".to_owned(), "Oncely connector".into());
    let mut text = serde_json::to_string_pretty(schema.as_value()).unwrap_or_default();
    text.push('\n');
    text
}
