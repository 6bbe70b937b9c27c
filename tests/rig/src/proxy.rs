//! A network between client and server that fails on purpose.
//!
//! Reads: bytes of TCP connections, without knowing their protocol. Gives: the same bytes to the other
//! side, late, in part or not at all, as the [`Mode`] of the moment says. Never changes a byte.

mod pump;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::places;
use crate::{RigError, net, wait};
use pump::serve;

/// A way through the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// What happens to bytes. A mode counts for open connections and new ones, until the next is set.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// They pass.
    Pass,
    /// They pass, each piece this many milliseconds later.
    DelayMs(u64),
    /// They wait in one direction until the mode changes; none is lost.
    Stall(Direction),
    /// They wait in both directions until the mode changes: a host that is gone without a word.
    StallBoth,
    /// After this many more bytes in one direction a connection is cut, each on its own count.
    CutAfter {
        /// The direction that is counted.
        direction: Direction,
        /// How many bytes still pass.
        bytes: u64,
    },
    /// The first connection on which the client sends these bytes is reset; they do not reach the
    /// server, what was before them does. Then bytes pass again.
    CutRequest {
        /// What to look for.
        sent: Vec<u8>,
    },
    /// The first connection on which the client sends `sent` is reset when the server has answered:
    /// the server acts, and the client never learns how it ended. Then bytes pass again.
    LoseAnswer {
        /// What to look for on the way to the server.
        sent: Vec<u8>,
        /// What the answer holds; empty for the first bytes that the server says.
        answered: Vec<u8>,
    },
    /// From the moment when a client sends `sent`, nothing reaches it any more, until the mode changes;
    /// its bytes go on reaching the server. Other connections pass.
    StallAnswer {
        /// What to look for on the way to the server.
        sent: Vec<u8>,
    },
}

impl Mode {
    /// The next `COMMIT` reaches PostgreSQL and is carried out; the client gets a reset for an answer.
    #[must_use]
    pub fn lose_commit() -> Self {
        // The server's CommandComplete: its kind, its length, its tag.
        let answered = b"C\0\0\0\x0bCOMMIT\0".to_vec();
        Self::LoseAnswer { sent: b"COMMIT".to_vec(), answered }
    }
}

/// What the proxy has seen and done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Connections taken.
    pub connections: u64,
    /// Connections on which a client has said something, whether it has passed or waits.
    pub begun: u64,
    /// Connections open at this moment.
    pub open: u64,
    /// Connections cut by a mode or by `cut_all`.
    pub cut: u64,
    /// How often the bytes that a mode looks for were seen.
    pub sighted: u64,
    /// Bytes given to the server.
    pub to_server: u64,
    /// Bytes given to clients.
    pub to_client: u64,
}

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The mode, and its number: equal modes set one after the other are two.
    pub(crate) mode: watch::Sender<(u64, Mode)>,
    pub(crate) traffic: watch::Sender<Traffic>,
    pub(crate) target: watch::Sender<String>,
    /// Moved by `cut_all`.
    pub(crate) cuts: watch::Sender<u64>,
    /// Moved by `forget_open`.
    pub(crate) forgotten: watch::Sender<u64>,
}

impl Shared {
    pub(crate) fn count(&self, change: impl FnOnce(&mut Traffic)) {
        self.traffic.send_modify(change);
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_modify(|current| *current = (current.0.wrapping_add(1), mode));
    }

    /// Uses a mode up: true for the one connection that comes first.
    pub(crate) fn use_up(&self, number: u64) -> bool {
        self.mode.send_if_modified(|current| {
            let first = current.0 == number;
            if first {
                *current = (number.wrapping_add(1), Mode::Pass);
            }
            first
        })
    }
}

/// A running proxy. Dropping it closes its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: Option<JoinSet<()>>,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 for a server at `host:port`, which need not be up yet.
    ///
    /// # Errors
    /// `NoFreePort`, or `TimedOut` when the port cannot be bound.
    pub async fn start(target: impl Into<String>) -> Result<Self, RigError> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, places::free_port()?));
        let shared = Arc::new(Shared {
            mode: watch::Sender::new((0, Mode::Pass)),
            traffic: watch::Sender::default(),
            target: watch::Sender::new(target.into()),
            cuts: watch::Sender::default(),
            forgotten: watch::Sender::default(),
        });
        let mut proxy = Self { address, shared, listening: None };
        proxy.listener_on().await?;
        Ok(proxy)
    }

    /// Where clients connect.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// The port on 127.0.0.1; the same for the whole life of the proxy.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// A URL that leads to the server directly, changed to lead through this proxy.
    #[must_use]
    pub fn through(&self, url: &str) -> String {
        url.replace(self.shared.target.borrow().as_str(), &self.address.to_string())
    }

    /// Sets what happens to bytes from now on.
    pub fn set(&self, mode: Mode) {
        self.shared.set(mode);
    }

    /// Leads new connections to another server; open ones stay.
    pub fn set_target(&self, target: impl Into<String>) {
        self.shared.target.send_replace(target.into());
    }

    /// Resets every open connection.
    pub fn cut_all(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts = cuts.wrapping_add(1));
    }

    /// No byte passes on a connection that is open now, for ever, and neither side is told; new ones
    /// pass: a host that was replaced, or a gateway that forgot its connections.
    pub fn forget_open(&self) {
        self.shared.forgotten.send_modify(|times| *times = times.wrapping_add(1));
    }

    /// Refuses connections, and cuts those that are open.
    pub async fn listener_off(&mut self) {
        if let Some(mut listening) = self.listening.take() {
            listening.shutdown().await;
        }
    }

    /// Listens again on the same port.
    ///
    /// # Errors
    /// `TimedOut` when somebody else took the port meanwhile.
    pub async fn listener_on(&mut self) -> Result<(), RigError> {
        if self.listening.is_none() {
            let listener = net::listen(self.address).await?;
            let mut listening = JoinSet::new();
            listening.spawn(accept(listener, Arc::clone(&self.shared)));
            self.listening = Some(listening);
        }
        Ok(())
    }

    /// What was seen and done so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        *self.shared.traffic.borrow()
    }

    /// Waits until the traffic satisfies `reached`.
    ///
    /// # Errors
    /// `TimedOut` with `what` and the traffic as it is.
    pub async fn wait_for(
        &self,
        what: &str,
        bound: Duration,
        reached: impl FnMut(&Traffic) -> bool,
    ) -> Result<Traffic, RigError> {
        wait::until_seen(self.shared.traffic.subscribe(), what, bound, reached).await
    }

    /// Waits until what a mode looks for was seen `n` times since the start.
    ///
    /// # Errors
    /// `TimedOut` with the traffic.
    pub async fn wait_sighted(&self, n: u64, bound: Duration) -> Result<Traffic, RigError> {
        self.wait_for(&format!("{n} sightings"), bound, |traffic| traffic.sighted >= n).await
    }

    /// Waits until `n` connections were cut since the start.
    ///
    /// # Errors
    /// `TimedOut` with the traffic.
    pub async fn wait_cut(&self, n: u64, bound: Duration) -> Result<Traffic, RigError> {
        self.wait_for(&format!("{n} cuts"), bound, |traffic| traffic.cut >= n).await
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        // A connection that was gone before it was taken is no reason to stop.
        if let Ok((client, _)) = listener.accept().await {
            connections.spawn(serve(client, Arc::clone(&shared)));
        }
    }
}
