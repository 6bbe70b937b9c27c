//! `oncely migrate`: the schema.

use clap::Subcommand;
use serde_json::json;

use super::answer::{Answer, counted, table};
use super::context::Context;
use super::exit::{CliError, Exit};
use crate::store::migrate::{self, Step};

/// Bring the schema `oncely` up to date.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Migrate {
    /// Apply what is missing; safe to run twice, and from several places at once
    #[command(after_help = "\
The role needs the right to create the schema `oncely` in the database.

Examples:
  oncely migrate up --database postgres://oncely@localhost/oncely")]
    Up,
    /// Show what is applied; exit code 1 when something is missing
    #[command(after_help = "\
Examples:
  oncely migrate status --output json")]
    Status,
}

impl Migrate {
    pub(super) async fn run(self, context: &Context) -> Result<Answer, CliError> {
        let mut connection = context.connect("migrate").await?;
        let failed = |source| CliError::Migrate { source };
        let before = migrate::status(&mut connection).await.map_err(failed)?;
        match self {
            Self::Status => Ok(status(&before)),
            Self::Up => {
                migrate::up(&mut connection).await.map_err(failed)?;
                Ok(up(&before))
            }
        }
    }
}

fn status(steps: &[Step]) -> Answer {
    let missing = steps.iter().filter(|step| !step.applied).count();
    let rows = steps.iter().map(|step| {
        let state = if step.applied { "applied" } else { "missing" };
        vec![step.version.to_string(), step.name.clone(), state.to_owned()]
    });
    let mut text = table(&["version", "name", "state"], rows.collect());
    if missing > 0 {
        text.push_str(&format!("{} missing: run oncely migrate up\n", counted(missing, "step")));
    }
    let rows = steps
        .iter()
        .map(|step| json!({ "version": step.version, "name": step.name, "applied": step.applied }));
    let json = json!({ "steps": rows.collect::<Vec<_>>(), "missing": missing });
    let exit = if missing == 0 { Exit::Ok } else { Exit::Failed };
    Answer { exit, ..Answer::new(text, json) }
}

fn up(before: &[Step]) -> Answer {
    let missing: Vec<_> = before.iter().filter(|step| !step.applied).collect();
    let mut text: String =
        missing.iter().map(|step| format!("applied {} {}\n", step.version, step.name)).collect();
    if missing.is_empty() {
        text.push_str("up to date\n");
    }
    let applied: Vec<_> = missing.iter().map(|step| step.version).collect();
    Answer::new(text, json!({ "applied": applied }))
}
