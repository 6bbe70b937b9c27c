//! What a round does, and when. Follows from its seed alone.
//!
//! Reads: a seed. Gives: the shape of the round and a list of moments, each with a fault that begins or
//! ends. Never: looks at the world, so a round is told before it is played.

use std::collections::BTreeSet;
use std::fmt;

use oncely::crash::{self, Action, Order, Side, Step};
use oncely_tests::dice::Dice;

/// Faults of a round, at least.
pub(crate) const FAULTS_MIN: u64 = 5;

/// The rounds that all tests run. Together they have every kind of fault and every shape of a round; a test
/// of `tests/plans.rs` holds them to that, and finds others when plans have changed.
pub(crate) const SEEDS: [u64; 3] = [1_720, 2_954, 75_471];

/// Steps that every worker takes all the time.
const OFTEN: [Step; 8] = [
    Step::Records,
    Step::BatchCommit,
    Step::Connect,
    Step::Request,
    Step::Outcome,
    Step::SettleCommit,
    Step::Position,
    Step::OffsetCommit,
];

/// One round.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) workers: usize,
    pub(crate) partitions: u32,
    pub(crate) protocol: &'static str,
    pub(crate) offset_wait: &'static str,
    /// Whether mails by SMTP are owed as well.
    pub(crate) letters: bool,
    /// Whether records are published as well.
    pub(crate) publishes: bool,
    /// Whether workers reach PostgreSQL by a pooler.
    pub(crate) pooled: bool,
    /// Whether an invoice's second version waits for its first one, which comes behind it.
    pub(crate) waits: bool,
    pub(crate) latency_ms: u64,
    pub(crate) faults: Vec<Planned>,
}

/// A fault with its time, in milliseconds since the load began.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) fault: Fault,
    pub(crate) at_ms: u64,
    pub(crate) lasts_ms: u64,
}

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A worker ends or freezes itself at a crash point.
    Crash(Order),
    /// SIGKILL from outside.
    Kill,
    /// SIGSTOP for the time of the fault.
    Freeze,
    /// A member more.
    Join,
    /// A member less, as a scheduler does it.
    Leave,
    /// A broker is killed, and comes back.
    Broker,
    /// PostgreSQL stops at once, and comes back.
    Postgres,
    /// A standby takes over that has received nothing for the time of the fault.
    FailOver,
    /// The disk of its tables is full for a while.
    Disk,
    /// The way to PostgreSQL.
    Database(Network),
    /// The way to the provider.
    Provider(Network),
    /// The next COMMIT is carried out, and its answer is lost.
    LostCommit,
    /// Nobody listens at the provider.
    ProviderDown,
    /// A share of calls is answered badly, late or not at all.
    ProviderBad,
    /// Each call is answered, later.
    ProviderSlow,
}

/// What a network does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// Nothing passes in either direction.
    Silent,
    /// Nothing reaches the server.
    NoRequests,
    /// Nothing reaches the client.
    NoAnswers,
    /// Each connection is cut after so many bytes to the server.
    CutRequests(u64),
    /// Each connection is cut after so many bytes to the client.
    CutAnswers(u64),
    /// Open connections are forgotten by the way between, and neither side is told.
    HalfOpen,
    /// Open connections are reset.
    Reset,
    /// Everything comes later.
    Late(u64),
}

impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workers, partitions, protocol, offset_wait, letters, .. } = self;
        let Self { publishes, pooled, waits, latency_ms, .. } = self;
        write!(
            out,
            "{workers} workers, {partitions} partitions, {protocol}, offset_wait {offset_wait}, \
             letters {letters}, publishes {publishes}, pooled {pooled}, waits {waits}, latency {latency_ms} ms"
        )?;
        for Planned { fault, at_ms, lasts_ms } in &self.faults {
            write!(out, "; {at_ms} ms +{lasts_ms}: {fault}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crash(order) => write!(out, "crash {order}"),
            other => write!(out, "{other:?}"),
        }
    }
}

impl Fault {
    /// Its name without its numbers.
    const fn kind(&self) -> &'static str {
        match self {
            Self::Crash(Order { action: Action::Kill, .. }) => "crash by SIGKILL",
            Self::Crash(Order { action: Action::Stop, .. }) => "crash by SIGSTOP",
            Self::Kill => "kill",
            Self::Freeze => "freeze",
            Self::Join => "join",
            Self::Leave => "leave",
            Self::Broker => "broker",
            Self::Postgres => "PostgreSQL",
            Self::FailOver => "failover",
            Self::Disk => "disk",
            Self::Database(_) => "network of the database",
            Self::Provider(_) => "network of the provider",
            Self::LostCommit => "lost COMMIT",
            Self::ProviderDown => "provider down",
            Self::ProviderBad => "provider bad",
            Self::ProviderSlow => "provider slow",
        }
    }
}

