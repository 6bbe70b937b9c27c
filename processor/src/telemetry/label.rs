//! The closed sets that labels are taken from.

macro_rules! labels {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident => $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}

labels! {
    /// Where a batch spends its time.
    Stage {
        /// Bytes to values, keys and fingerprints.
        Decode => "decode",
        /// Rows loaded and locked.
        Load => "load",
        /// The pure decision of the whole batch.
        Decide => "decide",
        /// Rows written, and the transaction's commit.
        Write => "write",
        /// Outcomes of effects written.
        Settle => "settle",
        /// Position written and offset committed.
        Progress => "progress",
    }
}

labels! {
    /// Which memory answered.
    DedupeLayer {
        /// The inbox, by business id.
        Event => "event",
        /// The effect ledger, by effect key.
        Effect => "effect",
    }
}

labels! {
    /// What it answered.
    DedupeDecision {
        First => "first",
        Duplicate => "duplicate",
        Conflict => "conflict",
    }
}

labels! {
    /// How an effect became final.
    Finished {
        Done => "done",
        /// Found by a look-up.
        Reconciled => "reconciled",
        /// Declared at most once and counted as done without an answer.
        Assumed => "assumed",
        Rejected => "rejected",
        Skipped => "skipped",
    }
}

labels! {
    /// What came of sending a record of the outbox.
    Published {
        Sent => "sent",
        /// Refused: it waits for a person.
        Held => "held",
        /// Nobody has it, or nobody knows: it is sent again.
        Failed => "failed",
    }
}

labels! {
    /// Why a batch transaction was done again.
    RedoCause {
        /// Another writer inserted one of the keys first.
        Race => "race",
        /// One row's data was refused: the batch is split until it is alone.
        Data => "data",
        /// Deadlock or serialisation failure.
        Contention => "contention",
        /// The database was away, or the answer to a COMMIT was lost.
        Unavailable => "unavailable",
    }
}

labels! {
    /// What a rebalance did.
    RebalanceKind {
        Assigned => "assigned",
        Revoked => "revoked",
        /// Revoked without a chance to settle first.
        Lost => "lost",
        Error => "error",
    }
}

labels! {
    /// How committing offsets went.
    CommitResult {
        Ok => "ok",
        /// Refused while a rebalance was under way; the next one passes.
        Rebalancing => "rebalancing",
        Error => "error",
    }
}
