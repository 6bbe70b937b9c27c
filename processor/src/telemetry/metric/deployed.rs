//! Dashboards, alerts and runbooks name metrics and labels that exist, and alerts name runbooks.

use super::*;

/// Files under `deploy/` whose names of metrics must exist: `(path, text)`.
fn deployed() -> Vec<(std::path::PathBuf, String)> {
    let deploy = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let mut files = Vec::new();
    let mut dirs = vec![deploy];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                files.push((path, text));
            }
        }
    }
    files
}

fn exists(name: &str) -> bool {
    Metric::ALL.iter().map(|metric| metric.describe()).any(|known| match known.kind {
        Kind::Counter | Kind::Gauge => known.name == name,
        Kind::Histogram(_) => ["", "_bucket", "_sum", "_count"]
            .iter()
            .any(|suffix| name.strip_suffix(suffix) == Some(known.name)),
    })
}

#[test]
fn dashboards_use_metrics_that_exist() {
    let mut used = 0;
    for (path, text) in deployed() {
        for (at, _) in text.match_indices("oncely_") {
            let end = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
            let name = text[at..].split(end).next().unwrap();
            assert!(exists(name), "{} uses {name}", path.display());
            used += 1;
        }
    }
    assert!(used > 40, "only {used} uses found");
}

#[test]
fn every_alert_names_a_runbook_and_every_runbook_has_an_alert() {
    let deployed = deployed();
    let text_of = |end: &str| deployed.iter().find(|(path, _)| path.ends_with(end)).unwrap();
    let (_, alerts) = text_of("prometheus/alerts.yaml");
    let named: Vec<&str> = (alerts.lines())
        .filter_map(|line| line.trim().strip_prefix("runbook: deploy/runbooks/"))
        .collect();
    assert_eq!(alerts.matches("- alert: ").count(), named.len());
    for (alert, name) in alerts.split("- alert: ").skip(1).zip(&named) {
        // What the alert looks at is what its runbook begins with.
        let (_, book) = text_of(&format!("runbooks/{name}"));
        let metric = &alert[alert.find("oncely_").unwrap()..];
        let metric = metric.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next();
        let seen = book.split("**What has happened.**").next().unwrap();
        assert!(seen.contains(metric.unwrap()), "{name} does not name {metric:?}");
    }
    let books = deployed.iter().filter_map(|(path, _)| {
        let is_book = path.parent().is_some_and(|dir| dir.ends_with("runbooks"));
        is_book.then(|| path.file_name().unwrap().to_str().unwrap())
    });
    for book in books {
        assert!(named.contains(&book), "no alert names {book}");
    }
}

/// Expressions of the alerts, one text each.
fn expressions(alerts: &str) -> Vec<String> {
    let mut found = Vec::new();
    for alert in alerts.split("- alert: ").skip(1) {
        let rest = alert.split("expr:").nth(1).unwrap();
        let is_field = |line: &&str| {
            ["for:", "labels:"].iter().any(|field| line.trim_start().starts_with(field))
        };
        let lines = rest.lines().take_while(|line| !is_field(line));
        found.push(lines.collect::<Vec<_>>().join(" ").trim().trim_start_matches('|').to_owned());
    }
    found
}

/// Names before `=` in matchers, behind `by` and `on`.
fn labels_of(expression: &str) -> Vec<&str> {
    let inside = |open: &'static str, close: char| {
        expression.split(open).skip(1).filter_map(move |rest| rest.split(close).next())
    };
    let matched = inside("{", '}')
        .flat_map(|matchers| matchers.split(','))
        .map(|matcher| matcher.split(['=', '!']).next().unwrap());
    let grouped = ["by (", "on ("].into_iter().flat_map(|open| inside(open, ')'));
    matched.chain(grouped.flat_map(|names| names.split(','))).map(str::trim).collect()
}

#[test]
fn alerts_ask_for_labels_that_their_metrics_have() {
    let deployed = deployed();
    let (_, alerts) = deployed.iter().find(|(path, _)| path.ends_with("alerts.yaml")).unwrap();
    let expressions = expressions(alerts);
    assert_eq!(expressions.len(), alerts.matches("- alert: ").count());
    for text in &expressions {
        let balance = |open, close| text.matches(open).count() == text.matches(close).count();
        assert!(balance('(', ')') && balance('{', '}') && balance('[', ']'), "{text}");
        let used: Vec<Description> = (Metric::ALL.iter())
            .map(|metric| metric.describe())
            .filter(|one| {
                let end = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
                text.split(end).any(|word| word == one.name)
            })
            .collect();
        assert!(!used.is_empty(), "{text}");
        for label in labels_of(text) {
            let has = used.iter().any(|one| one.labels.contains(&label));
            assert!(has, "{label} in {text}");
        }
    }
}

#[test]
fn a_person_is_called_for_whatever_waits_for_one() {
    let deployed = deployed();
    let (_, alerts) = deployed.iter().find(|(path, _)| path.ends_with("alerts.yaml")).unwrap();
    let expressions = expressions(alerts).join("\n");
    for metric in [
        Metric::QuarantineOpen,
        Metric::DeadLettersOpen,
        Metric::DeferredLimit,
        Metric::ConsumerLagSeconds,
        Metric::KafkaFatalErrors,
        Metric::BuildInfo,
        Metric::ConnectorInfo,
        Metric::PartitionsAssigned,
    ] {
        assert!(expressions.contains(metric.describe().name), "{metric:?}");
    }
    // A record that the brokers refuse has an alert and a runbook of its own.
    for held in ["oncely_effects_open{", "oncely_effects_held_total["] {
        let alert = alerts.split("- alert: ").find(|alert| alert.contains(held)).unwrap();
        assert!(alert.contains(r#"oncely_effect_attempts_total{type="publish"}"#), "{alert}");
    }
}

#[test]
fn the_dashboard_shows_every_metric() {
    let deployed = deployed();
    let dashboard = |(path, _): &&(std::path::PathBuf, String)| path.ends_with("oncely.json");
    let (_, text) = deployed.iter().find(dashboard).unwrap();
    for metric in Metric::ALL {
        let name = metric.describe().name;
        assert!(text.contains(name), "no panel shows {name}");
    }
}

#[test]
fn every_panel_reads_the_chosen_data_source() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/grafana/oncely.json");
    let text = std::fs::read_to_string(path).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        if panel["type"] != "row" {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
            assert_eq!(panel["targets"][0]["datasource"]["uid"], "${datasource}");
        }
    }
    assert!(!text.contains("${DS_"), "inputs break provisioned installs");
}
