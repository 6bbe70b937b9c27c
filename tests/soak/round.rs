//! One round: a fresh topic and database, load with faults, then quiet, then the invariants.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use oncely::crash::{Action, Order};
use oncely_rig::disk::SmallDisk;
use oncely_rig::kafka::Kafka;
use oncely_rig::postgres::Cluster;
use oncely_rig::provider::{Fault as Answer, FaultRates};
use oncely_rig::proxy::{Direction, Mode, Proxy};
use oncely_tests::dice::Dice;
use oncely_tests::ledger::{Ending, Fate};
use oncely_tests::wiring::{
    EffectLines, announce, charge, letter, note, receipt, settlement, usage,
};
use oncely_tests::{Event, Wiring, World};

use crate::plan::{FAULTS_MIN, Fault, Network, Plan, Planned};
use crate::took::{Begun, took};

/// Invoices of a round.
const INVOICES: usize = 48;
/// Invoices that are written at once, and the shortest pause after them.
const CHUNK: usize = 2;
const CHUNK_EVERY_MS: u64 = 180;
const NO_DISK: &str = "a disk that can be filled";
/// With faults stopped, nothing may stay unfinished for longer.
const QUIET_MAX: Duration = Duration::from_secs(60);
const LEASE_MS: u64 = 900;
const SESSION_MS: u64 = 2_500;

/// What a round came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Played {
    /// Faults that took effect.
    pub(crate) faults: u64,
    /// Processes that SIGKILL ended, workers and brokers.
    pub(crate) kills: u64,
    /// Workers that came to their crash point.
    pub(crate) crashes: u64,
    pub(crate) effects: u64,
    pub(crate) held: i64,
    /// What it took to settle everything after the last fault.
    pub(crate) quiet: Duration,
}

struct Round {
    world: World,
    plan: Plan,
    dice: Dice,
    next: usize,
    /// Crashes of the plan that no worker is armed for yet, by the number of the fault.
    unarmed: VecDeque<(usize, Order)>,
    /// Workers that are armed and wait for their permit, with their crash, by the number of the fault.
    armed: BTreeMap<usize, (usize, u32)>,
    /// Faults that took effect so far.
    faults: u64,
    kills: u64,
    crashes: u64,
}

/// Plays a round on these servers, and gives them back.
///
/// # Panics
/// When an invariant is broken.
pub(crate) async fn play(
    plan: Plan,
    kafka: Box<Kafka>,
    cluster: Box<Cluster>,
) -> (Played, Box<Kafka>, Box<Cluster>) {
    let mut round = Round::start(plan, kafka, cluster).await;
    round.trouble().await;
    let begun = Instant::now();
    round.world.settled_within(QUIET_MAX).await;
    let quiet = begun.elapsed();
    let Round { mut world, plan, faults, kills, crashes, .. } = round;
    let held = world.effects_in("held").await;
    world.check_invariants().await;
    if plan.publishes {
        let versions = (1..=INVOICES).map(|number| (World::invoice(number), vec![5]));
        world.check_announced(&world.out(), &versions.collect()).await;
        world.kafka().delete_topic(&world.out()).await.unwrap();
    }
    let effects = world.provider.counts().applied;
    let played = Played { faults, kills, crashes, effects, held, quiet };
    let (kafka, cluster) = world.give_back().await;
    (played, kafka, cluster)
}

/// With room for as many attempts as the faults of a round can cost.
fn patient(mut effect: EffectLines) -> EffectLines {
    effect.replace("attempts: 20", "attempts: 100");
    effect
}

impl Round {
    async fn start(plan: Plan, kafka: Box<Kafka>, cluster: Box<Cluster>) -> Self {
        let after = receipt().with("after: [charge]");
        let mut effects = vec![charge(), after, settlement(), note()];
        if plan.letters {
            effects.push(letter());
        }
        let effects = effects.into_iter().map(patient).chain([usage()]);
        let effects = effects.chain(plan.publishes.then(announce));
        let mut wiring = Wiring::invoices(&format!("round-{}", plan.seed)).effects(effects);
        wiring.protocol = plan.protocol;
        wiring.offset_wait = plan.offset_wait;
        if plan.waits {
            // Longer than a round: whoever is forgotten is found out.
            wiring.on_gap = "{ wait: 10m, first: 1 }";
        }
        let story = World::plan(wiring).partitions(plan.partitions).lease_ms(LEASE_MS);
        let story = if plan.pooled { story.pooled() } else { story };
        let world = story.session_ms(SESSION_MS).start_on(kafka, cluster).await;
        world.provider.set_latency(Duration::from_millis(plan.latency_ms));
        if plan.publishes {
            world.make_out(plan.partitions).await;
        }
        let dice = Dice::new(plan.seed ^ 0x5eed);
        let crash = |(number, planned): (usize, &Planned)| match planned.fault {
            Fault::Crash(order) => Some((number, order)),
            _ => None,
        };
        let unarmed = plan.faults.iter().enumerate().filter_map(crash).collect();
        let armed = BTreeMap::new();
        let (next, faults, kills, crashes) = (1, 0, 0, 0);
        let mut round = Self { world, plan, dice, next, unarmed, armed, faults, kills, crashes };
        for _ in 0..round.plan.workers {
            round.spawn();
        }
        round
    }

