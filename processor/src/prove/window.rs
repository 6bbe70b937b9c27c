//! One crash point, played for every effect that comes to it: the samples, the crash in that effect's own
//! window, a process that takes over, the samples again.
//!
//! Reads: the connector, what is owed, and what was at the place when the process died. Gives: what became of
//! each effect. Never takes a crash in one effect's window for one in another's.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use oncely_core::connector::{Connector, EffectBody, RequestRule};
use oncely_core::effect::status::Status;
use oncely_core::key::Key;
use oncely_rig::postgres::Cluster;
use oncely_rig::provider::{Fault, Rule};

use super::aim::{self, Of, Target};
use super::stage::{LOOK, Stage};
use super::verdict::{self, Crash, Found, Window};
use super::{Options, Owed, ProveError};
use crate::clock::{self, Moment};
use crate::crash::{Action, Order, Point, Step};
use crate::store::admin::effects::{self, EffectRow};
use crate::store::admin::totals::Totals;

/// A point that a connector does not come to within this time, it never comes to.
const REACHED_MAX: Duration = Duration::from_secs(25);
/// What the provider takes where the crash has to fall into the middle of a call.
const SLOW: Duration = Duration::from_millis(250);
/// What its calls take longer where the process is to be asked to end in the middle of one.
const SLOWER_MS: u64 = 600;
/// What a provider says that is too busy, and how often: its effect was not applied and is tried again.
const BUSY_HTTP: u16 = 429;
const BUSY_SMTP: u16 = 451;
const BUSY_TIMES: u64 = 3;
/// What is still open after so long stays open.
const FINISH_MAX: Duration = Duration::from_secs(40);
/// Nothing has changed for so long: what waits, waits behind something that is held.
const STILL: Duration = Duration::from_millis(2_000);

/// Crashes at the point in every effect's own window, each in a play of its own unless one crash hit several.
pub(super) async fn play(
    cluster: &Cluster,
    connector: &Arc<Connector>,
    options: &Options,
    point: Point,
) -> Result<Window, ProveError> {
    let targets = aim::targets(connector, &options.owed, point.step);
    let comes: BTreeSet<usize> = targets.iter().flat_map(|target| &target.rules).copied().collect();
    let (mut hit, mut crashes) = (BTreeSet::new(), Vec::new());
    for (number, target) in targets.into_iter().enumerate() {
        if target.rules.is_subset(&hit) {
            continue;
        }
        let name = format!("{point}-{number}");
        let stage = Stage::start(cluster, connector, options, &name).await?;
        let play = Play { connector, options, point, target, stage };
        if let Some(crash) = play.run(&comes).await? {
            hit.extend(&crash.hit);
            crashes.push(crash);
        }
    }
    Ok(verdict::of_window(connector, point, &comes, &crashes))
}

/// One crash: the samples, the crash, a process that takes over, the samples again.
struct Play<'a> {
    connector: &'a Connector,
    options: &'a Options,
    point: Point,
    target: Target,
    stage: Stage,
}

