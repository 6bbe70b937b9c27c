//! Endpoints of one effect's webhooks that said that they are gone (status 410).
//!
//! What this process hears is in force at once, and for the others when the settler has written it.
//! What the database has is read anew about once a second, so that a person's word counts everywhere.
//! Nothing is sent before it was read for the first time.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use oncely_core::connector::{CallRule, RequestRule};
use oncely_core::effect::outcome::{Attempt, OutcomeClass};
use oncely_core::effect::request::Request;

use super::Shared;
use crate::store::{PgConnection, StoreError, endpoint};

/// The status by which a receiver says that it wants no more.
const GONE: u16 = 410;

/// See the module.
#[derive(Debug)]
pub(super) struct Endpoints(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// What the database has; `None` until it was read.
    kept: Option<BTreeSet<Box<str>>>,
    /// Heard here, and not written yet.
    heard: BTreeSet<Box<str>>,
}

impl Endpoints {
    /// `None` for effects that are no webhooks.
    pub(super) fn of(call: &CallRule) -> Option<Self> {
        match call.request {
            RequestRule::Webhook(_) => Some(Self(Mutex::default())),
            RequestRule::Http(_) | RequestRule::Smtp(_) | RequestRule::Record(_) => None,
        }
    }

    pub(super) fn are_known(&self) -> bool {
        self.state().kept.is_some()
    }

    /// Why this request is not sent, if it is not.
    pub(super) fn refusal(&self, request: &Request) -> Option<String> {
        let state = self.state();
        let url = url(request)?;
        let gone =
            state.heard.contains(url) || state.kept.as_ref().is_some_and(|k| k.contains(url));
        gone.then(|| {
            "not sent: the endpoint said before that it is gone (410); `oncely webhooks enable` when \
             it is there again"
                .to_owned()
        })
    }

    /// Takes in what an endpoint answered.
    pub(super) fn answered(&self, request: &Request, attempt: &Attempt) {
        let refused = attempt.outcome.class() == OutcomeClass::Rejected;
        if let Some(url) = url(request).filter(|_| refused && attempt.status == Some(GONE)) {
            self.state().heard.insert(url.into());
        }
    }

    fn heard(&self) -> Vec<Box<str>> {
        self.state().heard.iter().cloned().collect()
    }

    fn written(&self, urls: &[Box<str>]) {
        let mut state = self.state();
        for url in urls {
            state.heard.remove(url);
            if let Some(kept) = &mut state.kept {
                kept.insert(url.clone());
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn url(request: &Request) -> Option<&str> {
    match request {
        Request::Http(http) => Some(&http.url),
        Request::Email(_) | Request::Record(_) => None,
    }
}

// --------------------------------------------------------------------------------------------- //

/// Endpoints that one transaction writes.
#[derive(Debug, Default)]
pub(super) struct Writing {
    /// By rule.
    lanes: Vec<(usize, Vec<Box<str>>)>,
    /// Effect and url of those that nobody knew.
    new: Vec<(Box<str>, String)>,
}

impl Writing {
    /// Writes what was heard, in the settler's transaction.
    pub(super) async fn all(tx: &mut PgConnection, shared: &Shared) -> Result<Self, StoreError> {
        let mut writing = Self::default();
        for lane in shared.lanes.iter().flatten() {
            let Some(endpoints) = &lane.endpoints else { continue };
            let heard = endpoints.heard();
            if heard.is_empty() {
                continue;
            }
            let new = endpoint::disable(tx, shared.connector_id, &lane.name, &heard).await?;
            writing.new.extend(new.into_iter().map(|url| (lane.name.clone(), url)));
            writing.lanes.push((lane.rule, heard));
        }
        Ok(writing)
    }

    /// The transaction is durable.
    pub(super) fn done(self, shared: &Shared) {
        for (rule, urls) in &self.lanes {
            if let Some(endpoints) = shared.lane(*rule).and_then(|lane| lane.endpoints.as_ref()) {
                endpoints.written(urls);
            }
        }
        for (effect, url) in &self.new {
            // The rest of a url may be a secret of its receiver.
            let host = url::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
            tracing::error!(
                effect = &**effect,
                host = host.unwrap_or_default(),
                look = "oncely webhooks list",
                "endpoint disabled: it answered that it is gone (410), and nothing more is sent there"
            );
        }
    }
}

/// Reads anew which endpoints are disabled.
pub(super) async fn refresh(
    connection: &mut PgConnection,
    shared: &Shared,
) -> Result<(), StoreError> {
    let lanes = || shared.lanes.iter().flatten().filter(|lane| lane.endpoints.is_some());
    if lanes().next().is_none() {
        return Ok(());
    }
    let gone = endpoint::gone(connection, shared.connector_id).await?;
    for lane in lanes() {
        let Some(endpoints) = &lane.endpoints else { continue };
        let of_lane = gone.iter().filter(|(name, _)| **name == *lane.name);
        let kept = of_lane.map(|(_, url)| url.as_str().into()).collect();
        if endpoints.state().kept.replace(kept).is_none() {
            lane.set_backlog(true);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use oncely_core::effect::outcome::Outcome;
    use oncely_core::effect::request::HttpRequest;

    use super::*;

    fn post(url: &str) -> Request {
        let (method, headers, body) = ("POST".into(), Vec::new(), Some("{}".into()));
        Request::Http(HttpRequest { method, url: url.into(), headers, body })
    }

    fn answer(endpoints: &Endpoints, url: &str, outcome: Outcome, status: u16) {
        let attempt = Attempt { outcome, status: Some(status), text: String::new() };
        endpoints.answered(&post(url), &attempt);
    }

    #[test]
    fn only_who_says_so_is_gone() {
        let endpoints = Endpoints(Mutex::default());
        assert!(!endpoints.are_known());
        answer(&endpoints, "https://a.test/", Outcome::Rejected, 410);
        answer(&endpoints, "https://b.test/", Outcome::Rejected, 404);
        answer(&endpoints, "https://c.test/", Outcome::Unknown, 410);
        assert!(endpoints.refusal(&post("https://a.test/")).is_some(), "at once");
        for url in ["https://b.test/", "https://c.test/", "https://a.test/other"] {
            assert_eq!(endpoints.refusal(&post(url)), None, "{url}");
        }
        let heard = endpoints.heard();
        endpoints.state().kept = Some(BTreeSet::new());
        assert!(endpoints.refusal(&post("https://a.test/")).is_some(), "until it is written");
        endpoints.written(&heard);
        assert!(endpoints.heard().is_empty());
        assert!(endpoints.refusal(&post("https://a.test/")).is_some());
        endpoints.state().kept = Some(BTreeSet::new());
        assert_eq!(endpoints.refusal(&post("https://a.test/")), None, "a person enabled it");
    }
}
