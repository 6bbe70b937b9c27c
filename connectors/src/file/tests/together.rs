//! Files that run together.

use super::*;

#[test]
fn two_connectors_in_one_group_take_records_from_each_other() {
    let dir = std::env::temp_dir().join(format!("oncely-file-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let other = SMALL.replace("connector: small", "connector: other");
    let grouped = other.replace("[t] }", "[t], group: oncely.small }");
    for (name, text, want, field) in [
        ("one-group", &grouped, Code::GroupTaken, "source.group"),
        ("one-name", &SMALL.to_owned(), Code::ConnectorTaken, "connector"),
    ] {
        let first = dir.join(format!("{name}-a.yaml"));
        let second = dir.join(format!("{name}-b.yaml"));
        fs::write(&first, SMALL).unwrap();
        fs::write(&second, text).unwrap();
        let found = load(&[first, second], &AllSecrets, Check::Live).unwrap_err();
        assert_eq!(found.iter().map(|one| one.code).collect::<Vec<_>>(), [want]);
        assert_eq!(found[0].field, field);
        assert!(found[0].line > 0 && found[0].help.len() > 5, "{:?}", found[0]);
    }
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn events_of_one_entity_do_not_wait_for_those_of_another_connector() {
    let dir = std::env::temp_dir().join(format!("oncely-apart-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let state = |kind: &str, more: &str| {
        format!(
            "scope: shop\nstate: {{ entity: {kind}, key: event.k, version: {{ from: event.v }}, initial: new, {more} \
             transitions: [{{ from: new, to: paid }}] }}\n"
        )
    };
    let found = |name: &str, one: &str, other: &str| {
        let files = [dir.join(format!("{name}-a.yaml")), dir.join(format!("{name}-b.yaml"))];
        let second = SMALL.replace("connector: small", "connector: other");
        fs::write(&files[0], format!("{SMALL}{one}")).unwrap();
        fs::write(&files[1], format!("{second}{other}")).unwrap();
        load(&files, &AllSecrets, Check::Live).err().unwrap_or_default()
    };
    let (waits, applies) = (state("order", "on_parked: wait,"), state("order", ""));
    let told = found("waits", &applies, &waits);
    let lines: Vec<String> = told.iter().map(ToString::to_string).collect();
    assert_eq!(
        told.iter().map(|one| one.code).collect::<Vec<_>>(),
        [Code::WaitsApart],
        "{lines:?}"
    );
    assert_eq!(told[0].field, "scope");
    // A name is a scope as well, in whichever order the files come.
    let named = |state: &str| state.replace("scope: shop\n", "");
    let called = |state: &str| state.replace("scope: shop\n", "scope: other\n");
    let told = found("named", &called(&waits), &named(&applies));
    let told: Vec<(Code, &str)> = told.iter().map(|one| (one.code, &*one.field)).collect();
    assert_eq!(told, [(Code::WaitsApart, "connector")]);
    let waits = waits.replace("entity: order", "entity: basket");
    for (name, one, other) in [("apply", &applies, &applies), ("kinds", &applies, &waits)] {
        let told = found(name, one, other);
        let lines: Vec<String> = told.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "{name}: {lines:?}");
    }
    fs::remove_dir_all(&dir).unwrap();
}
