//! `oncely help`: commands, settings, and codes of findings.

use clap::CommandFactory;
use oncely_connectors::file::Code;
use oncely_core::expr::spelling::nearest;
use serde_json::json;

use super::answer::Answer;
use super::codes::{code, explanation};
use super::exit::CliError;
use crate::config::SETTINGS;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Help {
    /// A command, a code of a finding like E041, or `settings`
    topic: Vec<String>,
}

impl Help {
    pub(super) fn run(self) -> Result<Answer, CliError> {
        if let [topic] = self.topic.as_slice() {
            if topic == "settings" {
                return Ok(settings());
            }
            if let Some(code) = code(topic) {
                let (code, text) = (code.as_str(), explanation(code));
                let json = json!({ "code": code, "explanation": text });
                return Ok(Answer::new(
                    format!("{code}\n\n{}", wrapped(text, WIDTH).join("\n")),
                    json,
                ));
            }
        }
        let mut command = super::Cli::command();
        command.build();
        let mut at = &mut command;
        for name in &self.topic {
            let known: Vec<String> =
                at.get_subcommands().map(|command| command.get_name().to_owned()).collect();
            let unknown = || CliError::Usage(no_topic(name, &known));
            at = at.find_subcommand_mut(name).ok_or_else(unknown)?;
        }
        let text = at.render_long_help().to_string();
        Ok(Answer::new(text.clone(), json!({ "help": text })))
    }
}

fn no_topic(name: &str, commands: &[String]) -> String {
    let codes = Code::ALL.iter().map(|code| code.as_str());
    let words = commands.iter().map(String::as_str).chain(["settings"]).chain(codes);
    match nearest(name, words) {
        Some(near) => format!("there is no help on {name:?}, did you mean {near}?"),
        None => format!(
            "there is no help on {name:?}: name a command, a code of a finding like E041, or settings"
        ),
    }
}

/// Columns of a line of help: those of the narrowest terminal that people have.
const WIDTH: usize = 80;

fn settings() -> Answer {
    let longest = SETTINGS.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
    let indent = longest.saturating_add(2);
    let mut text = String::new();
    for (name, default, meaning) in SETTINGS {
        let default = if default.is_empty() { "" } else { &format!(" [default: {default}]") };
        let lines = wrapped(&format!("{meaning}{default}"), WIDTH.saturating_sub(indent));
        for (at, line) in lines.into_iter().enumerate() {
            let name = if at == 0 { name } else { "" };
            text.push_str(&format!("{name:indent$}{line}\n"));
        }
    }
    let flags = "Flags win over the environment, which wins over --config FILE. NAME_FILE names a file that holds \
                 the value: ONCELY_KAFKA__SASL_PASSWORD_FILE=/run/secrets/kafka sets sasl.password.";
    text.push_str(&format!("\n{}\n", wrapped(flags, WIDTH).join("\n")));
    let rows = SETTINGS.iter().map(
        |(name, default, meaning)| json!({ "name": name, "default": default, "meaning": meaning }),
    );
    Answer::new(text, json!({ "settings": rows.collect::<Vec<_>>() }))
}

/// Lines of at most so many characters; a longer word has a line of its own.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let Some(line) = lines.last_mut() else { continue };
        if line.is_empty() {
            line.push_str(word);
        } else if line.len().saturating_add(word.len()) < width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}
