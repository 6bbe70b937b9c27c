//! Connector files from the paths that were given.

use std::io::ErrorKind;
use std::path::PathBuf;

use oncely_connectors::file::{self, Bounds, Check, Compiled, Diagnostic, Severity};

use super::answer::counted;
use super::context::Context;
use super::exit::CliError;
use crate::config::{self, Secrets};

/// What came of all files.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) files: usize,
    pub(super) outcome: Result<Vec<Compiled>, Vec<Diagnostic>>,
}

/// Loads what `paths` name, or what the settings name. A directory stands for its `*.yaml` and
/// `*.yml` files.
///
/// # Errors
/// A path that cannot be read, or no file at all. What is wrong inside files is in the outcome.
pub(super) fn load(context: &Context, paths: &[PathBuf], check: Check) -> Result<Loaded, CliError> {
    load_within(context, paths, check, Bounds::default())
}

/// As [`load`], for processes with these bounds.
pub(super) fn load_within(
    context: &Context,
    paths: &[PathBuf],
    check: Check,
    bounds: Bounds,
) -> Result<Loaded, CliError> {
    let files = files(context, paths)?;
    let secrets = Secrets::new(&context.environment);
    Ok(Loaded { files: files.len(), outcome: file::load_within(&files, &secrets, check, bounds) })
}

/// The connector files that `paths` name, or the settings.
pub(super) fn files(context: &Context, paths: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let given = if paths.is_empty() {
        config::connector_paths(&context.environment)
    } else {
        paths.to_vec()
    };
    let files = file::find(&given).map_err(|(path, source)| {
        if source.kind() != ErrorKind::NotFound {
            return CliError::Unreadable { path, source };
        }
        let path = path.display();
        CliError::Usage(format!(
            "there is no file or directory {path}: name one that is there (of `replay` by --connectors), or set \
             ONCELY_CONNECTORS"
        ))
    })?;
    if files.is_empty() {
        let looked = given.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        return Err(CliError::Usage(format!(
            "there is no connector file (*.yaml) in {}, and directories below are not looked into: name others \
             (of `replay` by --connectors), or set ONCELY_CONNECTORS",
            looked.join(", ")
        )));
    }
    Ok(files)
}

impl Loaded {
    /// The connectors, or an error that shows every finding.
    pub(super) fn connectors(self) -> Result<Vec<Compiled>, CliError> {
        let files = self.files;
        self.outcome.map_err(|findings| CliError::Connectors {
            rendered: findings_text(&findings, files),
            findings: serde_json::json!(findings),
        })
    }
}

/// Findings as a compiler prints them, and how many there are.
pub(super) fn findings_text(findings: &[Diagnostic], files: usize) -> String {
    let mut text: String = findings.iter().map(|finding| format!("{finding}\n\n")).collect();
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    let warnings = findings.len().saturating_sub(errors);
    let mut touched: Vec<&str> = findings.iter().map(|finding| finding.file.as_str()).collect();
    touched.sort_unstable();
    touched.dedup();
    let (errors, warnings) = (counted(errors, "error"), counted(warnings, "warning"));
    let place = match touched.len() {
        0 => counted(files, "file"),
        touched => format!("{touched} of {}", counted(files, "file")),
    };
    text.push_str(&format!("{errors}, {warnings} in {place}"));
    text
}
