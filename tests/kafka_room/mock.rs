//! The broker inside the process, as the demo uses it; and answers of brokers that come to nobody at will.

use std::time::Duration;

use oncely::kafka::{
    Admin, ClientSettings, ConsumerSettings, KafkaError, MockBroker, NewRecord, Producer,
    TopicPartition,
};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use super::member::{Manners, Member, Shared, count_of, until};

const OUT: &str = "out";

/// One broker that answers these to the next produce requests, and what is known of it.
struct Answers {
    cluster: MockCluster<'static, DefaultProducerContext>,
    producer: Producer,
    admin: Admin,
}

impl Answers {
    fn new(errors: &[RDKafkaRespErr]) -> Self {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic(OUT, 1, 1).unwrap();
        let client = ClientSettings::parse(&cluster.bootstrap_servers(), []).unwrap();
        let producer = Producer::new(&client).unwrap();
        let admin = Admin::new(&client, "out").unwrap();
        cluster.request_errors(RDKafkaApiKey::Produce, errors);
        Self { cluster, producer, admin }
    }

    fn send(&self, value: &'static str) -> impl Future<Output = Result<i64, KafkaError>> + use<> {
        let producer = self.producer.clone();
        async move {
            let value = Some(value.as_bytes());
            let record =
                NewRecord { topic: OUT, partition: Some(0), value, ..NewRecord::default() };
            producer.produce_now(record).await.map(|delivered| delivered.offset)
        }
    }

    async fn count(&self) -> i64 {
        self.admin.watermarks(&TopicPartition::new(OUT, 0)).await.unwrap().1
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn w12_a_batch_that_only_the_next_one_speaks_for_is_not_delivered() {
    // The first is refused by a leader that is none yet; the second has left before that is known, and is
    // taken by a broker that does not know the producer. The client calls both delivered.
    let answers = Answers::new(&[]);
    assert_eq!(answers.send("known").await.unwrap(), 0);
    answers.cluster.broker_round_trip_time(1, Duration::from_millis(500)).unwrap();
    answers.cluster.request_errors(
        RDKafkaApiKey::Produce,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION],
    );
    let first = tokio::spawn(answers.send("first"));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let second = answers.send("second").await.unwrap();
    let first = first.await.unwrap();
    assert_eq!((second, answers.count().await), (1, 2), "the first is not there");
    assert!(matches!(first, Err(KafkaError::Unplaced)), "{first:?}");
    assert_eq!(first.unwrap_err().refusal(), None, "it is sent again");
    assert_eq!(answers.send("first").await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn w12_records_that_a_broker_takes_for_known_ones_are_not_delivered() {
    let duplicate = RDKafkaRespErr::RD_KAFKA_RESP_ERR_DUPLICATE_SEQUENCE_NUMBER;
    let answers = Answers::new(&[duplicate]);
    let (one, other) = tokio::join!(answers.send("one"), answers.send("other"));
    assert_eq!(answers.count().await, 0);
    for sent in [one, other] {
        assert!(matches!(sent, Err(KafkaError::Unplaced)), "{sent:?}");
    }
    assert_eq!(answers.send("one").await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn w12_the_first_record_of_a_topic_is_sent_once_though_one_before_it_had_no_place() {
    let duplicate = RDKafkaRespErr::RD_KAFKA_RESP_ERR_DUPLICATE_SEQUENCE_NUMBER;
    let answers = Answers::new(&[duplicate]);
    assert!(matches!(answers.send("one").await, Err(KafkaError::Unplaced)));
    assert_eq!(answers.send("one").await.unwrap(), 0);
    assert_eq!(answers.count().await, 1);
}

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
