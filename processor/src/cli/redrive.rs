//! What people do with parked rows: `dlq redrive` and `discard`, `quarantine release` and `discard`.

use clap::Subcommand;
use serde_json::{Value, json};

use super::answer::{Answer, counted, table};
use super::context::{ChangeArgs, Context};
use super::effects::id;
use super::exit::CliError;
use super::known;
use super::parked::{self, List};
use crate::store::admin::parked::Place;
use crate::store::admin::redrive::{self, Filter, Meant, Wish};
use crate::store::{Connection, StoreError};

/// See dead letters, and send them on.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Dlq {
    /// List dead letters, newest first
    #[command(after_help = "\
Examples:
  oncely dlq list --connector invoice-paid --cause syntax
  oncely dlq list --closed --id in_1009:invoice.paid --output json")]
    List(List),
    /// Show one: its bytes, its headers, where it was read
    #[command(after_help = "\
Examples:
  oncely dlq show 17
  oncely dlq show 17 --output json")]
    Show {
        /// Number as `list` shows it
        number: i64,
    },
    /// Decide records, or try rejected effects, once more
    #[command(
        override_usage = "oncely dlq redrive [OPTIONS] --reason <TEXT> <NUMBER... | FILTERS | --all>",
        after_help = "\
Records are decided again by the running workers of their connector, by its file as it is now, \
with their own business ids. One whose entity has moved on meanwhile is stale. A rejected effect \
is tried again under its own key, with the same bytes, and what was skipped because of it waits \
for it again, its compensation as well. What is suspect may have been done already: as its rule \
for unknown outcomes says, it is repeated by its key, asked for, or held.

Examples:
  oncely dlq redrive 17 18 --reason 'the schema is right now' --dry-run
  oncely dlq redrive --connector invoice-paid --cause syntax --since 2h --reason INC-7
  oncely dlq redrive --effect settle --cause effect_rejected --reason 'limits were raised'"
    )]
    Redrive(Again),
    /// Close them: nothing will follow from them
    #[command(
        override_usage = "oncely dlq discard [OPTIONS] --reason <TEXT> <NUMBER... | FILTERS | --all>",
        after_help = "\
Examples:
  oncely dlq discard 17 --reason 'a test record'
  oncely dlq discard --connector invoice-paid --cause syntax --reason INC-7 --dry-run"
    )]
    Discard(Which),
}

/// See the quarantine, and give a verdict.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Quarantine {
    /// List what is in quarantine, newest first
    #[command(after_help = "\
A conflict has the business id of an event that is on record, and another content. The other \
causes say what the state of its entity did not allow.

Examples:
  oncely quarantine list --connector invoice-paid --cause conflict
  oncely quarantine list --id in_1009:invoice.paid --output json")]
    List(List),
    /// Show one; of a conflict both contents and both fingerprints
    #[command(after_help = "\
Of a conflict, what is known under its id stands beside it, line by line, as long as its bytes \
are kept; afterwards the place is named where it was read.

Examples:
  oncely quarantine show 4
  oncely quarantine show 4 --output json")]
    Show {
        /// Number as `list` shows it
        number: i64,
    },
    /// Run them: a person has looked at both contents
    #[command(
        override_usage = "oncely quarantine release [OPTIONS] --reason <TEXT> <NUMBER... | FILTERS | --all>",
        after_help = "\
A conflict is run beside what is known under its id: its effects are owed under their own keys, \
and one that was done under such a key with another request is not done once more. It takes the \
place of the event that set its very version; where its entity has moved on meanwhile it is \
stale. Other records are decided again.

Examples:
  oncely quarantine show 4              both contents side by side
  oncely quarantine release 4 --reason 'the second amount is right' --dry-run
  oncely quarantine release 4 --reason 'the second amount is right'"
    )]
    Release(Again),
    /// Close them: what is known stays as it is
    #[command(
        override_usage = "oncely quarantine discard [OPTIONS] --reason <TEXT> <NUMBER... | FILTERS | --all>",
        after_help = "\
Examples:
  oncely quarantine discard 4 --reason 'the first amount was right'"
    )]
    Discard(Which),
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Again {
    #[command(flatten)]
    which: Which,
    /// Also those that were redriven as often as `failure.max_redrives` allows
    #[arg(long)]
    over_limit: bool,
}

impl Dlq {
    pub(super) async fn run(self, context: &Context) -> Result<Answer, CliError> {
        let place = Place::DeadLetters;
        match self {
            Self::List(list) => list.run(context, place).await,
            Self::Show { number } => parked::show(context, place, number).await,
            Self::Redrive(Again { which, over_limit }) => {
                which.run(context, place, Wish::Redrive { over_limit }).await
            }
            Self::Discard(which) => which.run(context, place, Wish::Discard).await,
        }
    }
}

