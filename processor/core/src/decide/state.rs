//! What a fresh event does to its entity.

use std::sync::Arc;

use super::known::EntityRow;
use super::plan::{Moved, ParkReason};
use crate::connector::{OnInvalid, StateRules};
use crate::event::EntityEvent;
use crate::expr::{Scope, StateView};
use crate::key::Key;

/// The answer of the version and of the transition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Moves(Moved),
    /// Older than what is stored: remembered, no transition.
    Stale {
        current: Arc<str>,
    },
    /// The stored state was set by this very event.
    Known,
    /// No transition, and the connector says that this is nothing.
    Ignored,
    Parked {
        quarantine: bool,
        reason: ParkReason,
        detail: String,
    },
}

pub(super) fn step(
    rules: &StateRules,
    stored: Option<&EntityRow>,
    event: Key,
    about: &EntityEvent,
    scope: &Scope<'_>,
) -> Step {
    let current: Arc<str> = match stored {
        None => Arc::from(&*rules.initial),
        Some(row) if about.version > row.version => Arc::clone(&row.state),
        Some(row) if about.version < row.version => {
            return Step::Stale { current: Arc::clone(&row.state) };
        }
        Some(row) if row.event == event => return Step::Known,
        Some(row) => {
            let detail = format!(
                "version {} of {} was set by another event; compare the two at their source",
                row.version, rules.entity
            );
            let reason = ParkReason::VersionConflict;
            return Step::Parked { quarantine: true, reason, detail };
        }
    };
    let view =
        StateView { current: &current, previous: &current, version: about.version, moved: false };
    let scope = Scope { state: Some(view), ..*scope };
    for (index, transition) in rules.transitions.iter().enumerate() {
        if !transition.from.iter().any(|from| **from == *current) {
            continue;
        }
        match transition.condition.as_ref().map_or(Ok(true), |condition| condition.is_true(&scope))
        {
            Ok(false) => {}
            Ok(true) => {
                let to = Arc::from(&*transition.to);
                return Step::Moves(Moved { from: current, to });
            }
            Err(error) => {
                return Step::Parked {
                    quarantine: false,
                    reason: ParkReason::ExpressionFailed,
                    detail: format!("state.transitions[{index}].if: {error}"),
                };
            }
        }
    }
    let quarantine = match rules.on_invalid {
        OnInvalid::Ignore => return Step::Ignored,
        OnInvalid::Quarantine => true,
        OnInvalid::DeadLetter => false,
    };
    let detail = format!("no transition leads from `{current}` for this event");
    Step::Parked { quarantine, reason: ParkReason::InvalidTransition, detail }
}
