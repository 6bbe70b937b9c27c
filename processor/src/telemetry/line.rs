//! What a log line looks like.
//!
//! Every field stands beside the message, those of the spans as well: whoever searches for a
//! connector finds all of its lines. Text is `time level target: message name=value`; JSON is one
//! flat object.

use std::fmt::{self, Write as _};

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::config::LogFormat;

/// Writes events as lines of one format.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines(pub(super) LogFormat);

/// Members that every line of JSON has.
const PARTS: [&str; 4] = ["timestamp", "level", "message", "target"];

/// Names and values in the order in which they were given.
#[derive(Debug, Default)]
struct Fields {
    message: String,
    named: Vec<(&'static str, Value)>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        self.named.push((field.name(), value.into()));
    }

    /// Names that stand once, the event's own before those of its spans. What is called as a part of
    /// the line itself has `field.` before it.
    fn unlike(&self) -> Vec<(String, &Value)> {
        let mut unlike: Vec<(String, &Value)> = Vec::with_capacity(self.named.len());
        for (name, value) in &self.named {
            let is_part = PARTS.contains(name);
            let name = if is_part { format!("field.{name}") } else { (*name).to_owned() };
            if unlike.iter().all(|(known, _)| *known != name) {
                unlike.push((name, value));
            }
        }
        unlike
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.add(field, text);
        }
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        // As crates say it that make their own messages.
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.add(field, value);
        }
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }
}

/// Keeps the fields of spans, for the lines inside them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spans;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut fields = Fields::default();
        event.record(&mut fields);
        for span in context.event_scope().into_iter().flatten() {
            if let Some(outer) = span.extensions().get::<Fields>() {
                fields.named.extend(outer.named.iter().cloned());
            }
        }
        let metadata = event.metadata();
        let line = match self.0 {
            LogFormat::Text => text(&time, metadata.level().as_str(), metadata.target(), &fields),
            LogFormat::Json => json(&time, metadata.level().as_str(), metadata.target(), &fields),
        };
        writeln!(writer, "{}", line?)
    }
}

fn text(time: &str, level: &str, target: &str, fields: &Fields) -> Result<String, fmt::Error> {
    let mut line = format!("{time} {level:>5} {target}: {}", fields.message);
    for (name, value) in fields.unlike() {
        match value.as_str().filter(|text| is_plain(text)) {
            Some(text) => write!(line, " {name}={text}")?,
            None => write!(line, " {name}={value}")?,
        }
    }
    Ok(line)
}

/// Whether a value can stand without quotation marks and still be told from its neighbours.
fn is_plain(text: &str) -> bool {
    let is_odd = |letter: char| letter.is_whitespace() || matches!(letter, '"' | '=' | '\\');
    !text.is_empty() && !text.contains(is_odd)
}

fn json(time: &str, level: &str, target: &str, fields: &Fields) -> Result<String, fmt::Error> {
    let mut line = String::from("{");
    let own = [("timestamp", time), ("level", level), ("message", &fields.message)];
    for (name, value) in own {
        write!(line, "\"{name}\":{},", Value::from(value))?;
    }
    for (name, value) in fields.unlike() {
        write!(line, "{}:{value},", Value::from(name))?;
    }
    write!(line, "\"target\":{}}}", Value::from(target))?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn lines(format: LogFormat) -> String {
        lines_of(format, || {
            let span = tracing::error_span!("connector", connector = "invoice-paid");
            span.in_scope(|| {
                let cause = "two words and a \"quote\"";
                tracing::warn!(number = 7_u64, partition = %"t[3]", cause, "record parked");
            });
            tracing::info!(away_s = 1.5, fine = true, "the database is back");
        })
    }

    fn lines_of(format: LogFormat, said: impl FnOnce()) -> String {
        let written = Written::default();
        let to = written.clone();
        let layer = tracing_subscriber::fmt::layer().event_format(Lines(format));
        let layer = layer.with_writer(move || to.clone());
        let logger = tracing_subscriber::registry().with(Spans).with(layer);
        tracing::subscriber::with_default(logger, said);
        let bytes = written.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        // Times differ.
        text.lines().map(|line| line.split_at(line.find("20").unwrap())).fold(
            String::new(),
            |all, (before, line)| {
                let (_, after) = line.split_at(line.find('Z').unwrap());
                format!("{all}{before}{after}\n")
            },
        )
    }

    #[test]
    fn every_line_of_a_connector_has_its_name() {
        insta::assert_snapshot!(lines(LogFormat::Text), @r#"
        Z  WARN oncely::telemetry::line::tests: record parked number=7 partition=t[3] cause="two words and a \"quote\"" connector=invoice-paid
        Z  INFO oncely::telemetry::line::tests: the database is back away_s=1.5 fine=true
        "#);
        insta::assert_snapshot!(lines(LogFormat::Json), @r#"
        {"timestamp":"Z","level":"WARN","message":"record parked","number":7,"partition":"t[3]","cause":"two words and a \"quote\"","connector":"invoice-paid","target":"oncely::telemetry::line::tests"}
        {"timestamp":"Z","level":"INFO","message":"the database is back","away_s":1.5,"fine":true,"target":"oncely::telemetry::line::tests"}
        "#);
    }

    #[test]
    fn every_member_stands_once() {
        let said = || {
            let span = tracing::error_span!("outer", connector = "outer", level = 3_u64);
            span.in_scope(|| {
                let message = "relation \"x\" exists, skipping";
                tracing::event!(target: "driver", tracing::Level::INFO, message, connector = "own");
            });
        };
        insta::assert_snapshot!(lines_of(LogFormat::Json, said), @r#"{"timestamp":"Z","level":"INFO","message":"relation \"x\" exists, skipping","connector":"own","field.level":3,"target":"driver"}"#);
        insta::assert_snapshot!(lines_of(LogFormat::Text, said), @r#"Z  INFO driver: relation "x" exists, skipping connector=own field.level=3"#);
    }

    #[test]
    fn a_line_of_json_is_json() {
        for line in lines(LogFormat::Json).lines() {
            let value: Value = serde_json::from_str(line).unwrap();
            assert!(value["message"].is_string(), "{value}");
        }
    }
}
