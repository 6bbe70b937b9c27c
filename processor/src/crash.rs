//! Places at which this process can be made to die, or to freeze, on purpose.
//!
//! Reads: an order and a permit from the command line of `oncely run`, once, at its start; nothing else,
//! and no setting. Gives: at the ordered place a real SIGKILL or SIGSTOP to this process. Unarmed, a
//! place costs one relaxed load and a branch that is not taken.
//! An order may name what has to be at the place: an effect of the connector file, or a record. What was
//! there stands in the used permit, so that whoever ordered the crash knows what was hit.
//! Keeps true: a permit is good for one crash. It is a file that whoever wants the crash has made, and
//! the first process that comes to the place uses it up; so several may be armed with one permit, and a
//! process that is started again with the same command runs like any other.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

/// What a permit holds.
const PERMIT: &str = "whoever comes to its crash point first may crash, once\n";
/// What one holds that is not in force yet: places are passed, and not counted.
const LATER: &str = "whoever comes to its crash point may crash later\n";
/// How long a written request has to leave, and the fake provider has to keep its answer back.
const LEAVE: Duration = Duration::from_millis(40);

/// Every step has a place before and a place after it. One line makes a step: its name in the code and
/// on the command line, the windows that it opens, and what is on record before and after it.
macro_rules! steps {
    ($($step:ident, $name:literal, $windows:literal, $before:literal, $after:literal;)+) => {
        /// A step between a record and its committed offset.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Step {
            $(#[doc = concat!($windows, ". Before: ", $before, ". After: ", $after, ".")] $step,)+
        }

        impl Step {
            pub const ALL: &'static [Self] = &[$(Self::$step),+];

            /// Its name on the command line, after `before-` or `after-`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$step => $name),+ }
            }

            /// The crash windows that begin here.
            pub const fn windows(self) -> &'static str {
                match self { $(Self::$step => $windows),+ }
            }

            /// What is on record when a process dies on this side of it.
            pub const fn on_record(self, side: Side) -> &'static str {
                match (self, side) {
                    $((Self::$step, Side::Before) => $before, (Self::$step, Side::After) => $after,)+
                }
            }
        }
    };
}

steps! {
    Start, "start", "W1", "nothing", "the position at which the partition begins";
    Records, "records", "W1", "nothing of these records", "nothing of these records";
    BatchCommit, "batch-commit", "W1 W2 W3 W20", "nothing of these records", "the records' outcomes, their effects, and claims of those that had a free slot";
    ClaimCommit, "claim-commit", "W2 W3", "effects that are due", "claims; nothing was sent";
    Connect, "connect", "W3", "a claim; no connection was asked for", "a claim; connected, and no byte of the request has left";
    Request, "request", "W3 W4 W5", "a claim; the lease was looked at for the last time, and no byte has left", "a claim; the request has left and nobody has answered";
    Outcome, "outcome", "W5 W6", "a claim; the answer is in memory", "a claim; the answer waits in memory to be settled";
    LookUp, "look-up", "W5", "a claim for asking; nobody was asked", "a claim for asking; the answer is in memory";
    SettleCommit, "settle-commit", "W6 W7", "claims; their outcomes are in memory", "outcomes, and claims of what came next; nobody here knows";
    Position, "position", "W8", "final effects, and the old position", "the new position; Kafka has the old one";
    OffsetCommit, "offset-commit", "W9", "the position; Kafka has the old one", "the position, and Kafka has it";
    Revoke, "revoke", "W8 W9", "what was settled; partitions are being given up", "what was settled, and the drain is answered";
    Death, "death", "W3 W5", "claims of a worker that is silent", "its death; its claims are nobody's yet";
    TakeOver, "take-over", "W3 W5", "claims of a worker on record as dead", "its claims as unknown, or held";
    Publish, "publish", "W12", "a record in the outbox; nothing was sent", "the same; the brokers have the record, and nobody has put that on record";
    PublishCommit, "publish-commit", "W12", "the same; that the brokers have it is in memory", "its effect as done";
    GiveBack, "give-back", "W15", "claims that were never sent", "the same; they are on their way to be given back";
    End, "end", "W15", "a clean stop; the worker's row is open", "the worker's row is closed";
}

/// On which side of its step a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Before,
    After,
}

