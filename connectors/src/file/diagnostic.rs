//! What is wrong with a connector file, told so that it can be put right.

use std::fmt;

use serde::Serialize;

use super::outline::Outline;
use super::source::{Source, Span};

/// When there will be what is not available yet: said as far as it is known.
pub(crate) const PLANNED: &str = "it is planned, without a date: CHANGELOG.md, `Not there yet`";

/// One finding, with the place it is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    pub code: Code,
    pub severity: Severity,
    pub message: String,
    pub file: String,
    /// The field that it is about, such as `effects[0].retry.attempts`; empty when it is about none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// From 1; 0 when the finding is about the file as a whole.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// Characters of the snippet before those that are meant: the column less one, unless something
    /// of the line is not shown.
    #[serde(skip)]
    pub indent: usize,
    /// Characters that are meant.
    pub width: usize,
    /// The line as it stands in the file; empty when there is none.
    pub snippet: String,
    /// What stands beside the marked characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Why it matters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What to do.
    pub help: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Error,
    Warning,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)+) => {
        /// The closed list of findings. A code keeps its meaning for ever.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $($(#[$doc])* $variant,)+
        }

        impl Code {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}

codes! {
    /// The file cannot be read, or is no text.
    Unreadable = "E001",
    /// No YAML.
    Yaml = "E002",
    /// YAML that connector files do not use: anchors, tags, several documents.
    YamlFeature = "E003",
    WrongType = "E010",
    MissingField = "E011",
    UnknownField = "E012",
    DuplicateField = "E013",
    /// A word that is not among the choices.
    UnknownChoice = "E014",
    /// A duration, size, rate or number that cannot be read.
    Malformed = "E015",
    OutOfRange = "E016",
    /// A connector's, effect's or state's name.
    BadName = "E017",
    /// A field that this type of effect does not have.
    FieldOfOtherType = "E018",
    Expression = "E020",
    Template = "E021",
    /// A name that does not exist where it is read.
    OutOfScope = "E022",
    /// An id or key that is made of Kafka coordinates, or of nothing that changes.
    NoIdentity = "E023",
    /// `${…}` that is no reference, or stands where none may.
    Reference = "E024",
    Unresolved = "E025",
    /// A secret written into the file.
    LiteralSecret = "E026",
    UnknownState = "E030",
    UnreachableState = "E031",
    AmbiguousTransition = "E032",
    DuplicateName = "E033",
    UnknownEffect = "E034",
    Cycle = "E035",
    /// A result that is read without waiting for it, or that nobody records.
    ResultNotThere = "E036",
    UnknownProfile = "E037",
    /// Repeating needs a key that the provider knows.
    NoKey = "E040",
    RetryOutlivesWindow = "E041",
    RetryPlan = "E042",
    Timeout = "E043",
    Limit = "E044",
    RetentionTooShort = "E045",
    Request = "E046",
    /// `reconcile` without a way to ask.
    NoLookup = "E047",
    /// A look-up that cannot find what it asks for.
    LookupBlind = "E048",
    /// "Not found" would be believed too early.
    SettleDelay = "E049",
    GroupTaken = "E050",
    ConnectorTaken = "E051",
    /// A call that may take longer than a stop waits for it.
    OutlivesGrace = "E052",
    /// An effect that cannot be undone by another as it is written.
    Compensation = "E053",
    /// Records that make records of their own kind, with nothing that could end it.
    PublishLoop = "E054",
    /// Events of one entity that wait in one connector for those of another.
    WaitsApart = "E055",
    /// A name that is new to the database, of a connector that is not.
    Renamed = "E056",
    /// Part of the language, but not of this version.
    NotYet = "E060",
    /// A variable that has no value here.
    UnresolvedHere = "W101",
    /// An effect that stale events run, too.
    StaleRuns = "W102",
    NotInSamples = "W103",
    /// A field that has no consequence.
    Unused = "W104",
    /// An expression that has no usable value for any sample event.
    FailsOnSamples = "W105",
    /// A repeat is relied on for longer than anybody knows that the key is remembered.
    WindowNotKnown = "W106",
    /// A text that reads like an expression, where texts are templates.
    BareExpression = "W107",
    /// Versions that are waited for and that the connector never reads.
    GapNeverFilled = "W108",
    /// Events get other ids than they had.
    IdentityChanged = "W109",
}

impl Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl fmt::Display for Diagnostic {
    /// As a compiler prints it: what, where, the line, the remedy. Ends without a line break.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}[{}]: {}", self.code.as_str(), self.message)?;
        let gutter = if self.line == 0 { 0 } else { self.line.to_string().len() };
        if self.line == 0 {
            write!(f, "\n  --> {}", self.file)?;
        } else {
            write!(f, "\n{:gutter$} --> {}:{}:{}", "", self.file, self.line, self.column)?;
            if !self.field.is_empty() {
                write!(f, " ({})", self.field)?;
            }
            write!(f, "\n{:gutter$} |\n{} | {}", "", self.line, self.snippet)?;
            let indent = self.indent;
            write!(f, "\n{:gutter$} | {:indent$}{:^<width$}", "", "", "", width = self.width)?;
            if let Some(label) = &self.label {
                write!(f, " {label}")?;
            }
        }
        for note in &self.notes {
            write!(f, "\n{:gutter$} = {note}", "")?;
        }
        write!(f, "\n{:gutter$} = help: {}", "", self.help)
    }
}