    /// Starts a worker, armed for the next crash of the plan: at its time it is at work already.
    fn spawn(&mut self) {
        match self.unarmed.pop_front() {
            Some((fault, order)) => {
                let crash = self.world.next_crash();
                let number = self.world.spawn_armed(order);
                self.armed.insert(fault, (number, crash));
            }
            None => {
                self.world.spawn(&[]);
            }
        }
    }

    /// Permits a crash to the worker that is armed for it, or to a new one.
    fn permit_crash(&mut self, fault: usize, order: Order) -> (usize, u32) {
        self.unarmed.retain(|(of, _)| *of != fault);
        let armed = self.armed.remove(&fault);
        let at_work = armed.filter(|(number, _)| self.world.workers[*number].goes_on());
        let (number, crash) = at_work.unwrap_or_else(|| {
            let crash = self.world.next_crash();
            (self.world.spawn_armed(order), crash)
        });
        self.world.turn_to_crash(crash);
        self.world.permit_crash();
        (number, crash)
    }

    /// Load, with every fault at its time; at the end nothing is wrong any more and all is written.
    async fn trouble(&mut self) {
        for number in 0..self.plan.workers {
            self.world.wait_ready(number).await;
        }
        let mut begun = Instant::now();
        let ms = Duration::from_millis;
        let planned = self.plan.faults.clone();
        let mut moments: Vec<(u64, usize, bool)> = Vec::new();
        for (number, Planned { at_ms, lasts_ms, .. }) in planned.iter().enumerate() {
            moments.extend([(*at_ms, number, true), (at_ms + lasts_ms, number, false)]);
        }
        moments.sort_unstable();
        // Written for as long as faults go on.
        let last_ms = moments.last().map_or(0, |(at_ms, ..)| *at_ms);
        let every = ms((last_ms * CHUNK as u64 / INVOICES as u64).max(CHUNK_EVERY_MS));
        let mut under_way: Vec<Option<Begun>> = vec![None; planned.len()];
        for (at_ms, number, begins) in moments {
            while begun.elapsed() < ms(at_ms) {
                self.load(CHUNK).await;
                let left = ms(at_ms).saturating_sub(begun.elapsed());
                tokio::time::sleep(every.min(left)).await;
            }
            let (fault, now) = (&planned[number].fault, Instant::now());
            if begins {
                let mut seen = Begun::now(&self.world);
                let lasts = ms(planned[number].lasts_ms);
                seen.victim = self.begin(number, fault, lasts).await;
                under_way[number] = Some(seen);
            } else if let Some(seen) = under_way[number] {
                self.end(fault, seen).await;
            }
            // What waits for a server takes nothing from the faults behind it.
            begun += now.elapsed();
        }
        // A COMMIT that was to be lost and did not come, a call that nobody made: others make up for them.
        while self.faults < FAULTS_MIN {
            self.load(CHUNK).await;
            tokio::time::sleep(every).await;
            self.kill().await;
            self.faults += 1;
            self.top_up();
        }
        self.load(INVOICES).await;
        self.heal().await;
    }

    /// Gives the worker that it is about, if there is one.
    async fn begin(
        &mut self,
        number: usize,
        fault: &Fault,
        lasts: Duration,
    ) -> Option<(usize, u32)> {
        match fault {
            Fault::Crash(order) => return Some(self.permit_crash(number, *order)),
            Fault::Kill => self.kill().await,
            Fault::Freeze => {
                let victim = self.victim();
                self.world.workers[victim].freeze();
                return Some((victim, 0));
            }
            Fault::Join => {
                self.world.spawn(&[]);
            }
            Fault::Leave => {
                let victim = self.victim();
                self.world.workers[victim].sigterm();
            }
            Fault::Broker => self.broker(lasts).await,
            Fault::Postgres => self.world.own_postgres().stop_immediate().await.unwrap(),
            Fault::Database(network) => break_network(&self.world.database_proxy, *network),
            Fault::Provider(network) => {
                break_network(&self.world.provider_proxy, *network);
                break_network(&self.world.smtp_proxy, *network);
            }
            Fault::FailOver => self.fail_over(lasts).await,
            Fault::Disk => self.disk().expect(NO_DISK).fill().unwrap(),
            Fault::LostCommit => self.world.database_proxy.set(Mode::lose_commit()),
            Fault::ProviderDown => self.world.provider.listener_off().await,
            Fault::ProviderBad => self.world.provider.set_rates(bad_answers(&self.plan)),
            Fault::ProviderSlow => self.world.provider.set_latency(Duration::from_millis(350)),
        }
        None
    }

