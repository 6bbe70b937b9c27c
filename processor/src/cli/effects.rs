//! `oncely effects`: what is owed.

use chrono::{DateTime, Utc};
use clap::Subcommand;
use oncely_core::effect::status::Status;
use oncely_core::key::Key;
use serde_json::{Value, json};

use super::answer::{
    Answer, Shown, bytes_json, bytes_text, fields, is_full, shown, table, time, time_or_none,
    whole_table,
};
use super::context::Context;
use super::exit::CliError;
use super::known::{self, Named};
use super::moment;
use super::resolve::Resolve;
use crate::store::admin::effects::{self, AttemptRow, Bytes, EffectRow, Filter};

/// See and resolve effects.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Effects {
    /// List effects, newest first
    #[command(after_help = "\
Examples:
  oncely effects list --status held --status unknown
  oncely effects list --status halted
  oncely effects list --orphaned
  oncely effects list --connector invoice-paid --id in_1009 --output json")]
    List(List),
    /// Show one effect: its attempts, its request, its result
    #[command(after_help = "\
Examples:
  oncely effects show ef_5f0c2f6a9c1d4e0b8a7d6c5b4a392817")]
    Show {
        /// Key as `list` shows it or as the provider received it
        key: String,
    },
    /// Resolve effects that are held, unknown, failing or orphaned: by key, by filter, or all
    #[command(
        override_usage = "oncely effects resolve [OPTIONS] --as <WORD> --reason <TEXT> <KEY... | FILTERS | --all>",
        after_help = "\
A person's word ends unknown. What was seen before stays in the audit row and in the attempts. \
A claim counts once its worker is dead. An orphaned effect is tried by nobody: it can be done, \
rejected or skipped.
  done       it has happened: later effects go on
  retry      it has not: it is sent again now, with the same key and the same bytes
  lookup     ask the provider now, where the file has a `lookup` for it
  rejected   it will not happen: a dead letter; effects after it are skipped
  skipped    it is not wanted: effects after it are skipped as well
Filters mean held effects only, unless --state says otherwise; with --orphaned or --never-sent they mean \
whatever is open. Each effect is resolved by itself, oldest \
first, with an audit row of its own; one that cannot be, that was tried or changed since it was listed, \
or whose lane is locked is left as it is, and the answer says why.

Examples:
  oncely effects resolve ef_5f0c2f6a9c1d4e0b8a7d6c5b4a392817 --as done --reason 'was seen'
  oncely effects resolve ef_5f0c2f6a9c1d4e0b8a7d6c5b4a392817 --as done --by ana --reason INC-7
  oncely effects resolve ef_5f0c2f6a9c1d4e0b8a7d6c5b4a392817 --as retry --reason 'INC-7' --dry-run
  oncely effects resolve --connector invoice-paid --effect receipt --sent-from 2h --as retry \\
      --reason 'the mail relay refused all of them' --dry-run
  oncely effects resolve --orphaned --never-sent --connector invoice-paid --as skipped --reason INC-7
  oncely effects resolve --all --state held --as done --reason INC-7"
    )]
    Resolve(Resolve),
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct List {
    /// Only in this state, or `halted` by refused credentials; may be given more than once
    #[arg(long, alias = "state", value_name = "STATE", value_parser = state_asked)]
    status: Vec<Asked>,
    /// Only of this connector
    #[arg(long, value_name = "NAME")]
    connector: Option<String>,
    /// Only with this effect id of the connector file
    #[arg(long, value_name = "ID")]
    effect: Option<String>,
    /// Only of this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// Only of this business id
    #[arg(long = "id", value_name = "BUSINESS ID")]
    business_id: Option<String>,
    /// Only orphaned ones: no connector file that runs has them any more
    #[arg(long)]
    orphaned: bool,
    /// Only open ones that were never sent: no attempt was ever begun, and no record of theirs lies in the outbox
    #[arg(long)]
    never_sent: bool,
    /// Only those that came to be owed then or later
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    from: Option<DateTime<Utc>>,
    /// Only those that came to be owed before
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    to: Option<DateTime<Utc>>,
    /// Only those whose last attempt was begun then or later, which is written down before it is sent
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    sent_from: Option<DateTime<Utc>>,
    /// Only those whose last attempt was begun before
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    sent_to: Option<DateTime<Utc>>,
    /// Rows at most
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=100_000))]
    limit: i64,
}

/// A state as `list` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    In(Status),
    /// Waiting or unknown, and the last answer refused credentials or configuration.
    Halted,
}

pub(super) fn state_asked(text: &str) -> Result<Asked, String> {
    if text == "halted" {
        return Ok(Asked::Halted);
    }
    let states = Status::ALL.map(Status::as_str).join(", ");
    Status::parse(text).map(Asked::In).ok_or_else(|| format!("the states are {states}, halted"))
}

