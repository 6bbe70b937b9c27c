//! What the provider says, in the words of each kind.
//!
//! Reads: a request and what the books found. Gives: answers. Changes nothing.

use serde_json::{Value, json};

use super::books::Effect;
use super::request::{Kind, Reply, Request, decoded, parameter};

/// The header by which an answer is known to be a repeated one.
pub(super) const REPLAYED: &str = "Idempotent-Replayed";

/// The refusal of a request that the kind's rules do not allow at all.
pub(super) fn malformed(request: &Request) -> Option<Reply> {
    let is_json = || serde_json::from_slice::<serde::de::IgnoredAny>(&request.body).is_ok();
    match request.kind {
        Kind::Unknown => Some(Reply::json(404, &json!({"error": {"message": "no such endpoint"}}))),
        Kind::Keyed if request.key.is_none() => {
            Some(Reply::json(400, &json!({"error": {"message": "Idempotency-Key is missing"}})))
        }
        Kind::Mail if !is_json() => {
            Some(mail_error(422, "validation_error", "The request body is no JSON."))
        }
        Kind::BillingV2 if !is_json() => Some(Reply::json(
            400,
            &json!({"error": {"type": "invalid_request_error", "message": "The body is no JSON."}}),
        )),
        Kind::Billing
        | Kind::BillingV2
        | Kind::Mail
        | Kind::Keyed
        | Kind::Webhook
        | Kind::Lookup
        | Kind::Plain
        | Kind::Model
        | Kind::Smtp => None,
    }
}

/// A webhook that is not shown to come from its sender.
pub(super) fn unsigned(why: &str) -> Reply {
    Reply::json(401, &json!({"error": {"message": why}}))
}

/// The same key came with another body.
pub(super) fn other_body(kind: Kind, key: &str) -> Reply {
    let words = "Keys for idempotent requests can only be used with the same parameters they were \
                 first used with. Try using a key other than";
    match kind {
        Kind::Billing | Kind::BillingV2 => Reply::json(
            400,
            &json!({"error": {"type": "idempotency_error",
                "message": format!("{words} '{key}' if you meant to execute a different request.")}}),
        ),
        Kind::Mail => mail_error(
            409,
            "invalid_idempotent_request",
            "Same idempotency key used with a different request payload.",
        ),
        Kind::Keyed
        | Kind::Webhook
        | Kind::Lookup
        | Kind::Plain
        | Kind::Model
        | Kind::Smtp
        | Kind::Unknown => {
            Reply::json(422, &json!({"error": {"message": "this key was used with another body"}}))
        }
    }
}

/// The first request of the key is not decided yet.
pub(super) fn in_flight(kind: Kind, key: &str) -> Reply {
    match kind {
        Kind::Billing | Kind::BillingV2 => Reply::json(
            409,
            &json!({"error": {"type": "invalid_request_error", "code": "idempotency_key_in_use",
                "message": format!("There is currently another in-progress request using this \
                    Idempotency Key ({key}). Please try again later.")}}),
        ),
        Kind::Mail => mail_error(
            409,
            "concurrent_idempotent_requests",
            "Same idempotency key used while original request is still in progress.",
        ),
        Kind::Keyed
        | Kind::Webhook
        | Kind::Lookup
        | Kind::Plain
        | Kind::Model
        | Kind::Smtp
        | Kind::Unknown => {
            Reply::json(409, &json!({"error": {"message": "this key is in flight"}}))
                .with("Retry-After", "1")
        }
    }
}

/// The kept answer of a key. Resend does not mark it; the others do.
pub(super) fn replayed(kind: Kind, answer: &Reply) -> Reply {
    if kind == Kind::Mail { answer.clone() } else { answer.clone().with(REPLAYED, "true") }
}

/// A status that is no success, in the kind's words.
pub(super) fn status(kind: Kind, status: u16, retry_after_s: Option<u64>) -> Reply {
    let words = match status {
        301 | 302 | 303 | 307 | 308 => "moved",
        400 => "malformed request",
        401 | 403 => "not allowed",
        402 => "card declined",
        404 => "not found",
        408 => "request took too long",
        422 => "cannot be done",
        429 => "too many requests",
        _ => "something went wrong",
    };
    let body = match kind {
        Kind::Mail => {
            let name = match (status, retry_after_s) {
                (429, Some(_)) => "rate_limit_exceeded",
                // Without a time to come back: the day's share is used up.
                (429, None) => "daily_quota_exceeded",
                _ => "application_error",
            };
            json!({"statusCode": status, "name": name, "message": words})
        }
        Kind::Model => {
            let code = match (status, retry_after_s) {
                (429, Some(_)) => "rate_limit_exceeded",
                (429, None) => "insufficient_quota",
                (404, _) => "model_not_found",
                _ => "server_error",
            };
            json!({"error": {"message": words, "type": code, "param": null, "code": code}})
        }
        Kind::Billing
        | Kind::BillingV2
        | Kind::Keyed
        | Kind::Webhook
        | Kind::Lookup
        | Kind::Plain
        | Kind::Smtp
        | Kind::Unknown => json!({"error": {"type": billing_type(status), "message": words}}),
    };
    let mut reply = Reply::json(status, &body);
    if (300..400).contains(&status) {
        reply = reply.with("Location", "/plain/elsewhere");
    }
    match retry_after_s {
        Some(seconds) => reply.with("Retry-After", seconds.to_string()),
        None => reply,
    }
}