impl Plan {
    /// The kinds of its faults, and what is not the same in every round.
    pub(crate) fn kinds(&self) -> BTreeSet<&'static str> {
        let mut kinds: BTreeSet<_> =
            self.faults.iter().map(|planned| planned.fault.kind()).collect();
        let shapes = [
            ("letters", self.letters),
            ("publishes", self.publishes),
            ("pooled", self.pooled),
            ("waits", self.waits),
            ("three workers", self.workers == 3),
        ];
        kinds.extend(shapes.into_iter().filter_map(|(shape, has)| has.then_some(shape)));
        kinds.extend([self.protocol, self.offset_wait]);
        kinds
    }

    /// Whether PostgreSQL loses commits in this round.
    pub(crate) fn forgets(&self) -> bool {
        self.faults.iter().any(|planned| planned.fault == Fault::FailOver)
    }

    pub(crate) fn of(seed: u64) -> Self {
        // Seeds that stand beside each other must not give rounds that do.
        let mut dice = Dice::new(seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1));
        let mut plan = Self {
            seed,
            workers: 2 + usize::try_from(dice.roll(2)).unwrap(),
            partitions: 3 + u32::try_from(dice.roll(3)).unwrap(),
            protocol: if dice.one_in(4) { "consumer" } else { "classic" },
            offset_wait: *dice.pick::<&str>(&["60s", "60s", "0s", "2s"]),
            letters: dice.one_in(3),
            publishes: dice.one_in(3),
            pooled: dice.one_in(4),
            waits: false,
            latency_ms: 5 + dice.roll(35),
            faults: Vec::new(),
        };
        let mut at_ms = 200;
        let mut heavy = 0;
        for _ in 0..FAULTS_MIN + dice.roll(3) {
            let fault = loop {
                let fault = fault(&mut dice);
                // Servers take seconds to come back: one such fault in a round. The small disk has no standby.
                let is_heavy = matches!(fault, Fault::Broker | Fault::Postgres | Fault::FailOver);
                let rival = match fault {
                    Fault::Disk => Some(Fault::FailOver),
                    Fault::FailOver => Some(Fault::Disk),
                    _ => None,
                };
                let rivals =
                    plan.faults.iter().any(|planned| Some(&planned.fault) == rival.as_ref());
                if (!is_heavy || heavy == 0) && !rivals {
                    heavy += usize::from(is_heavy);
                    break fault;
                }
            };
            let mut lasts_ms = 300 + dice.roll(1_500);
            // Some points are come to now and then only.
            if matches!(fault, Fault::Crash(_)) {
                lasts_ms += 1_000;
            }
            plan.faults.push(Planned { fault, at_ms, lasts_ms });
            at_ms += 400 + dice.roll(800);
        }
        // Rolled last, so that older seeds keep their faults.
        plan.waits = !plan.publishes && dice.one_in(3);
        plan
    }
}

fn fault(dice: &mut Dice) -> Fault {
    match dice.roll(22) {
        0..=4 => Fault::Crash(order(dice)),
        5 | 6 => Fault::Kill,
        7 | 8 => Fault::Freeze,
        9 => Fault::Join,
        10 => Fault::Leave,
        11 => Fault::Broker,
        12 => Fault::Postgres,
        13 => Fault::LostCommit,
        14 | 15 => Fault::Database(network(dice)),
        16 => Fault::Provider(network(dice)),
        17 => Fault::ProviderDown,
        18 => Fault::ProviderBad,
        19 => Fault::ProviderSlow,
        20 => Fault::FailOver,
        _ => Fault::Disk,
    }
}

fn order(dice: &mut Dice) -> Order {
    // Three of four where every worker comes along all the time.
    let often = !dice.one_in(4);
    let points = crash::points().filter(|point| !often || OFTEN.contains(&point.step));
    let points: Vec<_> = points.collect();
    let point = *dice.pick(&points);
    let nth = 1 + u32::try_from(dice.roll(3)).unwrap();
    // What is written into a request by a worker that froze after its last look at the lease may come after
    // "not found" was believed: a provider that can only be asked is not promised then.
    let last = (point.step, point.side) == (Step::Request, Side::Before);
    let action = if !last && dice.one_in(4) { Action::Stop } else { Action::Kill };
    Order { point, nth, action }
}

fn network(dice: &mut Dice) -> Network {
    match dice.roll(8) {
        0 => Network::Silent,
        1 => Network::NoRequests,
        2 => Network::NoAnswers,
        3 => Network::CutRequests(dice.roll(400)),
        4 => Network::CutAnswers(dice.roll(400)),
        5 => Network::HalfOpen,
        6 => Network::Reset,
        _ => Network::Late(20 + dice.roll(100)),
    }
}
