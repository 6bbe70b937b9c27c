//! Times that events declare: plain values, no clock.

use crate::value::Value;

/// Milliseconds since 1970 of an RFC 3339 text or of an integer that is such a number already.
/// Leap seconds count as the second before; years 1 to 9999.
pub fn millis(value: &Value) -> Option<i64> {
    match value {
        Value::Int(ms) => Some(*ms),
        Value::Text(text) => rfc3339(text),
        Value::Null | Value::Bool(_) | Value::Decimal(_) | Value::List(_) | Value::Object(_) => {
            None
        }
    }
}

fn rfc3339(text: &str) -> Option<i64> {
    chrono::DateTime::parse_from_rfc3339(text).ok().map(|time| time.timestamp_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_give_milliseconds() {
        assert_eq!(millis(&Value::text("1970-01-01T00:00:01.5Z")), Some(1_500));
        assert_eq!(millis(&Value::text("1970-01-01T01:00:00+01:00")), Some(0));
        assert_eq!(millis(&Value::Int(7)), Some(7));
        assert_eq!(millis(&Value::text("yesterday")), None);
    }
}