    /// Ends a fault, and counts it if it took effect.
    async fn end(&mut self, fault: &Fault, begun: Begun) {
        let mut took = took(fault, &begun, &Begun::now(&self.world));
        match fault {
            Fault::Crash(order) => took = self.end_crash(*order, begun.victim).await,
            Fault::Freeze => {
                if let Some((victim, _)) = begun.victim {
                    self.world.workers[victim].thaw();
                }
            }
            Fault::Kill | Fault::Join | Fault::Leave | Fault::Broker | Fault::FailOver => {}
            Fault::Postgres => {
                // Without room it cannot redo what it has logged: who starts it makes some first.
                if let Some(disk) = self.disk() {
                    disk.free().unwrap();
                }
                self.world.own_postgres().start_again().await.unwrap();
            }
            Fault::Disk => self.disk().expect(NO_DISK).free().unwrap(),
            Fault::Database(_) | Fault::LostCommit => self.world.database_proxy.set(Mode::Pass),
            Fault::Provider(_) => {
                // What lies in the network for longer than a provider declares is nobody's promise.
                for proxy in [&self.world.provider_proxy, &self.world.smtp_proxy] {
                    proxy.cut_all();
                    proxy.set(Mode::Pass);
                }
            }
            Fault::ProviderDown => self.world.provider.listener_on().await.unwrap(),
            Fault::ProviderBad => self.world.provider.set_rates(FaultRates::default()),
            Fault::ProviderSlow => {
                self.world.provider.set_latency(Duration::from_millis(self.plan.latency_ms));
            }
        }
        self.faults += u64::from(took);
        self.top_up();
    }

    /// A worker that never came to its point is killed where it is. Tells whether this fault was the end of
    /// it, or froze it.
    async fn end_crash(&mut self, order: Order, victim: Option<(usize, u32)>) -> bool {
        let Some((victim, crash)) = victim else { return false };
        self.world.turn_to_crash(crash);
        self.world.forbid_crash();
        let crashed = self.world.has_crashed();
        self.crashes += u64::from(crashed);
        if crashed && order.action == Action::Stop {
            self.world.wait_stopped(victim).await;
            self.world.workers[victim].thaw();
            return true;
        }
        let worker = &mut self.world.workers[victim];
        let by_us = !crashed && worker.runs();
        if worker.runs() {
            worker.kill9().await;
        }
        self.kills += u64::from(crashed || by_us);
        crashed || by_us
    }

    async fn kill(&mut self) {
        let victim = self.victim();
        self.world.workers[victim].kill9().await;
        self.kills += 1;
    }

    /// Kills a broker; where there are three, the load goes on meanwhile.
    async fn broker(&mut self, lasts: Duration) {
        let brokers = self.world.kafka().broker_ids();
        let broker = *self.dice.pick(&brokers);
        self.world.own_kafka().kill(broker).await.unwrap();
        self.kills += 1;
        if brokers.len() > 1 {
            self.load(CHUNK * 2).await;
        }
        tokio::time::sleep(lasts).await;
        // A busy machine takes its time for a broker; what else is wrong does not go on for so long.
        self.calm().await;
        self.world.own_kafka().start_again(broker).await.unwrap();
    }

    /// Kills PostgreSQL, and lets a standby take over that has not received what was committed last.
    async fn fail_over(&mut self, lasts: Duration) {
        let standby = self.world.standby().await;
        standby.falls_behind();
        self.load(CHUNK * 2).await;
        tokio::time::sleep(lasts).await;
        self.world.fail_over(standby).await;
        self.kills += 1;
    }

    /// Ends what goes on at networks and at the provider.
    async fn calm(&mut self) {
        self.world.provider.listener_on().await.unwrap();
        self.world.provider.set_rates(FaultRates::default());
        for proxy in [&self.world.provider_proxy, &self.world.smtp_proxy] {
            proxy.cut_all();
            proxy.set(Mode::Pass);
        }
        self.world.database_proxy.set(Mode::Pass);
    }

