//! `oncely explain`: the whole life of one business event.

use oncely_core::key::Key;
use serde_json::{Value, json};

use super::answer::{Answer, shown, time};
use super::context::Context;
use super::exit::{CliError, Exit};
use super::timeline::{Timeline, timeline};
use crate::store::PgConnection;
use crate::store::admin::events::{self, ConnectorRow};

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
    timeline: Timeline,
}

impl Explain {
    pub(super) async fn run(self, context: &Context) -> Result<Answer, CliError> {
        let mut connection = context.connect("explain").await?;
        let connectors = events::connectors(&mut connection, self.connector.as_deref()).await?;
        if connectors.is_empty() {
            let named = self.connector.map_or_else(
                || "no connector ever ran on this database".to_owned(),
                |name| format!("no connector {name} ever ran on this database"),
            );
            return Err(CliError::Failed(named));
        }
        let mut found = Vec::new();
        let tenants = match &self.tenant {
            Some(tenant) => vec![tenant.clone()],
            None => vec![String::new()],
        };
        self.look(&mut connection, &connectors, &tenants, &mut found).await?;
        if found.is_empty() && self.tenant.is_none() {
            let tenants = events::tenants_of(&mut connection, &self.business_id).await?;
            self.look(&mut connection, &connectors, &tenants, &mut found).await?;
        }
        if found.is_empty() && self.tenant.is_none() {
            let scopes: Vec<String> = connectors.iter().map(|one| one.scope.clone()).collect();
            let id = &self.business_id;
            let tenants = events::tenants_by_key(&mut connection, &scopes, id).await?;
            self.look(&mut connection, &connectors, &tenants, &mut found).await?;
        }
        if found.is_empty() {
            return Ok(self.unknown());
        }
        Ok(self.answer(&found))
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
                found.push(Found {
                    connector: connector.name.clone(),
                    tenant: tenant.clone(),
                    event,
                    timeline: timeline(&history),
                });
            }
        }
        Ok(())
    }

    fn unknown(&self) -> Answer {
        let whose = self.tenant.as_ref().map_or_else(
            || "of any tenant".to_owned(),
            |tenant| format!("of tenant {}", shown(tenant)),
        );
        let text = format!(
            "nothing is on record {whose} under {:?}: the id is what `identity.id` gives, in full; \
             records that were ignored leave no trace, and those that could not be read have no id \
             (oncely dlq list)",
            self.business_id
        );
        let json = json!({ "business_id": self.business_id, "found": [] });
        Answer { exit: Exit::Failed, ..Answer::new(text, json) }
    }

    fn answer(&self, found: &[Found]) -> Answer {
        let mut text = String::new();
        for found in found {
            if !text.is_empty() {
                text.push('\n');
            }
            let id = super::effects::id(&found.tenant, &self.business_id);
            text.push_str(&format!("{}: {}\n", found.connector, shown(&id)));
            text.push_str(&found.timeline.text());
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
                    "timeline": entries.collect::<Vec<_>>(),
                    "verdict": found.timeline.verdict,
                    "open": found.timeline.open,
                })
            })
            .collect();
        Answer::new(text, json!({ "business_id": self.business_id, "found": found }))
    }
}
