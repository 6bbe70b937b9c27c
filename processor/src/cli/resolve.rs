//! `oncely effects resolve`: a person's word on effects, by key, by filter, or on all.

use chrono::{DateTime, Utc};
use clap::ValueEnum;
use oncely_connectors::format;
use oncely_core::effect::circuit;
use oncely_core::effect::next::HALT_MS;
use oncely_core::effect::status::Status;
use oncely_core::key::Key;
use oncely_core::render::json::to_text;
use serde_json::{Value, json};

use super::answer::{Answer, Shown, counted, is_full, shown, table};
use super::context::{ChangeArgs, Context};
use super::effects::{Asked, id, key, state_asked};
use super::exit::{CliError, Exit, of_store};
use super::known::{self, Named};
use super::moment;
use super::print::chain;
use crate::store::admin::Change;
use crate::store::admin::effects::{self, EffectRow, Filter};
use crate::store::admin::resolve::{Resolution, Resolved, resolve};
use crate::store::{Connection, PgConnection, StoreError};

/// Effects that one command resolves at most.
const ROWS_MAX: i64 = 100_000;
/// Rows of one answer for people; machines get all.
const SHOWN_MAX: usize = 200;

#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true).multiple(true))]
pub(super) struct Resolve {
    /// Keys as `list` shows them or as the provider received them
    #[arg(value_name = "KEY", group = "which")]
    keys: Vec<String>,
    /// What they are to become
    #[arg(long = "as", value_enum, value_name = "WORD")]
    word: Word,
    /// With `--as done` and one KEY: what the provider answered, as JSON, for effects that read it
    #[arg(long, value_name = "JSON")]
    result: Option<String>,
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    change: ChangeArgs,
}

/// Which effects are meant, without naming them.
#[derive(Clone, Debug, clap::Args)]
struct Filters {
    /// Only of this connector
    #[arg(long, value_name = "NAME", group = "which", conflicts_with = "keys")]
    connector: Option<String>,
    /// Only with this effect id of the connector file
    #[arg(long, value_name = "ID", group = "which", conflicts_with = "keys")]
    effect: Option<String>,
    /// Only in this state, or `halted`; may be given more than once [default: held; any open one with
    /// --orphaned or --never-sent]
    #[arg(long, alias = "status", value_name = "STATE", value_parser = state_asked,
          group = "which", conflicts_with = "keys")]
    state: Vec<Asked>,
    /// Only of this business id
    #[arg(long = "id", value_name = "BUSINESS ID", group = "which", conflicts_with = "keys")]
    business_id: Option<String>,
    /// Only of this tenant
    #[arg(long, group = "which", conflicts_with = "keys")]
    tenant: Option<String>,
    /// Only orphaned ones: no connector file that runs has them any more
    #[arg(long, group = "which", conflicts_with = "keys")]
    orphaned: bool,
    /// Only those that were never sent: no attempt was ever begun, and no record of theirs lies in the outbox
    #[arg(long, group = "which", conflicts_with = "keys")]
    never_sent: bool,
    /// Only those that came to be owed then or later (2026-11-01T00:00Z, 2026-11-01, 2h)
    #[arg(long, value_name = "TIME", value_parser = moment::parse, group = "which",
          conflicts_with = "keys")]
    from: Option<DateTime<Utc>>,
    /// Only those that came to be owed before
    #[arg(long, value_name = "TIME", value_parser = moment::parse, group = "which",
          conflicts_with = "keys")]
    to: Option<DateTime<Utc>>,
    /// Only those whose last attempt was begun then or later: for a time in which the provider is known to
    /// have failed
    #[arg(long, value_name = "TIME", value_parser = moment::parse, group = "which",
          conflicts_with = "keys")]
    sent_from: Option<DateTime<Utc>>,
    /// Only those whose last attempt was begun before
    #[arg(long, value_name = "TIME", value_parser = moment::parse, group = "which",
          conflicts_with = "keys")]
    sent_to: Option<DateTime<Utc>>,
    /// Every one of them
    #[arg(long, group = "which", conflicts_with = "keys")]
    all: bool,
    /// Effects at most, oldest first
    #[arg(long, default_value_t = ROWS_MAX, value_parser = clap::value_parser!(i64).range(1..=ROWS_MAX))]
    limit: i64,
}

