//! `oncely deferred`: events that wait for others of their entity.

use clap::Subcommand;
use serde_json::{Value, json};

use super::answer::{Answer, Shown, counted, is_full, table, time};
use super::context::{ChangeArgs, Context};
use super::effects::id;
use super::exit::CliError;
use super::known;
use crate::store::admin::deferred::{self, DeferredRow, Filter, Held, Meant, Which};
use crate::store::{Connection, StoreError};

/// See events that wait for a missing version, or behind a parked record, and let them go.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Deferred {
    /// List them, those first whose time comes next
    #[command(after_help = "\
An event that waits for a version goes by itself: when that has come, or at its time, as the \
connector's `on_gap` says. One behind a parked record goes when that is released or discarded.

Examples:
  oncely deferred list --connector invoice-paid
  oncely deferred list --id in_1009:invoice.paid
  oncely deferred list --closed --output json")]
    List(List),
    /// Let events go that wait for a version, as if their time had come
    #[command(
        override_usage = "oncely deferred release [OPTIONS] --reason <TEXT> <NUMBER... | FILTERS | --all>",
        after_help = "\
What follows is what the connector's `on_gap` says of one whose time has come: it applies over \
the gap, or is quarantined; those behind it without another gap go with it, and those that wait \
before it on its entity go first, in the same way. What stands behind a parked record is let go \
by `oncely quarantine release` or `discard`.

Examples:
  oncely deferred release 4 --reason 'version 6 was never written'
  oncely deferred release --id in_1009:invoice.paid --reason INC-7 --dry-run
  oncely deferred release --connector invoice-paid --reason INC-7"
    )]
    Release(Release),
}

#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true).multiple(true))]
pub(super) struct Release {
    /// Numbers as `list` shows them
    #[arg(value_name = "NUMBER", group = "which")]
    numbers: Vec<i64>,
    /// Only of this connector
    #[arg(long, value_name = "NAME", group = "which")]
    connector: Option<String>,
    /// Only of this business id
    #[arg(long = "id", value_name = "BUSINESS ID", group = "which")]
    business_id: Option<String>,
    /// Every one that waits for a version
    #[arg(long, group = "which", conflicts_with_all = ["numbers", "connector", "business_id"])]
    all: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

impl Release {
    async fn run(self, context: &Context) -> Result<Answer, CliError> {
        let change = context.change(&self.change)?;
        let Self { numbers, connector, business_id, .. } = self;
        let which = Which { numbers, connector, business_id };
        let mut connection = context.connect("deferred").await?;
        known::connector(&mut connection, which.connector.as_deref()).await?;
        if !change.dry_run {
            let what = if self.all { "every event that waits for a version" } else { "them" };
            context.confirm(&format!("Let {what} go now?"))?;
        }
        let mut tx = connection.begin().await.map_err(StoreError::from)?;
        let meant = deferred::release(&mut tx, &which, &change).await?;
        tx.commit().await.map_err(StoreError::from)?;
        if meant.asked == 0 {
            let filter = Filter {
                connector: which.connector.clone(),
                business_id: which.business_id.clone(),
                closed: true,
                limit: LOOKED_AT_MAX,
                ..Filter::default()
            };
            let rows = deferred::list(&mut connection, &filter).await?;
            return Err(CliError::Failed(why_none(&rows, &which.numbers)));
        }
        Ok(answer(&meant, change.dry_run))
    }
}

/// What goes, what goes before it, and what does not.
fn answer(meant: &Meant, dry_run: bool) -> Answer {
    let released = meant.asked.saturating_add(meant.before.len());
    let count = counted(released, "deferred event");
    let mut text = if dry_run {
        format!("would let {count} go; nothing was changed\n")
    } else {
        format!("{count} let go within a second, see `oncely explain`\n")
    };
    if !meant.before.is_empty() {
        let numbers: Vec<String> = meant.before.iter().map(ToString::to_string).collect();
        text +=
            &format!("not asked for, but before them on their entities: {}\n", numbers.join(", "));
    }
    for Held { number, behind, kind } in &meant.held {
        text += &format!(
            "{number} waits on {}\n",
            ended_by(&format!("parked record #{behind}"), *behind, kind)
        );
    }
    let held = |held: &Held| json!({ "number": held.number, "behind": held.behind });
    let json = json!({
        "released": released,
        "before": meant.before,
        "held": meant.held.iter().map(held).collect::<Vec<Value>>(),
        "dry_run": dry_run,
    });
    Answer::new(text, json)
}

/// How the wait behind a parked record ends.
fn ended_by(what: &str, number: i64, kind: &str) -> String {
    let (place, word) =
        if kind == "quarantine" { ("quarantine", "release") } else { ("dlq", "redrive") };
    format!(
        "behind {what}: `oncely {place} {word} {number} --reason …` or `oncely {place} discard \
         {number} --reason …` lets it go"
    )
}

/// Rows that are looked through for why nothing was let go.
const LOOKED_AT_MAX: i64 = 100_000;

/// Why none of the events that were asked for could be let go.
fn why_none(rows: &[DeferredRow], numbers: &[i64]) -> String {
    let asked = |row: &&DeferredRow| numbers.is_empty() || numbers.contains(&row.id);
    // One that waited for a version first keeps its time, and waits beyond it.
    let is_behind = |row: &&DeferredRow| row.behind.is_some() || row.due_at.is_none();
    let mut open = rows.iter().filter(asked).filter(|row| row.closed.is_none());
    let behind = open.find(is_behind);
    if let Some(row) = behind {
        let (id, what) = (row.id, waits_for(row));
        return match row.behind {
            Some(number) => {
                let kind = row.behind_kind.as_deref().unwrap_or_default();
                format!(
                    "deferred event {id} waits for no version but {}",
                    ended_by(&what, number, kind)
                )
            }
            None => format!("deferred event {id} waited behind {what} and goes by itself now"),
        };
    }
    let closed = rows.iter().filter(asked).find_map(|row| Some((row.id, row.closed.as_ref()?)));
    match closed.filter(|_| !numbers.is_empty()) {
        Some((id, (_, how))) => format!("deferred event {id} waits no more: {how}"),
        None => "no such event waits for a version; see `oncely deferred list`".to_owned(),
    }
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
        let List { connector, business_id, closed, limit } = match self {
            Self::List(list) => list,
            Self::Release(release) => return release.run(context).await,
        };
        let filter = Filter { connector, business_id, event: None, closed, limit };
        let mut connection = context.connect("deferred").await?;
        known::connector(&mut connection, filter.connector.as_deref()).await?;
        let rows = deferred::list(&mut connection, &filter).await?;
        let shown = if is_full(rows.len(), limit) {
            Shown::of(rows.len(), deferred::count(&mut connection, &filter).await?)
        } else {
            Shown::all(rows.len())
        };
        Ok(listed(&rows, shown))
    }
}

