//! Signatures of webhooks, as Standard Webhooks writes them (version 1.0, the symmetric scheme `v1`).
//!
//! Reads: secrets once; then the id, the time and the body of each attempt. Gives: the three headers of
//! that attempt. The id is the effect key and the same for ever, by which receivers tell repeats; the
//! time is the attempt's own, so that a late repeat is not taken for a replayed one.
//! Never: shows a secret.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use oncely_core::connector::{SecretText, SigningSecret};
use oncely_core::expr::Scope;
use oncely_core::template::{Target, Template, TemplateError};
use sha2::Sha256;

use crate::secret::{Secret, SecretError, SecretSource, named, resolve};

/// The id of a webhook: the effect key.
pub(super) const ID: &str = "webhook-id";
/// When the attempt was made, in seconds since 1970.
pub(super) const TIMESTAMP: &str = "webhook-timestamp";
/// One signature for each secret, with spaces between them.
pub(super) const SIGNATURE: &str = "webhook-signature";

/// How secrets are written, so that nobody takes them for something else.
const PREFIX: &str = "whsec_";
/// Bytes that a secret may have, by the specification.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Why a secret cannot sign. Says nothing of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SigningError {
    #[error("a webhook secret begins with `whsec_`, and this one does not")]
    Prefix,
    #[error("after `whsec_` a webhook secret is base64, and this one is not (a line break in it?)")]
    Base64,
    #[error("a webhook secret has 24 to 64 bytes, and this one has {0}")]
    Length(usize),
    #[error("a webhook needs a secret to sign with")]
    None,
}

/// Why the webhooks of an endpoint, or of one tenant, cannot be signed.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("`{reference}`: {cause}; make one with `echo whsec_$(openssl rand -base64 32)`")]
    Signing { reference: Box<str>, cause: SigningError },
    #[error("the name of the tenant's secret: {0}")]
    Name(String),
    #[error("the name of the tenant's secret does not compile: {0}")]
    Template(#[from] TemplateError),
}

impl KeyringError {
    /// The tenant is one for whom there can be no secret.
    pub(super) const fn is_of_event(&self) -> bool {
        matches!(self, Self::Name(_))
    }
}

/// The secrets of one effect's webhooks. What all tenants share is looked up once; a tenant's own at every
/// attempt, so that it can be changed while the processor runs.
pub(super) struct Keyring {
    source: Arc<dyn SecretSource>,
    entries: Vec<Entry>,
}

enum Entry {
    Shared(Hmac<Sha256>),
    OfTenant(Template),
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("secrets", &self.entries.len()).finish_non_exhaustive()
    }
}

impl Keyring {
    /// # Errors
    /// [`KeyringError`] names the shared secret that is not there, or how it is to be written.
    pub(super) fn new(
        secrets: &[SigningSecret],
        source: &Arc<dyn SecretSource>,
    ) -> Result<Self, KeyringError> {
        let entry = |secret: &SigningSecret| match secret {
            SigningSecret::Shared(text) => Ok(Entry::Shared(looked_up(text, &**source)?)),
            SigningSecret::OfTenant(name) => {
                Ok(Entry::OfTenant(Template::compile(name.text(), Target::Text)?))
            }
        };
        let entries = secrets.iter().map(entry).collect::<Result<Vec<_>, KeyringError>>()?;
        if entries.is_empty() {
            let reference = "secrets".into();
            return Err(KeyringError::Signing { reference, cause: SigningError::None });
        }
        Ok(Self { source: Arc::clone(source), entries })
    }

    /// What signs for a tenant. A secret of its own may be missing where another one signs.
    ///
    /// # Errors
    /// [`KeyringError`] names the first one that is missing, or cannot sign.
    pub(super) fn of(&self, tenant: &str) -> Result<Signer, KeyringError> {
        let mut keys = Vec::with_capacity(self.entries.len());
        let mut missing = None;
        for entry in &self.entries {
            match entry {
                Entry::Shared(key) => keys.push(key.clone()),
                Entry::OfTenant(name) => match self.own(name, tenant) {
                    Ok(key) => keys.push(key),
                    Err(error @ KeyringError::Secret(SecretError::Missing { .. })) => {
                        missing.get_or_insert(error);
                    }
                    Err(error) => return Err(error),
                },
            }
        }
        match missing {
            Some(error) if keys.is_empty() => Err(error),
            _ => Ok(Signer { keys }),
        }
    }

    fn own(&self, name: &Template, tenant: &str) -> Result<Hmac<Sha256>, KeyringError> {
        let scope = Scope { tenant: Some(tenant), ..Scope::default() };
        let name = name.render(&scope).map_err(|error| KeyringError::Name(error.to_string()))?;
        let found = named(&name, &*self.source);
        let secret = found
            .ok_or_else(|| KeyringError::Name(format!("`{name}` is no name of a secret")))??;
        checked(&secret, || format!("${{secret:{name}}}").into())
    }
}

fn looked_up(text: &SecretText, source: &dyn SecretSource) -> Result<Hmac<Sha256>, KeyringError> {
    checked(&resolve(text, source)?, || text.0.clone())
}

fn checked(
    secret: &Secret,
    reference: impl Fn() -> Box<str>,
) -> Result<Hmac<Sha256>, KeyringError> {
    key(secret).map_err(|cause| KeyringError::Signing { reference: reference(), cause })
}

/// The secrets of one endpoint, the newest first.
pub struct Signer {
    keys: Vec<Hmac<Sha256>>,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("secrets", &self.keys.len()).finish_non_exhaustive()
    }
}

