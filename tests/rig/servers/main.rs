//! A Kafka, a PostgreSQL and a provider to try things on, until Ctrl-C.
//!
//! Reads: nothing but the cache that `make servers` fills. Gives: the settings and commands by which
//! they are used, on standard output. Leaves nothing behind.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use oncely_rig::RigError;
use oncely_rig::kafka::{Kafka, KafkaOptions};
use oncely_rig::places::Scratch;
use oncely_rig::postgres::{Cluster, PostgresOptions};
use oncely_rig::provider::{Provider, ProviderOptions};
use tokio::signal::unix::{SignalKind, signal};

const DATABASE: &str = "oncely";
/// Signs webhooks to the provider, which lives for as long as this program.
const WEBHOOK_SECRET: &str = "whsec_Zm9yIHRyeWluZyB0aGluZ3Mgb3V0LCBub3QgZm9yIGtlZXBz";

#[tokio::main]
async fn main() -> ExitCode {
    match up().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}\nrun `make servers` first: it fetches what is missing");
            ExitCode::FAILURE
        }
    }
}

/// Files behind `${secret:…}`: the names that the examples use.
fn secrets(dir: &Path) -> Result<PathBuf, RigError> {
    let dir = dir.join("secrets");
    let unable = |source| RigError::Unexpected(format!("secrets cannot be written: {source}"));
    std::fs::create_dir_all(&dir).map_err(unable)?;
    let tokens = [
        "bank_token",
        "billing_token",
        "mail_token",
        "model_token",
        "partner_key",
        "warehouse_token",
    ];
    let tokens = tokens.map(|name| (name, "a-token-for-trying-things-out"));
    for (name, value) in tokens.into_iter().chain([("webhook", WEBHOOK_SECRET)]) {
        std::fs::write(dir.join(name), value).map_err(unable)?;
    }
    Ok(dir)
}

async fn up() -> Result<(), RigError> {
    eprintln!("starting Kafka and PostgreSQL …");
    let cluster = Cluster::start(&PostgresOptions::quick()).await?;
    let kafka = Kafka::start(&KafkaOptions::new(1).patient()).await?;
    cluster.create_database(DATABASE).await?;
    let scratch = Scratch::new(None, "servers")?;
    let log = scratch.path().join("provider.log");
    let options = ProviderOptions {
        keep_bodies: true,
        webhook_secrets: vec![WEBHOOK_SECRET.to_owned()],
        ..ProviderOptions::new(&log)
    };
    let provider = Provider::start(&options).await?;
    let secrets = secrets(scratch.path())?;
    let (brokers, url) = (kafka.bootstrap(), cluster.url(DATABASE));
    println!(
        "\nup, until Ctrl-C; in another terminal:\n
  export ONCELY_KAFKA_BROKERS={brokers}
  export ONCELY_DATABASE_URL={url}
  export PROVIDER_URL={provider} PROVIDER_HOST={http} SMTP_URL=smtp://{smtp}
  export ONCELY_SECRETS_DIR={secrets}
  export CLASSPATH='{libs}/*'      # java finds Kafka's own tools there

a topic, and records typed or piped in, one a line:

  java org.apache.kafka.tools.TopicCommand --bootstrap-server $ONCELY_KAFKA_BROKERS --create --topic NAME
  java org.apache.kafka.tools.ConsoleProducer --bootstrap-server $ONCELY_KAFKA_BROKERS --topic NAME

what the provider takes, as `url` of an effect below ${{env:PROVIDER_URL}}:

  /keyed/…          type http        a key is needed: idempotency: {{ header: Idempotency-Key, window: 24h }}
  /plain/…          type http        takes no key, and cannot be asked
  /lookup/…         type http        takes no key; GET of the same path with ?key= says what it has (reconcile)
  /v1/charges, …    type billing     Stripe's conventions, form bodies; /v2/… with JSON
  (the url alone)   type email       kind: resend, with the token ${{secret:mail_token}}; it is at /emails
  ${{env:SMTP_URL}}   type email       kind: smtp, as `server`
  /webhooks/…       type webhook     secrets: [\"${{secret:webhook}}\"], allow: [\"${{env:PROVIDER_HOST}}\"]
  /model            type llm         auth: {{ bearer: \"${{secret:model_token}}\" }}; /chat/completions is added

it writes down what it was asked and what took effect, one line of JSON each, in

  {log}\n",
        provider = provider.http_url(),
        http = provider.http_addr(),
        smtp = provider.smtp_addr(),
        secrets = secrets.display(),
        libs = kafka.libs_dir().display(),
        log = log.display(),
    );
    let unable = |source| RigError::Unexpected(format!("no signals can be received: {source}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(unable)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(unable)?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    eprintln!("ending, and taking everything away");
    Ok(())
}
