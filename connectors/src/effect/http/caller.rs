//! Sends one request, and says what was seen. Whose request it is, and what the answer means, others know.

use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use native_tls::TlsConnector;
use oncely_core::cause::chain;
use oncely_core::connector::{HttpRule, Limits, Timeout};
use oncely_core::effect::request::HttpRequest;
use oncely_core::key::Key;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Body, Client, Method, Request, Response, Url, redirect, retry};

use super::dispatch::{Barred, Dispatch, MovedUrl};
use super::outcome::{Reply, Seen};
use super::setup::{header_name, is_framing};
use crate::effect::egress::EgressError;
use crate::effect::gate::{Gate, GatedBody, Passage, ShutOnDrop};
use crate::effect::performer::PerformerError;
use crate::effect::text::{Redactor, TEXT_BYTES_READ};

/// Bytes of an answer that are read when it is to be recorded. A larger one cannot be.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of an answer that are read away, unwanted, so that the connection can be used again.
const DRAIN_BYTES_MAX: usize = 64 * 1024;

/// How long an unwanted rest may take to arrive; a connection is not worth more.
const DRAIN_MS_MAX: u64 = 250;

/// How long an idle connection is kept. Below what servers keep (Node: 5 s), or a request would now
/// and then be written into a connection that is just being closed, with an unknown outcome.
const POOL_IDLE_MS: u64 = 4_000;

/// Bytes that a request's headers may have; within it a head fits the connection's buffer, so
/// nothing is written before the gate is passed.
const HEADER_BYTES_MAX: usize = 64 * 1024;

/// Sends the requests of one effect to one host.
#[derive(Debug)]
pub(super) struct Caller {
    client: Client,
    dispatch: Dispatch,
    key_header: Option<HeaderName>,
    redactor: Redactor,
    /// The first url seen, parsed: most effects have only one.
    first_url: OnceLock<(Box<str>, Url)>,
}

/// How much of an answer's body somebody wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) bytes: usize,
    /// Without all of it the answer says nothing.
    pub(super) whole: bool,
}

impl Wanted {
    pub(super) const NOTHING: Self = Self { bytes: 0, whole: false };
    /// What is kept with an attempt.
    pub(super) const TEXT: Self = Self { bytes: TEXT_BYTES_READ, whole: false };
    pub(super) const WHOLE: Self = Self { bytes: ANSWER_BYTES_MAX, whole: true };
}

/// Why a request was not even tried.
enum Unsent {
    Setting(String),
    Data(String),
    /// Something is missing for this one call.
    NotReady(String),
}

impl From<Unsent> for Seen {
    fn from(unsent: Unsent) -> Self {
        match unsent {
            Unsent::Setting(cause) => Self::Misconfigured { cause },
            Unsent::Data(cause) => Self::Unsendable { cause },
            Unsent::NotReady(cause) => Self::NotReady { cause },
        }
    }
}

/// The same for all clients of the process: to make one, every certificate of the system is read.
fn tls() -> Result<TlsConnector, PerformerError> {
    static TLS: OnceLock<TlsConnector> = OnceLock::new();
    if let Some(made) = TLS.get() {
        return Ok(made.clone());
    }
    let made = TlsConnector::builder().request_alpns(&["http/1.1"]).build();
    let made = made.map_err(PerformerError::Tls)?;
    Ok(TLS.get_or_init(|| made).clone())
}

