//! Names that look like settings and are none.
//!
//! A mistyped name would leave a default in force without a word, so it is refused, with the name
//! that was probably meant. What others put into the environment under our prefix is let be.

use oncely_core::expr::spelling::nearest;

use super::environment::Environment;
use super::error::ConfigError;
use super::{SETTINGS, is_known};

/// How the name of every setting begins.
const PREFIX: &str = "ONCELY_";

/// Read by the tests of this program, which hand their environment on to it.
const OF_TESTS: [&str; 3] = ["ONCELY_STORY_SEED", "ONCELY_WRITE_SCHEMA", "ONCELY_RIG_TEST_PARENT"];

/// Everything in the environment that begins like a setting and is none.
pub(super) fn unknown(environment: &Environment) -> Vec<ConfigError> {
    let pairs = environment.beginning(PREFIX);
    let pairs = pairs.map(|(rest, value)| (format!("{PREFIX}{rest}"), value));
    pairs
        .filter(|(name, value)| !is_known(name) && !is_of_others(name, value))
        .map(|(name, _)| ConfigError::Unknown { meant: meant(&name), name })
        .collect()
}

/// What Kubernetes sets in every pod beside a service that is called `oncely` or `oncely-…`, and
/// what tests set.
fn is_of_others(name: &str, value: &str) -> bool {
    let is_port_of = |protocol: &str| name.contains(protocol) && name.contains("_PORT_");
    OF_TESTS.contains(&name)
        || name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || (name.ends_with("_PORT") && value.contains("://"))
        || ["_TCP", "_UDP", "_SCTP"].into_iter().any(is_port_of)
}

/// The setting that was probably meant.
pub(super) fn meant(name: &str) -> Option<String> {
    let plain = name.strip_suffix("_FILE").unwrap_or(name);
    let known = || SETTINGS.iter().map(|(known, ..)| *known).filter(|known| !known.contains('<'));
    if let Some(near) = nearest(plain, known()) {
        let file = if plain.len() < name.len() { "_FILE" } else { "" };
        return Some(format!("{near}{file}"));
    }
    let upper = name.to_ascii_uppercase();
    if is_known(&upper) {
        return Some(upper);
    }
    let parts = |name: &str| name.split('_').map(str::to_owned).collect::<Vec<_>>();
    let has_all = |all: &[String], few: &[String]| few.iter().all(|part| all.contains(part));
    let mut holding = known().filter(|known| has_all(&parts(known), &parts(plain)));
    match (holding.next(), holding.next()) {
        (Some(only), None) => return Some(only.to_owned()),
        // ONCELY_KAFKA_SASL_PASSWORD: the second underscore is easily forgotten.
        _ => plain.strip_prefix("ONCELY_KAFKA_").filter(|rest| !rest.starts_with('_')),
    }
    .map(|property| format!("ONCELY_KAFKA__{property}"))
}