/// The id of an effect: it tells which effect it was.
pub(super) fn id(request: &Request, effect_no: u64) -> String {
    let prefix = match request.kind {
        Kind::Billing => match resource(request) {
            "charges" => "ch",
            "payment_intents" => "pi",
            "refunds" => "re",
            "customers" => "cus",
            "invoices" => "in",
            _ => "obj",
        },
        Kind::Mail => return format!("00000000-0000-4000-8000-{effect_no:012x}"),
        Kind::BillingV2 => "v2",
        Kind::Keyed => "kd",
        Kind::Webhook => "wh",
        Kind::Lookup => "lk",
        Kind::Plain | Kind::Unknown => "pl",
        Kind::Model => "chatcmpl",
        Kind::Smtp => "smtp",
    };
    format!("{prefix}_{effect_no:08}")
}

/// The answer to a request that took effect.
pub(super) fn success(request: &Request, effect: &Effect) -> Reply {
    let body = match request.kind {
        Kind::Billing => charged(request, effect),
        Kind::Mail => json!({"id": effect.id}),
        Kind::BillingV2 => {
            let mut body = json!({"id": effect.id, "object": "v2.object", "livemode": false});
            let sent = serde_json::from_slice::<Value>(&request.body).unwrap_or_default();
            if let (Some(fields), Some(sent)) = (body.as_object_mut(), sent.as_object()) {
                for (name, value) in sent {
                    fields.entry(name.clone()).or_insert_with(|| value.clone());
                }
            }
            body
        }
        Kind::Model => return completion(request, effect),
        Kind::Keyed | Kind::Webhook | Kind::Lookup | Kind::Plain | Kind::Smtp | Kind::Unknown => {
            json!({"id": effect.id, "key": effect.key})
        }
    };
    Reply::json(200, &body)
}

/// An answer of a model: another one for each call, with what it used and the call's own number.
fn completion(request: &Request, effect: &Effect) -> Reply {
    let (prompt, completion) = (request.body.len() / 4, 8);
    let asked = serde_json::from_slice::<Value>(&request.body).unwrap_or_default();
    let model = asked.get("model").cloned().unwrap_or_default();
    let text = format!("answer {}", effect.effect_no);
    let body = json!({"id": effect.id, "object": "chat.completion", "model": model,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text},
            "finish_reason": "stop"}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion,
            "total_tokens": prompt.saturating_add(completion)}});
    Reply::json(200, &body).with("X-Request-Id", format!("req_{:08}", effect.effect_no))
}

/// The answer to a look-up.
pub(super) fn found(effects: &[&Effect]) -> Reply {
    let items: Vec<Value> = effects
        .iter()
        .map(|effect| json!({"id": effect.id, "key": effect.key, "status": "succeeded"}))
        .collect();
    let total = items.len();
    Reply::json(
        200,
        &json!({"object": "search_result", "data": items, "items": items, "total": total,
            "has_more": false}),
    )
}

/// What a look-up asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// `?key=…`
    Key(String),
    /// The last quoted word of a Stripe-like `search?query=metadata["…"]:"…"`.
    Metadata(String),
}

pub(super) fn asked_for(request: &Request) -> (&str, Asked) {
    let Some(endpoint) = request.path.strip_suffix("/search") else {
        return (&request.path, Asked::Key(request.key.clone().unwrap_or_default()));
    };
    let query = parameter(&request.query, "query").unwrap_or_default();
    let quoted = query.rsplit(['\'', '"']).nth(1).unwrap_or_default();
    (endpoint, Asked::Metadata(quoted.to_owned()))
}

/// The values of `metadata[…]` in a form.
pub(super) fn metadata(request: &Request) -> Vec<String> {
    let form = std::str::from_utf8(&request.body).unwrap_or_default();
    let pairs = form.split('&').filter_map(|pair| pair.split_once('='));
    let of_metadata = pairs.filter(|(name, _)| decoded(name).starts_with("metadata["));
    of_metadata.map(|(_, value)| decoded(value)).collect()
}

// ----------------------------------------------------------------------------------------------------

fn mail_error(status: u16, name: &str, message: &str) -> Reply {
    Reply::json(status, &json!({"statusCode": status, "name": name, "message": message}))
}

const fn billing_type(status: u16) -> &'static str {
    match status {
        402 => "card_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

fn resource(request: &Request) -> &str {
    request.path.split('/').nth(2).unwrap_or_default()
}

/// A Stripe-like object: the form's fields, numbers as numbers, under id and object.
fn charged(request: &Request, effect: &Effect) -> Value {
    let object = resource(request).strip_suffix('s').unwrap_or("object");
    let mut body = json!({"id": effect.id, "object": object, "status": "succeeded"});
    let form = std::str::from_utf8(&request.body).unwrap_or_default();
    if let (Some(fields), false) = (body.as_object_mut(), form.starts_with('{')) {
        for (name, value) in form.split('&').filter_map(|pair| pair.split_once('=')) {
            let value = decoded(value);
            let value = value.parse::<i64>().map_or(Value::String(value), Value::from);
            fields.entry(decoded(name)).or_insert(value);
        }
    }
    body
}
