//! A child never outlives the program that started it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use oncely_rig::child::{Child, ChildSpec, Signal};
use oncely_rig::places::Scratch;
use oncely_rig::wait;

const BOUND: Duration = Duration::from_secs(20);
const PARENT: &str = "ONCELY_RIG_TEST_PARENT";

fn shell(script: &str, scratch: &Path) -> ChildSpec {
    ChildSpec {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        log: scratch.join("log"),
        remove: Some(scratch.to_path_buf()),
        ..ChildSpec::default()
    }
}

fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn is_gone(pid: u32) -> bool {
    matches!(state(pid), None | Some('Z'))
}

#[tokio::test]
async fn a_child_says_how_it_ended() {
    let scratch = Scratch::new(None, "child").unwrap();
    let mut child = Child::spawn(&shell("echo last words; exit 3", scratch.path())).unwrap();
    let status = child.wait(BOUND).await.unwrap();
    assert_eq!(status.code(), Some(3));
    let error = child.must_run().unwrap_err().to_string();
    assert!(error.contains("last words"), "{error}");
}

#[tokio::test]
async fn a_child_can_be_frozen_and_killed_with_its_children() {
    let scratch = Scratch::new(None, "child").unwrap();
    let pids = scratch.path().join("pids");
    let script = format!("sleep 1000 & echo $! >{0}.new; mv {0}.new {0}; wait", pids.display());
    let mut child = Child::spawn(&shell(&script, scratch.path())).unwrap();
    let grandchild: u32 = wait::until_some("the grandchild", BOUND, || {
        fs::read_to_string(&pids).ok()?.trim().parse().ok()
    })
    .await
    .unwrap();
    child.signal_all(Signal::Stop).unwrap();
    wait::until("both to be frozen", BOUND, || {
        state(child.pid()) == Some('T') && state(grandchild) == Some('T')
    })
    .await
    .unwrap();
    child.kill().await.unwrap();
    wait::until("the grandchild to be gone", BOUND, || is_gone(grandchild)).await.unwrap();
    assert!(scratch.path().exists(), "a directory is only removed when the parent died");
}

/// This test starts itself a second time; the second one starts a child and is then killed.
#[tokio::test]
async fn a_child_dies_with_a_parent_that_was_killed() {
    if let Some(dir) = std::env::var_os(PARENT) {
        let script = "sleep 1000 & echo child $! $$; wait";
        let child = Child::spawn(&shell(script, &PathBuf::from(dir))).unwrap();
        println!("started {}", child.pid());
        std::thread::sleep(BOUND * 10);
        return;
    }
    let scratch = Scratch::new(None, "orphan").unwrap();
    let name = "child::a_child_dies_with_a_parent_that_was_killed";
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(PARENT, scratch.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    // The test runner prints the name of the test on the same line first.
    let started = lines.map(Result::unwrap).find(|line| line.contains("started ")).unwrap();
    let child: u32 = started.rsplit_once(' ').unwrap().1.parse().unwrap();
    let log = scratch.path().join("log");
    let grandchild: u32 = wait::until_some("the grandchild", BOUND, || {
        let text = fs::read_to_string(&log).ok()?;
        text.split_whitespace().nth(1)?.parse().ok()
    })
    .await
    .unwrap();
    assert!(!is_gone(child) && !is_gone(grandchild));

    parent.kill().unwrap();
    parent.wait().unwrap();

    wait::until("the child to be gone", BOUND, || is_gone(child)).await.unwrap();
    wait::until("the grandchild to be gone", BOUND, || is_gone(grandchild)).await.unwrap();
    wait::until("the directory to be gone", BOUND, || !scratch.path().exists()).await.unwrap();
}
