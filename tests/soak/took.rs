//! Which faults took effect, as far as that is seen from outside.
//!
//! Reads: what went through the proxies while a fault lasted. Gives: whether it met anything. Breaks nothing.

use oncely_rig::proxy::{Proxy, Traffic};
use oncely_tests::World;

use crate::plan::{Fault, Network};

/// What there was when a fault began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    /// The worker that it is about, and its crash.
    pub(crate) victim: Option<(usize, u32)>,
    database: Traffic,
    /// Of its HTTP and of its mails.
    provider: [Traffic; 2],
}

impl Begun {
    pub(crate) fn now(world: &World) -> Self {
        let provider = [&world.provider_proxy, &world.smtp_proxy].map(Proxy::traffic);
        Self { victim: None, database: world.database_proxy.traffic(), provider }
    }
}

/// Whether a fault met something; crashes are known from their permits.
pub(crate) fn took(fault: &Fault, begun: &Begun, now: &Begun) -> bool {
    let called = || {
        let mut both = begun.provider.iter().zip(&now.provider);
        both.any(|(then, now)| {
            (then.connections, then.to_server) != (now.connections, now.to_server)
        })
    };
    match fault {
        Fault::Crash(_) => false,
        Fault::Kill
        | Fault::Freeze
        | Fault::Join
        | Fault::Leave
        | Fault::Broker
        | Fault::Postgres
        | Fault::FailOver
        | Fault::Disk => true,
        Fault::Database(network) => met(*network, &begun.database, &now.database),
        Fault::Provider(network) => {
            let mut both = begun.provider.iter().zip(&now.provider);
            both.any(|(then, now)| met(*network, then, now))
        }
        Fault::LostCommit => now.database.sighted > begun.database.sighted,
        Fault::ProviderDown | Fault::ProviderBad | Fault::ProviderSlow => called(),
    }
}

/// Whether what a network did met a connection.
const fn met(network: Network, then: &Traffic, now: &Traffic) -> bool {
    match network {
        Network::CutRequests(_) | Network::CutAnswers(_) => now.cut > then.cut,
        Network::HalfOpen | Network::Reset => then.open > 0,
        Network::Silent | Network::NoRequests | Network::NoAnswers | Network::Late(_) => {
            then.open > 0 || now.connections > then.connections
        }
    }
}
