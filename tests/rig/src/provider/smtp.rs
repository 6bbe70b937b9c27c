//! A small SMTP sink: takes mail, delivers none.
//!
//! Reads: one dialogue per connection, without TLS; any password is right. Gives: every message that was
//! accepted after DATA to the desk, as an effect keyed by its Message-ID.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::desk::Desk;
use super::request::{End, Request};

const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Whether the dialogue goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    GoOn,
    Close,
}

/// Serves a connection until it ends, by either side.
pub(super) async fn serve(stream: TcpStream, desk: Arc<Desk>) {
    drop(stream.set_nodelay(true));
    let mut stream = BufReader::new(stream);
    if stream.write_all(b"220 sink ESMTP\r\n").await.is_err() {
        return;
    }
    let mut line = String::new();
    loop {
        line.clear();
        match stream.read_line(&mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        match command(&mut stream, &desk, line.trim_end()).await {
            Ok(Next::GoOn) => {}
            Ok(Next::Close) | Err(_) => return,
        }
    }
}

async fn command(
    stream: &mut BufReader<TcpStream>,
    desk: &Arc<Desk>,
    line: &str,
) -> std::io::Result<Next> {
    let word = line.split(' ').next().unwrap_or_default().to_ascii_uppercase();
    let answer: &[u8] = match word.as_str() {
        "EHLO" => b"250-sink\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250 AUTH PLAIN\r\n",
        "HELO" | "MAIL" | "RCPT" | "RSET" | "NOOP" => b"250 OK\r\n",
        "AUTH" => b"235 OK\r\n",
        "QUIT" => {
            stream.write_all(b"221 bye\r\n").await?;
            return Ok(Next::Close);
        }
        "DATA" => {
            stream.write_all(b"354 go on\r\n").await?;
            return message(stream, desk).await;
        }
        _ => b"502 not known\r\n",
    };
    stream.write_all(answer).await?;
    Ok(Next::GoOn)
}

async fn message(stream: &mut BufReader<TcpStream>, desk: &Arc<Desk>) -> std::io::Result<Next> {
    let Some(body) = body(stream).await? else { return Ok(Next::Close) };
    let request = Request::new("DATA".to_owned(), "smtp", message_id(&body), body);
    let Some(ending) = desk.serve(request).await else { return Ok(Next::Close) };
    let said = match ending.reply.status {
        200 => format!("250 2.0.0 OK {}\r\n", String::from_utf8_lossy(&ending.reply.body)),
        status => format!("{status} refused\r\n"),
    };
    match ending.end {
        End::Whole => stream.write_all(said.as_bytes()).await?,
        End::Half => {
            let half = said.len().checked_div(2).unwrap_or_default();
            stream.write_all(said.as_bytes().get(..half).unwrap_or_default()).await?;
            return Ok(Next::Close);
        }
        End::Drip { ms } => {
            for byte in said.bytes() {
                stream.write_all(&[byte]).await?;
                tokio::time::sleep(Duration::from_millis(ms)).await;
            }
        }
        End::Closed => return Ok(Next::Close),
        End::Reset => {
            stream.get_ref().set_zero_linger()?;
            return Ok(Next::Close);
        }
    }
    Ok(Next::GoOn)
}

/// The message up to the lone dot, its stuffed dots undone; `None` when the client ends earlier.
async fn body(stream: &mut BufReader<TcpStream>) -> std::io::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    loop {
        let start = body.len();
        if stream.read_until(b'\n', &mut body).await? == 0 || body.len() > MESSAGE_BYTES_MAX {
            return Ok(None);
        }
        let line = body.get(start..).unwrap_or_default();
        if line == b".\r\n" || line == b".\n" {
            body.truncate(start);
            return Ok(Some(body));
        }
        if line.first() == Some(&b'.') {
            body.remove(start);
        }
    }
}

/// The Message-ID in the head, without its brackets.
fn message_id(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let head = text.split("\r\n\r\n").next()?.replace("\r\n ", " ").replace("\r\n\t", " ");
    head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let value = value.trim().trim_start_matches('<').trim_end_matches('>');
        name.eq_ignore_ascii_case("message-id").then(|| value.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_id_is_found_in_the_head_alone() {
        let folded = b"Subject: a\r\nMessage-Id:\r\n <k@oncely>\r\n\r\nMessage-ID: <body>\r\n";
        assert_eq!(message_id(folded).as_deref(), Some("k@oncely"));
        assert_eq!(message_id(b"Subject: a\r\n\r\nMessage-ID: <body>\r\n"), None);
    }
}
