//! `oncely explain`: the whole life of one business event.

use oncely_core::key::Key;
use serde_json::{Value, json};

use super::answer::{Answer, shown, time};
use super::context::Context;
use super::exit::{CliError, Exit};
use super::known;
use super::print::chain;
use super::timeline::{Timeline, timeline};
use crate::store::PgConnection;
use crate::store::admin::events::{self, ConnectorRow, History};

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Explain {
    /// The id that the connector's `identity.id` gives
    business_id: String,
    /// The tenant that `identity.tenant` gives; without it, every tenant that owns such an id
    #[arg(long)]
    tenant: Option<String>,
    /// Only this connector
    #[arg(long, value_name = "NAME")]
    connector: Option<String>,
}

/// The life of one event under one connector.
#[derive(Debug)]
struct Found {
    connector: String,
    tenant: String,
    event: Key,
    /// The number of the parked record, where it is a second content that a person has released, and the command that
    /// shows it.
    released: Option<(i64, &'static str)>,
    timeline: Timeline,
}

impl Explain {
    pub(super) async fn run(self, context: &Context) -> Result<Answer, CliError> {
        let mut connection = context.connect("explain").await?;
        known::connector(&mut connection, self.connector.as_deref()).await?;
        let connectors = events::connectors(&mut connection, self.connector.as_deref()).await?;
        if connectors.is_empty() {
            return Err(CliError::Failed("no connector ever ran on this database".to_owned()));
        }
        let mut found = Vec::new();
        let tenants = [self.tenant.clone().unwrap_or_default()];
        self.look(&mut connection, &connectors, &tenants, &mut found).await?;
        let mut cut_off = None;
        if self.tenant.is_none() {
            match self.of_all(&mut connection, &connectors, &mut found).await {
                Ok(()) => {}
                Err(error) if found.is_empty() => return Err(error),
                Err(error) => cut_off = Some(chain(&error)),
            }
        }
        if found.is_empty() {
            return Ok(self.unknown(&self.others(&mut connection, &connectors).await));
        }
        Ok(self.answer(&found, cut_off.as_deref()))
    }

    /// Every tenant that owns such an id. Reads whole tables.
    async fn of_all(
        &self,
        connection: &mut PgConnection,
        connectors: &[ConnectorRow],
        found: &mut Vec<Found>,
    ) -> Result<(), CliError> {
        let tenants = events::tenants_of(connection, &self.business_id).await?;
        self.look(connection, connectors, &tenants, found).await?;
        let scopes: Vec<String> = connectors.iter().map(|one| one.scope.clone()).collect();
        let tenants = events::tenants_by_key(connection, &scopes, &self.business_id).await?;
        self.look(connection, connectors, &tenants, found).await
    }

    async fn look(
        &self,
        connection: &mut PgConnection,
        connectors: &[ConnectorRow],
        tenants: &[String],
        found: &mut Vec<Found>,
    ) -> Result<(), CliError> {
        for connector in connectors {
            for tenant in tenants {
                let event = Key::event(&connector.scope, tenant, &self.business_id);
                // Connectors that share a scope share the event.
                if found.iter().any(|found| found.event == event) {
                    continue;
                }
                let history = events::history(connection, tenant, event).await?;
                if history.is_empty() {
                    continue;
                }
                let life = |event, released, history: &History| Found {
                    connector: connector.name.clone(),
                    tenant: tenant.clone(),
                    event,
                    released,
                    timeline: timeline(history),
                };
                found.push(life(event, None, &history));
                // What was released beside it owes effects of its own.
                for (parked, event) in history.released() {
                    let list = if parked.kind == "quarantine" { "quarantine" } else { "dlq" };
                    let shown_by = (parked.id, list);
                    let history = events::history(connection, tenant, event).await?;
                    if !history.is_empty() {
                        found.push(life(event, Some(shown_by), &history));
                    }
                }
            }
        }
        Ok(())
    }

    /// Tenants that own the id where the one that was named does not; none where that cannot be found out.
    async fn others(&self, connection: &mut PgConnection, of: &[ConnectorRow]) -> Vec<String> {
        let mut found = Vec::new();
        if self.tenant.is_some() {
            drop(self.of_all(connection, of, &mut found).await);
        }
        found.into_iter().map(|found| found.tenant).collect()
    }

    fn unknown(&self, others: &[String]) -> Answer {
        let whose = self.tenant.as_ref().map_or_else(
            || "of any tenant".to_owned(),
            |tenant| format!("of tenant {}", shown(tenant)),
        );
        let other = match others {
            [] => String::new(),
            [none] if none.is_empty() => "; without a tenant it is".to_owned(),
            others => {
                let others: Vec<String> = others.iter().map(|tenant| shown(tenant)).collect();
                format!("; it is of tenant {}", others.join(", "))
            }
        };
        let text = format!(
            "nothing is on record {whose} under {:?}: the id is what `identity.id` gives, in full; \
             records that were ignored leave no trace, and those that could not be read have no id \
             (oncely dlq list){other}",
            self.business_id
        );
        let json = json!({ "business_id": self.business_id, "found": [], "other_tenants": others });
        Answer { exit: Exit::Failed, ..Answer::new(text, json) }
    }

    /// `cut_off`: why not every tenant was looked for.
    fn answer(&self, found: &[Found], cut_off: Option<&str>) -> Answer {
        let mut text = String::new();
        for found in found {
            if !text.is_empty() {
                text.push('\n');
            }
            let id = super::effects::id(&found.tenant, &self.business_id);
            let second = found.released.map_or_else(String::new, |(number, list)| {
                format!(" (another content, released: oncely {list} show {number})")
            });
            text.push_str(&format!("{}: {}{second}\n", found.connector, shown(&id)));
            text.push_str(&found.timeline.text());
        }
        if let Some(why) = cut_off {
            text.push_str(&format!(
                "\nother tenants may own this id as well, they could not be looked for ({why}): name the --tenant\n"
            ));
        }
        let found: Vec<Value> = found
            .iter()
            .map(|found| {
                let entries = found.timeline.entries.iter().map(|entry| {
                    json!({
                        "at": entry.at.map(time),
                        "what": entry.what,
                        "detail": entry.detail,
                        "state": entry.state,
                    })
                });
                json!({
                    "connector": found.connector,
                    "tenant": found.tenant,
                    "event": found.event.to_string(),
                    "released": found.released.map(|(number, _)| number),
                    "timeline": entries.collect::<Vec<_>>(),
                    "verdict": found.timeline.verdict,
                    "open": found.timeline.open,
                })
            })
            .collect();
        Answer::new(
            text,
            json!({ "business_id": self.business_id, "found": found, "cut_off": cut_off }),
        )
    }
}