// --------------------------------------------------------------------------------------------- //

/// What is wrong, before it is said what to do about it.
#[derive(Clone, Debug)]
#[must_use = "a fault is told once it has a remedy"]
pub(crate) struct Fault {
    code: Code,
    message: String,
    span: Option<Span>,
    label: Option<String>,
    notes: Vec<String>,
    /// The field that is not there, of the map at `span`.
    missing: Option<String>,
}

/// A fault with its remedy, before its place is looked up. Nothing else can be added to [`Findings`], so
/// nobody reads what is wrong and not what to do.
#[derive(Clone, Debug)]
#[must_use = "a finding that is not added is told to nobody"]
pub(crate) struct Finding {
    fault: Fault,
    help: String,
}

impl Fault {
    pub(crate) fn new(
        code: Code,
        span: impl Into<Option<Span>>,
        message: impl Into<String>,
    ) -> Self {
        let (message, span) = (message.into(), span.into());
        Self { code, message, span, label: None, notes: Vec::new(), missing: None }
    }

    pub(crate) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// It is about a field that is not there; the place is the map in which it would be.
    pub(crate) fn missing(mut self, name: &str) -> Self {
        self.missing = Some(name.to_owned());
        self
    }

    /// What to do about it.
    pub(crate) fn help(self, help: impl Into<String>) -> Finding {
        Finding { fault: self, help: help.into() }
    }
}

/// Collects the findings of one file.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    found: Vec<Finding>,
    hidden: Vec<Span>,
    /// Names of fields that stand in a map for a second time, which its tree does not have.
    pub(crate) repeated: Vec<(Span, String)>,
    /// Fields that mistyped names of a map were probably meant as.
    pub(crate) meant: Vec<(Span, String)>,
    /// Which field stands where.
    pub(crate) outline: Outline,
}

impl Findings {
    pub(crate) fn add(&mut self, finding: Finding) {
        if !self.is_mistyped(&finding.fault) {
            self.found.push(finding);
        }
    }

    /// Whether the field that it misses is there under a mistyped name: that is told already, and one mistake.
    fn is_mistyped(&self, fault: &Fault) -> bool {
        let (Some(span), Some(name)) = (fault.span, &fault.missing) else { return false };
        fault.code == Code::MissingField
            && self.meant.iter().any(|(map, meant)| *map == span && meant == name)
    }

    /// Bytes that no finding may show.
    pub(crate) fn hide(&mut self, span: Span) {
        self.hidden.push(span);
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.found.iter().any(|finding| severity(finding.fault.code) == Severity::Error)
    }

    /// Whether something of this kind was found between these places.
    pub(crate) fn has(&self, code: Code, within: Span) -> bool {
        self.found.iter().any(|finding| {
            let at = finding.fault.span;
            finding.fault.code == code
                && at.is_some_and(|at| within.start <= at.start && at.end <= within.end)
        })
    }

    /// One finding with its place, for whoever finds it later.
    pub(crate) fn placed(&self, fault: Fault, source: &Source<'_>) -> Diagnostic {
        located(fault.help(""), source, &self.hidden, &self.outline)
    }

    /// In the order of the file, without repeats.
    pub(crate) fn into_diagnostics(mut self, source: &Source<'_>) -> Vec<Diagnostic> {
        self.hidden.sort_by_key(|span| span.start);
        let located = |finding| located(finding, source, &self.hidden, &self.outline);
        let mut all: Vec<Diagnostic> = self.found.into_iter().map(located).collect();
        all.sort_by_key(|one| (one.line, one.column, one.code));
        all.dedup();
        all
    }
}

fn severity(code: Code) -> Severity {
    if code.as_str().starts_with('W') { Severity::Warning } else { Severity::Error }
}

fn located(
    finding: Finding,
    source: &Source<'_>,
    hidden: &[Span],
    outline: &Outline,
) -> Diagnostic {
    let Finding { fault, help } = finding;
    let found = fault.span.map(|span| match &fault.missing {
        Some(name) => outline.missing(span, name),
        None => (outline.at(span).to_owned(), outline.shown(span)),
    });
    let (field, span) = found.map_or((String::new(), None), |(field, span)| (field, Some(span)));
    let place = span.map(|span| source.place(span, hidden));
    let (line, column) = place.as_ref().map_or((0, 0), |place| (place.line, place.column));
    let (indent, width) = place.as_ref().map_or((0, 0), |place| (place.indent, place.width));
    let snippet = place.map(|place| place.snippet).unwrap_or_default();
    Diagnostic {
        code: fault.code,
        severity: severity(fault.code),
        message: fault.message,
        file: source.name.to_owned(),
        field,
        line,
        column,
        indent,
        width,
        snippet,
        label: fault.label,
        notes: fault.notes,
        help,
    }
}
