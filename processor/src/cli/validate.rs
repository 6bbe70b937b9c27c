//! `oncely validate`: everything that is wrong with connector files, at once.

use std::collections::BTreeMap;
use std::path::PathBuf;

use oncely_connectors::file::{self, Bounds, Check, Code, Compiled, Diagnostic, Severity};
use serde_json::{Value, json};

use super::answer::{Answer, counted};
use super::context::Context;
use super::exit::{CliError, Exit};
use super::load::{files, findings_text, load_within};
use super::{print, record};
use crate::config::{self, Secrets};
use crate::kafka::{Admin, KafkaError};
use crate::store::admin::open::{self, Owed};
use crate::store::{migrate, rights};
use crate::worker::{READ_REMEDY, memory, written_remedy};

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Validate {
    /// Connector files or directories [setting: ONCELY_CONNECTORS]
    paths: Vec<PathBuf>,
    /// Also: every reference has a value, the schema is current, the topics exist and are kept for no
    /// longer than their events are remembered, nothing is owed that the files do not have any more
    #[arg(long)]
    live: bool,
    /// Warnings fail as well
    #[arg(long)]
    deny_warnings: bool,
}

/// One thing that was looked at outside the files.
pub(super) struct Looked {
    pub(super) what: String,
    pub(super) wrong: Option<String>,
    /// What is wrong is a warning.
    pub(super) warns: bool,
    /// It was not looked at, for something else is to be put right first.
    skipped: bool,
    exit: Exit,
}

impl Looked {
    fn new(what: String, wrong: Option<String>) -> Self {
        let exit = if wrong.is_some() { Exit::Failed } else { Exit::Ok };
        Self { what, wrong, warns: false, skipped: false, exit }
    }

    /// What could not be asked is told like what is wrong: one mistake hides no other.
    fn failed(what: String, error: &CliError) -> Self {
        let wrong = Some(print::chain(error));
        Self { what, wrong, warns: false, skipped: false, exit: error.exit() }
    }

    fn skipped(what: String, why: &str) -> Self {
        Self { skipped: true, ..Self::new(what, Some(why.to_owned())) }
    }

    /// Whether it could not be looked at, since what would answer is away.
    fn is_away(&self) -> bool {
        self.exit == Exit::Unavailable
    }
}

impl Validate {
    pub(super) async fn run(self, context: &Context) -> Result<Answer, CliError> {
        let check = if self.live { Check::Live } else { Check::Offline };
        // The chain of times: heartbeats in a lease, drain in the grace, calls in the grace.
        let worker = config::Worker::read(&context.environment, None)?;
        let grace_ms = u64::try_from(worker.shutdown_grace.as_millis()).ok();
        let loaded = load_within(context, &self.paths, check, Bounds { grace_ms })?;
        let mut unlooked = Vec::new();
        let (compiled, mut findings) = match loaded.outcome {
            Ok(compiled) => {
                let findings = compiled.iter().flat_map(|one| one.warnings.clone()).collect();
                (compiled, findings)
            }
            Err(findings) if self.live => {
                let (compiled, without) = without_findings(context, &self.paths)?;
                unlooked = without;
                (compiled, findings)
            }
            Err(findings) => (Vec::new(), findings),
        };
        let is_error = |severity| severity == Severity::Error || self.deny_warnings;
        let sound = !findings.iter().any(|finding| is_error(finding.severity));
        let mut looked = Vec::new();
        if self.live {
            let schema = schema(context).await;
            let readable = schema.wrong.is_none();
            looked.push(schema);
            if readable && sound {
                match on_record(context, &compiled).await {
                    Ok(found) => findings.extend(found),
                    Err(failed) => looked.push(failed),
                }
                looked.extend(orphans(context, &compiled, self.paths.is_empty()).await);
            }
            looked.extend(topics(context, &compiled).await);
            looked.extend(unlooked);
        }
        let failed = findings.iter().any(|finding| is_error(finding.severity));
        let mut text: String = looked
            .iter()
            .map(|looked| match &looked.wrong {
                None => format!("ok      {}\n", looked.what),
                Some(why) if looked.skipped => format!("skipped {}: {why}\n", looked.what),
                Some(wrong) if looked.is_away() => format!("away    {}: {wrong}\n", looked.what),
                Some(wrong) if looked.warns => format!("warning {}: {wrong}\n", looked.what),
                Some(wrong) => format!("failed  {}: {wrong}\n", looked.what),
            })
            .collect();
        text.push_str(&findings_text(&findings, loaded.files));
        if self.live {
            text.push_str(&format!("; {}", summed(&looked)));
        }
        let names: Vec<&str> = compiled.iter().map(|one| &*one.connector.name).collect();
        let looked_json = looked.iter().map(|looked| {
            let ok = looked.wrong.is_none();
            let (what, why, warns) = (&looked.what, &looked.wrong, looked.warns);
            let (away, skipped) = (looked.is_away(), looked.skipped);
            json!({
                "what": what, "ok": ok, "why": why, "warning": warns, "away": away, "skipped": skipped,
            })
        });
        let fails = |looked: &Looked| !looked.warns || self.deny_warnings;
        let unmet = looked.iter().any(|looked| looked.wrong.is_some() && fails(looked));
        let json = json!({
            "ok": !failed && !unmet,
            "files": loaded.files,
            "connectors": names,
            "findings": findings,
            "live": looked_json.collect::<Vec<Value>>(),
        });
        let any = |exit| looked.iter().any(|looked| looked.exit == exit);
        let exit = match (failed, unmet) {
            (true, _) => Exit::Config,
            (false, true) if any(Exit::Config) => Exit::Config,
            (false, true) if any(Exit::Unavailable) => Exit::Unavailable,
            (false, true) => Exit::Failed,
            (false, false) => Exit::Ok,
        };
        Ok(Answer { exit, ..Answer::new(text, json) })
    }
}

