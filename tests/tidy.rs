//! The rules of this code base that a program can check.
//!
//! Reads: the source tree, and what Cargo says of the core's dependencies. Changes nothing. A failure
//! names the file, the line and the rule.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a failed test should stop at once"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines that a file may have; aim at half of it.
const LINES_MAX: usize = 500;
/// Bytes of a file that is no text to read.
const TEXT_BYTES_MAX: u64 = 1 << 20;

struct Text {
    /// From the root, with slashes.
    path: String,
    text: String,
}

impl Text {
    fn is_in(&self, rooms: &[&str]) -> bool {
        rooms.iter().any(|room| self.path.starts_with(room))
    }

    /// Lines with their numbers, without comments that stand alone.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = (1..).zip(self.text.lines());
        lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Every text of the project, as far as it is written by hand or kept beside the code.
fn texts() -> Vec<Text> {
    let mut found = Vec::new();
    walk(&root(), &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 100, "only {} files were found", found.len());
    found
}

fn walk(dir: &Path, found: &mut Vec<Text>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !["target", ".git", "node_modules"].contains(&name.as_str()) {
                walk(&path, found);
            }
        } else if name != ".git"
            && fs::metadata(&path).is_ok_and(|found| found.len() <= TEXT_BYTES_MAX)
            && let Ok(text) = fs::read_to_string(&path)
        {
            let path = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
            found.push(Text { path, text });
        }
    }
}

fn rust() -> Vec<Text> {
    texts().into_iter().filter(|text| text.path.ends_with(".rs")).collect()
}

/// Fails with everything that was found.
fn nothing(rule: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{rule}:\n  {}", found.join("\n  "));
}

// ----------------------------------------------------------------------------------------------------

#[test]
fn every_module_says_what_it_is() {
    let without = rust().into_iter().filter(|file| !file.text.starts_with("//! "));
    nothing("a file begins with `//!` and what it reads and gives", paths(without));
}

#[test]
fn no_file_is_too_long() {
    let files = rust();
    let long = files.iter().filter(|file| file.text.lines().count() > LINES_MAX);
    let long = long.map(|file| format!("{} has {} lines", file.path, file.text.lines().count()));
    nothing("500 lines are the most, 250 are the aim", long.collect());
}

/// Who may name what. Everything else of the program is forbidden to.
const OWNERS: [(&str, &[&str]); 12] = [
    ("sqlx::", &["processor/src/store/"]),
    ("rdkafka::", &["processor/src/kafka/"]),
    ("rdkafka_sys::", &["processor/src/kafka/"]),
    ("reqwest::", &["connectors/src/effect/"]),
    ("lettre::", &["connectors/src/effect/"]),
    ("prometheus::", &["processor/src/telemetry/"]),
    ("env::var", &["processor/src/config/"]),
    ("Instant::now", &["processor/src/clock.rs", "connectors/src/effect/email/client.rs"]),
    ("SystemTime::now", &["processor/src/clock.rs"]),
    ("Utc::now", &["processor/src/clock.rs"]),
    ("tokio::spawn", &["processor/src/task.rs"]),
    ("std::thread::spawn", &["processor/src/task.rs"]),
];

/// Rooms of the program, and what they must not know.
const STRANGERS: [(&str, &[&str]); 9] = [
    ("processor/src/store/", &["oncely_connectors", "crate::kafka", "crate::worker", "crate::cli"]),
    ("processor/src/kafka/", &["crate::store", "crate::worker", "crate::cli"]),
    ("processor/src/worker/", &["crate::cli"]),
    ("processor/src/telemetry/", &["crate::store", "crate::kafka", "crate::worker", "crate::cli"]),
    ("processor/src/config/", &["crate::store", "crate::worker", "crate::cli"]),
    ("processor/src/http/", &["crate::store", "crate::kafka", "crate::worker", "crate::cli"]),
    ("connectors/src/", &["oncely::", "sqlx"]),
    ("processor/core/src/", &["oncely::", "oncely_connectors", "tokio", "std::net", "std::fs"]),
    ("tests/src/checker", &["oncely::", "oncely_core", "oncely_connectors"]),
];