impl Filters {
    fn filter(self) -> Filter {
        let halted = self.state.contains(&Asked::Halted);
        let mut statuses: Vec<Status> = (self.state.iter())
            .filter_map(|asked| match asked {
                Asked::In(status) => Some(*status),
                Asked::Halted => None,
            })
            .collect();
        if self.state.is_empty() && (self.orphaned || self.never_sent) {
            statuses.extend(Status::ALL.into_iter().filter(|status| !status.is_final()));
        } else if self.state.is_empty() {
            statuses.push(Status::Held);
        }
        Filter {
            statuses,
            halted,
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
            oldest_first: true,
            limit: self.limit,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Word {
    /// It has happened
    Done,
    /// It has not: send it now, with the same key
    Retry,
    /// Ask the provider now, by the effect's look-up
    Lookup,
    /// It will not happen: a dead letter
    Rejected,
    /// It is not wanted
    Skipped,
}

impl Word {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Retry => "retry",
            Self::Lookup => "lookup",
            Self::Rejected => "rejected",
            Self::Skipped => "skipped",
        }
    }
}

/// Lanes that are locked by others before the command gives up; each costs a wait.
const LOCKED_MAX: usize = 3;

/// One effect that was meant, and what became of the wish.
struct Spoken {
    row: EffectRow,
    came: Came,
}

/// What became of the wish for one effect.
enum Came {
    Resolved(Resolved),
    /// Another transaction holds its lane.
    Locked,
    /// The database went away while it was asked to keep it.
    Unsure,
    /// The command had to stop before.
    NotReached,
}

impl Spoken {
    /// Why it is left as it is.
    const fn left(&self) -> Option<&'static str> {
        match self.came {
            Came::Resolved(Resolved::From { .. }) => None,
            Came::Resolved(Resolved::NotFound) => Some("it is not there any more"),
            Came::Resolved(Resolved::Refused { why, .. }) => Some(why),
            Came::Locked => Some("its lane is locked by another transaction: say it again later"),
            Came::Unsure => Some(
                "the database did not say whether it kept this: look at it before you say it again",
            ),
            Came::NotReached => Some("it was not reached"),
        }
    }
}

/// What became of all that were meant, and what ended it early.
struct Outcome {
    spoken: Vec<Spoken>,
    stopped: Option<StoreError>,
}

impl Resolve {
    pub(super) async fn run(self, context: &Context) -> Result<Answer, CliError> {
        let change = context.change(&self.change)?;
        let resolution = self.resolution()?;
        let mut connection = context.connect("effects").await?;
        known::connector(&mut connection, self.filters.connector.as_deref()).await?;
        if let [key_] = self.keys.as_slice() {
            return self.one(context, &mut connection, key(key_)?, &resolution, &change).await;
        }
        if self.result.is_some() {
            let text = "--result goes with one KEY only: each effect has an answer of its own";
            return Err(CliError::Usage(text.to_owned()));
        }
        let (rows, meant) = self.meant(&mut connection).await?;
        if !change.dry_run && !context.yes {
            // What is asked about is what would be done now.
            let dry = Change { dry_run: true, ..change.clone() };
            let would = each(&mut connection, rows.clone(), &resolution, &dry).await;
            let count = would.changed();
            if count == 0 || would.stopped.is_some() {
                return Ok(self.many(&would, meant, true));
            }
            let (what, word) = (counted(count, "effect"), self.word.as_str());
            let more = meant.map(|meant| format!(" ({} more are meant)", meant.rest()));
            context.confirm(&format!("Resolve {what}{} as {word}?", more.unwrap_or_default()))?;
        }
        let outcome = each(&mut connection, rows, &resolution, &change).await;
        let mut answer = self.many(&outcome, meant, change.dry_run);
        let changed = outcome.spoken.iter().filter(|one| one.left().is_none());
        let mut now: Vec<EffectRow> = changed.map(|one| one.row.clone()).collect();
        if self.word == Word::Retry && !change.dry_run && outcome.stopped.is_none() {
            let keys: Vec<Key> = now.iter().map(|row| row.key).collect();
            now = effects::of_keys(&mut connection, &keys).await?;
        }
        self.tell_when(&mut answer, &now);
        Ok(answer)
    }

    /// The effects that are meant; and where `--limit` leaves some of them out, how many there are.
    async fn meant(
        &self,
        connection: &mut PgConnection,
    ) -> Result<(Vec<EffectRow>, Option<Shown>), CliError> {
        if !self.keys.is_empty() {
            let keys = self.keys.iter().map(|text| key(text)).collect::<Result<Vec<_>, _>>()?;
            return Ok((named(connection, &keys).await?, None));
        }
        let filter = self.filters.clone().filter();
        let rows = effects::list(connection, &filter).await?;
        if rows.is_empty() {
            let hint = known::hint(connection, &Named::of(&filter)).await?;
            return Err(CliError::Failed(hint.behind("no effect is meant by this")));
        }
        if !is_full(rows.len(), filter.limit) {
            return Ok((rows, None));
        }
        let meant = Shown::of(rows.len(), effects::count(connection, &filter).await?);
        Ok((rows, meant.is_cut().then_some(meant)))
    }

