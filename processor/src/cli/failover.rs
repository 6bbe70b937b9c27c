//! `oncely failover`: where the database has been, and what was taken back each time.

use clap::Subcommand;
use serde_json::json;

use super::answer::{Answer, counted, time, whole_table};
use super::context::Context;
use super::exit::CliError;
use crate::store::admin::failovers::{self, FailoverRow};

/// Rows that are shown.
const ROWS_MAX: i64 = 1_000;

/// See failovers of the database.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Failover {
    /// List the servers that the database was found on, newest first
    #[command(after_help = "\
A standby that takes over writes another timeline. If it lacked commits that were acknowledged, \
what was done after `lost since` may be forgotten: positions went back to what is on record, and \
what may have been sent is repeated by its key, asked for, or held. Where a failover keeps all \
commits, set ONCELY_DATABASE_FAILOVER=lossless.

Examples:
  oncely failover list
  oncely effects list --status held")]
    List,
}

impl Failover {
    pub(super) async fn run(self, context: &Context) -> Result<Answer, CliError> {
        let Self::List = self;
        let mut connection = context.connect("failover").await?;
        Ok(listed(&failovers::list(&mut connection, ROWS_MAX).await?))
    }
}

fn listed(rows: &[FailoverRow]) -> Answer {
    let header = ["number", "at", "from", "to", "loss", "lost since", "positions", "effects"];
    let cells = rows.iter().map(|row| {
        let is_first = row.timeline_before.is_none();
        let only = |text: String| if is_first { String::new() } else { text };
        vec![
            row.number.to_string(),
            time(row.at),
            from(row),
            format!("timeline {}", row.timeline),
            only(if row.lossless { "none" } else { "possible" }.to_owned()),
            if row.lossless { String::new() } else { time(row.lost_since) },
            only(row.positions.to_string()),
            only(row.effects.to_string()),
        ]
    });
    let failovers = rows.iter().filter(|row| row.timeline_before.is_some()).count();
    let count = counted(failovers, "failover");
    let text = format!("{}{count}\n", whole_table(&header, cells.collect()));
    let rows = rows.iter().map(|row| {
        json!({
            "number": row.number,
            "at": time(row.at),
            "system_identifier": row.system_identifier.to_string(),
            "timeline": row.timeline,
            "system_before": row.system_before.map(|system| system.to_string()),
            "timeline_before": row.timeline_before,
            "lossless": row.lossless,
            "lost_since": (!row.lossless).then(|| time(row.lost_since)),
            "positions": row.positions,
            "effects": row.effects,
        })
    });
    Answer::new(text, json!({ "failovers": rows.collect::<Vec<_>>() }))
}

fn from(row: &FailoverRow) -> String {
    match (row.timeline_before, row.system_before) {
        (Some(timeline), Some(system)) if system == row.system_identifier => {
            format!("timeline {timeline}")
        }
        (Some(timeline), Some(_)) => format!("timeline {timeline} of another system"),
        _ => "(first seen)".to_owned(),
    }
}
