//! One crash point, played: the samples, the crash, a process that takes over, the samples again.

use std::sync::Arc;
use std::time::Duration;

use oncely_core::connector::{Connector, EffectBody};
use oncely_rig::postgres::Cluster;
use oncely_rig::provider::{Fault, Rule};

use super::stage::Stage;
use super::stand_in::Class;
use super::verdict::{self, Found, Window};
use super::{Options, ProveError};
use crate::clock;
use crate::crash::{Action, Order, Point, Step};
use crate::store::admin::totals::Totals;

/// A point that a connector does not come to within this time, it never comes to.
const REACHED_MAX: Duration = Duration::from_secs(25);
/// What the provider takes where the crash has to fall into the middle of a call.
const SLOW: Duration = Duration::from_millis(250);
/// What is still open after so long stays open.
const FINISH_MAX: Duration = Duration::from_secs(40);
/// Nothing has changed for so long: what waits, waits behind something that is held.
const STILL: Duration = Duration::from_millis(2_000);

pub(super) async fn play(
    cluster: &Cluster,
    connector: &Arc<Connector>,
    options: &Options,
    point: Point,
) -> Result<Window, ProveError> {
    if !can_come_to(connector, point.step) {
        return Ok(Window::not_reached(point));
    }
    let name = point.to_string();
    let mut stage = Stage::start(cluster, connector, options, &name).await?;
    let order = Order { point, nth: 1, action: Action::Kill };
    stage.write(&options.samples).await?;
    begin(&mut stage, order).await?;
    let crashed = stage.until(REACHED_MAX, async |stage| Ok(stage.has_crashed())).await?;
    stage.kill_all().await?;
    if !crashed {
        return Ok(Window::not_reached(point));
    }
    stage.provider.heal();
    stage.spawn(None)?;
    // Kafka delivers everything once more, and nothing may follow from it.
    stage.write(&options.samples).await?;
    let finished = finish(&mut stage).await?;
    let log = stage.provider.read_log().map_err(super::stage::server("the provider's log"))?;
    let mut keys: Vec<_> = options.owed.iter().map(|(key, _)| *key).collect();
    keys.sort_unstable();
    let connection = stage.session().connection().await?;
    let rows = crate::store::admin::effects::of_keys(connection, &keys).await?;
    let lines = crate::store::batch::load_ledger(connection, &keys).await?;
    let found = Found { rows, lines: lines.into_keys().collect(), log, finished };
    let verdicts = verdict::of(connector, &options.owed, &found);
    stage.kill_all().await?;
    Ok(Window { point, reached: true, verdicts })
}

/// Steps that a connector without such an effect does not have.
#[allow(clippy::wildcard_enum_match_arm, reason = "most steps are in every connector's way")]
fn can_come_to(connector: &Connector, step: Step) -> bool {
    let mut calls = connector.effects.iter().filter_map(|rule| match &rule.body {
        EffectBody::Call(call) => Some(call),
        _ => None,
    });
    let mut rules = connector.effects.iter();
    match step {
        Step::LookUp => calls.any(|call| Class::of(call) == Class::Asked),
        Step::ClaimCommit
        | Step::Connect
        | Step::Request
        | Step::Outcome
        | Step::SettleCommit
        | Step::Death
        | Step::TakeOver => calls.next().is_some(),
        Step::Publish | Step::PublishCommit => {
            rules.any(|rule| matches!(rule.body, EffectBody::Publish(_)))
        }
        _ => true,
    }
}

/// Brings an armed worker to its point.
#[allow(clippy::wildcard_enum_match_arm, reason = "most steps are come to without any doing")]
async fn begin(stage: &mut Stage, order: Order) -> Result<(), ProveError> {
    let order_of = Some(order);
    match order.point.step {
        Step::Death | Step::TakeOver => {
            stage.provider.hold_answers();
            stage.spawn(None)?;
            let holds = async |stage: &mut Stage| Ok(stage.provider.counts().held > 0);
            stage.until(REACHED_MAX, holds).await?;
            stage.kill_all().await?;
            stage.provider.release();
            stage.spawn(order_of)?;
        }
        Step::ClaimCommit => {
            // Refused connections: certainly not applied, tried again when it is due.
            stage.provider.listener_off().await;
            stage.spawn(order_of)?;
            let refused = async |stage: &mut Stage| Ok(stage.totals().await?.waiting > 0);
            stage.until(REACHED_MAX, refused).await?;
            let listening = stage.provider.listener_on().await;
            listening.map_err(super::stage::server("the provider after its outage"))?;
        }
        Step::LookUp => {
            stage.provider.fail(Rule::times(2, Fault::CloseAfter).to("/lookup/"));
            stage.spawn(order_of)?;
        }
        Step::Request => {
            stage.provider.set_latency(SLOW);
            stage.spawn(order_of)?;
        }
        Step::GiveBack | Step::End => {
            stage.provider.set_latency(SLOW);
            stage.spawn(order_of)?;
            stage.until(REACHED_MAX, begun).await?;
            stage.ask_to_end()?;
        }
        Step::Revoke => {
            stage.provider.set_latency(SLOW);
            stage.spawn(order_of)?;
            stage.until(REACHED_MAX, begun).await?;
            stage.spawn(None)?;
        }
        _ => stage.spawn(order_of)?,
    }
    Ok(())
}

/// Whether the first event has an outcome.
async fn begun(stage: &mut Stage) -> Result<bool, ProveError> {
    let totals = stage.totals().await?;
    Ok(stage.has_crashed() || totals.applied > 0 || stage.is_read().await?)
}

/// Waits until nothing is left to do that anybody but a person will do.
async fn finish(stage: &mut Stage) -> Result<bool, ProveError> {
    let (mut last, mut since) = (None::<Totals>, clock::now());
    stage
        .until(FINISH_MAX, async |stage| {
            let totals = stage.totals().await?;
            if last != Some(totals) {
                (last, since) = (Some(totals), clock::now());
            }
            let behind = totals.held > 0 && totals.claimed == 0 && totals.unknown == 0;
            let open = totals.open_effects() > 0 && !(behind && clock::since(since) > STILL);
            Ok(!open && stage.is_read().await?)
        })
        .await
}
