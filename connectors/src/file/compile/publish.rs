//! Records that are published: topic, key, headers and value.

use oncely_core::connector::{EffectBody, PublishRule, RecordRule, RequestRule, ValueRule};
use oncely_core::expr::Root;
use oncely_core::render;
use oncely_core::template::{Target, Template};

use super::super::diagnostic::{Code, Fault};
use super::super::raw::{RawEffect, RawMessage};
use super::super::read::Field;
use super::super::source::Span;
use super::Compiler;

/// Set by the relay, so that readers recognise repeats.
const MESSAGE_ID: &str = "oncely-message-id";
const HEADER_BYTES_MAX: usize = 255;

impl Compiler<'_> {
    pub(super) fn publish(&mut self, raw: &RawEffect, at: Span) -> Option<EffectBody> {
        let Some(message) = &raw.message else {
            self.missing("publish.message", at);
            return None;
        };
        let (span, message) = message.valid()?;
        self.need(&message.topic, "message.topic", span);
        let topic = self.topic(&message.topic);
        let key = message.key.as_ref().map(|key| self.template(key, Target::Text));
        let headers = self.record_headers(message);
        let value = self.value(message);
        let record = RecordRule {
            topic: topic?,
            key: match key {
                None => None,
                Some(key) => Some(key?),
            },
            headers: headers?,
            value: value?,
        };
        let request = RequestRule::Record(record);
        let mut reads_results = false;
        request.for_each_read(&mut |path| reads_results |= path.root == Root::Effects);
        Some(EffectBody::Publish(Box::new(PublishRule { request, reads_results })))
    }

    fn topic(&mut self, field: &Field<String>) -> Option<Template> {
        let (span, _) = field.valid()?;
        let template = self.template(field, Target::Text)?;
        let is_fixed = !template.text().contains("{{") && !template.text().contains("{%");
        if is_fixed && !render::is_topic_name(template.text()) {
            let finding = Fault::new(Code::BadName, span, "Kafka allows no topic of this name");
            let help = "letters, digits, `.`, `_` and `-`, up to 249";
            self.add(finding.help(help));
            return None;
        }
        Some(template)
    }

    fn record_headers(&mut self, message: &RawMessage) -> Option<Vec<(Box<str>, Template)>> {
        let mut headers: Vec<Option<(Box<str>, Template)>> = Vec::new();
        let raw = message.headers.as_ref().and_then(Field::get);
        for (name, value) in raw.into_iter().flat_map(|raw| &raw.0) {
            let Some((span, name)) = name.valid() else { continue };
            if name.is_empty() || name.len() > HEADER_BYTES_MAX {
                let text = "a header's name has 1 to 255 bytes";
                self.add(
                    Fault::new(Code::BadName, span, text).help("write a shorter one: `tenant`"),
                );
                continue;
            }
            if name.eq_ignore_ascii_case(MESSAGE_ID) {
                let text = format!("header `{MESSAGE_ID}` is set by itself");
                let finding = Fault::new(Code::Request, span, text);
                let help = "the same id under another name: `ce_id: \"{{ effect.key }}\"`";
                self.add(finding.help(help));
                continue;
            }
            let value = self.template(value, Target::Text);
            headers.push(value.map(|value| (name.as_str().into(), value)));
        }
        headers.into_iter().collect()
    }

    fn value(&mut self, message: &RawMessage) -> Option<ValueRule> {
        match (&message.json, &message.text) {
            (Some(json), None) => self.tree(json).map(ValueRule::Json),
            (None, Some(text)) => self.template(text, Target::Text).map(ValueRule::Text),
            (None, None) => Some(ValueRule::Null),
            (Some(_), Some(text)) => {
                let finding = "a record has one value: `json`, or `text`";
                self.add(Fault::new(Code::Request, text.span(), finding).help("remove one"));
                None
            }
        }
    }
}
