//! Settings: what is refused, and how it is said.

use std::fs;
use std::time::Duration;

use super::*;
use oncely_connectors::secret::{Reference, SecretSource};

fn with<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Environment {
    let base = [
        ("ONCELY_DATABASE_URL", "postgres://u:canary@localhost/db"),
        ("ONCELY_KAFKA_BROKERS", "localhost:9092"),
    ];
    let mut environment = Environment::of_pairs(base);
    for (name, value) in pairs {
        environment.set(name, value);
    }
    environment
}

fn refusal<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    Settings::read(&with(pairs)).unwrap_err().to_string()
}

#[test]
fn defaults_are_valid() {
    let settings = Settings::read(&with([])).unwrap();
    assert_eq!(settings.worker.lease, Duration::from_secs(5));
    assert_eq!(settings.kafka.session_timeout, Duration::from_secs(45));
    assert_eq!(settings.http_listen.port(), 9090);
}

#[test]
fn everything_wrong_is_said_at_once() {
    let errors = Settings::read(&Environment::of_pairs([
        ("ONCELY_LEASE", "2s"),
        ("ONCELY_HTTP_LISTEN", "9090"),
        ("ONCELY_LOG_FORMAT", "xml"),
    ]));
    insta::assert_snapshot!(errors.unwrap_err().to_string(), @r#"
    ONCELY_DATABASE_URL is not set: give --database URL, set the variable, or set ONCELY_DATABASE_URL_FILE
    ONCELY_KAFKA_BROKERS is not set: give --brokers host:9092 or set the variable
    ONCELY_HEARTBEAT is 1000 ms and ONCELY_LEASE 2000 ms: three heartbeats must fit in a lease, so that one lost packet kills no worker; raise the lease or lower the heartbeat
    ONCELY_HTTP_LISTEN is "9090", which is no address and port, as in 0.0.0.0:9090 or [::]:9090
    ONCELY_LOG_FORMAT is "xml": write text or json
    "#);
}

#[test]
fn no_error_of_one_part_hides_another() {
    let errors = Settings::read(&Environment::of_pairs([
        ("ONCELY_DATABASE_URL", "mysql://x"),
        ("ONCELY_KAFKA_SESSION_TIMEOUT", "9s"),
        ("ONCELY_KAFKA_HEARTBEAT", "1ms"),
        ("ONCELY_KAFKA_ASSIGNOR", "best"),
        ("ONCELY_KAFKA__GROUP_ID", "mine"),
        ("ONCELY_KAFKA__SECURITY_PROTOCOL", "tls"),
        ("ONCELY_LEASE", "2s"),
        ("ONCELY_DRAIN", "30s"),
        ("ONCELY_WRITERS", "many"),
        ("ONCELY_LOG_FORMAT", "xml"),
        ("ONCELY_LOG_BUSINESS_ID", "none"),
    ]));
    insta::assert_snapshot!(errors.unwrap_err().to_string(), @r#"
    ONCELY_DATABASE_URL is no URL: write postgres://user@host:5432/database
    ONCELY_KAFKA_BROKERS is not set: give --brokers host:9092 or set the variable
    ONCELY_KAFKA_HEARTBEAT must lie between 100ms and 1200s, and is 1ms
    ONCELY_KAFKA_ASSIGNOR is "best": write cooperative-sticky or range
    a property of the kafka client is refused: group.id cannot be set here: use the setting source.group of the connector file
    a property of the kafka client is refused: security.protocol is refused by the client itself: Invalid value "tls" for configuration property "security.protocol"
    ONCELY_WRITERS is "many", which is no whole number
    ONCELY_HEARTBEAT is 1000 ms and ONCELY_LEASE 2000 ms: three heartbeats must fit in a lease, so that one lost packet kills no worker; raise the lease or lower the heartbeat
    ONCELY_DRAIN is 30000 ms and the group's session time-out 9000 ms: a drain that outlives the session would write for partitions that others own; lower ONCELY_DRAIN or raise ONCELY_KAFKA_SESSION_TIMEOUT
    ONCELY_DRAIN is 30000 ms and ONCELY_SHUTDOWN_GRACE 25000 ms: what is in flight is drained inside the grace; raise the grace or lower the drain
    ONCELY_LOG_FORMAT is "xml": write text or json
    ONCELY_LOG_BUSINESS_ID is "none": write hash or plain
    "#);
}

#[test]
fn times_that_contradict_each_other_are_refused() {
    insta::assert_snapshot!(refusal([("ONCELY_DRAIN", "45s"), ("ONCELY_SHUTDOWN_GRACE", "50s")]), @"ONCELY_DRAIN is 45000 ms and the group's session time-out 45000 ms: a drain that outlives the session would write for partitions that others own; lower ONCELY_DRAIN or raise ONCELY_KAFKA_SESSION_TIMEOUT");
    insta::assert_snapshot!(refusal([("ONCELY_SHUTDOWN_GRACE", "5s")]), @"ONCELY_DRAIN is 20000 ms and ONCELY_SHUTDOWN_GRACE 5000 ms: what is in flight is drained inside the grace; raise the grace or lower the drain");
    insta::assert_snapshot!(refusal([("ONCELY_KAFKA_HEARTBEAT", "16s")]), @"ONCELY_KAFKA_HEARTBEAT is 16000 ms and ONCELY_KAFKA_SESSION_TIMEOUT 45000 ms: three heartbeats must fit in a session; raise the session time-out or lower the heartbeat");
    insta::assert_snapshot!(refusal([("ONCELY_LEASE", "5")]), @r#"ONCELY_LEASE is "5", which is no duration: write a number and ms, s, m or h, as in 5s"#);
    insta::assert_snapshot!(refusal([("ONCELY_LEASE", "100ms")]), @"ONCELY_LEASE must lie between 300ms and 600s, and is 100ms");
}

#[test]
fn s25_a_database_elsewhere_must_prove_itself() {
    for refused in [
        "postgres://u@db.internal/x",
        "postgres://u@db.internal/x?sslmode=prefer",
        "postgres://u@db.internal/x?sslmode=require",
        "postgres://u@db.internal/x?sslmode=disable",
        "postgres://u@localhost/x?host=db.internal",
        "postgres://u@localhost/x?sslmode=verify-full&sslmode=disable&host=10.0.0.1",
    ] {
        let said = refusal([("ONCELY_DATABASE_URL", refused)]);
        assert!(said.contains("sslmode=verify-full"), "{refused}: {said}");
    }
    for allowed in [
        "postgres://u@db.internal/x?sslmode=verify-full",
        "postgres://u@127.0.0.1:5433/x",
        "postgresql://u@[::1]/x?sslmode=prefer",
        "postgres://u@%2Frun%2Fpostgresql/x",
        "postgres:///x?host=/run/postgresql",
    ] {
        let database = Settings::read(&with([("ONCELY_DATABASE_URL", allowed)])).unwrap().database;
        assert!(database.url().contains("sslmode="), "{allowed}");
    }
    insta::assert_snapshot!(refusal([("ONCELY_DATABASE_URL", "postgres:///x")]), @"ONCELY_DATABASE_URL names no host: write postgres://user@host:5432/database");
}

#[test]
fn s24_credentials_never_travel_in_the_clear() {
    let clear = ("ONCELY_KAFKA__SECURITY_PROTOCOL", "SASL_PLAINTEXT");
    insta::assert_snapshot!(refusal([("ONCELY_KAFKA_BROKERS", "localhost:1,k:9092"), clear]), @"ONCELY_KAFKA__SECURITY_PROTOCOL would send credentials in the clear: use sasl_ssl; sasl_plaintext is for brokers on this machine only");
    assert!(
        Settings::read(&with([("ONCELY_KAFKA_BROKERS", "[::1]:1,localhost:2"), clear])).is_ok()
    );
}

#[test]
fn values_come_from_files_as_well() {
    let dir = std::env::temp_dir().join(format!("oncely-config-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let path = |name: &str| dir.join(name).display().to_string();
    fs::write(path("password"), "canary-1\n").unwrap();
    fs::write(path("settings"), "# ours\nONCELY_WRITERS = 3\nONCELY_LOG=debug\n").unwrap();
    let mut environment = with([
        ("ONCELY_KAFKA__SASL_PASSWORD_FILE", path("password").as_str()),
        ("ONCELY_LOG", "warn"),
        ("ONCELY_SECRETS_DIR", dir.to_str().unwrap()),
    ]);
    environment.under_file(path("settings").as_ref()).unwrap();
    let settings = Settings::read(&environment).unwrap();
    let properties: Vec<_> = settings.kafka.client.properties().collect();
    assert_eq!(properties, [("sasl.password", "canary-1")]);
    let assertion = kafka::property("ONCELY_KAFKA__SASL_OAUTHBEARER_ASSERTION_FILE");
    assert_eq!(assertion.as_deref(), Some("sasl.oauthbearer.assertion.file"), "its own name");
    assert_eq!((settings.worker.writers, settings.log.filter.as_str()), (3, "warn"));

    let secrets = Secrets::new(&environment);
    let found = secrets.lookup(&Reference::Secret { name: "password".into() }).unwrap();
    assert_eq!(found.expose(), "canary-1");
    assert!(secrets.lookup(&Reference::Secret { name: "absent".into() }).is_none());

    // S13: whatever is formatted shows no value.
    let shown = format!("{settings:?} {environment:?} {secrets:?}");
    assert!(!shown.contains("canary"), "{shown}");

    fs::write(path("settings"), "\nONCELY_LAESE=3s\n").unwrap();
    let error = environment.under_file(path("settings").as_ref()).unwrap_err().to_string();
    assert!(
        error.ends_with("settings:2: ONCELY_LAESE is no setting, did you mean ONCELY_LEASE?"),
        "{error}"
    );
    fs::write(path("settings"), "ONCELY_LAESE=3s\nONCELY_LEASE\n").unwrap();
    let error = environment.under_file(path("settings").as_ref()).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 2, "{error}");
    fs::write(path("settings"), "ONCELY_LEASE\n").unwrap();
    let error = environment.under_file(path("settings").as_ref()).unwrap_err().to_string();
    assert!(error.contains("settings:1 is no setting"), "{error}");
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_mistyped_name_is_refused_and_not_ignored() {
    let mistyped = Environment::of_pairs([
        ("ONCELY_LAESE", "3s"),
        ("ONCELY_DATABSE_URL_FILE", "/run/secrets/url"),
        ("ONCELY_BROKERS", "k:9092"),
        ("ONCELY_KAFKA_SASL_PASSWORD", "canary"),
        ("ONCELY_KAFKA__sasl_password", "canary"),
        ("ONCELY_COLOUR", "blue"),
    ]);
    insta::assert_snapshot!(check_names(&mistyped).unwrap_err().to_string(), @r"
    ONCELY_BROKERS is no setting, did you mean ONCELY_KAFKA_BROKERS?
    ONCELY_COLOUR is no setting: remove it, or name it otherwise if a connector file reads it; `oncely help settings` lists them all
    ONCELY_DATABSE_URL_FILE is no setting, did you mean ONCELY_DATABASE_URL_FILE?
    ONCELY_KAFKA_SASL_PASSWORD is no setting, did you mean ONCELY_KAFKA__SASL_PASSWORD?
    ONCELY_KAFKA__sasl_password is no setting, did you mean ONCELY_KAFKA__SASL_PASSWORD?
    ONCELY_LAESE is no setting, did you mean ONCELY_LEASE?
    ");
}

#[test]
fn what_others_put_into_the_environment_is_let_be() {
    let pairs =
        SETTINGS.iter().map(|(name, ..)| (*name, "x")).filter(|(name, _)| !name.contains('<'));
    check_names(&Environment::of_pairs(pairs)).unwrap();
    // A Kubernetes service `oncely`, and one `oncely-admin`.
    check_names(&Environment::of_pairs([
        ("ONCELY_SERVICE_HOST", "10.0.0.7"),
        ("ONCELY_SERVICE_PORT_METRICS", "9090"),
        ("ONCELY_PORT", "tcp://10.0.0.7:9090"),
        ("ONCELY_PORT_9090_TCP_ADDR", "10.0.0.7"),
        ("ONCELY_ADMIN_PORT_8081_TCP", "tcp://10.0.0.8:8081"),
        ("ONCELY_KAFKA__SASL_PASSWORD_FILE", "/run/secrets/kafka"),
        ("ONCELY_STORY_SEED", "7"),
    ]))
    .unwrap();
    assert!(check_names(&Environment::of_pairs([("ONCELY_PORT", "9090")])).is_err());
}

#[test]
fn a_refused_property_of_the_client_is_said_with_everything_else() {
    let both = [("ONCELY_KAFKA__ENABLE_AUTO_COMMIT", "true"), ("ONCELY_LEASE", "5")];
    insta::assert_snapshot!(refusal(both), @r#"
    a property of the kafka client is refused: enable.auto.commit cannot be set: offsets are committed after the effects, never by the clock
    ONCELY_LEASE is "5", which is no duration: write a number and ms, s, m or h, as in 5s
    "#);
    let each = [
        ("ONCELY_KAFKA__GROUP_ID", "mine"),
        ("ONCELY_KAFKA__FETCH_MNI_BYTES", "1"),
        ("ONCELY_KAFKA__SASL_PASSWROD", "canary"),
        ("ONCELY_KAFKA__SECURITY_PROTOCOL", "tls"),
    ];
    let said: Vec<_> = each.into_iter().map(|pair| refusal([pair])).collect();
    let said = said.join("\n").replace("a property of the kafka client is refused: ", "");
    insta::assert_snapshot!(said, @r#"
    group.id cannot be set here: use the setting source.group of the connector file
    fetch.mni.bytes is not among the properties that are passed on to the kafka client: did you mean fetch.min.bytes?
    sasl.passwrod is refused by the client itself: No such configuration property: "sasl.passwrod"
    security.protocol is refused by the client itself: Invalid value "tls" for configuration property "security.protocol"
    "#);
}

#[test]
fn an_audit_row_names_whoever_typed() {
    let by = |pairs: &[(&str, &str)]| actor(&Environment::of_pairs(pairs.iter().copied()));
    assert_eq!(by(&[("ONCELY_ACTOR", "ana"), ("USER", "root")]), "ana");
    assert_eq!(by(&[("SUDO_USER", "ben"), ("USER", "root"), ("LOGNAME", "root")]), "ben");
    assert_eq!(by(&[("LOGNAME", "cleo")]), "cleo");
    // A container has none of them.
    let nobody = by(&[]);
    assert!(nobody != "unknown" && !nobody.is_empty(), "{nobody}");
}
