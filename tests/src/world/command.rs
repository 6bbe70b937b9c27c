//! The program's command line, as an operator uses it.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::World;
use crate::servers;

/// Longest run of a command.
const COMMAND: Duration = Duration::from_secs(30);

/// What a command said.
#[derive(Debug)]
pub struct Said {
    pub ok: bool,
    pub code: Option<i32>,
    /// What it answered with `--output json`; null when that was no JSON.
    pub json: Value,
    pub errors: String,
}

impl World {
    /// Runs a command that changes nothing that is audited.
    pub async fn oncely(&self, args: &[&str]) -> Said {
        let mut command = tokio::process::Command::new(servers::program());
        command.args(args).args(["--output", "json"]).envs(self.environment());
        command.stdin(std::process::Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(COMMAND, command.output())
            .await
            .unwrap_or_else(|_| panic!("oncely {args:?} does not end"))
            .unwrap();
        Said {
            ok: output.status.success(),
            code: output.status.code(),
            json: serde_json::from_slice(&output.stdout).unwrap_or_default(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Calls the provider as nobody should: past the program, with this key and body.
    pub async fn call_provider(&self, path: &str, key: &str, body: &str) {
        let mut stream = TcpStream::connect(self.provider.http_addr()).await.unwrap();
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: provider\r\nidempotency-key: {key}\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    /// Runs a command by which a person overrides something: it must leave an audit row. What a person opens
    /// again was finished before, and the watch has to have seen that.
    pub async fn overrides(&self, args: &[&str]) -> Said {
        if self.is_watched() {
            self.looked().await;
        }
        let all: Vec<&str> = args.iter().copied().chain(["--yes", "--reason", "story"]).collect();
        let said = self.oncely(&all).await;
        assert!(said.ok, "{all:?}: {said:?}");
        self.ledger().overrides += 1;
        said
    }

    /// The same for a command that overrides so many things at once.
    pub async fn overrides_many(&self, args: &[&str], times: u64) -> Said {
        let said = self.overrides(args).await;
        self.ledger().overrides += times - 1;
        said
    }

    /// Books what a person changed by a command that did not do all that it was asked.
    pub fn overridden(&self, times: u64) {
        self.ledger().overrides += times;
    }

    /// Takes a stopped topic as it is, from its first record.
    pub async fn accept(&self, group: &str, topic: &str) {
        let args = ["progress", "accept", "--group", group, "--topic", topic, "--all"];
        let args: Vec<&str> = args.into_iter().chain(["--at", "earliest"]).collect();
        self.overrides(&args).await;
    }
}
