//! `oncely webhooks`: endpoints that said that they are gone, and enabling them again.

use clap::Subcommand;
use serde_json::json;

use super::answer::{Answer, counted, time, whole_table};
use super::context::{ChangeArgs, Context};
use super::exit::CliError;
use super::known;
use crate::store::admin::endpoints::{self, EndpointRow, Filter};
use crate::store::{Connection, StoreError};

/// See disabled endpoints of webhooks, and enable them again.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Webhooks {
    /// List endpoints to which nothing is sent
    #[command(after_help = "\
An endpoint that answers 410 has said that it is gone. What is owed to it from then on is not sent \
and becomes a dead letter.

Examples:
  oncely webhooks list
  oncely webhooks list --connector order-shipped")]
    List {
        /// Only of this connector
        #[arg(long)]
        connector: Option<String>,
    },
    /// Send to an endpoint again
    #[command(after_help = "\
Running processors take it up within a second or two. What became a dead letter meanwhile stays \
one.

Examples:
  oncely webhooks enable https://shop.example.com/hooks --reason 'moved back' --dry-run
  oncely webhooks enable --all --connector order-shipped --reason INC-7")]
    Enable(Enable),
}

#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub(super) struct Enable {
    /// The endpoint's url, as `webhooks list` shows it
    #[arg(group = "which")]
    url: Option<String>,
    /// Every disabled endpoint
    #[arg(long, group = "which")]
    all: bool,
    /// Only of this connector
    #[arg(long)]
    connector: Option<String>,
    #[command(flatten)]
    change: ChangeArgs,
}

impl Webhooks {
    pub(super) async fn run(self, context: &Context) -> Result<Answer, CliError> {
        match self {
            Self::List { connector } => {
                let filter = Filter { connector, url: None };
                let mut connection = context.connect("webhooks").await?;
                known::connector(&mut connection, filter.connector.as_deref()).await?;
                let rows = endpoints::list(&mut connection, &filter).await?;
                let count = counted(rows.len(), "disabled endpoint");
                let text = format!("{}{count}\n", table(&rows));
                Ok(Answer::new(text, json!({ "endpoints": shown(&rows) })))
            }
            Self::Enable(enable) => enable.run(context).await,
        }
    }
}

impl Enable {
    async fn run(self, context: &Context) -> Result<Answer, CliError> {
        let change = context.change(&self.change)?;
        let mut connection = context.connect("webhooks").await?;
        let filter = Filter { connector: self.connector, url: self.url };
        known::connector(&mut connection, filter.connector.as_deref()).await?;
        if !change.dry_run {
            let what = filter.url.as_deref().unwrap_or("every disabled endpoint");
            context.confirm(&format!("Send to {what} again?"))?;
        }
        let mut tx = connection.begin().await.map_err(StoreError::from)?;
        let enabled = endpoints::enable(&mut tx, &filter, &change).await?;
        tx.commit().await.map_err(StoreError::from)?;
        if enabled.is_empty() {
            let text = "no such endpoint is disabled; see `oncely webhooks list`";
            return Err(CliError::Failed(text.to_owned()));
        }
        let count = counted(enabled.len(), "endpoint");
        let end = if change.dry_run {
            format!("would enable {count}; nothing was changed")
        } else {
            format!("enabled {count}; running processors take them up within a second or two")
        };
        let text = format!("{}{end}\n", table(&enabled));
        Ok(Answer::new(text, json!({ "enabled": shown(&enabled), "dry_run": change.dry_run })))
    }
}

fn table(rows: &[EndpointRow]) -> String {
    let cells = rows.iter().map(|row| {
        vec![row.connector.clone(), row.effect.clone(), time(row.disabled_at), row.url.clone()]
    });
    whole_table(&["connector", "effect", "disabled", "url"], cells.collect())
}

fn shown(rows: &[EndpointRow]) -> Vec<serde_json::Value> {
    let row = |row: &EndpointRow| {
        json!({
            "connector": row.connector,
            "effect": row.effect,
            "url": row.url,
            "disabled_at": time(row.disabled_at),
        })
    };
    rows.iter().map(row).collect()
}
