//! `oncely rewind`: read a connector's topics once more from an earlier place.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::json;

use super::answer::{Answer, counted, shown, time, whole_table};
use super::context::{ChangeArgs, Context};
use super::exit::CliError;
use super::moment;
use crate::kafka::{Admin, TopicPartition};
use crate::store::admin::key_rules;
use crate::store::admin::rewind::{self, Stand};
use crate::store::{Connection, StoreError};

/// So long after a worker was seen with a file it may have run on by it; as `admin_rewind_older.sql` has it.
const MAY_RUN_ON: TimeDelta = TimeDelta::minutes(2);

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Rewind {
    /// The connector's name
    connector: String,
    /// Where to go back to: a time, an offset (with --partition), or earliest
    #[arg(long, value_name = "TIME|OFFSET", value_parser = target)]
    to: Target,
    /// Only of this topic
    #[arg(long)]
    topic: Option<String>,
    /// Only this partition
    #[arg(long)]
    partition: Option<i32>,
    /// Also beyond a change of `identity` or `scope`: what was run before it runs again, as new events
    #[arg(long)]
    as_new: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Earliest,
    Offset(i64),
    Time(DateTime<Utc>),
}

fn target(text: &str) -> Result<Target, String> {
    if text == "earliest" {
        return Ok(Target::Earliest);
    }
    match text.parse::<i64>() {
        Ok(offset) if offset >= 0 => Ok(Target::Offset(offset)),
        Ok(_) => Err("an offset is zero or more".to_owned()),
        Err(_) => moment::parse(text).map(Target::Time),
    }
}

/// What would become of one partition.
#[derive(Clone, Debug)]
struct Line {
    stand: Stand,
    /// `None`: it stays where it is.
    to: Option<i64>,
    why: &'static str,
}

impl Rewind {
    pub(super) async fn run(self, context: &Context) -> Result<Answer, CliError> {
        if matches!(self.to, Target::Offset(_)) && self.partition.is_none() {
            let text = "an offset is one of a partition: name it with --partition";
            return Err(CliError::Usage(text.to_owned()));
        }
        let change = context.change(&self.change)?;
        let mut connection = context.connect("rewind").await?;
        let mut tx = connection.begin().await.map_err(StoreError::from)?;
        let stands = self.lock(&mut tx).await?;
        let lines = self.lines(context, &stands).await?;
        let targets: Vec<(Stand, i64)> =
            lines.iter().filter_map(|line| Some((line.stand.clone(), line.to?))).collect();
        if !self.as_new {
            self.refuse_new_ids(&mut tx, &targets).await?;
        }
        // A preview is the default: whoever means it says so.
        let does = context.yes && !change.dry_run && !targets.is_empty();
        if does {
            rewind::rewind(&mut tx, &targets, self.as_new, &change).await?;
            tx.commit().await.map_err(StoreError::from)?;
        }
        Ok(answer(&lines, does))
    }

    async fn lock(&self, tx: &mut crate::store::PgConnection) -> Result<Vec<Stand>, CliError> {
        let topic = self.topic.as_deref();
        let stands = rewind::lock(tx, &self.connector, topic, self.partition).await?;
        if stands.is_empty() {
            let name = &self.connector;
            return Err(CliError::Failed(format!(
                "connector {name} has no such position here (oncely progress list)"
            )));
        }
        Ok(stands)
    }

    /// Events that got their ids by other words of the file would not be found among those on record.
    async fn refuse_new_ids(
        &self,
        tx: &mut crate::store::PgConnection,
        targets: &[(Stand, i64)],
    ) -> Result<(), CliError> {
        let rules = key_rules::of_events(tx, &self.connector).await?;
        let Some(now) = rules.first() else { return Ok(()) };
        let others = key_rules::others_from(tx, &self.connector, now, targets).await?;
        let Some((words, seen_at)) = others else { return Ok(()) };
        Err(CliError::Failed(format!(
            "events of {} that this would read once more got their ids by {}, until {}; by {}, as the file has it now, \
             they are new ones, and what they owe happens once more: go back to a time after that, put the file back \
             first, or give --as-new to have it so",
            self.connector,
            shown(&words),
            time(seen_at.checked_add_signed(MAY_RUN_ON).unwrap_or(seen_at)),
            shown(&now.words),
        )))
    }

