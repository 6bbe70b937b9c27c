//! What of an HTTP effect is fixed before any call: its host, its headers, its credential.

use oncely_core::connector::Auth;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};

use crate::effect::performer::PerformerError;
use crate::secret::{Secret, SecretSource, resolve, values};

/// The url up to the first template, if the connector file alone names scheme, host and port. The text
/// must reach beyond the host, or `https://api.internal{{ x }}` would be anybody's.
pub(super) fn fixed_start(template: &str) -> Result<Option<Url>, PerformerError> {
    let literal = ["{{", "{%", "{#"].into_iter().filter_map(|mark| template.find(mark)).min();
    let (literal, whole) = match literal {
        Some(end) => (template.get(..end).unwrap_or_default(), false),
        None => (template, true),
    };
    let Some((scheme, rest)) = literal.split_once("://") else { return Ok(None) };
    let authority = match rest.find(['/', '?', '#', '\\']) {
        Some(end) => rest.get(..end).unwrap_or_default(),
        None if whole => rest,
        None => return Ok(None),
    };
    let parsed = Url::parse(&format!("{scheme}://{authority}/"))
        .map_err(|cause| PerformerError::Url { cause })?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(PerformerError::Scheme { scheme: scheme.to_owned() });
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(PerformerError::UrlCredentials);
    }
    Url::parse(literal).map(Some).map_err(|cause| PerformerError::Url { cause })
}

/// Headers that say where a request ends or how the connection goes on; the client writes them.
pub(super) fn is_framing(name: &str) -> bool {
    const FRAMING: [&str; 8] = [
        "connection",
        "content-length",
        "expect",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    FRAMING.iter().any(|framing| name.eq_ignore_ascii_case(framing))
}

pub(super) fn header_name(name: &str) -> Result<HeaderName, PerformerError> {
    HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| PerformerError::HeaderName { name: name.to_owned() })
}

pub(super) type Credential = ((HeaderName, HeaderValue), Vec<Secret>);

/// The header that carries the credential, and all forms in which an answer could echo it.
pub(super) fn credential(
    auth: &Auth,
    secrets: &dyn SecretSource,
) -> Result<Credential, PerformerError> {
    let (name, text, mut shown) = match auth {
        Auth::Bearer(token) => {
            let text = format!("Bearer {}", resolve(token, secrets)?.expose());
            let shown = [vec![resolve(token, secrets)?], values(token, secrets)?].concat();
            (AUTHORIZATION, text, shown)
        }
        Auth::Basic { user, password } => {
            let (user, word) = (resolve(user, secrets)?, resolve(password, secrets)?);
            let pair = base64(&format!("{}:{}", user.expose(), word.expose()));
            let text = format!("Basic {pair}");
            (
                AUTHORIZATION,
                text,
                [vec![word, Secret::new(pair)], values(password, secrets)?].concat(),
            )
        }
        Auth::Header { name, value } => {
            let text = resolve(value, secrets)?.expose().to_owned();
            (header_name(name)?, text, values(value, secrets)?)
        }
    };
    let mut value = HeaderValue::from_str(&text)
        .map_err(|_| PerformerError::CredentialBytes { header: name.to_string() })?;
    value.set_sensitive(true);
    shown.push(Secret::new(text));
    Ok(((name, value), shown))
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s7_a_host_is_the_files_only_if_no_template_touches_it() {
        for (template, want) in [
            ("https://api.internal/v1/{{ event.id }}", true),
            ("http://127.0.0.1:8080", true),
            ("https://api.internal?id={{ event.id }}", true),
            ("https://api.internal{{ event.id }}", false),
            ("https://{{ event.host }}/hook", false),
            ("https://api.internal{% if event.a %}.evil{% endif %}/", false),
            ("{{ event.url }}", false),
            ("https:{{ event.id }}", false),
        ] {
            assert_eq!(fixed_start(template).unwrap().is_some(), want, "{template}");
        }
        for bad in ["ftp://api.internal/", "https://a:b@api.internal/", "https:///x", "http://a b/"]
        {
            assert!(fixed_start(bad).is_err(), "{bad}");
        }
    }
}
