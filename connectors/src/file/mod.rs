//! Connector files: from YAML to a [`Connector`], or to everything that is wrong with it.
//!
//! Reads: the text of a file, and the templates and samples beside it. Gives: [`Compiled`], or all
//! findings at once, each with its place and a remedy. Never: looks anything up outside, shows a
//! secret, or accepts a field that has no effect yet.
//!
//! - [`compile`] one text, [`load`] files, [`find`] files in directories, [`check_together`] what only shows between files
//! - [`Diagnostic`] a finding; [`Code`] the closed list of what can be found
//! - [`schema`] the JSON schema that editors use

mod advice;
mod compile;
mod diagnostic;
mod loops;
mod node;
mod outline;
mod profiles;
mod raw;
mod read;
pub mod schema;
mod source;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

use oncely_core::connector::Connector;

pub use self::diagnostic::{Code, Diagnostic, Severity};
use self::diagnostic::{Fault, Findings};
use self::outline::Outline;
pub use self::source::FILE_BYTES_MAX;
use self::source::Source;
use crate::secret::{Reference, Secret, SecretSource};

/// A connector file that has no errors.
#[derive(Debug)]
pub struct Compiled {
    pub connector: Connector,
    /// As it was given to [`compile`].
    pub file: String,
    pub tests: Vec<TestCase>,
    pub warnings: Vec<Diagnostic>,
    places: Places,
}

/// Where things stand in the file that are compared with those of other files.
#[derive(Clone, Debug, Default)]
struct Places {
    /// Where effects say to which topic they publish, by their ids.
    published: Vec<(Box<str>, Diagnostic)>,
    name: Option<Diagnostic>,
    /// That of the group, else that of the name which it is made of.
    group: Option<Diagnostic>,
    /// That of the scope, else that of the name which is one as well.
    scope: Option<Diagnostic>,
    /// Where the name stands that is the scope as well, since the file says none.
    name_as_scope: Option<Diagnostic>,
    identity: Option<Diagnostic>,
}

impl Compiled {
    /// A finding about the name, as far as keys are made of it: `None` where the file says a `scope`.
    pub fn of_name(&self) -> Option<Diagnostic> {
        self.places.name_as_scope.clone()
    }

    /// A finding about how events get their ids.
    pub fn of_identity(&self) -> Option<Diagnostic> {
        self.places.identity.clone()
    }
}

/// How references without a value are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// As warnings: the file may be checked where it does not run.
    Offline,
    /// As errors.
    Live,
}

/// What the processes that will run a connector allow; what is not given is not checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// How long a process that stops waits for its calls.
    pub grace_ms: Option<u64>,
}

/// Events in order, and what must become of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestCase {
    pub name: String,
    /// Where it begins in the file, from 1.
    pub line: usize,
    pub events: Vec<TestEvent>,
    pub expect: Expect,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestEvent {
    pub path: PathBuf,
    pub line: usize,
}

/// What is not said is not checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// One for each event, or none.
    pub outcomes: Vec<ExpectedOutcome>,
    /// The entity's state at the end.
    pub state: Option<Box<str>>,
    /// Effect id, and how often it is owed.
    pub effects: Vec<(Box<str>, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedOutcome {
    Applied,
    Duplicate,
    Stale,
    Ignored,
    Quarantined,
    DeadLettered,
    Deferred,
}

impl ExpectedOutcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Duplicate => "duplicate",
            Self::Stale => "stale",
            Self::Ignored => "ignored",
            Self::Quarantined => "quarantined",
            Self::DeadLettered => "dead_lettered",
            Self::Deferred => "deferred",
        }
    }
}

/// Settings of a place where nothing is set.
#[derive(Clone, Copy, Debug, Default)]
pub struct NothingSet;

impl SecretSource for NothingSet {
    fn lookup(&self, _: &Reference) -> Option<Secret> {
        None
    }
}

// --------------------------------------------------------------------------------------------- //

