//! Secrets, and the texts of a connector file that refer to them.
//!
//! Reads: `${env:NAME}`, `${env:NAME:-default}` and `${secret:name}` inside a text; `$${` stands for
//! a plain `${`.
//! Gives: the references of a text, and its value once somebody looks them up.
//! Never: shows a value. A [`Secret`] has no `Display` and a silent `Debug`; errors name the
//! reference.

use std::fmt;

use oncely_core::connector::SecretText;

/// Bytes that the name in a reference may have.
pub const NAME_BYTES_MAX: usize = 128;

/// A value that must not be shown, logged or stored.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    pub fn new(value: impl Into<Box<str>>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

// --------------------------------------------------------------------------------------------- //

/// One reference inside a text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Reference {
    /// An environment variable; the default stands in where it is not set or empty.
    Env { name: Box<str>, default: Option<Box<str>> },
    /// A named secret of the deployment: a file of the secrets directory.
    Secret { name: Box<str> },
}

/// Shows the name and never the default, which may be a secret as well.
impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env { name, default: _ } => write!(f, "${{env:{name}}}"),
            Self::Secret { name } => write!(f, "${{secret:{name}}}"),
        }
    }
}

impl Reference {
    /// How it gets a value.
    pub fn remedy(&self) -> String {
        match self {
            Self::Env { name, default: _ } => format!("set {name} where the processor runs"),
            Self::Secret { name } => {
                format!("put a file `{name}` into the directory that ONCELY_SECRETS_DIR names")
            }
        }
    }
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where values come from. The shell implements it over environment and files.
pub trait SecretSource: Send + Sync {
    /// The value of `reference`; `None` where there is none. Defaults are not its business.
    fn lookup(&self, reference: &Reference) -> Option<Secret>;

    /// How `reference` gets a value here.
    fn remedy(&self, reference: &Reference) -> String {
        reference.remedy()
    }
}

/// Why a text has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("`${{` at byte {at} is never closed by `}}`; write `$${{` for a plain `${{`")]
    Open { at: usize },
    #[error(
        "the reference at byte {at} is none of `${{env:NAME}}`, `${{env:NAME:-default}}`, \
         `${{secret:name}}`; write `$${{` for a plain `${{`"
    )]
    Malformed { at: usize },
    #[error("`{reference}` has no value: {}", reference.remedy())]
    Missing { reference: Reference },
}

// --------------------------------------------------------------------------------------------- //

/// The references of a text, in order, repeats included.
///
/// # Errors
/// [`SecretError::Open`] and [`SecretError::Malformed`], with the byte where the reference begins.
pub fn references(text: &str) -> Result<Vec<Reference>, SecretError> {
    let pieces = pieces(text)?.into_iter();
    Ok(pieces
        .filter_map(|piece| match piece {
            Piece::Plain(_) => None,
            Piece::Reference(reference) => Some(reference),
        })
        .collect())
}

/// The value of a text: every reference replaced by what `source` says, else by its default.
///
/// # Errors
/// [`SecretError::Missing`] names the first reference without a value; the other variants are a
/// text that [`references`] refuses as well.
pub fn resolve(text: &SecretText, source: &dyn SecretSource) -> Result<Secret, SecretError> {
    let mut value = String::with_capacity(text.0.len());
    for piece in pieces(&text.0)? {
        match piece {
            Piece::Plain(plain) => value.push_str(plain),
            Piece::Reference(reference) => value.push_str(&look_up(reference, source)?),
        }
    }
    Ok(Secret::new(value))
}

/// The secret with this name; `None` for what can be the name of none.
///
/// # Errors
/// [`SecretError::Missing`] when it has no value.
pub fn named(name: &str, source: &dyn SecretSource) -> Option<Result<Secret, SecretError>> {
    let reference = is_name(name).then(|| Reference::Secret { name: name.into() })?;
    Some(look_up(reference, source).map(Secret))
}

/// The value of every reference of a text, for whoever must recognise them in what comes back.
///
/// # Errors
/// As [`resolve`].
pub fn values(text: &SecretText, source: &dyn SecretSource) -> Result<Vec<Secret>, SecretError> {
    let found = references(&text.0)?.into_iter();
    found.map(|reference| look_up(reference, source).map(Secret)).collect()
}