impl Side {
    pub const ALL: [Self; 2] = [Self::Before, Self::After];
}

/// A place in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    pub step: Step,
    pub side: Side,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Before => "before",
            Side::After => "after",
        };
        write!(f, "{side}-{}", self.step.name())
    }
}

/// What a process does to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// SIGKILL
    Kill,
    /// SIGSTOP, until somebody sends SIGCONT.
    Stop,
}

/// `POINT`, `POINT:NTH` or `POINT:NTH:ACTION`: which place, at which time of coming there (from 1), and
/// `kill` or `stop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    pub point: Point,
    pub nth: u32,
    pub action: Action,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.action {
            Action::Kill => "kill",
            Action::Stop => "stop",
        };
        write!(f, "{}:{}:{action}", self.point, self.nth)
    }
}

/// What has to be at the place for the crash: `EFFECT`, or `@OFFSET`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Aim {
    /// By its id in the connector file.
    Effect(Box<str>),
    /// Everything below this offset.
    Below(i64),
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Effect(name) => f.write_str(name),
            Self::Below(offset) => write!(f, "@{offset}"),
        }
    }
}

impl FromStr for Aim {
    type Err = CrashError;

    fn from_str(text: &str) -> Result<Self, CrashError> {
        match text.strip_prefix('@') {
            None if text.is_empty() => Err(CrashError::Aim { text: text.to_owned() }),
            None => Ok(Self::Effect(text.into())),
            Some(offset) => {
                let offset = offset.parse();
                offset.map(Self::Below).map_err(|_| CrashError::Aim { text: text.to_owned() })
            }
        }
    }
}

/// What is at a place.
enum There {
    /// It is of the process, not of some effect or record.
    Nothing,
    /// By their ids.
    Effects(Vec<String>),
    /// Everything below this offset.
    Below(i64),
}

impl There {
    fn has(&self, aim: &Aim) -> bool {
        match (self, aim) {
            (Self::Effects(names), Aim::Effect(name)) => names.iter().any(|one| **one == **name),
            (Self::Below(end), Aim::Below(offset)) => end >= offset,
            _ => false,
        }
    }
}

/// Why nothing was armed.
#[derive(Debug, thiserror::Error)]
pub enum CrashError {
    #[error("`{text}` is no crash point; it is one of: {}", names())]
    Unknown { text: String },
    #[error("`{text}`: after the point come how often it is passed, from 1, and `kill` or `stop`")]
    Form { text: String },
    #[error("`{text}` is nothing to aim at: the id of an effect, or `@` and an offset")]
    Aim { text: String },
    #[error("{} is no permit for a crash, or it was used; a crash needs one", path.display())]
    NoPermit { path: PathBuf },
    #[error("a crash point is armed already")]
    Twice,
}

impl FromStr for Order {
    type Err = CrashError;

    fn from_str(text: &str) -> Result<Self, CrashError> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let point = points().find(|point| point.to_string() == name);
        let point = point.ok_or_else(|| CrashError::Unknown { text: name.to_owned() })?;
        let form = || CrashError::Form { text: text.to_owned() };
        let nth = parts.next().map_or(Ok(1), str::parse).map_err(|_| form())?;
        let action = match parts.next() {
            None | Some("kill") => Action::Kill,
            Some("stop") => Action::Stop,
            Some(_) => return Err(form()),
        };
        if nth == 0 || parts.next().is_some() {
            return Err(form());
        }
        Ok(Self { point, nth, action })
    }
}

/// Every place, in the order of a record's way.
pub fn points() -> impl Iterator<Item = Point> {
    let sides = |step: &Step| Side::ALL.map(|side| Point { step: *step, side });
    Step::ALL.iter().flat_map(sides)
}

fn names() -> String {
    points().map(|point| point.to_string()).collect::<Vec<_>>().join(", ")
}

// --------------------------------------------------------------------------------------------- //

static IS_ARMED: AtomicBool = AtomicBool::new(false);
static ARMED: OnceLock<Armed> = OnceLock::new();

struct Armed {
    order: Order,
    aim: Option<Aim>,
    permit: PathBuf,
    /// Times of coming there that are left.
    left: AtomicU32,
}

impl Armed {
    fn at(point: Point) -> Option<&'static Self> {
        ARMED.get().filter(|armed| armed.order.point == point)
    }
}

