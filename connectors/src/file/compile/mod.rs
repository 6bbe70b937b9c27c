//! From raw settings to a connector in which nothing is left to refuse.
//!
//! Every check adds a finding and goes on; a connector is made only when there was none.

mod call;
mod compensate;
mod effect;
mod email;
mod graph;
mod identity;
mod llm;
mod lookup;
mod profile;
mod publish;
mod repeat;
mod samples;
mod slips;
mod state;
mod testcase;
mod text;
mod webhook;

use std::collections::BTreeMap;
use std::path::Path;

use oncely_core::connector::{
    Connector, DeadLetters, Decode, Envelope, Failure, GroupProtocol, OffsetWait, OnGap, Retention,
    Source as Records, Start,
};
use oncely_core::render;

use super::advice;
use super::diagnostic::{Code, Fault, Finding, Findings, PLANNED};
use super::profiles::{self, Known};
use super::raw::{
    RawConnector, RawDecode, RawEnvelope, RawFailure, RawFormat, RawLetterHeaders, RawProtocol,
    RawSource, RawStart,
};
use super::read::Field;
use super::source::{Source, Span};
use super::words::{Millis, Wait};
use super::{Bounds, Check, TestCase};
use crate::secret::SecretSource;

const DAY_MS: u64 = 86_400_000;
const OFFSET_WAIT_MS: u64 = 60_000;
const REDRIVES_MAX: u32 = 5;
const OPEN_EFFECTS_MAX: u64 = 1_000_000;
const DEDUPE_MS: u64 = 90 * DAY_MS;
const PAYLOADS_MS: u64 = 30 * DAY_MS;
const BYTES_MAX: u64 = 1 << 20;
/// What Kafka could be made to carry; beyond it lies a mistake.
const BYTES_MAX_MAX: u64 = 64 << 20;
const TOPIC_CHARS_MAX: usize = 249;
const GROUP_CHARS_MAX: usize = 249;

/// What the checks of one file share.
pub(super) struct Compiler<'a> {
    pub(super) source: Source<'a>,
    pub(super) findings: &'a mut Findings,
    /// Where the file is; templates and samples are found beside it.
    pub(super) dir: &'a Path,
    pub(super) settings: &'a dyn SecretSource,
    pub(super) check: Check,
    /// What the processes that will run it allow.
    pub(super) bounds: Bounds,
    /// The states of the connector, or none without a `state` block.
    states: Option<state::States>,
    /// Those that the file declares.
    profiles: BTreeMap<String, Known>,
    /// Whether some records of its topics are left out.
    has_match: bool,
    /// The file beside this one whose template is compiled, if it is one.
    template_file: Option<String>,
}

impl<'a> Compiler<'a> {
    pub(super) fn new(
        source: Source<'a>,
        findings: &'a mut Findings,
        dir: &'a Path,
        settings: &'a dyn SecretSource,
        check: Check,
    ) -> Self {
        let (states, profiles, template_file) = (None, BTreeMap::new(), None);
        let bounds = Bounds::default();
        let has_match = false;
        Self {
            source,
            findings,
            dir,
            settings,
            check,
            bounds,
            states,
            profiles,
            has_match,
            template_file,
        }
    }

