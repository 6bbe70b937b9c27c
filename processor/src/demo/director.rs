//! The course of the demo: publish, break, kill, wait for the end, count.
//!
//! Kills happen at two bad moments: when the provider has acted and its answer is under way, and when
//! the provider has read a request and not acted yet. To meet them for sure, the provider holds its
//! answers (or its effects) back once the database shows that a worker has effects in hand; the
//! database is asked again, and the worker dies.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use oncely_rig::provider::{Fault, Hold, Log, Rule};

use super::error::DemoError;
use super::plan::Plan;
use super::show::{Happening, Moment, Show, Tally};
use super::verdict::{Deeds, MAILS, Report, Stored, answers_lost, verdict};
use super::workers::Workers;
use super::world::{World, server};
use crate::clock::{self, Moment as Instant};
use crate::kafka::{NewRecord, Producer};
use crate::store::admin::effects::{self, Filter};
use crate::store::admin::parked::{self, Place};
use crate::store::admin::progress;
use crate::store::admin::totals::{self, Totals};
use crate::store::admin::workers::{self, WorkerRow};
use crate::store::{Session, StoreError};
use oncely_core::effect::status::Status;

/// Workers at the start.
const WORKERS: usize = 2;
/// Records between two looks at what happens.
const LOOK_RECORDS: usize = 10;
/// Pause with each look while publishing, so that faults and kills meet a stream and no heap.
const PACE: Duration = Duration::from_millis(40);
/// Pause between two looks when nothing is published.
const LOOK_EVERY: Duration = Duration::from_millis(60);
/// Pause between two questions to the database.
const ASK_EVERY: Duration = Duration::from_millis(400);
/// Pause between two readings of the provider's log.
const READ_EVERY: Duration = Duration::from_secs(1);
/// Effects that a worker should have in hand when it is killed.
const IN_FLIGHT_WANTED: u64 = 4;
/// Wait for that many, while publishing goes on; then one is enough.
const IN_FLIGHT_WAIT: Duration = Duration::from_secs(4);
/// Longest wait for any effect in flight.
const IN_FLIGHT_WAIT_MAX: Duration = Duration::from_secs(25);
/// What is on the way to the provider when a claim is seen has arrived after this time.
const ON_THE_WAY: Duration = Duration::from_millis(60);
/// How long the provider refuses connections.
const OUTAGE: Duration = Duration::from_millis(700);
/// Longest wait for the end after the last record.
const FINISH_MAX: Duration = Duration::from_secs(40);
/// Rows asked for at most; more than there can be.
const ROWS_MAX: i64 = 10_000;

/// What the demo does to its world, by the share of records published, in per cent.
const COURSE: [(usize, Deed); 6] = [
    (15, Deed::MailErrors),
    (30, Deed::Kill(Moment::BeforeAnswer)),
    (50, Deed::MailErrors),
    (55, Deed::Outage),
    (75, Deed::Kill(Moment::BeforeEffect)),
    (85, Deed::MailErrors),
];

#[derive(Clone, Copy, Debug)]
enum Deed {
    Kill(Moment),
    Outage,
    /// The mail provider answers 500 for a while.
    MailErrors,
}

/// A killed worker whose effects are not all taken over yet.
struct Orphaned {
    worker: String,
    in_flight: u64,
    since: Instant,
}

/// Runs one demo.
pub(super) struct Director<'a> {
    plan: Plan,
    world: &'a mut World,
    workers: &'a mut Workers,
    show: &'a dyn Show,
    producer: Producer,
    session: Session,
    /// Next offset of each partition that was published to.
    ends: BTreeMap<i32, i64>,
    published: usize,
    deeds: Deeds,
    orphaned: Vec<Orphaned>,
    /// Kills to come, each since when.
    armed: VecDeque<(Moment, Instant)>,
    asked: Instant,
    read: Instant,
    answers_lost: u64,
}

impl<'a> Director<'a> {
    pub(super) fn new(
        seed: u64,
        world: &'a mut World,
        workers: &'a mut Workers,
        show: &'a dyn Show,
    ) -> Result<Self, DemoError> {
        let producer =
            Producer::new(&world.client).map_err(|source| DemoError::Publish { source })?;
        show.happened(&Happening::Ready {
            database: world.store_shown(),
            brokers: world.client.brokers().to_owned(),
            provider: world.provider.http_url(),
            seed,
        });
        let session = world.session();
        Ok(Self {
            plan: Plan::new(seed),
            world,
            workers,
            show,
            producer,
            session,
            ends: BTreeMap::new(),
            published: 0,
            deeds: Deeds::default(),
            orphaned: Vec::new(),
            armed: VecDeque::new(),
            asked: clock::now(),
            read: clock::now(),
            answers_lost: 0,
        })
    }

