//! What happens, as it happens, for whoever shows it.

use std::time::Duration;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Happening {
    /// The servers are up.
    Ready {
        database: String,
        brokers: String,
        provider: String,
        seed: u64,
    },
    /// The first workers were started.
    Started {
        workers: Vec<String>,
    },
    /// A worker was killed with SIGKILL while its effects were in flight.
    Killed {
        worker: String,
        in_flight: u64,
        moment: Moment,
        instead: String,
    },
    /// Others took over what a killed worker had in hand.
    TakenOver {
        worker: String,
        after: Duration,
        effects: u64,
    },
    /// The provider refuses connections, and cut those that were open.
    ProviderDown {
        for_about: Duration,
    },
    ProviderUp,
    /// Everything is published.
    Published {
        records: u64,
    },
    /// All effects are done, and the positions behind the last records are on record.
    Finished,
    /// Not everything was finished within the bound.
    GivenUp {
        after: Duration,
    },
}

/// Where effects were when their worker was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The provider had acted and not answered.
    BeforeAnswer,
    /// The provider had read the request and not acted.
    BeforeEffect,
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub published: u64,
    pub records: u64,
    /// Effects at the provider so far.
    pub effects: u64,
    pub owed: u64,
    /// Calls that the provider has read.
    pub calls: u64,
    pub kills: u64,
    /// Effects whose answer never reached a worker, so far.
    pub answers_lost: u64,
}

/// Shows the demo to somebody.
pub trait Show {
    fn happened(&self, happening: &Happening);
    fn progress(&self, tally: &Tally);
}