impl Caller {
    /// `key_header` carries the effect key, where the provider reads one.
    pub(super) fn new(
        http: &HttpRule,
        (timeout, limits): (Timeout, Limits),
        key_header: Option<&str>,
        mut dispatch: Dispatch,
    ) -> Result<Self, PerformerError> {
        if let Some((name, _)) = http.headers.iter().find(|(name, _)| is_framing(name)) {
            return Err(PerformerError::Framing { name: name.to_string() });
        }
        if Method::from_bytes(http.method.as_bytes()).is_err() {
            return Err(PerformerError::Method { method: http.method.to_string() });
        }
        let idle = usize::try_from(limits.concurrency).unwrap_or(usize::MAX);
        let client = Client::builder()
            .user_agent(concat!("oncely/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .referer(false)
            .no_proxy()
            .http1_only()
            .tls_backend_preconfigured(tls()?)
            .connect_timeout(Duration::from_millis(timeout.connect_ms))
            .timeout(Duration::from_millis(timeout.total_ms))
            .pool_idle_timeout(Duration::from_millis(POOL_IDLE_MS))
            .pool_max_idle_per_host(idle);
        // The kernel goes on sending what a dead process has written. Beyond the time-out it must not: a
        // request that arrived after "not found" was believed would act a second time.
        #[cfg(target_os = "linux")]
        let client = client.tcp_user_timeout(Duration::from_millis(timeout.total_ms));
        let redactor = Redactor::new(std::mem::take(&mut dispatch.shown));
        Ok(Self {
            client: dispatch.resolving(client).build().map_err(PerformerError::Client)?,
            dispatch,
            key_header: key_header.map(header_name).transpose()?,
            redactor,
            first_url: OnceLock::new(),
        })
    }

    /// See [`Dispatch::moved`].
    pub(super) fn moved(&self, url: &str) -> Option<MovedUrl> {
        self.dispatch.moved(url)
    }

    /// Sends `request` once, for this effect of this tenant. `wanted` says by its status how much of an answer's body is read. `None`:
    /// not sent, the sender's right to send had ended.
    pub(super) async fn call<F>(
        &self,
        whose: (&Key, &str),
        request: &HttpRequest,
        may_send: F,
        wanted: impl Fn(u16) -> Wanted + Send,
    ) -> Option<Seen>
    where
        F: Fn() -> bool + Send + Sync + 'static,
    {
        let gate = Gate::new(may_send);
        if !gate.may_send() {
            return None;
        }
        match self.request(whose, request, &gate) {
            Ok(built) => self.send(built, &gate, wanted).await,
            Err(unsent) => Some(unsent.into()),
        }
    }

    /// `None`: held back by the gate.
    async fn send<F>(
        &self,
        request: Request,
        gate: &Arc<Gate<F>>,
        wanted: impl Fn(u16) -> Wanted + Send,
    ) -> Option<Seen>
    where
        F: Fn() -> bool + Send + Sync + 'static,
    {
        let _shut = ShutOnDrop(gate);
        // Nobody asks for an empty body, so here the gate is passed before connecting.
        if request.body().is_none() && !gate.pass() {
            return None;
        }
        match self.client.execute(request).await {
            Ok(response) => Some(Seen::Answered(read(response, wanted).await)),
            Err(error) => broken(&error.without_url(), gate.shut()),
        }
    }

    fn request<F>(
        &self,
        whose: (&Key, &str),
        request: &HttpRequest,
        gate: &Arc<Gate<F>>,
    ) -> Result<Request, Unsent>
    where
        F: Fn() -> bool + Send + Sync + 'static,
    {
        let method = Method::from_bytes(request.method.as_bytes());
        let method = method.map_err(|_| Unsent::Data("the method is none".to_owned()))?;
        let mut built = Request::new(method, self.url(&request.url)?);
        *built.headers_mut() = self.headers(whose, request)?;
        let body = request.body.as_deref().filter(|body| !body.is_empty());
        *built.body_mut() = body.map(|body| {
            Body::wrap(GatedBody::new(Arc::clone(gate), Bytes::copy_from_slice(body.as_bytes())))
        });
        Ok(built)
    }

    fn url(&self, text: &str) -> Result<Url, Unsent> {
        if let Some((known, url)) = self.first_url.get()
            && **known == *text
        {
            return Ok(url.clone());
        }
        let url =
            Url::parse(text).map_err(|error| Unsent::Data(format!("the url is none: {error}")))?;
        self.dispatch.check(&url).map_err(|barred| match barred {
            Barred::Moved => {
                let cause = "the stored request goes to another host than the effect now names";
                Unsent::Setting(cause.to_owned())
            }
            Barred::ByGuard(error) => Unsent::Data(error.to_string()),
        })?;
        // A lost race keeps another url of the same effect.
        drop(self.first_url.set((text.into(), url.clone())));
        Ok(url)
    }

    fn headers(
        &self,
        (key, tenant): (&Key, &str),
        request: &HttpRequest,
    ) -> Result<HeaderMap, Unsent> {
        let mut headers = HeaderMap::with_capacity(request.headers.len().saturating_add(4));
        let mut bytes = 0_usize;
        for (name, value) in &request.headers {
            bytes = bytes.saturating_add(name.len()).saturating_add(value.len());
            let checked = HeaderName::from_bytes(name.as_bytes()).ok();
            let checked = checked.zip(HeaderValue::from_str(value).ok());
            let Some((checked, value)) = checked else {
                let cause = format!("header `{name}` cannot be sent: a line break in it?");
                return Err(Unsent::Data(cause));
            };
            if is_framing(checked.as_str()) {
                return Err(Unsent::Setting(format!("header `{name}` belongs to the connection")));
            }
            headers.append(checked, value);
        }
        if bytes > HEADER_BYTES_MAX {
            return Err(Unsent::Data(format!("the headers have {bytes} bytes, too many")));
        }
        if let Some(name) = &self.key_header {
            let value = HeaderValue::try_from(key.wire());
            let value = value.map_err(|error| Unsent::Data(error.to_string()))?;
            headers.insert(name.clone(), value);
        }
        let body = request.body.as_deref().unwrap_or_default();
        let proven = self.dispatch.prove(&key.wire(), tenant, body.as_bytes(), &mut headers);
        proven.map_err(|error| match error.is_of_event() {
            true => Unsent::Data(error.to_string()),
            false => Unsent::NotReady(error.to_string()),
        })?;
        Ok(headers)
    }

    /// The status, if there was an answer, and what a person should read of it.
    pub(super) fn text(&self, seen: &Seen, cause: &str) -> (Option<u16>, String) {
        let (status, body) = match seen {
            Seen::Answered(reply) => (Some(reply.status), &*reply.body),
            Seen::Misconfigured { .. }
            | Seen::Unsendable { .. }
            | Seen::NotReady { .. }
            | Seen::ConnectFailed { .. }
            | Seen::BrokenBeforeFirstByte { .. }
            | Seen::BrokenAfterSend { .. } => (None, &[][..]),
        };
        let body = String::from_utf8_lossy(body.get(..TEXT_BYTES_READ).unwrap_or(body));
        let text = match (cause, &*body) {
            ("", body) => self.redactor.text(body),
            (cause, "") => self.redactor.text(cause),
            (cause, body) => self.redactor.text(&format!("{cause}; {body}")),
        };
        (status, text)
    }
}

/// Reads as much of the body as somebody wants, and the rest away.
async fn read(mut response: Response, wanted: impl Fn(u16) -> Wanted) -> Reply {
    let status = response.status().as_u16();
    let headers = std::mem::take(response.headers_mut());
    let wanted = wanted(status);
    let mut body = Vec::new();
    let complete = read_wanted(&mut response, wanted.bytes, &mut body).await;
    if complete == Some(false) && !wanted.whole {
        // Only the connection depends on it.
        let rest = Duration::from_millis(DRAIN_MS_MAX);
        drop(tokio::time::timeout(rest, drain(&mut response)).await);
    }
    Reply { status, headers, body, complete: complete == Some(true) }
}

/// `Some(true)`: all of it was read; `Some(false)`: there is more; `None`: it broke off.
async fn read_wanted(response: &mut Response, wanted: usize, body: &mut Vec<u8>) -> Option<bool> {
    if wanted == 0 {
        return Some(false);
    }
    loop {
        let chunk = response.chunk().await.ok()?;
        let Some(chunk) = chunk else { return Some(true) };
        let room = wanted.saturating_sub(body.len());
        match chunk.get(..room) {
            Some(part) if part.len() < chunk.len() => {
                body.extend_from_slice(part);
                return Some(false);
            }
            _ => body.extend_from_slice(&chunk),
        }
    }
}

async fn drain(response: &mut Response) {
    let mut bytes = 0_usize;
    while let Ok(Some(chunk)) = response.chunk().await {
        bytes = bytes.saturating_add(chunk.len());
        if bytes > DRAIN_BYTES_MAX {
            return;
        }
    }
}

/// What a failed call shows, by the type of its error and by what happened at the gate.
fn broken(error: &reqwest::Error, passage: Passage) -> Option<Seen> {
    let cause = cause_of(error);
    if let Some(refused) = find::<EgressError>(error) {
        return Some(Seen::Unsendable { cause: refused.to_string() });
    }
    Some(match passage {
        Passage::Refused => return None,
        _ if error.is_builder() => Seen::Unsendable { cause },
        _ if error.is_connect() => Seen::ConnectFailed { cause },
        Passage::NeverCame => Seen::BrokenBeforeFirstByte { cause },
        Passage::Passed => Seen::BrokenAfterSend { cause },
    })
}

/// What the client wraps every failure in; the outcome's class says it already.
const WRAPPINGS: [&str; 3] =
    ["error sending request: ", "client error (Connect): ", "client error (SendRequest): "];

/// What went wrong, without the client's wrappings.
fn cause_of(error: &reqwest::Error) -> String {
    let text = chain(error);
    let mut rest = text.as_str();
    for wrapping in WRAPPINGS {
        rest = rest.strip_prefix(wrapping).unwrap_or(rest);
    }
    rest.to_owned()
}

fn find<'e, T: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}
