//! Expressions: plain paths and CEL give the same, and integers stay integers.

use proptest::prelude::*;

use super::*;
use crate::value::Decimal;

fn event() -> Value {
    let decimal = |text| Value::Decimal(Decimal::parse(text).unwrap());
    Value::object([
        ("id", Value::text("in_1")),
        ("type", Value::text("invoice.paid")),
        ("version", Value::Int(7)),
        ("big", Value::Int((1 << 53) + 1)),
        ("price", decimal("19.90")),
        ("huge", decimal("18446744073709551616")),
        ("long", decimal("0.12345678901234567890123")),
        ("nothing", Value::Null),
        ("tags", Value::list([Value::text("a"), Value::text("b")])),
        ("lines", Value::list([Value::object([("cents", Value::Int(5))])])),
        ("data", Value::object([("x", Value::Int(1))])),
        ("same", Value::object([("x", Value::Int(1))])),
    ])
}

fn eval(text: &str) -> Result<Value, EvalError> {
    let event = event();
    let headers = [
        Header { name: "h", value: Some(b"first") },
        Header { name: "h", value: Some(b"last") },
        Header { name: "bytes", value: Some(&[0xff]) },
        Header { name: "null", value: None },
    ];
    let scope = Scope {
        event: Some(&event),
        headers: &headers,
        meta: Some(Meta {
            topic: "t",
            partition: 3,
            offset: 42,
            timestamp_ms: Some(5),
            key: Some(b"k"),
        }),
        state: Some(StateView { current: "paid", previous: "open", version: 7, moved: true }),
        tenant: Some("acct"),
        ..Scope::default()
    };
    Expr::compile(text).unwrap_or_else(|error| panic!("{text}: {error}")).eval(&scope)
}

#[test]
fn paths_and_cel_agree() {
    for (text, want) in [
        ("event.id", Value::text("in_1")),
        ("event.lines[0].cents", Value::Int(5)),
        ("event[\"lines\"][0]['cents']", Value::Int(5)),
        ("event.nothing", Value::Null),
        ("headers.h", Value::text("last")),
        ("headers[\"null\"]", Value::Null),
        ("meta.offset", Value::Int(42)),
        ("meta.key", Value::text("k")),
        ("state.current", Value::text("paid")),
        ("tenant", Value::text("acct")),
    ] {
        assert_eq!(eval(text), Ok(want.clone()), "{text}");
        assert_eq!(eval(&format!("true ? {text} : {text}")), Ok(want), "{text} through CEL");
    }
}

#[test]
fn cel_reads_events_as_they_are() {
    let yes = Value::Bool(true);
    for (text, want) in [
        ("event.id + \":\" + event.type", Value::text("in_1:invoice.paid")),
        ("event.version + 1", Value::Int(8)),
        ("event.big + 0", Value::Int((1 << 53) + 1)),
        ("event.type in [\"invoice.paid\", \"x\"]", yes.clone()),
        ("has(event.id) && !has(event.none)", yes.clone()),
        ("has(event.data.y) ? 1 : 2", Value::Int(2)),
        ("\"x\" in event.data", yes.clone()),
        ("event.data.size() == 1 && size(event.tags) == 2", yes.clone()),
        ("event.data == event.same", yes.clone()),
        ("event.data == {\"x\": 1} && {\"x\": 1} == event.data", yes.clone()),
        ("event.tags == [\"a\", \"b\"]", yes.clone()),
        ("event.lines.all(line, line.cents > 0)", yes.clone()),
        ("event.data.all(name, name == \"x\")", yes.clone()),
        ("event.tags.map(tag, tag + \"!\")[1]", Value::text("b!")),
        ("event.price > 19.0", yes.clone()),
        ("entered(\"paid\") || entered(\"open\")", yes.clone()),
        ("!entered(\"open\")", yes.clone()),
        ("state.previous == \"open\" && state.version == 7", yes.clone()),
        ("event.id.startsWith(\"in_\") && event.id.matches(\"^in_[0-9]+$\")", yes.clone()),
        ("event.id.trim().upperAscii()", Value::text("IN_1")),
        ("headers[\"h\"] == \"last\" && !(\"bytes\" in headers)", yes.clone()),
        ("event.nothing == null", yes),
        ("string(event.version)", Value::text("7")),
        ("true ? event.data : event.same", Value::object([("x", Value::Int(1))])),
    ] {
        assert_eq!(eval(text), Ok(want), "{text}");
    }
}

#[test]
fn d4_no_number_is_ever_rounded() {
    assert_eq!(eval("event.huge").unwrap().as_key_part().unwrap(), "18446744073709551616");
    let exact = |text| Value::Decimal(Decimal::parse(text).unwrap());
    assert_eq!(eval("true ? event.huge : 0"), Ok(exact("18446744073709551616")));
    let text = "event.long == event.long && event.long != 0.12345678901234568";
    assert_eq!(eval(text), Ok(Value::Bool(true)));
    for text in ["event.huge > 1.0", "event.long + 1.0", "event.version / 0", "1.0 / 0.0"] {
        let Err(error) = eval(text) else { panic!("{text} gave a number") };
        assert!(!error.is_absent(), "{text}: {error}");
    }
    assert!(eval("9223372036854775807 + event.version").is_err());
}

