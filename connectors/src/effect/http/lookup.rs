//! Asks a provider whether an effect took place.
//!
//! Reads: a rendered look-up. Gives: what the answer shows, by the connector's own conditions.
//! Never: takes an answer that failed, broke off or cannot be read for "not found".

use oncely_core::connector::{CallRule, LookupRule};
use oncely_core::effect::lookup::{Finding, LookedUp};
use oncely_core::effect::request::HttpRequest;
use oncely_core::expr::{Expr, Scope};
use oncely_core::key::Key;
use oncely_core::value::Value;

use super::caller::{Caller, Wanted};
use super::dispatch::Dispatch;
use super::outcome::{Reply, Seen, retry_after_ms};
use crate::effect::egress::Egress;
use crate::effect::performer::PerformerError;
use crate::effect::record::{Answer, Reads, Record};
use crate::secret::SecretSource;

/// Makes the look-ups of one effect.
#[derive(Debug)]
pub(in crate::effect) struct Asker {
    caller: Caller,
    conditions: Conditions,
}

/// What an answer must say.
#[derive(Debug)]
pub(super) struct Conditions {
    done: Expr,
    not_found: Option<Expr>,
    record: Record,
    /// The part that stands for the call's own answer, and what is kept of it.
    answer: Option<(Expr, Record)>,
}

impl Asker {
    pub(in crate::effect) fn new(
        call: &CallRule,
        rule: &LookupRule,
        secrets: &dyn SecretSource,
        egress: &Egress,
    ) -> Result<Self, PerformerError> {
        let bounds = (call.timeout, call.limits);
        let dispatch = Dispatch::plain(&rule.request, secrets, egress)?;
        Ok(Self {
            caller: Caller::new(&rule.request, bounds, None, dispatch)?,
            conditions: Conditions::of(call, rule)?,
        })
    }

    /// Asks once. `None`: not asked, the right to send had ended.
    pub(in crate::effect) async fn ask<F>(
        &self,
        key: &Key,
        request: &HttpRequest,
        may_send: F,
    ) -> Option<LookedUp>
    where
        F: Fn() -> bool + Send + Sync + 'static,
    {
        let wanted = |status| if status < 500 { Wanted::WHOLE } else { Wanted::TEXT };
        let seen = self.caller.call((key, ""), request, may_send, wanted).await?;
        let (finding, cause) = self.conditions.finding(&seen);
        let (status, text) = self.caller.text(&seen, &cause);
        let found = matches!(finding, Finding::Found(_));
        let text = if found { String::new() } else { text };
        Some(LookedUp { finding, status, text })
    }
}

impl Conditions {
    fn of(call: &CallRule, rule: &LookupRule) -> Result<Self, PerformerError> {
        let own = |name: &str| rule.record.iter().any(|(known, _)| **known == *name);
        let rest = call.record.iter().filter(|(name, _)| !own(name));
        let rest = rest.map(|(name, expr)| Ok((name.clone(), Expr::compile(expr.text())?)));
        let rest = rest.collect::<Result<Vec<_>, PerformerError>>()?;
        let answer = match &rule.answer {
            None => None,
            Some(answer) => Some((Expr::compile(answer.text())?, Record::new(&rest)?)),
        };
        Ok(Self {
            answer,
            done: Expr::compile(rule.done.text())?,
            not_found: rule.not_found.as_ref().map(|e| Expr::compile(e.text())).transpose()?,
            record: Record::new(&rule.record)?,
        })
    }

    /// The one place where a look-up gets its class; the text is what a person should know beside the
    /// answer's own.
    pub(super) fn finding(&self, seen: &Seen) -> (Finding, String) {
        let silent = |cause: &String| (Finding::Unanswered { retry_after_ms: None }, cause.clone());
        match seen {
            Seen::Unsendable { cause } => (Finding::Unaskable, cause.clone()),
            Seen::Misconfigured { cause }
            | Seen::NotReady { cause }
            | Seen::ConnectFailed { cause }
            | Seen::BrokenBeforeFirstByte { cause }
            | Seen::BrokenAfterSend { cause } => silent(cause),
            Seen::Answered(reply) => self.answered(reply),
        }
    }

    fn answered(&self, reply: &Reply) -> (Finding, String) {
        let unanswered = |cause: String| {
            (Finding::Unanswered { retry_after_ms: retry_after_ms(&reply.headers) }, cause)
        };
        match reply.status {
            401 | 403 | 407 => return (Finding::Halted, String::new()),
            429 | 500.. => return unanswered(String::new()),
            _ => {}
        }
        let success = (200..300).contains(&reply.status);
        let done = if success { holds(&self.done, reply) } else { Ok(false) };
        match (done, &self.not_found) {
            (Ok(true), _) => match self.recorded(reply) {
                Ok(result) => (Finding::Found(result), String::new()),
                Err(cause) => unanswered(format!("found, but {cause}")),
            },
            // Where both could be read, the one that is true counts; one that cannot be read says nothing.
            (_, Some(not_found)) if holds(not_found, reply) == Ok(true) => {
                (Finding::NotFound, String::new())
            }
            (Err(cause), _) => unanswered(format!("`done` cannot be read: {cause}")),
            (Ok(false), Some(_)) if success => (Finding::Undecided, String::new()),
            (Ok(false), None) if success => (Finding::NotFound, String::new()),
            (Ok(false), _) => unanswered(String::new()),
        }
    }

