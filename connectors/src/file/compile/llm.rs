//! Model calls: what is asked, of which model, and what is kept of every answer.
//!
//! The text of an event is data: it stands in the messages of the user and in earlier answers, and nowhere
//! else. The model, the length that is paid for and all other members are the file's alone, tools are none,
//! and an answer decides about nothing but the texts that it is put into.

use oncely_core::connector::{BodyRule, EffectBody, HttpRule, RequestRule};
use oncely_core::expr::{Expr, Root};
use oncely_core::template::{Target, Template, TextNode, TextTree};

use super::super::diagnostic::{Code, Fault};
use super::super::profiles::Known;
use super::super::raw::{RawChat, RawChatMessage, RawEffect, RawRole, RawTree};
use super::super::read::Field;
use super::super::source::Span;
use super::Compiler;
use crate::effect::llm::{RECORD, USAGE};

/// Where OpenAI's own API is.
const OPENAI_URL: &str = "https://api.openai.com/v1";
const COMPLETIONS: &str = "/chat/completions";
const MESSAGES_MAX: usize = 100;
/// Beyond what any model writes in one answer lies a mistake.
const TOKENS_MAX: u32 = 1_000_000;
const TEMPERATURE: &str = "a temperature is a number from 0 to 2";
const TEMPERATURE_HELP: &str = "write `temperature: 0.2`, or leave it out for the model's own";

/// Members that have a field of their own, or that an effect done once cannot have.
const NO_OPTIONS: [(&str, &str); 14] = [
    ("model", "it is the field `model`"),
    ("messages", "they are the field `messages`"),
    ("max_tokens", "it is the field `max_tokens`"),
    ("max_completion_tokens", "it is the field `max_completion_tokens`"),
    ("temperature", "it is the field `temperature`"),
    ("stream", "an answer is stored whole before anything follows from it"),
    ("stream_options", "an answer is stored whole before anything follows from it"),
    ("n", "one call has one answer"),
    ("tools", "a model chooses no actions here: what follows are the effects of the file"),
    ("tool_choice", "a model chooses no actions here: what follows are the effects of the file"),
    ("functions", "a model chooses no actions here: what follows are the effects of the file"),
    ("function_call", "a model chooses no actions here: what follows are the effects of the file"),
    ("modalities", "only texts are asked for"),
    ("audio", "only texts are asked for"),
];

