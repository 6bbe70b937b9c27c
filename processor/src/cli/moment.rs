//! Times as people write them.

use chrono::{DateTime, Duration, NaiveDate, NaiveDateTime, Utc};

use crate::clock;

/// A time, `2026-11-01T00:00Z`, `2026-11-01`, or how long ago: `2h`. Without a zone it is UTC.
pub(super) fn parse(text: &str) -> Result<DateTime<Utc>, String> {
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Ok(time.to_utc());
    }
    let bare = text.strip_suffix(['Z', 'z']).unwrap_or(text);
    for form in ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M"] {
        if let Ok(time) = NaiveDateTime::parse_from_str(bare, form) {
            return Ok(time.and_utc());
        }
    }
    if let Some(midnight) =
        NaiveDate::parse_from_str(bare, "%Y-%m-%d").ok().and_then(|day| day.and_hms_opt(0, 0, 0))
    {
        return Ok(midnight.and_utc());
    }
    ago(text).ok_or_else(|| {
        "write a time (2026-11-01T00:00Z, 2026-11-01) or how long ago (90s, 15m, 2h, 3d)".to_owned()
    })
}

fn ago(text: &str) -> Option<DateTime<Utc>> {
    let unit = text.chars().last()?;
    let number: i64 = text.strip_suffix(unit)?.parse().ok().filter(|number| *number >= 0)?;
    let ago = match unit {
        's' => Duration::try_seconds(number),
        'm' => Duration::try_minutes(number),
        'h' => Duration::try_hours(number),
        'd' => Duration::try_days(number),
        _ => None,
    }?;
    DateTime::from_timestamp_millis(clock::wall_ms())?.checked_sub_signed(ago)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let wanted = DateTime::from_timestamp_millis(1_793_491_200_000).unwrap();
        for text in
            ["2026-11-01T00:00:00Z", "2026-11-01T00:00Z", "2026-11-01", "2026-11-01T01:00:00+01:00"]
        {
            assert_eq!(parse(text), Ok(wanted), "{text}");
        }
        let hour = parse("1h").unwrap();
        let now = DateTime::from_timestamp_millis(clock::wall_ms()).unwrap();
        assert!((now - hour).num_seconds() - 3_600 < 5);
        for text in ["yesterday", "", "h", "-1h", "1w", "2026-13-01"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
