//! `oncely validate`: everything that is wrong with connector files, at once.

use std::path::PathBuf;

use oncely_connectors::file::{Check, Compiled, Severity};
use serde_json::{Value, json};

use super::answer::Answer;
use super::context::Context;
use super::exit::{CliError, Exit};
use super::load::{findings_text, load};
use super::print;
use crate::store::migrate;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Validate {
    /// Connector files or directories [setting: ONCELY_CONNECTORS]
    paths: Vec<PathBuf>,
    /// Also: every reference has a value, the schema is current, the topics exist
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
}

impl Validate {
    pub(super) async fn run(self, context: &Context) -> Result<Answer, CliError> {
        let check = if self.live { Check::Live } else { Check::Offline };
        let loaded = load(context, &self.paths, check)?;
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
            looked = live(context, &compiled).await?;
        }
        let mut text: String = looked
            .iter()
            .map(|looked| match &looked.wrong {
                None => format!("ok      {}\n", looked.what),
                Some(wrong) => format!("failed  {}: {wrong}\n", looked.what),
            })
            .collect();
        text.push_str(&findings_text(&findings, loaded.files));
        let names: Vec<&str> = compiled.iter().map(|one| &*one.connector.name).collect();
        let looked_json = looked.iter().map(|looked| {
            json!({ "what": looked.what, "ok": looked.wrong.is_none(), "why": looked.wrong })
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
            (false, true) => Exit::Failed,
            (false, false) => Exit::Ok,
        };
        Ok(Answer { exit, ..Answer::new(text, json) })
    }
}

/// Looks at the database and at every topic.
async fn live(context: &Context, compiled: &[Compiled]) -> Result<Vec<Looked>, CliError> {
    let mut connection = context.connect("validate").await?;
    let steps = migrate::status(&mut connection).await;
    let steps = steps.map_err(|source| CliError::Migrate { source })?;
    let missing = steps.iter().filter(|step| !step.applied).count();
    let wrong = (missing > 0).then(|| format!("{missing} missing, run oncely migrate up"));
    let mut looked = vec![Looked { what: "schema of the database".to_owned(), wrong }];
    for one in compiled {
        let source = &one.connector.source;
        let admin = context.kafka(&source.group)?;
        for topic in &source.topics {
            let asked = admin.topics(&[topic.to_string()]).await;
            let partitions = asked.as_ref().ok().and_then(|found| found.first());
            let partitions = partitions.map_or(0, |topic| topic.partitions.len());
            looked.push(Looked {
                what: format!("topic {topic} of {} ({partitions} partitions)", one.connector.name),
                wrong: asked.err().map(|error| print::chain(&error)),
            });
        }
    }
    Ok(looked)
}
