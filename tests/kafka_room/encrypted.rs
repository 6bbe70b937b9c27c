//! A broker that is to be reached by TLS and a password.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use oncely::kafka::{
    Admin, ClientSettings, ConsumerHandle, ConsumerSettings, Event, KafkaError, StopMode,
    TroubleKind,
};
use oncely_rig::kafka::{Kafka, KafkaOptions};
use oncely_rig::places::Scratch;

use super::cluster::fill_at;
use super::member::{Manners, Member, Shared, until};

/// Makes two authorities, and a broker's key and certificate by the first.
fn certificates(dir: &Path) {
    let script = r#"set -e
        curve="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
        for ca in ca other; do
            openssl req -x509 $curve -keyout $ca.key -out $ca.pem -days 2 -subj /CN=$ca
        done
        openssl req $curve -keyout broker.key -out broker.csr -subj /CN=broker
        echo subjectAltName=IP:127.0.0.1 > names
        openssl x509 -req -in broker.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
            -extfile names -out broker.pem
        cat broker.key broker.pem > keystore.pem"#;
    let made = Command::new("sh").args(["-c", script]).current_dir(dir).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

async fn broker(dir: &Path) -> Kafka {
    let keystore = dir.join("keystore.pem");
    let login = "org.apache.kafka.common.security.plain.PlainLoginModule required \
                 user_reader=\"right\";";
    let options = KafkaOptions::new(1)
        .with(
            "listener.security.protocol.map",
            "CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        )
        .with("listener.name.client.sasl.enabled.mechanisms", "PLAIN")
        .with("listener.name.client.plain.sasl.jaas.config", login)
        .with("listener.name.client.ssl.keystore.type", "PEM")
        .with("listener.name.client.ssl.keystore.location", keystore.to_str().unwrap());
    Kafka::start(&options).await.unwrap()
}

fn client(kafka: &Kafka, ca: &Path, password: &str) -> ClientSettings {
    let properties = [
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", "reader"),
        ("sasl.password", password),
        ("ssl.ca.location", ca.to_str().unwrap()),
    ];
    let properties = properties.map(|(name, value)| (name.to_owned(), value.to_owned()));
    ClientSettings::parse(&kafka.bootstrap(), properties).unwrap()
}

/// What is said where nothing can be read: by the consumer, and to the first question of all.
async fn refusal(settings: &ClientSettings) -> (String, KafkaError) {
    let asked = Admin::with_limit(settings, "g", Duration::from_secs(3)).unwrap();
    let answer = asked.cluster_id().await.unwrap_err();
    let settings = ConsumerSettings::new(settings.clone(), "g", vec!["private".to_owned()]);
    let (handle, mut events) = ConsumerHandle::spawn(&settings).unwrap();
    let text = loop {
        let event = tokio::time::timeout(Duration::from_secs(20), events.recv()).await;
        match event.expect("trouble").expect("a consumer") {
            Event::Trouble(trouble) if trouble.kind == TroubleKind::Authentication => {
                break trouble.text;
            }
            Event::Trouble(_) => {}
            other => panic!("{other:?}"),
        }
    };
    handle.stop(StopMode::Drain);
    while events.recv().await.is_some() {}
    (text, answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_and_a_password_are_passed_on_and_what_is_wrong_is_said() {
    let dir = Scratch::new(None, "certificates").unwrap();
    certificates(dir.path());
    let kafka = broker(dir.path()).await;
    kafka.create_topic("private", 2, &[]).await.unwrap();
    let (ca, other) = (dir.path().join("ca.pem"), dir.path().join("other.pem"));

    let right = client(&kafka, &ca, "right");
    fill_at(&right, "private", 2, 50).await;
    let board = Shared::default();
    let settings = ConsumerSettings::new(right.clone(), "g", vec!["private".to_owned()]);
    let member = Member::join("m", &settings, &board, Manners::default());
    until("the records", &board, |b| b.delivered.len() == 50).await;
    member.leave().await;
    let admin = Admin::new(&right, "g").unwrap();
    let known = admin.topic_ids(&["private".to_owned()]).await.unwrap();
    assert_eq!(known.len(), 1, "questions go the same way");

    let (text, answer) = refusal(&client(&kafka, &other, "right")).await;
    for said in [text, answer.to_string()] {
        assert!(said.contains("certificate verify failed"), "{said}");
        assert!(said.contains("ssl.ca.location"), "it names what to look at: {said}");
    }
    let (text, answer) = refusal(&client(&kafka, &ca, "wrong")).await;
    for said in [text, answer.to_string()] {
        assert!(said.contains("Authentication failed"), "{said}");
        assert!(!said.contains("wrong"), "no secret is shown: {said}");
    }
}
