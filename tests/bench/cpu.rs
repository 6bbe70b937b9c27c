//! CPU time and memory of processes, from `/proc`.

use std::fs;

/// Ticks of a second in `/proc`; Linux shows 100 to programs, whatever it counts in.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU seconds of a process so far; zero for one that is gone.
pub(crate) fn seconds(pid: u32) -> f64 {
    let ticks = stat(pid).map_or(0, |stat| stat.own);
    ticks as f64 / TICKS_PER_SECOND
}

/// CPU seconds of a process, of its children that live, and of those that it has waited for.
pub(crate) fn tree_seconds(pid: u32) -> f64 {
    let Some(stat) = stat(pid) else { return 0.0 };
    let own = (stat.own + stat.waited_for) as f64 / TICKS_PER_SECOND;
    own + children(pid).into_iter().map(seconds).sum::<f64>()
}

/// The most memory that a process had resident, in megabytes of 10^6.
pub(crate) fn memory_peak_mb(pid: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1_024.0 / 1e6)
}

/// The processes whose parent is `pid`.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|child| stat(*child).is_some_and(|stat| stat.parent == pid)).collect()
}

/// The name of a process's program.
pub(crate) fn name(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim().to_owned())
}

struct Stat {
    parent: u32,
    own: u64,
    waited_for: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may hold anything; state and parent follow it.
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        own: number(11)? + number(12)?,
        waited_for: number(13)? + number(14)?,
    })
}