    /// `None` when something essential is missing; findings say what.
    pub(super) fn connector(
        &mut self,
        raw: &RawConnector,
        top: Span,
    ) -> Option<(Connector, Vec<TestCase>)> {
        self.language_version(&raw.version, top);
        let name = self.need(&raw.connector, "connector", top);
        let name = name.and_then(|(span, name)| self.name(span, name, "a connector", true));
        let scope = raw.scope.as_ref().and_then(Field::valid);
        let scope = scope.and_then(|(span, scope)| self.name(span, scope, "a scope", true));
        let source = self.need(&raw.source, "source", top);
        let source = source.and_then(|(span, raw)| self.records(raw, span, name));
        let decode = self.decode(raw.decode.as_ref().and_then(Field::get));
        self.states = raw.state.as_ref().and_then(Field::get).map(state::States::of);
        let matches = raw.matches.as_ref();
        self.has_match = matches.is_some();
        let matches = matches.and_then(|text| self.condition(text, text::RECORD));
        let identity = self.need(&raw.identity, "identity", top);
        let identity = identity.and_then(|(span, raw)| self.identity(raw, span));
        let state = raw.state.as_ref().and_then(Field::valid);
        let state = state.map(|(span, raw)| self.state(raw, span));
        if let Some(declared) = raw.profiles.as_ref().and_then(Field::get) {
            self.profiles = self.profiles(declared, profiles::built_in());
        }
        let effects = self.effects(raw);
        let failure = self.failure(raw);
        let gap_ms = match state.as_ref().and_then(Option::as_ref).map(|state| state.on_gap) {
            Some(OnGap::Wait(wait)) => wait.wait_ms,
            Some(OnGap::Apply) | None => 0,
        };
        let retention = self.retention(raw, &failure, &effects, gap_ms);
        let tests = self.tests(raw, &effects);
        let owner = raw.owner.as_ref().and_then(Field::get).map(|owner| owner.as_str().into());
        let connector = Connector {
            scope: scope.or(name)?.into(),
            name: name?.into(),
            owner,
            source: source?,
            decode,
            matches,
            identity: identity?,
            state: match state {
                None => None,
                Some(state) => Some(state?),
            },
            effects,
            failure,
            retention,
        };
        self.samples(&connector, &tests, raw);
        Some((connector, tests))
    }

    fn language_version(&mut self, version: &Field<u64>, top: Span) {
        let Some((span, version)) = self.need(version, "version", top) else { return };
        if *version != 1 {
            let text = format!("version {version} of the connector language is not known");
            self.add(Fault::new(Code::OutOfRange, span, text).help("write `version: 1`"));
        }
    }

    fn records(&mut self, raw: &RawSource, at: Span, connector: Option<&str>) -> Option<Records> {
        let mut topics: Vec<Box<str>> = Vec::new();
        let (list, items) = self.need(&raw.topics, "source.topics", at)?;
        for (span, topic) in items.iter().filter_map(Field::valid) {
            let Some(topic) = self.plain(span, topic) else { continue };
            let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            if topic.is_empty() || topic.len() > TOPIC_CHARS_MAX || !topic.chars().all(letters) {
                let help = "topics are named one by one, of letters, digits, `.`, `_` and `-`; patterns are not read";
                let finding = Fault::new(Code::BadName, span, "this is no topic's name");
                self.add(finding.help(help));
            } else if topics.iter().any(|known| **known == *topic) {
                let text = format!("topic `{topic}` stands twice");
                self.add(Fault::new(Code::DuplicateName, span, text).help("remove one"));
            } else {
                topics.push(topic.into());
            }
        }
        if items.is_empty() {
            let fault = Fault::new(Code::OutOfRange, list, "at least one topic is needed");
            self.add(fault.help("name the topics one by one: `topics: [billing.invoices.v1]`"));
        }
        let group = match raw.group.as_ref().and_then(Field::valid) {
            None => format!("oncely.{}", connector.unwrap_or_default()),
            Some((span, group)) => {
                let group = self.plain(span, group)?;
                if group.trim().is_empty() || group.len() > GROUP_CHARS_MAX {
                    let text = "a group's name has 1 to 249 characters";
                    let help = "leave it out for `oncely.` and the connector's name";
                    self.add(Fault::new(Code::BadName, span, text).help(help));
                }
                group
            }
        };
        let start = match raw.start.as_ref().and_then(Field::get) {
            None | Some(RawStart::Earliest) => Start::Earliest,
            Some(RawStart::Latest) => Start::Latest,
        };
        let protocol = match raw.protocol.as_ref().and_then(Field::get) {
            None | Some(RawProtocol::Classic) => GroupProtocol::Classic,
            Some(RawProtocol::Consumer) => GroupProtocol::Consumer,
        };
        Some(Records { topics, group: group.into(), start, protocol })
    }

