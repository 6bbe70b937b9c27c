//! What the statuses of one provider mean: its profile's rules, and the common table behind them.
//!
//! Pure. A rule with a condition fits where the answer can be read and the condition is true; an
//! answer that cannot be read fits no such rule.

use oncely_core::connector::{Profile, StatusClass, StatusRule};

use super::lookup::holds;
use super::outcome::Reply;
use crate::effect::record::Reads;

/// The classification of one effect's answers.
#[derive(Debug)]
pub struct Statuses {
    rules: Vec<StatusRule>,
}

impl Statuses {
    pub fn of(profile: &Profile) -> Self {
        Self { rules: profile.statuses.clone() }
    }

    /// The class of an answer.
    pub fn class(&self, reply: &Reply) -> StatusClass {
        let mut rules = self.of_status(reply.status);
        let rule = rules
            .find(|rule| rule.when.as_deref().is_none_or(|when| holds(when, reply) == Ok(true)));
        rule.map_or_else(|| by_table(reply.status), |rule| rule.class)
    }

    /// Whether an answer with this status can be a success, whatever its body says.
    pub(super) fn may_be_done(&self, status: u16) -> bool {
        let mut classes = self.of_status(status).map(|rule| (rule.when.is_some(), rule.class));
        let conditional =
            classes.by_ref().find(|(condition, class)| !condition || *class == StatusClass::Done);
        conditional.map_or_else(|| by_table(status), |(_, class)| class) == StatusClass::Done
    }

    /// Whether the body of an answer with this status decides.
    pub(super) fn reads_body(&self, status: u16) -> bool {
        let conditions = self.of_status(status).filter_map(|rule| rule.when.as_deref());
        Reads::of(conditions).body()
    }

    fn of_status(&self, status: u16) -> impl Iterator<Item = &StatusRule> {
        let fits = move |rule: &&StatusRule| (rule.range.first..=rule.range.last).contains(&status);
        self.rules.iter().filter(fits)
    }
}

/// What a status means where the profile says nothing.
const fn by_table(status: u16) -> StatusClass {
    match status {
        200..=299 => StatusClass::Done,
        // The same request belongs elsewhere, or needs a credential: nothing was done with it.
        301 | 307 | 308 | 401 | 403 | 407 => StatusClass::Halted,
        // "See the result over there" is how forms answer that have done their work.
        300..=399 => StatusClass::Unknown,
        // 425 is only honest about what this attempt did on this connection.
        408 | 425 => StatusClass::Unknown,
        429 => StatusClass::Throttled,
        400..=499 => StatusClass::Rejected,
        _ => StatusClass::Unknown,
    }
}
