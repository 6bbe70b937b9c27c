//! The commands that people type.
//!
//! One file a command. A command gives an [`answer::Answer`] (text and JSON) or an
//! [`exit::CliError`]; only `print` writes to the terminal.

mod answer;
mod context;
mod effects;
mod exit;
mod explain;
mod migrate;
mod parked;
mod print;
mod progress;
mod timeline;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::answer::Answer;
use self::context::{Context, Global};
use self::exit::{CliError, Exit};
use crate::config::Environment;
use crate::store::admin::parked::Place;

const EXIT_CODES: &str = "\
Exit codes:
  0   done
  1   a check failed, or what was asked for is not there
  2   wrong usage
  69  the database or the brokers are away
  78  settings or a connector file are wrong";

/// Consume Kafka so that each business event has its effect once
#[derive(Debug, Parser)]
#[command(name = "oncely", version, max_term_width = 100, after_help = EXIT_CODES)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Bring the schema in the database up to date
    #[command(subcommand)]
    Migrate(migrate::Migrate),
    /// Tell the whole life of one business event
    #[command(after_help = "\
Examples:
  oncely explain in_1009:invoice.paid --tenant acct_7
  oncely explain in_1009 --connector invoice-paid --output json")]
    Explain(explain::Explain),
    /// See effects, and resolve those that need a person
    #[command(subcommand)]
    Effects(effects::Effects),
    /// See dead letters: what could not be read, and effects that were rejected
    #[command(subcommand)]
    Dlq(parked::Parked),
    /// See the quarantine: conflicts and invalid transitions
    #[command(subcommand)]
    Quarantine(parked::Parked),
    /// See positions, and accept a topic that changed
    #[command(subcommand)]
    Progress(progress::Progress),
}

/// Runs one command and prints what it answers.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        // Help and version come this way as well, with a code of their own.
        Err(error) => {
            print::usage(&error);
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Ok.into() };
        }
    };
    let context = match cli.global.context(Environment::of_process()) {
        Ok(context) => context,
        Err(error) => return failed(&error),
    };
    let output = context.output;
    match run(cli.command, &context) {
        Ok(answer) => {
            print::answer(output, &answer);
            answer.exit.into()
        }
        Err(error) => failed(&error),
    }
}

fn failed(error: &CliError) -> ExitCode {
    print::error(error);
    error.exit().into()
}

fn run(command: Command, context: &Context) -> Result<Answer, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| CliError::Start { source })?;
    runtime.block_on(async {
        match command {
            Command::Migrate(migrate) => migrate.run(context).await,
            Command::Explain(explain) => explain.run(context).await,
            Command::Effects(effects) => effects.run(context).await,
            Command::Dlq(dlq) => dlq.run(context, Place::DeadLetters).await,
            Command::Quarantine(quarantine) => quarantine.run(context, Place::Quarantine).await,
            Command::Progress(progress) => progress.run(context).await,
        }
    })
}

#[cfg(test)]
mod database_tests;
#[cfg(test)]
mod tests;
