//! `oncely validate`: everything that is wrong with connector files, at once.

use std::path::PathBuf;

use oncely_connectors::file::{Bounds, Check, Compiled, Severity};
use serde_json::{Value, json};

use super::answer::{Answer, counted};
use super::context::Context;
use super::exit::{CliError, Exit};
use super::load::{findings_text, load_within};
use super::print;
use crate::config;
use crate::kafka::{Admin, KafkaError};
use crate::store::migrate;
use crate::worker::memory;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Validate {
    /// Connector files or directories [setting: ONCELY_CONNECTORS]
    paths: Vec<PathBuf>,
    /// Also: every reference has a value, the schema is current, the topics exist and are kept for no
    /// longer than their events are remembered
    #[arg(long)]
    live: bool,
    /// Warnings fail as well
    #[arg(long)]
    deny_warnings: bool,
}

/// One thing that was looked at outside the files.
struct Looked {
    what: String,
    wrong: Option<String>,
    /// It could not be looked at, since what would answer is away.
    away: bool,
}

impl Looked {
    fn new(what: String, wrong: Option<String>) -> Self {
        Self { what, wrong, away: false }
    }

    /// What could not be asked is told like what is wrong; other errors end the command.
    fn failed(what: String, error: CliError) -> Result<Self, CliError> {
        match error.exit() {
            Exit::Unavailable => Ok(Self { what, wrong: Some(print::chain(&error)), away: true }),
            Exit::Failed | Exit::Ok | Exit::Usage | Exit::Config => Err(error),
        }
    }
}

impl Validate {
    pub(super) async fn run(self, context: &Context) -> Result<Answer, CliError> {
        let check = if self.live { Check::Live } else { Check::Offline };
        // The chain of times: heartbeats in a lease, drain in the grace, calls in the grace.
        let worker = config::Worker::read(&context.environment, None)?;
        let grace_ms = u64::try_from(worker.shutdown_grace.as_millis()).ok();
        let loaded = load_within(context, &self.paths, check, Bounds { grace_ms })?;
        let (compiled, findings) = match loaded.outcome {
            Ok(compiled) => {
                let findings = compiled.iter().flat_map(|one| one.warnings.clone()).collect();
                (compiled, findings)
            }
            Err(findings) => (Vec::new(), findings),
        };
        let is_error = |severity| severity == Severity::Error || self.deny_warnings;
        let failed = findings.iter().any(|finding| is_error(finding.severity));
        let mut looked = Vec::new();
        if self.live && !failed {
            looked = vec![schema(context).await?];
            looked.extend(topics(context, &compiled).await?);
        }
        let mut text: String = looked
            .iter()
            .map(|looked| match &looked.wrong {
                None => format!("ok      {}\n", looked.what),
                Some(wrong) if looked.away => format!("away    {}: {wrong}\n", looked.what),
                Some(wrong) => format!("failed  {}: {wrong}\n", looked.what),
            })
            .collect();
        text.push_str(&findings_text(&findings, loaded.files));
        let names: Vec<&str> = compiled.iter().map(|one| &*one.connector.name).collect();
        let looked_json = looked.iter().map(|looked| {
            let ok = looked.wrong.is_none();
            json!({ "what": looked.what, "ok": ok, "why": looked.wrong, "away": looked.away })
        });
        let unmet = looked.iter().any(|looked| looked.wrong.is_some());
        let json = json!({
            "ok": !failed && !unmet,
            "files": loaded.files,
            "connectors": names,
            "findings": findings,
            "live": looked_json.collect::<Vec<Value>>(),
        });
        let exit = match (failed, unmet) {
            (true, _) => Exit::Config,
            (false, true) if looked.iter().any(|looked| looked.away) => Exit::Unavailable,
            (false, true) => Exit::Failed,
            (false, false) => Exit::Ok,
        };
        Ok(Answer { exit, ..Answer::new(text, json) })
    }
}

async fn schema(context: &Context) -> Result<Looked, CliError> {
    let what = || "schema of the database".to_owned();
    let mut connection = match context.connect("validate").await {
        Ok(connection) => connection,
        Err(error) => return Looked::failed(what(), error),
    };
    let steps = migrate::status(&mut connection).await;
    let steps = steps.map_err(|source| CliError::Migrate { source })?;
    let missing = steps.iter().filter(|step| !step.applied).count();
    let wrong = (missing > 0)
        .then(|| format!("{} missing, run oncely migrate up", counted(missing, "migration")));
    Ok(Looked::new(what(), wrong))
}

/// Whether the topic's records are forgotten before their events are.
async fn kept(
    context: &Context,
    admin: &Admin,
    one: &Compiled,
    topic: &str,
    what: String,
) -> Result<Looked, CliError> {
    match admin.retention(topic).await {
        Ok(None) => Ok(Looked::new(format!("{what}, kept for nobody says how long"), None)),
        Ok(Some(kept)) => {
            let wrong = memory::judge(&one.connector, &kept).err();
            let how_long = match kept.retention_ms.filter(|_| !kept.compacted) {
                Some(ms) => format!("kept for {}", memory::days(ms)),
                None => "kept for ever, so `retention.dedupe` bounds the promise".to_owned(),
            };
            Ok(Looked::new(format!("{what}, {how_long}"), wrong.map(|wrong| wrong.to_string())))
        }
        Err(error) => Looked::failed(what, context.kafka_failed(error)),
    }
}

/// Brokers that are away are asked once, not once for every topic.
async fn topics(context: &Context, compiled: &[Compiled]) -> Result<Vec<Looked>, CliError> {
    let mut looked = Vec::new();
    for one in compiled {
        let source = &one.connector.source;
        let admin = context.kafka(&source.group)?;
        for topic in &source.topics {
            let name = format!("topic {topic} of {}", one.connector.name);
            match admin.topics(&[topic.to_string()]).await {
                Ok(found) => {
                    let partitions = found.first().map_or(0, |topic| topic.partitions.len());
                    let what = format!("{name} ({})", counted(partitions, "partition"));
                    looked.push(kept(context, &admin, one, topic, what).await?);
                }
                Err(error @ KafkaError::TopicMissing { .. }) => {
                    looked.push(Looked::new(name, Some(print::chain(&error))));
                }
                Err(error) => {
                    looked.push(Looked::failed(name, context.kafka_failed(error))?);
                    return Ok(looked);
                }
            }
        }
    }
    Ok(looked)
}
