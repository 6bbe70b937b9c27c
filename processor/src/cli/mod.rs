//! The commands that people type.
//!
//! One file a command. A command gives an [`answer::Answer`] (text and JSON) or an
//! [`exit::CliError`]; only `print` writes to the terminal.

mod ahead;
mod answer;
mod bar;
mod beside;
mod codes;
mod context;
mod deferred;
mod demo;
mod dry_run;
mod effects;
mod exit;
mod explain;
mod failover;
mod help;
mod known;
mod load;
mod migrate;
mod moment;
mod outbox;
mod parked;
mod print;
mod progress;
mod prove;
mod record;
mod redrive;
mod replay;
mod resolve;
mod rewind;
mod run;
mod schema;
mod test;
mod timeline;
mod validate;
mod webhooks;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::answer::{Answer, Output};
use self::context::{Context, Global};
use self::exit::{CliError, Exit};
use crate::config::{self, Environment};

const AFTER_HELP: &str = "\
Examples:
  oncely demo                           see it work; needs no Kafka and no PostgreSQL
  oncely validate connectors/examples   check connector files: every *.yaml in there
  oncely test connectors/examples       run the tests that they hold; nothing is sent
  oncely run mine --migrate             run them; settings: oncely help settings
  oncely explain in_1009:invoice.paid   what became of one business event

Exit codes:
  0   done
  1   a check failed, or what was asked for is not there
  2   wrong usage
  69  the database or the brokers are away: the same may succeed later
  78  to be put right by a person: a setting or a connector file, or the database, role, schema,
      right or port that a setting names
With --output json an error is one line on standard error: {\"error\": {\"message\", \"causes\", \"exit\", \
\"exit_code\"}}, with `errors` where settings and `findings` where connector files are wrong.";

/// Consume Kafka so that each business event has its effect once
#[derive(Debug, Parser)]
#[command(
    name = "oncely",
    version,
    max_term_width = 100,
    after_help = AFTER_HELP,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check connector files; every finding at once, with its place and what to do
    #[command(after_help = "\
Examples:
  oncely validate connectors/examples
  oncely validate mine --live           also schema, topics and secrets, where it will run
  oncely validate mine --deny-warnings --output json
  oncely help E041                      what a code means")]
    Validate(validate::Validate),
    /// Play sample events: decision, transition, rendered requests; nothing is sent
    #[command(after_help = "\
Without --event the `tests:` of the files are run.

Examples:
  oncely test connectors/examples
  oncely test connectors/examples/invoice-paid.yaml --event connectors/examples/samples/paid.json
  oncely test mine/signup.yaml --event mine/ada.json --event mine/ada.json --output json")]
    Test(test::Test),
    /// Let a process die at every crash point, and see what becomes of each effect
    #[command(after_help = "\
The connector's own rules and sample events, a private database and broker, and a provider that \
this program plays; nobody else is called, and no secret is needed. Exit code 1 when an effect \
took place twice, was lost, or was counted as done without having taken place.

Examples:
  oncely prove connectors/examples/invoice-paid.yaml
  oncely prove mine/signup.yaml --event mine/ada.json
  oncely prove mine/signup.yaml --point after-request --output json")]
    Prove(prove::Prove),
    /// Run connectors until told to stop
    #[command(after_help = "\
SIGTERM stops cleanly: what is in flight is settled first. Settings: oncely help settings

Examples:
  oncely run connectors/examples --migrate
  oncely run mine/signup.yaml --config staging.env --http-listen 127.0.0.1:9091")]
    Run(run::Run),
    /// See it work: events, repeats, faults and kills, and a table of what took place
    #[command(after_help = "\
Needs no services: broker, database and provider are its own, and gone at the end. Exit code 1 \
when any number is wrong.

Examples:
  oncely demo
  oncely demo --output json
  oncely demo --keep                    look around with the other commands afterwards
  oncely demo --kafka localhost:9092 --database postgres://postgres@localhost/test")]
    Demo(demo::Demo),
    /// Bring the schema in the database up to date
    #[command(
        subcommand,
        after_help = "\
Examples:
  oncely migrate status
  oncely migrate up"
    )]
    Migrate(migrate::Migrate),
    /// Tell the whole life of one business event
    #[command(after_help = "\