    async fn one(
        &self,
        context: &Context,
        connection: &mut PgConnection,
        key: Key,
        resolution: &Resolution,
        change: &Change,
    ) -> Result<Answer, CliError> {
        let Some(seen) = effects::of_keys(connection, &[key]).await?.pop() else {
            return self.answer(key, &Resolved::NotFound);
        };
        if !change.dry_run {
            let (word, was) = (self.word.as_str(), seen.status.as_str());
            context.confirm(&format!("Resolve {}, which is {was}, as {word}?", key.wire()))?;
        }
        let mut tx = connection.begin().await.map_err(StoreError::from)?;
        let resolved = resolve(&mut tx, &seen, resolution, change).await?;
        tx.commit().await.map_err(StoreError::from)?;
        let mut answer = self.answer(key, &resolved)?;
        if let Resolved::From { .. } = resolved {
            let now = if change.dry_run {
                vec![seen]
            } else {
                effects::of_keys(connection, &[key]).await?
            };
            self.tell_when(&mut answer, &now);
        }
        Ok(answer)
    }

    /// Adds when those go that are to be sent now and whose lane lets few calls through.
    fn tell_when(&self, answer: &mut Answer, rows: &[EffectRow]) {
        let Some(when) = (self.word == Word::Retry).then(|| lane_tries(rows)).flatten() else {
            return;
        };
        answer.text = format!("{}\n{when}\n", answer.text.trim_end());
        if let Some(members) = answer.json.as_object_mut() {
            members.insert("lane".to_owned(), when.into());
        }
    }

    /// `meant`: how many there are, where the limit left some out.
    fn many(&self, outcome: &Outcome, meant: Option<Shown>, dry_run: bool) -> Answer {
        let spoken = &outcome.spoken;
        let header = ["key", "connector", "effect", "id", "was", "left as it is"];
        let cells = spoken.iter().take(SHOWN_MAX).map(|one| {
            vec![
                one.row.key.wire(),
                one.row.connector.clone().unwrap_or_else(|| "(gone)".to_owned()),
                one.row.name.clone(),
                shown(&id(&one.row.tenant, &one.row.business_id)),
                one.row.status.as_str().to_owned(),
                one.left().unwrap_or_default().to_owned(),
            ]
        });
        let mut text = table(&header, cells.collect());
        let more = spoken.len().saturating_sub(SHOWN_MAX);
        if more > 0 {
            text.push_str(&format!("… and {more} more\n"));
        }
        let changed = outcome.changed();
        let left = spoken.len().saturating_sub(changed);
        let rest = if left > 0 { format!(", {left} left as they are") } else { String::new() };
        let (word, count) = (self.word.as_str(), counted(changed, "effect"));
        text.push_str(&if dry_run {
            format!("would resolve {count} as {word}{rest}; nothing was changed\n")
        } else {
            format!("resolved {count} as {word}{rest}\n")
        });
        if let Some(meant) = meant {
            text.push_str(&format!(
                "{} more are meant, and were not looked at (--limit)\n",
                meant.rest()
            ));
        }
        let stopped = outcome.stopped.as_ref().map(|error| chain(error));
        if let Some(why) = &stopped {
            text.push_str(&format!("stopped before the end: {why}\n"));
        }
        let rows: Vec<Value> = spoken
            .iter()
            .map(|one| {
                json!({
                    "key": one.row.key.wire(),
                    "connector": one.row.connector,
                    "effect": one.row.name,
                    "tenant": one.row.tenant,
                    "business_id": one.row.business_id,
                    "was": one.row.status.as_str(),
                    "left": one.left(),
                })
            })
            .collect();
        let json = json!({
            "rows": rows,
            "more": meant.map_or(0, Shown::rest_at_least),
            "changed": changed,
            "resolved_as": word,
            "dry_run": dry_run,
            "stopped": stopped,
        });
        let exit = match &outcome.stopped {
            Some(error) => of_store(error),
            None if changed == 0 => Exit::Failed,
            None => Exit::Ok,
        };
        Answer { exit, ..Answer::new(text, json) }
    }

    fn resolution(&self) -> Result<Resolution, CliError> {
        let result = match (&self.result, self.word) {
            (None, _) => None,
            (Some(text), Word::Done) => {
                let value = format::json::parse(text.as_bytes())
                    .map_err(|error| CliError::Usage(format!("--result is refused: {error}")))?;
                Some(to_text(&value).into_bytes())
            }
            (Some(_), Word::Retry | Word::Lookup | Word::Rejected | Word::Skipped) => {
                return Err(CliError::Usage("--result goes with --as done only".to_owned()));
            }
        };
        Ok(match self.word {
            Word::Done => Resolution::Done { result },
            Word::Retry => Resolution::Retry,
            Word::Lookup => Resolution::LookUp,
            Word::Rejected => Resolution::Rejected,
            Word::Skipped => Resolution::Skipped,
        })
    }

