//! HTTP/1.1 by hand, because half an answer is something that a web framework refuses to send.
//!
//! Reads: requests with `Content-Length` or chunked bodies, one after the other on a connection.
//! Gives: what the desk says, whole, halved, dripping, or not at all.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::desk::{Desk, Ending};
use super::request::{End, Reply, Request};
use super::webhook::Signed;

const HEAD_BYTES_MAX: usize = 64 << 10;
const BODY_BYTES_MAX: usize = 64 << 20;
const HEADERS_MAX: usize = 64;
const READ_BYTES: usize = 16 << 10;

/// The part of a head that matters here.
#[derive(Debug)]
struct Head {
    method: String,
    target: String,
    key: Option<String>,
    timestamp: Option<String>,
    signatures: Option<String>,
    length: Length,
    keep_alive: bool,
    expects_continue: bool,
    bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    Known(usize),
    Chunked,
}

/// Serves a connection until it ends, by either side.
pub(super) async fn serve(mut stream: TcpStream, desk: Arc<Desk>) {
    // Whatever breaks a connection, the client sees it, and the log shows how far its request came.
    drop(stream.set_nodelay(true));
    let mut buffer = Vec::with_capacity(READ_BYTES);
    while let Ok(Some((request, keep_alive))) = next_request(&mut stream, &mut buffer).await {
        let Some(ending) = desk.serve(request).await else { return };
        match send(&mut stream, &ending, keep_alive).await {
            Ok(true) => {}
            Ok(false) | Err(_) => return,
        }
    }
}

/// The next request, or `None` at the end of the connection.
async fn next_request(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<(Request, bool)>> {
    let head = loop {
        if let Some(head) = head(buffer)? {
            break head;
        }
        if buffer.len() > HEAD_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if !more(stream, buffer).await? {
            return Ok(None);
        }
    };
    if head.expects_continue {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    buffer.drain(..head.bytes);
    let body = match head.length {
        Length::Known(length) if length > BODY_BYTES_MAX => {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Length::Known(length) => sized(stream, buffer, length).await?,
        Length::Chunked => chunked(stream, buffer).await?,
    };
    let Some(body) = body else { return Ok(None) };
    let signed = head.timestamp.zip(head.signatures);
    let signed = signed.map(|(timestamp, signatures)| Signed { timestamp, signatures });
    let request = Request::new(head.method, &head.target, head.key, body).with_signature(signed);
    Ok(Some((request, head.keep_alive)))
}

/// The head at the beginning of the buffer; `None` when it is not whole yet.
fn head(buffer: &[u8]) -> io::Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let status = parsed.parse(buffer).map_err(io::Error::other)?;
    let httparse::Status::Complete(bytes) = status else { return Ok(None) };
    let mut head = Head {
        method: parsed.method.unwrap_or_default().to_owned(),
        target: parsed.path.unwrap_or_default().to_owned(),
        key: None,
        timestamp: None,
        signatures: None,
        length: Length::Known(0),
        keep_alive: parsed.version == Some(1),
        expects_continue: false,
        bytes,
    };
    for header in parsed.headers.iter() {
        let value = std::str::from_utf8(header.value).map_err(io::Error::other)?.trim();
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("idempotency-key") || is("webhook-id") || is("x-reference") {
            head.key = Some(value.to_owned());
        } else if is("webhook-timestamp") {
            head.timestamp = Some(value.to_owned());
        } else if is("webhook-signature") {
            head.signatures = Some(value.to_owned());
        } else if is("content-length") {
            head.length = Length::Known(value.parse().map_err(io::Error::other)?);
        } else if is("transfer-encoding") && value.eq_ignore_ascii_case("chunked") {
            head.length = Length::Chunked;
        } else if is("connection") {
            head.keep_alive = !value.eq_ignore_ascii_case("close");
        } else if is("expect") {
            head.expects_continue = value.eq_ignore_ascii_case("100-continue");
        }
    }
    Ok(Some(head))
}

/// Reads until the buffer holds `length` bytes, and takes them; `None` when the client ends earlier.
async fn sized(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    length: usize,
) -> io::Result<Option<Vec<u8>>> {
    while buffer.len() < length {
        if !more(stream, buffer).await? {
            return Ok(None);
        }
    }
    let rest = buffer.split_off(length);
    Ok(Some(std::mem::replace(buffer, rest)))
}

async fn chunked(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    loop {
        let parsed = httparse::parse_chunk_size(buffer)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        let httparse::Status::Complete((skip, size)) = parsed else {
            if !more(stream, buffer).await? {
                return Ok(None);
            }
            continue;
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if body.len().saturating_add(size) > BODY_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        buffer.drain(..skip);
        // A chunk and its line end; the last one is empty (trailers are not sent by any client of ours).
        let Some(chunk) = sized(stream, buffer, size.saturating_add(2)).await? else {
            return Ok(None);
        };
        if size == 0 {
            return Ok(Some(body));
        }
        body.extend_from_slice(chunk.get(..size).unwrap_or_default());
    }
}

async fn more(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<bool> {
    buffer.reserve(READ_BYTES);
    Ok(stream.read_buf(buffer).await? > 0)
}

/// Sends an answer as it is to leave; whether the connection goes on.
async fn send(stream: &mut TcpStream, ending: &Ending, keep_alive: bool) -> io::Result<bool> {
    match ending.end {
        End::Closed => Ok(false),
        End::Reset => {
            stream.set_zero_linger()?;
            Ok(false)
        }
        End::Whole => {
            stream.write_all(&written(&ending.reply, keep_alive)).await?;
            Ok(keep_alive)
        }
        End::Half => {
            let bytes = written(&ending.reply, keep_alive);
            let left_out = ending.reply.body.len().div_ceil(2);
            let cut = bytes.len().saturating_sub(left_out);
            stream.write_all(bytes.get(..cut).unwrap_or_default()).await?;
            Ok(false)
        }
        End::Drip { ms } => {
            for byte in written(&ending.reply, keep_alive) {
                stream.write_all(&[byte]).await?;
                tokio::time::sleep(Duration::from_millis(ms)).await;
            }
            Ok(keep_alive)
        }
    }
}

fn written(reply: &Reply, keep_alive: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(reply.body.len().saturating_add(256));
    let status = reply.status.to_string();
    let length = reply.body.len().to_string();
    for part in ["HTTP/1.1 ", &status, " ", reason(reply.status)] {
        bytes.extend_from_slice(part.as_bytes());
    }
    bytes.extend_from_slice(b"\r\nContent-Type: application/json\r\nContent-Length: ");
    bytes.extend_from_slice(length.as_bytes());
    for (name, value) in &reply.headers {
        for part in ["\r\n", name, ": ", value] {
            bytes.extend_from_slice(part.as_bytes());
        }
    }
    if !keep_alive {
        bytes.extend_from_slice(b"\r\nConnection: close");
    }
    bytes.extend_from_slice(b"\r\n\r\n");
    bytes.extend_from_slice(&reply.body);
    bytes
}

const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        300..400 => "Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        409 => "Conflict",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Status",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_whole_or_not_at_all() {
        let text = b"POST /v1/charges?x=1 HTTP/1.1\r\nidempotency-key:  k-1 \r\nContent-Length: 3\r\n\r\nabc";
        assert!(head(&text[..40]).unwrap().is_none());
        let head = head(text).unwrap().unwrap();
        assert_eq!(head.target, "/v1/charges?x=1");
        assert_eq!(head.key.as_deref(), Some("k-1"));
        assert_eq!(head.length, Length::Known(3));
        assert_eq!(&text[head.bytes..], b"abc");
        assert!(head.keep_alive);
    }
}
