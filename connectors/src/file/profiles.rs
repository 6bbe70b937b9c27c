//! What providers do with our requests, as data.
//!
//! Each profile says which header carries the key, how long the provider remembers it, and which
//! statuses mean something else than the common table says. Sources are the providers' own pages.

use oncely_core::connector::{Profile, StatusClass, StatusRange};

const DAY_MS: u64 = 86_400_000;

/// The version of Stripe's API that requests are written for, unless the file sets the header.
pub(crate) const STRIPE_VERSION: &str = "2025-09-30.clover";
pub(crate) const STRIPE_VERSION_HEADER: &str = "stripe-version";
/// Where Resend's API is.
pub(crate) const RESEND_URL: &str = "https://api.resend.com";

/// Nothing is known: no key, and the common table of statuses.
pub(crate) fn plain(name: &str) -> Profile {
    Profile { name: name.into(), key_header: None, key_window_ms: None, statuses: Vec::new() }
}

/// Stripe's API v1: a key replays the first answer, errors 500 included, for at least 24 hours
/// (docs.stripe.com/api/idempotent_requests).
pub(crate) fn stripe() -> Profile {
    Profile {
        name: "stripe".into(),
        key_header: Some("idempotency-key".into()),
        key_window_ms: Some(DAY_MS),
        statuses: vec![
            // Another request with this key is under way: that one may be applied.
            status(409, StatusClass::Unknown),
            // Something behind Stripe failed; how far it came is not said.
            status(424, StatusClass::Unknown),
        ],
    }
}

/// Resend: keys of up to 256 characters, remembered for 24 hours
/// (resend.com/docs/dashboard/emails/idempotency-keys).
pub(crate) fn resend() -> Profile {
    Profile {
        name: "resend".into(),
        key_header: Some("idempotency-key".into()),
        key_window_ms: Some(DAY_MS),
        // Another request with this key is under way, or had another body.
        statuses: vec![status(409, StatusClass::Unknown)],
    }
}

fn status(code: u16, class: StatusClass) -> (StatusRange, StatusClass) {
    (StatusRange { first: code, last: code }, class)
}