#[test]
fn what_is_missing_is_told_apart_from_what_is_broken() {
    for text in ["event.none", "event.id.x", "event.tags[9]", "headers.none", "headers.bytes"] {
        assert!(eval(text).unwrap_err().is_absent(), "{text}");
    }
    assert!(eval("event.none + 1").unwrap_err().is_absent());
    let broken = eval("event.id + 1").unwrap_err();
    assert_eq!(broken.to_string(), "cannot add string and int");
    assert!(!broken.to_string().contains("in_1"), "values stay out of error texts");
}

#[test]
fn s13_error_texts_hold_no_values_of_the_event() {
    for text in [
        "event.id + 1",
        "event.id < 1",
        "event.tags[event.id]",
        "int(event.id)",
        "event.data[event.id]",
        "event.id.matches(event.type + \"(\")",
        "event.id ? 1 : 2",
        "event.id.all(x, x)",
        "{event.price: 1}",
    ] {
        let error = eval(text).unwrap_err();
        let shown = format!("{error} {error:?}");
        let leaks = shown.contains("in_1") && !text.contains("event.data[");
        assert!(!leaks && !shown.contains("19.9"), "{text}: {shown}");
    }
}

#[test]
fn entered_needs_a_move() {
    let entered = Expr::compile("entered(\"paid\")").unwrap();
    let cel = Expr::compile("entered(\"paid\") && true").unwrap();
    for (current, previous, moved, want) in [
        ("paid", "open", true, true),
        ("paid", "open", false, false),
        ("paid", "paid", true, false),
        ("open", "paid", true, false),
    ] {
        let state = StateView { current, previous, version: 1, moved };
        let scope = Scope { state: Some(state), ..Scope::default() };
        assert_eq!(entered.is_true(&scope), Ok(want));
        assert_eq!(cel.is_true(&scope), Ok(want));
    }
    assert_eq!(entered.states_entered(), [Box::from("paid")]);
}

#[test]
fn mistakes_are_found_when_it_is_compiled() {
    for (text, message, at, near) in [
        ("", "the expression is empty", None, None),
        ("evnt.id", "unknown name `evnt`", Some(0), Some("event")),
        ("  evnt.id", "unknown name `evnt`", Some(2), Some("event")),
        ("1 + evnt.id", "unknown name `evnt`", None, Some("event")),
        ("meta.ofset", "`meta` has no member `ofset`", Some(0), Some("offset")),
        ("state.curent == 'x'", "`state` has no member `curent`", None, Some("current")),
        ("sizes(event.a)", "unknown function `sizes`", None, Some("size")),
        ("timestamp(event.a)", "unknown function `timestamp`", None, None),
        ("entered(event.a)", "`entered` takes one state name in quotes", None, None),
        ("effects", "`effects` must be followed by a name: `effects.name`", Some(0), None),
        ("effects[event.a]", "`effects` must be followed by a name: `effects.name`", None, None),
        ("X{a: 1}", "expressions make no structs", None, None),
    ] {
        let error = Expr::compile(text).unwrap_err();
        assert_eq!(error.to_string(), message, "{text}");
        assert!(at.is_none() || error.at() == at, "{text}: {error:?}");
        assert_eq!(error.near(), near, "{text}");
    }
    let error = Expr::compile("event.a + ").unwrap_err();
    assert!(matches!(error, ExprError::Syntax { .. }), "{error:?}");
}

#[test]
fn b_hostile_texts_are_errors_not_crashes() {
    let long = "a".repeat(TEXT_BYTES_MAX + 1);
    let deep = |open: &str, close: &str, times| {
        format!("{}event.a{}", open.repeat(times), close.repeat(times))
    };
    for text in [
        long,
        deep("(", ")", 2000),
        deep("[", "]", 2000),
        deep("event.a[", "]", 400),
        format!("event.a{}", " + event.a".repeat(400)),
        format!("event.a{}", ".a".repeat(10) + "."),
        "event.a.all(x, event.a.all(y, event.a.all(z, true)))".to_owned(),
        "\u{0}".to_owned(),
        "'\\uD800'".to_owned(),
        "event.a ? ".repeat(300),
        "))))".to_owned(),
        "0x".to_owned(),
        "99999999999999999999".to_owned(),
    ] {
        assert!(Expr::compile(&text).is_err(), "{}", &text[..text.len().min(60)]);
    }
    // Folded by the parser, or refused: either is fine, a crash is not.
    for text in [deep("-", "", 4000), deep("!", "", 4000), deep("- ", "", 2000)] {
        let _compiled = Expr::compile(&text).is_ok();
    }
}

