//! One connection through the proxy: two pumps that follow the mode of the moment.
//!
//! Reads: both sides. Gives: bytes to the other side. The two pumps tell each other by [`Link`] what was
//! seen and when to end; neither ever waits for the other.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;

use super::{Direction, Mode, Shared};

const PIECE_BYTES: usize = 64 << 10;

/// The longest that can be looked for across two pieces.
const TAIL_BYTES: usize = 256;

/// What happens to the answers of a connection on which a request was sighted.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answers {
    Pass,
    /// None passes; when this is among them the connection is cut.
    Lose(Vec<u8>),
    /// None passes until the mode has another number.
    Stall(u64),
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Not,
    Close,
    Reset,
    /// One of the two sides broke it.
    Broken,
}

/// What the two pumps of a connection share.
#[derive(Debug)]
struct Link {
    answers: watch::Sender<Answers>,
    cut: watch::Sender<Cut>,
}

/// What became of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// So many bytes of it pass.
    Pass(usize),
    /// So many bytes of it pass, then the connection is cut.
    PassThenCut(usize, Cut),
    /// It is dropped.
    Drop,
}

/// Serves one client until either side ends or the connection is cut.
pub(super) async fn serve(client: TcpStream, shared: Arc<Shared>) {
    shared.count(|traffic| traffic.connections = traffic.connections.saturating_add(1));
    let target = shared.target.borrow().clone();
    let Ok(server) = TcpStream::connect(target).await else {
        // As if the server itself had refused.
        drop(client.set_zero_linger());
        return;
    };
    let open = Open::new(&shared);
    drop((client.set_nodelay(true), server.set_nodelay(true)));
    let link =
        Link { answers: watch::Sender::new(Answers::Pass), cut: watch::Sender::new(Cut::Not) };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = Pump::new(Direction::ToServer, &shared, &link);
    let down = Pump::new(Direction::ToClient, &shared, &link);
    let mut cuts = shared.cuts.subscribe();
    let mut forgotten = shared.forgotten.subscribe();
    let mut cut = link.cut.subscribe();
    let moving = async {
        tokio::join!(
            up.run(&mut from_client, &mut to_server),
            down.run(&mut from_server, &mut to_client)
        )
    };
    // Once forgotten it moves nothing, and stays open.
    let pumps = async {
        tokio::select! {
            ((), ()) = moving => {}
            _ = forgotten.changed() => std::future::pending().await,
        }
    };
    tokio::select! {
        () = pumps => {}
        _ = cut.wait_for(|cut| *cut != Cut::Not) => {}
        _ = cuts.changed() => { link.cut.send_replace(Cut::Reset); }
    }
    let ended = *link.cut.borrow();
    if ended == Cut::Reset {
        drop(to_client.as_ref().set_zero_linger());
        // A half that is dropped says goodbye first.
        to_client.forget();
    }
    if matches!(ended, Cut::Reset | Cut::Close) {
        shared.count(|traffic| traffic.cut = traffic.cut.saturating_add(1));
    }
    drop(open);
}

/// Moves bytes one way.
#[derive(Debug)]
struct Pump<'a> {
    direction: Direction,
    shared: &'a Shared,
    link: &'a Link,
    /// The end of what was moved, for what is looked for across two pieces.
    tail: Vec<u8>,
    /// Bytes moved under the mode of this number.
    counted: (u64, u64),
}

impl<'a> Pump<'a> {
    fn new(direction: Direction, shared: &'a Shared, link: &'a Link) -> Self {
        Self { direction, shared, link, tail: Vec::new(), counted: (0, 0) }
    }

    async fn run(mut self, from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf) {
        let mut buffer = vec![0; PIECE_BYTES];
        let mut is_first = self.direction == Direction::ToServer;
        loop {
            let Ok(read) = from.read(&mut buffer).await else { return self.end(Cut::Broken) };
            let piece = buffer.get(..read).unwrap_or_default();
            if std::mem::take(&mut is_first) && !piece.is_empty() {
                self.shared.count(|traffic| traffic.begun = traffic.begun.saturating_add(1));
            }
            let decided = self.decide(piece).await;
            self.remember(piece);
            let (bytes, cut) = match decided {
                Piece::Pass(bytes) => (bytes, Cut::Not),
                Piece::PassThenCut(bytes, cut) => (bytes, cut),
                Piece::Drop => (0, Cut::Not),
            };
            if to.write_all(piece.get(..bytes).unwrap_or_default()).await.is_err() {
                return self.end(Cut::Broken);
            }
            self.count(bytes);
            if cut != Cut::Not {
                return self.end(cut);
            }
            if read == 0 {
                drop(to.shutdown().await);
                return;
            }
        }
    }

    fn end(&self, cut: Cut) {
        self.link.cut.send_replace(cut);
    }