impl Quarantine {
    pub(super) async fn run(self, context: &Context) -> Result<Answer, CliError> {
        let place = Place::Quarantine;
        match self {
            Self::List(list) => list.run(context, place).await,
            Self::Show { number } => parked::show(context, place, number).await,
            Self::Release(Again { which, over_limit }) => {
                which.run(context, place, Wish::Release { over_limit }).await
            }
            Self::Discard(which) => which.run(context, place, Wish::Discard).await,
        }
    }
}

/// Rows that one command changes at most, in one transaction.
const ROWS_MAX: i64 = 100_000;

/// Which rows are meant: by number, by filter, or all.
#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true).multiple(true))]
pub(super) struct Which {
    /// Numbers as `list` shows them
    #[arg(value_name = "NUMBER", group = "which")]
    numbers: Vec<i64>,
    /// Only of this connector
    #[arg(long, value_name = "NAME", group = "which")]
    connector: Option<String>,
    /// Only those that were parked for this cause, as `list` shows it; --reason is yours, for the audit row
    #[arg(long, value_name = "CAUSE", group = "which", value_parser = super::parked::cause)]
    cause: Option<String>,
    /// Only of this business id
    #[arg(long = "id", value_name = "BUSINESS ID", group = "which")]
    business_id: Option<String>,
    /// Only rejected effects with this id of the connector file
    #[arg(long, value_name = "ID", group = "which")]
    effect: Option<String>,
    /// Only those that were parked no longer ago (30m, 2h, 1d)
    #[arg(long, value_name = "TIME", group = "which", value_parser = since)]
    since: Option<u64>,
    /// Every one of them
    #[arg(long, group = "which", conflicts_with_all = ["numbers"])]
    all: bool,
    /// Rows at most, oldest first
    #[arg(long, default_value_t = ROWS_MAX, value_parser = clap::value_parser!(i64).range(1..=ROWS_MAX))]
    limit: i64,
    #[command(flatten)]
    change: ChangeArgs,
}

