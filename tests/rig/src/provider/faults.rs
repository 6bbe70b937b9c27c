//! What goes wrong at the provider, and when.
//!
//! Reads: rules and rates set from outside. Gives: at most one fault per request, decided by the rules
//! first and then by a hash of seed, endpoint, key and attempt, so that a run can be repeated.
//! Draws no random numbers and reads no clock.

use std::collections::{BTreeSet, HashMap};

/// One way to go wrong. *Before* and *after* mean before and after the effect took place.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Answers this status and does nothing.
    StatusBefore {
        /// HTTP status, or an SMTP code.
        status: u16,
        /// Seconds for a `Retry-After` header.
        retry_after_s: Option<u64>,
    },
    /// The effect takes place, and the answer is this status. A Stripe-like key keeps a 500 as its answer.
    StatusAfter {
        /// HTTP status, or an SMTP code.
        status: u16,
    },
    /// Reads the request, does nothing, closes.
    CloseBefore,
    /// The effect takes place; the connection closes without a byte of an answer. Where effects take
    /// their time (`apply_delay_ms`), the connection closes at once and the effect follows.
    CloseAfter,
    /// As `CloseBefore`, with a reset.
    ResetBefore,
    /// As `CloseAfter`, with a reset.
    ResetAfter,
    /// The effect takes place; the connection closes in the middle of the answer's body.
    HalfBody,
    /// The effect takes place; the answer is a success whose body is no JSON.
    GarbledBody,
    /// Reads the request and does nothing until released; then closes.
    HangBefore,
    /// The effect takes place; the answer comes when released.
    HangAfter,
    /// Takes this many milliseconds longer before the effect takes place.
    DelayMs(u64),
    /// The effect takes place; the answer comes byte by byte, with this many milliseconds between two.
    DripMs(u64),
    /// The effect takes place; the answer is a success with a body of at least this many bytes.
    OversizedBytes(usize),
}

impl Fault {
    /// A status before the effect, without `Retry-After`.
    #[must_use]
    pub const fn status(status: u16) -> Self {
        Self::StatusBefore { status, retry_after_s: None }
    }
}

/// When a scripted fault happens. Matches every request for an effect, until narrowed.
#[derive(Debug, Clone)]
pub struct Rule {
    fault: Fault,
    endpoint: Option<String>,
    key: Option<String>,
    /// A part of the key.
    key_part: Option<String>,
    left: Option<u64>,
    /// Keys that have met it, where each meets it once.
    met: Option<BTreeSet<String>>,
    lookups: bool,
}

impl Rule {
    /// This fault, once, for the next request for an effect.
    #[must_use]
    pub fn once(fault: Fault) -> Self {
        Self::times(1, fault)
    }

    /// This fault for the next `times` requests that match.
    #[must_use]
    pub fn times(times: u64, fault: Fault) -> Self {
        Self { left: Some(times), ..Self::always(fault) }
    }

    /// This fault until healed.
    #[must_use]
    pub const fn always(fault: Fault) -> Self {
        Self {
            fault,
            endpoint: None,
            key: None,
            key_part: None,
            left: None,
            met: None,
            lookups: false,
        }
    }

    /// This fault for the first request of each key.
    #[must_use]
    pub fn once_per_key(fault: Fault) -> Self {
        Self { met: Some(BTreeSet::new()), ..Self::always(fault) }
    }

    /// Only for endpoints that start so: `/v1/charges`, `/plain/`, `smtp`.
    #[must_use]
    pub fn to(mut self, endpoint: &str) -> Self {
        self.endpoint = Some(endpoint.to_owned());
        self
    }

    /// Only for requests with this key.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    /// Only for requests whose keys hold this: a mail's is a part of its Message-ID.
    #[must_use]
    pub fn key_with(mut self, part: &str) -> Self {
        self.key_part = Some(part.to_owned());
        self
    }

    /// For look-ups instead of requests for an effect.
    #[must_use]
    pub const fn lookups(mut self) -> Self {
        self.lookups = true;
        self
    }

    fn matches(&self, seen: &Seen<'_>) -> bool {
        self.left != Some(0)
            && self.lookups == seen.lookup
            && self.endpoint.as_deref().is_none_or(|start| seen.endpoint.starts_with(start))
            && self.key.as_deref().is_none_or(|key| seen.key == Some(key))
            && self
                .key_part
                .as_deref()
                .is_none_or(|part| seen.key.is_some_and(|key| key.contains(part)))
            && self.met.as_ref().is_none_or(|met| seen.key.is_some_and(|key| !met.contains(key)))
    }
}

/// Faults by chance: each request for an effect meets at most one.
#[derive(Debug, Clone, Default)]
pub struct FaultRates {
    /// Equal seeds give equal faults for equal requests.
    pub seed: u64,
    /// Share of requests (0 to 1) and what happens to them.
    pub rates: Vec<(f64, Fault)>,
    /// Requests for one key after this many meet no fault, so that a run ends; 0 is no limit.
    pub attempts_max: u32,
}

/// What a request looks like to rules and rates.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) endpoint: &'a str,
    pub(super) key: Option<&'a str>,
    pub(super) body_sha256: &'a str,
    pub(super) lookup: bool,
}

