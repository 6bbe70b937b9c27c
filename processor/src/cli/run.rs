//! `oncely run`: the processor.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use oncely_connectors::effect::egress::Egress;
use oncely_connectors::file::{Check, Compiled, Diagnostic, Severity};
use oncely_core::connector::EffectBody;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::answer::Answer;
use super::context::Context;
use super::exit::{CliError, Exit};
use super::load::{findings_text, load};
use super::{print, record};
use crate::clock::{self, Moment};
use crate::config::{self, Secrets, Settings};
use crate::crash;
use crate::http::{self, Health};
use crate::prove::StandIn;
use crate::store::{PgConnection, migrate, rights};
use crate::task;
use crate::telemetry::{self, Dependency, Metrics, Outage, STILL_EVERY};
use crate::worker::{Process, RunError};

/// Between looks at a schema that is not current yet.
const SCHEMA_WAIT: Duration = Duration::from_secs(2);
/// Longest time for finding out why a part was lost.
const REFUSED_MAX: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Run {
    /// Connector files or directories [setting: ONCELY_CONNECTORS]
    paths: Vec<PathBuf>,
    /// Where metrics and health are served [setting: ONCELY_HTTP_LISTEN]
    #[arg(long, value_name = "ADDRESS")]
    http_listen: Option<String>,
    /// Bring the schema up to date first
    #[arg(long)]
    migrate: bool,
    /// Where this process crashes on purpose, once; never read from a setting
    #[arg(long, hide = true, value_name = "POINT", requires = "crash_permit")]
    crash_at: Option<crash::Order>,
    /// What has to be at that place: an effect, or @OFFSET
    #[arg(long, hide = true, value_name = "EFFECT", requires = "crash_at")]
    crash_aim: Option<crash::Aim>,
    /// The permit that whoever wants the crash has made
    #[arg(long, hide = true, value_name = "FILE", requires = "crash_at")]
    crash_permit: Option<PathBuf>,
    /// Ports of a provider that stands in for all real ones
    #[arg(long, hide = true, value_name = "HTTP:SMTP")]
    stand_in: Option<StandIn>,
}

/// Calls that a stop may cut off in the middle: `validate` refuses them.
fn warn_of_long_calls(compiled: &[Compiled], grace: Duration) {
    for one in compiled {
        for rule in &one.connector.effects {
            let EffectBody::Call(call) = &rule.body else { continue };
            if Duration::from_millis(call.timeout.total_ms) >= grace {
                let (connector, effect) = (&*one.connector.name, &*rule.id);
                let (timeout_ms, grace_ms) = (call.timeout.total_ms, grace.as_millis());
                tracing::warn!(
                    connector,
                    effect,
                    timeout_ms,
                    grace_ms,
                    "a call may take longer than a stop waits: its outcome is unknown then"
                );
            }
        }
    }
}

