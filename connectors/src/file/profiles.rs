//! The profiles that come with the program, in the words of connector files (`profiles.yaml`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use oncely_core::connector::Profile;

use super::compile::Compiler;
use super::diagnostic::Findings;
use super::raw::{RawBodyKind, RawLookup, RawProfile};
use super::read::{self, Entries};
use super::source::Source;
use super::{Check, NothingSet, node};

const TEXT: &str = include_str!("profiles.yaml");

/// Where Resend's API is.
pub(crate) const RESEND_URL: &str = "https://api.resend.com";

/// A profile, and what of it concerns the making of requests.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) profile: Profile,
    /// Headers that an effect's requests have unless it sets them.
    pub(crate) headers: Vec<(Box<str>, String)>,
    /// The kind of body that it takes; `None`: any.
    pub(crate) body: Option<RawBodyKind>,
    /// How it is asked, as it is written: the url begins where an effect's request goes.
    pub(crate) lookup: Option<Arc<RawLookup>>,
}

impl Known {
    /// Nothing is known: no key, and the common table of statuses.
    pub(crate) fn nothing(name: &str) -> Self {
        let profile = Profile {
            name: name.into(),
            key_header: None,
            key_window_ms: None,
            applies_within_ms: None,
            statuses: Vec::new(),
        };
        Self { profile, headers: Vec::new(), body: None, lookup: None }
    }
}

/// Those that come with the program, by name.
pub(crate) fn built_in() -> &'static BTreeMap<String, Known> {
    static ALL: OnceLock<BTreeMap<String, Known>> = OnceLock::new();
    ALL.get_or_init(|| compiled(&mut Findings::default()))
}

fn compiled(findings: &mut Findings) -> BTreeMap<String, Known> {
    let read = node::parse(TEXT, findings);
    let read = read.and_then(|node| read::read::<Entries<RawProfile>>(&node, findings));
    let source = Source { name: "profiles.yaml", text: TEXT };
    let mut compiler = Compiler::new(source, findings, Path::new(""), &NothingSet, Check::Offline);
    read.map(|all| compiler.profiles(&all, &BTreeMap::new())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_that_comes_along_is_whole() {
        let mut findings = Findings::default();
        let all = compiled(&mut findings);
        let found = findings.into_diagnostics(&Source { name: "profiles.yaml", text: TEXT });
        assert!(found.is_empty(), "{found:?}");
        let names: Vec<&str> = all.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "http",
                "openai",
                "resend",
                "resend-smtp",
                "smtp",
                "standard-webhooks",
                "stripe-v1",
                "stripe-v2"
            ]
        );
        let stripe = &all["stripe-v1"].profile;
        assert_eq!(stripe.key_header.as_deref(), Some("idempotency-key"));
        assert_eq!(stripe.key_window_ms, Some(86_400_000));
        assert_eq!(all["standard-webhooks"].profile.key_window_ms, None);
        assert_eq!(all["http"].profile.key_header, None);
    }
}
