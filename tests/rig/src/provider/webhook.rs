//! A receiver of webhooks by the Standard Webhooks rules: it believes what is signed with a secret of its
//! own, over the bytes that came, and not long ago.
//!
//! Reads: a request and the secrets. Gives: whether it is believed, else why not.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::request::Request;
use crate::clock;

/// Seconds that the time of a webhook may lie off, both ways.
const TOLERANCE_S: u64 = 5 * 60;

/// What a webhook came with beside its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signed {
    /// Seconds since 1970, as text.
    pub timestamp: String,
    /// `v1,…` with spaces between them.
    pub signatures: String,
}

pub(super) fn verify(request: &Request, secrets: &[String]) -> Result<(), &'static str> {
    let (Some(id), Some(signed)) = (&request.key, &request.signed) else {
        return Err("webhook-id, webhook-timestamp or webhook-signature is missing");
    };
    let at: u64 = signed.timestamp.parse().map_err(|_| "webhook-timestamp is no number")?;
    let now = clock::wall_us() / 1_000_000;
    if now.abs_diff(at) > TOLERANCE_S {
        return Err("webhook-timestamp is too far off");
    }
    let known = secrets.iter().any(|secret| is_signed(request, id, signed, secret));
    if known { Ok(()) } else { Err("no signature is by a secret of this endpoint") }
}

fn is_signed(request: &Request, id: &str, signed: &Signed, secret: &str) -> bool {
    let key = secret.strip_prefix("whsec_").and_then(|text| STANDARD.decode(text).ok());
    let Some(mac) = key.and_then(|key| Hmac::<Sha256>::new_from_slice(&key).ok()) else {
        return false;
    };
    let content = [id.as_bytes(), b".", signed.timestamp.as_bytes(), b".", &request.body].concat();
    let signatures = signed.signatures.split(' ').filter_map(|one| one.strip_prefix("v1,"));
    let mut signatures = signatures.filter_map(|one| STANDARD.decode(one).ok());
    signatures.any(|signature| mac.clone().chain_update(&content).verify_slice(&signature).is_ok())
}
