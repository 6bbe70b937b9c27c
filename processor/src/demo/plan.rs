//! What the demo publishes, and what is owed for it.
//!
//! Reads: a seed. Gives: records in the order in which they are published, and the invoices that must
//! each be charged once and have one receipt. Knows nothing of how records are consumed: what it says
//! is owed is what a person would say who reads the list.
//!
//! Keeps true: whatever is late, repeated or taken over, each event has one right ending. Events of one
//! invoice lie in one partition, the stale ones behind the newer; a repeat lies in another partition
//! only where it is its invoice's first event, so that overtaking changes nothing.

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde_json::json;

/// Partitions of the topic.
pub(super) const PARTITIONS: i32 = 4;
/// Different events.
pub(super) const EVENTS: usize = 1_000;
/// Events that are published a second time, at new offsets.
pub(super) const REPEATS: usize = 300;
/// Events that are published after a newer one of their invoice.
pub(super) const STALE: usize = 100;
/// Invoices of one event: they come paid.
const AT_ONCE: usize = 200;
/// Invoices that are created, then paid.
const IN_ORDER: usize = 300;
// The shares add up: the two kinds of two events, the first ones out of order.
const _: () = assert!(AT_ONCE + 2 * (IN_ORDER + STALE) == EVENTS);

/// An invoice that must be charged once and have one receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Invoice {
    /// `in_0001`.
    pub(super) id: String,
    /// The tenant.
    pub(super) account: String,
    /// Who gets the receipt.
    pub(super) email: String,
    /// What is charged.
    pub(super) amount_cents: u32,
}

/// One record to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Publication {
    pub(super) partition: i32,
    pub(super) key: String,
    /// JSON.
    pub(super) value: String,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Every invoice is owed a charge and a receipt.
    pub(super) invoices: Vec<Invoice>,
    /// In the order of publication.
    pub(super) publications: Vec<Publication>,
}

/// A record with its moment: a number between 0 and 1, the whole run being 1.
struct Timed {
    at: f64,
    publication: Publication,
    first_of_invoice: bool,
}

impl Plan {
    /// Equal seeds give equal plans.
    #[must_use]
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let count = AT_ONCE.saturating_add(IN_ORDER).saturating_add(STALE);
        let invoices: Vec<Invoice> =
            (1..=count).map(|number| Invoice::draw(number, &mut rng)).collect();
        let mut events = Vec::new();
        for (number, invoice) in invoices.iter().enumerate() {
            let partition = rng.random_range(0..PARTITIONS);
            let (early, late) = two_moments(&mut rng);
            if number < AT_ONCE {
                events.push(invoice.paid(1, partition, early, true));
            } else if number < AT_ONCE.saturating_add(IN_ORDER) {
                events.push(invoice.created(partition, early, true));
                events.push(invoice.paid(2, partition, late, false));
            } else {
                events.push(invoice.paid(2, partition, early, true));
                events.push(invoice.created(partition, late, false));
            }
        }
        let mut chosen: Vec<usize> = (0..events.len()).collect();
        chosen.shuffle(&mut rng);
        let again: Vec<Timed> = chosen
            .iter()
            .take(REPEATS)
            .filter_map(|index| events.get(*index))
            .map(|event| event.again(&mut rng))
            .collect();
        events.extend(again);
        // Stable: of two records with one moment the original stays first.
        events.sort_by(|one, other| one.at.total_cmp(&other.at));
        let publications = events.into_iter().map(|event| event.publication).collect();
        Self { invoices, publications }
    }

    /// Effects that must take place: a charge and a receipt for each invoice.
    #[must_use]
    pub(super) fn owed(&self) -> usize {
        self.invoices.len().saturating_mul(2)
    }
}

impl Invoice {
    fn draw(number: usize, rng: &mut StdRng) -> Self {
        Self {
            id: format!("in_{number:04}"),
            account: format!("acct_{}", rng.random_range(1..=5)),
            email: format!("customer-{number:04}@example.com"),
            amount_cents: rng.random_range(500..50_000),
        }
    }

    fn created(&self, partition: i32, at: f64, first_of_invoice: bool) -> Timed {
        self.event("invoice.created", 1, partition, at, first_of_invoice)
    }

    fn paid(&self, version: u32, partition: i32, at: f64, first_of_invoice: bool) -> Timed {
        self.event("invoice.paid", version, partition, at, first_of_invoice)
    }

    fn event(
        &self,
        kind: &str,
        version: u32,
        partition: i32,
        at: f64,
        first_of_invoice: bool,
    ) -> Timed {
        let value = json!({
            "type": kind,
            "account": self.account,
            "data": {
                "invoice_id": self.id,
                "version": version,
                "amount_cents": self.amount_cents,
                "currency": "eur",
                "email": self.email,
            },
        });
        let publication = Publication { partition, key: self.id.clone(), value: value.to_string() };
        Timed { at, publication, first_of_invoice }
    }
}

impl Timed {
    /// The same event once more, later.
    fn again(&self, rng: &mut StdRng) -> Self {
        let mut publication = self.publication.clone();
        if self.first_of_invoice {
            let further = rng.random_range(1..PARTITIONS);
            publication.partition =
                publication.partition.saturating_add(further).checked_rem(PARTITIONS).unwrap_or(0);
        }
        let at = self.at + rng.random::<f64>() * (1.0 - self.at);
        Self { at, publication, first_of_invoice: self.first_of_invoice }
    }
}

fn two_moments(rng: &mut StdRng) -> (f64, f64) {
    let (one, other): (f64, f64) = (rng.random(), rng.random());
    (one.min(other), one.max(other))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::Value;

    use super::*;

    #[test]
    fn equal_seeds_give_equal_plans() {
        assert_eq!(Plan::new(7), Plan::new(7));
        assert_ne!(Plan::new(7), Plan::new(8));
    }

    #[test]
    fn the_shares_are_as_promised_for_any_seed() {
        for seed in 0..20 {
            let plan = Plan::new(seed);
            assert_eq!(plan.publications.len(), EVENTS + REPEATS);
            assert_eq!(plan.owed(), 1_200);
            let values: BTreeSet<_> = plan.publications.iter().map(|p| &p.value).collect();
            assert_eq!(values.len(), EVENTS);

            let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
            let (mut seen, mut stale, mut elsewhere) = (BTreeMap::new(), 0, 0);
            for publication in &plan.publications {
                let value: Value = serde_json::from_str(&publication.value).unwrap();
                let version = value["data"]["version"].as_u64().unwrap();
                if let Some(first) = seen.get(&publication.value) {
                    elsewhere += usize::from(*first != publication.partition);
                    continue;
                }
                seen.insert(&publication.value, publication.partition);
                let known = newest.entry(&publication.key).or_insert(0);
                stale += usize::from(version < *known);
                *known = version.max(*known);
            }
            assert_eq!(stale, STALE);
            assert!(elsewhere > REPEATS / 3, "{elsewhere}");
        }
    }

    #[test]
    fn a_repeat_that_overtakes_changes_no_ending() {
        let plan = Plan::new(3);
        let mut places: BTreeMap<&str, Vec<(&str, i32)>> = BTreeMap::new();
        for publication in &plan.publications {
            let of_invoice = places.entry(&publication.key).or_default();
            let is_first = of_invoice.first().is_none_or(|(value, _)| *value == publication.value);
            if !is_first {
                let own = of_invoice[0].1;
                assert_eq!(publication.partition, own, "{}", publication.value);
            }
            of_invoice.push((&publication.value, publication.partition));
        }
    }
}