    fn recorded(&self, reply: &Reply) -> Result<Value, String> {
        if !reply.complete {
            return Err("the answer broke off or is too large".to_owned());
        }
        let headers =
            || reply.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let answer = Answer { status: reply.status, body: &reply.body };
        let own = self.record.of(&answer, headers()).map_err(|error| error.to_string())?;
        let Some((part, record)) = &self.answer else { return Ok(own) };
        let response = Reads::of(std::iter::once(part)).response(&answer, headers());
        let response = response.map_err(|error| error.to_string())?;
        let scope = Scope { response: Some(&response), ..Scope::default() };
        let part = part.eval(&scope).map_err(|error| format!("`answer`: {error}"))?;
        let status = Value::Int(reply.status.into());
        let stands_for = Value::object([("status", status), ("json", part)]);
        let rest = record.of_response(&stands_for).map_err(|error| error.to_string())?;
        Ok(merged(own, rest))
    }
}

/// The members of both.
fn merged(own: Value, rest: Value) -> Value {
    match (own, rest) {
        (Value::Object(own), Value::Object(rest)) => {
            let of = |members: &oncely_core::value::Object| -> Vec<_> {
                members.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
            };
            Value::object([of(&own), of(&rest)].concat())
        }
        (own, _) => own,
    }
}

/// Whether a condition over `response` holds for an answer.
pub(super) fn holds(condition: &Expr, reply: &Reply) -> Result<bool, String> {
    let reads = Reads::of(std::iter::once(condition));
    if reads.body() && !reply.complete {
        return Err("the answer broke off or is too large".to_owned());
    }
    let answer = Answer { status: reply.status, body: &reply.body };
    let headers = reply.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let response = reads.response(&answer, headers).map_err(|error| error.to_string())?;
    let scope = Scope { response: Some(&response), ..Scope::default() };
    condition.is_true(&scope).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderMap;

    use super::*;

    fn conditions(done: &str, not_found: Option<&str>) -> Conditions {
        let id = Expr::compile("response.json.items[0].id").unwrap();
        Conditions {
            done: Expr::compile(done).unwrap(),
            not_found: not_found.map(|text| Expr::compile(text).unwrap()),
            record: Record::new(&[("id".into(), id)]).unwrap(),
            answer: None,
        }
    }

    fn answer(status: u16, body: &str) -> Seen {
        Seen::Answered(Reply {
            status,
            headers: HeaderMap::new(),
            body: body.as_bytes().to_vec(),
            complete: true,
        })
    }

    fn unanswered() -> Finding {
        Finding::Unanswered { retry_after_ms: None }
    }

    #[test]
    fn a_list_that_is_empty_says_not_found() {
        let list = conditions("response.json.items.size() > 0", None);
        let found = Finding::Found(Value::object([("id", Value::text("st_1"))]));
        for (status, body, want) in [
            (200, r#"{"items":[{"id":"st_1"}]}"#, found),
            (200, r#"{"items":[]}"#, Finding::NotFound),
            (200, r#"{"items":[{}]}"#, unanswered()),
            (200, r#"{"error":"try later"}"#, unanswered()),
            (200, "<html>", unanswered()),
            (404, r#"{"items":[]}"#, unanswered()),
            (301, "", unanswered()),
            (401, r#"{"items":[]}"#, Finding::Halted),
            (429, "", unanswered()),
            (503, r#"{"items":[]}"#, unanswered()),
        ] {
            assert_eq!(list.finding(&answer(status, body)).0, want, "{status} {body}");
        }
    }

    #[test]
    fn the_calls_own_record_reads_the_part_that_stands_for_its_answer() {
        let mut list = conditions("response.json.items.size() > 0", None);
        let charge = Expr::compile("response.json.charge").unwrap();
        let part = Expr::compile("response.json.items[0]").unwrap();
        list.answer = Some((part, Record::new(&[("charge".into(), charge)]).unwrap()));
        let both = [("id", Value::text("st_1")), ("charge", Value::text("ch_1"))];
        let seen = answer(200, r#"{"items":[{"id":"st_1","charge":"ch_1"}]}"#);
        assert_eq!(list.finding(&seen).0, Finding::Found(Value::object(both)));
        let seen = answer(200, r#"{"items":[{"id":"st_1"}]}"#);
        assert_eq!(list.finding(&seen).0, unanswered());
    }

    #[test]
    fn h8_missing_is_what_the_file_says_and_nothing_else() {
        let one =
            conditions(r#"response.json.items[0].state == "paid""#, Some("response.status == 404"));
        for (status, body, want) in [
            (404, "no such thing", Finding::NotFound),
            (200, r#"{"items":[{"state":"open","id":"x"}]}"#, Finding::Undecided),
            (400, "", unanswered()),
            (200, "", unanswered()),
        ] {
            assert_eq!(one.finding(&answer(status, body)).0, want, "{status} {body}");
        }
        let away = conditions("false", Some("response.status >= 500"));
        assert_eq!(away.finding(&answer(500, "")).0, unanswered(), "an error is no answer");
        let refused = Seen::ConnectFailed { cause: "refused".to_owned() };
        assert_eq!(away.finding(&refused), (unanswered(), "refused".to_owned()));
    }

    #[test]
    fn half_an_answer_says_nothing() {
        let list = conditions("response.json.items.size() > 0", None);
        let cut = Seen::Answered(Reply {
            status: 200,
            headers: HeaderMap::new(),
            body: br#"{"items":[]}"#.to_vec(),
            complete: false,
        });
        assert_eq!(list.finding(&cut).0, unanswered());
    }
}
