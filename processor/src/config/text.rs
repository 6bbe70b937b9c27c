//! Durations and counts as people write them.

use std::time::Duration;

use super::environment::Environment;
use super::error::ConfigError;

/// `500ms`, `5s`, `2m`, `1h`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(digits)?;
    let ms: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(ms).map(Duration::from_millis)
}

/// A duration between two bounds, both allowed.
pub(super) fn duration_of(
    environment: &Environment,
    name: &'static str,
    default: Duration,
    (least, most): (Duration, Duration),
) -> Result<Duration, ConfigError> {
    let Some(value) = environment.get(name)? else { return Ok(default) };
    let Some(parsed) = duration(&value) else {
        let expected = "duration: write a number and ms, s, m or h, as in 5s";
        return Err(ConfigError::Malformed { name, value, expected });
    };
    if (least..=most).contains(&parsed) {
        return Ok(parsed);
    }
    let (least, most) = (format!("{least:?}"), format!("{most:?}"));
    Err(ConfigError::OutOfRange { name, value, least, most })
}

/// A count between two bounds, both allowed.
pub(super) fn count_of(
    environment: &Environment,
    name: &'static str,
    default: u32,
    (least, most): (u32, u32),
) -> Result<u32, ConfigError> {
    let Some(value) = environment.get(name)? else { return Ok(default) };
    let Ok(parsed) = value.parse() else {
        return Err(ConfigError::Malformed { name, value, expected: "whole number" });
    };
    if (least..=most).contains(&parsed) {
        return Ok(parsed);
    }
    let (least, most) = (least.to_string(), most.to_string());
    Err(ConfigError::OutOfRange { name, value, least, most })
}

/// One of two words.
pub(super) fn word_of(
    environment: &Environment,
    name: &'static str,
    words: [&'static str; 2],
) -> Result<Option<&'static str>, ConfigError> {
    let Some(value) = environment.get(name)? else { return Ok(None) };
    match words.into_iter().find(|word| *word == value) {
        Some(word) => Ok(Some(word)),
        None => Err(ConfigError::NoWord { name, value, words }),
    }
}
