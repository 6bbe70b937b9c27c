//! Help and errors, as people read them.

use clap::CommandFactory;

use super::*;

/// Help of every command, so that a change of words is seen.
#[test]
fn help_is_what_people_read() {
    let mut command = Cli::command().term_width(100);
    command.build();
    let mut text = String::new();
    collect(&mut command, &mut text);
    let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 100).collect();
    assert_eq!(wide, [""; 0], "a terminal of 100 columns breaks these once more");
    insta::assert_snapshot!("help", text);
}

fn collect(command: &mut clap::Command, text: &mut String) {
    if command.get_name() == "help" {
        return;
    }
    let name = command.get_bin_name().unwrap_or("").to_owned();
    text.push_str(&format!("$ {name} --help\n{}\n", command.render_long_help()));
    for subcommand in command.get_subcommands_mut() {
        collect(subcommand, text);
    }
}

#[test]
fn errors_say_what_to_do() {
    let environment = Environment::default();
    let context = |args: &[&str]| {
        let args = ["oncely"].iter().chain(args).map(OsString::from);
        let cli = Cli::try_parse_from(args).unwrap();
        (cli.global.context(environment.clone()).unwrap(), cli.command)
    };
    let mut said = String::new();
    for args in [
        &["migrate", "status"][..],
        &["migrate", "status", "--database", "mysql://x/y"],
        &["migrate", "status", "--database", "postgres://u@db.internal/x"],
        &["migrate", "status", "--database", "postgres://u@127.0.0.1:1/x"],
        &["validate", "no-such-directory"],
        &["effects", "show", "nonsense", "--database", "postgres://u@127.0.0.1:1/x"],
        &["effects", "resolve", "0123456789abcdef0123456789abcdef", "--as", "done", "--reason", ""],
    ] {
        let (context, command) = context(args);
        let error = started(command, &context).unwrap_err();
        let text = print::error_text(&error);
        said.push_str(&format!(
            "$ oncely {}\n{text}\n[{}]\n\n",
            args.join(" "),
            error.exit().code()
        ));
    }
    insta::assert_snapshot!("errors", said);
}

