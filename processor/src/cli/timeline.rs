//! A timeline made from what is on record of an event. Pure.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, Utc};
use oncely_core::decide::Ending;
use oncely_core::effect::lookup::FindingClass;
use oncely_core::effect::status::Status;
use oncely_core::key::Key;

use super::answer::{counted, shown};
use super::deferred::waits_for;
use super::effects::{ORPHANED, SUSPECT, halted, in_doubt, waits_because};
use crate::store::admin::audit::Entry as AuditEntry;
use crate::store::admin::compensations::{Pair, Side};
use crate::store::admin::deferred::DeferredRow;
use crate::store::admin::effects::{AttemptRow, EffectRow};
use crate::store::admin::events::{History, InboxRow, LedgerRow, ParkedEntry};
use crate::store::origin::Origin;

/// Widths of the first two columns.
const WHAT_WIDTH: usize = 10;
/// The most that a long name widens the first for all lines.
const WHAT_WIDTH_MAX: usize = 24;
const DETAIL_WIDTH: usize = 44;
/// Stands for the claim where there is none: behind all of them.
const NEVER: i64 = i64::MAX;

/// One line. Without a time: how something stands now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) at: Option<DateTime<Utc>>,
    pub(super) what: String,
    pub(super) detail: String,
    /// In capitals, where something ended or went wrong.
    pub(super) state: String,
}

/// The life of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Timeline {
    pub(super) entries: Vec<Entry>,
    pub(super) verdict: String,
    /// Effects that are not final.
    pub(super) open: usize,
}

/// In the order of time; what stands open comes last.
pub(super) fn timeline(history: &History) -> Timeline {
    let mut entries = Vec::new();
    if let Some(inbox) = &history.inbox {
        let received =
            entry(Some(received(inbox, history)), "received", place(inbox.origin.as_ref()), "");
        entries.push(received);
    }
    entries.extend(history.deferred.iter().flat_map(deferred));
    entries.extend(history.inbox.as_ref().and_then(ended));
    entries.extend(history.ledger.iter().map(|line| {
        let detail = format!("{} {} for {}", line.quantity, line.metric, line.account);
        entry(Some(line.created_at), &line.name, detail, "DONE")
    }));
    let mut all = Vec::new();
    for effect in history.effects.iter().filter(|effect| !is_written(effect, history)) {
        let attempts = history.attempts.iter().filter(|attempt| attempt.effect == effect.key);
        all.extend(tried(effect, &attempts.collect::<Vec<_>>()));
    }
    // Outcomes that were settled together have one time: they stand in the order in which they were claimed.
    all.sort_by_key(|(fence, _)| *fence);
    entries.extend(all.into_iter().map(|(_, entry)| entry));
    entries.extend(history.pairs.iter().flat_map(|pair| undone(pair, history)));
    entries.extend(history.parked.iter().flat_map(parked));
    entries.extend(history.inbox.iter().filter_map(repeated));
    entries.extend(history.audit.iter().map(|entry| by_hand(entry, &history.effects)));
    // Stable: what happened in one instant keeps the order in which it is listed here.
    entries.sort_by_key(|entry| (entry.at.is_none(), entry.at));
    let open = history.open().iter().sum();
    Timeline { entries, verdict: verdict(history), open }
}

/// How the two stand, from the side of each effect that is this event's.
fn undone(pair: &Pair, history: &History) -> Vec<Entry> {
    let is_mine = |key: Key| history.effects.iter().any(|effect| effect.key == key);
    let line = |what: &str, does: &str, other: &Side| {
        let detail = format!("{does} {} of {}", other.name, shown(&other.business_id));
        entry(None, what, detail, &other.status.to_uppercase())
    };
    let mut entries = Vec::new();
    if is_mine(pair.effect.key) {
        entries.push(match &pair.undone {
            Some(undone) => line(&pair.effect.name, "undoes", undone),
            None => {
                let detail = "undoes what was never owed, or is forgotten";
                entry(None, &pair.effect.name, detail, "")
            }
        });
    }
    if let Some(mine) = pair.undone.as_ref().filter(|_| is_mine(pair.undoes)) {
        entries.push(line(&mine.name, "undone by", &pair.effect));
    }
    entries
}