    async fn heal(&mut self) {
        self.world.provider.heal();
        self.world.provider.listener_on().await.unwrap();
        if let Some(disk) = self.disk() {
            disk.free().unwrap();
        }
        self.world.own_postgres().start_again().await.unwrap();
        for proxy in
            [&self.world.database_proxy, &self.world.provider_proxy, &self.world.smtp_proxy]
        {
            proxy.set(Mode::Pass);
        }
        self.world.provider.set_latency(Duration::from_millis(self.plan.latency_ms));
        self.top_up();
    }

    fn disk(&self) -> Option<&SmallDisk> {
        self.world.postgres().disk()
    }

    /// One that runs. Where it would be the last of those, others begin.
    fn victim(&mut self) -> usize {
        let mut at_work = self.running();
        for _ in at_work.len()..2 {
            self.spawn();
        }
        if at_work.is_empty() {
            at_work = self.running();
        }
        *self.dice.pick(&at_work)
    }

    fn running(&mut self) -> Vec<usize> {
        let workers = self.world.workers.iter_mut().enumerate();
        workers.filter_map(|(number, worker)| worker.goes_on().then_some(number)).collect()
    }

    /// As many workers as the round has.
    fn top_up(&mut self) {
        for _ in self.running().len()..self.plan.workers {
            self.spawn();
        }
    }

    /// Writes up to `count` invoices more: 30 of 100 events twice, 10 of 100 invoices with an older event
    /// behind the newer one; or all of them with their first event behind, in whatever partition, for which the
    /// second one waits.
    async fn load(&mut self, count: usize) {
        let last = (self.next + count - 1).min(INVOICES);
        let partitions = u64::from(self.plan.partitions);
        while self.next <= last {
            let number = self.next;
            self.next += 1;
            let name = World::invoice(number);
            let ending = |effect: &str| match effect {
                "note" | "letter" => Ending::DoneOrHeld,
                _ => Ending::Done,
            };
            let version = if self.plan.waits { 2 } else { 5 };
            let (paid, older) = (Event::paid(&name, version), Event::past_due(&name, 2));
            for effect in &self.world.wiring.effects {
                let mark = if effect.id == "usage" { &paid.id } else { &name };
                self.world.owe(effect.id, mark, ending(effect.id));
            }
            let partition = i32::try_from(number as u64 % partitions).unwrap();
            self.world.event(&paid, partition, Fate::Applied).await;
            if self.dice.roll(10) < 3 {
                let elsewhere = i32::try_from(self.dice.roll(partitions)).unwrap();
                self.world.event(&paid, elsewhere, Fate::Applied).await;
            }
            if self.plan.waits {
                let first = Event::past_due(&name, 1);
                let elsewhere = i32::try_from(self.dice.roll(partitions)).unwrap();
                self.world.owe("usage", &first.id, Ending::Done);
                self.world.event(&first, elsewhere, Fate::Applied).await;
            } else if self.dice.one_in(10) {
                self.world.owe("usage", &older.id, Ending::Done);
                self.world.event(&older, partition, Fate::Stale).await;
            }
        }
    }
}

fn break_network(proxy: &Proxy, network: Network) {
    let cut = |direction, bytes| Mode::CutAfter { direction, bytes };
    match network {
        Network::Silent => proxy.set(Mode::StallBoth),
        Network::NoRequests => proxy.set(Mode::Stall(Direction::ToServer)),
        Network::NoAnswers => proxy.set(Mode::Stall(Direction::ToClient)),
        Network::CutRequests(bytes) => proxy.set(cut(Direction::ToServer, bytes)),
        Network::CutAnswers(bytes) => proxy.set(cut(Direction::ToClient, bytes)),
        Network::HalfOpen => proxy.forget_open(),
        Network::Reset => proxy.cut_all(),
        Network::Late(ms) => proxy.set(Mode::DelayMs(ms)),
    }
}

/// A fifth of all calls; after three of one key its next one is well.
fn bad_answers(plan: &Plan) -> FaultRates {
    let busy = Answer::StatusBefore { status: 429, retry_after_s: Some(1) };
    let mut rates = vec![
        (0.05, Answer::CloseAfter),
        (0.04, Answer::StatusAfter { status: 502 }),
        (0.03, Answer::status(503)),
        (0.03, busy),
        (0.02, Answer::ResetBefore),
        (0.02, Answer::HalfBody),
        (0.03, Answer::DelayMs(400)),
    ];
    if plan.letters {
        // A mail server's code is its word: one that takes a mail and refuses it lies.
        rates.retain(|(_, answer)| {
            !matches!(answer, Answer::StatusBefore { .. } | Answer::StatusAfter { .. })
        });
    }
    FaultRates { seed: plan.seed, rates, attempts_max: 3 }
}
