//! Where the calls of one effect may go, and what shows the receiver that they are ours.
//!
//! Reads: the effect's rule and its secrets, once. Gives: the headers of an attempt that are never stored,
//! a credential or a signature, and the word on its url.

use std::fmt;

use oncely_core::connector::HttpRule;
use reqwest::ClientBuilder;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use url::Origin;

use super::setup::{credential, fixed_origin};
use crate::effect::egress::{Egress, EgressError};
use crate::effect::performer::PerformerError;
use crate::effect::webhook::{ID, Keyring, KeyringError, SIGNATURE, TIMESTAMP};
use crate::secret::{Secret, SecretSource};

/// See the module.
#[derive(Debug)]
pub(in crate::effect) struct Dispatch {
    host: CallHost,
    proof: Proof,
    /// All forms in which an answer could echo a secret.
    pub(super) shown: Vec<Secret>,
}

/// Who answers for scheme, host and port.
#[derive(Debug)]
enum CallHost {
    /// The connector file, and no stored request may go elsewhere: credentials go along.
    File(Origin),
    /// The event, or somebody else whose name the file holds.
    Guarded(Egress),
}

/// What a receiver knows us by.
enum Proof {
    Nothing,
    Credential(HeaderName, HeaderValue),
    Signature { keyring: Keyring, wall_ms: fn() -> i64 },
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::Credential(..) => "a credential",
            Self::Signature { .. } => "a signature",
        })
    }
}

/// Why a url is not called.
#[derive(Debug)]
pub(super) enum Barred {
    /// The file has another host than when the request was made.
    Moved,
    ByGuard(EgressError),
}

impl Dispatch {
    /// A call with the effect's credential, if it has one.
    pub(in crate::effect) fn plain(
        http: &HttpRule,
        secrets: &dyn SecretSource,
        egress: &Egress,
    ) -> Result<Self, PerformerError> {
        let origin = fixed_origin(http.url.text())?;
        let (proof, shown) = match &http.auth {
            None => (Proof::Nothing, Vec::new()),
            Some(_) if origin.is_none() => return Err(PerformerError::SecretToEventHost),
            Some(auth) => {
                let ((name, value), shown) = credential(auth, secrets)?;
                (Proof::Credential(name, value), shown)
            }
        };
        let host = origin.map_or_else(|| CallHost::Guarded(egress.clone()), CallHost::File);
        Ok(Self { host, proof, shown })
    }

    /// A call that is signed, behind the guard.
    pub(in crate::effect) fn signed(
        http: &HttpRule,
        egress: Egress,
        keyring: Keyring,
        wall_ms: fn() -> i64,
    ) -> Result<Self, PerformerError> {
        if let Some(origin) = fixed_origin(http.url.text())?
            && let Ok(url) = Url::parse(&origin.ascii_serialization())
        {
            egress.check(&url).map_err(|cause| PerformerError::Endpoint { cause })?;
        }
        let (host, shown) = (CallHost::Guarded(egress), Vec::new());
        Ok(Self { host, proof: Proof::Signature { keyring, wall_ms }, shown })
    }

    /// Names lead only where the guard lets them.
    pub(super) fn resolving(&self, client: ClientBuilder) -> ClientBuilder {
        match &self.host {
            CallHost::File(_) => client,
            CallHost::Guarded(egress) => client.dns_resolver(egress.resolver()),
        }
    }

    pub(super) fn check(&self, url: &Url) -> Result<(), Barred> {
        match &self.host {
            CallHost::File(origin) if url.origin() != *origin => Err(Barred::Moved),
            CallHost::File(_) => Ok(()),
            CallHost::Guarded(egress) => egress.check(url).map_err(Barred::ByGuard),
        }
    }

    /// Adds the headers of one attempt.
    ///
    /// # Errors
    /// When the tenant's webhooks cannot be signed.
    pub(super) fn prove(
        &self,
        id: &str,
        tenant: &str,
        body: &[u8],
        headers: &mut HeaderMap,
    ) -> Result<(), KeyringError> {
        match &self.proof {
            Proof::Nothing => {}
            Proof::Credential(name, value) => {
                headers.insert(name.clone(), value.clone());
            }
            Proof::Signature { keyring, wall_ms } => {
                let at_s = u64::try_from(wall_ms()).unwrap_or(0) / 1_000;
                let signature = keyring.of(tenant)?.sign(id, at_s, body);
                let made =
                    [(ID, id.to_owned()), (TIMESTAMP, at_s.to_string()), (SIGNATURE, signature)];
                for (name, value) in made {
                    // Letters, digits and base64: each is a header's value.
                    if let Ok(value) = HeaderValue::try_from(value) {
                        headers.insert(HeaderName::from_static(name), value);
                    }
                }
            }
        }
        Ok(())
    }
}