    fn decode(&mut self, raw: Option<&RawDecode>) -> Decode {
        let format = raw.and_then(|raw| raw.format.as_ref()?.valid());
        match format {
            None | Some((_, RawFormat::Json)) => {}
            Some((span, RawFormat::Avro)) => self.not_yet(span, "`format: avro`", "avro"),
            Some((span, RawFormat::Protobuf)) => {
                self.not_yet(span, "`format: protobuf`", "protobuf")
            }
        }
        let envelope = match raw.and_then(|raw| raw.envelope.as_ref()?.get()) {
            None | Some(RawEnvelope::None) => Envelope::None,
            Some(RawEnvelope::CloudEvents) => Envelope::CloudEvents,
        };
        let bytes = raw.and_then(|raw| raw.max_bytes.as_ref()?.valid());
        let bytes_max = bytes.map_or(BYTES_MAX, |(_, bytes)| bytes.0);
        if let Some((span, _)) = bytes.filter(|_| !(1..=BYTES_MAX_MAX).contains(&bytes_max)) {
            let text = "the largest value is 1B to 64MiB";
            self.add(Fault::new(Code::OutOfRange, span, text).help("leave it out for 1MiB"));
        }
        Decode { envelope, bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX) }
    }

    fn failure(&mut self, raw: &RawConnector) -> Failure {
        let wait = raw.failure.as_ref().and_then(|raw| raw.get()?.offset_wait.as_ref()?.get());
        let offset_wait = match wait {
            None => OffsetWait::Millis(OFFSET_WAIT_MS),
            Some(Wait::For(wait)) => OffsetWait::Millis(wait.0),
            Some(Wait::Forever) => OffsetWait::Forever,
        };
        let topics = raw.source.get().and_then(|source| source.topics.get());
        let raw = raw.failure.as_ref().and_then(Field::get);
        let redrives = raw.and_then(|raw| raw.max_redrives.as_ref()?.get());
        let redrives_max = redrives.copied().unwrap_or(REDRIVES_MAX);
        let open = raw.and_then(|raw| raw.max_open_effects.as_ref()?.valid());
        if let Some((span, _)) = open.filter(|(_, open)| **open == 0) {
            let text = "with no effect open nothing would ever be taken";
            self.add(Fault::new(Code::OutOfRange, span, text).help("write 1 or more"));
        }
        let open_effects_max = open.map_or(OPEN_EFFECTS_MAX, |(_, open)| *open);
        let dead_letter = self.dead_letter(raw, topics.map_or(&[], Vec::as_slice));
        Failure { offset_wait, dead_letter, redrives_max, open_effects_max }
    }

    fn dead_letter(
        &mut self,
        raw: Option<&RawFailure>,
        read: &[Field<String>],
    ) -> Option<DeadLetters> {
        let raw = raw?;
        let headers = raw.headers.as_ref().and_then(Field::valid);
        let Some((span, topic)) = raw.dead_letter.as_ref().and_then(Field::valid) else {
            if let Some((span, _)) = headers {
                let finding = Fault::new(Code::Unused, span, "no topic gets these headers");
                self.add(finding.help("name one: `dead_letter: billing.invoices.v1.dlq`"));
            }
            return None;
        };
        let topic = self.plain(span, topic)?;
        if !render::is_topic_name(&topic) {
            let finding = Fault::new(Code::BadName, span, "Kafka allows no topic of this name");
            let help = "letters, digits, `.`, `_` and `-`, up to 249; no templates";
            self.add(finding.help(help));
            return None;
        }
        if read.iter().any(|other| other.get() == Some(&topic)) {
            let text = "this topic is read: each dead letter would come back as a record";
            self.add(Fault::new(Code::OutOfRange, span, text).help("name another one"));
            return None;
        }
        let has = |wanted| match headers {
            None => true,
            Some((_, named)) => named.iter().any(|one| one.get() == Some(&wanted)),
        };
        Some(DeadLetters {
            topic: topic.into(),
            connect: has(RawLetterHeaders::Connect),
            spring: has(RawLetterHeaders::Spring),
        })
    }

    /// An id must be remembered for longer than anything of its event can come again.
    fn retention(
        &mut self,
        raw: &RawConnector,
        failure: &Failure,
        effects: &[oncely_core::connector::EffectRule],
        gap_ms: u64,
    ) -> Retention {
        let raw = raw.retention.as_ref().and_then(Field::get);
        let dedupe = raw.and_then(|raw| raw.dedupe.as_ref()?.valid());
        let payloads = raw.and_then(|raw| raw.payloads.as_ref()?.get());
        let dedupe_ms = dedupe.map_or(DEDUPE_MS, |(_, dedupe)| dedupe.0);
        let replay = raw.and_then(|raw| raw.replay.as_ref()?.get());
        let replay_ms = replay.map_or(0, |replay| replay.0);
        let waits = match failure.offset_wait {
            OffsetWait::Millis(wait) => Some((wait, "failure.offset_wait".to_owned())),
            OffsetWait::Forever => None,
        };
        let plans = effects.iter().filter_map(|effect| match &effect.body {
            oncely_core::connector::EffectBody::Call(call) => {
                let retries = call.retry.elapsed_ms_max().saturating_add(call.timeout.total_ms);
                Some(match &call.lookup {
                    None => (retries, format!("the retries of `{}`", effect.id)),
                    Some(lookup) => {
                        // Asked for as long again after everything has settled.
                        let asking = lookup.settle_ms.saturating_add(call.retry.elapsed_ms_max());
                        let whole = retries.saturating_add(asking);
                        (whole, format!("the retries and look-ups of `{}`", effect.id))
                    }
                })
            }
            oncely_core::connector::EffectBody::Ledger(_)
            | oncely_core::connector::EffectBody::Publish(_) => None,
        });
        let longest = plans.chain(waits).max_by_key(|(length, _)| *length);
        let more = replay_ms > 0 || gap_ms > 0;
        let longest = longest.or(more.then(|| (0, "no effect".to_owned())));
        // An event waits first, and is done then.
        let longest = longest.map(|(length, what)| match gap_ms {
            0 => (length, what),
            _ => (length.saturating_add(gap_ms), format!("{what}, after `on_gap.wait`,")),
        });
        let longest = longest.map(|(length, what)| match replay_ms {
            0 => (length, what),
            _ => (length.saturating_add(replay_ms), format!("{what}, and `retention.replay`,")),
        });
        if let Some((length, what)) = longest.filter(|(length, _)| dedupe_ms <= *length) {
            let dedupe_text = Millis(dedupe_ms);
            let (length, least) = (Millis(length).in_full(), Millis(length).next_whole());
            let text = format!(
                "ids are forgotten after {dedupe_text}, which is shorter than what can come again"
            );
            let span = dedupe.map(|(span, _)| span);
            let finding = Fault::new(Code::RetentionTooShort, span, text);
            let note = format!("{what} may take {length}; a repeat after that would run again");
            let help = format!(
                "write `retention.dedupe: {least}` or more; it must also exceed the topic's retention"
            );
            self.add(finding.note(note).help(help));
        }
        Retention {
            dedupe_ms,
            replay_ms,
            payloads_ms: payloads.map_or(PAYLOADS_MS, |payloads| payloads.0),
        }
    }

    // ----------------------------------------------------------------------------------------- //

    fn add(&mut self, finding: Finding) {
        self.findings.add(finding);
    }

    /// The value of a field that must be there; `name` with its place, as `effect.key`.
    fn need<'r, T>(&mut self, field: &'r Field<T>, name: &str, at: Span) -> Option<(Span, &'r T)> {
        if matches!(field, Field::Missing) {
            self.missing(name, at);
        }
        field.valid()
    }

    fn missing(&mut self, name: &str, at: Span) {
        let last = name.rsplit('.').next().unwrap_or(name);
        let fault = Fault::new(Code::MissingField, at, format!("field `{last}` is missing"));
        let help = advice::how_to_write(name).map(str::to_owned);
        self.add(fault.missing(last).help(help.unwrap_or_else(|| format!("write `{last}: …`"))));
    }

    fn not_yet(&mut self, span: Span, what: &str, word: &str) {
        let text = format!("{what} is not available yet");
        let finding = Fault::new(Code::NotYet, span, text).note(PLANNED);
        self.add(finding.help(advice::instead_of(word)));
    }

    /// A name of the user's choice: lower-case letters, digits, and dashes or underscores.
    fn name<'t>(&mut self, span: Span, name: &'t str, what: &str, dashes: bool) -> Option<&'t str> {
        let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let first = name.starts_with(|c: char| c.is_ascii_lowercase());
        let rest = name.chars().all(|c| letters(c) || c == '_' || (dashes && c == '-'));
        if first && rest && name.len() <= 63 {
            return Some(name);
        }
        let dash = if dashes { ", `-`" } else { "" };
        let help =
            format!("begin with a letter; then lower-case letters, digits{dash} and `_`, up to 63");
        let text = format!("`{name}` is no name for {what}");
        self.add(Fault::new(Code::BadName, span, text).help(help));
        None
    }
}
