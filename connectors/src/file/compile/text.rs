//! Expressions, templates and references inside the texts of a file.

use oncely_core::connector::SecretText;
use oncely_core::expr::{Expr, ExprError, Path, Root, Scope as Values};
use oncely_core::template::{Target, Template, TemplateError, TextNode};

use super::super::Check;
use super::super::diagnostic::{Code, Fault};
use super::super::read::Field;
use super::super::source::Span;
use super::{Compiler, slips};
use crate::secret::{Reference, SecretError, references, resolve};

/// What may be read at a place, and how the place is called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    roots: &'static [Root],
    place: &'static str,
}

const ADD_STATE: &str = "add one, with `entity`, `key`, `version`, `initial` and `transitions`, or read what the event says";

/// Before an event has an identity.
pub(super) const RECORD: Scope = Scope {
    roots: &[Root::Event, Root::Headers, Root::Meta],
    place: "where only the record is known",
};
/// With the tenant, before the state is known.
pub(super) const TENANT: Scope = Scope {
    roots: &[Root::Event, Root::Headers, Root::Meta, Root::Tenant],
    place: "before the state is decided",
};
/// With the state after the event.
pub(super) const DECIDED: Scope = Scope {
    roots: &[Root::Event, Root::Headers, Root::Meta, Root::Tenant, Root::State],
    place: "when it is decided what is owed",
};
/// When a line of the usage ledger is written.
pub(super) const LINE: Scope = Scope {
    roots: &[Root::Event, Root::Headers, Root::Meta, Root::Tenant, Root::State, Root::Effects],
    place: "in a line of the ledger",
};
/// When a request is made.
pub(super) const REQUEST: Scope = Scope {
    roots: &[
        Root::Event,
        Root::Headers,
        Root::Meta,
        Root::Tenant,
        Root::State,
        Root::Effects,
        Root::Effect,
    ],
    place: "in a request",
};
/// When an answer is classified.
pub(super) const PROFILE: Scope = Scope { roots: &[Root::Response], place: "in a profile" };
/// When the answer to a look-up is read.
pub(super) const LOOKUP: Scope = Scope { roots: &[Root::Response], place: "in `lookup`" };
pub(super) const ANSWER: Scope = Scope { roots: &[Root::Response], place: "in `record`" };

