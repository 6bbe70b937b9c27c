//! Templates: types, escapes, bounds.

use super::*;
use crate::expr::StateView;

fn event() -> Value {
    let decimal = |text| Value::Decimal(Decimal::parse(text).unwrap());
    Value::object([
        ("id", Value::text("in_1")),
        ("cents", Value::Int(1990)),
        ("more", Value::Int(10)),
        ("price", decimal("19.90")),
        ("huge", decimal("18446744073709551616")),
        ("html", Value::text("<b>'&\"/")),
        ("odd", Value::text("a b&c=d/\u{e9}")),
        ("yes", Value::Bool(true)),
        ("nothing", Value::Null),
        ("list", Value::list([Value::Int(1), Value::text("x"), decimal("0.50")])),
        ("object", Value::object([("k", Value::text("</script>"))])),
    ])
}

fn with_scope<T>(run: impl FnOnce(&Scope<'_>) -> T) -> T {
    let event = event();
    let state = StateView { current: "paid", previous: "open", version: 7, moved: true };
    run(&Scope { event: Some(&event), state: Some(state), ..Scope::default() })
}

fn render(text: &str, target: Target) -> Result<String, RenderError> {
    let template = Template::compile(text, target);
    with_scope(|scope| template.unwrap_or_else(|e| panic!("{text}: {e}")).render(scope))
}

#[test]
fn text_is_put_together() {
    for (text, want) in [
        ("", ""),
        ("plain }} text", "plain }} text"),
        ("Receipt {{ event.id }}!", "Receipt in_1!"),
        ("{{event.id}}{{ event.cents }}\n", "in_11990\n"),
        ("{{ event.price }} {{ event.huge }}", "19.90 18446744073709551616"),
        ("{{ event.yes }}", "true"),
        ("{{ event.cents + event.more }}", "2000"),
        ("{{ event.none | default('-') }}{{ event.nothing or 'n' }}", "-n"),
        ("{% if event.cents > 5 %}big{% endif %} {# note #}", "big "),
        ("{% for x in event.list %}{{ x }};{% endfor %}", "1;x;0.50;"),
        ("{{ event.list | tojson }}", "[1,\"x\",0.50]"),
        ("{{ state.current | upper }}", "PAID"),
        ("{{ event.html }}", "<b>'&\"/"),
    ] {
        assert_eq!(render(text, Target::Text).as_deref(), Ok(want), "{text}");
    }
}

/// The direct way and minijinja must never differ.
#[test]
fn both_ways_give_the_same() {
    let names = ["id", "cents", "price", "huge", "html", "odd", "yes", "nothing", "list", "none"];
    for target in [Target::Text, Target::Html, Target::Url] {
        for name in names {
            let direct = render(&format!("x{{{{ event.{name} }}}}\n"), target);
            let jinja = render(&format!("x{{{{ event.{name} }}}}{{# #}}\n"), target);
            assert_eq!(direct.as_ref().ok(), jinja.as_ref().ok(), "{name} {target:?}");
            assert_eq!(direct.is_err(), ["nothing", "list", "none"].contains(&name), "{name}");
        }
    }
}

#[test]
fn s11_inserted_values_are_escaped_for_where_they_land() {
    let html = render("<p>{{ event.html }}</p>", Target::Html);
    assert_eq!(html.as_deref(), Ok("<p>&lt;b&gt;&#x27;&amp;&quot;&#x2f;</p>"));
    let url = render("https://x.test/a?q={{ event.odd }}", Target::Url);
    assert_eq!(url.as_deref(), Ok("https://x.test/a?q=a%20b%26c%3Dd%2F%C3%A9"));
    let script = render("<script>{{ event.object | tojson }}</script>", Target::Html);
    assert_eq!(script.as_deref(), Ok("<script>{\"k\":\"\\u003c/script\\u003e\"}</script>"));
    // A value that looks like a template is only text.
    let event = Value::object([("x", Value::text("{{ event.id }}{% raw %}"))]);
    let template = Template::compile("{{ event.x }}", Target::Text).unwrap();
    let scope = Scope { event: Some(&event), ..Scope::default() };
    assert_eq!(template.render(&scope).as_deref(), Ok("{{ event.id }}{% raw %}"));
}

#[test]
fn what_is_missing_is_an_error_that_names_it() {
    let error = |text| render(text, Target::Text).unwrap_err().to_string();
    assert_eq!(error("{{ event.none }}"), "`event.none` is not there");
    assert_eq!(error("{{ event.nothing }}"), "`event.nothing` is null, which is no text");
    assert_eq!(error("{{ event.list }}"), "`event.list` is a list, which is no text");
    assert!(error("{{ event.none | upper }}").contains("undefined"));
    assert!(error("{{ event.price * 2 }}").contains("operation"), "decimals are not rounded");
}

#[test]
fn work_and_output_are_bounded() {
    let endless = "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}";
    assert!(render(endless, Target::Text).is_err());
    let event = Value::object([("x", Value::text("x".repeat(300_000)))]);
    let scope = Scope { event: Some(&event), ..Scope::default() };
    let text = "{{ event.x }}".repeat(4);
    let direct = Template::compile(&text, Target::Text).unwrap();
    assert_eq!(direct.render(&scope), Err(RenderError::TooLong));
    let jinja = Template::compile(&format!("{{# #}}{text}"), Target::Text).unwrap();
    assert_eq!(jinja.render(&scope), Err(RenderError::TooLong));
}

#[test]
fn mistakes_are_found_when_it_is_compiled() {
    let error = |text| Template::compile(text, Target::Text).unwrap_err();
    assert_eq!(error("{{ evnt.id }}").to_string(), "unknown name `evnt`");
    assert_eq!(error("{{ evnt.id | upper }}").near(), Some("event"));
    assert_eq!(error("{{ state.curent }}").near(), Some("current"));
    for text in ["{{ event.id", "{% if %}", "{{ event. }}", "{{ event.id | nofilter }}", "{{ }}"] {
        let compiled = Template::compile(text, Target::Text);
        let failed = compiled.map_or(true, |template| with_scope(|s| template.render(s)).is_err());
        assert!(failed, "{text}");
    }
}

#[test]
fn a_single_expression_keeps_its_type() {
    let node = |text: &str| with_scope(|scope| TextNode::compile(text).unwrap().eval(scope));
    let decimal = Value::Decimal(Decimal::parse("19.90").unwrap());
    for (text, want) in [
        ("{{ event.cents }}", Value::Int(1990)),
        (" {{ event.price }} ", decimal.clone()),
        ("{{ event.cents + event.more }}", Value::Int(2000)),
        ("{{ event.none | default(event.price) }}", decimal),
        ("{{ event.nothing }}", Value::Null),
        ("{{ event.yes and event.cents > 1 }}", Value::Bool(true)),
        ("{{ event.object }}", event().get("object").unwrap().clone()),
        ("{{ [event.id, 1] }}", Value::list([Value::text("in_1"), Value::Int(1)])),
        ("{{ {'a': event.id} }}", Value::object([("a", Value::text("in_1"))])),
        ("no {{ event.cents }}", Value::text("no 1990")),
        ("{{ event.cents }}{{ event.more }}", Value::text("199010")),
    ] {
        assert_eq!(node(text), Ok(want), "{text}");
    }
    assert!(node("{{ event.none }}").is_err());
    assert!(node("{{ event.none + 1 }}").is_err());
}

#[test]
fn what_is_read_is_known() {
    let reads = |text| {
        let template = Template::compile(text, Target::Text).unwrap();
        template.reads().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(reads("{{ event.a.b }} {{ tenant }}"), ["event.a.b", "tenant"]);
    assert_eq!(reads("{{ effects.settle.id | upper }}{{ range(3) }}"), ["effects.settle.id"]);
}