/// How the live checks went: `1 of 4 live checks failed, 1 not made`.
fn summed(looked: &[Looked]) -> String {
    let wrong = || looked.iter().filter(|looked| looked.wrong.is_some());
    let skipped = wrong().filter(|looked| looked.skipped).count();
    let away = wrong().filter(|looked| looked.is_away()).count();
    let warned = wrong().filter(|looked| looked.warns).count();
    let failed =
        wrong().count().saturating_sub(skipped.saturating_add(away).saturating_add(warned));
    let all = counted(looked.len(), "live check");
    let parts = [
        (failed, "failed"),
        (away, "without an answer"),
        (skipped, "not made"),
        (warned, "with a warning"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    if parts.is_empty() {
        format!("{all} passed")
    } else {
        format!("of {all} {}", parts.join(", "))
    }
}

/// The connectors whose topics are known all the same: those of the files in which nothing is wrong,
/// or nothing but references that have no value here. Then the files of which they are not.
fn without_findings(
    context: &Context,
    paths: &[PathBuf],
) -> Result<(Vec<Compiled>, Vec<Looked>), CliError> {
    let (mut known, mut unlooked) = (Vec::new(), Vec::new());
    for file in files(context, paths)? {
        let what = format!("topics of {}", file.display());
        let secrets = Secrets::new(&context.environment);
        let made = file::load(&[file], &secrets, Check::Offline).unwrap_or_default();
        let resolved = |one: &Compiled| {
            !one.warnings.iter().any(|warning| warning.code == Code::UnresolvedHere)
        };
        let before = known.len();
        known.extend(made.into_iter().filter(resolved));
        if known.len() == before {
            let why = "not looked at, since the file has errors or a reference without a value";
            unlooked.push(Looked::skipped(what, why));
        }
    }
    Ok((known, unlooked))
}

async fn schema(context: &Context) -> Looked {
    let what = "schema of the database".to_owned();
    let mut connection = match context.connect("validate").await {
        Ok(connection) => connection,
        Err(error) => return Looked::failed(what, &error),
    };
    let steps = match migrate::status(&mut connection).await {
        Ok(steps) => steps,
        Err(source) => return Looked::failed(what, &CliError::Migrate { source }),
    };
    let missing = steps.iter().filter(|step| !step.applied).count();
    if missing == 0
        && let Err(source) = rights::check(&mut connection).await
    {
        return Looked::failed(what, &context.unusable(source));
    }
    let wrong = (missing > 0)
        .then(|| format!("{} missing, run oncely migrate up", counted(missing, "migration")));
    Looked::new(what, wrong)
}

/// What these files would not find again of what is on record.
async fn on_record(context: &Context, compiled: &[Compiled]) -> Result<Vec<Diagnostic>, Looked> {
    let asked = async {
        let mut connection = context.connect("validate").await?;
        Ok::<_, CliError>(record::findings(&mut connection, compiled).await?)
    };
    let failed = |error| Looked::failed("names and ids on record".to_owned(), &error);
    asked.await.map_err(failed)
}

/// What is owed to the connectors and would be orphaned once these files run. `is_all`: no others do.
pub(super) async fn orphans(context: &Context, compiled: &[Compiled], is_all: bool) -> Vec<Looked> {
    let owed = async {
        let mut connection = context.connect("validate").await?;
        Ok::<_, CliError>(open::owed(&mut connection).await?)
    };
    let owed: Vec<Owed> = match owed.await {
        Ok(owed) => owed,
        Err(error) => return vec![Looked::failed("open effects".to_owned(), &error)],
    };
    let mut left: BTreeMap<String, Vec<Owed>> = BTreeMap::new();
    for owed in owed {
        let connector = compiled.iter().find(|one| *one.connector.name == *owed.connector);
        let has =
            |one: &Compiled| one.connector.effects.iter().any(|rule| *rule.id == *owed.effect);
        if connector.is_none_or(|one| !has(one)) {
            left.entry(owed.connector.clone()).or_default().push(owed);
        }
    }
    let looked = left.into_iter().map(|(connector, owed)| {
        let named: Vec<_> =
            owed.iter().map(|owed| format!("{} {}", owed.count, owed.effect)).collect();
        let what = format!("open effects of {connector}");
        let here = compiled.iter().any(|one| *one.connector.name == connector);
        if !is_all && !here && owed.iter().all(|owed| !owed.orphaned) {
            // It is not orphaned yet: other files, which these have nothing to do with, may be run.
            let what = format!(
                "{what}: {}, which none of these files has: orphaned unless other files that run have them",
                named.join(", ")
            );
            return Looked::new(what, None);
        }
        let wrong = format!(
            "{} would be orphaned, since no file has them any more: let them settle before this runs, \
             keep them in the file, or resolve them (oncely effects list --connector {connector})",
            named.join(", ")
        );
        Looked { warns: true, ..Looked::new(what, Some(wrong)) }
    });
    looked.collect()
}

/// Whether the topic's records are forgotten before their events are.
async fn kept(
    context: &Context,
    admin: &Admin,
    one: &Compiled,
    topic: &str,
    what: String,
) -> Looked {
    match admin.retention(topic).await {
        Ok(None) => Looked::new(format!("{what}, kept for nobody says how long"), None),
        Ok(Some(kept)) => {
            let wrong = memory::judge(&one.connector, &kept).err();
            let how_long = match kept.retention_ms.filter(|_| !kept.compacted) {
                Some(ms) => format!("kept for {}", memory::days(ms)),
                None => "kept for ever, so `retention.dedupe` bounds the promise".to_owned(),
            };
            Looked::new(format!("{what}, {how_long}"), wrong.map(|wrong| wrong.to_string()))
        }
        Err(error) => Looked::failed(what, &context.kafka_failed(error)),
    }
}

/// Brokers that are away are asked once, not once for every topic.
async fn topics(context: &Context, compiled: &[Compiled]) -> Vec<Looked> {
    let mut looked = Vec::new();
    for one in compiled {
        let source = &one.connector.source;
        let admin = match context.kafka(&source.group) {
            Ok(admin) => admin,
            Err(error) => {
                looked.push(Looked::failed(format!("topics of {}", one.connector.name), &error));
                return looked;
            }
        };
        for topic in one.connector.topics_written() {
            let name = format!("topic {topic}, written by {}", one.connector.name);
            match admin.topics(std::slice::from_ref(&topic)).await {
                Ok(_) => looked.push(Looked::new(name, None)),
                Err(error @ KafkaError::TopicMissing { .. }) => {
                    let wrong = format!(
                        "{}: {}",
                        print::chain(&error),
                        written_remedy(&one.connector, &topic)
                    );
                    looked.push(Looked::new(name, Some(wrong)));
                }
                Err(error) => {
                    looked.push(Looked::failed(name, &context.kafka_failed(error)));
                    return looked;
                }
            }
        }
        for topic in &source.topics {
            let name = format!("topic {topic} of {}", one.connector.name);
            match admin.topics(&[topic.to_string()]).await {
                Ok(found) => {
                    let partitions = found.first().map_or(0, |topic| topic.partitions.len());
                    let what = format!("{name} ({})", counted(partitions, "partition"));
                    looked.push(kept(context, &admin, one, topic, what).await);
                }
                Err(error @ KafkaError::TopicMissing { .. }) => {
                    let wrong = format!("{}: {READ_REMEDY}", print::chain(&error));
                    looked.push(Looked::new(name, Some(wrong)));
                }
                Err(error) => {
                    looked.push(Looked::failed(name, &context.kafka_failed(error)));
                    return looked;
                }
            }
        }
    }
    looked
}