impl Compiler<'_> {
    /// An expression that may read what `scope` has.
    pub(super) fn expr(&mut self, field: &Field<String>, scope: Scope) -> Option<Expr> {
        let (span, text) = field.valid()?;
        self.expr_at(span, text, scope)
    }

    pub(super) fn expr_at(&mut self, span: Span, text: &str, scope: Scope) -> Option<Expr> {
        if references(text).is_ok_and(|found| !found.is_empty()) {
            let chars = text.split("${").next().map_or(0, |before| before.chars().count());
            let at = self.inside(span, text, chars);
            let said = "an expression takes nothing from the environment: the same event has to come to the same";
            let help = "write the value itself, or read what the event says";
            self.add(Fault::new(Code::Reference, at, said).help(help));
            return None;
        }
        let expr = match Expr::compile(text) {
            Ok(expr) => expr,
            Err(error) => {
                let at = error.at().map_or(span, |at| self.inside(span, text, at));
                let mut message = error.to_string();
                // A root that cannot be read here was not meant.
                let is_root = matches!(error, ExprError::UnknownRoot { .. });
                let there = |near: &&str| scope.roots.iter().any(|root| root.name() == *near);
                if let Some(near) = error.near().filter(|near| !is_root || there(near)) {
                    message.push_str(&format!(", did you mean `{near}`?"));
                }
                let help = slips::remedy(text, &error, scope.roots);
                self.add(Fault::new(Code::Expression, at, message).help(help));
                return None;
            }
        };
        self.check_reads(span, expr.reads(), scope);
        self.check_entered(span, &expr, scope);
        if expr.is_constant()
            && let Err(error) = expr.eval(&Values::default())
        {
            let text = format!("this fails for every event: {error}");
            let help =
                "it reads nothing of the event; write what it is to be made of: `event.amount`";
            self.add(Fault::new(Code::Expression, span, text).help(help));
            return None;
        }
        Some(expr)
    }

    /// An expression that says yes or no.
    pub(super) fn condition(&mut self, field: &Field<String>, scope: Scope) -> Option<Expr> {
        let expr = self.expr(field, scope)?;
        if expr.is_constant()
            && let Err(error) = expr.is_true(&Values::default())
        {
            let span = field.span().unwrap_or_default();
            let finding = Fault::new(Code::Expression, span, format!("this {error}"));
            self.add(finding.help("a condition is true or false: `event.type == \"paid\"`"));
            return None;
        }
        Some(expr)
    }

    fn check_entered(&mut self, span: Span, expr: &Expr, scope: Scope) {
        if expr.states_entered().is_empty() {
            return;
        }
        if !scope.roots.contains(&Root::State) {
            let text = format!("`entered` is not known {}", scope.place);
            let help =
                "it stands in `when` and in the keys of effects, which come after the transition";
            self.add(Fault::new(Code::OutOfScope, span, text).help(help));
            return;
        }
        let Some(states) = self.states.clone() else {
            let text = "`entered` needs a `state` block";
            self.add(Fault::new(Code::OutOfScope, span, text).help(ADD_STATE));
            return;
        };
        for name in expr.states_entered() {
            if let Some(finding) = states.never_entered(span, name) {
                self.add(finding);
            }
        }
    }

    pub(super) fn check_reads(&mut self, span: Span, reads: &[Path], scope: Scope) {
        for path in reads {
            let name = path.root.name();
            if !scope.roots.contains(&path.root) {
                let text = format!("`{name}` is not known {}", scope.place);
                let known = scope.roots.iter().map(|root| root.name()).collect::<Vec<_>>();
                let help = format!("here one can read {}", super::super::read::listed(&known));
                self.add(Fault::new(Code::OutOfScope, span, text).help(help));
            } else if path.root == Root::State && self.states.is_none() {
                let text = "`state` needs a `state` block";
                self.add(Fault::new(Code::OutOfScope, span, text).help(ADD_STATE));
            } else if path.root == Root::Effects && path.first_member().is_none() {
                let text = "`effects` alone says nothing of which effect's result is read";
                let help = "name the effect and what it records: `effects.settle.charge_id`";
                self.add(Fault::new(Code::OutOfScope, span, text).help(help));
            }
        }
    }

    // ----------------------------------------------------------------------------------------- //

    /// A template for a request, in which variables of the environment are replaced.
    pub(super) fn template(&mut self, field: &Field<String>, target: Target) -> Option<Template> {
        let (span, text) = field.valid()?;
        self.template_at(span, text, target)
    }

    pub(super) fn template_at(
        &mut self,
        span: Span,
        text: &str,
        target: Target,
    ) -> Option<Template> {
        self.template_in(span, text, target, REQUEST)
    }

    pub(super) fn template_in(
        &mut self,
        span: Span,
        text: &str,
        target: Target,
        scope: Scope,
    ) -> Option<Template> {
        let text = self.plain_in(span, text, target)?;
        match Template::compile(&text, target) {
            Ok(template) => {
                self.bare(span, &text);
                self.check_reads(span, template.reads(), scope);
                Some(template)
            }
            Err(error) => {
                self.template_error(span, &text, &error);
                None
            }
        }
    }

    /// A text of a JSON body.
    pub(super) fn node(&mut self, span: Span, text: &str) -> Option<TextNode> {
        let text = self.plain(span, text)?;
        match TextNode::compile(&text) {
            Ok(node) => {
                self.bare(span, &text);
                self.check_reads(span, node.reads(), REQUEST);
                Some(node)
            }
            Err(error) => {
                self.template_error(span, &text, &error);
                None
            }
        }
    }

    /// Warns of a text that is sent as it stands, and reads like what was to be put in its place.
    fn bare(&mut self, span: Span, text: &str) {
        if slips::is_bare_expression(text) {
            let text = text.trim();
            let said = format!("`{text}` is sent as it stands: this field is a template");
            let finding = Fault::new(Code::BareExpression, span, said);
            self.add(finding.help(format!("write `\"{{{{ {text} }}}}\"` for its value")));
        }
    }

    fn template_error(&mut self, span: Span, text: &str, error: &TemplateError) {
        let chars = |at: usize| text.get(..at).map_or(0, |before| before.chars().count());
        let named = match error {
            TemplateError::UnknownRoot { name, .. } => text.find(&**name),
            TemplateError::UnknownMember { root, name, .. } => text
                .find(&format!("{root}.{name}"))
                .map(|at| at.saturating_add(root.len()).saturating_add(1)),
            TemplateError::Syntax { .. }
            | TemplateError::UnknownName { .. }
            | TemplateError::TooLong { .. } => error.at(),
        };
        let at = named.map_or(span, |at| self.inside(span, text, chars(at)));
        let mut message = error.to_string();
        if let Some(near) = error.near() {
            message.push_str(&format!(", did you mean `{near}`?"));
        }
        let mut fault = Fault::new(Code::Template, at, message);
        if let Some(file) = &self.template_file {
            let before = named.and_then(|at| text.get(..at)).unwrap_or_default();
            let line = before.matches('\n').count().saturating_add(1);
            fault = fault.note(format!("in line {line} of {file}"));
        }
        self.add(fault.help(slips::template_remedy(error)));
    }

    // ----------------------------------------------------------------------------------------- //

    /// A text that is no secret: variables of the environment are replaced now.
    pub(super) fn plain(&mut self, span: Span, text: &str) -> Option<String> {
        self.plain_in(span, text, Target::Text)
    }

    /// As [`Self::plain`], of a text that lands in `target`.
    pub(super) fn plain_in(&mut self, span: Span, text: &str, target: Target) -> Option<String> {
        if !text.contains("${") {
            return Some(text.to_owned());
        }
        let found = self.references(span, text)?;
        if found.iter().any(|reference| matches!(reference, Reference::Secret { .. })) {
            let finding = Fault::new(Code::Reference, span, "a secret may not stand here");
            let help =
                "what stands here is stored and shown; secrets go into `auth`, `token` or `server`";
            self.add(finding.help(help));
            return None;
        }
        match resolve(&SecretText(text.into()), self.settings) {
            Ok(value) => Some(value.expose().to_owned()),
            Err(error) => {
                self.unresolved(span, &error);
                // The other checks go on with a value that fits most places.
                Some(self.stand_in(text, target == Target::Url))
            }
        }
    }

    /// The text with `localhost` for what has no value here, as a url where it is to be one.
    fn stand_in(&self, text: &str, is_url: bool) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            out.push_str(before);
            let (inside, tail) = after.split_once('}').unwrap_or((after, ""));
            let value = resolve(&SecretText(format!("${{{inside}}}").into()), self.settings);
            match value {
                Ok(value) => out.push_str(value.expose()),
                Err(_) if is_url && out.is_empty() && tail.starts_with("://") => {
                    out.push_str("http")
                }
                Err(_) if out.is_empty() && (is_url || tail.starts_with('/')) => {
                    out.push_str("http://localhost");
                }
                Err(_) => out.push_str("localhost"),
            }
            rest = tail;
        }
        out.push_str(rest);
        out
    }

    /// A text that must come from elsewhere: a reference, and no literal secret.
    pub(super) fn secret(&mut self, field: &Field<String>) -> Option<SecretText> {
        let (span, text) = field.valid()?;
        let found = self.references(span, text)?;
        if found.is_empty() {
            self.findings.hide(span);
            let text = "a secret must not stand in the file";
            let finding = Fault::new(Code::LiteralSecret, span, text);
            self.add(finding.help("write `\"${secret:name}\"` or `\"${env:NAME}\"`"));
            return None;
        }
        self.setting(field)
    }

    /// A text with references that are looked up when it is used.
    pub(super) fn setting(&mut self, field: &Field<String>) -> Option<SecretText> {
        let (span, text) = field.valid()?;
        self.references(span, text)?;
        let setting = SecretText(text.as_str().into());
        if let Err(error) = resolve(&setting, self.settings) {
            self.unresolved(span, &error);
        }
        Some(setting)
    }

    fn references(&mut self, span: Span, text: &str) -> Option<Vec<Reference>> {
        let at = match references(text) {
            Ok(found) => return Some(found),
            Err(SecretError::Open { at } | SecretError::Malformed { at }) => at,
            Err(SecretError::Missing { .. }) => 0,
        };
        let chars = text.get(..at).map_or(0, |before| before.chars().count());
        let place = self.inside(span, text, chars);
        let finding =
            Fault::new(Code::Reference, place, "this begins like a reference and is none");
        let help = "write `${env:NAME}`, `${env:NAME:-default}` or `${secret:name}`; `$${` is a plain `${`";
        self.add(finding.help(help));
        None
    }

    fn unresolved(&mut self, span: Span, error: &SecretError) {
        let SecretError::Missing { reference } = error else { return };
        let code = match (self.check, reference) {
            (Check::Live, _) => Code::Unresolved,
            (Check::Offline, Reference::Env { .. }) => Code::UnresolvedHere,
            // Nobody has the secrets where a file is only checked.
            (Check::Offline, Reference::Secret { .. }) => return,
        };
        let text = format!("`{reference}` has no value here");
        let help = self.settings.remedy(reference);
        self.add(Fault::new(code, span, text).help(help));
    }

    // ----------------------------------------------------------------------------------------- //

    /// The word at character `at` of a text whose place is `span`; the whole of it where the text
    /// is written in another way than it reads (escapes, several lines).
    pub(super) fn inside(&self, span: Span, text: &str, at: usize) -> Span {
        let written = self.source.text.get(span.range()).unwrap_or_default();
        let quoted = written.strip_prefix(['"', '\'']).filter(|rest| rest.starts_with(text));
        let start = match quoted {
            Some(_) => span.start.saturating_add(1),
            None if written == text => span.start,
            None => return span,
        };
        let offset = text.char_indices().nth(at).map_or(text.len(), |(offset, _)| offset);
        let rest = text.get(offset..).unwrap_or_default();
        let word = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let from = start.saturating_add(offset);
        Span::new(from, from.saturating_add(word.unwrap_or(rest.len()).max(1)))
    }
}
