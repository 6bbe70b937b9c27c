//! What to do about a finding, and what is no finding where a file is only checked.

use super::*;

/// The codes that once stood there alone. That each finding has a remedy is seen to by its type.
const TOLD_WITH_A_REMEDY: [&str; 13] = [
    "E002", "E010", "E013", "E016", "E017", "E021", "E033", "E034", "E035", "E043", "E046", "W103",
    "W105",
];

#[test]
fn what_is_wrong_is_told_with_what_to_do() {
    let mut told = std::collections::BTreeSet::new();
    for path in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/file/bad")).unwrap() {
        let path = path.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "snap") {
            let text = fs::read_to_string(path).unwrap();
            for finding in text
                .split("\n\n")
                .filter(|part| part.contains("error[") || part.contains("warning["))
            {
                let (_, code) = finding.split_once('[').unwrap();
                told.insert(code.get(..4).unwrap().to_owned());
                let help = finding.split_once(" = help: ").map_or("", |(_, help)| help);
                assert!(help.len() > 5, "{finding}");
            }
        }
    }
    assert!(TOLD_WITH_A_REMEDY.iter().all(|code| told.contains(*code)), "{told:?}");
    assert!(told.len() > 40, "{told:?}");
}

#[test]
fn where_a_request_goes_may_be_known_only_where_it_runs() {
    let provider = |kind: &str, url: &str| {
        format!(
            "{SMALL}effects:\n  - {{ id: a, type: email, key: event.id, to: a@x.test, from: b@x.test, subject: s, text: t, \
             provider: {{ kind: {kind}, {url}, token: \"${{secret:t}}\" }} }}\n"
        )
    };
    let http = |url: &str| {
        format!(
            "{SMALL}effects:\n  - {{ id: a, type: http, key: event.id, request: {{ url: \"{url}\" }} }}\n"
        )
    };
    for text in [
        provider("resend", "url: \"${env:X}\""),
        http("${env:X}"),
        http("${env:X}/a/{{ event.id }}"),
        http("${env:X}://host/a"),
        http("https://${env:X}/a"),
    ] {
        let made = compile("x.yaml", &text, &NothingSet, Check::Offline);
        let made = made.unwrap_or_else(|found| panic!("{text}{}", shown(&found)));
        let codes: Vec<_> = made.warnings.iter().map(|one| one.code).collect();
        assert_eq!(codes, [Code::UnresolvedHere], "{text}");
        assert!(compile("x.yaml", &text, &NothingSet, Check::Live).is_err(), "{text}");
    }
}