impl Play<'_> {
    /// What was hit, of what comes there; `None` when what was aimed at never came to the point.
    async fn run(mut self, comes: &BTreeSet<usize>) -> Result<Option<Crash>, ProveError> {
        self.stage.write(&self.options.samples).await?;
        let in_hand = self.begin().await?;
        let mut quiet = Quiet::default();
        // What is not of an effect may come long after all effects are over.
        let may_give_up = aim::of(self.point.step) == Of::Effects;
        let is_over = async |stage: &mut Stage| {
            Ok(stage.has_crashed() || may_give_up && quiet.is_over(stage).await?)
        };
        self.stage.until(REACHED_MAX, is_over).await?;
        self.stage.kill_all().await?;
        if !self.stage.has_crashed() {
            return Ok(None);
        }
        let hit = match aim::of(self.point.step) {
            Of::Process | Of::Records => self.target.rules.clone(),
            Of::Effects => {
                let ids = self.stage.crashed_with();
                let rules = self.connector.effects.iter().enumerate();
                let there = rules.filter(|(_, rule)| ids.iter().any(|id| **id == *rule.id));
                there.map(|(number, _)| number).collect()
            }
            Of::Hands => in_hand.intersection(comes).copied().collect(),
        };
        self.stage.provider.heal();
        self.stage.spawn(None)?;
        // Kafka delivers everything once more, and nothing may follow from it.
        self.stage.write(&self.options.samples).await?;
        let finished = finish(&mut self.stage).await?;
        let log = self.stage.provider.read_log();
        let log = log.map_err(super::stage::server("the provider's log"))?;
        let (rows, lines) = self.on_record().await?;
        let found = Found { rows, lines, log, finished };
        let fates = verdict::fates(self.connector, &self.options.owed, &found);
        self.stage.kill_all().await?;
        Ok(Some(Crash { hit, fates }))
    }

    /// Effects and ledger lines that are owed, as far as they are on record.
    async fn on_record(&mut self) -> Result<(Vec<EffectRow>, BTreeSet<Key>), ProveError> {
        let mut keys: Vec<Key> = self.options.owed.iter().map(|owed| owed.key).collect();
        keys.sort_unstable();
        let connection = self.stage.session().connection().await?;
        let rows = effects::of_keys(connection, &keys).await?;
        let lines = crate::store::batch::load_ledger(connection, &keys).await?;
        Ok((rows, lines.into_keys().collect()))
    }

    /// The rules of which something is in a process's hands: claimed, or on record where nobody is called.
    async fn in_hand(&mut self) -> Result<BTreeSet<usize>, ProveError> {
        let (rows, lines) = self.on_record().await?;
        let is_in_hand = |owed: &&Owed| {
            let status = rows.iter().find(|row| row.key == owed.key).map(|row| row.status);
            let rule = self.connector.effects.get(owed.rule);
            match rule.map(|rule| &rule.body) {
                Some(EffectBody::Call(_)) => status == Some(Status::Claimed),
                Some(EffectBody::Ledger(_) | EffectBody::Publish(_)) => {
                    status.is_some() || lines.contains(&owed.key)
                }
                None => false,
            }
        };
        Ok(self.options.owed.iter().filter(is_in_hand).map(|owed| owed.rule).collect())
    }

    /// Waits until the target is in a process's hands, and says what else is.
    async fn until_in_hand(&mut self) -> Result<BTreeSet<usize>, ProveError> {
        let (begun, mut quiet) = (clock::now(), Quiet::default());
        loop {
            let found = self.in_hand().await?;
            self.stage.must_run()?;
            let late = clock::since(begun) > REACHED_MAX;
            if self.target.rules.is_subset(&found) || late || quiet.is_over(&mut self.stage).await?
            {
                return Ok(found);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// This fault for the calls of the target.
    fn fail(&self, rule: &Rule) {
        let owed = self.options.owed.iter().filter(|owed| self.target.rules.contains(&owed.rule));
        owed.for_each(|owed| self.stage.provider.fail(rule.clone().key_with(&owed.key.wire())));
    }

    fn is_smtp(&self) -> bool {
        let rules = self.target.rules.iter().filter_map(|rule| self.connector.effects.get(*rule));
        let mut calls = rules.filter_map(|rule| match &rule.body {
            EffectBody::Call(call) => Some(call),
            EffectBody::Ledger(_) | EffectBody::Publish(_) => None,
        });
        calls.any(|call| matches!(call.request, RequestRule::Smtp(_)))
    }

    fn spawn_armed(&mut self) -> Result<(), ProveError> {
        let order = Order { point: self.point, nth: 1, action: Action::Kill };
        self.stage.spawn(Some((order, self.target.aim.as_ref())))
    }

    /// Brings an armed worker to its point. Gives what was in its hands, where that is what the crash hits.
    #[allow(clippy::wildcard_enum_match_arm, reason = "most steps are come to without any doing")]
    async fn begin(&mut self) -> Result<BTreeSet<usize>, ProveError> {
        let mut in_hand = BTreeSet::new();
        match self.point.step {
            Step::Death | Step::TakeOver => {
                self.fail(&Rule::always(Fault::HangAfter));
                self.stage.spawn(None)?;
                in_hand = self.until_in_hand().await?;
                self.stage.kill_all().await?;
                self.stage.provider.heal();
                self.spawn_armed()?;
            }
            Step::ClaimCommit => {
                // Not applied for certain, and tried again when it is due.
                let status = if self.is_smtp() { BUSY_SMTP } else { BUSY_HTTP };
                self.fail(&Rule::times(BUSY_TIMES, Fault::status(status)));
                self.spawn_armed()?;
            }
            Step::LookUp => {
                self.fail(&Rule::times(2, Fault::CloseAfter));
                self.spawn_armed()?;
            }
            Step::Request => {
                self.stage.provider.set_latency(SLOW);
                self.spawn_armed()?;
            }
            Step::GiveBack | Step::End | Step::Revoke => {
                self.fail(&Rule::always(Fault::DelayMs(SLOWER_MS)));
                self.spawn_armed()?;
                in_hand = self.until_in_hand().await?;
                if self.point.step == Step::Revoke {
                    self.stage.spawn(None)?;
                } else {
                    self.stage.ask_to_end()?;
                }
            }
            _ => self.spawn_armed()?,
        }
        Ok(in_hand)
    }
}

/// Whether anything is still to come without a person, from look to look.
#[derive(Default)]
struct Quiet {
    last: Option<(Totals, Moment)>,
}

/// What one look saw.
struct Look {
    /// Everything is read, and whatever is open waits behind something that is held.
    is_left: bool,
    /// Something is open.
    is_open: bool,
    /// Nothing has changed for a while.
    is_still: bool,
}

impl Quiet {
    async fn look(&mut self, stage: &mut Stage) -> Result<Look, ProveError> {
        let totals = stage.totals().await?;
        let since = match self.last {
            Some((last, since)) if last == totals => since,
            _ => clock::now(),
        };
        self.last = Some((totals, since));
        let is_open = totals.open_effects() > 0;
        let is_behind = totals.held > 0 && totals.claimed == 0 && totals.unknown == 0;
        Ok(Look {
            is_left: (!is_open || is_behind) && stage.is_read().await?,
            is_open,
            is_still: clock::since(since) > STILL,
        })
    }

    /// Whoever has not come to a point by now never does.
    async fn is_over(&mut self, stage: &mut Stage) -> Result<bool, ProveError> {
        let look = self.look(stage).await?;
        Ok(look.is_left && look.is_still)
    }
}

/// Waits until nothing is left to do that anybody but a person will do.
async fn finish(stage: &mut Stage) -> Result<bool, ProveError> {
    let mut quiet = Quiet::default();
    stage
        .until(FINISH_MAX, async |stage| {
            let look = quiet.look(stage).await?;
            Ok(look.is_left && (look.is_still || !look.is_open))
        })
        .await
}