pub(super) fn key(text: &str) -> Result<Key, CliError> {
    Key::parse(text).ok_or_else(|| {
        CliError::Usage(format!("{text:?} is no key: write ef_ and 32 hexadecimal digits"))
    })
}

impl Effects {
    pub(super) async fn run(self, context: &Context) -> Result<Answer, CliError> {
        match self {
            Self::List(list) => list.run(context).await,
            Self::Show { key } => show(context, &key).await,
            Self::Resolve(resolve) => resolve.run(context).await,
        }
    }
}

impl List {
    async fn run(self, context: &Context) -> Result<Answer, CliError> {
        let statuses = self.status.iter().filter_map(|asked| match asked {
            Asked::In(status) => Some(*status),
            Asked::Halted => None,
        });
        let filter = Filter {
            halted: self.status.contains(&Asked::Halted),
            statuses: statuses.collect(),
            connector: self.connector,
            effect: self.effect,
            tenant: self.tenant,
            business_id: self.business_id,
            orphaned: self.orphaned,
            never_sent: self.never_sent,
            from: self.from,
            to: self.to,
            sent_from: self.sent_from,
            sent_to: self.sent_to,
            oldest_first: false,
            limit: self.limit,
        };
        let mut connection = context.connect("effects").await?;
        known::connector(&mut connection, filter.connector.as_deref()).await?;
        let rows = effects::list(&mut connection, &filter).await?;
        let shown = if is_full(rows.len(), self.limit) {
            Shown::of(rows.len(), effects::count(&mut connection, &filter).await?)
        } else {
            Shown::all(rows.len())
        };
        let answer = listed(&rows, shown);
        if !rows.is_empty() {
            return Ok(answer);
        }
        Ok(known::hint(&mut connection, &Named::of(&filter)).await?.add_to(answer))
    }
}

fn listed(rows: &[EffectRow], shown: Shown) -> Answer {
    let header = ["key", "connector", "effect", "state", "tries", "id", "owed since", "note"];
    let cells = rows.iter().map(|row| {
        vec![
            row.key.wire(),
            row.connector.clone().unwrap_or_else(|| "(gone)".to_owned()),
            row.name.clone(),
            state(row),
            row.attempts.to_string(),
            id(&row.tenant, &row.business_id),
            time(row.created_at),
            note(row),
        ]
    });
    let mut text = table(&header, cells.collect());
    text.push_str(&format!("{}\n", shown.text("effect")));
    let json = json!({ "effects": rows.iter().map(effect_json).collect::<Vec<_>>() });
    Answer::new(text, shown.add_to(json))
}

/// The state, and what makes a waiting one wait.
fn state(row: &EffectRow) -> String {
    let status = row.status.as_str();
    let blocked = row.status == Status::Waiting && row.due_at.is_none();
    let halted = halted(row).is_some();
    let because = [
        (blocked, "blocked"),
        (halted && !blocked, "halted"),
        (row.orphaned, "orphaned"),
        (in_doubt(row), "suspect"),
    ];
    let because: Vec<&str> = because.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
    if because.is_empty() {
        status.to_owned()
    } else {
        format!("{status} ({})", because.join(", "))
    }
}

/// Whether a failover may have lost that it was sent, and nothing has been found out since.
pub(super) fn in_doubt(row: &EffectRow) -> bool {
    row.suspect && row.was_unknown && !row.status.is_final()
}

