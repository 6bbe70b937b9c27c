//! A Kafka, a PostgreSQL and a provider to try things on, until Ctrl-C.
//!
//! Reads: nothing but the cache that `make servers` fills. Gives: the settings and commands by which
//! they are used, on standard output. Leaves nothing behind.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::process::ExitCode;

use oncely_rig::RigError;
use oncely_rig::kafka::{Kafka, KafkaOptions};
use oncely_rig::places::Scratch;
use oncely_rig::postgres::{Cluster, PostgresOptions};
use oncely_rig::provider::{Provider, ProviderOptions};
use tokio::signal::unix::{SignalKind, signal};

const DATABASE: &str = "oncely";

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

async fn up() -> Result<(), RigError> {
    eprintln!("starting Kafka and PostgreSQL …");
    let cluster = Cluster::start(&PostgresOptions::quick()).await?;
    let kafka = Kafka::start(&KafkaOptions::new(1).patient()).await?;
    cluster.create_database(DATABASE).await?;
    let scratch = Scratch::new(None, "servers")?;
    let log = scratch.path().join("provider.log");
    let options = ProviderOptions { keep_bodies: true, ..ProviderOptions::new(&log) };
    let provider = Provider::start(&options).await?;
    let (brokers, url) = (kafka.bootstrap(), cluster.url(DATABASE));
    println!(
        "\nup, until Ctrl-C; in another terminal:\n
  export ONCELY_KAFKA_BROKERS={brokers}
  export ONCELY_DATABASE_URL={url}
  export PROVIDER_URL={provider}
  export CLASSPATH='{libs}/*'      # java finds Kafka's own tools there

a topic, and records typed or piped in, one a line:

  java org.apache.kafka.tools.TopicCommand --bootstrap-server $ONCELY_KAFKA_BROKERS --create --topic NAME
  java org.apache.kafka.tools.ConsoleProducer --bootstrap-server $ONCELY_KAFKA_BROKERS --topic NAME

the provider takes POST /keyed/… with an Idempotency-Key, and POST /plain/… without; it wrote down
what took effect in

  {log}\n",
        provider = provider.http_url(),
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
