//! Counts what took place, and says whether it is what was owed.
//!
//! Reads: the demo's own list of what it published, the provider's own log, and what the database says
//! to a person who asks it. Gives: the numbers of the closing table, and a sentence for each one that is
//! wrong. Pure; takes no number from the processor that the provider or the list can give.

use std::collections::{BTreeMap, BTreeSet};

use oncely_rig::provider::log::Entry;
use oncely_rig::provider::{End, Log};
use serde_json::Value;

use super::plan::{EVENTS, Invoice, Plan, REPEATS, STALE};
use crate::store::admin::totals::Totals;

/// Where the provider takes charges.
pub(super) const CHARGES: &str = "/v1/charges";
/// Where the provider takes mails.
pub(super) const MAILS: &str = "/emails";
/// How long a worker waits for an answer, as its connector file says, in microseconds.
const TIMEOUT_US: u64 = 1_500_000;
/// Sentences about wrong numbers that are shown.
const WRONG_SHOWN_MAX: usize = 20;

/// What the database says.
#[derive(Clone, Debug, Default)]
pub(super) struct Stored {
    pub totals: Totals,
    /// Effects that wait for a person: effect id and business id.
    pub held: BTreeSet<(String, String)>,
    /// Records and effects in the dead letters or in quarantine.
    pub parked: u64,
}

/// What the demo did to its workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Deeds {
    pub kills: u64,
    /// Effects that the killed workers had in flight.
    pub in_flight: u64,
}

/// The closing table.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Different events that were published.
    pub events: u64,
    /// Records that were published, repeats among them.
    pub records: u64,
    /// Events that were applied and owe nothing: an invoice was created.
    pub owing_nothing: u64,
    /// Effects that had to take place.
    pub owed: u64,
    /// Effects owed that took place at the provider.
    pub done: u64,
    /// Effects owed that did not, and are openly held for a person.
    pub held: u64,
    pub repeats_absorbed: u64,
    pub stale_ignored: u64,
    /// Effects that took place once too often.
    pub duplicates: u64,
    /// Effects owed that neither took place nor are held.
    pub lost: u64,
    pub kills: u64,
    /// Effects in flight in workers at the moments they were killed.
    pub in_flight_at_kills: u64,
    /// Effects whose answer never reached a worker.
    pub answers_lost: u64,
    /// Answers by which the provider refused or failed.
    pub errors: u64,
    /// Calls that the provider recognised by their key.
    pub recognised: u64,
    /// Seconds from the start to the last finished effect and offset.
    pub seconds: f64,
    /// A sentence for each number that is wrong.
    pub wrong: Vec<String>,
}

/// One effect at the provider.
#[derive(Debug)]
struct Effect<'a> {
    endpoint: &'a str,
    key: Option<&'a str>,
    body: &'a str,
    number: u64,
}

/// Compares what was owed with what took place.
#[must_use]
pub(super) fn verdict(
    plan: &Plan,
    log: &Log,
    stored: &Stored,
    deeds: &Deeds,
    seconds: f64,
) -> Report {
    let effects = effects(log);
    let mut wrong = Vec::new();
    let mut duplicates = 0_usize;
    let mut done = 0_usize;
    let mut missing = BTreeSet::new();
    let by_invoice = by_invoice(&effects, &mut wrong);
    for invoice in &plan.invoices {
        let of = |endpoint| by_invoice.get(endpoint).and_then(|all| all.get(&invoice.id));
        let charges = of(CHARGES).map_or(&[][..], Vec::as_slice);
        let mails = of(MAILS).map_or(&[][..], Vec::as_slice);
        for (name, found) in [("charge", charges), ("receipt", mails)] {
            match found.len() {
                0 => drop(missing.insert((name, invoice.id.as_str()))),
                times => {
                    done = done.saturating_add(1);
                    duplicates = duplicates.saturating_add(times.saturating_sub(1));
                }
            }
        }
        wrong.extend(check_content(invoice, charges, mails));
    }
    let unowed = unowed(plan, &by_invoice);
    if unowed > 0 {
        wrong.push(format!("{unowed} effects took place for invoices that nobody owed anything"));
    }
    let business_id = |invoice: &str| format!("{invoice}:invoice.paid");
    let is_held = |(name, invoice): &(&str, &str)| {
        stored.held.contains(&((*name).to_owned(), business_id(invoice)))
    };
    let held = missing.iter().filter(|effect| is_held(effect)).count();
    let report = Report {
        events: count(EVENTS),
        records: count(plan.publications.len()),
        owing_nothing: stored.totals.applied.saturating_sub(count(plan.invoices.len())),
        owed: count(plan.owed()),
        done: count(done),
        held: count(held),
        repeats_absorbed: stored.totals.repeats,
        stale_ignored: stored.totals.stale,
        duplicates: count(duplicates),
        lost: count(missing.len().saturating_sub(held)),
        kills: deeds.kills,
        in_flight_at_kills: deeds.in_flight,
        answers_lost: answers_lost(log),
        errors: errors(log),
        recognised: count(log.replays()),
        seconds,
        wrong,
    };
    judged(report, log, stored)
}

