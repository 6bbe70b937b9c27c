//! Which properties of the client library a person may set.
//!
//! Whatever is not known to be harmless is refused: a property that switches verification off,
//! loads code, or moves offsets by itself would break the promise without a word.

use oncely_core::expr::spelling::nearest;

use super::settings::SettingsError;

/// Names of properties that are passed on as they are, and beginnings of names.
const PASSED_ON: &[&str] = &[
    "broker.address.family",
    "broker.address.ttl",
    "client.dns.lookup",
    "client.id",
    "client.rack",
    "connections.max.idle.ms",
    "debug",
    "fetch.max.bytes",
    "fetch.message.max.bytes",
    "fetch.min.bytes",
    "fetch.wait.max.ms",
    "log.connection.close",
    "max.partition.fetch.bytes",
    "message.max.bytes",
    "metadata.max.age.ms",
    "queued.max.messages.kbytes",
    "receive.message.max.bytes",
    "security.protocol",
    "topic.metadata.refresh.interval.ms",
];
const PASSED_ON_UNDER: &[&str] =
    &["reconnect.backoff.", "retry.backoff.", "sasl.", "socket.", "ssl."];

/// Whether a property may be set to this value.
pub(super) fn check_property(name: &str, value: &str) -> Result<(), SettingsError> {
    let property = || name.to_owned();
    let promise = |reason| Err(SettingsError::Promise { property: property(), reason });
    let setting = |setting| Err(SettingsError::HasSetting { property: property(), setting });
    match name {
        "enable.ssl.certificate.verification" if is_true(value) => Ok(()),
        "enable.ssl.certificate.verification" => Err(SettingsError::Insecure {
            property: property(),
            instead: "name the certificate authority with ssl.ca.location or ssl.ca.pem",
        }),
        "ssl.endpoint.identification.algorithm" if value.eq_ignore_ascii_case("https") => Ok(()),
        "ssl.endpoint.identification.algorithm" => Err(SettingsError::Insecure {
            property: property(),
            instead: "use the name that stands in the broker's certificate",
        }),
        "enable.sasl.oauthbearer.unsecure.jwt" if !is_true(value) => Ok(()),
        "enable.sasl.oauthbearer.unsecure.jwt" => Err(SettingsError::Insecure {
            property: property(),
            instead: "use tokens that are signed",
        }),
        "plugin.library.paths"
        | "ssl.engine.location"
        | "ssl.engine.id"
        | "ssl.providers"
        | "sasl.kerberos.kinit.cmd"
        | "interceptors" => Err(SettingsError::RunsCode { property: property() }),
        "enable.auto.commit" | "auto.commit.enable" | "auto.commit.interval.ms" => {
            promise("offsets are committed after the effects, never by the clock")
        }
        "enable.auto.offset.store" | "offset.store.method" => {
            promise("an offset is stored after the effects, never when a record was read")
        }
        "auto.offset.reset" => {
            promise("the start position is decided once and kept in the database")
        }
        "isolation.level" => promise("records of aborted transactions must not have effects"),
        "check.crcs" => promise("records that were damaged on the way must not have effects"),
        "enable.partition.eof"
        | "fetch.queue.backoff.ms"
        | "statistics.interval.ms"
        | "max.poll.interval.ms" => promise("this program relies on its own value"),
        "allow.auto.create.topics" => promise("a missing topic is reported, never created"),
        "bootstrap.servers" | "metadata.broker.list" => setting("ONCELY_KAFKA_BROKERS"),
        "group.id" => setting("source.group of the connector file"),
        "group.instance.id" => setting("ONCELY_KAFKA_INSTANCE_ID"),
        "group.protocol" | "group.remote.assignor" | "partition.assignment.strategy" => {
            setting("source.protocol of the connector file, and ONCELY_KAFKA_ASSIGNOR")
        }
        "session.timeout.ms" => setting("ONCELY_KAFKA_SESSION_TIMEOUT"),
        "heartbeat.interval.ms" => setting("ONCELY_KAFKA_HEARTBEAT"),
        _ if PASSED_ON.contains(&name) => Ok(()),
        _ if PASSED_ON_UNDER.iter().any(|prefix| name.starts_with(prefix)) => Ok(()),
        _ => Err(SettingsError::NotPassedOn {
            property: property(),
            meant: nearest(name, PASSED_ON.iter().copied()),
        }),
    }
}

fn is_true(value: &str) -> bool {
    matches!(value.trim().to_ascii_lowercase().as_str(), "true" | "t" | "1")
}

#[cfg(test)]
mod tests {
    use super::super::settings::ClientSettings;
    use super::*;

    fn parse(name: &str, value: &str) -> Result<ClientSettings, SettingsError> {
        ClientSettings::parse("localhost:9092", [(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn what_switches_verification_off_is_refused_by_name() {
        for (name, value) in [
            ("enable.ssl.certificate.verification", "false"),
            ("enable.ssl.certificate.verification", "0"),
            ("ssl.endpoint.identification.algorithm", "none"),
            ("ssl.endpoint.identification.algorithm", ""),
            ("enable.sasl.oauthbearer.unsecure.jwt", "true"),
        ] {
            let error = parse(name, value).unwrap_err();
            assert!(matches!(&error, SettingsError::Insecure { .. }), "{error}");
            assert!(error.to_string().starts_with(name), "{error}");
        }
        assert!(parse("enable.ssl.certificate.verification", "true").is_ok());
        assert!(parse("ssl.endpoint.identification.algorithm", "https").is_ok());
    }

    #[test]
    fn what_would_break_the_promise_is_refused_by_name() {
        for name in [
            "enable.auto.commit",
            "enable.auto.offset.store",
            "auto.offset.reset",
            "isolation.level",
            "check.crcs",
            "auto.commit.interval.ms",
        ] {
            let error = parse(name, "true").unwrap_err();
            assert!(matches!(&error, SettingsError::Promise { .. }), "{error}");
            assert!(error.to_string().contains(name), "{error}");
        }
        for name in ["group.id", "session.timeout.ms", "bootstrap.servers"] {
            assert!(matches!(parse(name, "1"), Err(SettingsError::HasSetting { .. })), "{name}");
        }
        for name in ["plugin.library.paths", "ssl.engine.location", "sasl.kerberos.kinit.cmd"] {
            assert!(matches!(parse(name, "x"), Err(SettingsError::RunsCode { .. })), "{name}");
        }
        for name in ["test.mock.num.brokers", "acks", "enable.idempotence", "nonsense"] {
            assert!(matches!(parse(name, "1"), Err(SettingsError::NotPassedOn { .. })), "{name}");
        }
    }

    #[test]
    fn values_are_checked_by_the_client_and_never_shown() {
        let error = parse("security.protocol", "carrier-pigeon").unwrap_err();
        assert!(
            matches!(&error, SettingsError::Value { property, .. } if property == "security.protocol")
        );
        let settings = parse("sasl.password", "hunter2").unwrap();
        assert!(!format!("{settings:?}").contains("hunter2"));
        assert_eq!(ClientSettings::parse(" , ", []).unwrap_err(), SettingsError::NoBrokers);
    }
}
