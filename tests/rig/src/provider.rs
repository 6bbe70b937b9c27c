//! The fake provider: an HTTP server and an SMTP sink that play by published rules and keep a log.
//!
//! Reads: requests. Gives: answers, faults on demand, and a log with one line when a request was
//! received, one when it took effect and one when it was answered, on disk before the answer leaves.
//! The log is the truth that a checker counts in: an effect is a line `applied`, nothing else.
//!
//! | endpoint | kind | same key again |
//! |---|---|---|
//! | `POST /v1/{resource}` | billing like Stripe | the kept answer, a 500 included; other body 400; in flight 409 |
//! | `POST /v2/…` | billing like Stripe's API v2 | what had failed is finished; other body 400; in flight 409 |
//! | `POST /emails` | mail like Resend | the same id; other body 409; in flight 409 |
//! | `POST /keyed/…` | a key is needed (`Idempotency-Key`, `webhook-id`) | the kept answer; 422; 409 |
//! | `POST /webhooks/…` | a receiver by the Standard Webhooks rules; unsigned 401 | the kept answer; 422; 409 |
//! | `POST /lookup/…` | can be asked: `GET` the same path with `?key=` | takes effect again |
//! | `POST /plain/…`, `POST /model/…`, SMTP | cannot be asked | takes effect again |
//!
//! Look-ups (`GET /v1/{resource}?key=`, `GET /v1/{resource}/search?query=metadata["…"]:"…"`, `GET /emails?key=`,
//! `GET /keyed/…?key=`, `GET /lookup/…?key=`) answer `{"items":[…],"data":[…],"total":n}`.

mod answers;
mod books;
mod desk;
mod faults;
mod http;
mod journal;
pub mod log;
mod request;
mod smtp;
mod webhook;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub use desk::{Counts, Hold};
pub use faults::{Fault, FaultRates, Rule};
pub use journal::Flush;
pub use log::Log;
pub use request::{End, Kind};
pub use webhook::Signed;

use crate::places;
use crate::{RigError, net, wait};
use desk::{Desk, lock};

/// How a provider behaves from the beginning.
#[derive(Debug, Clone)]
pub struct ProviderOptions {
    /// The log; lines are added to it.
    pub log: PathBuf,
    /// When the log is flushed.
    pub flush: Flush,
    /// Whether bodies are kept in the log.
    pub keep_bodies: bool,
    /// Faults by chance.
    pub rates: FaultRates,
    /// What every effect takes at least, in milliseconds.
    pub latency_ms: u64,
    /// What effects of `/lookup/` take on top of that; they follow even if the connection is gone.
    pub apply_delay_ms: u64,
    /// How long keys are remembered, in seconds.
    pub key_window_s: u64,
    /// With these the webhooks are signed that `/webhooks/` believes: `whsec_` and base64.
    pub webhook_secrets: Vec<String>,
}

impl ProviderOptions {
    /// Everything as documented by the providers it plays, no faults, flushed before each answer.
    #[must_use]
    pub fn new(log: impl Into<PathBuf>) -> Self {
        Self {
            log: log.into(),
            flush: Flush::EachAnswer,
            keep_bodies: false,
            rates: FaultRates::default(),
            latency_ms: 0,
            apply_delay_ms: 0,
            key_window_s: 24 * 60 * 60,
            webhook_secrets: Vec::new(),
        }
    }
}

/// A running provider. Dropping it closes its connections; the log stays.
#[derive(Debug)]
pub struct Provider {
    // Before the desk: connections go before the log is closed.
    listening: Option<JoinSet<()>>,
    desk: Arc<Desk>,
    http: SocketAddr,
    smtp: SocketAddr,
    log: PathBuf,
}

impl Provider {
    /// Listens on two free ports of 127.0.0.1.
    ///
    /// # Errors
    /// `Io` when the log cannot be opened, `NoFreePort`.
    pub async fn start(options: &ProviderOptions) -> Result<Self, RigError> {
        let desk = Arc::new(Desk::open(options)?);
        let http = SocketAddr::from((Ipv4Addr::LOCALHOST, places::free_port()?));
        let smtp = SocketAddr::from((Ipv4Addr::LOCALHOST, places::free_port()?));
        let log = options.log.clone();
        let mut provider = Self { listening: None, desk, http, smtp, log };
        provider.listener_on().await?;
        Ok(provider)
    }

    /// `http://127.0.0.1:PORT`, without a slash at the end.
    #[must_use]
    pub fn http_url(&self) -> String {
        format!("http://{}", self.http)
    }

    /// Where HTTP is listened for.
    #[must_use]
    pub fn http_addr(&self) -> SocketAddr {
        self.http
    }

    /// Where SMTP is listened for.
    #[must_use]
    pub fn smtp_addr(&self) -> SocketAddr {
        self.smtp
    }

    /// The log's file.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// The log as it is now.
    ///
    /// # Errors
    /// As `Log::read`.
    pub fn read_log(&self) -> Result<Log, RigError> {
        Log::read(&self.log)
    }