fn listed(rows: &[DeferredRow], shown: Shown) -> Answer {
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
    let count = shown.text("deferred event");
    let text = format!("{}{count}\n", table(&header, cells.collect()));
    let json = json!({ "deferred": rows.iter().map(row_json).collect::<Vec<Value>>() });
    Answer::new(text, shown.add_to(json))
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
        (None, Some(due)) if row.behind.is_none() => time(due),
        (None, _) => "a person has decided".to_owned(),
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
            behind_kind: None,
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
        insta::assert_snapshot!(listed(&rows, Shown::all(rows.len())).text, @r"
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
    fn what_goes_with_it_and_what_waits_on_is_told() {
        let held = Held { number: 9, behind: 17, kind: "dead_letter".to_owned() };
        let meant = Meant { asked: 1, before: vec![4, 6], held: vec![held] };
        insta::assert_snapshot!(answer(&meant, false).text, @r"
        3 deferred events let go within a second, see `oncely explain`
        not asked for, but before them on their entities: 4, 6
        9 waits on behind parked record #17: `oncely dlq redrive 17 --reason …` or `oncely dlq discard 17 --reason …` lets it go
        ");
        assert_eq!(answer(&meant, true).json["released"], 3);
    }

    #[test]
    fn what_cannot_be_let_go_is_told_with_what_ends_it() {
        let kind = |kind: &str| DeferredRow {
            cause: "parked".to_owned(),
            behind: Some(17),
            behind_kind: Some(kind.to_owned()),
            due_at: None,
            ..row()
        };
        let why = why_none(&[kind("quarantine")], &[4]);
        assert!(why.contains("parked record #17: `oncely quarantine release 17 "), "{why}");
        let why = why_none(&[kind("dead_letter")], &[]);
        assert!(why.contains("`oncely dlq redrive 17 ") && why.contains("dlq discard 17"), "{why}");
        let closed = Some((chrono::DateTime::UNIX_EPOCH, "applied".to_owned()));
        let gone = DeferredRow { closed, ..row() };
        assert_eq!(why_none(&[gone], &[4]), "deferred event 4 waits no more: applied");
        assert!(why_none(&[kind("quarantine")], &[5]).starts_with("no such event"));
        // One that waited for a version first has a time as well, and waits beyond it.
        let first =
            DeferredRow { due_at: row().due_at, cause: "gap".to_owned(), ..kind("quarantine") };
        assert_eq!(until(&first), "a person has decided");
        assert!(why_none(&[first], &[4]).contains("quarantine release 17"));
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
        verdict: 1 deferred, 1 open
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