/// Compiles the text of a file. Templates and samples are looked for beside `file`.
///
/// `settings` gives the values of references; those in plain texts (topics, URLs) are replaced now,
/// those to secrets only looked for.
///
/// # Errors
/// Every finding, in the order of the file; at least one is an error.
pub fn compile(
    file: &str,
    text: &str,
    settings: &dyn SecretSource,
    check: Check,
) -> Result<Compiled, Vec<Diagnostic>> {
    compile_within(file, text, settings, check, Bounds::default())
}

/// As [`compile`], for processes with these bounds.
///
/// # Errors
/// As [`compile`].
pub fn compile_within(
    file: &str,
    text: &str,
    settings: &dyn SecretSource,
    check: Check,
    bounds: Bounds,
) -> Result<Compiled, Vec<Diagnostic>> {
    let source = Source { name: file, text };
    let mut findings = Findings::default();
    let mut places = Places::default();
    let made = compile_into(&source, &mut findings, settings, (check, bounds), &mut places);
    let failed = findings.has_errors();
    let found = findings.into_diagnostics(&source);
    match made {
        Some((connector, tests)) if !failed => {
            Ok(Compiled { connector, file: file.to_owned(), tests, warnings: found, places })
        }
        Some(_) | None => Err(found),
    }
}

fn compile_into(
    source: &Source<'_>,
    findings: &mut Findings,
    settings: &dyn SecretSource,
    (check, bounds): (Check, Bounds),
    places: &mut Places,
) -> Option<(Connector, Vec<TestCase>)> {
    if source.text.len() > FILE_BYTES_MAX {
        let text = format!("the file has more than {FILE_BYTES_MAX} bytes");
        let help = "a connector is one file of a few pages; is this another file?";
        findings.add(Fault::new(Code::Unreadable, None, text).help(help));
        return None;
    }
    let node = node::parse(source.text, findings);
    let Some(node) = node.filter(|node| !matches!(node.kind, node::NodeKind::Null)) else {
        if !findings.has_errors() {
            let fault = Fault::new(Code::Yaml, None, "the file is empty");
            findings.add(fault.help("begin it with `version: 1`, or leave it out"));
        }
        return None;
    };
    node::hide_secrets(&node, findings);
    findings.outline = Outline::of(&node, &findings.repeated);
    let raw: raw::RawConnector = read::read(&node, findings)?;
    let dir = Path::new(source.name).parent().unwrap_or(Path::new(""));
    let mut compiler = compile::Compiler::new(source.clone(), findings, dir, settings, check);
    compiler.bounds = bounds;
    let made = compiler.connector(&raw, node.span);
    places.published = loops::places(&raw, findings, source);
    let placed = |span: Option<source::Span>, code| {
        span.map(|span| findings.placed(Fault::new(code, span, ""), source))
    };
    let group = raw.source.get().and_then(|from| from.group.as_ref()?.span());
    places.name = placed(raw.connector.span(), Code::ConnectorTaken);
    places.group = placed(group.or(raw.connector.span()), Code::GroupTaken);
    let scope = raw.scope.as_ref().and_then(read::Field::span);
    places.scope = placed(scope.or(raw.connector.span()), Code::WaitsApart);
    let name = raw.connector.span().filter(|_| scope.is_none());
    places.name_as_scope = placed(name, Code::Renamed);
    places.identity = placed(raw.identity.span(), Code::IdentityChanged);
    if made.is_none() && !findings.has_errors() {
        // A check that gives nothing has to say why; this is the net below them.
        findings.add(
            Fault::new(Code::Unreadable, None, "the file makes no connector").help(
                "every finding has to say why, and none did: please report this with the file",
            ),
        );
    }
    made
}

/// Compiles files, and checks them against each other.
///
/// # Errors
/// Every finding of every file. One bad file refuses all: a deployment is taken as a whole.
pub fn load(
    files: &[PathBuf],
    settings: &dyn SecretSource,
    check: Check,
) -> Result<Vec<Compiled>, Vec<Diagnostic>> {
    load_within(files, settings, check, Bounds::default())
}