/// Whether it stands in the usage ledger, which tells more of it.
fn is_written(effect: &EffectRow, history: &History) -> bool {
    let is_line = |line: &LedgerRow| line.key.as_bytes() == effect.key.as_bytes();
    effect.status == Status::Done && history.ledger.iter().any(is_line)
}

fn entry(at: Option<DateTime<Utc>>, what: &str, detail: impl Into<String>, state: &str) -> Entry {
    Entry { at, what: what.to_owned(), detail: detail.into(), state: state.to_owned() }
}

fn place(origin: Option<&Origin>) -> String {
    origin.map(ToString::to_string).unwrap_or_default()
}

/// When the record was read whose event this is: it may have waited or been parked before it was decided as it is.
fn received(inbox: &InboxRow, history: &History) -> DateTime<Utc> {
    let waited = history.deferred.iter().map(|row| row.at);
    let parked =
        history.parked.iter().filter(|row| row.effect.is_none() && row.origin == inbox.origin);
    let parked = parked.map(|row| row.first.as_ref().map_or(row.at, |first| first.at));
    waited.chain(parked).fold(inbox.first_seen_at, DateTime::min)
}

/// What it came to; nothing of one that waits.
fn ended(inbox: &InboxRow) -> Option<Entry> {
    if inbox.outcome == Ending::Deferred.as_str() {
        return None;
    }
    let moved = match (&inbox.from_state, &inbox.to_state) {
        (Some(from), Some(to)) if from == to => to.clone(),
        (Some(from), Some(to)) => format!("{from} → {to}"),
        _ => String::new(),
    };
    let version = inbox.version.map(|version| format!("v{version}"));
    let parts: Vec<String> =
        [moved, version.unwrap_or_default()].into_iter().filter(|part| !part.is_empty()).collect();
    Some(entry(Some(inbox.first_seen_at), &inbox.outcome, parts.join("  "), ""))
}

/// That it waits; or that it waited, and why no more.
fn deferred(row: &DeferredRow) -> Vec<Entry> {
    let what = waits_for(row);
    let Some((at, _)) = &row.closed else {
        let due = row.due_at.map(|due| format!(" until {}", due.format("%H:%M:%S%.3f")));
        let detail = format!("v{} waits for {what}{}", row.version, due.unwrap_or_default());
        return vec![entry(Some(row.at), "deferred", detail, "WAITING")];
    };
    let how = if row.escalated { "what it waited for did not come in time" } else { "its turn" };
    vec![
        entry(Some(row.at), "deferred", format!("v{} waits for {what}", row.version), ""),
        entry(Some(*at), "released", how, ""),
    ]
}

fn repeated(inbox: &InboxRow) -> Option<Entry> {
    let repeats = inbox.repeats.as_ref()?;
    let times = match repeats.times {
        1 => "once".to_owned(),
        times => format!("{times} times"),
    };
    let last = place(repeats.last.as_ref());
    let detail = if last.is_empty() { times } else { format!("{times}, last {last}") };
    Some(entry(Some(repeats.last_seen_at), "repeated", detail, "DUPLICATE"))
}

/// Why it was parked first, why it is now where that is another time, and how it was closed.
fn parked(row: &ParkedEntry) -> Vec<Entry> {
    let number = row.id;
    let origin = row.origin.as_ref().map(|origin| format!("  {origin}")).unwrap_or_default();
    let again = match row.redrives {
        0 => String::new(),
        times => format!("  decided again: {times}"),
    };
    let doubt = match (row.suspect && row.closed.is_none(), row.effect) {
        (false, _) => "",
        (true, None) => "  may have been run: suspect",
        (true, Some(_)) => "  may have been applied: suspect",
    };
    let again = format!("{again}{doubt}");
    // How often stands where it is told how it stands.
    let (open, closed) = if row.closed.is_some() { ("", &*again) } else { (&*again, "") };
    let state = match row.kind.as_str() {
        "quarantine" => "QUARANTINED",
        _ => "DEAD LETTER",
    };
    let line = |at, (reason, detail): (&str, &str), more: &str, state: &str| {
        entry(Some(at), "parked", format!("#{number} {reason}: {}{more}", shown(detail)), state)
    };
    let last = (row.reason.as_str(), row.detail.as_str());
    let mut entries = match &row.first {
        None => vec![line(row.at, last, &format!("{origin}{open}"), state)],
        Some(first) => {
            let before = (first.reason.as_str(), first.detail.as_str());
            vec![line(first.at, before, &origin, ""), line(row.at, last, open, state)]
        }
    };
    if let Some((at, how)) = &row.closed {
        entries.push(entry(Some(*at), "closed", format!("#{number}{closed}"), &how.to_uppercase()));
    }
    entries
}

