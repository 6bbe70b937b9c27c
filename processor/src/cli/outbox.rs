//! `oncely outbox`: records that are published, and sending again what the brokers refused.

use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::answer::{Answer, Shown, counted, is_full, table, time};
use super::context::{ChangeArgs, Context};
use super::effects::id;
use super::exit::CliError;
use super::known;
use crate::store::admin::outbox::{self, Filter, OutboxRow};
use crate::store::{Connection, StoreError};

/// See records that are published, and send refused ones again.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Outbox {
    /// List records, newest first
    #[command(after_help = "\
  waiting   to be sent, or behind one that is held
  held      the brokers refuse it: it holds those of the same topic and key behind it
  done      the brokers have it
  skipped   given up by a person

Examples:
  oncely outbox list --status held
  oncely outbox list --connector order-shipped --topic orders.shipped.v1 --output json")]
    List(List),
    /// Send records again that the brokers refused
    #[command(
        override_usage = "oncely outbox retry [OPTIONS] --reason <TEXT> <FILTERS | --all>",
        after_help = "\
They are sent in their old places, before what waits behind them, and with the same message id. \
To give one up, resolve its effect: oncely effects resolve KEY --as skipped.

Examples:
  oncely outbox retry --topic orders.shipped.v1 --reason 'the topic is there now' --dry-run
  oncely outbox retry --number 17 --reason INC-7
  oncely outbox retry --all --reason 'rights were granted'"
    )]
    Retry(Retry),
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct List {
    /// Only in this state; may be given more than once
    #[arg(long, value_enum, value_name = "STATE")]
    status: Vec<State>,
    /// Only of this connector
    #[arg(long, value_name = "NAME")]
    connector: Option<String>,
    /// Only for this topic
    #[arg(long)]
    topic: Option<String>,
    /// Rows at most
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=100_000))]
    limit: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum State {
    Waiting,
    Held,
    Done,
    Skipped,
}

impl State {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Held => "held",
            Self::Done => "done",
            Self::Skipped => "skipped",
        }
    }
}

#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true).multiple(true))]
pub(super) struct Retry {
    /// Only of this connector
    #[arg(long, value_name = "NAME", group = "which")]
    connector: Option<String>,
    /// Only for this topic
    #[arg(long, group = "which")]
    topic: Option<String>,
    /// Only this one, by the number that `list` shows
    #[arg(long, group = "which")]
    number: Option<i64>,
    /// Every refused record
    #[arg(long, group = "which", conflicts_with_all = ["connector", "topic", "number"])]
    all: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

impl Outbox {
    pub(super) async fn run(self, context: &Context) -> Result<Answer, CliError> {
        match self {
            Self::List(List { status, connector, topic, limit }) => {
                let statuses = status.into_iter().map(|state| state.as_str().to_owned()).collect();
                let filter = Filter { statuses, connector, topic, number: None, limit };
                let mut connection = context.connect("outbox").await?;
                known::connector(&mut connection, filter.connector.as_deref()).await?;
                let rows = outbox::list(&mut connection, &filter).await?;
                let shown = if is_full(rows.len(), limit) {
                    Shown::of(rows.len(), outbox::count(&mut connection, &filter).await?)
                } else {
                    Shown::all(rows.len())
                };
                Ok(listed(&rows, shown))
            }
            Self::Retry(retry) => retry.run(context).await,
        }
    }
}

impl Retry {
    async fn run(self, context: &Context) -> Result<Answer, CliError> {
        let change = context.change(&self.change)?;
        let filter = Filter {
            connector: self.connector,
            topic: self.topic,
            number: self.number,
            ..Filter::default()
        };
        let mut connection = context.connect("outbox").await?;
        known::connector(&mut connection, filter.connector.as_deref()).await?;
        if !change.dry_run {
            let what = if self.all { "every refused record" } else { "these records" };
            context.confirm(&format!("Send {what} again?"))?;
        }
        let mut tx = connection.begin().await.map_err(StoreError::from)?;
        let retried = outbox::retry(&mut tx, &filter, &change).await?;
        tx.commit().await.map_err(StoreError::from)?;
        if retried == 0 {
            let text = "no such record is held; see `oncely outbox list --status held`";
            return Err(CliError::Failed(text.to_owned()));
        }
        let count = counted(retried, "record");
        let text = if change.dry_run {
            format!("would send {count} again; nothing was changed\n")
        } else {
            format!("{count} will be sent again within a second\n")
        };
        Ok(Answer::new(text, json!({ "retried": retried, "dry_run": change.dry_run })))
    }
}

fn listed(rows: &[OutboxRow], shown: Shown) -> Answer {
    let header =
        ["number", "state", "connector", "topic", "made from", "id", "since", "tries", "note"];
    let cells = rows.iter().map(|row| {
        vec![
            row.number.to_string(),
            row.status.clone(),
            row.connector.clone().unwrap_or_else(|| "(gone)".to_owned()),
            place(row),
            origin(row),
            business_id(row),
            time(row.created_at),
            row.attempts.to_string(),
            row.note.clone().unwrap_or_default(),
        ]
    });
    let text = format!("{}{}\n", table(&header, cells.collect()), shown.text("record"));
    let json = json!({ "records": rows.iter().map(row_json).collect::<Vec<Value>>() });
    Answer::new(text, shown.add_to(json))
}

fn place(row: &OutboxRow) -> String {
    match row.sent {
        Some((partition, offset)) => format!("{}[{partition}]@{offset}", row.topic),
        None => row.topic.clone(),
    }
}

fn origin(row: &OutboxRow) -> String {
    match row.parked {
        Some(number) => format!("dead letter {number}"),
        None => row.effect.clone().unwrap_or_else(|| "(gone)".to_owned()),
    }
}

fn business_id(row: &OutboxRow) -> String {
    let known = row.business_id.as_deref();
    known.map(|known| id(row.tenant.as_deref().unwrap_or_default(), known)).unwrap_or_default()
}

fn row_json(row: &OutboxRow) -> Value {
    json!({
        "number": row.number,
        "message_id": row.message.wire(),
        "connector": row.connector,
        "topic": row.topic,
        "state": row.status,
        "attempts": row.attempts,
        "created_at": time(row.created_at),
        "finished_at": row.finished_at.map(time),
        "partition": row.sent.map(|(partition, _)| partition),
        "offset": row.sent.map(|(_, offset)| offset),
        "dead_letter": row.parked,
        "effect": row.effect,
        "tenant": row.tenant,
        "business_id": row.business_id,
        "note": row.note,
    })
}
