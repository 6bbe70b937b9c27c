//! Answers about a real cluster.

use std::collections::HashMap;
use std::time::Duration;

use oncely::kafka::{Admin, KafkaError, TopicPartition, WitnessCheck};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer as _, ThreadedProducer};

use super::cluster::{create_topic, fill, fresh, kafka, settings};

fn new(group: &str) -> Admin {
    Admin::new(&settings(), group).unwrap()
}

/// K12: a topic that was made anew has another id.
#[tokio::test(flavor = "multi_thread")]
async fn k12_topics_have_ids_that_change_when_they_are_made_anew() {
    let admin = new(&fresh("g"));
    let names = [fresh("ids"), fresh("ids")];
    for name in &names {
        create_topic(name, 3).await;
    }
    let before = admin.topics(&names).await.unwrap();
    assert_eq!(before[1].name, names[1]);
    assert_eq!(before[1].partitions, [0, 1, 2]);
    assert!(before[0].id.is_some() && before[0].id != before[1].id);
    assert_eq!(admin.topics(&names).await.unwrap(), before);
    kafka().delete_topic(&names[0]).await.unwrap();
    let missing = admin.topics(&names).await.unwrap_err();
    assert!(matches!(&missing, KafkaError::TopicMissing { topic } if *topic == names[0]));
    create_topic(&names[0], 3).await;
    let after = admin.topics(&names).await.unwrap();
    assert!(after[0].id.is_some());
    assert_ne!(after[0].id, before[0].id);
    assert_eq!(after[1], before[1]);
    let some = [names[0].clone(), fresh("none")];
    let ids = admin.topic_ids(&some).await.unwrap();
    assert_eq!(ids, HashMap::from([(names[0].clone(), after[0].id.unwrap())]));
    assert!(!admin.cluster_id().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn retention_is_read_by_policy() {
    let admin = new(&fresh("g"));
    let (aged, compacted) = (fresh("aged"), fresh("compacted"));
    kafka().create_topic(&aged, 1, &[("retention.ms", "60000")]).await.unwrap();
    kafka().create_topic(&compacted, 1, &[("cleanup.policy", "compact")]).await.unwrap();
    let retention = admin.retention(&aged).await.unwrap().unwrap();
    assert_eq!((retention.retention_ms, retention.compacted), (Some(60_000), false));
    let retention = admin.retention(&compacted).await.unwrap().unwrap();
    assert_eq!((retention.retention_ms, retention.compacted), (None, true));
    assert!(admin.retention(&fresh("none")).await.is_err());
}

/// K9, K12, K16: the witness of a position tells a topic from another one of the same name.
#[tokio::test(flavor = "multi_thread")]
async fn k12_witnesses_tell_topics_apart() {
    let admin = new(&fresh("g"));
    let topic = fresh("witness");
    create_topic(&topic, 2).await;
    fill(&topic, 2, 200).await;
    let at = |partition| TopicPartition::new(topic.as_str(), partition);
    let positions = [(at(0), 60), (at(1), 100)];
    let witnesses = admin.witnesses_before(&positions).await.unwrap();
    assert_eq!(witnesses[&at(0)].offset, 59);
    assert_eq!(witnesses[&at(1)].offset, 99);
    assert_eq!(admin.witnesses_before(&[(at(0), 0)]).await.unwrap(), HashMap::new());
    let asked: Vec<_> = witnesses.clone().into_iter().collect();
    let checks = admin.check_witnesses(&asked).await.unwrap();
    assert!(checks.values().all(|check| *check == WitnessCheck::Same), "{checks:?}");
    kafka().delete_records(&topic, 0, 80).await.unwrap();
    let checks = admin.check_witnesses(&asked).await.unwrap();
    assert_eq!(checks[&at(0)], WitnessCheck::Gone);
    assert_eq!(checks[&at(1)], WitnessCheck::Same);
    assert_eq!(admin.watermarks(&at(0)).await.unwrap(), (80, 100));

    kafka().delete_topic(&topic).await.unwrap();
    create_topic(&topic, 2).await;
    fill(&topic, 2, 140).await;
    let checks = admin.check_witnesses(&asked).await.unwrap();
    assert!(matches!(checks[&at(0)], WitnessCheck::Different { .. }), "{checks:?}");
    assert_eq!(checks[&at(1)], WitnessCheck::Shorter { high: 70 });
}

/// K16: markers of transactions are passed over, aborted records are not seen.
#[tokio::test(flavor = "multi_thread")]
async fn k16_witnesses_pass_over_markers() {
    let topic = fresh("markers");
    create_topic(&topic, 1).await;
    let name = topic.clone();
    tokio::task::spawn_blocking(move || {
        let producer: ThreadedProducer<DefaultProducerContext> = ClientConfig::new()
            .set("bootstrap.servers", kafka().bootstrap())
            .set("transactional.id", &name)
            .create()
            .unwrap();
        let limit = Duration::from_secs(20);
        producer.init_transactions(limit).unwrap();
        for (commits, count) in [(true, 3), (false, 5), (false, 5)] {
            producer.begin_transaction().unwrap();
            for number in 0..count {
                let value = format!("{commits}-{number}");
                producer.send(BaseRecord::<str, str>::to(&name).payload(&value)).unwrap();
            }
            if commits {
                producer.commit_transaction(limit).unwrap();
            } else {
                producer.abort_transaction(limit).unwrap();
            }
        }
    })
    .await
    .unwrap();
    let admin = new(&fresh("g"));
    let partition = TopicPartition::new(topic.as_str(), 0);
    // The producer is told of the end before its marker is in the log: three records and one marker, and of what
    // was aborted as much as had been sent.
    let began = std::time::Instant::now();
    let high = loop {
        let (low, high) = admin.watermarks(&partition).await.unwrap();
        assert_eq!(low, 0);
        if high >= 4 {
            break high;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "the log ends at {high}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let witnesses = admin.witnesses_before(&[(partition.clone(), high)]).await.unwrap();
    assert_eq!(witnesses[&partition].offset, 2);
    let asked = [(partition.clone(), witnesses[&partition])];
    assert_eq!(admin.check_witnesses(&asked).await.unwrap()[&partition], WitnessCheck::Same);
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_to_nobody_end_in_time() {
    let settings = oncely::kafka::ClientSettings::parse("127.0.0.1:9", []).unwrap();
    let admin = Admin::with_limit(&settings, "g", Duration::from_millis(300)).unwrap();
    let partition = TopicPartition::new("t", 0);
    let began = std::time::Instant::now();
    assert!(admin.cluster_id().await.unwrap_err().is_transient());
    assert!(admin.topics(&["t".to_owned()]).await.unwrap_err().is_transient());
    assert!(admin.watermarks(&partition).await.unwrap_err().is_transient());
    assert!(admin.committed(&[partition]).await.unwrap_err().is_transient());
    assert!(admin.retention("t").await.unwrap_err().is_transient());
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
}
