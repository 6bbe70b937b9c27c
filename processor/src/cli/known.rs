//! Names that a person gives, against those that the database knows: of a mistyped one nothing would be found, which
//! looks like good news.

use oncely_core::expr::spelling::nearest;

use super::answer::shown;
use super::exit::CliError;
use crate::store::PgConnection;
use crate::store::admin::events;

/// A connector that ever ran on this database, where one is named.
pub(super) async fn connector(
    connection: &mut PgConnection,
    named: Option<&str>,
) -> Result<(), CliError> {
    let Some(named) = named else { return Ok(()) };
    let known = events::connectors(connection, None).await?;
    let known: Vec<&str> = known.iter().map(|one| one.name.as_str()).collect();
    if known.contains(&named) { Ok(()) } else { Err(CliError::Failed(unknown(named, &known))) }
}

fn unknown(named: &str, known: &[&str]) -> String {
    if known.is_empty() {
        return "no connector ever ran on this database".to_owned();
    }
    let near = nearest(named, known.iter().copied());
    let near = near.map(|near| format!("did you mean {near}? ")).unwrap_or_default();
    let named = shown(named);
    format!(
        "no connector {named} ever ran on this database: {near}those that did: {}",
        known.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_nobody_knows_is_told_with_those_that_are() {
        let text = unknown("invoice-payd", &["invoice-paid", "order-shipped"]);
        assert!(text.contains("did you mean invoice-paid?"), "{text}");
        assert!(text.ends_with("invoice-paid, order-shipped"), "{text}");
        assert!(unknown("x", &[]).starts_with("no connector ever ran"));
    }
}
