//! Mail: over SMTP, which knows no keys, or over a provider's keyed API.

use std::fs;
use std::path::{Component, Path};

use oncely_core::connector::{BodyRule, EffectBody, HttpRule, RequestRule, SmtpRule};
use oncely_core::template::{TEXT_BYTES_MAX, Target, Template, TextNode, TextTree};

use super::super::diagnostic::{Code, Fault};
use super::super::profiles::{self, Known};
use super::super::raw::{RawEffect, RawProvider, RawProviderKind};
use super::super::read::Field;
use super::super::source::Span;
use super::{Compiler, slips};

/// A template's text and where it stands.
#[derive(Debug)]
struct Text {
    span: Span,
    text: String,
    /// The file beside this one that it comes from.
    file: Option<String>,
}

/// The parts of a mail as they stand in the file.
struct Parts {
    from: Text,
    to: Text,
    subject: Text,
    text: Option<Text>,
    html: Option<Text>,
}

impl Text {
    fn inline(span: Span, text: &str) -> Self {
        Self { span, text: text.to_owned(), file: None }
    }
}

impl Compiler<'_> {
    pub(super) fn email(&mut self, raw: &RawEffect, at: Span) -> Option<EffectBody> {
        let Some(provider) = &raw.provider else {
            self.missing("email.provider", at);
            return None;
        };
        let (span, provider) = provider.valid()?;
        let parts = self.parts(raw, provider, at);
        let (_, kind) = self.need(&provider.kind, "provider.kind", span)?;
        match kind {
            RawProviderKind::Smtp => self.call(raw, at, "smtp", |this, known| {
                this.of_mail(raw, known);
                this.smtp(provider, span, parts).map(RequestRule::Smtp)
            }),
            RawProviderKind::Resend => self.call(raw, at, "resend", |this, known| {
                this.resend(provider, span, parts, known).map(RequestRule::Http)
            }),
        }
    }

    fn parts(&mut self, raw: &RawEffect, provider: &RawProvider, at: Span) -> Option<Parts> {
        let from = raw.from.as_ref().or(provider.from.as_ref());
        let mut part = |field: Option<&Field<String>>, name: &str| match field {
            None => {
                self.missing(name, at);
                None
            }
            Some(field) => field.valid().map(|(span, text)| Text::inline(span, text)),
        };
        let from = part(from, "email.from");
        let to = part(raw.to.as_ref(), "email.to");
        let subject = part(raw.subject.as_ref(), "email.subject");
        let to = to.filter(|to| self.is_address(to));
        let inline = |field: &Option<Field<String>>| {
            field.as_ref().and_then(Field::valid).map(|(span, text)| Text::inline(span, text))
        };
        let (mut text, mut html) = (inline(&raw.text), inline(&raw.html));
        if let Some((span, name)) = raw.template.as_ref().and_then(Field::valid) {
            let is_html = name.trim_end_matches(".j2").ends_with(".html");
            let body = if is_html { &mut html } else { &mut text };
            if body.is_some() {
                let text = "the body is given twice: here and in the effect";
                let kind = if is_html { "html" } else { "text" };
                let help = format!("remove `{kind}`, or `template`");
                self.add(Fault::new(Code::Request, span, text).help(help));
            }
            let file = Some(name.clone());
            *body = self.file(span, name).map(|text| Text { span, text, file });
            body.as_ref()?;
        }
        if text.is_none() && html.is_none() {
            let fault = Fault::new(Code::MissingField, at, "the mail has no body").missing("text");
            self.add(fault.help("add `text`, `html`, or `template` with the name of a file"));
            return None;
        }
        Some(Parts { from: from?, to: to?, subject: subject?, text, html })
    }

    /// What is written out must be an address; what a template or the environment gives is seen later.
    fn is_address(&mut self, to: &Text) -> bool {
        let text = to.text.trim();
        if text.contains('@') || text.contains("{{") || text.contains("${") {
            return true;
        }
        let inside = if slips::is_bare_expression(text) { text } else { "event.email" };
        let help = format!("write an address, or where it is read: `to: \"{{{{ {inside} }}}}\"`");
        let said = format!("`{text}` is no mail address");
        self.add(Fault::new(Code::Request, to.span, said).help(help));
        false
    }

    /// The content of a file beside the connector file.
    fn file(&mut self, span: Span, name: &str) -> Option<String> {
        let path = Path::new(name);
        let beside = path.components().all(|part| matches!(part, Component::Normal(_)));
        if !beside {
            let text = format!("`{name}` is not beside the connector file");
            let help = "name a file in its directory or below: `templates/receipt.html.j2`";
            self.add(Fault::new(Code::Unreadable, span, text).help(help));
            return None;
        }
        let path = self.dir.join(path);
        let size = fs::metadata(&path).map(|found| found.len());
        let small = size
            .as_ref()
            .is_ok_and(|size| usize::try_from(*size).is_ok_and(|s| s <= TEXT_BYTES_MAX));
        let read = if small || size.is_err() {
            fs::read_to_string(&path).map_err(|error| error.to_string())
        } else {
            Err(format!("it has more than {TEXT_BYTES_MAX} bytes"))
        };
        match read {
            Ok(content) => Some(content),
            Err(error) => {
                let text = format!("`{name}` cannot be read: {error}");
                let help = format!("templates stand beside the connector file: {}", path.display());
                self.add(Fault::new(Code::Unreadable, span, text).help(help));
                None
            }
        }
    }

    fn part(&mut self, part: &Text, target: Target) -> Option<Template> {
        self.template_file.clone_from(&part.file);
        let template = self.template_at(part.span, &part.text, target);
        self.template_file = None;
        template
    }

    fn smtp(
        &mut self,
        provider: &RawProvider,
        span: Span,
        parts: Option<Parts>,
    ) -> Option<SmtpRule> {
        for (name, field) in [("url", &provider.url), ("token", &provider.token)] {
            self.not_of(field, name, "smtp");
        }
        let server = match &provider.server {
            None => {
                self.missing("smtp.server", span);
                None
            }
            Some(server) => self.server(server),
        };
        let auth = provider.auth.as_ref().map(|auth| self.auth(auth));
        let auth = match auth {
            None => None,
            Some(auth) => Some(auth?),
        };
        let parts = parts?;
        let from = self.part(&parts.from, Target::Text);
        let to = self.part(&parts.to, Target::Text);
        let subject = self.part(&parts.subject, Target::Text);
        let text = parts.text.as_ref().map(|text| self.part(text, Target::Text));
        let html = parts.html.as_ref().map(|html| self.part(html, Target::Html));
        Some(SmtpRule {
            server: server?,
            auth,
            from: from?,
            to: to?,
            subject: subject?,
            text: match text {
                None => None,
                Some(text) => Some(text?),
            },
            html: match html {
                None => None,
                Some(html) => Some(html?),
            },
        })
    }

    fn server(&mut self, field: &Field<String>) -> Option<oncely_core::connector::SecretText> {
        let (span, text) = field.valid()?;
        let setting = self.setting(field)?;
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        let known = scheme.is_some_and(|s| ["smtp", "smtps", "smtp+starttls"].contains(&s));
        if !known && !text.starts_with("${") {
            let finding = Fault::new(Code::Request, span, "this is no mail server");
            let help = "write `smtp://host:25`, `smtps://host:465` or `smtp+starttls://host:587`";
            self.add(finding.help(help));
            return None;
        }
        if text.contains('@') {
            self.findings.hide(span);
            let fault = Fault::new(Code::Request, span, "credentials do not stand in a URL");
            let help = "write `auth: { basic: { user: \"${secret:user}\", password: \"${secret:password}\" } }`";
            self.add(fault.help(help));
            return None;
        }
        Some(setting)
    }

    /// Resend's API: JSON, a key header, keys remembered for a day.
    fn resend(
        &mut self,
        provider: &RawProvider,
        span: Span,
        parts: Option<Parts>,
        known: &Known,
    ) -> Option<HttpRule> {
        self.not_of(&provider.server, "server", "resend");
        if let Some(span) = provider.auth.as_ref().and_then(Field::span) {
            let text = "a provider of kind `resend` has no field `auth`";
            let help = "remove it; it takes a `token: \"${secret:resend}\"`";
            self.add(Fault::new(Code::FieldOfOtherType, span, text).help(help));
        }
        let token = match &provider.token {
            None => {
                self.missing("resend.token", span);
                None
            }
            Some(token) => self.secret(token),
        };
        let url = match &provider.url {
            None => {
                Template::compile(&format!("{}/emails", profiles::RESEND_URL), Target::Url).ok()
            }
            Some(url) => self.emails_url(url),
        };
        let parts = parts?;
        let to = self.json_line(&parts.to);
        let mut members = vec![
            ("from", self.json_line(&parts.from)),
            ("to", to.map(|to| TextTree::List(vec![to]))),
            ("subject", self.json_line(&parts.subject)),
        ];
        if let Some(text) = &parts.text {
            members.push(("text", self.json_text(text)));
        }
        if let Some(html) = &parts.html {
            members.push(("html", self.json_html(html)));
        }
        let members = members.into_iter().map(|(name, value)| Some((name.into(), value?)));
        let body = members.collect::<Option<Vec<_>>>().map(TextTree::Object);
        Some(HttpRule {
            method: "POST".into(),
            url: url?,
            headers: self.headers(None, known),
            auth: Some(oncely_core::connector::Auth::Bearer(token?)),
            body: BodyRule::Json(body?),
        })
    }

    fn emails_url(&mut self, field: &Field<String>) -> Option<Template> {
        let (span, text) = field.valid()?;
        let base = self.plain_in(span, text, Target::Url)?;
        let full = format!("{}/emails", base.trim_end_matches('/'));
        self.url(&Field::Valid(span, full))
    }

    /// A text of a JSON body is always a text here, whatever type the event has.
    fn json_text(&mut self, part: &Text) -> Option<TextTree> {
        let template = self.part(part, Target::Text)?;
        Some(TextTree::Text(TextNode::from_template(template)))
    }

    /// What becomes a header of the mail.
    fn json_line(&mut self, part: &Text) -> Option<TextTree> {
        self.part(part, Target::Text).map(TextTree::Line)
    }

    fn json_html(&mut self, part: &Text) -> Option<TextTree> {
        let template = self.part(part, Target::Html)?;
        Some(TextTree::Text(TextNode::from_template(template)))
    }

    /// Servers that take mails answer with no HTTP status.
    fn of_mail(&mut self, raw: &RawEffect, known: &Known) {
        if known.profile.statuses.is_empty() && known.headers.is_empty() {
            return;
        }
        let span = raw.profile.as_ref().and_then(Field::span);
        let text = format!("profile `{}` says what HTTP answers mean", known.profile.name);
        let finding = Fault::new(Code::FieldOfOtherType, span, text);
        self.add(finding.help("over SMTP use `smtp`, `resend-smtp`, or one with a key alone"));
    }

    fn not_of(&mut self, field: &Option<Field<String>>, name: &str, kind: &str) {
        if let Some(span) = field.as_ref().and_then(Field::span) {
            self.findings.hide(span);
            let text = format!("a provider of kind `{kind}` has no field `{name}`");
            let others = match kind {
                "smtp" => "`server`, `auth` and `from`",
                _ => "`token`, `url` and `from`",
            };
            let help = format!("remove it; beside `kind` it has {others}");
            self.add(Fault::new(Code::FieldOfOtherType, span, text).help(help));
        }
    }
}