#[test]
fn every_outside_thing_has_one_owner() {
    let mut wrong = Vec::new();
    let program = ["processor/src/", "processor/core/src/", "connectors/src/"];
    for file in rust().iter().filter(|file| file.is_in(&program) && !is_test(&file.path)) {
        let code = file.code().take_while(|(_, line)| !line.starts_with("#[cfg(test)]"));
        for (number, line) in code {
            for (name, owners) in OWNERS {
                if names(line, name) && !file.is_in(owners) {
                    wrong.push(format!("{}:{number} names {name}", file.path));
                }
            }
        }
    }
    nothing("one owner per outside thing", wrong);
}

#[test]
fn rooms_do_not_know_their_strangers() {
    let mut wrong = Vec::new();
    for file in rust().iter().filter(|file| !is_test(&file.path)) {
        let code = file.code().take_while(|(_, line)| !line.starts_with("#[cfg(test)]"));
        for (number, line) in code {
            for (room, strangers) in STRANGERS {
                let stranger = strangers.iter().find(|stranger| names(line, stranger));
                if let Some(stranger) = stranger.filter(|_| file.is_in(&[room])) {
                    wrong.push(format!("{}:{number} names {stranger}", file.path));
                }
            }
        }
    }
    nothing("who may import whom", wrong);
}

/// Whether a line names a path, and not a longer one that ends so.
fn names(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|before| before.is_alphanumeric() || before == '_')
    })
}

fn is_test(path: &str) -> bool {
    path.ends_with("tests.rs") || path.contains("/tests/") || path.contains("_tests/")
}

