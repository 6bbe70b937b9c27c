//! Where the calls of one effect may go, and what shows the receiver that they are ours.
//!
//! Reads: the effect's rule and its secrets, once. Gives: the headers of an attempt that are never stored,
//! a credential or a signature, and the word on its url.

use std::fmt;

use oncely_core::connector::HttpRule;
use reqwest::ClientBuilder;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use url::Position;

use super::setup::{credential, fixed_start};
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
    /// The connector file, which fixes this much of the url; no stored request may go elsewhere, since
    /// credentials go along.
    File(Url),
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

/// A url whose scheme, host or port the file names otherwise by now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MovedUrl {
    /// Scheme, host and port, as in the url and as in the file.
    pub(super) from: String,
    pub(super) to: String,
    /// The same path there; `None`: the path does not begin as the file's does.
    pub(super) url: Option<String>,
}

impl Dispatch {
    /// A call with the effect's credential, if it has one.
    pub(in crate::effect) fn plain(
        http: &HttpRule,
        secrets: &dyn SecretSource,
        egress: &Egress,
    ) -> Result<Self, PerformerError> {
        let start = fixed_start(http.url.text())?;
        let (proof, shown) = match &http.auth {
            None => (Proof::Nothing, Vec::new()),
            Some(_) if start.is_none() => return Err(PerformerError::SecretToEventHost),
            Some(auth) => {
                let ((name, value), shown) = credential(auth, secrets)?;
                (Proof::Credential(name, value), shown)
            }
        };
        let host = start.map_or_else(|| CallHost::Guarded(egress.clone()), CallHost::File);
        Ok(Self { host, proof, shown })
    }

    /// A call that is signed, behind the guard.
    pub(in crate::effect) fn signed(
        http: &HttpRule,
        egress: Egress,
        keyring: Keyring,
        wall_ms: fn() -> i64,
    ) -> Result<Self, PerformerError> {
        if let Some(start) = fixed_start(http.url.text())? {
            egress.check(&start).map_err(|cause| PerformerError::Endpoint { cause })?;
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
            CallHost::File(start) if url.origin() != start.origin() => Err(Barred::Moved),
            CallHost::File(_) => Ok(()),
            CallHost::Guarded(egress) => egress.check(url).map_err(Barred::ByGuard),
        }
    }

    /// Where the same request goes by the file as it is now, if that names another scheme, host or port.
    pub(super) fn moved(&self, text: &str) -> Option<MovedUrl> {
        let CallHost::File(start) = &self.host else { return None };
        let fixed = &start[..Position::BeforePath];
        let is_here = text.strip_prefix(fixed);
        if is_here.is_some_and(|rest| rest.starts_with(['/', '?', '#'])) {
            return None;
        }
        // A url that is none is told of where it is sent.
        let url = Url::parse(text).ok()?;
        if url.origin() == start.origin() {
            return None;
        }
        let (path, named) = (&url[Position::BeforePath..], &start[Position::BeforePath..]);
        Some(MovedUrl {
            from: url.origin().ascii_serialization(),
            to: start.origin().ascii_serialization(),
            url: path.starts_with(named).then(|| format!("{fixed}{path}")),
        })
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(url: &str) -> Dispatch {
        let host = CallHost::File(fixed_start(url).unwrap().unwrap());
        Dispatch { host, proof: Proof::Nothing, shown: Vec::new() }
    }

    proptest! {
        #[test]
        fn a_moved_url_keeps_its_path_and_goes_where_no_bar_stands(
            (old, new) in ("https?://[a-z]{1,8}(:[1-9][0-9]{0,3})?", "https?://[a-z]{1,8}(:[1-9][0-9]{0,3})?"),
            path in "(/[a-zA-Z0-9._~%-]{0,6}){1,3}([?][a-z=&]{0,8})?",
        ) {
            let stored = format!("{old}{path}");
            let dispatch = file(&format!("{new}/{{{{ event.path }}}}"));
            let before = Url::parse(&stored).unwrap();
            match dispatch.moved(&stored) {
                None => prop_assert!(dispatch.check(&before).is_ok()),
                Some(moved) => {
                    prop_assert!(dispatch.check(&before).is_err());
                    let after = Url::parse(&moved.url.unwrap()).unwrap();
                    prop_assert!(dispatch.check(&after).is_ok());
                    let same = before[Position::BeforePath..] == after[Position::BeforePath..];
                    prop_assert!(same, "{before} {after}");
                }
            }
        }

        #[test]
        fn what_is_outside_of_the_files_path_has_no_place(path in "/[a-z]{1,8}/[a-z]{0,8}") {
            let stored = format!("http://old{path}");
            let moved = file("http://new/v1/{{ event.path }}").moved(&stored).unwrap();
            prop_assert_eq!(moved.url.is_some(), path.starts_with("/v1/"));
        }
    }
}
