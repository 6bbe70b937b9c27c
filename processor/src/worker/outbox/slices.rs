//! Which slices are this relay's.

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::store::outbox::{self, SLICES};
use crate::store::{PgConnection, StoreError};

/// The slices of one relay.
#[derive(Debug, Default)]
pub(super) struct Slices {
    /// As the database has it.
    mine: BTreeSet<i16>,
}

impl Slices {
    pub(super) fn list(&self) -> Vec<i16> {
        self.mine.iter().copied().collect()
    }

    /// Takes what nobody has, up to this relay's share, and lets go of what is beyond it, except for
    /// slices with records in flight. Gives those that it let go.
    ///
    /// # Errors
    /// As every query; then what is known stays as it was.
    pub(super) async fn share(
        &mut self,
        connection: &mut PgConnection,
        connector: i32,
        worker: Uuid,
        busy: &BTreeSet<i16>,
    ) -> Result<BTreeSet<i16>, StoreError> {
        let relays = outbox::join(connection, connector, worker).await?;
        let mine = outbox::slices_of(connection, connector, worker).await?;
        self.mine = mine.into_iter().collect();
        let share = usize::from(SLICES).div_ceil(relays.max(1));
        if self.mine.len() < share {
            let want = share.saturating_sub(self.mine.len());
            self.mine.extend(outbox::take(connection, connector, worker, want).await?);
        }
        let beyond = self.mine.len().saturating_sub(share);
        let goes: BTreeSet<i16> =
            self.mine.iter().copied().filter(|slice| !busy.contains(slice)).take(beyond).collect();
        if !goes.is_empty() {
            // Forgotten first: whether or not the answer comes, nothing of them is sent any more.
            self.mine.retain(|slice| !goes.contains(slice));
            let list: Vec<i16> = goes.iter().copied().collect();
            outbox::release(connection, connector, worker, &list).await?;
        }
        Ok(goes)
    }

    /// Lets everything go, at the end.
    ///
    /// # Errors
    /// As every query.
    pub(super) async fn leave(
        &mut self,
        connection: &mut PgConnection,
        connector: i32,
        worker: Uuid,
    ) -> Result<(), StoreError> {
        let list = self.list();
        self.mine.clear();
        outbox::release(connection, connector, worker, &list).await?;
        outbox::leave(connection, connector, worker).await
    }

    pub(super) fn has(&self, slice: i16) -> bool {
        self.mine.contains(&slice)
    }

    /// Another worker's from now on: this one was declared dead.
    pub(super) fn lose(&mut self) {
        self.mine.clear();
    }
}