/// The note; first what halts it, or why it waits although its time has come.
fn note(row: &EffectRow) -> String {
    let note = row.note.clone().filter(|note| !note.is_empty());
    let parts = [halted(row), waits_because(row), note];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Why it waits although its time has come, or for whom.
pub(super) fn waits_because(row: &EffectRow) -> Option<String> {
    match (&row.behind, row.circuit.as_deref()) {
        (Some(held), _) => Some(format!("behind {}, which is held", held.wire())),
        (None, Some("refusal")) if halted(row).is_none() => Some(
            "its lane is halted: the provider refuses credentials or configuration, one call at a \
             time tries"
                .to_owned(),
        ),
        (None, Some("outage")) => Some(
            "its circuit is open: the provider does not answer, one call at a time tries"
                .to_owned(),
        ),
        (None, Some(_) | None) => None,
    }
}

/// What halts an effect that is tried again by itself, one call at a time.
pub(super) fn halted(row: &EffectRow) -> Option<String> {
    if !row.halted || !matches!(row.status, Status::Waiting | Status::Unknown) {
        return None;
    }
    let code = row.status_code.map(|code| format!("{code}, ")).unwrap_or_default();
    Some(format!("halted: {code}credentials or configuration refused"))
}

/// What to do about an effect that is owed and that nobody performs.
pub(super) const ORPHANED: &str = "no connector file that runs has it: bring it back, or resolve it \
                                   as done, rejected or skipped";

/// What is in doubt about an effect that was open in a failover, or is owed anew since.
pub(super) const SUSPECT: &str = "a failover of the database may have lost that it was sent";

pub(super) fn id(tenant: &str, business_id: &str) -> String {
    if tenant.is_empty() { business_id.to_owned() } else { format!("{tenant} / {business_id}") }
}

pub(super) fn effect_json(row: &EffectRow) -> Value {
    json!({
        "key": row.key.wire(),
        "event": row.event.to_string(),
        "connector": row.connector,
        "effect": row.name,
        "status": row.status.as_str(),
        "blocked": row.status == Status::Waiting && row.due_at.is_none(),
        "halted": halted(row).is_some(),
        "orphaned": row.orphaned,
        "circuit": row.circuit,
        "behind": row.behind.as_ref().map(Key::wire),
        "waits_because": waits_because(row),
        "tenant": row.tenant,
        "business_id": row.business_id,
        "version": row.version,
        "attempts": row.attempts,
        "failures": row.failures,
        "lookups": row.lookups,
        "takeovers": row.takeovers,
        "was_unknown": row.was_unknown,
        "suspect": in_doubt(row),
        "status_code": row.status_code,
        "note": row.note,
        "created_at": time(row.created_at),
        "due_at": row.due_at.map(time),
        "first_sent_at": row.first_sent_at.map(time),
        "last_sent_at": row.last_sent_at.map(time),
        "settled_at": row.settled_at.map(time),
        "after": row.after.iter().map(Key::wire).collect::<Vec<_>>(),
    })
}

async fn show(context: &Context, text: &str) -> Result<Answer, CliError> {
    let key = key(text)?;
    let mut connection = context.connect("effects").await?;
    let Some(row) = effects::of_keys(&mut connection, &[key]).await?.pop() else {
        return Err(CliError::Failed(format!("there is no effect {}", key.wire())));
    };
    let attempts = effects::attempts(&mut connection, &[key]).await?;
    let bytes = effects::bytes(&mut connection, key).await?;
    Ok(shown_whole(&row, &attempts, &bytes))
}

fn shown_whole(row: &EffectRow, attempts: &[AttemptRow], bytes: &Bytes) -> Answer {
    let after = row.after.iter().map(Key::wire).collect::<Vec<_>>().join(" ");
    let mut text = fields(&[
        ("key", row.key.wire()),
        ("connector", row.connector.clone().unwrap_or_else(|| "(gone)".to_owned())),
        ("effect", row.name.clone()),
        ("id", shown(&id(&row.tenant, &row.business_id))),
        ("state", state(row)),
        ("orphaned", if row.orphaned { ORPHANED.to_owned() } else { String::new() }),
        ("note", shown(&note(row))),
        ("attempts", row.attempts.to_string()),
        ("failures", row.failures.to_string()),
        ("look-ups", if row.lookups > 0 { row.lookups.to_string() } else { String::new() }),
        ("takeovers", row.takeovers.to_string()),
        ("was unknown", if row.was_unknown { "yes".to_owned() } else { String::new() }),
        ("suspect", if in_doubt(row) { SUSPECT.to_owned() } else { String::new() }),
        ("answer", row.status_code.map(|code| code.to_string()).unwrap_or_default()),
        ("owed since", time(row.created_at)),
        ("due", time_or_none(row.due_at)),
        ("first try", time_or_none(row.first_sent_at)),
        ("last try", time_or_none(row.last_sent_at)),
        ("settled", time_or_none(row.settled_at)),
        ("after", after),
    ]);
    if !attempts.is_empty() {
        let rows = attempts.iter().map(|attempt| {
            let code = attempt.status_code.map(|code| code.to_string());
            let seen_by = if attempt.evidence { "a worker declared dead" } else { "" };
            let note = attempt.note.clone().unwrap_or_default();
            vec![
                time(attempt.at),
                attempt.outcome.clone(),
                code.unwrap_or_default(),
                seen_by.to_owned(),
                note,
            ]
        });
        text.push('\n');
        let header = ["at", "outcome", "code", "seen by", "note"];
        text.push_str(&whole_table(&header, rows.collect()));
    }
    for (name, bytes) in [("request", &bytes.request), ("result", &bytes.result)] {
        if let Some(bytes) = bytes {
            text.push_str(&format!("\n{name}\n{}\n", bytes_text(bytes)));
        }
    }
    let mut json = effect_json(row);
    if let Some(json) = json.as_object_mut() {
        let attempts = attempts.iter().map(attempt_json).collect::<Vec<_>>();
        json.insert("attempts_on_record".to_owned(), attempts.into());
        json.insert("request".to_owned(), bytes.request.as_deref().map_or(Value::Null, bytes_json));
        json.insert("result".to_owned(), bytes.result.as_deref().map_or(Value::Null, bytes_json));
    }
    Answer::new(text, json)
}

fn attempt_json(row: &AttemptRow) -> Value {
    json!({
        "at": time(row.at),
        "fence": row.fence,
        "outcome": row.outcome,
        "status_code": row.status_code,
        "note": row.note,
        "evidence": row.evidence,
    })
}