/// Arms this process. With an aim, only places count at which it is.
///
/// # Errors
/// [`CrashError::NoPermit`] when the file is no permit or was used up, [`CrashError::Twice`].
pub fn arm(order: Order, aim: Option<Aim>, permit: &Path) -> Result<(), CrashError> {
    let text = fs::read_to_string(permit).unwrap_or_default();
    if ![PERMIT, LATER].contains(&&*text) {
        return Err(CrashError::NoPermit { path: permit.to_owned() });
    }
    let left = AtomicU32::new(order.nth);
    let armed = Armed { order, aim, permit: permit.to_owned(), left };
    ARMED.set(armed).map_err(|_| CrashError::Twice)?;
    IS_ARMED.store(true, Ordering::Relaxed);
    Ok(())
}

/// The step is about to be taken.
#[inline]
pub fn before(step: Step) {
    if IS_ARMED.load(Ordering::Relaxed) {
        come_to(Point { step, side: Side::Before }, || There::Nothing);
    }
}

/// The step was taken.
#[inline]
pub fn after(step: Step) {
    if IS_ARMED.load(Ordering::Relaxed) {
        come_to(Point { step, side: Side::After }, || There::Nothing);
    }
}

/// The step is about to be taken with effects of these ids, which are asked for only where it is armed.
#[inline]
pub fn before_of<N: Into<String>, I: IntoIterator<Item = N>>(step: Step, ids: impl FnOnce() -> I) {
    if IS_ARMED.load(Ordering::Relaxed) {
        come_to(Point { step, side: Side::Before }, || effects(ids()));
    }
}

/// The step was taken with effects of these ids.
#[inline]
pub fn after_of<N: Into<String>, I: IntoIterator<Item = N>>(step: Step, ids: impl FnOnce() -> I) {
    if IS_ARMED.load(Ordering::Relaxed) {
        come_to(Point { step, side: Side::After }, || effects(ids()));
    }
}

/// The step is about to be taken with records below this offset.
#[inline]
pub fn before_below(step: Step, offset: impl FnOnce() -> i64) {
    if IS_ARMED.load(Ordering::Relaxed) {
        come_to(Point { step, side: Side::Before }, || There::Below(offset()));
    }
}

/// The step was taken with records below this offset.
#[inline]
pub fn after_below(step: Step, offset: impl FnOnce() -> i64) {
    if IS_ARMED.load(Ordering::Relaxed) {
        come_to(Point { step, side: Side::After }, || There::Below(offset()));
    }
}

/// The step is being taken with the effect of this id, by the kernel and others: it counts as taken in a
/// moment.
#[inline]
pub fn soon_after_of(step: Step, id: &str) {
    if IS_ARMED.load(Ordering::Relaxed) {
        let point = Point { step, side: Side::After };
        let id = id.to_owned();
        let come = move || {
            thread::sleep(LEAVE);
            come_to(point, || effects([id]));
        };
        if Armed::at(point).is_some()
            && let Err(error) = thread::Builder::new().name("crash".to_owned()).spawn(come)
        {
            tracing::error!(%error, "no thread to crash from");
        }
    }
}

fn effects<N: Into<String>>(ids: impl IntoIterator<Item = N>) -> There {
    There::Effects(ids.into_iter().map(Into::into).collect())
}

#[cold]
#[inline(never)]
fn come_to(point: Point, there: impl FnOnce() -> There) {
    let Some(armed) = Armed::at(point) else { return };
    let there = there();
    if armed.aim.as_ref().is_some_and(|aim| !there.has(aim)) {
        return;
    }
    if fs::read_to_string(&armed.permit).ok().as_deref() != Some(PERMIT) {
        return;
    }
    let counted =
        armed.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1));
    if counted != Ok(1) {
        return;
    }
    // Another one may have been first.
    if use_up(&armed.permit, &armed.order, &there).is_err() {
        return;
    }
    let signal = match armed.order.action {
        Action::Kill => Signal::KILL,
        Action::Stop => Signal::STOP,
    };
    tracing::error!(order = %armed.order, "crash point reached: this process ends itself now");
    if let Err(error) = kill_process(getpid(), signal) {
        tracing::error!(%error, "the signal to this process was refused");
    }
}

// --------------------------------------------------------------------------------------------- //