#[test]
fn the_core_has_no_socket_no_clock_and_no_dice() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "-p", "oncely-core", "-e", "normal", "--prefix", "none"])
        .args(["-f", "{p} {f}", "--offline", "--locked"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let forbidden = [
        "async-io",
        "async-std",
        "fastrand",
        "futures-timer",
        "getrandom",
        "hyper",
        "iana-time-zone",
        "mio",
        "native-tls",
        "openssl",
        "polling",
        "quanta",
        "rand",
        "rand_core",
        "rdkafka",
        "reqwest",
        "rustix",
        "smol",
        "socket2",
        "sqlx",
        "time",
        "tokio",
        "tzdata",
        "web-time",
    ];
    let mut wrong = Vec::new();
    for line in tree.lines() {
        let mut words = line.split_whitespace();
        let (name, features) = (words.next().unwrap_or_default(), words.last().unwrap_or_default());
        if forbidden.contains(&name) {
            wrong.push(line.to_owned());
        }
        let mut features = features.split(',');
        if name == "chrono" && features.any(|feature| ["clock", "now"].contains(&feature)) {
            wrong.push(line.to_owned());
        }
        if name == "uuid" && line.contains("v4") {
            wrong.push(line.to_owned());
        }
    }
    assert!(tree.lines().count() > 10, "{tree}");
    nothing("time and randomness come into the core as arguments", wrong);
}

// ----------------------------------------------------------------------------------------------------

#[test]
fn every_query_is_one_file_used_once_and_checked() {
    let (files, sources) = (texts(), rust());
    let of = |text: &str, end: &str| text.strip_suffix(end).map(str::to_owned);
    let store = "processor/src/store/sql/";
    let queries: BTreeMap<String, &str> = files
        .iter()
        .filter_map(|file| Some((of(file.path.strip_prefix(store)?, ".sql")?, &*file.text)))
        .collect();
    assert!(queries.len() > 30, "only {} queries were found", queries.len());
    let mut wrong = Vec::new();
    for name in queries.keys() {
        let path = format!("src/store/sql/{name}.sql\"");
        let uses: usize = sources.iter().map(|file| file.text.matches(&path).count()).sum();
        if uses != 1 {
            wrong.push(format!("{name}.sql is used {uses} times"));
        }
    }
    // What the compiler was told about each query, beside the code for builds without a database.
    let mut checked = BTreeSet::new();
    for file in files.iter().filter(|file| file.path.starts_with("processor/.sqlx/")) {
        let known: serde_json::Value = serde_json::from_str(&file.text).unwrap();
        let text = known["query"].as_str().unwrap().to_owned();
        if !queries.values().any(|query| *query == text) {
            wrong.push(format!("{} is of a query that is no more", file.path));
        }
        checked.insert(text);
    }
    for (name, query) in &queries {
        if !checked.contains(*query) {
            wrong.push(format!("{name}.sql is not in .sqlx: build with a database"));
        }
    }
    nothing("one query, one file, one function, checked at compile time", wrong);
}

#[test]
fn every_crash_point_stands_in_the_code_and_no_setting_arms_one() {
    let files = rust();
    let list = files.iter().find(|file| file.path == "processor/src/crash.rs").unwrap();
    assert!(!list.code().any(|(_, line)| line.contains("env::var") || line.contains("config::")));
    let mut wrong = Vec::new();
    for step in oncely::crash::Step::ALL {
        let stands = |call: &str| {
            let program = files.iter().filter(|file| file.is_in(&["processor/src/"]));
            let calls: Vec<String> = ["", "_of", "_below"]
                .into_iter()
                .flat_map(|what| [")", ","].map(|end| (what, end)))
                .map(|(what, end)| format!("crash::{call}{what}(Step::{step:?}{end}"))
                .collect();
            let mut lines = program.flat_map(Text::code);
            lines.any(|(_, line)| calls.iter().any(|call| line.contains(call)))
        };
        if !stands("before") || !(stands("after") || stands("soon_after")) {
            wrong.push(format!("{step:?}"));
        }
    }
    nothing("a step has a place before and a place after it", wrong);
}

#[test]
fn names_say_what_a_thing_is() {
    let banned = ["manager", "helper", "helpers", "util", "utils", "common", "handler", "handlers"];
    let items = ["fn ", "struct ", "enum ", "trait ", "mod ", "type ", "const ", "static "];
    let mut wrong = Vec::new();
    for file in rust() {
        let stem = Path::new(&file.path).file_stem().unwrap().to_string_lossy().into_owned();
        if banned.contains(&stem.as_str()) {
            wrong.push(file.path.clone());
        }
        for (number, line) in file.code() {
            let item = items.iter().find_map(|item| {
                let at = line.find(item)?;
                let before = line[..at].trim_end();
                let begins = before.is_empty()
                    || before.ends_with("pub")
                    || before.ends_with(')')
                    || before.ends_with("async")
                    || before.ends_with("const")
                    || before.ends_with("unsafe");
                begins.then(|| &line[at + item.len()..])
            });
            let name: String = item
                .unwrap_or_default()
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            let verb = name.starts_with("process_") || name.starts_with("handle_");
            if verb || words(&name).iter().any(|word| banned.contains(&word.as_str())) {
                wrong.push(format!("{}:{number} {name}", file.path));
            }
        }
    }
    nothing("names that say nothing", wrong);
}

/// `CamelCase` and `snake_case` in their words, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for c in name.chars() {
        if c == '_' || c.is_uppercase() {
            words.push(String::new());
        }
        if c != '_' {
            words.last_mut().unwrap().extend(c.to_lowercase());
        }
    }
    words
}

#[test]
fn log_lines_are_lower_case_and_have_no_stop() {
    let levels = ["error!(", "warn!(", "info!(", "debug!(", "trace!("];
    let mut wrong = Vec::new();
    let mut seen = 0;
    for file in rust().iter().filter(|file| file.is_in(&["processor/src/", "connectors/src/"])) {
        for level in levels {
            for (at, _) in file.text.match_indices(&format!("tracing::{level}")) {
                let call = &file.text[at..];
                let end = call.find(");").unwrap_or(call.len());
                // The last text of a call is what it says.
                let Some(said) = call[..end].split('"').rev().nth(1) else { continue };
                seen += 1;
                let first = said.chars().next().unwrap_or('a');
                if first.is_uppercase() || said.ends_with('.') || said.contains('{') {
                    let line = file.text[..at].lines().count();
                    wrong.push(format!("{}:{line} {said:?}", file.path));
                }
            }
        }
    }
    assert!(seen > 30, "only {seen} log lines were found");
    nothing("log lines: lower case, no stop, fields instead of interpolation", wrong);
}

