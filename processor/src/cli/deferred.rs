//! `oncely deferred`: events that wait for others of their entity.

use clap::Subcommand;
use serde_json::{Value, json};

use super::answer::{Answer, counted, table, time};
use super::context::Context;
use super::effects::id;
use super::exit::CliError;
use crate::store::admin::deferred::{self, DeferredRow, Filter};

/// See events that wait for a missing version, or behind a parked record.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Deferred {
    /// List them, those first whose time comes next
    #[command(after_help = "\
An event that waits for a version goes by itself: when that has come, or at its time, as the connector's
`on_gap` says. One behind a parked record goes when that is released or discarded.

Examples:
  oncely deferred list --connector invoice-paid
  oncely deferred list --id in_1009:invoice.paid
  oncely deferred list --closed --output json")]
    List(List),
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct List {
    /// Only of this connector
    #[arg(long, value_name = "NAME")]
    connector: Option<String>,
    /// Only of this business id
    #[arg(long = "id", value_name = "BUSINESS ID")]
    business_id: Option<String>,
    /// Also those that wait no more, last of all
    #[arg(long)]
    closed: bool,
    /// Rows at most
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=100_000))]
    limit: i64,
}

impl Deferred {
    pub(super) async fn run(self, context: &Context) -> Result<Answer, CliError> {
        let Self::List(List { connector, business_id, closed, limit }) = self;
        let filter = Filter { connector, business_id, event: None, closed, limit };
        let mut connection = context.connect("deferred").await?;
        Ok(listed(&deferred::list(&mut connection, &filter).await?))
    }
}

fn listed(rows: &[DeferredRow]) -> Answer {
    let header = ["number", "since", "connector", "id", "version", "waits for", "until", "from"];
    let cells = rows.iter().map(|row| {
        vec![
            row.id.to_string(),
            time(row.at),
            row.connector.clone().unwrap_or_else(|| "(gone)".to_owned()),
            id(&row.tenant, &row.business_id),
            row.version.to_string(),
            waits_for(row),
            until(row),
            row.origin.as_ref().map(ToString::to_string).unwrap_or_default(),
        ]
    });
    let count = counted(rows.len(), "deferred event");
    let text = format!("{}{count}\n", table(&header, cells.collect()));
    Answer::new(text, json!({ "deferred": rows.iter().map(row_json).collect::<Vec<Value>>() }))
}

/// What an event waits for, or waited for.
pub(super) fn waits_for(row: &DeferredRow) -> String {
    match (row.behind, row.cause.as_str()) {
        (Some(number), _) => format!("parked record #{number}"),
        (None, "parked") => "a parked record".to_owned(),
        (None, _) if row.closed.is_some() => "a missing version".to_owned(),
        (None, _) => match (row.reached, row.version.saturating_sub(1)) {
            (None, _) => "its entity's first version".to_owned(),
            (Some(reached), last) if reached.saturating_add(1) >= last => format!("version {last}"),
            (Some(reached), last) => format!("versions {} to {last}", reached.saturating_add(1)),
        },
    }
}

fn until(row: &DeferredRow) -> String {
    match (&row.closed, row.due_at) {
        (Some((at, how)), _) if row.escalated => format!("{}: {how}, not in time", time(*at)),
        (Some((at, how)), _) => format!("{}: {how}", time(*at)),
        (None, Some(due)) => time(due),
        (None, None) => "a person has decided".to_owned(),
    }
}

fn row_json(row: &DeferredRow) -> Value {
    json!({
        "number": row.id,
        "deferred_at": time(row.at),
        "due_at": row.due_at.map(time),
        "connector": row.connector,
        "cause": row.cause,
        "tenant": row.tenant,
        "business_id": row.business_id,
        "entity": row.entity.to_string(),
        "version": row.version,
        "reached": row.reached,
        "behind": row.behind,
        "from": row.origin.as_ref().map(ToString::to_string),
        "closed_at": row.closed.as_ref().map(|(at, _)| time(*at)),
        "closed_as": row.closed.as_ref().map(|(_, how)| how),
        "escalated": row.escalated,
    })
}
