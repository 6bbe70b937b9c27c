//! `oncely progress`: positions, and taking a topic that is another one than before.

use std::collections::BTreeMap;

use clap::Subcommand;
use serde_json::json;

use super::answer::{Answer, counted, shown, time, whole_table};
use super::context::{ChangeArgs, Context};
use super::exit::CliError;
use super::known::Hint;
use crate::kafka::TopicPartition;
use crate::store::admin::progress::{self, Accepted, At, Filter, ProgressRow, Wanted};
use crate::store::progress::END_UNKNOWN;
use crate::store::{Connection, StoreError};

/// See how far groups are, and accept a topic that changed under them.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Progress {
    /// List positions
    #[command(after_help = "\
A topic that was deleted and made again stands here twice, under two ids. The end of each topic is \
asked of Kafka; the lag counts records, and so includes those that are read and not finished. The \
holder is the worker that reads the partition: its host, and the beginning of its id.

Examples:
  oncely progress list --group oncely.invoice-paid
  oncely progress list --stopped")]
    List {
        /// Only of this consumer group
        #[arg(long)]
        group: Option<String>,
        /// Only of this topic
        #[arg(long)]
        topic: Option<String>,
        /// Only those that are stopped
        #[arg(long)]
        stopped: bool,
    },
    /// Go on with a topic that was recreated or truncated
    #[command(
        override_usage = "oncely progress accept [OPTIONS] --group <GROUP> --topic <TOPIC> --at <WHERE> --reason <TEXT>\n  \
                        <--partition <PARTITION> | --all>",
        after_help = "\
A partition stops when it is not what was read before: the topic was deleted and made again, or \
records were lost. Accepting raises the epoch of the position and goes on
  --at earliest   with the first record that is there: what was seen before is a duplicate
  --at latest     after the last one: what is there now is never looked at
  --at kept       where the row stands; for a recreated topic that is its `start`
  --at OFFSET     there
earliest and latest ask Kafka.

Examples:
  oncely progress accept --group g --topic invoices --all --at earliest --reason INC-7 --dry-run
  oncely progress accept --group g --topic invoices --partition 3 --at 118 --reason INC-7"
    )]
    Accept(Accept),
}

#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub(super) struct Accept {
    /// The consumer group
    #[arg(long)]
    group: String,
    /// The topic
    #[arg(long)]
    topic: String,
    /// One partition
    #[arg(long, group = "which")]
    partition: Option<i32>,
    /// Every stopped partition of the topic
    #[arg(long, group = "which")]
    all: bool,
    /// Where to go on: earliest, latest, kept, or an offset
    #[arg(long, value_name = "WHERE", value_parser = place)]
    at: Place,
    #[command(flatten)]
    change: ChangeArgs,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Earliest,
    Latest,
    Kept,
    Offset(i64),
}

fn place(text: &str) -> Result<Place, String> {
    match text {
        "earliest" => Ok(Place::Earliest),
        "latest" => Ok(Place::Latest),
        "kept" => Ok(Place::Kept),
        _ => match text.parse() {
            Ok(offset) if offset >= 0 => Ok(Place::Offset(offset)),
            Ok(_) | Err(_) => Err("write earliest, latest, kept, or an offset".to_owned()),
        },
    }
}

impl Progress {
    pub(super) async fn run(self, context: &Context) -> Result<Answer, CliError> {
        match self {
            Self::List { group, topic, stopped } => {
                let filter = Filter { group, topic, partition: None, stopped_only: stopped };
                let mut connection = context.connect("progress").await?;
                let rows = progress::list(&mut connection, &filter).await?;
                let ends = ends_of(context, &rows).await;
                let answer = listed(&rows, &ends);
                if !rows.is_empty() {
                    return Ok(answer);
                }
                let all = progress::list(&mut connection, &Filter::default()).await?;
                let groups: Vec<String> = all.iter().map(|row| row.group_name.clone()).collect();
                let topics: Vec<String> = all.into_iter().map(|row| row.topic).collect();
                let mut hint = Hint::default();
                hint.name("no position is on record of group", filter.group.as_deref(), &groups);
                hint.name("no position is on record of topic", filter.topic.as_deref(), &topics);
                Ok(hint.add_to(answer))
            }
            Self::Accept(accept) => accept.run(context).await,
        }
    }
}