impl Compiler<'_> {
    pub(super) fn llm(&mut self, raw: &RawEffect, at: Span) -> Option<EffectBody> {
        let Some(chat) = &raw.chat else {
            self.missing("llm.chat", at);
            return None;
        };
        let (span, chat) = chat.valid()?;
        let model = self.model(chat, span);
        let made = self.call(raw, at, "openai", |this, known| {
            this.completion(chat, span, model.as_deref(), known).map(RequestRule::Http)
        });
        let EffectBody::Call(mut call) = made? else { return None };
        call.model = model.map(Into::into);
        for (name, expr) in RECORD {
            if call.record.iter().all(|(known, _)| **known != **name) {
                call.record.push(((*name).into(), Expr::compile(expr).ok()?));
            } else if *name == USAGE {
                let span = raw.record.as_ref().and_then(Field::span);
                let text =
                    "`usage` is what the model says that was used, and is recorded by itself";
                let help = "give this one another name";
                self.add(Fault::new(Code::DuplicateName, span, text).help(help));
            }
        }
        Some(EffectBody::Call(call))
    }

    fn model(&mut self, chat: &RawChat, at: Span) -> Option<String> {
        let (span, model) = self.need(&chat.model, "chat.model", at)?;
        let model = self.plain(span, model)?;
        if model.trim().is_empty() || model.len() > 100 || model.contains(['{', '}']) {
            let finding = Fault::new(Code::BadName, span, "this is no model's name");
            self.add(finding.help(
                "write it out: an event may not choose what a call costs, and metrics are counted by it",
            ));
            return None;
        }
        Some(model)
    }

    fn completion(
        &mut self,
        chat: &RawChat,
        at: Span,
        model: Option<&str>,
        known: &Known,
    ) -> Option<HttpRule> {
        let url = self.completions_url(chat);
        let headers = self.headers(chat.headers.as_ref(), known);
        let auth = chat.auth.as_ref().map(|auth| self.auth(auth));
        let messages = self.messages(chat, at);
        let tokens = self.tokens(chat, at);
        let temperature = self.temperature(chat);
        let options = self.options(chat);
        let auth = match auth {
            None => None,
            Some(auth) => Some(auth?),
        };
        let text = |text: &str| Template::compile(text, Target::Text).ok();
        let model = TextTree::Text(TextNode::from_template(text(model?)?));
        let mut members: Vec<(Box<str>, TextTree)> =
            vec![("model".into(), model), ("messages".into(), TextTree::List(messages?)), tokens?];
        members.extend(temperature?.map(|number| ("temperature".into(), number)));
        members.extend(options?);
        let body = BodyRule::Json(TextTree::Object(members));
        Some(HttpRule { method: "POST".into(), url: url?, headers, auth, body })
    }

    fn completions_url(&mut self, chat: &RawChat) -> Option<Template> {
        let Some(field) = &chat.url else {
            return Template::compile(&format!("{OPENAI_URL}{COMPLETIONS}"), Target::Url).ok();
        };
        let base = self.url(field)?;
        let base = base.text();
        if base.contains('?') || base.contains("{{") || base.contains("{%") {
            let finding = Fault::new(Code::Request, field.span(), "this is no API's address");
            self.add(finding.help(format!(
                "write it as far as its version: `{OPENAI_URL}`; `{COMPLETIONS}` is added"
            )));
            return None;
        }
        let base = base.trim_end_matches('/');
        let base = base.strip_suffix(COMPLETIONS).unwrap_or(base);
        Template::compile(&format!("{base}{COMPLETIONS}"), Target::Url).ok()
    }

    fn messages(&mut self, chat: &RawChat, at: Span) -> Option<Vec<TextTree>> {
        let (span, messages) = self.need(&chat.messages, "chat.messages", at)?;
        if messages.is_empty() || messages.len() > MESSAGES_MAX {
            let text = format!("a model is asked with 1 to {MESSAGES_MAX} messages");
            let help = "`messages: [{ role: user, content: \"{{ event.question }}\" }]`";
            self.add(Fault::new(Code::OutOfRange, span, text).help(help));
        }
        let valid: Vec<_> = messages.iter().filter_map(Field::valid).collect();
        let made: Vec<_> = valid.into_iter().map(|(at, one)| self.message(one, at)).collect();
        made.into_iter().collect()
    }

    fn message(&mut self, raw: &RawChatMessage, at: Span) -> Option<TextTree> {
        let role = self.need(&raw.role, "message.role", at);
        let content = self.need(&raw.content, "message.content", at);
        let ((_, role), (span, text)) = (role?, content?);
        // A text whatever the event holds: a list would be parts of other kinds.
        let content = self.template_at(span, text, Target::Text)?;
        let instructs = matches!(role, RawRole::System | RawRole::Developer);
        let foreign = content.reads().iter().find(|path| path.root != Root::State);
        if let Some(path) = foreign.filter(|_| instructs) {
            let name = role.name();
            let text = format!("a `{name}` message reads `{path}`");
            let finding = Fault::new(Code::Request, span, text)
                .note(
                    "what stands there is an instruction, and whoever writes events would give it",
                )
                .help("put what events say into a message of the `user`");
            self.add(finding);
            return None;
        }
        let role = TextNode::from_template(Template::compile(role.name(), Target::Text).ok()?);
        Some(TextTree::Object(vec![
            ("role".into(), TextTree::Text(role)),
            ("content".into(), TextTree::Text(TextNode::from_template(content))),
        ]))
    }

    /// The longest answer: what one call may cost is bounded by the file.
    fn tokens(&mut self, chat: &RawChat, at: Span) -> Option<(Box<str>, TextTree)> {
        let (name, field) = match (&chat.max_tokens, &chat.max_completion_tokens) {
            (None, None) => {
                self.missing("chat.max_tokens", at);
                return None;
            }
            (Some(_), Some(other)) => {
                let text = "an answer's length is bounded by one of the two";
                let finding = Fault::new(Code::Request, other.span(), text);
                self.add(finding.help("keep the one that the API reads"));
                return None;
            }
            (Some(field), None) => ("max_tokens", field),
            (None, Some(field)) => ("max_completion_tokens", field),
        };
        let (span, tokens) = field.valid()?;
        if !(1..=TOKENS_MAX).contains(tokens) {
            let text = format!("an answer has 1 to {TOKENS_MAX} tokens");
            let help = "the longest answer that is paid for: `max_tokens: 400`";
            self.add(Fault::new(Code::OutOfRange, span, text).help(help));
        }
        Some((name.into(), TextTree::Int((*tokens).into())))
    }

    /// `Some(None)`: the model's own.
    fn temperature(&mut self, chat: &RawChat) -> Option<Option<TextTree>> {
        let Some(field) = &chat.temperature else { return Some(None) };
        let (span, raw) = field.valid()?;
        let (number, tree) = match raw {
            RawTree::Int(number) => (number.to_string(), TextTree::Int(*number)),
            RawTree::Decimal(number) => {
                (number.as_str().to_owned(), TextTree::Decimal(number.clone()))
            }
            RawTree::Null
            | RawTree::Bool(_)
            | RawTree::Text(_)
            | RawTree::List(_)
            | RawTree::Map(_) => {
                self.add(Fault::new(Code::WrongType, span, TEMPERATURE).help(TEMPERATURE_HELP));
                return None;
            }
        };
        if !number.parse::<f64>().is_ok_and(|number| (0.0..=2.0).contains(&number)) {
            self.add(Fault::new(Code::OutOfRange, span, TEMPERATURE).help(TEMPERATURE_HELP));
        }
        Some(Some(tree))
    }

    fn options(&mut self, chat: &RawChat) -> Option<Vec<(Box<str>, TextTree)>> {
        let Some(field) = &chat.options else { return Some(Vec::new()) };
        let (span, raw) = field.valid()?;
        let RawTree::Map(members) = raw else {
            let fault = Fault::new(Code::WrongType, span, "options are a map of names and values");
            self.add(fault.help("write `options: { top_p: 0.9 }`"));
            return None;
        };
        for (span, name) in members.iter().filter_map(|(name, _)| name.valid()) {
            let refused = NO_OPTIONS.iter().find(|(refused, _)| refused == name);
            if let Some((name, why)) = refused {
                let text = format!("`{name}` is no option here");
                self.add(Fault::new(Code::Request, span, text).help(*why));
            }
        }
        let tree = self.tree(field)?;
        let mut reads = None;
        tree.for_each_read(&mut |path| reads = Some(path.clone()));
        if let Some(path) = reads {
            let text = format!("options stand as they are, and these read `{path}`");
            let finding = Fault::new(Code::Request, span, text);
            self.add(finding.help("what events say stands in the messages of the `user`"));
            return None;
        }
        let TextTree::Object(members) = tree else { return None };
        Some(members)
    }
}

impl RawRole {
    const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Developer => "developer",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}
