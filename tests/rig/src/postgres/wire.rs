//! A few statements to PostgreSQL, without a client library.
//!
//! Reads and gives text: the simple query protocol of version 3, for a user who needs no password.
//! For the rig's own needs (make a database, look at a fact from outside); no part of Oncely uses it.

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::RigError;

/// One row: each column as text, `None` for NULL.
pub type Row = Vec<Option<String>>;

const PROTOCOL_3_0: i32 = 196_608;

/// A message longer than this is not one that the rig asked for.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// One connection.
#[derive(Debug)]
pub struct Wire {
    stream: BufReader<TcpStream>,
    /// Statements that are prepared here; the place of each is in its name.
    prepared: Vec<String>,
}

impl Wire {
    /// Connects as a user who needs no password.
    ///
    /// # Errors
    /// `Io` when nobody answers, `Sql` when the server refuses (no such database, starting up, …).
    pub async fn connect(address: &str, user: &str, database: &str) -> Result<Self, RigError> {
        let stream = TcpStream::connect(address)
            .await
            .map_err(RigError::io(format!("connect to {address}")))?;
        let mut wire = Self { stream: BufReader::new(stream), prepared: Vec::new() };
        let mut body = PROTOCOL_3_0.to_be_bytes().to_vec();
        for word in ["user", user, "database", database] {
            body.extend_from_slice(word.as_bytes());
            body.push(0);
        }
        body.push(0);
        wire.send(None, &body).await?;
        wire.rows_until_ready("connect").await?;
        Ok(wire)
    }

    /// Runs one or more statements and gives the rows of all.
    ///
    /// # Errors
    /// `Sql` with the first refusal, `Io` when the connection breaks.
    pub async fn run(&mut self, statement: &str) -> Result<Vec<Row>, RigError> {
        let mut body = statement.as_bytes().to_vec();
        body.push(0);
        self.send(Some(b'Q'), &body).await?;
        self.rows_until_ready(statement).await
    }

    /// Runs one statement that will be run again: it is read and planned the first time only.
    ///
    /// # Errors
    /// As `run`.
    pub async fn run_prepared(&mut self, statement: &str) -> Result<Vec<Row>, RigError> {
        let known = self.prepared.iter().position(|prepared| prepared == statement);
        let number = known.unwrap_or(self.prepared.len());
        if known.is_none() {
            self.run(&format!("PREPARE again_{number} AS {statement}")).await?;
            self.prepared.push(statement.to_owned());
        }
        self.run(&format!("EXECUTE again_{number}")).await
    }

    /// Runs a statement and gives the first column of its first row.
    ///
    /// # Errors
    /// As `run`; `Unexpected` when there is no such value.
    pub async fn value(&mut self, statement: &str) -> Result<String, RigError> {
        let first = self.run(statement).await?.into_iter().next();
        first.and_then(|row| row.into_iter().next().flatten()).ok_or_else(|| {
            RigError::Unexpected(format!("`{statement}` gave no value where one was expected"))
        })
    }

    async fn send(&mut self, kind: Option<u8>, body: &[u8]) -> Result<(), RigError> {
        let length = i32::try_from(body.len().saturating_add(4))
            .map_err(|_| RigError::Unexpected("statement is longer than 2 GiB".to_owned()))?;
        let mut message: Vec<u8> = kind.into_iter().collect();
        message.extend_from_slice(&length.to_be_bytes());
        message.extend_from_slice(body);
        self.stream.write_all(&message).await.map_err(RigError::io("write to PostgreSQL"))
    }

    async fn rows_until_ready(&mut self, statement: &str) -> Result<Vec<Row>, RigError> {
        let mut rows = Vec::new();
        let mut refused = None;
        loop {
            let (kind, body) = self.message().await?;
            match kind {
                b'D' => rows.push(row(&body).ok_or_else(malformed)?),
                b'E' => {
                    let (code, message) = refusal(&body);
                    let statement = statement.to_owned();
                    let error = RigError::Sql { statement, code, message };
                    // After a fatal error the server closes; there is no "ready" to wait for.
                    if body.starts_with(b"SFATAL") || body.starts_with(b"SPANIC") {
                        return Err(error);
                    }
                    refused.get_or_insert(error);
                }
                b'Z' => return refused.map_or(Ok(rows), Err),
                b'R' if body != [0, 0, 0, 0] => {
                    return Err(RigError::Unexpected("PostgreSQL asks for a password".to_owned()));
                }
                _ => {}
            }
        }
    }

    async fn message(&mut self) -> Result<(u8, Vec<u8>), RigError> {
        let doing = "read from PostgreSQL";
        let kind = self.stream.read_u8().await.map_err(RigError::io(doing))?;
        let length = self.stream.read_i32().await.map_err(RigError::io(doing))?;
        let length = usize::try_from(length).unwrap_or(0).saturating_sub(4);
        if length > MESSAGE_BYTES_MAX {
            return Err(malformed());
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await.map_err(RigError::io(doing))?;
        Ok((kind, body))
    }
}

fn malformed() -> RigError {
    RigError::Unexpected("PostgreSQL sent a message that is none of its protocol".to_owned())
}

fn row(body: &[u8]) -> Option<Row> {
    let (count, mut rest) = body.split_first_chunk::<2>()?;
    let mut row = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
            row.push(None);
            rest = after;
            continue;
        };
        row.push(Some(String::from_utf8_lossy(after.get(..length)?).into_owned()));
        rest = after.get(length..)?;
    }
    Some(row)
}

/// Code and text of an error message: fields of one letter and a text that ends with a zero.
fn refusal(body: &[u8]) -> (String, String) {
    let (mut code, mut message) = (String::new(), String::new());
    for field in body.split(|byte| *byte == 0) {
        match field.split_first() {
            Some((b'C', text)) => code = String::from_utf8_lossy(text).into_owned(),
            Some((b'M', text)) => message = String::from_utf8_lossy(text).into_owned(),
            _ => {}
        }
    }
    (code, message)
}