    /// What was seen and done so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        *self.desk.counts().borrow()
    }

    // ------------------------------------------------------------------------------------------------

    /// Adds a scripted fault; rules are looked at in the order in which they were added.
    pub fn fail(&self, rule: Rule) {
        lock(&self.desk.faults).add(rule);
    }

    /// Sets the faults by chance anew.
    pub fn set_rates(&self, rates: FaultRates) {
        lock(&self.desk.faults).set_rates(rates);
    }

    /// Ends all faults, scripted and by chance, and releases whatever is held or hangs.
    pub fn heal(&self) {
        lock(&self.desk.faults).heal();
        self.release();
    }

    /// Sets what every effect takes at least.
    pub fn set_latency(&self, latency: Duration) {
        self.desk.set_latency(latency);
    }

    /// Sets the secrets of `/webhooks/` anew.
    pub fn set_webhook_secrets(&self, secrets: impl IntoIterator<Item = String>) {
        self.desk.set_webhook_secrets(secrets.into_iter().collect());
    }

    /// Forgets all keys, as if their window were over. Effects can still be asked for.
    pub fn forget_keys(&self) {
        self.desk.forget_decided();
    }

    /// From now on requests for an effect are held back, before their effect or before their answer.
    pub fn hold(&self, hold: Hold) {
        self.desk.holds.send_modify(|holds| match hold {
            Hold::BeforeApply => holds.before_apply = true,
            Hold::BeforeAnswer => holds.before_answer = true,
        });
    }

    /// Holds answers back: requests take effect and wait.
    pub fn hold_answers(&self) {
        self.hold(Hold::BeforeAnswer);
    }

    /// Lets everything go on that is held or hangs, and holds no more.
    pub fn release(&self) {
        self.desk.holds.send_modify(|holds| {
            holds.before_apply = false;
            holds.before_answer = false;
            holds.hangs_released = holds.hangs_released.wrapping_add(1);
        });
    }

    /// Refuses connections, and cuts those that are open, whatever they wait for.
    pub async fn listener_off(&mut self) {
        if let Some(mut listening) = self.listening.take() {
            listening.shutdown().await;
        }
    }

    /// Listens again, on the same ports.
    ///
    /// # Errors
    /// `Io` when somebody else took a port meanwhile.
    pub async fn listener_on(&mut self) -> Result<(), RigError> {
        if self.listening.is_some() {
            return Ok(());
        }
        let http = net::listen(self.http).await?;
        let smtp = net::listen(self.smtp).await?;
        let mut listening = JoinSet::new();
        let desk = Arc::clone(&self.desk);
        listening.spawn(accept(http, move |stream| http::serve(stream, Arc::clone(&desk))));
        let desk = Arc::clone(&self.desk);
        listening.spawn(accept(smtp, move |stream| smtp::serve(stream, Arc::clone(&desk))));
        self.listening = Some(listening);
        Ok(())
    }

    // ------------------------------------------------------------------------------------------------

    /// Waits until the counts satisfy `reached`.
    ///
    /// # Errors
    /// `TimedOut` with `what` and the counts as they are.
    pub async fn wait_for(
        &self,
        what: &str,
        bound: Duration,
        reached: impl FnMut(&Counts) -> bool,
    ) -> Result<Counts, RigError> {
        wait::until_seen(self.desk.counts(), what, bound, reached).await
    }

    /// Waits until at least `n` requests for an effect were received since the start.
    ///
    /// # Errors
    /// `TimedOut` with the counts.
    pub async fn wait_received(&self, n: u64, bound: Duration) -> Result<Counts, RigError> {
        self.wait_for(&format!("{n} requests received"), bound, |counts| counts.received >= n).await
    }

    /// Waits until at least `n` effects took place since the start.
    ///
    /// # Errors
    /// `TimedOut` with the counts.
    pub async fn wait_applied(&self, n: u64, bound: Duration) -> Result<Counts, RigError> {
        self.wait_for(&format!("{n} effects applied"), bound, |counts| counts.applied >= n).await
    }

    /// Waits until at least `n` answers left since the start.
    ///
    /// # Errors
    /// `TimedOut` with the counts.
    pub async fn wait_answered(&self, n: u64, bound: Duration) -> Result<Counts, RigError> {
        self.wait_for(&format!("{n} answers"), bound, |counts| counts.answered >= n).await
    }

    /// Waits until at least `n` requests are held back at the same time.
    ///
    /// # Errors
    /// `TimedOut` with the counts.
    pub async fn wait_held(&self, n: u64, bound: Duration) -> Result<Counts, RigError> {
        self.wait_for(&format!("{n} requests held back"), bound, |counts| counts.held >= n).await
    }
}

// ----------------------------------------------------------------------------------------------------

/// Takes connections until dropped; they go with it.
async fn accept<F>(listener: TcpListener, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        // A connection that was gone before it was taken is no reason to stop.
        if let Ok((stream, _)) = listener.accept().await {
            connections.spawn(serve(stream));
        }
    }
}
