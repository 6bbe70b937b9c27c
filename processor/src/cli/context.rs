//! What every command starts from.

use std::path::PathBuf;

use super::answer::Output;
use super::exit::CliError;
use super::print;
use crate::config::{self, Database, Environment, Kafka};
use crate::kafka::{Admin, KafkaError};
use crate::store::admin::Change;
use crate::store::error::NextStep;
use crate::store::{PgConnection, Settings, StoreError};

/// Settings in force, and how to answer.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) environment: Environment,
    pub(super) output: Output,
    pub(super) yes: bool,
    /// Given as a flag, rather than found in the settings.
    pub(super) named_database: Option<String>,
    pub(super) named_brokers: Option<String>,
}

/// Flags of every command.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
pub(super) struct Global {
    /// Settings file: one NAME=value a line; flags and the environment win
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "context")]
    config: Option<PathBuf>,
    /// Named settings file: ~/.config/oncely/NAME.env
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
    /// Where the database is [setting: ONCELY_DATABASE_URL]
    #[arg(long, global = true, value_name = "URL")]
    database: Option<String>,
    /// Kafka brokers, host:port after commas [setting: ONCELY_KAFKA_BROKERS]
    #[arg(long, global = true, value_name = "HOSTS")]
    brokers: Option<String>,
    /// How to answer
    #[arg(long, global = true, value_enum, default_value_t)]
    pub(super) output: Output,
    /// Do not ask before a change
    #[arg(long, short = 'y', global = true)]
    yes: bool,
}

impl Global {
    pub(super) fn context(self, mut environment: Environment) -> Result<Context, CliError> {
        let (named_database, named_brokers) = (self.database.clone(), self.brokers.clone());
        if let Some(url) = self.database {
            environment.set("ONCELY_DATABASE_URL", url);
        }
        if let Some(brokers) = self.brokers {
            environment.set("ONCELY_KAFKA_BROKERS", brokers);
        }
        let named = self.context.map(|name| config::context_file(&environment, &name));
        if let Some(file) = self.config.or(named) {
            environment.under_file(&file)?;
        }
        let (output, yes) = (self.output, self.yes);
        Ok(Context { environment, output, yes, named_database, named_brokers })
    }
}

/// The database at `place` serves nothing, for this cause.
fn not_served(place: &str, source: StoreError) -> CliError {
    let what = match source.next_step() {
        NextStep::Halt => format!("the database {place} cannot be used"),
        NextStep::Wait | NextStep::Again | NextStep::Bisect => {
            format!("the database {place} cannot be reached")
        }
    };
    CliError::Store { what, source }
}

impl Context {
    /// One connection to the database.
    pub(super) async fn connect(&self, task: &str) -> Result<PgConnection, CliError> {
        let database = Database::read(&self.environment)?;
        let settings = Settings::parse(database.url())
            .map_err(|_| CliError::Config(config::ConfigError::DatabaseUrl.into()))?;
        settings.connect(task).await.map_err(|source| not_served(database.place(), source))
    }

    /// What the database said to a process that needs it.
    pub(super) fn unusable(&self, source: StoreError) -> CliError {
        match Database::read(&self.environment) {
            Ok(database) => not_served(database.place(), source),
            Err(errors) => errors.into(),
        }
    }

    /// Questions to Kafka, as a group sees it.
    pub(super) fn kafka(&self, group: &str) -> Result<Admin, CliError> {
        let client = Kafka::read(&self.environment)?.client;
        Admin::new(&client, group).map_err(|source| self.kafka_failed(source))
    }

    /// A question that Kafka did not answer, with the brokers that were asked.
    pub(super) fn kafka_failed(&self, source: KafkaError) -> CliError {
        let what = match &source {
            KafkaError::Settings(_) | KafkaError::Client(_) => {
                "the kafka client cannot be made from its settings".to_owned()
            }
            KafkaError::TopicMissing { .. }
            | KafkaError::Fatal { .. }
            | KafkaError::Thread { .. }
            | KafkaError::Unavailable { .. }
            | KafkaError::TimedOut { .. }
            | KafkaError::Unreachable { .. }
            | KafkaError::Unplaced
            | KafkaError::Produce(_) => {
                let brokers = self.environment.raw("ONCELY_KAFKA_BROKERS").unwrap_or_default();
                format!("kafka at {brokers} cannot be reached")
            }
        };
        CliError::Kafka { what, source }
    }

    /// Who changes something, and why.
    pub(super) fn change(&self, args: &ChangeArgs) -> Result<Change, CliError> {
        if args.reason.trim().is_empty() {
            return Err(CliError::Usage(
                "--reason is empty: say why, for the audit row".to_owned(),
            ));
        }
        let named = args.by.as_deref().map(str::trim).filter(|name| !name.is_empty());
        let actor = named.map_or_else(|| config::actor(&self.environment), str::to_owned);
        Ok(Change { actor, reason: args.reason.clone(), dry_run: args.dry_run })
    }

    /// Asks before a change, unless `--yes` was given.
    pub(super) fn confirm(&self, question: &str) -> Result<(), CliError> {
        if self.yes {
            return Ok(());
        }
        match print::confirm(question) {
            Some(true) => Ok(()),
            Some(false) => Err(CliError::Failed("nothing was changed".to_owned())),
            None => Err(CliError::Usage(
                "nobody can be asked here: give --yes, or --dry-run to see what would change"
                    .to_owned(),
            )),
        }
    }
}

/// Options of every change.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ChangeArgs {
    /// Why, for the audit row
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: String,
    /// Who, for the audit row; the user who types, unless given [setting: ONCELY_ACTOR]
    #[arg(long, value_name = "NAME")]
    pub(super) by: Option<String>,
    /// Show what would change, and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,
}