/// Makes a permit for one crash, or brings one into force.
///
/// # Errors
/// As writing the file.
pub fn permit(path: &Path) -> io::Result<()> {
    write_whole(path, PERMIT)
}

/// Makes a permit with which processes can be armed, and which is in force only after [`permit`].
///
/// # Errors
/// As writing the file.
pub fn permit_later(path: &Path) -> io::Result<()> {
    write_whole(path, LATER)
}

/// So that nobody reads half of it.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(new, path)
}

/// Uses a permit up. Of several processes one succeeds, and leaves its number and what was there.
fn use_up(permit: &Path, order: &Order, there: &There) -> io::Result<()> {
    let used = used_path(permit);
    fs::rename(permit, &used)?;
    let ids = match there {
        There::Effects(ids) => ids.join(" "),
        There::Nothing | There::Below(_) => String::new(),
    };
    write_whole(&used, &format!("{} {order}\n{ids}\n", getpid().as_raw_nonzero()))
}

/// Which process crashed by a permit; `None` while none has.
pub fn used_by(permit: &Path) -> Option<u32> {
    let text = fs::read_to_string(used_path(permit)).ok()?;
    text.split_once(' ')?.0.parse().ok()
}

/// The effects, by their ids, that were at the place where a process crashed by a permit; none where the
/// place is of no effect.
pub fn crashed_with(permit: &Path) -> Vec<String> {
    let text = fs::read_to_string(used_path(permit)).unwrap_or_default();
    text.lines().nth(1).unwrap_or_default().split_whitespace().map(ToOwned::to_owned).collect()
}

fn used_path(permit: &Path) -> PathBuf {
    permit.with_extension("used")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_has_one_name_and_is_read_back() {
        let mut names: Vec<String> = points().map(|point| point.to_string()).collect();
        for name in &names {
            let order: Order = format!("{name}:3:stop").parse().unwrap();
            assert_eq!(order.to_string(), format!("{name}:3:stop"));
            let plain: Order = name.parse().unwrap();
            assert_eq!((plain.nth, plain.action), (1, Action::Kill));
        }
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!((names.len(), all), (all, 2 * Step::ALL.len()));
    }

    #[test]
    fn what_is_no_order_is_refused_with_the_names() {
        let refused = |text: &str| text.parse::<Order>().unwrap_err().to_string();
        assert!(refused("batch-commit").contains("before-batch-commit, after-batch-commit"));
        for text in
            ["after-position:0", "after-position:x", "after-position:1:abort", "after-end:1:kill:"]
        {
            assert!(refused(text).contains("`kill` or `stop`"), "{text}");
        }
    }

    #[test]
    fn only_what_is_aimed_at_counts() {
        let aim = |text: &str| text.parse::<Aim>().unwrap();
        for text in ["charge", "@3"] {
            assert_eq!(aim(text).to_string(), text);
        }
        for text in ["", "@", "@x"] {
            text.parse::<Aim>().unwrap_err();
        }
        let calls = effects(["charge", "mail"]);
        assert!(calls.has(&aim("mail")) && !calls.has(&aim("refund")) && !calls.has(&aim("@0")));
        assert!(There::Below(3).has(&aim("@3")) && !There::Below(2).has(&aim("@3")));
        assert!(!There::Nothing.has(&aim("mail")), "a place of no effect is none of any effect");
    }

    #[test]
    fn a_permit_is_good_for_one() {
        let dir = std::env::temp_dir().join(format!("oncely-permit-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("permit");
        let order: Order = "after-end".parse().unwrap();
        assert!(matches!(arm(order, None, &path), Err(CrashError::NoPermit { .. })));
        fs::write(&path, "anything else").unwrap();
        assert!(matches!(arm(order, None, &path), Err(CrashError::NoPermit { .. })));
        permit_later(&path).unwrap();
        permit(&path).unwrap();
        assert_eq!(used_by(&path), None);
        let there = effects(["charge", "mail"]);
        use_up(&path, &order, &there).unwrap();
        use_up(&path, &order, &there).unwrap_err();
        assert_eq!(used_by(&path), Some(std::process::id()));
        assert_eq!(crashed_with(&path), ["charge", "mail"]);
        assert!(matches!(arm(order, None, &path), Err(CrashError::NoPermit { .. })), "used up");
        fs::remove_dir_all(dir).unwrap();
    }
}