Examples:
  oncely explain in_1009:invoice.paid --tenant acct_7
  oncely explain in_1009 --connector invoice-paid --output json")]
    Explain(explain::Explain),
    /// See effects, and resolve those that need a person
    #[command(
        subcommand,
        after_help = "\
Examples:
  oncely effects list --status held
  oncely effects show ef_5f0c2f6a9c1d4e0b8a7d6c5b4a392817
  oncely effects resolve ef_5f0c2f6a9c1d4e0b8a7d6c5b4a392817 --as done --reason 'seen there'"
    )]
    Effects(effects::Effects),
    /// See dead letters (what could not be read, rejected effects), redrive or discard them
    #[command(
        subcommand,
        after_help = "\
Examples:
  oncely dlq list --connector invoice-paid
  oncely dlq show 17
  oncely dlq redrive --connector invoice-paid --cause syntax --reason INC-7 --dry-run"
    )]
    Dlq(redrive::Dlq),
    /// See the quarantine (conflicts, invalid transitions), release or discard what is in it
    #[command(
        subcommand,
        after_help = "\
Examples:
  oncely quarantine list --connector invoice-paid
  oncely quarantine show 4
  oncely quarantine release 4 --reason 'the second amount is right'"
    )]
    Quarantine(redrive::Quarantine),
    /// See events that wait for a missing version, or behind a parked record, and let them go
    #[command(
        subcommand,
        after_help = "\
Examples:
  oncely deferred list --connector invoice-paid
  oncely deferred list --closed --id in_1009:invoice.paid
  oncely deferred release 4 --reason 'version 6 was never written'"
    )]
    Deferred(deferred::Deferred),
    /// See records that are published, and send refused ones again
    #[command(
        subcommand,
        after_help = "\
Examples:
  oncely outbox list --status held
  oncely outbox retry --topic orders.shipped.v1 --reason 'the topic is there now'"
    )]
    Outbox(outbox::Outbox),
    /// See positions, and accept a topic that changed
    #[command(
        subcommand,
        after_help = "\
Examples:
  oncely progress list --stopped
  oncely progress accept --group g --topic invoices --all --at earliest --reason INC-7"
    )]
    Progress(progress::Progress),
    /// Replay events that are on record, by id or by time
    #[command(
        override_usage = "oncely replay [OPTIONS] --reason <TEXT> <CONNECTOR> <FILTERS | --all>",
        after_help = "\
An event keeps its id: what it owes and is on record is never run by a replay. `--effects` says
more:
  skip         the default: nothing runs
  missing      what the file owes as it is now, and is not on record: an effect that was added later
  rerun=ID     that effect once more, as a new generation under a key of its own; once for each
               --request, and only after the original has come to its end
What is added keeps the order of its entity: later events wait for it. It has an audit row for \
each event. Without --yes the counts are shown first; --dry-run only shows them.

Examples:
  oncely replay invoice-paid --id in_1009:invoice.paid --tenant acct_7 --reason INC-7
  oncely replay invoice-paid --from 2026-11-01 --effects missing --reason INC-7 --dry-run
  oncely replay invoice-paid --id in_1009:invoice.paid --tenant acct_7 \\
      --effects rerun=receipt --request INC-7 --reason 'the mail was lost'"
    )]
    Replay(replay::Replay),
    /// Read a connector's topics once more from an earlier place; a preview, unless --yes is given
    #[command(after_help = "\
The position goes back and gets a new epoch; processors that run notice within seconds. Records \
whose id is on record are absorbed as repeats; what is not on record runs. A position never goes \
forward by this, so no record is passed over. An event older than `retention.dedupe` is set \
aside, not run.

