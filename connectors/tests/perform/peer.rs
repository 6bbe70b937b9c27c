//! An HTTP peer of raw sockets: what it does with each request is scripted.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What the peer does with one request, once that is read.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Answers, and keeps the connection.
    Answer(String),
    /// Answers as if it kept the connection, and closes it.
    AnswerAndClose(String),
    /// Reads the request, and closes without a word.
    Close,
    /// Reads so many bytes, and resets the connection.
    ResetAfter(usize),
    /// Reads the request, and never answers.
    Hang,
    /// Sends the text in small pieces, one every 50 ms.
    Drip(String),
    /// Sends the text, then this many more bytes of body.
    Pour(String, usize),
    /// Sends the text, then never more.
    Stall(String),
}

#[derive(Clone, Debug, Default)]
struct Log {
    connections: usize,
    requests: Vec<String>,
    bytes: usize,
}

pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    log: Arc<Mutex<Log>>,
    _tasks: JoinSet<()>,
}

impl Peer {
    /// Request number n gets act number n, later ones the last.
    pub(crate) async fn start(acts: impl IntoIterator<Item = Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acts: Arc<[Act]> = acts.into_iter().collect();
        let log = Arc::new(Mutex::new(Log::default()));
        let mut tasks = JoinSet::new();
        let shared = Arc::clone(&log);
        tasks.spawn(async move {
            let mut serving = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                shared.lock().unwrap().connections += 1;
                serving.spawn(serve(stream, Arc::clone(&acts), Arc::clone(&shared)));
            }
        });
        Self { address, log, _tasks: tasks }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/charges", self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        self.log.lock().unwrap().connections
    }

    /// Whole requests, head and body, in the order of their arrival.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.log.lock().unwrap().requests.clone()
    }

    /// Bytes that arrived, of whole requests or not.
    pub(crate) fn bytes(&self) -> usize {
        self.log.lock().unwrap().bytes
    }
}

async fn serve(mut stream: TcpStream, acts: Arc<[Act]>, log: Arc<Mutex<Log>>) {
    loop {
        let seen = log.lock().unwrap().requests.len();
        let act = acts.get(seen).or(acts.last()).unwrap().clone();
        if let Act::ResetAfter(bytes) = act {
            let mut part = vec![0; bytes];
            if stream.read_exact(&mut part).await.is_ok() {
                log.lock().unwrap().requests.push(String::from_utf8_lossy(&part).into_owned());
                stream.set_zero_linger().unwrap();
            }
            return;
        }
        let Some(request) = read_request(&mut stream, &log).await else { return };
        let number = {
            let mut log = log.lock().unwrap();
            log.requests.push(request);
            log.requests.len() - 1
        };
        let act = acts.get(number).or(acts.last()).unwrap().clone();
        if !play(&mut stream, act).await {
            return;
        }
    }
}

/// Whether the connection goes on.
async fn play(stream: &mut TcpStream, act: Act) -> bool {
    match act {
        Act::Answer(text) => stream.write_all(text.as_bytes()).await.is_ok(),
        Act::AnswerAndClose(text) => {
            let _sent = stream.write_all(text.as_bytes()).await.is_ok();
            false
        }
        Act::Close | Act::ResetAfter(_) => false,
        Act::Hang => std::future::pending().await,
        Act::Drip(text) => {
            for piece in text.as_bytes().chunks(2) {
                if stream.write_all(piece).await.is_err() {
                    return false;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            true
        }
        Act::Pour(text, bytes) => {
            let _sent = stream.write_all(text.as_bytes()).await.is_ok();
            let piece = [b'x'; 8_192];
            for _ in 0..bytes.div_ceil(piece.len()) {
                if stream.write_all(&piece).await.is_err() {
                    return false;
                }
            }
            false
        }
        Act::Stall(text) => {
            let _sent = stream.write_all(text.as_bytes()).await.is_ok();
            std::future::pending().await
        }
    }
}

async fn read_request(stream: &mut TcpStream, log: &Arc<Mutex<Log>>) -> Option<String> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4_096];
    loop {
        let read = stream.read(&mut piece).await.ok().filter(|read| *read > 0)?;
        log.lock().unwrap().bytes += read;
        bytes.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
        });
        if body.len() >= length.unwrap_or(0_usize) {
            return Some(text);
        }
    }
}

/// An answer with a body and the right length.
pub(crate) fn answer(status: u16, headers: &str, body: &str) -> Act {
    Act::Answer(head(status, headers, body.len()) + body)
}

/// An answer's head that announces `length` bytes.
pub(crate) fn head(status: u16, headers: &str, length: usize) -> String {
    format!("HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\n\r\n")
}
