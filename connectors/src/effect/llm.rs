//! What is kept of a model's answer, and what it says that was used.
//!
//! Every answer is read the same way, and stored with the effect before anything else may look at it. One
//! that lacks its id or its text is no answer, however it was paid for.

use oncely_core::value::Value;

/// The member of a result that says what was used, as the model counts it.
pub const USAGE: &str = "usage";

/// Members of every result, and where an answer has them.
pub(crate) const RECORD: &[(&str, &str)] = &[
    ("id", "response.json.id"),
    ("text", "response.json.choices[0].message.content"),
    ("finish_reason", "response.json.choices[0].finish_reason"),
    ("model", "has(response.json.model) ? response.json.model : null"),
    (USAGE, "has(response.json.usage) ? response.json.usage : null"),
    // By this the provider finds the call, for whoever asks about its price.
    (
        "request_id",
        "\"x-request-id\" in response.headers ? response.headers[\"x-request-id\"] : null",
    ),
];

/// Tokens that one call took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    pub input: u64,
    pub output: u64,
}

/// What an answer says that was used; `None` where it does not say.
pub fn tokens(result: &Value) -> Option<Tokens> {
    let usage = result.get(USAGE)?;
    let count = |name: &str| {
        let Value::Int(tokens) = usage.get(name)? else { return None };
        u64::try_from(*tokens).ok()
    };
    let (input, output) = (count("prompt_tokens"), count("completion_tokens"));
    (input.is_some() || output.is_some())
        .then(|| Tokens { input: input.unwrap_or(0), output: output.unwrap_or(0) })
}

/// What goes on record with an attempt that was paid for: what it took, and its number at the provider.
pub fn note(result: &Value) -> String {
    let used = match tokens(result) {
        Some(Tokens { input, output }) => format!("paid: {input} tokens in, {output} out"),
        None => "paid: the answer does not say for how many tokens".to_owned(),
    };
    let text = |name: &str| match result.get(name) {
        Some(Value::Text(text)) if !text.is_empty() => Some(text.to_string()),
        _ => None,
    };
    let printable =
        |text: String| text.chars().filter(|c| !c.is_control()).take(120).collect::<String>();
    match text("request_id").or_else(|| text("id")).map(printable) {
        Some(id) => format!("{used}; request {id}"),
        None => used,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_is_read_as_it_is_said() {
        let usage = |members: &[(&str, Value)]| {
            Value::object([(USAGE, Value::object(members.iter().map(|(n, v)| (*n, v.clone()))))])
        };
        let both =
            usage(&[("prompt_tokens", Value::Int(12)), ("completion_tokens", Value::Int(34))]);
        assert_eq!(tokens(&both), Some(Tokens { input: 12, output: 34 }));
        assert_eq!(note(&both), "paid: 12 tokens in, 34 out");
        let one =
            usage(&[("prompt_tokens", Value::Int(12)), ("completion_tokens", Value::Int(-1))]);
        assert_eq!(tokens(&one), Some(Tokens { input: 12, output: 0 }));
        assert_eq!(tokens(&usage(&[("prompt_tokens", Value::text("12"))])), None);
        assert_eq!(tokens(&Value::Null), None);
    }
}