    async fn lines(&self, context: &Context, stands: &[Stand]) -> Result<Vec<Line>, CliError> {
        let group = stands.first().map_or("", |stand| stand.group_name.as_str());
        let admin = context.kafka(group)?;
        let failed = |source| context.kafka_failed(source);
        let cluster_id = admin.cluster_id().await.map_err(failed)?;
        let mut lines = Vec::new();
        for stand in stands {
            let line = |to, why| Line { stand: stand.clone(), to, why };
            if stand.cluster_id != cluster_id {
                lines.push(line(None, "it is of another cluster than these brokers"));
            } else if stand.stopped.is_some() {
                lines.push(line(None, "it is stopped: see `oncely progress accept`"));
            } else {
                let (wanted, low) = self.wanted(&admin, stand).await.map_err(failed)?;
                lines.push(match wanted.map(|wanted| wanted.max(low)) {
                    Some(to) if to < stand.position => line(Some(to), ""),
                    Some(_) | None => line(None, "it is not beyond that"),
                });
            }
        }
        Ok(lines)
    }

    /// Where a partition is to go on, as Kafka has it, and its first record. `None`: nothing is that young.
    async fn wanted(
        &self,
        admin: &Admin,
        stand: &Stand,
    ) -> Result<(Option<i64>, i64), crate::kafka::KafkaError> {
        let partition = TopicPartition::new(stand.topic.clone(), stand.partition);
        let (low, _) = admin.watermarks(&partition).await?;
        let wanted = match self.to {
            Target::Earliest => Some(low),
            Target::Offset(offset) => Some(offset),
            Target::Time(time) => admin.offset_at(&partition, time.timestamp_millis()).await?,
        };
        Ok((wanted, low))
    }
}

fn answer(lines: &[Line], done: bool) -> Answer {
    let header = ["topic", "partition", "is at", "goes back to", "records", "stays because"];
    let records = |line: &Line| line.to.map(|to| line.stand.position.saturating_sub(to));
    let cells = lines.iter().map(|line| {
        let number = |number: Option<i64>| number.map_or_else(String::new, |n| n.to_string());
        vec![
            line.stand.topic.clone(),
            line.stand.partition.to_string(),
            line.stand.position.to_string(),
            number(line.to),
            number(records(line)),
            line.why.to_owned(),
        ]
    });
    let moved = lines.iter().filter(|line| line.to.is_some()).count();
    let total: i64 = lines.iter().filter_map(records).sum();
    let count = counted(moved, "partition");
    let end = match (moved, done) {
        (0, _) => "nothing is beyond that; nothing was changed".to_owned(),
        (_, true) => format!(
            "rewound {count}; running processors take them up within seconds, and what is on record is \
             absorbed"
        ),
        (_, false) => format!(
            "would read up to {total} records of {count} once more: what is on record is absorbed, what is \
             not runs; nothing was changed (--yes to do it)"
        ),
    };
    let text = format!("{}{end}\n", whole_table(&header, cells.collect()));
    let rows = lines.iter().map(|line| {
        json!({
            "topic": line.stand.topic,
            "topic_id": line.stand.topic_id,
            "partition": line.stand.partition,
            "position": line.stand.position,
            "goes_back_to": line.to,
            "stays_because": (!line.why.is_empty()).then_some(line.why),
        })
    });
    Answer::new(text, json!({ "partitions": rows.collect::<Vec<_>>(), "done": done }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_time_an_offset_or_the_beginning() {
        assert_eq!(target("earliest"), Ok(Target::Earliest));
        assert_eq!(target("118"), Ok(Target::Offset(118)));
        assert!(matches!(target("2026-11-01"), Ok(Target::Time(_))));
        assert!(target("-1").is_err());
        assert!(target("latest").is_err(), "records are never passed over");
    }
}