/// Before which offset records may be done although nothing is on record of them. Before the topic's end was
/// looked up nothing is read anyway.
fn suspect(row: &ProgressRow) -> Option<i64> {
    row.suspect.filter(|below| *below != END_UNKNOWN)
}

/// Where the topics end, by row; and why not all of them are known.
#[derive(Debug, Default)]
struct TopicEnds {
    ends: BTreeMap<usize, i64>,
    unknown: Option<String>,
}

/// Asks Kafka for the end of each partition. Brokers that are away are asked once, and hide no position.
async fn ends_of(context: &Context, rows: &[ProgressRow]) -> TopicEnds {
    let mut found = TopicEnds::default();
    let mut groups: BTreeMap<&str, Vec<(usize, &ProgressRow)>> = BTreeMap::new();
    for (number, row) in rows.iter().enumerate() {
        groups.entry(&row.group_name).or_default().push((number, row));
    }
    for (group, rows) in groups {
        if let Err(error) = ends_of_group(context, group, &rows, &mut found.ends).await {
            found.unknown = Some(super::print::chain(&error));
            break;
        }
    }
    found
}

async fn ends_of_group(
    context: &Context,
    group: &str,
    rows: &[(usize, &ProgressRow)],
    ends: &mut BTreeMap<usize, i64>,
) -> Result<(), CliError> {
    let admin = context.kafka(group)?;
    let failed = |source| context.kafka_failed(source);
    let cluster_id = admin.cluster_id().await.map_err(failed)?;
    let mut names: Vec<String> = rows.iter().map(|(_, row)| row.topic.clone()).collect();
    names.sort_unstable();
    names.dedup();
    let ids = admin.topic_ids(&names).await.map_err(failed)?;
    for (number, row) in rows {
        // Of a topic that was made anew under this name, the end says nothing of the row.
        let known = ids.get(&row.topic).map(ToString::to_string).unwrap_or_default();
        if row.cluster_id != cluster_id || row.topic_id != known {
            continue;
        }
        let partition = TopicPartition::new(row.topic.as_str(), row.partition);
        match admin.watermarks(&partition).await {
            Ok((_, end)) => drop(ends.insert(*number, end)),
            // Fewer partitions than there were, or one without a leader at this moment.
            Err(error) if !error.is_transient() => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(())
}

/// Where it runs, and the beginning of its id.
fn holder(row: &ProgressRow) -> String {
    match (&row.host, &row.holder) {
        (Some(host), Some(worker)) => {
            let id = worker.to_string();
            format!("{} {}", shown(host), id.get(..8).unwrap_or(&id))
        }
        _ => String::new(),
    }
}

fn listed(rows: &[ProgressRow], topics: &TopicEnds) -> Answer {
    let header = [
        "group",
        "topic",
        "topic id",
        "partition",
        "position",
        "end",
        "lag",
        "holder",
        "epoch",
        "written",
        "suspect below",
        "stopped",
    ];
    let end = |number: usize| topics.ends.get(&number).copied();
    let lag = |number: usize, row: &ProgressRow| {
        end(number).map(|end| end.saturating_sub(row.position).max(0))
    };
    let number_text = |number: Option<i64>| number.map(|n| n.to_string()).unwrap_or_default();
    let cells = rows.iter().enumerate().map(|(number, row)| {
        vec![
            row.group_name.clone(),
            row.topic.clone(),
            row.topic_id.clone(),
            row.partition.to_string(),
            row.position.to_string(),
            number_text(end(number)),
            number_text(lag(number, row)),
            holder(row),
            row.epoch.to_string(),
            time(row.updated_at),
            number_text(suspect(row)),
            row.stopped.clone().unwrap_or_default(),
        ]
    });
    let mut text =
        format!("{}{}\n", whole_table(&header, cells.collect()), counted(rows.len(), "position"));
    if let Some(why) = &topics.unknown {
        text.push_str(&format!("the topics' ends are not known: {why}\n"));
    }
    let json_rows = rows.iter().enumerate().map(|(number, row)| {
        json!({
            "group": row.group_name,
            "cluster_id": row.cluster_id,
            "topic": row.topic,
            "topic_id": row.topic_id,
            "partition": row.partition,
            "position": row.position,
            "end": end(number),
            "lag": lag(number, row),
            "holder": row.holder.map(|worker| worker.to_string()),
            "host": row.host,
            "epoch": row.epoch,
            "updated_at": time(row.updated_at),
            "suspect_below": suspect(row),
            "stopped": row.stopped,
        })
    });
    let json = json!({
        "progress": json_rows.collect::<Vec<_>>(),
        "ends_unknown": topics.unknown,
    });
    Answer::new(text, json)
}

impl Accept {
    async fn run(self, context: &Context) -> Result<Answer, CliError> {
        let change = context.change(&self.change)?;
        let mut connection = context.connect("progress").await?;
        let at = match self.at {
            Place::Kept => At::Kept,
            Place::Offset(offset) => At::Offset(offset),
            Place::Earliest | Place::Latest => {
                let filter = Filter {
                    group: Some(self.group.clone()),
                    topic: Some(self.topic.clone()),
                    partition: self.partition,
                    stopped_only: true,
                };
                let rows = progress::list(&mut connection, &filter).await?;
                self.ends(context, &rows).await?
            }
        };
        let partition = self.partition;
        let (group, topic) = (self.group, self.topic);
        let wanted = Wanted { group, topic, partition, at };
        if !change.dry_run {
            context.confirm(&format!("Accept {} as it is now?", wanted.topic))?;
        }
        let mut tx = connection.begin().await.map_err(StoreError::from)?;
        let accepted = progress::accept(&mut tx, &wanted, &change).await?;
        tx.commit().await.map_err(StoreError::from)?;
        if accepted.is_empty() {
            let (group, topic) = (&wanted.group, &wanted.topic);
            return Err(CliError::Failed(format!("nothing of {topic} is stopped for {group}")));
        }
        Ok(answer(&accepted, change.dry_run))
    }

    /// The first or last offset of stopped partitions, as Kafka has it now.
    async fn ends(&self, context: &Context, rows: &[ProgressRow]) -> Result<At, CliError> {
        let admin = context.kafka(&self.group)?;
        let mut offsets = BTreeMap::new();
        for row in rows {
            let partition =
                TopicPartition { topic: row.topic.as_str().into(), partition: row.partition };
            let ends = admin.watermarks(&partition).await;
            let (low, high) = ends.map_err(|source| context.kafka_failed(source))?;
            let end = if matches!(self.at, Place::Latest) { high } else { low };
            offsets.insert(row.partition, end);
        }
        Ok(At::Each(offsets))
    }
}

fn answer(accepted: &[Accepted], dry_run: bool) -> Answer {
    let header = ["partition", "was at", "goes on at", "was stopped because"];
    let cells = accepted.iter().map(|row| {
        vec![
            row.partition.to_string(),
            row.was_at.to_string(),
            row.goes_on_at.to_string(),
            row.stopped.clone(),
        ]
    });
    let count = counted(accepted.len(), "partition");
    let end = if dry_run {
        format!("would accept {count}; nothing was changed")
    } else {
        format!("accepted {count}; running processors take them up within seconds")
    };
    let text = format!("{}{end}\n", whole_table(&header, cells.collect()));
    let rows = accepted.iter().map(|row| {
        json!({
            "topic_id": row.topic_id,
            "partition": row.partition,
            "was_at": row.was_at,
            "goes_on_at": row.goes_on_at,
            "was_stopped_because": row.stopped,
        })
    });
    Answer::new(text, json!({ "accepted": rows.collect::<Vec<_>>(), "dry_run": dry_run }))
}
