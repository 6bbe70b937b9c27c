//! Identity: what makes two records the same event.

use oncely_core::connector::{FingerprintRule, Identity, OnConflict};
use oncely_core::event::member_names;
use oncely_core::expr::{Expr, Root};
use oncely_core::value::Kind;

use super::super::diagnostic::{Code, Fault};
use super::super::raw::{RawConflict, RawFingerprint, RawIdentity};
use super::super::read::Field;
use super::super::source::Span;
use super::{Compiler, text};

impl Compiler<'_> {
    pub(super) fn identity(&mut self, raw: &RawIdentity, at: Span) -> Option<Identity> {
        let tenant = raw.tenant.as_ref().map(|tenant| {
            let expr = self.expr(tenant, text::RECORD)?;
            let span = tenant.span().unwrap_or_default();
            self.may_be_key(&[&expr], span, "an event's tenant").then_some(expr)
        });
        let id = self.need(&raw.id, "identity.id", at).is_some();
        let id = if id { self.expr(&raw.id, text::TENANT) } else { None };
        if let (Some(id), Some(span)) = (&id, raw.id.span()) {
            self.identifies(&[id], span, "an event's id");
        }
        let fingerprint = self.need(&raw.fingerprint, "identity.fingerprint", at);
        let fingerprint = fingerprint.and_then(|(span, raw)| self.fingerprint(raw, span));
        let on_conflict = match raw.on_conflict.as_ref().and_then(Field::get) {
            None | Some(RawConflict::Quarantine) => OnConflict::Quarantine,
            Some(RawConflict::DeadLetter) => OnConflict::DeadLetter,
        };
        let tenant = match tenant {
            None => None,
            Some(tenant) => Some(tenant?),
        };
        Some(Identity { tenant, id: id?, fingerprint: fingerprint?, on_conflict })
    }

    /// Whether these parts can be texts or integers at all, as far as their form says.
    pub(super) fn may_be_key(&mut self, parts: &[&Expr], span: Span, what: &str) -> bool {
        let never =
            |part: &&Expr| part.kind().filter(|kind| !matches!(kind, Kind::Text | Kind::Integer));
        let Some(kind) = parts.iter().find_map(never) else { return true };
        let text = format!("{what} is made of texts and integers, and this gives {kind}");
        let help = match kind {
            Kind::List => {
                "of several parts each is an expression of its own, without quotes around all of them: \
                           `key: [event.a, event.b]`; an id is one text: `event.a + \":\" + event.b`"
            }
            Kind::Null | Kind::Bool | Kind::Integer | Kind::Decimal | Kind::Text | Kind::Object => {
                "use an id that the event itself carries, such as `event.id`"
            }
        };
        self.add(Fault::new(Code::Expression, span, text).help(help));
        false
    }

    /// An event that is published again stands elsewhere, at another time; constants never change. What is made of
    /// nothing but the record's topic and key is as little an event's name.
    pub(super) fn identifies(&mut self, parts: &[&Expr], span: Span, what: &str) {
        if !self.may_be_key(parts, span, what) {
            return;
        }
        let says_nothing = parts.iter().all(|part| part.is_coordinates_only());
        let finding = if says_nothing && parts.iter().all(|part| part.reads().is_empty()) {
            Fault::new(Code::NoIdentity, span, format!("{what} cannot be the same for all events"))
        } else if says_nothing || parts.iter().any(|part| reads_place(part)) {
            let text = format!("{what} cannot be made of where a record stands");
            let note = "the same event published again has another offset, and would run again";
            Fault::new(Code::NoIdentity, span, text).note(note)
        } else {
            return;
        };
        self.add(finding.help("use an id that the event itself carries, such as `event.id`"));
    }

    fn fingerprint(&mut self, raw: &RawFingerprint, span: Span) -> Option<FingerprintRule> {
        match raw {
            RawFingerprint::Fields(fields) => {
                if fields.is_empty() {
                    let text = "an empty fingerprint would call every two events with one id equal";
                    let help = "list what must be equal: `fingerprint: [event.amount]`";
                    self.add(Fault::new(Code::OutOfRange, span, text).help(help));
                }
                let exprs = fields.iter().map(|field| {
                    let expr = self.expr(field, text::TENANT)?;
                    let meta = expr.reads_root(Root::Meta);
                    if let Some(span) = field.span().filter(|_| meta) {
                        let text = "where a record stands says nothing about what its event says";
                        let finding = Fault::new(Code::NoIdentity, span, text);
                        self.add(
                            finding.help("list the fields that decide what is charged or sent"),
                        );
                    }
                    Some(expr)
                });
                exprs
                    .collect::<Vec<_>>()
                    .into_iter()
                    .collect::<Option<Vec<_>>>()
                    .map(FingerprintRule::Fields)
            }
            RawFingerprint::Except(paths) => {
                let paths = paths.iter().map(|path| self.excluded(path));
                let paths = paths.collect::<Vec<_>>().into_iter().collect::<Option<Vec<_>>>();
                paths.map(FingerprintRule::WholeWithout)
            }
        }
    }

    /// A member path of the event.
    fn excluded(&mut self, field: &Field<String>) -> Option<Vec<Box<str>>> {
        let (span, _) = field.valid()?;
        let expr = self.expr(field, text::RECORD)?;
        let path = expr.as_path().filter(|path| path.root == Root::Event && !path.steps.is_empty());
        let names = path.and_then(|path| member_names(&path.steps));
        if names.is_none() {
            let text = "what is left out is named by a member path: `event.sent_at`";
            let help = "write the path and nothing else; what is computed is listed instead: \
                        `fingerprint: [event.amount]`";
            self.add(Fault::new(Code::Expression, span, text).help(help));
        }
        names
    }
}

/// Whether it reads what is another one for each copy of an event.
fn reads_place(expr: &Expr) -> bool {
    let place = ["partition", "offset", "timestamp"];
    let mut of_record = expr.reads().iter().filter(|path| path.root == Root::Meta);
    of_record.any(|path| path.first_member().is_some_and(|name| place.contains(&name)))
}
