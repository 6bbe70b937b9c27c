//! Writes positions to Postgres, and only then lets them be committed to Kafka.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::lease::Lease;
use super::{Message, Shared};
use crate::clock;
use crate::crash::{self, Step};
use crate::kafka::AssignmentId;
use crate::store::error::NextStep;
use crate::store::progress::{self, Raise};
use crate::store::{Session, StoreError};
use crate::task::Stopped;
use crate::telemetry::Stage;

/// Wait while the database is away.
const WAIT: Duration = Duration::from_millis(100);

/// Positions to write, with the assignments that they are for.
pub(super) type Positions = Vec<(AssignmentId, Raise)>;

/// What is to be written.
#[derive(Debug, Default)]
pub(super) struct Keep {
    pub(super) positions: Positions,
    /// Partitions of which nothing is in doubt any more.
    pub(super) decided: Vec<Raise>,
    /// Below which offset everything is decided, finished or not.
    pub(super) ahead: Vec<(Raise, i64)>,
}

impl Keep {
    pub(super) const fn is_empty(&self) -> bool {
        self.positions.is_empty() && self.decided.is_empty() && self.ahead.is_empty()
    }

    /// The highest position of any partition; below all where only other things are kept.
    fn end(&self) -> i64 {
        self.positions.iter().map(|(_, raise)| raise.position).max().unwrap_or(i64::MIN)
    }
}

/// One keeper.
pub(super) struct Keeper {
    pub(super) shared: Arc<Shared>,
    pub(super) session: Session,
    pub(super) lease: Lease,
    pub(super) kept: mpsc::UnboundedReceiver<Keep>,
    pub(super) pipeline: mpsc::UnboundedSender<Message>,
}

impl Keeper {
    /// Writes until the pipeline is gone. The pipeline asks for one write at a time.
    ///
    /// # Errors
    /// When a person must act: the schema is wrong.
    pub(super) async fn run(mut self) -> Result<(), Stopped> {
        while let Some(keep) = self.kept.recv().await {
            let begun = clock::now();
            crash::before_below(Step::Position, || keep.end());
            self.write(&keep).await?;
            crash::after_below(Step::Position, || keep.end());
            self.shared.metrics.stage(Stage::Progress, clock::since(begun));
            drop(self.pipeline.send(Message::Kept(keep.positions)));
        }
        Ok(())
    }

    async fn write(&mut self, keep: &Keep) -> Result<(), Stopped> {
        let raises: Vec<Raise> = keep.positions.iter().map(|(_, raise)| raise.clone()).collect();
        let group = self.shared.connector.source.group.to_string();
        let cluster_id = self.shared.cluster_id.clone();
        loop {
            let written = self.session.patience().bounded(async {
                let connection = self.session.connection().await?;
                if !raises.is_empty() {
                    let raises = (self.lease.worker(), raises.as_slice());
                    progress::raise(connection, &group, &cluster_id, raises).await?;
                }
                if !keep.decided.is_empty() {
                    progress::decided(connection, &group, &cluster_id, &keep.decided).await?;
                }
                if !keep.ahead.is_empty() {
                    progress::ahead(connection, &group, &cluster_id, &keep.ahead).await?;
                }
                Ok(())
            });
            let written: Result<(), StoreError> = written.await;
            let Err(error) = written else {
                self.shared.database.back(self.session.task());
                return Ok(());
            };
            self.session.failed(&error).await;
            match error.next_step() {
                NextStep::Again => {}
                NextStep::Wait => {
                    self.shared.database.away(self.session.task(), &super::chain(&error));
                    tokio::time::sleep(super::jittered(WAIT)).await;
                }
                NextStep::Bisect | NextStep::Halt => return Err(Stopped(super::chain(&error))),
            }
        }
    }
}