    /// What becomes of a piece; returns when something may become of it.
    async fn decide(&mut self, piece: &[u8]) -> Piece {
        let mut modes = self.shared.mode.subscribe();
        loop {
            let (number, mode) = modes.borrow_and_update().clone();
            let decided = match self.direction {
                Direction::ToServer => self.decide_up(number, &mode, piece),
                Direction::ToClient => self.decide_down(number, &mode, piece),
            };
            match decided {
                Some(piece) => {
                    if let Mode::DelayMs(ms) = mode {
                        tokio::time::sleep(Duration::from_millis(ms)).await;
                    }
                    return piece;
                }
                // The sender lives as long as any connection.
                None => drop(modes.changed().await),
            }
        }
    }

    /// `None` while it has to wait.
    fn decide_up(&mut self, number: u64, mode: &Mode, piece: &[u8]) -> Option<Piece> {
        let whole = Piece::Pass(piece.len());
        match mode {
            Mode::CutRequest { sent } => Some(match self.sighted(piece, sent) {
                Some(at) if self.shared.use_up(number) => {
                    self.sight();
                    Piece::PassThenCut(at, Cut::Reset)
                }
                _ => whole,
            }),
            Mode::LoseAnswer { sent, answered } => {
                if self.sighted(piece, sent).is_some() && self.shared.use_up(number) {
                    self.link.answers.send_replace(Answers::Lose(answered.clone()));
                    self.sight();
                }
                Some(whole)
            }
            Mode::StallAnswer { sent } => {
                if self.sighted(piece, sent).is_some() {
                    self.link.answers.send_replace(Answers::Stall(number));
                    self.sight();
                }
                Some(whole)
            }
            Mode::Pass
            | Mode::DelayMs(_)
            | Mode::Stall(_)
            | Mode::StallBoth
            | Mode::CutAfter { .. } => self.decide_plain(number, mode, piece),
        }
    }

    /// `None` while it has to wait.
    fn decide_down(&mut self, number: u64, mode: &Mode, piece: &[u8]) -> Option<Piece> {
        let answers = self.link.answers.borrow().clone();
        match answers {
            Answers::Pass => self.decide_plain(number, mode, piece),
            Answers::Lose(answered) => {
                let said =
                    if answered.is_empty() { Some(0) } else { self.sighted(piece, &answered) };
                Some(said.map_or(Piece::Drop, |_| Piece::PassThenCut(0, Cut::Reset)))
            }
            Answers::Stall(stalled_by) if stalled_by == number => None,
            Answers::Stall(_) => {
                self.link.answers.send_replace(Answers::Pass);
                self.decide_plain(number, mode, piece)
            }
        }
    }

    /// The modes that look at no content.
    fn decide_plain(&mut self, number: u64, mode: &Mode, piece: &[u8]) -> Option<Piece> {
        match mode {
            Mode::StallBoth => None,
            Mode::Stall(direction) if *direction == self.direction => None,
            Mode::CutAfter { direction, bytes } if *direction == self.direction => {
                let before = if self.counted.0 == number { self.counted.1 } else { 0 };
                let left = usize::try_from(bytes.saturating_sub(before)).unwrap_or(usize::MAX);
                self.counted = (number, before.saturating_add(length(piece.len())));
                // A reset may overtake bytes that the client has not read yet, a close never does.
                let cut =
                    if self.direction == Direction::ToServer { Cut::Reset } else { Cut::Close };
                let cuts = piece.len() >= left;
                Some(if cuts { Piece::PassThenCut(left, cut) } else { Piece::Pass(piece.len()) })
            }
            Mode::Pass
            | Mode::DelayMs(_)
            | Mode::Stall(_)
            | Mode::CutAfter { .. }
            | Mode::CutRequest { .. }
            | Mode::LoseAnswer { .. }
            | Mode::StallAnswer { .. } => Some(Piece::Pass(piece.len())),
        }
    }

    /// Where in the piece `wanted` begins; 0 when it began before it.
    fn sighted(&self, piece: &[u8], wanted: &[u8]) -> Option<usize> {
        let kept = self.tail.len().min(wanted.len().saturating_sub(1));
        let from = self.tail.len().saturating_sub(kept);
        let seen = [self.tail.get(from..).unwrap_or_default(), piece].concat();
        let at = seen.windows(wanted.len().max(1)).position(|window| window == wanted)?;
        Some(at.saturating_sub(kept))
    }

    fn sight(&self) {
        self.shared.count(|traffic| traffic.sighted = traffic.sighted.saturating_add(1));
    }

    fn remember(&mut self, piece: &[u8]) {
        let from = piece.len().saturating_sub(TAIL_BYTES);
        self.tail.extend_from_slice(piece.get(from..).unwrap_or_default());
        let too_many = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..too_many);
    }

    fn count(&self, bytes: usize) {
        self.shared.count(|traffic| {
            let count = match self.direction {
                Direction::ToServer => &mut traffic.to_server,
                Direction::ToClient => &mut traffic.to_client,
            };
            *count = count.saturating_add(length(bytes));
        });
    }
}

fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Counts a connection as open while it lives.
struct Open<'a>(&'a Shared);

impl<'a> Open<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.count(|traffic| traffic.open = traffic.open.saturating_add(1));
        Self(shared)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.count(|traffic| traffic.open = traffic.open.saturating_sub(1));
    }
}