#[test]
fn nothing_is_left_open_and_no_path_is_of_one_machine() {
    // Put together here, so that this file may stand in the tree as well.
    let banned = [
        ["TO", "DO"],
        ["FIX", "ME"],
        ["todo", "!("],
        ["unimplemented", "!("],
        ["dbg", "!("],
        ["/ro", "ot/"],
        ["/ho", "me/"],
    ];
    let banned = banned.map(|parts| parts.concat());
    let mut wrong = Vec::new();
    for file in texts() {
        for (number, line) in (1..).zip(file.text.lines()) {
            if let Some(word) = banned.iter().find(|word| line.contains(word.as_str())) {
                wrong.push(format!("{}:{number} {word}", file.path));
            }
        }
    }
    nothing("finished, and at home everywhere", wrong);
}

fn paths(files: impl Iterator<Item = Text>) -> Vec<String> {
    files.map(|file| file.path).collect()
}

/// `make test` runs none.
#[test]
fn documentation_has_no_examples_in_code() {
    let mut found = Vec::new();
    for file in rust() {
        let lines = (1..).zip(file.text.lines());
        let fences = lines.filter(|(_, line)| {
            let text = line.trim_start();
            let text = text.strip_prefix("///").or_else(|| text.strip_prefix("//!"));
            text.is_some_and(|text| text.trim_start().starts_with("```"))
        });
        found.extend(fences.map(|(number, _)| format!("{}:{number}", file.path)));
    }
    nothing("an example is a test: put it into one, and name that", found);
}

#[test]
fn the_licence_that_cargo_names_is_there_in_full() {
    let cargo = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(cargo.contains(r#"license = "Apache-2.0""#));
    let text = fs::read_to_string(root().join("LICENSE")).expect("a LICENSE beside Cargo.toml");
    assert!(text.contains("Apache License\n                           Version 2.0, January 2004"));
    assert!(text.contains("END OF TERMS AND CONDITIONS"), "the text was cut");
}

#[test]
fn every_case_has_a_test_or_a_reason() {
    let cases = fs::read_to_string(root().join("tests/CASES.md")).unwrap();
    let tests: BTreeSet<String> = rust().iter().flat_map(tests_of).collect();
    assert!(tests.len() > 300, "only {} tests were found", tests.len());
    let mut wrong = Vec::new();
    for row in cases.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| case")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let (case, reason) = (cells[0], cells[2]);
        let part = case.to_lowercase();
        let has_test = tests.iter().any(|test| test.split('_').any(|word| word == part));
        if !has_test && reason.is_empty() {
            wrong.push(format!("{case} has neither a test of its name nor a reason"));
        }
        let named = reason.split('`').skip(1).step_by(2).filter(|name| word(name) == **name);
        let gone = named.filter(|name| name.contains('_') && !tests.contains(*name));
        wrong.extend(gone.map(|name| format!("{case} names {name}, which is no test")));
    }
    nothing("tests/CASES.md tells where each case is tried", wrong);
}

/// The functions of a file that have a test's attribute above them and are not left out.
fn tests_of(file: &Text) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_test = false;
    for (_, line) in file.code() {
        let line = line.trim_start();
        if line.starts_with("#[") {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            is_test &= !line.starts_with("#[ignore");
        } else if let Some((_, name)) = line.split_once("fn ") {
            found.extend(is_test.then(|| word(name)));
            is_test = false;
        }
    }
    found
}

/// The identifier at the beginning of a text.
fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
}