/// Attempts of one effect, its end, and how it stands when it is open; each with the claim that it came of.
fn tried(effect: &EffectRow, attempts: &[&AttemptRow]) -> Vec<(i64, Entry)> {
    let mut entries = Vec::new();
    let mut number = 0_usize;
    for attempt in attempts {
        let looked_up = FindingClass::ALL.iter().any(|one| one.as_str() == attempt.outcome);
        let label = if looked_up {
            "look-up".to_owned()
        } else if attempt.evidence {
            "evidence".to_owned()
        } else {
            number = number.saturating_add(1);
            format!("attempt {number}")
        };
        let code = attempt.status_code.map(|code| code.to_string());
        let note = attempt.note.as_deref().map(shown);
        let detail = [Some(label), code, note].into_iter().flatten().collect::<Vec<_>>().join("  ");
        let state = match attempt.outcome.as_str() {
            outcome if outcome == FindingClass::Found.as_str() => "DONE (reconciled)".to_owned(),
            outcome => outcome.to_uppercase().replace('_', " "),
        };
        entries.push((attempt.fence, entry(Some(attempt.at), &effect.name, detail, &state)));
    }
    let last = effect.fence.unwrap_or(NEVER);
    let found = FindingClass::Found.as_str();
    let on_record = attempts.iter().any(|attempt| {
        attempt.outcome == effect.status.as_str()
            || (effect.status == Status::Done && attempt.outcome == found)
    });
    let by_hand = effect.note.as_deref().is_some_and(|note| note.starts_with("by hand: "));
    match effect.status {
        Status::Done | Status::Rejected | Status::Skipped if on_record || by_hand => {}
        Status::Done => {
            // A first attempt that succeeded lives in the effect's own row.
            let code = effect.status_code.map(|code| format!("  {code}")).unwrap_or_default();
            let note = effect.note.as_deref().map(|note| format!("  {}", shown(note)));
            let detail = format!("attempt {}{code}{}", effect.attempts, note.unwrap_or_default());
            entries.push((last, entry(effect.settled_at, &effect.name, detail, "DONE")));
        }
        Status::Rejected | Status::Skipped => {
            let note = shown(effect.note.as_deref().unwrap_or(""));
            let state = effect.status.as_str().to_uppercase();
            entries.push((last, entry(effect.settled_at, &effect.name, note, &state)));
        }
        Status::Waiting | Status::Claimed | Status::Unknown | Status::Held => {
            entries.push((NEVER, stands(effect)));
        }
    }
    entries
}

fn stands(effect: &EffectRow) -> Entry {
    let due = effect.due_at.map(|at| at.format("due %H:%M:%S%.3f").to_string());
    let because = waits_because(effect);
    let detail = match (effect.status, due) {
        (Status::Waiting, None) => match because {
            Some(because) => format!("waits {because}"),
            None => "waits for an earlier effect".to_owned(),
        },
        (Status::Waiting | Status::Unknown, Some(due)) => {
            let parts = [halted(effect), because, Some(due)];
            parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
        }
        (Status::Claimed, _) => "a worker is sending it".to_owned(),
        _ => shown(effect.note.as_deref().unwrap_or("")),
    };
    let detail = if in_doubt(effect) && effect.status != Status::Held {
        format!("{detail}; {SUSPECT}")
    } else {
        detail
    };
    let taken = match effect.takeovers {
        0 => String::new(),
        1 => "; taken over once".to_owned(),
        times => format!("; taken over {times} times"),
    };
    let orphaned = if effect.orphaned { format!("; orphaned: {ORPHANED}") } else { String::new() };
    let detail = format!("{detail}{taken}{orphaned}  {}", effect.key.wire());
    entry(None, &effect.name, detail, &effect.status.as_str().to_uppercase())
}

