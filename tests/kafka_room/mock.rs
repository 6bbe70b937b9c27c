//! The broker inside the process, as the demo uses it.

use oncely::kafka::{
    Admin, ClientSettings, ConsumerSettings, MockBroker, NewRecord, Producer, TopicPartition,
};

use super::member::{Manners, Member, Shared, count_of, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_group_reads_from_the_broker_inside() {
    let broker = MockBroker::start().unwrap();
    broker.create_topic("demo", 4).unwrap();
    let client = ClientSettings::parse(&broker.brokers(), []).unwrap();
    let producer = Producer::new(&client).unwrap();
    let produce = async |from: i32, to: i32| {
        for number in from..to {
            let value = number.to_string();
            let record = NewRecord {
                topic: "demo",
                partition: Some(number % 4),
                value: Some(value.as_bytes()),
                ..NewRecord::default()
            };
            producer.produce(record).await.unwrap();
        }
    };
    produce(0, 40).await;
    let topics = vec!["demo".to_owned()];
    let settings = ConsumerSettings::new(client.clone(), "demo", topics).for_mock_broker();
    let board = Shared::default();
    let first = Member::join("first", &settings, &board, Manners::default());
    until("all records", &board, |b| b.delivered.len() == 40).await;
    let second = Member::join("second", &settings, &board, Manners::default());
    until("a share each", &board, |b| count_of(b, "first") == 2 && count_of(b, "second") == 2)
        .await;
    produce(40, 80).await;
    until("all records", &board, |b| b.delivered.len() == 80).await;
    first.leave().await;
    produce(80, 120).await;
    until("all records", &board, |b| b.delivered.len() == 120).await;
    second.leave().await;
    assert_eq!(board.lock().unwrap().wrong, Vec::<String>::new());

    let admin = Admin::new(&client, "demo").unwrap();
    let topics = admin.topics(&["demo".to_owned()]).await.unwrap();
    assert_eq!(topics[0].partitions, [0, 1, 2, 3]);
    let partition = TopicPartition::new("demo", 0);
    assert_eq!(admin.watermarks(&partition).await.unwrap(), (0, 30));
    assert_eq!(admin.committed(std::slice::from_ref(&partition)).await.unwrap()[&partition], 30);
    let witnesses = admin.witnesses_before(&[(partition.clone(), 30)]).await.unwrap();
    assert_eq!(witnesses[&partition].offset, 29);
    assert_eq!(admin.retention("demo").await.unwrap(), None);
    assert!(!admin.cluster_id().await.unwrap().is_empty());
    assert!(admin.is_mock_broker().await.unwrap());
    assert_eq!(topics[0].id, None);
}
