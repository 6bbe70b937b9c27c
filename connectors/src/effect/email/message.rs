//! Turns a rendered mail into a message.
//!
//! Header injection is refused here, before any library sees the text: no header field may have a
//! control character. Texts are encoded so that no line of theirs can end the message.

use lettre::Message;
use lettre::message::header::{ContentTransferEncoding, ContentType, HeaderName, HeaderValue};
use lettre::message::{Body, Mailbox, Mailboxes, MessageBuilder, MultiPart, SinglePart};
use oncely_core::effect::request::EmailRequest;
use oncely_core::key::Key;

/// Recipients that one mail may have.
pub(super) const RECIPIENTS_MAX: usize = 50;

/// Why a mail cannot be sent. Texts name the field and never its content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    #[error("`{field}` has a line break or another control character")]
    Control { field: &'static str },
    #[error("`{field}` is no mail address")]
    Address { field: &'static str },
    #[error("`to` has {count} addresses; 1 to {RECIPIENTS_MAX} are allowed")]
    Recipients { count: usize },
    #[error("`{field}` has a NUL character")]
    Nul { field: &'static str },
    #[error("the mail has neither `text` nor `html`")]
    Empty,
    #[error("the mail cannot be put together")]
    Build,
}

/// The message, with a Message-ID that is the same for every attempt.
pub(super) fn message(
    key: &Key,
    request: &EmailRequest,
    key_header: Option<&HeaderName>,
) -> Result<Message, MessageError> {
    let header = |field, text| {
        if has_control(text) { Err(MessageError::Control { field }) } else { Ok(text) }
    };
    let from: Mailbox = header("from", &request.from)?
        .parse()
        .map_err(|_| MessageError::Address { field: "from" })?;
    let to: Mailboxes =
        header("to", &request.to)?.parse().map_err(|_| MessageError::Address { field: "to" })?;
    let to: Vec<Mailbox> = to.into_iter().collect();
    if to.is_empty() || to.len() > RECIPIENTS_MAX {
        return Err(MessageError::Recipients { count: to.len() });
    }
    let id = format!("<{}@{}>", key.wire(), from.email.domain());
    let subject = header("subject", &request.subject)?;
    let mut builder = Message::builder().message_id(Some(id)).from(from).subject(subject);
    builder = to.into_iter().fold(builder, MessageBuilder::to);
    if let Some(name) = key_header {
        builder = builder.raw_header(HeaderValue::new(name.clone(), key.wire()));
    }
    let text = request.text.as_deref().map(|text| part("text", ContentType::TEXT_PLAIN, text));
    let html = request.html.as_deref().map(|html| part("html", ContentType::TEXT_HTML, html));
    let built = match (text.transpose()?, html.transpose()?) {
        (Some(text), Some(html)) => {
            builder.multipart(MultiPart::alternative().singlepart(text).singlepart(html))
        }
        (Some(part), None) | (None, Some(part)) => builder.singlepart(part),
        (None, None) => return Err(MessageError::Empty),
    };
    built.map_err(|_| MessageError::Build)
}

fn part(field: &'static str, content: ContentType, text: &str) -> Result<SinglePart, MessageError> {
    if text.contains('\0') {
        return Err(MessageError::Nul { field });
    }
    // A lone carriage return is a line end to some servers and none to others.
    let lines = text.replace("\r\n", "\n").replace('\r', "\n");
    let body = Body::new_with_encoding(lines, ContentTransferEncoding::QuotedPrintable)
        .map_err(|_| MessageError::Build)?;
    Ok(SinglePart::builder().header(content).body(body))
}

fn has_control(text: &str) -> bool {
    text.chars().any(|letter| letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> EmailRequest {
        EmailRequest {
            from: "Billing <billing@example.org>".into(),
            to: "ann@example.net".into(),
            subject: "Receipt 7".into(),
            text: Some("one\r.\rtwo\n.\nthree\r\n.\r\n".into()),
            html: None,
        }
    }

    fn lines(request: &EmailRequest) -> String {
        let message = message(&Key::event("s", "t", "i"), request, None).unwrap();
        String::from_utf8(message.formatted()).unwrap()
    }

    #[test]
    fn the_message_id_is_the_same_for_every_attempt() {
        let id = format!("Message-ID: <{}@example.org>\r\n", Key::event("s", "t", "i").wire());
        assert!(lines(&request()).contains(&id));
        assert!(lines(&request()).contains(&id));
    }

    #[test]
    fn s9_no_field_can_bring_a_header_or_a_command_of_its_own() {
        let key = Key::event("s", "t", "i");
        for bad in ["a\r\nBcc: x@y.z", "a\nBcc: x@y.z", "a\r.\r", "a\0", "a\u{2028}b", "a\u{85}b"] {
            let subject = EmailRequest { subject: bad.into(), ..request() };
            let control = |field| Err(MessageError::Control { field });
            assert_eq!(message(&key, &subject, None).map(|_| ()), control("subject"));
            let to = EmailRequest { to: format!("ann@example.net{bad}").into(), ..request() };
            assert_eq!(message(&key, &to, None).map(|_| ()), control("to"));
            let from = EmailRequest { from: format!("{bad} <a@b.org>").into(), ..request() };
            assert_eq!(message(&key, &from, None).map(|_| ()), control("from"));
        }
        let nul = EmailRequest { html: Some("a\0".into()), ..request() };
        assert_eq!(message(&key, &nul, None).map(|_| ()), Err(MessageError::Nul { field: "html" }));
    }

    #[test]
    fn s9_the_text_has_no_bare_line_break() {
        let formatted = lines(&request());
        let without_pairs = formatted.replace("\r\n", "");
        assert!(!without_pairs.contains(['\r', '\n']), "{formatted:?}");
    }

    #[test]
    fn what_is_no_mail_is_refused_by_field() {
        let key = Key::event("s", "t", "i");
        let refused = |request| message(&key, &request, None).map(|_| ()).unwrap_err();
        let to = EmailRequest { to: "nobody".into(), ..request() };
        assert_eq!(refused(to), MessageError::Address { field: "to" });
        let none = EmailRequest { to: "".into(), ..request() };
        assert!(matches!(
            refused(none),
            MessageError::Recipients { count: 0 } | MessageError::Address { field: "to" }
        ));
        let empty = EmailRequest { text: None, ..request() };
        assert_eq!(refused(empty), MessageError::Empty);
    }
}