Examples:
  oncely rewind invoice-paid --to 2026-11-01T00:00Z --reason INC-7
  oncely rewind invoice-paid --to 2h --reason INC-7 --yes
  oncely rewind invoice-paid --topic invoices --partition 3 --to 118 --reason INC-7 --yes")]
    Rewind(rewind::Rewind),
    /// See endpoints of webhooks that said that they are gone, and enable them again
    #[command(
        subcommand,
        after_help = "\
Examples:
  oncely webhooks list
  oncely webhooks enable https://shop.example.com/hooks --reason 'moved back'"
    )]
    Webhooks(webhooks::Webhooks),
    /// See failovers of the database, and what was taken back each time
    #[command(
        subcommand,
        after_help = "\
Examples:
  oncely failover list"
    )]
    Failover(failover::Failover),
    /// Print the JSON schema of connector files, for editors
    #[command(after_help = "\
Examples:
  oncely schema > connector.schema.json    then begin a file with
  # yaml-language-server: $schema=./connector.schema.json")]
    Schema,
    /// Explain a command, a code of a finding, or the settings
    #[command(after_help = "\
Examples:
  oncely help E041
  oncely help effects resolve
  oncely help settings")]
    Help(help::Help),
}

/// Runs one command and prints what it answers.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        // Help and version come this way as well, with a code of their own.
        Err(error) => {
            print::usage(output_asked(&args), &error);
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Ok.into() };
        }
    };
    let output = cli.global.output;
    let context = match cli.global.context(Environment::of_process()) {
        Ok(context) => context,
        Err(error) => return failed(output, &error),
    };
    match started(cli.command, &context) {
        Ok(answer) => {
            print::answer(output, &answer);
            answer.exit.into()
        }
        Err(error) => failed(output, &error),
    }
}

fn failed(output: Output, error: &CliError) -> ExitCode {
    print::error(output, error);
    error.exit().into()
}

/// How to answer, of a command line that is wrong elsewhere.
fn output_asked(args: &[OsString]) -> Output {
    let is_json =
        |pair: &[OsString]| matches!(pair, [flag, value] if flag == "--output" && value == "json");
    let json = args.iter().any(|arg| arg == "--output=json") || args.windows(2).any(is_json);
    if json { Output::Json } else { Output::Table }
}

/// Runs a command that needs no database by itself, and others on a runtime.
fn started(command: Command, context: &Context) -> Result<Answer, CliError> {
    // Whoever looks for the right name is helped, not refused.
    if !matches!(command, Command::Help(_) | Command::Schema) {
        checked_names(&command, context)?;
    }
    match command {
        Command::Run(run) => run.run(context),
        Command::Demo(demo) => demo.run(context),
        Command::Test(test) => test.run(context),
        Command::Prove(prove) => prove.run(context),
        Command::Schema => Ok(schema::run()),
        Command::Help(help) => help.run(),
        Command::Validate(validate) => asked(validate.run(context)),
        Command::Migrate(migrate) => asked(migrate.run(context)),
        Command::Explain(explain) => asked(explain.run(context)),
        Command::Effects(effects) => asked(effects.run(context)),
        Command::Dlq(dlq) => asked(dlq.run(context)),
        Command::Quarantine(quarantine) => asked(quarantine.run(context)),
        Command::Deferred(deferred) => asked(deferred.run(context)),
        Command::Outbox(outbox) => asked(outbox.run(context)),
        Command::Progress(progress) => asked(progress.run(context)),
        Command::Replay(replay) => asked(replay.run(context)),
        Command::Rewind(rewind) => asked(rewind.run(context)),
        Command::Webhooks(webhooks) => asked(webhooks.run(context)),
        Command::Failover(failover) => asked(failover.run(context)),
    }
}

/// Refuses names that are no setting, with all else that is wrong with the settings of a worker.
fn checked_names(command: &Command, context: &Context) -> Result<(), CliError> {
    let Err(mut errors) = config::check_names(&context.environment) else { return Ok(()) };
    if let Command::Run(run) = command
        && let Err(CliError::Config(more)) = run.settings(context)
    {
        errors.0.extend(more.0);
    }
    Err(CliError::Config(errors))
}

/// Waits for an answer of the database or of Kafka.
fn asked(command: impl Future<Output = Result<Answer, CliError>>) -> Result<Answer, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| CliError::Start { source })?;
    runtime.block_on(command)
}

#[cfg(test)]
mod database_tests;
#[cfg(test)]
mod tests;
