//! Records that were set aside: the reasons that there are, and what the log says.

use std::collections::BTreeSet;

use oncely_connectors::format::DecodeReason;
use oncely_core::decide::{Input, ParkReason, Place, Plan};
use oncely_core::event::RejectReason;

use super::Shared;
use super::item::{Item, What};

/// A header name that is no text.
pub(super) const BAD_HEADER: &str = "bad_header";
/// Reading the record panicked: a fault of this program.
pub(super) const PANICKED: &str = "panicked";
/// The database refuses a value of the record.
pub(super) const REFUSED_BY_DATABASE: &str = "refused_by_database";
/// A rejected effect is a dead letter of its own; the store writes it so.
const EFFECT_REJECTED: &str = "effect_rejected";

/// Every reason for which a record or an effect is set aside, in alphabetical order.
pub fn reasons() -> Vec<&'static str> {
    let own = [BAD_HEADER, PANICKED, REFUSED_BY_DATABASE, EFFECT_REJECTED];
    let decode = DecodeReason::ALL.map(DecodeReason::as_str);
    let reject = RejectReason::ALL.map(RejectReason::as_str);
    let park = ParkReason::ALL.map(ParkReason::as_str);
    let all: BTreeSet<&'static str> =
        own.into_iter().chain(decode).chain(reject).chain(park).collect();
    all.into_iter().collect()
}

/// Whether this reason says that the record could not be read as an event: its bytes are no JSON, or
/// more than reading them would show.
pub fn is_unreadable(reason: &str) -> bool {
    reason == BAD_HEADER || DecodeReason::ALL.iter().any(|one| one.as_str() == reason)
}

/// Lines about one batch; a topic full of records that cannot be read must not fill the disk.
const LINES_MAX: usize = 10;

/// One line for each record that was parked now, with the number by which it is looked at.
/// `numbers` leaves out what was parked before, at an earlier delivery.
pub(super) fn say(
    shared: &Shared,
    plan: &Plan,
    items: &[Item],
    inputs: &[(usize, Input<'_>)],
    all: Option<&'static str>,
    numbers: &[(Place, i64)],
) {
    for (place, number) in numbers.iter().take(LINES_MAX) {
        let found = items.iter().enumerate().find(|(_, item)| item.place == *place);
        let Some((index, item)) = found else { continue };
        let at = |input: usize| inputs.get(input).is_some_and(|(of, _)| *of == index);
        let decided = plan.parked.iter().find(|parked| at(parked.input));
        let (list, reason) = match (&item.what, decided) {
            _ if all.is_some() => ("dlq", REFUSED_BY_DATABASE),
            (What::Unusable { reason, .. }, _) => ("dlq", *reason),
            (What::Event { .. }, Some(parked)) if parked.quarantine => {
                ("quarantine", parked.reason.as_str())
            }
            (What::Event { .. }, parked) => {
                ("dlq", parked.map_or("", |parked| parked.reason.as_str()))
            }
        };
        let record = &item.record;
        let business_id = match &item.what {
            What::Event { event, .. } => Some(shared.shown(&event.tenant, &event.id)),
            What::Unusable { named, .. } => {
                named.as_ref().map(|named| shared.shown(&named.tenant, &named.id))
            }
        };
        tracing::warn!(
            reason,
            topic = &*record.topic,
            partition = record.partition,
            offset = record.offset,
            business_id = business_id.map(tracing::field::display),
            look = format!("oncely {list} show {number}"),
            "record parked"
        );
    }
    let more = numbers.len().saturating_sub(LINES_MAX);
    if more > 0 {
        let look = format!("oncely dlq list --connector {}", shared.connector.name);
        tracing::warn!(more, look, "more records of the same batch parked");
    }
}