#[test]
fn errors_for_machines_are_one_object_each() {
    let error = |args: &[&str]| print::error_json(&answered(args).unwrap_err())["error"].clone();
    let away = error(&["migrate", "status", "--database", "postgres://u@127.0.0.1:1/x"]);
    assert_eq!((&away["exit"], &away["exit_code"]), (&"unavailable".into(), &69.into()));
    assert!(away["causes"].as_array().is_some_and(|causes| !causes.is_empty()), "{away}");
    let unset = error(&["migrate", "status"]);
    assert_eq!(unset["exit_code"], 78);
    assert!(unset["errors"][0].as_str().unwrap().contains("ONCELY_DATABASE_URL"), "{unset}");
    let dir = std::env::temp_dir().join(format!("oncely-errors-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("c.yaml"), "nmae: x\n").unwrap();
    let wrong = error(&["test", dir.to_str().unwrap()]);
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(wrong["findings"][0]["code"].is_string(), "{wrong}");
    let asked = |args: &[&str]| output_asked(&args.iter().map(OsString::from).collect::<Vec<_>>());
    assert_eq!(asked(&["oncely", "efects", "--output", "json"]), Output::Json);
    assert_eq!(asked(&["oncely", "efects", "--output=json"]), Output::Json);
    assert_eq!(asked(&["oncely", "efects", "--output", "table"]), Output::Table);
}

/// The examples that are shown to people, with the environment left out.
fn answered(args: &[&str]) -> Result<Answer, CliError> {
    let args = ["oncely"].iter().chain(args).map(OsString::from);
    let cli = Cli::try_parse_from(args).unwrap();
    let context = cli.global.context(Environment::default()).unwrap();
    started(cli.command, &context)
}

fn examples(rest: &str) -> String {
    format!("{}/../connectors/examples/{rest}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_dry_run_shows_what_would_be_sent() {
    let connector = examples("invoice-paid.yaml");
    let (paid, other) = (examples("samples/paid.json"), examples("samples/paid-other-amount.json"));
    let args = ["test", &connector, "--event", &paid, "--event", &paid, "--event", &other];
    let answer = answered(&args).unwrap();
    insta::assert_snapshot!("dry_run", answer.text.replace(&examples(""), ""));
    let first = &answer.json["events"][0];
    assert_eq!(first["outcome"], "applied");
    assert_eq!(first["effects"][0]["request"]["kind"], "http");
    assert_eq!(answer.json["events"][1]["effects"].as_array().unwrap().len(), 0);
}

#[test]
fn a_dry_run_shows_what_is_rendered_late_and_how_is_asked() {
    let paid = answered(&[
        "test",
        &examples("invoice-paid.yaml"),
        "--event",
        &examples("samples/paid.json"),
    ]);
    let paid = paid.unwrap();
    let late = &paid.json["events"][0]["effects"][1]["late"];
    assert!(late["reads"][0].as_str().unwrap().starts_with("effects.settle."), "{late}");
    assert!(late["made"]["request"].to_string().contains("‹effects.settle."), "{late}");
    assert!(paid.text.contains("rendered when these results are there"), "{}", paid.text);
    let payout = examples("payout-requested.yaml");
    let endless = answered(&["test", &payout, "--event", "/dev/zero"]).unwrap_err();
    let text = print::error_text(&endless);
    assert!(endless.exit() == Exit::Usage && text.contains("/dev/zero is longer than"), "{text}");
    let answer = answered(&["test", &payout, "--event", &examples("samples/payout.json")]).unwrap();
    let lookup = &answer.json["events"][0]["effects"][0]["lookup"]["request"];
    assert_eq!(lookup["kind"], "http", "{}", answer.json);
    assert!(answer.text.contains("asked when its outcome is unknown"), "{}", answer.text);
}

#[test]
fn the_tests_of_the_examples_pass() {
    let answer = answered(&["test", &examples("")]).unwrap();
    assert_eq!(answer.exit, Exit::Ok, "{}", answer.text);
    assert_eq!(answered(&["validate", &examples("")]).unwrap().exit, Exit::Ok);
}

#[test]
fn a_test_that_fails_says_where_and_why() {
    let dir = std::env::temp_dir().join(format!("oncely-test-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let text = std::fs::read_to_string(examples("usage-ledger.yaml")).unwrap();
    let (head, _) = text.split_once("\ntests:").unwrap();
    let tests = "tests:\n  - name: wrong\n    events: [run.json, bad.json]\n    \
                 expect: { outcomes: [duplicate, applied], effects: { usage: 2 } }\n";
    std::fs::write(dir.join("c.yaml"), format!("{head}\n{tests}")).unwrap();
    std::fs::copy(examples("samples/run.json"), dir.join("run.json")).unwrap();
    std::fs::write(dir.join("bad.json"), "{").unwrap();
    let answer = answered(&["test", dir.to_str().unwrap()]).unwrap();
    assert_eq!(answer.exit, Exit::Failed);
    insta::assert_snapshot!("failed_test", answer.text.replace(dir.to_str().unwrap(), "DIR"));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn codes_and_settings_are_explained() {
    let said =
        ["E041", "settings", "effects"].map(|topic| answered(&["help", topic]).unwrap().text);
    insta::assert_snapshot!("help_topics", said.join("\n---\n"));
    let wrong = |topic: &[&str]| answered(&[&["help"], topic].concat()).unwrap_err();
    assert_eq!(wrong(&["E999"]).exit(), Exit::Usage);
    assert!(wrong(&["efects"]).to_string().ends_with("did you mean effects?"));
    assert!(wrong(&["effects", "resolv"]).to_string().ends_with("did you mean resolve?"));
}

#[test]
fn findings_refuse_all_files() {
    let dir = std::env::temp_dir().join(format!("oncely-findings-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let text = std::fs::read_to_string(examples("usage-ledger.yaml")).unwrap();
    let (head, _) = text.split_once("\ntests:").unwrap();
    std::fs::write(dir.join("a.yaml"), head).unwrap();
    std::fs::write(dir.join("b.yaml"), head.replace("identity:", "idenity:")).unwrap();
    let path = dir.to_str().unwrap();
    let answer = answered(&["validate", path]).unwrap();
    assert_eq!(answer.exit, Exit::Config);
    assert_eq!(answer.json["findings"].as_array().unwrap().len(), 1, "one mistake");
    insta::assert_snapshot!("findings", answer.text.replace(path, "DIR"));
    let error = answered(&["test", path]).unwrap_err();
    assert_eq!(error.exit(), Exit::Config);
    std::fs::remove_dir_all(dir).unwrap();
}

/// The environment of a command that needs both servers.
fn exit_of(args: &[&str], pairs: &[(&str, &str)]) -> (u8, String) {
    let args = ["oncely"].iter().chain(args).map(OsString::from);
    let cli = Cli::try_parse_from(args).unwrap();
    let environment = Environment::of_pairs(pairs.iter().copied());
    let ended = cli.global.context(environment).and_then(|context| started(cli.command, &context));
    match ended {
        Ok(answer) => (answer.exit.code(), answer.text),
        Err(error) => (error.exit().code(), print::error_text(&error)),
    }
}

#[test]
fn a_mistyped_setting_stops_every_command_but_help() {
    let pairs = [("ONCELY_LAESE", "3s"), ("ONCELY_DATABASE_URL", "postgres://u@127.0.0.1:1/x")];
    let (code, text) = exit_of(&["effects", "list"], &pairs);
    assert_eq!(code, 78);
    assert_eq!(text, "error: ONCELY_LAESE is no setting, did you mean ONCELY_LEASE?");
    assert_eq!(exit_of(&["help", "settings"], &pairs).0, 0);
    let (code, text) = exit_of(&["run", "--http-listen", "9090"], &pairs);
    assert_eq!(code, 78);
    for name in ["ONCELY_LAESE", "ONCELY_KAFKA_BROKERS", "ONCELY_HTTP_LISTEN"] {
        assert!(text.contains(name), "a worker is told all at once: {text}");
    }
}

#[test]
fn brokers_and_database_that_are_away_are_a_dependency_down() {
    let away = [
        ("ONCELY_DATABASE_URL", "postgres://u@127.0.0.1:1/x"),
        ("ONCELY_KAFKA_BROKERS", "127.0.0.1:1"),
    ];
    let file = examples("usage-ledger.yaml");
    let (code, text) = exit_of(&["validate", "--live", &file], &away);
    assert_eq!(code, 69, "{text}");
    assert!(text.contains("127.0.0.1:1/x cannot be reached"), "{text}");
    assert!(text.contains("kafka at 127.0.0.1:1 cannot be reached"), "{text}");
    assert!(text.trim_end().ends_with("; of 2 live checks 2 without an answer"), "{text}");
}

/// What is wrong in a file, with a secret, with the database and with Kafka is told at once.
#[test]
fn one_mistake_hides_no_other() {
    let (code, text) = exit_of(&["validate", "--live", &examples("invoice-paid.yaml")], &[]);
    assert_eq!(code, 78, "{text}");
    for told in [
        "schema of the database: ONCELY_DATABASE_URL is not set",
        "topics of invoice-paid: ONCELY_KAFKA_BROKERS is not set",
        "set ONCELY_SECRETS_DIR, which is not set, to a directory that has a file `billing_token`",
    ] {
        assert!(text.contains(told), "{told:?} is not in {text}");
    }
    let secrets = [("ONCELY_SECRETS_DIR", "/nowhere")];
    let (_, text) = exit_of(&["validate", "--live", &examples("invoice-paid.yaml")], &secrets);
    assert!(text.contains("ONCELY_SECRETS_DIR names: /nowhere/billing_token"), "{text}");
}

#[test]
fn a_mistyped_reason_is_no_empty_list() {
    let list = |place: &str, reason: &str| {
        let args = ["oncely", place, "list", "--cause", reason];
        Cli::try_parse_from(args).map(drop).map_err(|error| error.to_string())
    };
    for place in ["dlq", "quarantine"] {
        let error = list(place, "mising_id").unwrap_err();
        assert!(error.contains("did you mean missing_id?"), "{error}");
        assert!(list(place, "bogus").unwrap_err().contains("the causes are bad_"));
    }
    for known in crate::worker::reasons() {
        list("dlq", known).unwrap();
    }
}

/// Whoever asks how a command is used is shown it.
#[test]
fn every_help_has_examples() {
    let mut command = Cli::command();
    command.build();
    let mut without = Vec::new();
    fn look(command: &clap::Command, without: &mut Vec<String>) {
        let names: Vec<_> = command.get_subcommands().filter(|c| c.get_name() != "help").collect();
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        if !text.contains("Examples:") {
            without.push(command.get_bin_name().unwrap_or("").to_owned());
        }
        names.into_iter().for_each(|command| look(command, without));
    }
    look(&command, &mut without);
    assert_eq!(without, Vec::<String>::new());
    // A command that is broken into two lines cannot be copied.
    let mut command = Cli::command().term_width(100);
    command.build();
    let mut text = String::new();
    collect(&mut command, &mut text);
    let examples = text.lines().filter(|line| line.starts_with("  oncely "));
    let long: Vec<_> = examples.filter(|line| line.len() > 98).collect();
    assert!(long.is_empty(), "{long:#?}");
}

/// Fenced blocks of a language in the README.
fn readme(language: &str) -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
    let text = std::fs::read_to_string(path).unwrap();
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).map(|rest| rest.split("\n```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_commands_of_the_readme_are_commands() {
    let blocks = readme("sh").join("\n");
    let lines = blocks.lines().map(|line| line.split(" #").next().unwrap().trim());
    let mut tried = 0;
    for line in lines.filter(|line| line.starts_with("oncely ")) {
        // As a shell splits it, as far as the README goes.
        let mut args = Vec::new();
        for (index, part) in line.split('"').enumerate() {
            if index % 2 == 1 {
                args.push(part.to_owned());
            } else {
                args.extend(part.split_whitespace().map(str::to_owned));
            }
        }
        let parsed = Cli::try_parse_from(args.iter().map(OsString::from));
        assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        tried += 1;
    }
    assert!(tried > 12, "only {tried} commands were found");
    // Variables that it exports are settings.
    for name in blocks.split_whitespace().filter_map(|word| word.split_once('=')) {
        let pairs = [(name.0, "x")];
        config::check_names(&Environment::of_pairs(pairs)).unwrap();
    }
}

#[test]
fn the_connector_of_the_readme_does_what_the_readme_says() {
    let dir = std::env::temp_dir().join(format!("oncely-readme-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let whole = readme("yaml").into_iter().find(|block| block.starts_with("version: 1")).unwrap();
    std::fs::write(dir.join("signup.yaml"), whole).unwrap();
    std::fs::write(dir.join("ada.json"), readme("json").concat()).unwrap();
    let answer = |command: &str| {
        let args = ["oncely", command, dir.to_str().unwrap()].map(OsString::from);
        let cli = Cli::try_parse_from(args).unwrap();
        let pairs = [("PROVIDER_URL", "http://127.0.0.1:1")];
        let context = cli.global.context(Environment::of_pairs(pairs)).unwrap();
        started(cli.command, &context).unwrap()
    };
    for command in ["validate", "test"] {
        let answer = answer(command);
        assert_eq!(answer.exit, Exit::Ok, "{}", answer.text);
    }
    std::fs::remove_dir_all(dir).unwrap();
}

/// Commands of a text: spans of code that begin with the program, and lines of blocks.
fn commands(text: &str) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    let mut found = Vec::new();
    for (index, part) in text.split("```").enumerate() {
        if index % 2 == 1 {
            found.extend(part.lines().map(|line| line.split("  #").next().unwrap().to_owned()));
        } else {
            found.extend(part.split('`').skip(1).step_by(2).map(|span| span.replace('\n', " ")));
        }
    }
    found.retain(|command| command.trim_start().starts_with("oncely "));
    found
}

/// What a shell makes of a command, with something for each word that stands for something.
fn words(command: &str) -> Vec<String> {
    let key = oncely_core::key::Key::from_bytes([7; 16]).wire();
    let mut words = Vec::new();
    for (index, part) in command.split('"').enumerate() {
        match index % 2 {
            1 => words.push(part.to_owned()),
            _ => words.extend(part.split_whitespace().map(str::to_owned)),
        }
    }
    let known = |word: String| match &*word {
        "KEY" | "ef_…" => key.clone(),
        "NUMBER" => "7".to_owned(),
        "WHERE" => "earliest".to_owned(),
        "CAUSE" => "syntax".to_owned(),
        _ => word,
    };
    words.into_iter().map(known).collect()
}

#[test]
fn every_override_of_the_runbooks_and_the_readme_can_be_given() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = vec![root.join("README.md")];
    let runbooks = std::fs::read_dir(root.join("deploy/runbooks")).unwrap();
    files.extend(runbooks.map(|entry| entry.unwrap().path()));
    let overrides =
        ["resolve", "redrive", "release", "discard", "retry", "accept", "enable", "rewind"];
    let (mut tried, mut wrong) = (0, Vec::new());
    for path in files {
        for command in commands(&std::fs::read_to_string(&path).unwrap()) {
            let words = words(&command);
            // Three words name the command, and nothing is to be typed.
            if words.len() > 3 && overrides.contains(&&*words[2]) {
                tried += 1;
                if let Err(error) = Cli::try_parse_from(&words) {
                    wrong.push(format!("{}: {command}: {error}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried > 15, "only {tried} were found");
}