/// Adds a sentence for each number that is not as it must be.
fn judged(mut report: Report, log: &Log, stored: &Stored) -> Report {
    let totals = &stored.totals;
    let applied = count(EVENTS.saturating_sub(STALE));
    let open = totals.waiting.saturating_add(totals.claimed).saturating_add(totals.unknown);
    let numbers = [
        ("effects that took place twice", report.duplicates, 0),
        ("effects that are lost", report.lost, 0),
        ("effects that are held, though the provider knows our keys", report.held, 0),
        ("effects done, as the database has it", totals.done, report.owed),
        ("effects still open", open, 0),
        ("events applied", totals.applied, applied),
        ("stale events ignored", totals.stale, count(STALE)),
        ("repeats absorbed", totals.repeats, count(REPEATS)),
        ("records and effects set aside", stored.parked, 0),
        ("keys that came with another request", count(log.keys_with_other_bodies().len()), 0),
        ("keys with more than one effect", count(log.repeated().len()), 0),
        ("effects without a key", count(log.effects_without_key()), 0),
        ("workers killed", report.kills, 2),
    ];
    let unlike = numbers.into_iter().filter(|(_, is, must)| is != must);
    let sentences = unlike.map(|(what, is, must)| format!("{what}: {is} instead of {must}"));
    let details = std::mem::take(&mut report.wrong);
    report.wrong = sentences.chain(details).collect();
    report
}

/// Every effect with the request that it came from.
fn effects(log: &Log) -> Vec<Effect<'_>> {
    let mut bodies: BTreeMap<u64, &str> = BTreeMap::new();
    let mut effects = Vec::new();
    for entry in log.entries() {
        match entry {
            Entry::Received { request, body, .. } => {
                bodies.insert(*request, body.as_deref().unwrap_or_default());
            }
            Entry::Applied { request, endpoint, key, effect_no, .. } => effects.push(Effect {
                endpoint,
                key: key.as_deref(),
                body: bodies.get(request).copied().unwrap_or_default(),
                number: *effect_no,
            }),
            Entry::Answered { .. } => {}
        }
    }
    effects
}

/// By endpoint, then by invoice.
type ByInvoice<'a> = BTreeMap<&'a str, BTreeMap<String, Vec<&'a Effect<'a>>>>;

fn by_invoice<'a>(effects: &'a [Effect<'a>], wrong: &mut Vec<String>) -> ByInvoice<'a> {
    let mut grouped: ByInvoice<'a> = BTreeMap::new();
    for effect in effects {
        let invoice = match effect.endpoint {
            CHARGES => form(effect.body, "metadata[invoice]"),
            MAILS => mail(effect.body, "subject")
                .and_then(|subject| subject.strip_prefix("Receipt for ").map(str::to_owned)),
            _ => None,
        };
        match invoice {
            Some(invoice) => {
                grouped.entry(effect.endpoint).or_default().entry(invoice).or_default().push(effect)
            }
            None => wrong.push(format!(
                "effect {} at {} (key {}) names no invoice",
                effect.number,
                effect.endpoint,
                effect.key.unwrap_or("missing"),
            )),
        }
    }
    grouped
}

fn unowed(plan: &Plan, grouped: &ByInvoice<'_>) -> usize {
    let known: BTreeSet<&str> = plan.invoices.iter().map(|invoice| invoice.id.as_str()).collect();
    let all = grouped.values().flatten();
    all.filter(|(invoice, _)| !known.contains(invoice.as_str())).map(|(_, list)| list.len()).sum()
}

/// What was charged is what was owed, and the receipt names that charge.
fn check_content(
    invoice: &Invoice,
    charges: &[&Effect<'_>],
    mails: &[&Effect<'_>],
) -> Option<String> {
    let charge = charges.first()?;
    let amount = form(charge.body, "amount");
    if amount.as_deref() != Some(invoice.amount_cents.to_string().as_str()) {
        let charged = amount.unwrap_or_default();
        return Some(format!(
            "{} owes {} and was charged {charged}",
            invoice.id, invoice.amount_cents
        ));
    }
    let mail_effect = mails.first()?;
    let text = mail(mail_effect.body, "text").unwrap_or_default();
    let number = format!("ch_{:08}", charge.number);
    (!text.contains(&number))
        .then(|| format!("the receipt for {} does not name its charge {number}", invoice.id))
}

fn form(body: &str, name: &str) -> Option<String> {
    let mut pairs = url::form_urlencoded::parse(body.as_bytes());
    pairs.find(|(found, _)| found == name).map(|(_, value)| value.into_owned())
}

fn mail(body: &str, name: &str) -> Option<String> {
    let body: Value = serde_json::from_str(body).ok()?;
    body.get(name)?.as_str().map(str::to_owned)
}

/// Effects whose own answer did not leave whole, as a success, while somebody waited for it.
#[must_use]
pub(super) fn answers_lost(log: &Log) -> u64 {
    let mut applied: BTreeMap<u64, u64> = BTreeMap::new();
    for entry in log.entries() {
        match entry {
            Entry::Received { .. } => {}
            Entry::Applied { request, at, .. } => drop(applied.insert(*request, *at)),
            Entry::Answered { request, at, status: 200..=299, end: End::Whole, .. } => {
                let waited_us = |applied_at: &u64| at.saturating_sub(*applied_at);
                if applied.get(request).map(waited_us).is_some_and(|us| us < TIMEOUT_US) {
                    applied.remove(request);
                }
            }
            Entry::Answered { .. } => {}
        }
    }
    count(applied.len())
}

fn errors(log: &Log) -> u64 {
    let is_error = |entry: &&Entry| matches!(entry, Entry::Answered { status: 400.., .. });
    count(log.entries().iter().filter(is_error).count())
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

impl Report {
    /// Whether every number is right.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.wrong.is_empty()
    }

    /// The sentences about wrong numbers, or the first of them and how many more there are.
    #[must_use]
    pub fn wrong_lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.wrong.iter().take(WRONG_SHOWN_MAX).cloned().collect();
        let more = self.wrong.len().saturating_sub(WRONG_SHOWN_MAX);
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        lines
    }
}

#[cfg(test)]
mod tests;