/// As [`load`], for processes with these bounds.
///
/// # Errors
/// As [`load`].
pub fn load_within(
    files: &[PathBuf],
    settings: &dyn SecretSource,
    check: Check,
    bounds: Bounds,
) -> Result<Vec<Compiled>, Vec<Diagnostic>> {
    let mut compiled = Vec::new();
    let mut found = Vec::new();
    for path in files {
        let name = path.display().to_string();
        match fs::read_to_string(path) {
            Ok(text) => match compile_within(&name, &text, settings, check, bounds) {
                Ok(one) => compiled.push(one),
                Err(all) => found.extend(all),
            },
            Err(error) => {
                let mut findings = Findings::default();
                let text = format!("the file cannot be read: {error}");
                let help = "check its path and its rights; it is to be UTF-8 text";
                findings.add(Fault::new(Code::Unreadable, None, text).help(help));
                found.extend(findings.into_diagnostics(&Source { name: &name, text: "" }));
            }
        }
    }
    found.extend(check_together(&compiled));
    if found.is_empty() {
        return Ok(compiled);
    }
    found.extend(compiled.into_iter().flat_map(|one| one.warnings));
    Err(found)
}

/// The connector files that `paths` name: files as they are, and of directories every `*.yaml` and
/// `*.yml` in them (not below), sorted.
///
/// # Errors
/// A path that is not there, with its name.
pub fn find(paths: &[PathBuf]) -> Result<Vec<PathBuf>, (PathBuf, std::io::Error)> {
    let mut files = Vec::new();
    for path in paths {
        let failed = |error| (path.clone(), error);
        if !fs::metadata(path).map_err(failed)?.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut inside = Vec::new();
        for entry in fs::read_dir(path).map_err(failed)? {
            let file = entry.map_err(failed)?.path();
            let yaml = file.extension().is_some_and(|end| end == "yaml" || end == "yml");
            // Kubernetes mounts files as links; a link to a file is one.
            if yaml && file.is_file() {
                inside.push(file);
            }
        }
        inside.sort();
        files.append(&mut inside);
    }
    files.dedup();
    Ok(files)
}

/// What only shows between connectors: two with one name, two in one consumer group, events of one entity that wait in
/// one of two, records that go round.
pub fn check_together(all: &[Compiled]) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for (index, one) in all.iter().enumerate() {
        let earlier = all.iter().take(index);
        for other in earlier {
            let mut add = |code, at: &Option<Diagnostic>, message: String, help: &str| {
                let Some(place) = at.clone() else { return };
                found.push(Diagnostic { code, message, help: help.to_owned(), ..place });
            };
            if one.connector.name == other.connector.name {
                let text = format!(
                    "a connector called `{}` is in {}, too",
                    one.connector.name, other.file
                );
                let help = "give one of them another name";
                add(Code::ConnectorTaken, &one.places.name, text, help);
            } else if one.connector.source.group == other.connector.source.group {
                let text = format!(
                    "consumer group `{}` is that of connector `{}` in {}, too",
                    one.connector.source.group, other.connector.name, other.file
                );
                let help =
                    "each connector needs a group of its own, or they take records from each other";
                add(Code::GroupTaken, &one.places.group, text, help);
            } else if let Some(kind) = waits_apart(&one.connector, &other.connector) {
                let text = format!(
                    "`{kind}` of scope `{}` is moved by connector `{}` in {}, too, and events of it may have to wait",
                    one.connector.scope, other.connector.name, other.file
                );
                let help = "a connector knows only its own events that wait: let one of them read the topics of both, \
                            or have events apply at once in both (`on_gap: apply`, `on_parked: apply`)";
                add(Code::WaitsApart, &one.places.scope, text, help);
            }
        }
    }
    found.extend(loops::find(all));
    found
}

/// The kind of entity that both move, where events of one may have to wait for events that the other reads.
fn waits_apart<'c>(one: &'c Connector, other: &Connector) -> Option<&'c str> {
    let (mine, others) = (one.state.as_ref()?, other.state.as_ref()?);
    let shared = one.scope == other.scope && mine.entity == others.entity;
    (shared && (mine.defers() || others.defers())).then_some(&mine.entity)
}

#[cfg(test)]
mod llm_tests;
#[cfg(test)]
mod path_tests;
#[cfg(test)]
mod tests;