    fn answer(&self, key: Key, resolved: &Resolved) -> Result<Answer, CliError> {
        let (word, key, dry_run) = (self.word.as_str(), key.wire(), self.change.dry_run);
        match resolved {
            Resolved::NotFound => Err(CliError::Failed(format!("there is no effect {key}"))),
            Resolved::From { status, of_the_dead } => {
                let was = status.as_str();
                let claim = if *of_the_dead { " by a worker that is dead" } else { "" };
                let text = if dry_run {
                    format!(
                        "would resolve {key} as {word}; it is {was}{claim}, and nothing was changed"
                    )
                } else {
                    format!("resolved {key} as {word}; it was {was}{claim}")
                };
                let json = json!({ "key": key, "was": was, "of_the_dead": of_the_dead, "resolved_as": word, "dry_run": dry_run });
                Ok(Answer::new(text, json))
            }
            Resolved::Refused { status, why } => {
                let was = status.as_str();
                let text = format!("{key} is {was} and stays so: {why}");
                let json = json!({ "key": key, "status": was, "refused": why });
                Ok(Answer { exit: Exit::Failed, ..Answer::new(text, json) })
            }
        }
    }
}

/// When effects go whose time has come, where their lanes let one call at a time through.
fn lane_tries(rows: &[EffectRow]) -> Option<String> {
    let (refused, away): (Vec<_>, Vec<_>) = (rows.iter())
        .filter(|row| row.halted || row.circuit.is_some())
        .partition(|row| row.circuit.as_deref() != Some("outage"));
    let line = |rows: &[&EffectRow], why: &str, pause_ms: u64| {
        let mut names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let (names, pause_s) = (names.join(", "), pause_ms.div_ceil(1_000));
        format!(
            "the lane of {names} {why}: one call at a time tries, {pause_s} s after the last one at \
             most, oldest first; the others go once one has got through"
        )
    };
    let lines = [
        (refused, "is halted, since credentials or configuration were refused", HALT_MS),
        (away, "waits, since the provider does not answer", circuit::PAUSE_MS_MAX),
    ];
    let lines = lines.iter().filter(|(rows, ..)| !rows.is_empty());
    let lines: Vec<String> = lines.map(|(rows, why, ms)| line(rows, why, *ms)).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// The effects of these keys; one that is not there is an error, since it may be a slip.
async fn named(connection: &mut PgConnection, keys: &[Key]) -> Result<Vec<EffectRow>, CliError> {
    let rows = effects::of_keys(connection, keys).await?;
    let missing = keys.iter().find(|key| !rows.iter().any(|row| row.key == **key));
    match missing {
        Some(key) => Err(CliError::Failed(format!("there is no effect {}", key.wire()))),
        None => Ok(rows),
    }
}

impl Outcome {
    fn changed(&self) -> usize {
        self.spoken.iter().filter(|one| one.left().is_none()).count()
    }
}

/// Each in a transaction of its own, so that no worker waits for a person's many. A lane that is locked is left;
/// any other error ends it, and what was done until then is told.
async fn each(
    connection: &mut PgConnection,
    rows: Vec<EffectRow>,
    resolution: &Resolution,
    change: &Change,
) -> Outcome {
    let mut spoken = Vec::with_capacity(rows.len());
    let (mut stopped, mut locked) = (None, 0_usize);
    for row in rows {
        let (came, error) = match &stopped {
            Some(_) => (Came::NotReached, None),
            None => match alone(connection, &row, resolution, change).await {
                Err(error) if error.is_locked() && locked < LOCKED_MAX => {
                    locked = locked.saturating_add(1);
                    (Came::Locked, None)
                }
                Err(error) => (Came::NotReached, Some(error)),
                Ok(ended) => ended,
            },
        };
        stopped = stopped.or(error);
        spoken.push(Spoken { row, came });
    }
    Outcome { spoken, stopped }
}

/// What became of one, and what went wrong where that is not known.
async fn alone(
    connection: &mut PgConnection,
    seen: &EffectRow,
    resolution: &Resolution,
    change: &Change,
) -> Result<(Came, Option<StoreError>), StoreError> {
    let mut tx = connection.begin().await?;
    let resolved = resolve(&mut tx, seen, resolution, change).await?;
    let changes = matches!(resolved, Resolved::From { .. }) && !change.dry_run;
    match tx.commit().await {
        Err(error) if changes => Ok((Came::Unsure, Some(error.into()))),
        ended => ended.map(|()| (Came::Resolved(resolved), None)).map_err(StoreError::from),
    }
}