/// A time span in milliseconds.
fn since(text: &str) -> Result<u64, String> {
    let wrong = || "write a number and a unit: 30m, 2h, 1d".to_owned();
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let unit_ms: u64 = match unit {
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(unit_ms).filter(|ms| *ms > 0).ok_or_else(wrong)
}

/// What the words of an answer are.
struct Words {
    /// `redrive`.
    verb: &'static str,
    done: &'static str,
    then: &'static str,
}

const fn words(wish: Wish) -> Words {
    match wish {
        Wish::Redrive { .. } => Words {
            verb: "redrive",
            done: "redriven",
            then: "; records are decided again within a second, see `oncely explain`",
        },
        Wish::Release { .. } => Words {
            verb: "release",
            done: "released",
            then: "; they are decided within a second, see `oncely explain`",
        },
        Wish::Discard => Words { verb: "discard", done: "discarded", then: "" },
    }
}

impl Which {
    pub(super) async fn run(
        self,
        context: &Context,
        place: Place,
        wish: Wish,
    ) -> Result<Answer, CliError> {
        let change = context.change(&self.change)?;
        let filter = Filter {
            numbers: self.numbers,
            connector: self.connector,
            cause: self.cause,
            business_id: self.business_id,
            effect: self.effect,
            since_ms: self.since,
            limit: self.limit,
        };
        let mut connection = context.connect("redrive").await?;
        known::connector(&mut connection, filter.connector.as_deref()).await?;
        if !change.dry_run {
            // What is asked about is what would be done now.
            let dry = crate::store::admin::Change { dry_run: true, ..change.clone() };
            let mut tx = connection.begin().await.map_err(StoreError::from)?;
            let meant = redrive::change(&mut tx, place, &filter, wish, &dry).await?;
            tx.rollback().await.map_err(StoreError::from)?;
            all_found(place, &filter, &meant)?;
            let count = meant.iter().filter(|one| one.left.is_none()).count();
            if count == 0 {
                return nothing(place, &meant);
            }
            let what = counted(count, super::parked::word(place));
            let suspects = meant.iter().filter(|one| one.left.is_none() && one.suspect).count();
            let doubt = doubt(wish, suspects);
            context.confirm(&format!("{doubt}{} {what}?", capital(words(wish).verb)))?;
        }
        let mut tx = connection.begin().await.map_err(StoreError::from)?;
        let meant = redrive::change(&mut tx, place, &filter, wish, &change).await?;
        if change.dry_run {
            all_found(place, &filter, &meant)?;
        }
        tx.commit().await.map_err(StoreError::from)?;
        if meant.iter().all(|one| one.left.is_some()) {
            return nothing(place, &meant);
        }
        Ok(answer(place, wish, &meant, change.dry_run))
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// A number that is named and not found is a slip: nothing is done to the others either.
fn all_found(place: Place, filter: &Filter, meant: &[Meant]) -> Result<(), CliError> {
    let (word, list) = match place {
        Place::DeadLetters => ("dead letter", "oncely dlq list"),
        Place::Quarantine => ("record in quarantine", "oncely quarantine list"),
    };
    let is_meant = |number: &i64| meant.iter().any(|one| one.number == *number);
    let missing: Vec<String> =
        filter.numbers.iter().filter(|number| !is_meant(number)).map(ToString::to_string).collect();
    if missing.is_empty() || meant.is_empty() {
        return Ok(());
    }
    let missing = missing.join(", ");
    Err(CliError::Failed(format!(
        "no open {word} that is meant has number {missing}; nothing was changed. See `{list}`, and \
         `{list} --closed` for those that are over"
    )))
}

/// Nothing could be done: each row says why.
fn nothing(place: Place, meant: &[Meant]) -> Result<Answer, CliError> {
    if meant.is_empty() {
        let word = super::parked::word(place);
        return Err(CliError::Failed(format!("no open {word} is meant by this")));
    }
    let left = meant.iter().filter_map(|one| one.left.map(|why| (one.number, why)));
    let lines: Vec<String> = left.map(|(number, why)| format!("#{number}: {why}")).collect();
    Err(CliError::Failed(format!("nothing was changed\n  {}", lines.join("\n  "))))
}

fn answer(place: Place, wish: Wish, meant: &[Meant], dry_run: bool) -> Answer {
    let header =
        ["number", "connector", "cause", "id", "from", "redriven", "in doubt", "left as it is"];
    let cells = meant.iter().map(|one| {
        vec![
            one.number.to_string(),
            one.connector.clone(),
            one.reason.clone(),
            one.business_id.as_deref().map(|known| id(&one.tenant, known)).unwrap_or_default(),
            from(one),
            one.redrives.to_string(),
            if one.suspect { "suspect".to_owned() } else { String::new() },
            one.left.unwrap_or_default().to_owned(),
        ]
    });
    let changed = meant.iter().filter(|one| one.left.is_none()).count();
    let left = meant.len().saturating_sub(changed);
    let Words { verb, done, then } = words(wish);
    let count = counted(changed, super::parked::word(place));
    let rest = if left > 0 { format!(", {left} left as they are") } else { String::new() };
    let end = if dry_run {
        format!("would {verb} {count}{rest}; nothing was changed")
    } else {
        format!("{done}: {count}{rest}{then}")
    };
    let suspects = meant.iter().filter(|one| one.left.is_none() && one.suspect).count();
    let doubt = doubt(wish, suspects);
    let text = format!("{}{end}\n{doubt}", table(&header, cells.collect()));
    let rows: Vec<Value> = meant.iter().map(row_json).collect();
    Answer::new(text, json!({ "rows": rows, "changed": changed, "dry_run": dry_run }))
}

/// What is to be known of those that may have been done already.
fn doubt(wish: Wish, suspects: usize) -> String {
    let then = match wish {
        _ if suspects == 0 => return String::new(),
        Wish::Redrive { .. } | Wish::Release { .. } => {
            "what has neither a key nor a look-up is held, and a person says whether it was"
        }
        Wish::Discard => "look at the provider for what they owe before nothing follows from them",
    };
    format!("{suspects} of them suspect: they may have been done already; {then}\n")
}

fn from(one: &Meant) -> String {
    let effect = one.effect.as_ref().map(|(key, name)| format!("{name} {}", key.wire()));
    effect.or_else(|| one.origin.as_ref().map(ToString::to_string)).unwrap_or_default()
}

fn row_json(one: &Meant) -> Value {
    json!({
        "number": one.number,
        "connector": one.connector,
        "cause": one.reason,
        "tenant": one.tenant,
        "business_id": one.business_id,
        "detail": one.detail,
        "from": one.origin.as_ref().map(ToString::to_string),
        "effect": one.effect.as_ref().map(|(_, name)| name),
        "effect_key": one.effect.as_ref().map(|(key, _)| key.wire()),
        "redrives": one.redrives,
        "suspect": one.suspect,
        "left": one.left,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(since("2h"), Ok(7_200_000));
        assert_eq!(since("30m"), Ok(1_800_000));
        for wrong in ["", "2", "h", "0s", "-1h", "2x", "é"] {
            assert!(since(wrong).is_err(), "{wrong}");
        }
    }
}