    /// From the first worker to the verdict.
    pub(super) async fn run(&mut self, began: Instant) -> Result<Report, DemoError> {
        for _ in 0..WORKERS {
            self.workers.start()?;
        }
        self.show.happened(&Happening::Started { workers: self.workers.names() });
        self.publish().await?;
        self.finish().await?;
        let seconds = clock::since(began).as_secs_f64();
        self.world.provider.heal();
        let stored = self.stored().await?;
        let log = self.log()?;
        Ok(verdict(&self.plan, &log, &stored, &self.deeds, seconds))
    }

    // ----------------------------------------------------------------------------------------- //

    async fn publish(&mut self) -> Result<(), DemoError> {
        let publications = std::mem::take(&mut self.plan.publications);
        let mut course = COURSE.into_iter().peekable();
        for publication in &publications {
            let record = NewRecord {
                topic: &self.world.topic,
                partition: Some(publication.partition),
                key: Some(publication.key.as_bytes()),
                value: Some(publication.value.as_bytes()),
                ..NewRecord::default()
            };
            let failed = |source| DemoError::Publish { source };
            let delivered = self.producer.produce(record).await.map_err(failed)?;
            let end = self.ends.entry(delivered.partition).or_insert(0);
            *end = delivered.offset.saturating_add(1).max(*end);
            self.published = self.published.saturating_add(1);
            if self.published.checked_rem(LOOK_RECORDS) == Some(0) {
                self.look(publications.len()).await?;
                self.kill_if_busy().await?;
                tokio::time::sleep(PACE).await;
            }
            let share = self.published.saturating_mul(100).checked_div(publications.len());
            while let Some((_, deed)) = course.next_if(|(at, _)| share >= Some(*at)) {
                self.act(deed).await?;
            }
        }
        while !self.armed.is_empty() {
            tokio::time::sleep(LOOK_EVERY).await;
            self.look(publications.len()).await?;
            self.kill_if_busy().await?;
        }
        let records = u64::try_from(publications.len()).unwrap_or(u64::MAX);
        self.plan.publications = publications;
        self.show.happened(&Happening::Published { records });
        Ok(())
    }

    async fn act(&mut self, deed: Deed) -> Result<(), DemoError> {
        match deed {
            Deed::Kill(moment) => {
                self.armed.push_back((moment, clock::now()));
                Ok(())
            }
            Deed::Outage => {
                self.show.happened(&Happening::ProviderDown { for_about: OUTAGE });
                self.world.provider.listener_off().await;
                tokio::time::sleep(OUTAGE).await;
                let listening = self.world.provider.listener_on().await;
                listening.map_err(server("the provider after its outage"))?;
                self.show.happened(&Happening::ProviderUp);
                Ok(())
            }
            Deed::MailErrors => {
                self.world.provider.fail(Rule::times(5, Fault::status(500)).to(MAILS));
                Ok(())
            }
        }
    }

    /// Carries out the next kill once a worker has enough in hand.
    async fn kill_if_busy(&mut self) -> Result<(), DemoError> {
        let Some((moment, since)) = self.armed.front().copied() else { return Ok(()) };
        let waited = clock::since(since);
        if waited > IN_FLIGHT_WAIT_MAX {
            let seconds = IN_FLIGHT_WAIT_MAX.as_secs();
            return Err(DemoError::Stuck { what: "no worker had an effect in hand", seconds });
        }
        let enough = if waited < IN_FLIGHT_WAIT { IN_FLIGHT_WANTED } else { 1 };
        if self.busiest().await?.is_none_or(|(_, claims)| claims < enough) {
            return Ok(());
        }
        // What is in flight now ends soon; what the provider holds back stays in flight.
        self.world.provider.hold(match moment {
            Moment::BeforeAnswer => Hold::BeforeAnswer,
            Moment::BeforeEffect => Hold::BeforeApply,
        });
        tokio::time::sleep(ON_THE_WAY).await;
        let busiest = self.busiest().await?.filter(|(_, claims)| *claims >= enough);
        if let Some((worker, in_flight)) = busiest {
            self.workers.kill(&worker).await?;
            self.armed.pop_front();
            let instead = self.workers.start()?;
            self.deeds.kills = self.deeds.kills.saturating_add(1);
            self.deeds.in_flight = self.deeds.in_flight.saturating_add(in_flight);
            let since = clock::now();
            self.orphaned.push(Orphaned { worker: worker.clone(), in_flight, since });
            self.show.happened(&Happening::Killed { worker, in_flight, moment, instead });
        }
        self.world.provider.release();
        Ok(())
    }

