//! The only place that prints.

use std::error::Error;
use std::io::{self, BufRead, IsTerminal, Write};

use serde_json::{Value, json};

use super::answer::{Answer, Output};
use super::exit::{CliError, Exit};
pub(super) use oncely_core::cause::chain;

/// Prints an answer on standard output. A closed pipe is no error: the reader has seen enough.
pub(super) fn answer(output: Output, answer: &Answer) {
    if answer.is_said {
        return;
    }
    let text = match output {
        Output::Table => answer.text.trim_end().to_owned(),
        Output::Json => serde_json::to_string_pretty(&answer.json).unwrap_or_default(),
    };
    drop(writeln!(io::stdout().lock(), "{text}"));
}

/// Prints a line for people on standard error, beside the answer.
pub(super) fn note(text: &str) {
    drop(writeln!(io::stderr().lock(), "{text}"));
}

/// Prints what the parser of the command line has to say: help, version, or wrong usage.
pub(super) fn usage(output: Output, error: &clap::Error) {
    match output {
        Output::Json if error.use_stderr() => {
            let said = error.render().to_string();
            let said = said.trim_end().trim_start_matches("error: ");
            let json = object(Exit::Usage, said, Vec::new());
            drop(writeln!(io::stderr().lock(), "{json}"));
        }
        Output::Json | Output::Table => drop(error.print()),
    }
}

/// Prints an error and its causes on standard error: lines for people, one object for machines.
pub(super) fn error(output: Output, error: &CliError) {
    let text = match output {
        Output::Table => error_text(error),
        Output::Json => error_json(error).to_string(),
    };
    drop(writeln!(io::stderr().lock(), "{text}"));
}

/// An error for machines: `{"error": {"message", "causes", "exit", "exit_code"}}`; with wrong settings `errors`, with
/// wrong connector files `findings` as well.
pub(super) fn error_json(error: &CliError) -> Value {
    let (mut message, mut cause) = (error.to_string(), error.source());
    let mut more = None;
    if let CliError::Config(errors) = error {
        let errors: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        message = errors.join("; ");
        more = Some(("errors", json!(errors)));
        cause = None;
    } else if let CliError::Connectors { rendered, findings } = error {
        // How many there are: the findings themselves stand beside it.
        message = rendered.lines().last().unwrap_or_default().to_owned();
        more = Some(("findings", findings.clone()));
    }
    let mut causes = Vec::new();
    while let Some(error) = cause {
        causes.push(error.to_string());
        cause = error.source();
    }
    let mut json = object(error.exit(), &message, causes);
    if let (Some((name, value)), Some(members)) =
        (more, json.get_mut("error").and_then(Value::as_object_mut))
    {
        members.insert(name.to_owned(), value);
    }
    json
}

fn object(exit: Exit, message: &str, causes: Vec<String>) -> Value {
    json!({
        "error": {
            "message": message,
            "causes": causes,
            "exit": exit.as_str(),
            "exit_code": exit.code(),
        }
    })
}

/// One line an error; what caused it below.
pub(super) fn error_text(error: &CliError) -> String {
    let mut text = Vec::new();
    let mut cause = error.source();
    if let CliError::Config(errors) = error {
        text.extend(errors.0.iter().map(|error| format!("error: {error}")));
        cause = None;
    } else if let CliError::Connectors { rendered, .. } = error {
        text.push(rendered.trim_end().to_owned());
    } else {
        text.push(format!("error: {error}"));
    }
    while let Some(error) = cause {
        // Some libraries repeat their cause in their own words.
        let said = error.to_string();
        if !text.last().is_some_and(|before| before.contains(&said)) {
            text.push(format!("  because {said}"));
        }
        cause = error.source();
    }
    text.join("\n")
}

/// Asks a yes-or-no question; only `y` and `yes` are a yes. `None` where nobody can answer.
pub(super) fn confirm(question: &str) -> Option<bool> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return None;
    }
    let mut error = io::stderr().lock();
    write!(error, "{question} [y/N] ").and_then(|()| error.flush()).ok()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).ok()?;
    Some(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
