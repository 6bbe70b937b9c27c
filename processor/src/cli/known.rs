//! Names that a person gives, against those that the database knows: of a mistyped one nothing would be found, which
//! looks like good news.

use oncely_core::expr::spelling::nearest;

use super::answer::{Answer, shown};
use super::exit::CliError;
use crate::store::PgConnection;
use crate::store::admin::effects::Filter;
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

/// Names that filter a list, besides the connector.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Named<'a> {
    pub(super) connector: Option<&'a str>,
    pub(super) effect: Option<&'a str>,
    pub(super) tenant: Option<&'a str>,
}

impl<'a> Named<'a> {
    pub(super) fn of(filter: &'a Filter) -> Self {
        Self {
            connector: filter.connector.as_deref(),
            effect: filter.effect.as_deref(),
            tenant: filter.tenant.as_deref(),
        }
    }
}

/// Which of the names that an empty answer was asked for nobody has. Such an answer is right, and no error.
#[derive(Clone, Debug, Default)]
pub(super) struct Hint(Vec<String>);

impl Hint {
    /// Below the answer, and beside its rows.
    pub(super) fn add_to(self, mut answer: Answer) -> Answer {
        for line in &self.0 {
            answer.text.push_str(&format!("{line}\n"));
        }
        if let (false, Some(members)) = (self.0.is_empty(), answer.json.as_object_mut()) {
            members.insert("hints".to_owned(), self.0.into());
        }
        answer
    }

    /// As the reason of an error.
    pub(super) fn behind(self, text: &str) -> String {
        [text.to_owned()].into_iter().chain(self.0).collect::<Vec<_>>().join("; ")
    }

    /// Says of a name that is none of those that are known.
    pub(super) fn name(&mut self, nobody: &str, named: Option<&str>, known: &[String]) {
        let Some(named) = named.filter(|named| !known.iter().any(|one| one == named)) else {
            return;
        };
        let near = nearest(named, known.iter().map(String::as_str));
        let near = near.map(|near| format!(": did you mean {}?", shown(near))).unwrap_or_default();
        self.0.push(format!("{nobody} {}{near}", shown(named)));
    }
}

/// What is to be said of an empty answer. Reads the whole inbox where a tenant is named.
pub(super) async fn hint(
    connection: &mut PgConnection,
    named: &Named<'_>,
) -> Result<Hint, CliError> {
    let mut hint = Hint::default();
    if named.effect.is_some() {
        let known = events::effect_names(connection, named.connector).await?;
        let nobody = match named.connector {
            Some(connector) => format!("{connector} as it ran last has no effect"),
            None => "no connector file that ran last has an effect".to_owned(),
        };
        hint.name(&nobody, named.effect, &known);
    }
    if named.tenant.is_some() {
        let known = events::tenants(connection).await?;
        if known.len() < events::TENANTS_MAX {
            hint.name("no event on record is of tenant", named.tenant, &known);
        }
    }
    Ok(hint)
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

    #[test]
    fn an_empty_answer_says_which_name_nobody_has() {
        let known = ["receipt".to_owned(), "settle".to_owned()];
        let mut hint = Hint::default();
        hint.name("nobody has an effect", None, &known);
        hint.name("nobody has an effect", Some("settle"), &known);
        hint.name("nobody has an effect", Some("recipt"), &known);
        let answer = hint.add_to(Answer::new("0 effects\n", serde_json::json!({})));
        assert_eq!(answer.text, "0 effects\nnobody has an effect recipt: did you mean receipt?\n");
        assert_eq!(answer.json["hints"].as_array().map(Vec::len), Some(1));
    }
}
