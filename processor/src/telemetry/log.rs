//! The logger: one line per noteworthy fact, on standard error.
//!
//! JSON escapes control characters by itself. The text format passes field values through as they
//! are, so every line goes through [`Escaping`], which lets nothing of the kind
//! through but the line's own end.

use std::io::{self, Write};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::family::TelemetryError;
use super::line::{Lines, Spans};
use crate::config::{Log, LogFormat};

/// Sets the logger of the process up, and lets panics be log lines.
///
/// # Errors
/// [`TelemetryError::Filter`] when the filter cannot be read, [`TelemetryError::LoggingTwice`].
pub fn init(log: &Log) -> Result<(), TelemetryError> {
    let filter: Targets = log
        .filter
        .parse()
        .map_err(|source| TelemetryError::Filter { filter: log.filter.clone(), source })?;
    if log.plain_business_ids {
        super::show_business_ids();
    }
    let registry = tracing_subscriber::registry().with(filter).with(Spans);
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).event_format(Lines(log.format));
    let done = match log.format {
        LogFormat::Json => registry.with(layer.with_writer(io::stderr)).try_init(),
        LogFormat::Text => registry.with(layer.with_writer(Escaping)).try_init(),
    };
    done.map_err(|source| TelemetryError::LoggingTwice { source })?;
    std::panic::set_hook(Box::new(|panic| {
        // The message may quote a payload; the place says enough to find the defect.
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let thread = std::thread::current();
        tracing::error!(place, thread = thread.name().unwrap_or(""), "panicked");
    }));
    Ok(())
}

/// Writes each event as one line without control characters.
#[derive(Clone, Copy, Debug)]
struct Escaping;

impl<'a> MakeWriter<'a> for Escaping {
    type Writer = Line<io::Stderr>;

    fn make_writer(&'a self) -> Self::Writer {
        Line(io::stderr())
    }
}

/// The logger gives each event in one write, ended by a line feed.
#[derive(Debug)]
struct Line<W>(W);

impl<W: Write> Write for Line<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (line, end) = match bytes.strip_suffix(b"\n") {
            Some(line) => (line, "\n"),
            None => (bytes, ""),
        };
        let mut escaped = String::with_capacity(bytes.len());
        for character in String::from_utf8_lossy(line).chars() {
            if character.is_control() {
                escaped.extend(character.escape_unicode());
            } else {
                escaped.push(character);
            }
        }
        escaped.push_str(end);
        self.0.write_all(escaped.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s21_a_value_cannot_start_a_line_of_its_own() {
        let mut line = Line(Vec::new());
        line.write_all(b"key=a\nERROR forged \x1b[31m\n").unwrap();
        let written = String::from_utf8(line.0).unwrap();
        assert_eq!(written, "key=a\\u{a}ERROR forged \\u{1b}[31m\n");
    }
}
