//! A member of a group with a worker that keeps positions where the group's other members see
//! them, as the database does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use oncely::kafka::{
    AssignmentId, Assignor, ConsumerHandle, ConsumerSettings, Event, Events, GroupProtocol,
    RevokeCause, SESSION_TIMEOUT_DEFAULT, StopMode, TopicPartition,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::cluster::BOUND;

/// What all members of a group share.
#[derive(Debug, Default)]
pub(crate) struct Board {
    pub(crate) positions: HashMap<TopicPartition, i64>,
    /// Every delivered record, with the member that got it.
    pub(crate) delivered: Vec<(TopicPartition, i64, String)>,
    pub(crate) assigned: HashMap<String, HashMap<AssignmentId, TopicPartition>>,
    pub(crate) revoked: Vec<(String, RevokeCause, usize)>,
    pub(crate) out_of_range: Vec<(TopicPartition, i64, i64, i64)>,
    pub(crate) fatal: Vec<String>,
    pub(crate) trouble: Vec<String>,
    pub(crate) closed: Vec<(String, bool)>,
    pub(crate) wrong: Vec<String>,
}

pub(crate) type Shared = Arc<Mutex<Board>>;

/// How a member's worker behaves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Manners {
    /// No start is answered before it opens: the database is away.
    pub(crate) start: Gate,
    /// Least time that a drain takes.
    pub(crate) drain_for: Duration,
    /// No drain ends before it opens.
    pub(crate) drain: Gate,
}

/// What a worker waits for until the test lets it go on; open unless the test has shut it.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<watch::Sender<bool>>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(true)))
    }
}

impl Gate {
    pub(crate) fn shut() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    pub(crate) fn open(&self) {
        self.0.send_replace(true);
    }

    async fn pass(&self) {
        self.0.subscribe().wait_for(|open| *open).await.unwrap();
    }
}

pub(crate) struct Member {
    pub(crate) handle: ConsumerHandle,
    task: JoinHandle<()>,
}

/// The classic protocol, with signs of life so close together that a change of the group is noticed soon.
pub(crate) fn classic(assignor: Assignor) -> GroupProtocol {
    let (session_timeout, heartbeat) = (SESSION_TIMEOUT_DEFAULT, Duration::from_millis(300));
    GroupProtocol::Classic { assignor, session_timeout, heartbeat }
}

pub(crate) fn cooperative() -> GroupProtocol {
    classic(Assignor::CooperativeSticky)
}

pub(crate) fn settings(group: &str, topics: &[&str], protocol: GroupProtocol) -> ConsumerSettings {
    let topics = topics.iter().map(|topic| (*topic).to_owned()).collect();
    let mut settings = ConsumerSettings::new(super::cluster::settings(), group, topics);
    settings.protocol = protocol;
    settings
}

impl Member {
    pub(crate) fn join(
        name: &str,
        settings: &ConsumerSettings,
        board: &Shared,
        manners: Manners,
    ) -> Self {
        let (handle, events) = ConsumerHandle::spawn(settings).unwrap();
        let worker = Worker {
            name: name.to_owned(),
            handle: handle.clone(),
            board: Arc::clone(board),
            manners,
        };
        let task = tokio::spawn(worker.run(events));
        Self { handle, task }
    }

    pub(crate) async fn leave(self) {
        self.handle.stop(StopMode::Drain);
        tokio::time::timeout(BOUND, self.task).await.unwrap().unwrap();
    }
}

struct Worker {
    name: String,
    handle: ConsumerHandle,
    board: Shared,
    manners: Manners,
}

impl Worker {
    async fn run(self, mut events: Events) {
        while let Some(event) = events.recv().await {
            match event {
                Event::Assigned(assigned) => {
                    let mine = assigned.iter().map(|a| (a.assignment, a.partition.clone()));
                    self.board().assigned.entry(self.name.clone()).or_default().extend(mine);
                    let (handle, board) = (self.handle.clone(), Arc::clone(&self.board));
                    let gate = self.manners.start.clone();
                    tokio::spawn(async move {
                        gate.pass().await;
                        for one in assigned {
                            let positions = &board.lock().unwrap().positions;
                            let start = positions.get(&one.partition).copied().unwrap_or(0);
                            handle.start(one.assignment, start);
                        }
                    });
                }
                Event::Records(batch) => {
                    assert!(!batch.records.is_empty());
                    let mut board = self.board();
                    for record in &batch.records {
                        self.take(&mut board, record);
                    }
                }
                Event::Revoked(revoked) => {
                    tokio::time::sleep(self.manners.drain_for).await;
                    self.manners.drain.pass().await;
                    let mut board = self.board();
                    let count = revoked.partitions.len();
                    board.revoked.push((self.name.clone(), revoked.cause, count));
                    let mut last = Vec::new();
                    for gone in &revoked.partitions {
                        board.assigned.get_mut(&self.name).unwrap().remove(&gone.assignment);
                        if let Some(position) = board.positions.get(&gone.partition) {
                            last.push((gone.assignment, *position));
                        }
                    }
                    revoked.answer.drained(last);
                }
                Event::OutOfRange { assigned, position, low, high } => {
                    self.board().out_of_range.push((assigned.partition, position, low, high));
                }
                Event::Trouble(trouble) => {
                    self.board().trouble.push(format!("{:?}: {}", trouble.kind, trouble.text));
                }
                Event::Fatal(error) => self.board().fatal.push(error.to_string()),
                Event::Closed { clean } => self.board().closed.push((self.name.clone(), clean)),
            }
        }
        self.board().assigned.remove(&self.name);
    }

    fn board(&self) -> std::sync::MutexGuard<'_, Board> {
        self.board.lock().unwrap()
    }

    /// Notes a record; it has to be the next one of its partition, since every start was answered
    /// with the position.
    fn take(&self, board: &mut Board, record: &oncely::kafka::Record) {
        let partition = TopicPartition::new(record.topic.clone(), record.partition);
        let mine = board.assigned.get(&self.name);
        if !mine.is_some_and(|mine| mine.contains_key(&record.assignment)) {
            board.wrong.push(format!("{} got {record:?} without having it", self.name));
            return;
        }
        let position = board.positions.entry(partition.clone()).or_insert(0);
        if record.offset != *position {
            let text = format!("{} got {record:?} instead of {position}", self.name);
            *position = (*position).max(record.offset + 1);
            board.wrong.push(text);
        } else {
            *position += 1;
        }
        let position = board.positions[&partition];
        board.delivered.push((partition, record.offset, self.name.clone()));
        self.handle.commit(record.assignment, position);
    }
}

pub(crate) async fn until(what: &str, board: &Shared, mut reached: impl FnMut(&Board) -> bool) {
    let began = Instant::now();
    while !reached(&board.lock().unwrap()) {
        assert!(began.elapsed() < BOUND, "{what} was not reached: {:#?}", summary(board));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn summary(board: &Shared) -> impl std::fmt::Debug {
    let board = board.lock().unwrap();
    let wrong: Vec<String> = board.wrong.iter().take(5).cloned().collect();
    (
        (board.delivered.len(), board.positions.clone(), board.assigned.clone()),
        (board.revoked.clone(), board.out_of_range.clone()),
        (board.fatal.clone(), board.trouble.clone(), board.closed.clone(), wrong),
    )
}

/// Partitions that a member has.
pub(crate) fn count_of(board: &Board, name: &str) -> usize {
    board.assigned.get(name).map_or(0, HashMap::len)
}
