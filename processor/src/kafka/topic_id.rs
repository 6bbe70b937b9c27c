//! Topic ids, which the safe part of the client library does not give.
//!
//! A topic that was deleted and made anew has the same name and another id; its offsets mean
//! other records. This is the only file of the program that may use `unsafe`. Every native object
//! made here is freed by a guard on every way out, and what is borrowed from an event is copied
//! before the event is freed. Called from one blocking thread at a time; needs nothing of it.

#![allow(unsafe_code, reason = "the client library has no safe call for topic ids")]

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::time::Duration;

use rdkafka::client::{Client, ClientContext};
use rdkafka::error::{IsError, KafkaError as ClientError, RDKafkaErrorCode};
use rdkafka_sys as native;
use uuid::Uuid;

/// What brokers say of a topic that is not there.
const MISSING: [RDKafkaErrorCode; 3] = [
    RDKafkaErrorCode::UnknownTopic,
    RDKafkaErrorCode::UnknownTopicOrPartition,
    RDKafkaErrorCode::InvalidTopic,
];

/// Frees a native object at the end of its scope.
struct Guard<T>(*mut T, unsafe extern "C" fn(*mut T));

impl<T> Guard<T> {
    fn new(object: *mut T, free: unsafe extern "C" fn(*mut T)) -> Result<Self, ClientError> {
        if object.is_null() {
            return Err(ClientError::AdminOpCreation("out of memory".to_owned()));
        }
        Ok(Self(object, free))
    }
}

impl<T> Drop for Guard<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer was checked to be non-null, came from the constructor that belongs
        // to `free`, and is freed here only.
        unsafe { (self.1)(self.0) }
    }
}

/// The ids of the named topics. A topic that does not exist is left out; a broker that keeps no
/// ids gives `None` for it.
///
/// # Errors
/// The client's error when the broker did not answer within `limit` or does not know the request.
pub(super) fn topic_ids<C: ClientContext>(
    client: &Client<C>,
    names: &[String],
    limit: Duration,
) -> Result<HashMap<String, Option<Uuid>>, ClientError> {
    let limit_ms = c_int::try_from(limit.as_millis()).unwrap_or(c_int::MAX);
    let names = names
        .iter()
        .map(|name| CString::new(name.as_str()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(ClientError::from)?;
    let mut name_pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    let handle = client.native_ptr();

    // SAFETY: `handle` is the live client borrowed for this call. The name pointers live until the
    // end of it, and the library copies the names. Guards free in reverse order: the event before
    // the queue.
    unsafe {
        let topics = Guard::new(
            native::rd_kafka_TopicCollection_of_topic_names(
                name_pointers.as_mut_ptr(),
                name_pointers.len(),
            ),
            native::rd_kafka_TopicCollection_destroy,
        )?;
        let options = Guard::new(
            native::rd_kafka_AdminOptions_new(
                handle,
                native::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS,
            ),
            native::rd_kafka_AdminOptions_destroy,
        )?;
        let refused = native::rd_kafka_AdminOptions_set_request_timeout(
            options.0,
            limit_ms,
            ptr::null_mut(),
            0,
        );
        if refused.is_error() {
            return Err(ClientError::AdminOp(refused.into()));
        }
        let queue = Guard::new(native::rd_kafka_queue_new(handle), native::rd_kafka_queue_destroy)?;
        native::rd_kafka_DescribeTopics(handle, topics.0, options.0, queue.0);
        // A little longer than the request may take, so that its own error arrives.
        let event = native::rd_kafka_queue_poll(queue.0, limit_ms.saturating_add(500));
        if event.is_null() {
            return Err(ClientError::AdminOp(RDKafkaErrorCode::OperationTimedOut));
        }
        let event = Guard::new(event, native::rd_kafka_event_destroy)?;
        read(&event)
    }
}

/// Copies ids out of the answer.
///
/// # Safety
/// The event is live. All pointers below belong to it and are not kept.
unsafe fn read(
    event: &Guard<native::rd_kafka_event_t>,
) -> Result<HashMap<String, Option<Uuid>>, ClientError> {
    // SAFETY: as above; null pointers are looked for before each use.
    unsafe {
        let error = native::rd_kafka_event_error(event.0);
        if error.is_error() {
            return Err(ClientError::AdminOp(error.into()));
        }
        let result = native::rd_kafka_event_DescribeTopics_result(event.0);
        if result.is_null() {
            return Err(ClientError::AdminOp(RDKafkaErrorCode::UnsupportedFeature));
        }
        let mut count = 0;
        let topics = native::rd_kafka_DescribeTopics_result_topics(result, &raw mut count);
        let mut ids = HashMap::new();
        for index in 0..count {
            let topic = *topics.add(index);
            let error = native::rd_kafka_error_code(native::rd_kafka_TopicDescription_error(topic));
            let code = RDKafkaErrorCode::from(error);
            if MISSING.contains(&code) {
                continue;
            }
            if error.is_error() {
                return Err(ClientError::AdminOp(code));
            }
            let name = native::rd_kafka_TopicDescription_name(topic);
            let id = native::rd_kafka_TopicDescription_topic_id(topic);
            if name.is_null() || id.is_null() {
                continue;
            }
            let id = Uuid::from_u64_pair(
                native::rd_kafka_Uuid_most_significant_bits(id).cast_unsigned(),
                native::rd_kafka_Uuid_least_significant_bits(id).cast_unsigned(),
            );
            let name = CStr::from_ptr(name).to_string_lossy().into_owned();
            ids.insert(name, (!id.is_nil()).then_some(id));
        }
        Ok(ids)
    }
}