impl Signer {
    /// # Errors
    /// [`SigningError`] says how a secret is to be written: `whsec_` and the base64 of 24 to 64 bytes.
    pub fn new(secrets: &[Secret]) -> Result<Self, SigningError> {
        if secrets.is_empty() {
            return Err(SigningError::None);
        }
        Ok(Self { keys: secrets.iter().map(key).collect::<Result<_, _>>()? })
    }

    /// The value of [`SIGNATURE`] for an attempt.
    pub fn sign(&self, id: &str, at_s: u64, body: &[u8]) -> String {
        let at = at_s.to_string();
        let signed = |key: &Hmac<Sha256>| {
            let mut key = key.clone();
            for part in [id.as_bytes(), b".", at.as_bytes(), b".", body] {
                key.update(part);
            }
            format!("v1,{}", STANDARD.encode(key.finalize().into_bytes()))
        };
        self.keys.iter().map(signed).collect::<Vec<_>>().join(" ")
    }
}

fn key(secret: &Secret) -> Result<Hmac<Sha256>, SigningError> {
    let text = secret.expose().strip_prefix(PREFIX).ok_or(SigningError::Prefix)?;
    let bytes = STANDARD.decode(text).map_err(|_| SigningError::Base64)?;
    if !SECRET_BYTES.contains(&bytes.len()) {
        return Err(SigningError::Length(bytes.len()));
    }
    // A key of any length is one to HMAC.
    Hmac::new_from_slice(&bytes).map_err(|_| SigningError::Length(bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vector of the specification's own libraries.
    const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    const ID: &str = "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk";
    const BODY: &[u8] = br#"{"email":"test@example.com","username":"test_user"}"#;
    const SIGNED: &str = "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=";

    fn signer(secrets: &[&str]) -> Result<Signer, SigningError> {
        Signer::new(&secrets.iter().map(|text| Secret::new(*text)).collect::<Vec<_>>())
    }

    #[test]
    fn b38_the_published_vector_is_met() {
        assert_eq!(signer(&[SECRET]).unwrap().sign(ID, 1_649_367_553, BODY), SIGNED);
    }

    #[test]
    fn b38_every_attempt_has_a_signature_of_its_own_time() {
        let signer = signer(&[SECRET]).unwrap();
        let (first, second) = (signer.sign(ID, 1, BODY), signer.sign(ID, 2, BODY));
        assert_ne!(first, second);
        assert_eq!(first, signer.sign(ID, 1, BODY));
    }

    #[test]
    fn s3_each_secret_gives_a_signature() {
        let other = format!("whsec_{}", STANDARD.encode([7; 32]));
        let both = signer(&[&other, SECRET]).unwrap().sign(ID, 1_649_367_553, BODY);
        let signatures: Vec<&str> = both.split(' ').collect();
        assert_eq!(signatures.len(), 2);
        assert_eq!(signatures[1], SIGNED);
        assert!(signatures[0].starts_with("v1,") && signatures[0] != SIGNED);
    }

    struct Tenants;

    impl SecretSource for Tenants {
        fn lookup(&self, reference: &crate::secret::Reference) -> Option<Secret> {
            match reference.to_string().as_str() {
                "${secret:hook-acme}" => Some(Secret::new(SECRET)),
                "${secret:hook-bad}" => Some(Secret::new("whsec_short")),
                _ => None,
            }
        }
    }

    #[test]
    fn s3_each_tenant_has_secrets_of_its_own() {
        let own =
            |name: &str| SigningSecret::OfTenant(Template::compile(name, Target::Text).unwrap());
        let source: Arc<dyn SecretSource> = Arc::new(Tenants);
        let rules = [own("hook-new-{{ tenant }}"), own("hook-{{ tenant }}")];
        let ring = Keyring::new(&rules, &source).unwrap();
        assert_eq!(ring.of("acme").unwrap().sign(ID, 1_649_367_553, BODY), SIGNED);
        let missing = ring.of("other").unwrap_err();
        assert_eq!(
            missing.to_string(),
            "`${secret:hook-new-other}` has no value: put a file `hook-new-other` into the directory \
             that ONCELY_SECRETS_DIR names"
        );
        assert!(!missing.is_of_event());
        assert!(matches!(ring.of("bad").unwrap_err(), KeyringError::Signing { .. }));
        for outside in ["../billing_token", "a/b", "a}b", "a}${secret:hook-acme", "a b"] {
            let refused = ring.of(outside).unwrap_err();
            assert!(refused.is_of_event(), "{outside}: {refused}");
        }
    }

    #[test]
    fn a_secret_that_is_none_is_refused_without_being_shown() {
        let of = |bytes: usize| format!("whsec_{}", STANDARD.encode(vec![1_u8; bytes]));
        for (secret, error) in [
            ("C2FVsBQIhrscChlQIMV+b5sSYspob7oD".to_owned(), SigningError::Prefix),
            ("whsec_???".to_owned(), SigningError::Base64),
            (format!("{SECRET}\n"), SigningError::Base64),
            (of(23), SigningError::Length(23)),
            (of(65), SigningError::Length(65)),
        ] {
            assert_eq!(signer(&[&secret]).unwrap_err(), error);
        }
        assert!(signer(&[&of(24), &of(64)]).is_ok());
        assert_eq!(signer(&[]).unwrap_err(), SigningError::None);
        let shown = format!("{:?}", signer(&[SECRET]).unwrap());
        assert!(!shown.contains("C2FV"), "{shown}");
    }
}