/// Rules, rates, and how often each key was seen.
#[derive(Debug, Default)]
pub(super) struct Faults {
    rules: Vec<Rule>,
    rates: FaultRates,
    attempts: HashMap<u64, u32>,
}

impl Faults {
    pub(super) fn new(rates: FaultRates) -> Self {
        Self { rates, ..Self::default() }
    }

    pub(super) fn add(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    pub(super) fn heal(&mut self) {
        self.rules.clear();
        self.rates.rates.clear();
    }

    pub(super) fn set_rates(&mut self, rates: FaultRates) {
        self.rates = rates;
        self.attempts.clear();
    }

    pub(super) fn pick(&mut self, seen: &Seen<'_>) -> Option<Fault> {
        let by_chance = self.by_chance(seen);
        let Some(place) = self.rules.iter().position(|rule| rule.matches(seen)) else {
            return by_chance;
        };
        let rule = self.rules.get_mut(place)?;
        let fault = rule.fault.clone();
        rule.left = rule.left.map(|left| left.saturating_sub(1));
        if let (Some(met), Some(key)) = (&mut rule.met, seen.key) {
            met.insert(key.to_owned());
        }
        if rule.left == Some(0) {
            self.rules.remove(place);
        }
        Some(fault)
    }

    fn by_chance(&mut self, seen: &Seen<'_>) -> Option<Fault> {
        if seen.lookup || self.rates.rates.is_empty() {
            return None;
        }
        let identity =
            hash(self.rates.seed, &[seen.endpoint, seen.key.unwrap_or(seen.body_sha256)]);
        let attempt = self.attempts.entry(identity).or_insert(0);
        *attempt = attempt.saturating_add(1);
        if self.rates.attempts_max != 0 && *attempt > self.rates.attempts_max {
            return None;
        }
        let mut point = share(hash(identity, &[&attempt.to_string()]));
        for (rate, fault) in &self.rates.rates {
            if point < *rate {
                return Some(fault.clone());
            }
            point -= rate;
        }
        None
    }
}

/// FNV-1a over length-marked words, then a finaliser that spreads the bits.
fn hash(seed: u64, words: &[&str]) -> u64 {
    let mut state = seed ^ 0xcbf2_9ce4_8422_2325;
    for word in words {
        for byte in word.bytes().chain([0xff]) {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// A hash as a number from 0 up to 1.
fn share(hash: u64) -> f64 {
    let top = u32::try_from(hash >> 32).unwrap_or(u32::MAX);
    f64::from(top) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(key: &str) -> Seen<'_> {
        Seen { endpoint: "/v1/charges", key: Some(key), body_sha256: "", lookup: false }
    }

    #[test]
    fn rules_come_first_and_are_used_up() {
        let mut faults = Faults::default();
        faults.add(Rule::times(2, Fault::CloseAfter).key("a"));
        faults.add(Rule::once(Fault::HalfBody).to("/v1/"));
        faults.add(Rule::once(Fault::CloseBefore).lookups());
        assert_eq!(faults.pick(&seen("b")), Some(Fault::HalfBody));
        assert_eq!(faults.pick(&seen("b")), None);
        assert_eq!(faults.pick(&seen("a")), Some(Fault::CloseAfter));
        assert_eq!(faults.pick(&seen("a")), Some(Fault::CloseAfter));
        assert_eq!(faults.pick(&seen("a")), None);
        let lookup = Seen { lookup: true, ..seen("a") };
        assert_eq!(faults.pick(&lookup), Some(Fault::CloseBefore));
        faults.add(Rule::once(Fault::HangAfter).key_with("ley"));
        assert_eq!(faults.pick(&seen("key")), None);
        assert_eq!(faults.pick(&seen("<barley@oncely>")), Some(Fault::HangAfter));
    }

    #[test]
    fn equal_seeds_give_equal_faults_at_about_the_rate_asked_for() {
        let run = |seed| {
            let rates = vec![(0.1, Fault::CloseAfter), (0.2, Fault::status(500))];
            let mut faults = Faults::new(FaultRates { seed, rates, attempts_max: 1 });
            let mut keys = (0..10_000).map(|n| format!("key-{n}"));
            keys.by_ref().map(|key| faults.pick(&seen(&key))).collect::<Vec<_>>()
        };
        let first = run(1);
        assert_eq!(first, run(1));
        assert_ne!(first, run(2));
        let closed = first.iter().filter(|fault| **fault == Some(Fault::CloseAfter)).count();
        assert!((850..1150).contains(&closed), "{closed}");
        let failed = first.iter().filter(|fault| **fault == Some(Fault::status(500))).count();
        assert!((1800..2200).contains(&failed), "{failed}");
    }

    #[test]
    fn attempts_beyond_the_limit_meet_no_fault() {
        let rates = vec![(1.0, Fault::CloseAfter)];
        let mut faults = Faults::new(FaultRates { seed: 7, rates, attempts_max: 2 });
        let met: Vec<bool> = (0..4).map(|_| faults.pick(&seen("k")).is_some()).collect();
        assert_eq!(met, [true, true, false, false]);
    }
}