    /// The running worker with the most claims.
    async fn busiest(&mut self) -> Result<Option<(String, u64)>, DemoError> {
        let rows = self.rows().await?;
        let names = self.workers.names().into_iter();
        let claims = names.map(|name| {
            let host = self.workers.host(&name);
            let own = rows.iter().filter(|row| row.host == host && !row.is_dead);
            let claims = own.map(|row| row.claims).sum();
            (name, claims)
        });
        Ok(claims.max_by_key(|(_, claims)| *claims).filter(|(_, claims)| *claims > 0))
    }

    // ----------------------------------------------------------------------------------------- //

    /// Waits until every effect is done and every position on record; gives up after a while, since the
    /// verdict tells what is missing.
    async fn finish(&mut self) -> Result<(), DemoError> {
        let began = clock::now();
        loop {
            self.look(self.published).await?;
            if self.orphaned.is_empty() && self.is_finished().await? {
                self.show.happened(&Happening::Finished);
                return Ok(());
            }
            let waited = clock::since(began);
            if waited > FINISH_MAX {
                self.show.happened(&Happening::GivenUp { after: waited });
                return Ok(());
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    async fn is_finished(&mut self) -> Result<bool, DemoError> {
        if self.totals().await?.open_effects() > 0 {
            return Ok(false);
        }
        let filter = progress::Filter {
            group: Some(self.world.group()),
            topic: Some(self.world.topic.clone()),
            ..progress::Filter::default()
        };
        let rows = progress::list(self.session.connection().await?, &filter).await?;
        let at = |partition: &i32| {
            let row = rows.iter().find(|row| row.partition == *partition);
            row.map_or(0, |row| row.position)
        };
        Ok(self.ends.iter().all(|(partition, end)| at(partition) >= *end))
    }

    /// Shows how far it is, and notices what happened meanwhile.
    async fn look(&mut self, records: usize) -> Result<(), DemoError> {
        self.workers.must_run()?;
        if clock::since(self.read) >= READ_EVERY {
            self.read = clock::now();
            self.answers_lost = answers_lost(&self.log()?);
        }
        let counts = self.world.provider.counts();
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        self.show.progress(&Tally {
            published: number(self.published),
            records: number(records),
            effects: counts.applied,
            owed: number(self.plan.owed()),
            calls: counts.received,
            kills: self.deeds.kills,
            answers_lost: self.answers_lost,
        });
        if !self.orphaned.is_empty() && clock::since(self.asked) >= ASK_EVERY {
            self.asked = clock::now();
            self.notice_takeovers().await?;
        }
        tokio::time::sleep(Duration::ZERO).await;
        Ok(())
    }

    async fn notice_takeovers(&mut self) -> Result<(), DemoError> {
        let rows = self.rows().await?;
        let orphaned = std::mem::take(&mut self.orphaned);
        for one in orphaned {
            let host = self.workers.host(&one.worker);
            let over = rows
                .iter()
                .filter(|row| row.host == host)
                .all(|row| row.is_dead && row.claims == 0);
            if over {
                self.show.happened(&Happening::TakenOver {
                    worker: one.worker,
                    after: clock::since(one.since),
                    effects: one.in_flight,
                });
            } else {
                self.orphaned.push(one);
            }
        }
        Ok(())
    }

    // ----------------------------------------------------------------------------------------- //

    fn log(&self) -> Result<Log, DemoError> {
        self.world.provider.read_log().map_err(server("the provider's log"))
    }

    async fn rows(&mut self) -> Result<Vec<WorkerRow>, StoreError> {
        workers::list(self.session.connection().await?).await
    }

    async fn totals(&mut self) -> Result<Totals, StoreError> {
        totals::of_connector(self.session.connection().await?, &self.world.connector).await
    }

    async fn stored(&mut self) -> Result<Stored, StoreError> {
        let totals = self.totals().await?;
        let connector = Some(self.world.connector.clone());
        let connection = self.session.connection().await?;
        let filter = Filter {
            statuses: vec![Status::Held],
            connector: connector.clone(),
            limit: ROWS_MAX,
            ..Filter::default()
        };
        let held = effects::list(connection, &filter).await?.into_iter();
        let held = held.map(|row| (row.name, row.business_id)).collect();
        let filter = parked::Filter { connector, limit: ROWS_MAX, ..parked::Filter::default() };
        let mut parked: usize = 0;
        for place in [Place::DeadLetters, Place::Quarantine] {
            let rows = parked::list(connection, place, &filter).await?;
            parked = parked.saturating_add(rows.len());
        }
        Ok(Stored { totals, held, parked: u64::try_from(parked).unwrap_or(u64::MAX) })
    }
}