/// What a replay has added: `receipt ef_…`. Of one that was made before keys were put on record, the names alone.
fn replayed(row: &AuditEntry) -> Option<String> {
    if !row.action.starts_with("replay ") {
        return None;
    }
    let detail: serde_json::Value = serde_json::from_str(&row.detail).ok()?;
    let texts = |name: &str| -> Vec<String> {
        let texts = detail.get(name).and_then(|value| value.as_array());
        let texts = texts.into_iter().flatten().filter_map(|value| value.as_str());
        texts.map(shown).collect()
    };
    let mut keys = texts("keys").into_iter();
    let added = texts("effects").into_iter().map(|name| match keys.next() {
        Some(key) => format!("{name} {key}"),
        None => name,
    });
    let added: Vec<String> = added.collect();
    (!added.is_empty()).then(|| added.join(", "))
}

fn by_hand(row: &AuditEntry, effects: &[EffectRow]) -> Entry {
    let effect = effects.iter().find(|effect| {
        row.subject.is_some_and(|subject| subject.as_bytes() == effect.key.as_bytes())
    });
    let what = effect.map_or("by hand", |effect| effect.name.as_str());
    let of = replayed(row).map(|of| format!(" of {of}")).unwrap_or_default();
    let detail = format!("{}{of} by {}: {}", row.action, shown(&row.actor), shown(&row.reason));
    entry(Some(row.at), what, detail, "BY HAND")
}

/// `1 settle, 1 receipt, 2 repeats absorbed, nothing open`.
fn verdict(history: &History) -> String {
    let mut parts = Vec::new();
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut order = Vec::new();
    let lines = history.ledger.iter().map(|line| (line.name.as_str(), ""));
    let effects = history.effects.iter().filter(|effect| !is_written(effect, history));
    let effects = effects.map(|effect| {
        let state = if effect.status == Status::Done { "" } else { effect.status.as_str() };
        (effect.name.as_str(), state)
    });
    for named in effects.chain(lines) {
        let count = counts.entry(named).or_insert_with(|| {
            order.push(named);
            0
        });
        *count = count.saturating_add(1);
    }
    for (name, state) in order {
        let count = counts.get(&(name, state)).copied().unwrap_or(0);
        parts.push(format!("{count} {name} {state}").trim_end().to_owned());
    }
    let repeats = history.inbox.as_ref().and_then(|inbox| inbox.repeats.as_ref());
    if let Some(repeats) = repeats {
        let times = usize::try_from(repeats.times).unwrap_or(usize::MAX);
        parts.push(format!("{} absorbed", counted(times, "repeat")));
    }
    let [_, parked, deferred] = history.open();
    if parked > 0 {
        let wait = if parked == 1 { "waits" } else { "wait" };
        parts.push(format!("{parked} parked: {wait} for a person"));
    }
    if deferred > 0 {
        parts.push(format!("{deferred} deferred"));
    }
    let open: usize = history.open().iter().sum();
    parts.push(if open == 0 { "nothing open".to_owned() } else { format!("{open} open") });
    parts.join(", ")
}

impl Timeline {
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut day: Option<NaiveDate> = None;
        let widest = self.entries.iter().map(|entry| entry.what.chars().count()).max();
        let width = widest.unwrap_or(0).clamp(WHAT_WIDTH, WHAT_WIDTH_MAX);
        for entry in &self.entries {
            let clock = match entry.at {
                Some(at) => {
                    if day != Some(at.date_naive()) {
                        day = Some(at.date_naive());
                        text.push_str(&format!("{} UTC\n", at.format("%Y-%m-%d")));
                    }
                    at.format("%H:%M:%S%.3f").to_string()
                }
                None => "now         ".to_owned(),
            };
            let (what, detail) = (&entry.what, &entry.detail);
            let line = format!("{clock}  {what:width$}  {detail:DETAIL_WIDTH$}  {}", entry.state);
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text.push_str(&format!("verdict: {}\n", self.verdict));
        text
    }
}

#[cfg(test)]
mod tests;
