use clap::CommandFactory;

use super::*;

/// Help of every command, so that a change of words is seen.
#[test]
fn help_is_what_people_read() {
    let mut command = Cli::command().term_width(100);
    command.build();
    let mut text = String::new();
    collect(&mut command, &mut text);
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
