//! Performs the calls of one HTTP effect.

use oncely_core::connector::{CallRule, HttpRule};
use oncely_core::effect::outcome::{Attempt, Outcome};
use oncely_core::effect::request::{HttpRequest, Request};
use oncely_core::key::Key;

use super::caller::{Caller, Wanted};
use super::dispatch::{Dispatch, MovedUrl};
use super::outcome::{Seen, outcome};
use super::status::Statuses;
use crate::effect::performer::{Moved, Performed, PerformerError};
use crate::effect::record::Record;

/// Performs the calls of one HTTP effect.
#[derive(Debug)]
pub struct HttpPerformer {
    caller: Caller,
    record: Record,
    statuses: Statuses,
}

impl HttpPerformer {
    pub(in crate::effect) fn new(
        rule: &CallRule,
        http: &HttpRule,
        dispatch: Dispatch,
    ) -> Result<Self, PerformerError> {
        let key_header = rule.profile.key_header.as_deref();
        Ok(Self {
            caller: Caller::new(http, (rule.timeout, rule.limits), key_header, dispatch)?,
            record: Record::new(&rule.record)?,
            statuses: Statuses::of(&rule.profile),
        })
    }

    /// Sends `request` once. See [`crate::effect::performer::Performer::perform`].
    pub async fn perform<F>(
        &self,
        key: &Key,
        tenant: &str,
        request: &HttpRequest,
        may_send: F,
    ) -> Performed
    where
        F: Fn() -> bool + Send + Sync + 'static,
    {
        let wanted = |status| self.wanted(status);
        let seen = self.caller.call((key, tenant), request, may_send, wanted).await;
        seen.map_or(Performed::NotSent, |seen| Performed::Attempted(self.attempt(&seen)))
    }

    /// See [`crate::effect::performer::Performer::moved`].
    pub(in crate::effect) fn moved(&self, request: &HttpRequest) -> Option<Moved> {
        let MovedUrl { from, to, url } = self.caller.moved(&request.url)?;
        let there = url.map(|url| HttpRequest { url: url.into(), ..request.clone() });
        Some(Moved { from, to, request: there.map(Request::Http) })
    }

    fn wanted(&self, status: u16) -> Wanted {
        let success = self.statuses.may_be_done(status);
        if self.statuses.reads_body(status) || (success && self.record.reads_body()) {
            Wanted::WHOLE
        } else if success {
            Wanted::NOTHING
        } else {
            Wanted::TEXT
        }
    }

    fn attempt(&self, seen: &Seen) -> Attempt {
        let classified = outcome(seen, &self.record, &self.statuses);
        let (status, text) = self.caller.text(seen, &classified.cause);
        let done = matches!(classified.outcome, Outcome::Done(_));
        let text = if done { String::new() } else { text };
        Attempt { outcome: classified.outcome, status, text }
    }
}