impl Run {
    pub(super) fn run(self, context: &Context) -> Result<Answer, CliError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(|source| CliError::Start { source })?;
        let grace = self.settings(context)?.worker.shutdown_grace;
        let ended = runtime.block_on(self.process(context));
        // What is still running holds nothing: claims in flight are found by their lease.
        runtime.shutdown_timeout(grace.min(Duration::from_secs(1)));
        ended
    }

    pub(super) fn settings(&self, context: &Context) -> Result<Settings, CliError> {
        let mut environment = context.environment.clone();
        if let Some(listen) = &self.http_listen {
            environment.set("ONCELY_HTTP_LISTEN", listen);
        }
        Ok(Settings::read(&environment)?)
    }

    async fn process(self, context: &Context) -> Result<Answer, CliError> {
        let settings = self.settings(context)?;
        let defect = |error: telemetry::TelemetryError| CliError::Failed(print::chain(&error));
        telemetry::init_logging(&settings.log).map_err(defect)?;
        self.arm()?;
        let metrics = Metrics::new().map_err(defect)?;
        let check = if self.stand_in.is_some() { Check::Offline } else { Check::Live };
        let mut compiled = load(context, &self.paths, check)?.connectors()?;
        if let Some(stand_in) = self.stand_in {
            tracing::error!(%stand_in, "no real provider is called: another stands in for all of them");
            for one in &mut compiled {
                let replaced = stand_in.replace(&mut one.connector);
                replaced.map_err(|error| CliError::Failed(error.to_string()))?;
            }
        }
        compiled.iter().flat_map(|one| &one.warnings).for_each(warn);
        warn_of_long_calls(&compiled, settings.worker.shutdown_grace);
        let health = Health::new();
        for one in &compiled {
            health.group(&one.connector.name, false);
        }
        let (stop, stopped) = watch::channel(false);
        // What the client refuses is said now, not after a wait for the database.
        drop(context.kafka(&first_group(&compiled))?);
        let listener = TcpListener::bind(settings.http_listen)
            .await
            .map_err(|source| CliError::Listen { address: settings.http_listen, source })?;
        let (serving, mut served) = watch::channel(true);
        let until = async move { drop(served.wait_for(|serving| !serving).await) };
        let server = http::serve(listener, metrics.clone(), health.clone(), until);
        let server = task::spawn("http", &metrics, server);
        let signals = task::spawn("signals", &metrics, signals(stop));

        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            connectors = compiled.len(),
            http = %settings.http_listen,
            "starting"
        );
        let up = metrics.database_up();
        let outage = Outage::of(Dependency::Database, settings.database.place(), up);
        health.database(outage.clone());
        let looked = self.schema(context, &compiled, &outage, &health, stopped.clone()).await?;
        let process = Process {
            connectors: compiled.into_iter().map(|one| Arc::new(one.connector)).collect(),
            secrets: Arc::new(Secrets::new(&context.environment)),
            egress: Egress::allowing(config::egress_allowed(&context.environment)),
            settings,
            metrics,
            health,
            outage,
            stop: stopped,
        };
        let ended = match looked {
            Schema::Current => process.run().await,
            Schema::ToldToStop => Ok(()),
        };
        let refused = match &ended {
            Err(RunError::Lost { .. }) => refused(context).await,
            Ok(()) | Err(_) => None,
        };
        signals.abort();
        serving.send_replace(false);
        // Whoever still reads an answer at this moment may lose its end.
        drop(tokio::time::timeout(Duration::from_millis(200), server).await);
        match (ended, refused) {
            (Ok(()), _) => {
                tracing::info!("stopped");
                Ok(Answer::said(Exit::Ok))
            }
            (Err(_), Some(refused)) => Err(refused),
            (Err(source), None) => Err(CliError::Run { source }),
        }
    }

    /// Arms the crash point that a test asks for, and says so.
    fn arm(&self) -> Result<(), CliError> {
        let (Some(order), Some(permit)) = (self.crash_at, &self.crash_permit) else {
            return Ok(());
        };
        crash::arm(order, self.crash_aim.clone(), permit)
            .map_err(|error| CliError::Usage(error.to_string()))?;
        let permit = permit.display();
        tracing::error!(%order, %permit, "crash point armed: this process ends itself there, on purpose");
        Ok(())
    }

    /// Waits until the schema is what this version needs, and holds what is on record against the files. The database
    /// may be away meanwhile.
    async fn schema(
        &self,
        context: &Context,
        compiled: &[Compiled],
        outage: &Outage,
        health: &Health,
        mut stopped: watch::Receiver<bool>,
    ) -> Result<Schema, CliError> {
        let mut said: Option<(usize, Moment)> = None;
        loop {
            match self.missing(context, compiled).await {
                Ok(count) => {
                    health.database_up();
                    outage.back("schema");
                    health.schema_current(count == 0);
                    if count == 0 {
                        return Ok(Schema::Current);
                    }
                    let now = clock::now();
                    let again = said.is_none_or(|(before, at)| {
                        before != count || now.saturating_duration_since(at) >= STILL_EVERY
                    });
                    if again {
                        said = Some((count, now));
                        let remedy = "run `oncely migrate up`, or start with --migrate";
                        tracing::warn!(missing = count, remedy, "waiting for migrations");
                    }
                }
                Err(error) if error.exit() == Exit::Unavailable => {
                    let cause = print::chain(&error);
                    outage.not_reached("schema", &cause);
                    health.database_down(cause);
                }
                Err(error) => return Err(error),
            }
            tokio::select! {
                () = tokio::time::sleep(SCHEMA_WAIT) => {}
                _ = stopped.wait_for(|stop| *stop) => return Ok(Schema::ToldToStop),
            }
        }
    }

    async fn missing(&self, context: &Context, compiled: &[Compiled]) -> Result<usize, CliError> {
        let failed = |source| CliError::Migrate { source };
        let mut connection = context.connect("schema").await?;
        if self.migrate {
            migrate::up(&mut connection).await.map_err(failed)?;
        }
        let count = missing(&mut connection, context).await?;
        if count == 0 {
            on_record(&mut connection, compiled).await?;
        }
        Ok(count)
    }
}

/// What of these files would not find what is on record: that of a connector by a new name is not run.
async fn on_record(connection: &mut PgConnection, compiled: &[Compiled]) -> Result<(), CliError> {
    let found = record::findings(connection, compiled).await?;
    let (errors, warnings): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|finding| finding.severity == Severity::Error);
    warnings.iter().for_each(warn);
    if errors.is_empty() {
        return Ok(());
    }
    Err(CliError::Connectors {
        rendered: findings_text(&errors, compiled.len()),
        findings: serde_json::json!(errors),
    })
}

fn warn(finding: &Diagnostic) {
    let (file, line, code) = (&finding.file, finding.line, finding.code.as_str());
    tracing::warn!(file, line, code, text = finding.message, help = finding.help, "connector file");
}

/// Migrations that are missing. With all of them there, the role must have the rights that they are for.
async fn missing(connection: &mut PgConnection, context: &Context) -> Result<usize, CliError> {
    let failed = |source| CliError::Migrate { source };
    let steps = migrate::status(connection).await.map_err(failed)?;
    let count = steps.iter().filter(|step| !step.applied).count();
    if count == 0 {
        rights::check(connection).await.map_err(|source| context.unusable(source))?;
    }
    Ok(count)
}

/// A part of the process was lost: whether it was for something that would be refused at a start as well, a login or
/// a right that is gone. Then the process ends with the words and the exit code that it would not start with.
async fn refused(context: &Context) -> Option<CliError> {
    let asked = async {
        let mut connection = context.connect("refused").await?;
        missing(&mut connection, context).await
    };
    match tokio::time::timeout(REFUSED_MAX, asked).await {
        Ok(Err(error)) if error.exit() == Exit::Config => Some(error),
        Ok(_) | Err(_) => None,
    }
}

fn first_group(compiled: &[Compiled]) -> String {
    compiled.first().map(|one| one.connector.source.group.to_string()).unwrap_or_default()
}

enum Schema {
    Current,
    ToldToStop,
}

/// The first SIGTERM or SIGINT asks for a clean stop; a second SIGINT ends the process at once.
async fn signals(stop: watch::Sender<bool>) {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        tracing::error!("no signals can be received: only a kill ends this process");
        return;
    };
    tokio::select! {
        _ = terminate.recv() => tracing::info!("told to stop (SIGTERM)"),
        _ = interrupt.recv() => tracing::info!("told to stop (SIGINT); once more ends at once"),
    }
    stop.send_replace(true);
    interrupt.recv().await;
    std::process::exit(130);
}
