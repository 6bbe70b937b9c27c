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

#[cfg(test)]
mod tests {
    use super::super::timeline::timeline;
    use super::*;
    use crate::store::admin::events::{History, InboxRow};

    fn row() -> DeferredRow {
        DeferredRow {
            id: 4,
            at: chrono::DateTime::UNIX_EPOCH,
            due_at: chrono::DateTime::from_timestamp_millis(30_000),
            connector: Some("shipment-tracked".to_owned()),
            cause: "gap".to_owned(),
            version: 5,
            reached: Some(3),
            behind: None,
            tenant: "north".to_owned(),
            business_id: "sc-1005".to_owned(),
            entity: oncely_core::key::Key::from_bytes([1; 16]),
            origin: None,
            closed: None,
            escalated: false,
        }
    }

    #[test]
    fn who_waits_is_told_for_what_and_until_when() {
        let held =
            DeferredRow { cause: "parked".to_owned(), behind: Some(17), due_at: None, ..row() };
        let late = DeferredRow {
            closed: Some((chrono::DateTime::UNIX_EPOCH, "applied".to_owned())),
            escalated: true,
            ..row()
        };
        let rows = [row(), DeferredRow { reached: Some(1), ..row() }, held, late];
        insta::assert_snapshot!(listed(&rows).text, @r"
        NUMBER  SINCE                     CONNECTOR         ID               VERSION  WAITS FOR          UNTIL                                           FROM
        4       1970-01-01T00:00:00.000Z  shipment-tracked  north / sc-1005  5        version 4          1970-01-01T00:00:30.000Z
        4       1970-01-01T00:00:00.000Z  shipment-tracked  north / sc-1005  5        versions 2 to 4    1970-01-01T00:00:30.000Z
        4       1970-01-01T00:00:00.000Z  shipment-tracked  north / sc-1005  5        parked record #17  a person has decided
        4       1970-01-01T00:00:00.000Z  shipment-tracked  north / sc-1005  5        a missing version  1970-01-01T00:00:00.000Z: applied, not in time
        4 deferred events
        ");
        assert_eq!(
            waits_for(&DeferredRow { reached: None, ..row() }),
            "its entity's first version"
        );
    }
    #[test]
    fn a_timeline_tells_that_it_waited_and_why_no_more() {
        let at = |ms| chrono::DateTime::from_timestamp_millis(ms).unwrap();
        let inbox = |outcome: &str, ms| InboxRow {
            first_seen_at: at(ms),
            outcome: outcome.to_owned(),
            version: Some(5),
            from_state: None,
            to_state: None,
            origin: None,
            repeats: None,
        };
        let waits = History {
            inbox: Some(inbox("deferred", 0)),
            deferred: vec![row()],
            ..History::default()
        };
        insta::assert_snapshot!(timeline(&waits).text(), @r"
        1970-01-01 UTC
        00:00:00.000  received
        00:00:00.000  deferred    v5 waits for version 4 until 00:00:30.000     WAITING
        verdict: deferred, nothing open
        ");
        let closed = Some((at(30_000), "applied".to_owned()));
        let went = History {
            inbox: Some(inbox("applied", 30_000)),
            deferred: vec![DeferredRow { closed, escalated: true, ..row() }],
            ..History::default()
        };
        insta::assert_snapshot!(timeline(&went).text(), @r"
        1970-01-01 UTC
        00:00:00.000  received
        00:00:00.000  deferred    v5 waits for a missing version
        00:00:30.000  released    what it waited for did not come in time
        00:00:30.000  applied     v5
        verdict: nothing open
        ");
    }
}
