//! Lists that are cut, and names that nobody has.

use super::*;

/// Of how many rows a list is, and names that nobody knows.
pub(super) fn cut_lists(world: &World) {
    let cut = world.oncely(&["effects", "list", "--limit", "1"]);
    assert!(cut.text.ends_with("showing 1 of 2 effects; --limit shows more\n"), "{}", cut.text);
    assert_eq!((&cut.json["total"], &cut.json["total_is_at_least"]), (&2.into(), &false.into()));
    for list in ["dlq", "quarantine", "deferred", "outbox"] {
        let args = [list, "list", "--limit", "1", "--connector", "invoice-paid"];
        assert_eq!(world.oncely(&args).json["total"], u8::from(list == "quarantine"), "{list}");
    }
    let change = ["--connector", "invoice-payd", "--reason", "x", "--yes"];
    for args in [
        &["effects", "list"][..],
        &["effects", "resolve", "--as", "done"],
        &["dlq", "list"],
        &["quarantine", "discard"],
        &["deferred", "list"],
        &["deferred", "release"],
        &["outbox", "list"],
        &["outbox", "retry"],
        &["webhooks", "list"],
        &["explain", "in_1"],
    ] {
        let reads = args.contains(&"list") || args.contains(&"explain");
        let more = if reads { &change[..2] } else { &change[..] };
        let told = world.try_oncely(&[args, more].concat()).unwrap_err().to_string();
        assert!(told.contains("did you mean invoice-paid?"), "{args:?}: {told}");
    }
}

/// A list that a mistyped name makes empty says so; one that is empty for good reasons says nothing.
pub(super) fn that_nobody_has(world: &World) {
    let said = |args: &[&str]| {
        let answer = world.oncely(args);
        assert_eq!(answer.exit, Exit::Ok, "{}", answer.text);
        (answer.text.lines().last().unwrap().to_owned(), answer.json["hints"].is_array())
    };
    let list = |more: &[&str]| said(&[&["effects", "list"][..], more].concat());
    let (text, hinted) = list(&["--effect", "recipt"]);
    assert!(hinted && text.ends_with("did you mean receipt?"), "{text}");
    let (text, _) = list(&["--connector", "other", "--effect", "settle"]);
    assert!(text.starts_with("other as it ran last has no effect settle"), "{text}");
    let (text, _) = list(&["--tenant", "acct7"]);
    assert!(text.ends_with("of tenant acct7: did you mean acct_7?"), "{text}");
    assert_eq!(
        list(&["--effect", "settle", "--tenant", "acct_7", "--status", "rejected"]),
        ("0 effects".to_owned(), false)
    );
    let (text, _) = said(&["progress", "list", "--group", "gg", "--topic", "billing.invoice.v1"]);
    assert!(text.ends_with("did you mean billing.invoices.v1?"), "{text}");
    let none =
        ["effects", "resolve", "--effect", "setle", "--as", "done", "--reason", "x", "--yes"];
    let none = world.try_oncely(&none).unwrap_err().to_string();
    assert!(none.contains("no effect is meant") && none.contains("did you mean settle?"), "{none}");
    let other = world.oncely(&["explain", "in_1", "--tenant", "acct7"]);
    assert!(other.text.contains("; it is of tenant acct_7"), "{}", other.text);
}