#[test]
fn coordinates_identify_nothing() {
    for (text, want) in [
        ("meta.offset", true),
        ("string(meta.partition) + ':' + string(meta.offset)", true),
        ("'fixed'", true),
        ("event.id", false),
        ("event.id + string(meta.offset)", false),
        ("headers.id", false),
    ] {
        assert_eq!(Expr::compile(text).unwrap().is_coordinates_only(), want, "{text}");
    }
}

#[test]
fn what_is_read_is_known() {
    let reads = |text: &str| {
        let expr = Expr::compile(text).unwrap();
        expr.reads().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(reads("effects.settle.id + event.a[0].b"), ["event.a[0].b", "effects.settle.id"]);
    assert_eq!(reads("event.items.all(item, item.x > event.y)"), ["event.items", "event.y"]);
    assert_eq!(reads("has(event.a) || event.b == \"event.c\""), ["event.a", "event.b"]);
    assert_eq!(reads("event.list[event.index]"), ["event.index", "event.list"]);
}

/// A worker has two megabytes of stack, and something stands below the evaluation.
#[test]
fn the_deepest_accepted_tree_evaluates_on_a_small_stack() {
    let text = format!("event.a{}", " + event.a".repeat(super::cel::DEPTH_MAX - 4));
    let expr = Expr::compile(&text).unwrap();
    let run = move || {
        let event = Value::object([("a", Value::Int(1))]);
        expr.eval(&Scope { event: Some(&event), ..Scope::default() })
    };
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap();
    let sum = i64::try_from(super::cel::DEPTH_MAX - 3).unwrap();
    assert_eq!(thread.join().unwrap(), Ok(Value::Int(sum)));
}

#[test]
fn what_an_expression_gives_may_show_in_its_form() {
    for (text, kind) in [
        ("[event.a, event.b]", Some(Kind::List)),
        ("event.a == 1 ? [1] : [2]", Some(Kind::List)),
        ("{'a': event.a}", Some(Kind::Object)),
        ("null == event.a", Some(Kind::Bool)),
        ("!(event.a in [1]) || event.b > 1", Some(Kind::Bool)),
        ("has(event.a)", Some(Kind::Bool)),
        ("entered('paid')", Some(Kind::Bool)),
        ("event.a == 1 ? [1] : event.b", None),
        ("event.a + event.b", None),
        ("event.a[0]", None),
        ("event.a", None),
    ] {
        assert_eq!(Expr::compile(text).unwrap().kind(), kind, "{text}");
    }
}

/// What a loop may walk does not hang on what an event brings. Without the bound each of these takes minutes, or hours.
#[test]
fn loops_over_long_lists_end() {
    let numbers = |count: i64| Value::List((0..count).map(Value::Int).collect());
    let of = |count: i64| {
        let text = "x".repeat(usize::try_from(count).unwrap());
        Value::object([("a", numbers(count)), ("b", numbers(count)), ("t", Value::text(text))])
    };
    let eval = |text: &str, event: &Value| {
        let expr = Expr::compile(text).unwrap();
        expr.eval(&Scope { event: Some(event), ..Scope::default() })
    };
    let long = of(50_000);
    for (text, short, found) in [
        ("event.a.all(a, event.b.exists(b, a == b))", 500, Value::Bool(true)),
        ("event.a.all(a, a in event.b)", 500, Value::Bool(true)),
        ("event.a.filter(a, event.b.exists(b, a == b)).size()", 500, Value::Int(500)),
        ("event.a.map(a, event.b.map(b, b).size()).size()", 500, Value::Int(500)),
        ("event.a.all(a, event.t.contains('x'))", 500, Value::Bool(true)),
        ("event.a.all(a, event.t.matches('x+'))", 500, Value::Bool(true)),
        // An error of one side is gone over where the other one decides.
        ("event.a.all(a, event.b.exists(b, a == b)) || true", 500, Value::Bool(true)),
        // Two loops and the walk of `in`.
        ("event.a.exists(c, event.a.all(a, a in event.b) || true)", 50, Value::Bool(true)),
    ] {
        assert_eq!(eval(text, &of(short)), Ok(found), "{text}");
        assert_eq!(eval(text, &long), Err(EvalError::TooManySteps), "{text}");
        assert_eq!(eval("event.a.size()", &long), Ok(Value::Int(50_000)), "the next one is free");
    }
    // One loop over all that a record may hold is none too many.
    assert_eq!(eval("event.a.all(a, a >= 0)", &of(500_000)), Ok(Value::Bool(true)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_text_makes_it_panic(
        text in "(event|state|meta|entered|has|size|true|null|in|\\.[a-z]|[-+*/%<>=!&|?:()\\[\\]{}.,\"' 0-9]){0,24}",
    ) {
        if let Ok(expr) = Expr::compile(&text) {
            let event = event();
            let outcome = expr.eval(&Scope { event: Some(&event), ..Scope::default() });
            prop_assert!(outcome.is_ok() || outcome.is_err());
        }
    }
}
