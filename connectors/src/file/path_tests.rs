//! Paths of URLs as a client reads them, whatever an event brings.

use oncely_core::expr::Scope;
use oncely_core::template::url::is_dots;
use oncely_core::template::{RenderError, Target, Template};
use oncely_core::value::Value;
use proptest::prelude::*;

/// A segment of a path: written out, inserted, or both.
fn segment() -> impl Strategy<Value = String> {
    let written = "[a-z.]{1,3}".prop_filter("is resolved", |text| !is_dots(text));
    let value =
        proptest::sample::select(vec!["{{ event.a }}", "{{ event.b }}", "{{ event.b | trim }}"]);
    let value = value.prop_map(str::to_owned);
    let both = (written.clone(), value.clone(), "[a-z.]{0,2}");
    prop_oneof![written, value, both.prop_map(|(before, value, after)| before + &value + &after)]
}

/// What an event may bring: what means something in a path, and anything else.
fn inserted() -> impl Strategy<Value = String> {
    let meaning =
        ["", ".", "..", "%2e", "%2E%2e", "/", "../", "..\\", "?", "#", "a/../b", ";", "\t..", " "];
    prop_oneof![proptest::sample::select(meaning.to_vec()).prop_map(str::to_owned), ".*"]
}

proptest! {
    #[test]
    fn s10_a_path_has_the_segments_of_its_template_whatever_is_inserted(
        segments in prop::collection::vec(segment(), 1..6),
        query in any::<bool>(),
        a in inserted(),
        b in inserted(),
    ) {
        let query = if query { "?q={{ event.a }}" } else { "" };
        let text = format!("https://x.test/{}{query}", segments.join("/"));
        let template = Template::compile(&text, Target::Url).unwrap();
        let event = Value::object([("a", Value::text(&*a)), ("b", Value::text(&*b))]);
        match template.render(&Scope { event: Some(&event), ..Scope::default() }) {
            Err(RenderError::Segment) => {}
            Err(other) => prop_assert!(false, "{other}"),
            Ok(rendered) => {
                let url = url::Url::parse(&rendered).unwrap();
                let called: Vec<_> = url.path_segments().unwrap().collect();
                prop_assert_eq!(called.len(), segments.len(), "{} from {}", url, text);
                for (called, written) in called.iter().zip(&segments) {
                    if !written.contains('{') {
                        prop_assert_eq!(called, written);
                    }
                }
            }
        }
    }
}
