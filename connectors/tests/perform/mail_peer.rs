//! A mail server of raw sockets that can misbehave at each step.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Greeting,
    Ehlo,
    Auth,
    Mail,
    Rcpt,
    Data,
    /// After the whole text has been read.
    Text,
    /// When the first line of the text has been read.
    MidText,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Twist {
    Reply(&'static str),
    Die,
    Hang,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct MailLog {
    pub(crate) commands: Vec<String>,
    /// Texts that were ended properly.
    pub(crate) messages: Vec<String>,
    /// Bytes that came after the server had asked for the text.
    pub(crate) text_bytes: usize,
}

pub(crate) struct MailPeer {
    pub(crate) address: SocketAddr,
    log: Arc<Mutex<MailLog>>,
    _tasks: JoinSet<()>,
}

impl MailPeer {
    pub(crate) async fn start(twist: Option<(Step, Twist)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::new(Mutex::new(MailLog::default()));
        let mut tasks = JoinSet::new();
        let shared = Arc::clone(&log);
        tasks.spawn(async move {
            let mut serving = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (log, stream) = (Arc::clone(&shared), BufReader::new(stream));
                serving.spawn(async move {
                    let _ended = Session { stream, twist, log }.serve().await;
                });
            }
        });
        Self { address, log, _tasks: tasks }
    }

    pub(crate) fn url(&self) -> String {
        format!("smtp://{}", self.address)
    }

    pub(crate) fn log(&self) -> MailLog {
        self.log.lock().unwrap().clone()
    }
}

struct Session {
    stream: BufReader<TcpStream>,
    twist: Option<(Step, Twist)>,
    log: Arc<Mutex<MailLog>>,
}

impl Session {
    /// `None`: the session is over.
    async fn serve(&mut self) -> Option<()> {
        self.reply(Step::Greeting, "220 peer ESMTP").await?;
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            let line = line.trim_end().to_owned();
            self.log.lock().unwrap().commands.push(line.clone());
            match line.split([' ', ':']).next()? {
                "EHLO" => {
                    self.reply(Step::Ehlo, "250-peer\r\n250-AUTH PLAIN LOGIN\r\n250 8BITMIME")
                        .await?
                }
                "AUTH" => self.reply(Step::Auth, "235 in").await?,
                "MAIL" => self.reply(Step::Mail, "250 ok").await?,
                "RCPT" => self.reply(Step::Rcpt, "250 ok").await?,
                "DATA" => {
                    self.reply(Step::Data, "354 go on").await?;
                    self.text().await?;
                    self.reply(Step::Text, "250 queued as 4711").await?;
                }
                "QUIT" => self.stream.write_all(b"221 bye\r\n").await.ok()?,
                _ => self.stream.write_all(b"500 what\r\n").await.ok()?,
            }
        }
    }

    async fn text(&mut self) -> Option<()> {
        let mut text = Vec::new();
        let mut piece = [0; 1_024];
        while !text.ends_with(b"\r\n.\r\n") {
            let read = self.stream.read(&mut piece).await.ok()?;
            if read == 0 {
                return None;
            }
            text.extend_from_slice(&piece[..read]);
            self.log.lock().unwrap().text_bytes += read;
            if self.twist.is_some_and(|(at, _)| at == Step::MidText) {
                self.reply(Step::MidText, "").await?;
            }
        }
        self.log.lock().unwrap().messages.push(String::from_utf8(text).unwrap());
        Some(())
    }

    async fn reply(&mut self, step: Step, usual: &str) -> Option<()> {
        let text = match self.twist {
            Some((at, Twist::Reply(text))) if at == step => text,
            Some((at, Twist::Die)) if at == step => return None,
            Some((at, Twist::Hang)) if at == step => std::future::pending().await,
            _ => usual,
        };
        self.stream.write_all(format!("{text}\r\n").as_bytes()).await.ok()
    }
}
