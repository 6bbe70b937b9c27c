//! Requests that were stored before the connector file named another host, or another header for the key.
//!
//! Reads: claims, and where and how each effect's file sends now. Gives: the same requests to there, stored with
//! the claim; of the others, a note for a person. Never: sends elsewhere what may have been applied already,
//! since another host knows nothing of it.

use oncely_connectors::effect::performer::Moved;
use oncely_core::effect::marks::Marks;
use oncely_core::effect::next::{Act, act};
use oncely_core::effect::request::Request;

use super::Shared;
use super::claims::Held;
use super::lane::Lane;
use super::late::on_record;
use crate::store::claim::{self, Recorded};
use crate::store::{PgConnection, StoreError};

/// Turns the requests of claims to where the file sends them now, as far as nothing of their effects may have
/// been applied, and stores them: every later attempt sends the same bytes again. So is it noted under which header
/// they carry their key from now on.
///
/// # Errors
/// When the database fails; then nothing was claimed.
pub(super) async fn readdress(
    tx: &mut PgConnection,
    shared: &Shared,
    claims: &mut [Held],
) -> Result<(), StoreError> {
    let mut turned = Vec::new();
    for held in claims {
        let Some(lane) = shared.lane(held.rule) else { continue };
        if act(&lane.policy, &held.claim.history.when_claimed()) != Act::Send {
            continue;
        }
        let was = held.claim.marks;
        if !held.claim.history.was_unknown {
            let key = lane.policy.marks.key;
            held.claim.marks = was.map(|marks| Marks { key, ..marks });
        }
        if let Some(moved) = moved(lane, held)
            && let Some(request) = there(&moved, &held.claim.history)
        {
            lane.tell_moved(&moved);
            turned.push((held.claim.key, on_record(request, held.claim.marks)));
            held.claim.request = Some(Ok(request.clone()));
        } else if was != held.claim.marks
            && let Some(Ok(request)) = &held.claim.request
        {
            turned.push((held.claim.key, on_record(request, held.claim.marks)));
        }
    }
    if turned.is_empty() {
        return Ok(());
    }
    claim::replace_requests(tx, &turned).await
}

/// Whether a claim's request was made for another host than the file now names.
pub(super) fn moved(lane: &Lane, held: &Held) -> Option<Moved> {
    lane.performer.moved(held.claim.request.as_ref()?.as_ref().ok()?)
}

/// The request to send there, if it may be sent there.
fn there<'m>(moved: &'m Moved, recorded: &Recorded) -> Option<&'m Request> {
    moved.request.as_ref().filter(|_| !recorded.was_unknown && !recorded.suspect)
}

/// Why nothing is sent; `None`: it may be sent there, once it was claimed for that.
pub(super) fn note(moved: &Moved, recorded: &Recorded) -> Option<String> {
    let Moved { from, to, request } = moved;
    if there(moved, recorded).is_some() {
        return None;
    }
    Some(match request {
        Some(_) => format!(
            "it may have been applied at {from}, and the connector file now names {to}, which cannot know: \
             look there, then resolve it as done, or as retry, which sends it to {to}"
        ),
        None => format!(
            "it was made for {from}, and the connector file now names {to} with another path: name {from} \
             again and resolve it as retry, or resolve it as done, rejected or skipped"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(has_place: bool) -> Moved {
        let request = oncely_core::effect::request::HttpRequest {
            method: "POST".into(),
            url: "http://new/charge".into(),
            headers: Vec::new(),
            body: None,
        };
        let request = has_place.then_some(Request::Http(request));
        Moved { from: "http://old".to_owned(), to: "http://new:81".to_owned(), request }
    }

    #[test]
    fn it_goes_there_only_if_nothing_may_have_been_applied() {
        for bits in 0..8 {
            let [was_unknown, suspect, has_place] = [1, 2, 4].map(|bit| bits & bit != 0);
            let recorded = Recorded { was_unknown, suspect, attempts: 3, ..Recorded::default() };
            let moved = moved(has_place);
            let goes = there(&moved, &recorded).is_some();
            assert_eq!(goes, has_place && !was_unknown && !suspect);
            let note = note(&moved, &recorded);
            assert_eq!(note.is_none(), goes, "it goes, or a person is told why not");
            for host in ["http://old", "http://new:81"] {
                assert!(note.as_ref().is_none_or(|note| note.contains(host)), "{note:?}");
            }
        }
    }
}