fn look_up(reference: Reference, source: &dyn SecretSource) -> Result<Box<str>, SecretError> {
    let found = source.lookup(&reference).filter(|secret| !secret.expose().is_empty());
    match (found, reference) {
        (Some(Secret(value)), _) | (None, Reference::Env { name: _, default: Some(value) }) => {
            Ok(value)
        }
        (None, reference) => Err(SecretError::Missing { reference }),
    }
}

enum Piece<'text> {
    Plain(&'text str),
    Reference(Reference),
}

fn pieces(text: &str) -> Result<Vec<Piece<'_>>, SecretError> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        if let Some(plain) = before.strip_suffix('$') {
            pieces.extend([Piece::Plain(plain), Piece::Plain("${")]);
            rest = after;
            continue;
        }
        let at = text.len().saturating_sub(after.len()).saturating_sub(2);
        let (inside, after) = after.split_once('}').ok_or(SecretError::Open { at })?;
        let reference = reference(inside).ok_or(SecretError::Malformed { at })?;
        pieces.extend([Piece::Plain(before), Piece::Reference(reference)]);
        rest = after;
    }
    pieces.push(Piece::Plain(rest));
    Ok(pieces)
}

fn reference(inside: &str) -> Option<Reference> {
    let (source, name) = inside.split_once(':')?;
    match source {
        "env" => {
            let (name, default) = match name.split_once(":-") {
                Some((name, default)) => (name, Some(default.into())),
                None => (name, None),
            };
            is_name(name).then(|| Reference::Env { name: name.into(), default })
        }
        "secret" => is_name(name).then(|| Reference::Secret { name: name.into() }),
        _ => None,
    }
}

/// Letters, digits, `_`, `-` and `.`, but no leading dot: a name may become a file's name, and must
/// not lead out of its directory.
fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;

    impl SecretSource for Fixed {
        fn lookup(&self, reference: &Reference) -> Option<Secret> {
            match reference {
                Reference::Env { name, .. } if &**name == "REGION" => Some(Secret::new("eu")),
                Reference::Env { name, .. } if &**name == "EMPTY" => Some(Secret::new("")),
                Reference::Secret { name } if &**name == "token" => Some(Secret::new("canary-1")),
                Reference::Env { .. } | Reference::Secret { .. } => None,
            }
        }
    }

    fn value(text: &str) -> Result<String, SecretError> {
        resolve(&SecretText(text.into()), &Fixed).map(|secret| secret.expose().to_owned())
    }

    #[test]
    fn references_are_replaced_where_they_stand() {
        assert_eq!(value("Token ${secret:token}!").unwrap(), "Token canary-1!");
        assert_eq!(value("${env:REGION}-${env:REGION}").unwrap(), "eu-eu");
        assert_eq!(value("${env:UNSET:-us}${env:EMPTY:-x:y}").unwrap(), "usx:y");
        assert_eq!(value("${env:UNSET:-}").unwrap(), "");
        assert_eq!(value("plain $5 } text").unwrap(), "plain $5 } text");
        assert_eq!(value("$${env:REGION} $$").unwrap(), "${env:REGION} $$");
    }

    #[test]
    fn a_reference_without_a_value_is_named() {
        let missing = value("a ${secret:other}").unwrap_err();
        assert_eq!(
            missing.to_string(),
            "`${secret:other}` has no value: put a file `other` into the directory that \
             ONCELY_SECRETS_DIR names"
        );
        assert!(matches!(value("${env:EMPTY}"), Err(SecretError::Missing { .. })));
    }

    #[test]
    fn what_is_no_reference_is_refused_with_its_place() {
        assert_eq!(references("ab ${env:X"), Err(SecretError::Open { at: 3 }));
        for bad in ["x${}", "x${env}", "x${env:}", "x${file:a}", "x${secret:../a}", "x${env:a b}"] {
            assert_eq!(references(bad), Err(SecretError::Malformed { at: 1 }), "{bad}");
        }
        let named = [
            Reference::Secret { name: "a".into() },
            Reference::Env { name: "B".into(), default: Some("c".into()) },
        ];
        assert_eq!(references("${secret:a}/${env:B:-c}"), Ok(named.into()));
    }

    #[test]
    fn s13_no_formatting_shows_a_value_or_a_default() {
        let reference = Reference::Env { name: "A".into(), default: Some("canary-2".into()) };
        let missing = SecretError::Missing { reference: reference.clone() };
        let shown = format!(
            "{:?} {reference} {reference:?} {missing} {missing:?}",
            Secret::new("canary-1")
        );
        assert!(!shown.contains("canary"), "{shown}");
    }
}
